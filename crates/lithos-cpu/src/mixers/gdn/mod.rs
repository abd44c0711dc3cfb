//! The core of Gated DeltaNet (Yang, Kautz and Hatamizadeh 2024): a matrix `S` per value head that
//! each row decays, corrects by the delta rule and reads.
//!
//! With `q`, `k` normed to unit length (`q` also divided by the root of its width), `beta =
//! sigmoid(b)` and `g = -exp(A_log) softplus(a + dt_bias)`, row by row:
//!
//! ```text
//! S <- e^g S;   delta = beta (v - S^T k);   S <- S + k delta^T;   o = S^T q
//! ```
//!
//! Decoding ([`gdn_decode`]) never stores what its own rows do to `S`, since verification may
//! reject them. It logs `k`, `delta` and `g` of each row in a ring ([`GdnLog`]); the next pass
//! folds those that were accepted into `S`, stores it, and goes on from there. The fold does the
//! same operations in the same order as the recurrence, so that a sequence has the same bits
//! however it is cut into passes. Prefill ([`gdn_prefill`]) computes 64 rows at a time and stores
//! `S` at its end.

mod decode;
mod prefill;

use super::exponential;
use super::norm::sum_of_squares;
use super::view::{Rows, RowsMut, Scratch};
use crate::simd::{Isa, LANES, Simd};
use std::marker::PhantomData;
use std::ops::Range;

/// Positions that the log holds: pending rows of the last pass and the rows of this one.
pub const LOG_ROWS: usize = 32;

/// Most rows of a decode pass.
pub const MAX_DECODE_ROWS: usize = 16;

/// Rows of a prefill chunk; chunks start at multiples of this position.
pub const CHUNK_ROWS: usize = 64;

/// Head counts and widths of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GdnShape {
    /// Query and key heads.
    pub key_heads: usize,
    /// Value heads: a multiple of the key heads. Value head `h` uses key head `h / (value_heads /
    /// key_heads)`.
    pub value_heads: usize,
    /// Width of a query and a key: a multiple of 16.
    pub key_dim: usize,
    /// Width of a value: a multiple of 16.
    pub value_dim: usize,
}

impl GdnShape {
    /// Channels of the convolution: all queries, then all keys, then all values.
    pub fn channels(&self) -> usize {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }

    /// The key head of a value head.
    pub fn key_head(&self, value_head: usize) -> usize {
        value_head / self.repeat()
    }

    /// Value heads that share a key head.
    fn repeat(&self) -> usize {
        self.value_heads / self.key_heads
    }
}

/// A value head and some of its columns: one task.
#[derive(Clone, Debug)]
pub struct GdnPart<'a> {
    /// The layer's shape.
    pub shape: GdnShape,
    /// The value head.
    pub value_head: usize,
    /// Columns of the value, from a multiple of 16 to a multiple of 16.
    pub columns: Range<usize>,
    /// `A_log` of the layer's value heads.
    pub a_log: &'a [f32],
    /// `dt_bias` of the layer's value heads.
    pub dt_bias: &'a [f32],
}

/// The rows of a pass.
#[derive(Clone, Copy, Debug)]
pub struct GdnRows<'a> {
    /// Output of the convolution, `[T, channels]`: queries, keys, values.
    pub convolved: Rows<'a>,
    /// Inputs of the decay, `[T, value_heads]`.
    pub a: Rows<'a>,
    /// Inputs of the write strength, `[T, value_heads]`.
    pub b: Rows<'a>,
    /// Position of row 0.
    pub first_position: usize,
}

/// The log of one slot and layer: `k` as `[LOG_ROWS][key_heads][key_dim]`, then `delta` as
/// `[LOG_ROWS][value_heads][value_dim]`, then `g` as `[LOG_ROWS][value_heads]`. Position `p` is in
/// row `p % LOG_ROWS`.
#[derive(Debug)]
pub struct GdnLog<'a> {
    start: *mut f32,
    shape: GdnShape,
    lifetime: PhantomData<&'a mut [f32]>,
}

impl<'a> GdnLog<'a> {
    /// Floats of a log.
    pub fn floats(shape: GdnShape) -> usize {
        LOG_ROWS * (shape.key_heads * shape.key_dim + shape.value_heads * (shape.value_dim + 1))
    }

    /// A log in `memory`.
    ///
    /// # Panics
    /// If `memory` is shorter than [`GdnLog::floats`].
    pub fn new(memory: &'a mut [f32], shape: GdnShape) -> Self {
        assert!(memory.len() >= Self::floats(shape), "memory for a whole log");
        // SAFETY: long enough and borrowed uniquely.
        unsafe { Self::from_raw_parts(memory.as_mut_ptr(), shape) }
    }

    /// A handle on a log that the tasks of other heads and columns use too.
    ///
    /// # Safety
    /// `start` points at [`GdnLog::floats`] initialised floats that live for `'a`; tasks that use
    /// the log at the same time have the same rows and pending positions and differ in their value
    /// head or columns, and nothing else writes it.
    pub unsafe fn from_raw_parts(start: *mut f32, shape: GdnShape) -> Self {
        Self { start, shape, lifetime: PhantomData }
    }

    /// `k` of a position: `key_dim` floats.
    fn key(&self, position: usize, key_head: usize) -> *mut f32 {
        let row = position % LOG_ROWS;
        self.start.wrapping_add((row * self.shape.key_heads + key_head) * self.shape.key_dim)
    }

    /// `delta` of a position: `value_dim` floats.
    fn delta(&self, position: usize, value_head: usize) -> *mut f32 {
        let row = position % LOG_ROWS;
        let keys = LOG_ROWS * self.shape.key_heads * self.shape.key_dim;
        self.start
            .wrapping_add(keys + (row * self.shape.value_heads + value_head) * self.shape.value_dim)
    }

    /// `g` of a position.
    fn decay(&self, position: usize, value_head: usize) -> *mut f32 {
        let deltas = LOG_ROWS * self.shape.value_heads * self.shape.value_dim;
        self.delta(0, 0)
            .wrapping_add(deltas + position % LOG_ROWS * self.shape.value_heads + value_head)
    }
}

/// Folds the pending rows into the state, then runs the recurrence over this pass's rows without
/// storing what they do to it.
///
/// `state` is `[key_dim, columns]` and holds the state before position `pending_from`; afterwards
/// it holds the state before `rows.first_position`. The log has `k`, `delta` and `g` of the
/// positions between, and receives those of this pass's rows. `out` is `[T, columns]`.
///
/// # Panics
/// If shapes disagree, there are more than [`MAX_DECODE_ROWS`] rows, or the log is too short for
/// the pending rows and these.
#[expect(clippy::too_many_arguments, reason = "a task body takes all its operands by name")]
pub fn gdn_decode(
    isa: Isa,
    part: GdnPart<'_>,
    rows: GdnRows<'_>,
    pending_from: usize,
    state: &mut RowsMut<'_>,
    log: &mut GdnLog<'_>,
    scratch: &mut Scratch,
    out: &mut RowsMut<'_>,
) {
    check(&part, &rows, pending_from, state, log, out);
    let count = rows.convolved.rows();
    assert!(count <= MAX_DECODE_ROWS, "at most {MAX_DECODE_ROWS} rows");
    assert!(
        rows.first_position + count - pending_from <= LOG_ROWS,
        "the log holds {LOG_ROWS} positions"
    );
    let scratch = scratch.floats(decode::scratch_floats(&part, count));
    isa.run(decode::Decode { part, rows, pending_from, state, log, scratch, out });
}

/// Runs the delta rule over any number of rows, in chunks of [`CHUNK_ROWS`] that start at multiples
/// of that position, and stores the state after the last row.
///
/// Parameters are those of [`gdn_decode`]; pending rows are folded first, nothing is logged, and
/// afterwards `state` is the one after all rows. The result is that of the recurrence up to
/// rounding, and is the same however a sequence is cut into calls at multiples of [`CHUNK_ROWS`].
///
/// # Panics
/// If shapes disagree.
#[expect(clippy::too_many_arguments, reason = "a task body takes all its operands by name")]
pub fn gdn_prefill(
    isa: Isa,
    part: GdnPart<'_>,
    rows: GdnRows<'_>,
    pending_from: usize,
    state: &mut RowsMut<'_>,
    log: &GdnLog<'_>,
    scratch: &mut Scratch,
    out: &mut RowsMut<'_>,
) {
    check(&part, &rows, pending_from, state, log, out);
    assert!(rows.first_position - pending_from <= LOG_ROWS, "the log holds {LOG_ROWS} positions");
    let scratch = scratch.floats(prefill::scratch_floats(&part));
    isa.run(prefill::Prefill { part, rows, pending_from, state, log, scratch, out });
}

fn check(
    part: &GdnPart<'_>,
    rows: &GdnRows<'_>,
    pending_from: usize,
    state: &RowsMut<'_>,
    log: &GdnLog<'_>,
    out: &RowsMut<'_>,
) {
    let (shape, width) = (part.shape, part.columns.len());
    assert!(
        shape.key_heads > 0 && shape.value_heads.is_multiple_of(shape.key_heads),
        "as many value heads for every key head"
    );
    assert!(
        shape.key_dim.is_multiple_of(LANES) && shape.value_dim.is_multiple_of(LANES),
        "head widths are multiples of {LANES}"
    );
    assert!(
        part.value_head < shape.value_heads && part.columns.end <= shape.value_dim,
        "a part of the layer"
    );
    assert!(
        part.columns.start.is_multiple_of(LANES) && width.is_multiple_of(LANES),
        "columns are multiples of {LANES}"
    );
    assert!(
        part.a_log.len() == shape.value_heads && part.dt_bias.len() == shape.value_heads,
        "a gate per head"
    );
    assert_eq!(log.shape, shape, "a log of this layer's shape");
    let count = rows.convolved.rows();
    assert_eq!(rows.convolved.width(), shape.channels(), "queries, keys and values");
    assert!(rows.a.rows() == count && rows.a.width() == shape.value_heads, "a row of `a` per row");
    assert!(rows.b.rows() == count && rows.b.width() == shape.value_heads, "a row of `b` per row");
    assert!(
        state.rows() == shape.key_dim && state.width() == width,
        "a state of [key_dim, columns]"
    );
    assert!(out.rows() == count && out.width() == width, "an output of [T, columns]");
    assert!(pending_from <= rows.first_position, "pending rows come before these");
}

impl GdnPart<'_> {
    /// Where the head's query, key and value start in a convolved row.
    fn offsets(&self) -> (usize, usize, usize) {
        let GdnShape { key_heads, key_dim, value_dim, .. } = self.shape;
        let key = self.shape.key_head(self.value_head) * key_dim;
        let keys = key_heads * key_dim;
        (key, keys + key, 2 * keys + self.value_head * value_dim + self.columns.start)
    }

    /// Whether this task is the one that logs the key that several value heads share.
    fn logs_key(&self) -> bool {
        self.logs_decay() && self.value_head.is_multiple_of(self.shape.repeat())
    }

    /// Whether this task is the one that logs the decay that several column ranges share.
    fn logs_decay(&self) -> bool {
        self.columns.start == 0
    }
}

/// Norms `dim` elements to unit length, then multiplies by `factor` (the L2 norm of the flash
/// linear attention library: epsilon is added to the sum of squares).
///
/// # Safety
/// `dim` floats, a multiple of 16, are readable at `from` and writable at `to`.
#[inline(always)]
unsafe fn unit_norm<S: Simd>(s: S, from: *const f32, to: *mut f32, dim: usize, factor: f32) {
    // SAFETY: the caller's promise.
    unsafe {
        let scale = s.splat(1.0 / (sum_of_squares(s, from, dim) + 1e-6).sqrt());
        let factor = s.splat(factor);
        let mut at = 0;
        while at < dim {
            s.store(to.add(at), s.mul(s.mul(s.load(from.add(at)), scale), factor));
            at += LANES;
        }
    }
}

/// Write strengths and log decays of up to 16 rows of one head.
struct Gates {
    beta: [f32; LANES],
    decay: [f32; LANES],
}

/// `beta = sigmoid(b)` and `g = -exp(A_log) softplus(a + dt_bias)` of rows `first ..` (at most 16).
#[inline(always)]
fn gates<S: Simd>(
    s: S,
    part: &GdnPart<'_>,
    rows: &GdnRows<'_>,
    first: usize,
    count: usize,
) -> Gates {
    let mut gates = Gates { beta: [0.0; LANES], decay: [0.0; LANES] };
    for t in 0..count {
        gates.beta[t] = rows.b.row(first + t)[part.value_head];
        gates.decay[t] = rows.a.row(first + t)[part.value_head];
    }
    let rate = exponential::exp(s, s.splat(part.a_log[part.value_head]));
    // SAFETY: both arrays are 16 floats.
    unsafe {
        let beta = exponential::sigmoid(s, s.load(gates.beta.as_ptr()));
        s.store(gates.beta.as_mut_ptr(), beta);
        let input = s.add(s.load(gates.decay.as_ptr()), s.splat(part.dt_bias[part.value_head]));
        let decay = s.sub(s.zero(), s.mul(rate, exponential::softplus(s, input)));
        s.store(gates.decay.as_mut_ptr(), decay);
    }
    gates
}

/// `e^g` of up to 16 log decays.
#[inline(always)]
fn factors<S: Simd>(s: S, decays: &[f32; LANES]) -> [f32; LANES] {
    let mut out = [0.0; LANES];
    // SAFETY: both are 16 floats.
    unsafe { s.store(out.as_mut_ptr(), exponential::exp(s, s.load(decays.as_ptr()))) };
    out
}

/// Folds the logged rows `positions` into the state: per row `S <- e^g S`, `S <- S + k delta^T`,
/// the operations of the recurrence in its order.
///
/// # Safety
/// `state` has `key_dim` rows of the part's columns, `stride` apart.
#[inline(always)]
unsafe fn fold<S: Simd>(
    s: S,
    part: &GdnPart<'_>,
    log: &GdnLog<'_>,
    positions: Range<usize>,
    state: *mut f32,
    stride: usize,
) {
    let key_head = part.shape.key_head(part.value_head);
    let mut from = positions.start;
    while from < positions.end {
        let count = (positions.end - from).min(LANES);
        let mut decays = [0.0; LANES];
        let mut keys = [std::ptr::null(); LANES];
        let mut deltas = [std::ptr::null(); LANES];
        for row in 0..count {
            keys[row] = log.key(from + row, key_head).cast_const();
            deltas[row] = log
                .delta(from + row, part.value_head)
                .wrapping_add(part.columns.start)
                .cast_const();
            // SAFETY: inside the log.
            decays[row] = unsafe { log.decay(from + row, part.value_head).read() };
        }
        let factors = factors(s, &decays);
        for d in 0..part.shape.key_dim {
            let mut column = 0;
            while column < part.columns.len() {
                // SAFETY: row d and these columns of the state; `key_dim` keys and `columns`
                // deltas of a logged row.
                unsafe {
                    let at = state.add(d * stride + column);
                    let mut value = s.load(at);
                    for row in 0..count {
                        value = s.mul(s.splat(factors[row]), value);
                        let key = s.splat(keys[row].add(d).read());
                        value = s.fma(key, s.load(deltas[row].add(column)), value);
                    }
                    s.store(at, value);
                }
                column += LANES;
            }
        }
        from += count;
    }
}

// SAFETY: a unique view of plain numbers; handles made from raw parts promise not to race.
unsafe impl Send for GdnLog<'_> {}
