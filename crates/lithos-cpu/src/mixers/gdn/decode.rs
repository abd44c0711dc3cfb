//! The recurrence over a few rows, from a folded state that is not written again.

use super::{Gates, GdnLog, GdnPart, GdnRows, MAX_DECODE_ROWS, factors, fold, gates, unit_norm};
use crate::mixers::view::{RowsMut, cut, padded};
use crate::simd::{Kernel, LANES, Simd};

/// See [`gdn_decode`](super::gdn_decode).
pub(super) struct Decode<'a, 's, 'l, 'o> {
    pub part: GdnPart<'a>,
    pub rows: GdnRows<'a>,
    pub pending_from: usize,
    pub state: &'a mut RowsMut<'s>,
    pub log: &'a mut GdnLog<'l>,
    pub scratch: &'a mut [f32],
    pub out: &'a mut RowsMut<'o>,
}

/// Queries, keys and one block of 16 state columns.
pub(super) fn scratch_floats(part: &GdnPart<'_>, rows: usize) -> usize {
    2 * padded(rows * part.shape.key_dim) + padded(part.shape.key_dim * part.columns.len())
}

/// One row's inputs for one block of 16 columns.
#[derive(Clone, Copy)]
struct Row {
    query: *const f32,
    key: *const f32,
    value: *const f32,
    beta: f32,
    factor: f32,
}

impl Kernel for Decode<'_, '_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let dim = self.part.shape.key_dim;
        let count = self.rows.convolved.rows();
        let mut memory = std::mem::take(&mut self.scratch);
        let queries = cut(&mut memory, count * dim).as_mut_ptr();
        let keys = cut(&mut memory, count * dim).as_mut_ptr();
        let blocks = cut(&mut memory, dim * self.part.columns.len()).as_mut_ptr();

        let pending = self.pending_from..self.rows.first_position;
        let Gates { beta, decay } = gates(s, &self.part, &self.rows, 0, count);
        let factor = factors(s, &decay);
        // SAFETY: the state has `key_dim` rows of the part's columns; the scratch was cut for
        // `count` queries and keys and for a copy of the state.
        unsafe {
            if !pending.is_empty() {
                fold(s, &self.part, self.log, pending, self.state.start(), self.state.stride());
            }
            self.copy_state(s, blocks);
            self.norm_rows(s, queries, keys);
        }
        self.log_rows(keys.cast_const(), &decay);
        let value_column = self.part.offsets().2;
        for column in (0..self.part.columns.len()).step_by(LANES) {
            let block = blocks.wrapping_add(column * dim);
            for t in 0..count {
                let row = Row {
                    query: queries.wrapping_add(t * dim),
                    key: keys.wrapping_add(t * dim),
                    value: self.rows.convolved.row(t)[value_column + column..][..LANES].as_ptr(),
                    beta: beta[t],
                    factor: factor[t],
                };
                let position = self.rows.first_position + t;
                let delta = self.log.delta(position, self.part.value_head);
                let delta = delta.wrapping_add(self.part.columns.start + column);
                let out = self.out.row_mut(t)[column..][..LANES].as_mut_ptr();
                // SAFETY: the block is `[key_dim][16]`, query and key `key_dim` long, the rest 16.
                unsafe { step(s, block, dim, row, delta, out) };
            }
        }
    }
}

impl Decode<'_, '_, '_, '_> {
    /// Copies the state to scratch as blocks of `[key_dim][16]`, which the recurrence walks.
    ///
    /// # Safety
    /// `blocks` has room for the part's state.
    #[inline(always)]
    unsafe fn copy_state<S: Simd>(&mut self, s: S, blocks: *mut f32) {
        let dim = self.part.shape.key_dim;
        let (state, stride) = (self.state.start(), self.state.stride());
        for d in 0..dim {
            for column in (0..self.part.columns.len()).step_by(LANES) {
                // SAFETY: row d of the state, and row d of the block of these columns.
                unsafe {
                    s.store(
                        blocks.add(column * dim + d * LANES),
                        s.load(state.add(d * stride + column)),
                    )
                };
            }
        }
    }

    /// Norms queries and keys of all rows.
    ///
    /// # Safety
    /// `queries` and `keys` have room for a `key_dim` per row.
    #[inline(always)]
    unsafe fn norm_rows<S: Simd>(&self, s: S, queries: *mut f32, keys: *mut f32) {
        let dim = self.part.shape.key_dim;
        let (query, key, _) = self.part.offsets();
        let root = 1.0 / (dim as f32).sqrt();
        for t in 0..self.rows.convolved.rows() {
            let row = self.rows.convolved.row(t);
            // SAFETY: a head's query and key inside the row; room in the scratch.
            unsafe {
                unit_norm(s, row[query..][..dim].as_ptr(), queries.add(t * dim), dim, root);
                unit_norm(s, row[key..][..dim].as_ptr(), keys.add(t * dim), dim, 1.0);
            }
        }
    }

    /// Logs what one task logs for all that share it: the keys and decays of this pass's rows.
    fn log_rows(&mut self, keys: *const f32, decays: &[f32; MAX_DECODE_ROWS]) {
        let dim = self.part.shape.key_dim;
        let key_head = self.part.shape.key_head(self.part.value_head);
        for (t, &decay) in decays.iter().enumerate().take(self.rows.convolved.rows()) {
            let position = self.rows.first_position + t;
            // SAFETY: inside the log; these positions are not pending, so no task reads them.
            unsafe {
                if self.part.logs_decay() {
                    self.log.decay(position, self.part.value_head).write(decay);
                }
                if self.part.logs_key() {
                    let target = self.log.key(position, key_head);
                    std::ptr::copy_nonoverlapping(keys.add(t * dim), target, dim);
                }
            }
        }
    }
}

/// One row of the recurrence on one block. Sums over the key dimension run in four chains, by
/// `d % 4`, added pairwise.
///
/// # Safety
/// `block` is `[dim][16]` and `dim` a multiple of 16, query and key are `dim` long; value, delta
/// and out are 16 long.
#[inline(always)]
unsafe fn step<S: Simd>(
    s: S,
    block: *mut f32,
    dim: usize,
    row: Row,
    delta_to: *mut f32,
    out: *mut f32,
) {
    let factor = s.splat(row.factor);
    // SAFETY: d + 3 is below dim.
    unsafe {
        let mut sums = [s.zero(); 4];
        let mut d = 0;
        while d < dim {
            for (chain, sum) in sums.iter_mut().enumerate() {
                let decayed = s.mul(factor, s.load(block.add((d + chain) * LANES)));
                *sum = s.fma(s.splat(row.key.add(d + chain).read()), decayed, *sum);
            }
            d += 4;
        }
        let known = s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3]));
        let delta = s.mul(s.splat(row.beta), s.sub(s.load(row.value), known));
        s.store(delta_to, delta);

        let mut sums = [s.zero(); 4];
        let mut d = 0;
        while d < dim {
            for (chain, sum) in sums.iter_mut().enumerate() {
                let at = block.add((d + chain) * LANES);
                let decayed = s.mul(factor, s.load(at));
                let updated = s.fma(s.splat(row.key.add(d + chain).read()), delta, decayed);
                s.store(at, updated);
                *sum = s.fma(s.splat(row.query.add(d + chain).read()), updated, *sum);
            }
            d += 4;
        }
        s.store(out, s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])));
    }
}
