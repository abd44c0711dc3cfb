//! The delta rule over chunks of 64 rows in WY form (Yang et al. 2024, "Parallelizing linear
//! transformers with the delta rule"; with gates as in Gated DeltaNet).
//!
//! With the running sum `G` of the log decays inside a chunk and `D[i][j] = e^(G_i - G_j)` for
//! `j <= i`, the corrected values `X` of a chunk solve
//!
//! ```text
//! X_i + beta_i sum_{j<i} D_ij (k_i . k_j) X_j = beta_i (v_i - e^(G_i) S^T k_i)
//! ```
//!
//! a unit lower triangular system, where `S` is the state before the chunk. Then
//! `o_i = e^(G_i) S^T q_i + sum_{j<=i} D_ij (q_i . k_j) X_j` and the state after the chunk is
//! `e^(G_n) S + sum_i e^(G_n - G_i) k_i X_i^T`. No exponent is positive. The sums `G` are kept in
//! f64, since their differences would lose digits in f32 where decays are strong.

use super::{CHUNK_ROWS, GdnLog, GdnPart, GdnRows, fold, gates, unit_norm};
use crate::mixers::exponential;
use crate::mixers::product::{self, Panel, Start};
use crate::mixers::view::{RowsMut, cut, padded};
use crate::simd::{Kernel, LANES, Simd};

/// See [`gdn_prefill`](super::gdn_prefill).
pub(super) struct Prefill<'a, 's, 'l, 'o> {
    pub part: GdnPart<'a>,
    pub rows: GdnRows<'a>,
    pub pending_from: usize,
    pub state: &'a mut RowsMut<'s>,
    pub log: &'a GdnLog<'l>,
    pub scratch: &'a mut [f32],
    pub out: &'a mut RowsMut<'o>,
}

/// Queries, keys, transposed keys, the two triangles, corrected values and their scaled copy.
pub(super) fn scratch_floats(part: &GdnPart<'_>) -> usize {
    let (dim, width) = (part.shape.key_dim, part.columns.len());
    3 * padded(CHUNK_ROWS * dim) + 2 * CHUNK_ROWS * CHUNK_ROWS + 2 * padded(CHUNK_ROWS * width)
}

/// Scratch of one chunk, all row-major.
#[derive(Clone, Copy)]
struct Chunk {
    /// Rows in this chunk.
    count: usize,
    /// `[64][key_dim]`, unit norm over the root of the width.
    queries: *mut f32,
    /// `[64][key_dim]`, unit norm.
    keys: *mut f32,
    /// `[key_dim][64]`, zero past `count`.
    transposed: *mut f32,
    /// `[64][64]`: `-beta_i D_ij (k_i . k_j)` below the diagonal, else zero.
    system: *mut f32,
    /// `[64][64]`: `D_ij (q_i . k_j)` up to the diagonal, else zero.
    attention: *mut f32,
    /// `[64][columns]`: right-hand side, then the corrected values.
    values: *mut f32,
    /// `[64][columns]`: corrected values decayed to the chunk's end.
    decayed: *mut f32,
}

/// Gates of a chunk.
struct ChunkGates {
    beta: [f32; CHUNK_ROWS],
    /// Running sums of the log decays, in f64.
    sums: [f64; CHUNK_ROWS],
    /// `e^(G_i)`.
    from_start: [f32; CHUNK_ROWS],
    /// `e^(G_n - G_i)`.
    to_end: [f32; CHUNK_ROWS],
    /// `e^(G_n)`.
    whole: f32,
}

impl Kernel for Prefill<'_, '_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let (dim, width) = (self.part.shape.key_dim, self.part.columns.len());
        let mut memory = std::mem::take(&mut self.scratch);
        let mut chunk = Chunk {
            count: 0,
            queries: cut(&mut memory, CHUNK_ROWS * dim).as_mut_ptr(),
            keys: cut(&mut memory, CHUNK_ROWS * dim).as_mut_ptr(),
            transposed: cut(&mut memory, CHUNK_ROWS * dim).as_mut_ptr(),
            system: cut(&mut memory, CHUNK_ROWS * CHUNK_ROWS).as_mut_ptr(),
            attention: cut(&mut memory, CHUNK_ROWS * CHUNK_ROWS).as_mut_ptr(),
            values: cut(&mut memory, CHUNK_ROWS * width).as_mut_ptr(),
            decayed: cut(&mut memory, CHUNK_ROWS * width).as_mut_ptr(),
        };
        let pending = self.pending_from..self.rows.first_position;
        if !pending.is_empty() {
            // SAFETY: the state has `key_dim` rows of the part's columns.
            unsafe {
                fold(s, &self.part, self.log, pending, self.state.start(), self.state.stride())
            };
        }
        let (mut first, total) = (0, self.rows.convolved.rows());
        while first < total {
            let position = self.rows.first_position + first;
            chunk.count = (CHUNK_ROWS - position % CHUNK_ROWS).min(total - first);
            // SAFETY: the scratch was cut in the shapes of `Chunk`, rows exist.
            unsafe { self.chunk(s, first, chunk) };
            first += chunk.count;
        }
    }
}

impl Prefill<'_, '_, '_, '_> {
    /// One chunk from row `first` on.
    ///
    /// # Safety
    /// The chunk's scratch has the shapes that [`Chunk`] names, and its rows exist.
    #[inline(always)]
    unsafe fn chunk<S: Simd>(&mut self, s: S, first: usize, chunk: Chunk) {
        let gates = chunk_gates(s, &self.part, &self.rows, first, chunk.count);
        // SAFETY: the caller's promise; each step keeps to the shapes of `Chunk`.
        unsafe {
            self.norm_rows(s, first, chunk);
            triangles(s, chunk, &gates, self.part.shape.key_dim);
            self.right_hand_side(s, first, chunk, &gates);
            solve(s, chunk, self.part.columns.len());
            self.outputs(s, first, chunk, &gates);
            self.advance(s, chunk, &gates);
        }
    }

    /// Norms queries and keys and transposes the keys.
    ///
    /// # Safety
    /// As [`Prefill::chunk`].
    #[inline(always)]
    unsafe fn norm_rows<S: Simd>(&self, s: S, first: usize, chunk: Chunk) {
        let dim = self.part.shape.key_dim;
        let (query, key, _) = self.part.offsets();
        let root = 1.0 / (dim as f32).sqrt();
        // SAFETY: rows below the count and lanes below 64 of `[64][dim]` and `[dim][64]`.
        unsafe {
            for t in 0..chunk.count {
                let row = self.rows.convolved.row(first + t);
                unit_norm(s, row[query..][..dim].as_ptr(), chunk.queries.add(t * dim), dim, root);
                unit_norm(s, row[key..][..dim].as_ptr(), chunk.keys.add(t * dim), dim, 1.0);
                for d in 0..dim {
                    chunk
                        .transposed
                        .add(d * CHUNK_ROWS + t)
                        .write(chunk.keys.add(t * dim + d).read());
                }
            }
            for d in 0..dim {
                for t in chunk.count..CHUNK_ROWS {
                    chunk.transposed.add(d * CHUNK_ROWS + t).write(0.0);
                }
            }
        }
    }

    /// `values = beta_i (v_i - e^(G_i) S^T k_i)`.
    ///
    /// # Safety
    /// As [`Prefill::chunk`].
    #[inline(always)]
    unsafe fn right_hand_side<S: Simd>(
        &mut self,
        s: S,
        first: usize,
        chunk: Chunk,
        gates: &ChunkGates,
    ) {
        let (dim, width) = (self.part.shape.key_dim, self.part.columns.len());
        let state = Panel { start: self.state.start().cast_const(), stride: self.state.stride() };
        let keys = Panel { start: chunk.keys.cast_const(), stride: dim };
        let values = Panel { start: chunk.values, stride: width };
        let column = self.part.offsets().2;
        // SAFETY: `[count][dim]` by `[dim][width]` into `[count][width]`.
        unsafe {
            product::matrix(s, Start::Zero, chunk.count, keys, state, dim, values, width);
            for t in 0..chunk.count {
                let value = self.rows.convolved.row(first + t)[column..][..width].as_ptr();
                let (beta, decay) = (s.splat(gates.beta[t]), s.splat(-gates.from_start[t]));
                let mut at = 0;
                while at < width {
                    let target = chunk.values.add(t * width + at);
                    let rest = s.fma(decay, s.load(target), s.load(value.add(at)));
                    s.store(target, s.mul(beta, rest));
                    at += LANES;
                }
            }
        }
    }

    /// `o_i = e^(G_i) S^T q_i + sum_j attention_ij values_j`.
    ///
    /// # Safety
    /// As [`Prefill::chunk`].
    #[inline(always)]
    unsafe fn outputs<S: Simd>(&mut self, s: S, first: usize, chunk: Chunk, gates: &ChunkGates) {
        let (dim, width) = (self.part.shape.key_dim, self.part.columns.len());
        let state = Panel { start: self.state.start().cast_const(), stride: self.state.stride() };
        let queries = Panel { start: chunk.queries.cast_const(), stride: dim };
        let values = Panel { start: chunk.values.cast_const(), stride: width };
        let stride = self.out.stride();
        let out = self.out.part_mut(first, chunk.count).start();
        // SAFETY: `[count][dim]` by `[dim][width]`, then `[16][<= 64]` by `[<= 64][width]`, into
        // the chunk's rows of the output; scratch and output are different memory.
        unsafe {
            product::matrix(
                s,
                Start::Zero,
                chunk.count,
                queries,
                state,
                dim,
                Panel { start: out, stride },
                width,
            );
            for t in 0..chunk.count {
                scale_row(s, out.add(t * stride), gates.from_start[t], out.add(t * stride), width);
            }
            let mut row = 0;
            while row < chunk.count {
                let rows = (chunk.count - row).min(LANES);
                let weights = Panel {
                    start: chunk.attention.add(row * CHUNK_ROWS).cast_const(),
                    stride: CHUNK_ROWS,
                };
                let target = Panel { start: out.add(row * stride), stride };
                product::matrix(s, Start::Add, rows, weights, values, row + rows, target, width);
                row += rows;
            }
        }
    }

    /// `S <- e^(G_n) S + sum_i e^(G_n - G_i) k_i values_i^T`.
    ///
    /// # Safety
    /// As [`Prefill::chunk`].
    #[inline(always)]
    unsafe fn advance<S: Simd>(&mut self, s: S, chunk: Chunk, gates: &ChunkGates) {
        let (dim, width) = (self.part.shape.key_dim, self.part.columns.len());
        let (state, stride) = (self.state.start(), self.state.stride());
        let keys = Panel { start: chunk.transposed.cast_const(), stride: CHUNK_ROWS };
        let decayed = Panel { start: chunk.decayed.cast_const(), stride: width };
        // SAFETY: `[dim][count]` by `[count][width]` into the state.
        unsafe {
            for t in 0..chunk.count {
                let from = chunk.values.add(t * width).cast_const();
                scale_row(s, from, gates.to_end[t], chunk.decayed.add(t * width), width);
            }
            for d in 0..dim {
                scale_row(s, state.add(d * stride), gates.whole, state.add(d * stride), width);
            }
            let target = Panel { start: state, stride };
            product::matrix(s, Start::Add, dim, keys, decayed, chunk.count, target, width);
        }
    }
}

/// `to = factor * from`; the two may be the same.
///
/// # Safety
/// `width` floats, a multiple of 16, at both.
#[inline(always)]
unsafe fn scale_row<S: Simd>(s: S, from: *const f32, factor: f32, to: *mut f32, width: usize) {
    let factor = s.splat(factor);
    let mut at = 0;
    while at < width {
        // SAFETY: below the width.
        unsafe { s.store(to.add(at), s.mul(factor, s.load(from.add(at)))) };
        at += LANES;
    }
}

/// Gates of `count` rows and the decays between them.
#[inline(always)]
fn chunk_gates<S: Simd>(
    s: S,
    part: &GdnPart<'_>,
    rows: &GdnRows<'_>,
    first: usize,
    count: usize,
) -> ChunkGates {
    let mut out = ChunkGates {
        beta: [0.0; CHUNK_ROWS],
        sums: [0.0; CHUNK_ROWS],
        from_start: [0.0; CHUNK_ROWS],
        to_end: [0.0; CHUNK_ROWS],
        whole: 1.0,
    };
    let mut sum = 0.0;
    let mut t = 0;
    while t < count {
        let taken = (count - t).min(LANES);
        let gates = gates(s, part, rows, first + t, taken);
        for row in 0..taken {
            sum += f64::from(gates.decay[row]);
            out.beta[t + row] = gates.beta[row];
            out.sums[t + row] = sum;
            out.from_start[t + row] = sum as f32;
        }
        t += taken;
    }
    for t in 0..count {
        out.to_end[t] = (sum - out.sums[t]) as f32;
    }
    for at in (0..CHUNK_ROWS).step_by(LANES) {
        // SAFETY: 16 floats from `at` on in both arrays.
        unsafe {
            let pointer = out.from_start.as_mut_ptr().add(at);
            s.store(pointer, exponential::exp(s, s.load(pointer)));
            let pointer = out.to_end.as_mut_ptr().add(at);
            s.store(pointer, exponential::exp(s, s.load(pointer)));
        }
    }
    out.whole = out.from_start[count - 1];
    out
}

/// Both triangles: products of keys and queries with keys, weighted by the decay between rows.
///
/// # Safety
/// The scratch has the shapes that [`Chunk`] names.
#[inline(always)]
unsafe fn triangles<S: Simd>(s: S, chunk: Chunk, gates: &ChunkGates, dim: usize) {
    let transposed = Panel { start: chunk.transposed.cast_const(), stride: CHUNK_ROWS };
    // SAFETY: rows below the count of `[64][64]`; columns up to the next multiple of 16.
    unsafe {
        let mut row = 0;
        while row < chunk.count {
            let rows = (chunk.count - row).min(LANES);
            let columns = row + LANES;
            for (left, target) in [(chunk.keys, chunk.system), (chunk.queries, chunk.attention)] {
                let left = Panel { start: left.add(row * dim).cast_const(), stride: dim };
                let target = Panel { start: target.add(row * CHUNK_ROWS), stride: CHUNK_ROWS };
                product::matrix(s, Start::Zero, rows, left, transposed, dim, target, columns);
            }
            for i in row..row + rows {
                weigh_row(s, chunk, gates, i, columns);
            }
            row += rows;
        }
    }
}

/// Weighs row `i` of both triangles and clears what lies above the diagonal.
///
/// # Safety
/// As [`triangles`]; `columns` is a multiple of 16 past `i`.
#[inline(always)]
unsafe fn weigh_row<S: Simd>(s: S, chunk: Chunk, gates: &ChunkGates, i: usize, columns: usize) {
    let mut exponents = [f32::NEG_INFINITY; CHUNK_ROWS];
    for (exponent, &sum) in exponents.iter_mut().zip(&gates.sums[..=i]) {
        *exponent = (gates.sums[i] - sum) as f32;
    }
    let negative_beta = s.splat(-gates.beta[i]);
    // SAFETY: row i of both, columns below 64.
    unsafe {
        let (system, attention) =
            (chunk.system.add(i * CHUNK_ROWS), chunk.attention.add(i * CHUNK_ROWS));
        let mut at = 0;
        while at < columns {
            let decay = exponential::exp(s, s.load(exponents.as_ptr().add(at)));
            let product = s.mul(s.load(system.add(at)), negative_beta);
            s.store(system.add(at), s.mul(product, decay));
            s.store(attention.add(at), s.mul(s.load(attention.add(at)), decay));
            at += LANES;
        }
        system.add(i).write(0.0);
    }
}

/// Forward substitution: `values_i += sum_{j<i} system_ij values_j`, 16 rows at a time, first all
/// rows before them as one product, then among themselves.
///
/// # Safety
/// The scratch has the shapes that [`Chunk`] names.
#[inline(always)]
unsafe fn solve<S: Simd>(s: S, chunk: Chunk, width: usize) {
    let mut row = 0;
    while row < chunk.count {
        let rows = (chunk.count - row).min(LANES);
        // SAFETY: rows of `system` and `values` below the count. The product reads rows of
        // `values` before `row` and writes those from `row` on.
        unsafe {
            let solved = Panel { start: chunk.values.cast_const(), stride: width };
            let left = Panel {
                start: chunk.system.add(row * CHUNK_ROWS).cast_const(),
                stride: CHUNK_ROWS,
            };
            let target = Panel { start: chunk.values.add(row * width), stride: width };
            product::matrix(s, Start::Add, rows, left, solved, row, target, width);
            for i in row + 1..row + rows {
                let left = Panel {
                    start: chunk.system.add(i * CHUNK_ROWS + row).cast_const(),
                    stride: CHUNK_ROWS,
                };
                let near =
                    Panel { start: chunk.values.add(row * width).cast_const(), stride: width };
                let target = Panel { start: chunk.values.add(i * width), stride: width };
                product::matrix(s, Start::Add, 1, left, near, i - row, target, width);
            }
        }
        row += rows;
    }
}
