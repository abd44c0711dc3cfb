//! Elementwise activations, gates and the residual sum.

use super::exponential;
use super::view::{Heads, Rows, RowsMut};
use crate::simd::{Isa, Kernel, LANES, Simd};

/// `x <- e^x`.
pub fn exp(isa: Isa, values: &mut [f32]) {
    isa.run(Map { values, function: Function::Exp });
}

/// `x <- 1 / (1 + e^-x)`.
pub fn sigmoid(isa: Isa, values: &mut [f32]) {
    isa.run(Map { values, function: Function::Sigmoid });
}

/// `x <- x / (1 + e^-x)`.
pub fn silu(isa: Isa, values: &mut [f32]) {
    isa.run(Map { values, function: Function::Silu });
}

/// `x <- ln(1 + e^x)`.
pub fn softplus(isa: Isa, values: &mut [f32]) {
    isa.run(Map { values, function: Function::Softplus });
}

/// The gated MLP's activation: `out = silu(gate) * up`, all `[T, W]`.
pub fn silu_multiply(isa: Isa, gate: Rows<'_>, up: Rows<'_>, out: &mut RowsMut<'_>) {
    for t in 0..out.rows() {
        let (gate, up, out) = (gate.row(t), up.row(t), out.row_mut(t));
        assert!(
            gate.len() == out.len() && up.len() == out.len(),
            "gate, up and output of one width"
        );
        isa.run(SiluMultiply { gate, up, out });
    }
}

/// The output gate of attention: `o <- o * sigmoid(gate)`, head by head.
pub fn multiply_sigmoid(
    isa: Isa,
    o: &mut RowsMut<'_>,
    o_heads: Heads,
    gate: Rows<'_>,
    gate_heads: Heads,
) {
    assert!(
        o_heads.count == gate_heads.count && o_heads.dim == gate_heads.dim,
        "a gate per output"
    );
    for t in 0..o.rows() {
        let (o, gate) = (o.row_mut(t), gate.row(t));
        for head in 0..o_heads.count {
            let o = &mut o[o_heads.column(head)..][..o_heads.dim];
            isa.run(MultiplySigmoid { o, gate: &gate[gate_heads.column(head)..][..o_heads.dim] });
        }
    }
}

/// The residual sum: `rows <- rows + x`.
pub fn add(isa: Isa, rows: &mut RowsMut<'_>, x: Rows<'_>) {
    for t in 0..rows.rows() {
        let (to, x) = (rows.row_mut(t), x.row(t));
        assert_eq!(to.len(), x.len(), "terms of one width");
        isa.run(Add { to, x });
    }
}

#[derive(Clone, Copy)]
enum Function {
    Exp,
    Sigmoid,
    Silu,
    Softplus,
}

struct Map<'a> {
    values: &'a mut [f32],
    function: Function,
}

impl Kernel for Map<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut at = 0;
        while at < self.values.len() {
            let count = (self.values.len() - at).min(LANES);
            // SAFETY: `count` values from `at` on.
            unsafe {
                let pointer = self.values.as_mut_ptr().add(at);
                let x = load(s, pointer, count);
                let y = match self.function {
                    Function::Exp => exponential::exp(s, x),
                    Function::Sigmoid => exponential::sigmoid(s, x),
                    Function::Silu => exponential::silu(s, x),
                    Function::Softplus => exponential::softplus(s, x),
                };
                store(s, pointer, count, y);
            }
            at += LANES;
        }
    }
}

struct SiluMultiply<'a> {
    gate: &'a [f32],
    up: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for SiluMultiply<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut at = 0;
        while at < self.out.len() {
            let count = (self.out.len() - at).min(LANES);
            // SAFETY: all three are as long as the output.
            unsafe {
                let gate = load(s, self.gate.as_ptr().add(at), count);
                let up = load(s, self.up.as_ptr().add(at), count);
                store(
                    s,
                    self.out.as_mut_ptr().add(at),
                    count,
                    s.mul(exponential::silu(s, gate), up),
                );
            }
            at += LANES;
        }
    }
}

struct MultiplySigmoid<'a> {
    o: &'a mut [f32],
    gate: &'a [f32],
}

impl Kernel for MultiplySigmoid<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut at = 0;
        while at < self.o.len() {
            let count = (self.o.len() - at).min(LANES);
            // SAFETY: both are as long as the output.
            unsafe {
                let gate = exponential::sigmoid(s, load(s, self.gate.as_ptr().add(at), count));
                let pointer = self.o.as_mut_ptr().add(at);
                store(s, pointer, count, s.mul(load(s, pointer, count), gate));
            }
            at += LANES;
        }
    }
}

struct Add<'a> {
    to: &'a mut [f32],
    x: &'a [f32],
}

impl Kernel for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut at = 0;
        while at < self.to.len() {
            let count = (self.to.len() - at).min(LANES);
            // SAFETY: both are as long as the sum.
            unsafe {
                let pointer = self.to.as_mut_ptr().add(at);
                let sum = s.add(load(s, pointer, count), load(s, self.x.as_ptr().add(at), count));
                store(s, pointer, count, sum);
            }
            at += LANES;
        }
    }
}

/// Reads `count` floats, at most 16; the other lanes are zero.
///
/// # Safety
/// `count` floats are readable at `from`.
#[inline(always)]
pub(super) unsafe fn load<S: Simd>(s: S, from: *const f32, count: usize) -> S::F {
    // SAFETY: the same promise.
    unsafe { if count >= LANES { s.load(from) } else { s.load_first(from, count) } }
}

/// Writes the first `count` lanes, at most 16.
///
/// # Safety
/// `count` floats are writable at `to`.
#[inline(always)]
pub(super) unsafe fn store<S: Simd>(s: S, to: *mut f32, count: usize, x: S::F) {
    // SAFETY: the same promise.
    unsafe { if count >= LANES { s.store(to, x) } else { s.store_first(to, count, x) } }
}
