//! Activations in the form that the kernels multiply.

use std::cell::UnsafeCell;
use std::ops::Range;

use lithos_compiler::layout::{AlignedBytes, BLOCK_COLS, Layout};

use super::InputView;
use crate::simd::{Isa, Kernel, LANES, Simd};

/// The form of the activations, which depends on the weights' codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandKind {
    /// For integer codes: 16-bit fixed point with one scale per row and block of 32 columns.
    ///
    /// With `s = max |a| / 32767` over the block, `a` becomes `s * round(a / s)`: the error is at most `s / 2`, below
    /// 2^-16 of the block's largest value, a hundred times finer than BF16.
    Fixed16,
    /// For float codes: the activations themselves, and on processors that multiply pairs of BF16 values also each as the
    /// sum of two of those.
    ///
    /// With `high = bf16(a)` and `low = bf16(a - high)`, both rounded to nearest, ties to even, `high + low` is within 2^-17
    /// of `a`, relatively.
    Float,
}

/// Activation rows, prepared once for all matrices that multiply them.
///
/// A row is one record, so that rows can be prepared by different threads. Its room is given when it is made and never
/// changes.
pub struct Operand {
    area: UnsafeCell<AlignedBytes>,
    base: *mut u8,
    capacity: usize,
}

// SAFETY: the area is only written through `prepare_rows`, whose caller vouches that no other thread touches the rows.
unsafe impl Send for Operand {}
// SAFETY: as above.
unsafe impl Sync for Operand {}

/// Where the parts of a row's record are, as byte offsets, for one kind and number of columns.
#[derive(Clone, Copy)]
pub(super) struct RecordLayout {
    /// Bytes from one row to the next.
    pub(super) stride: usize,
    /// Scales, one `f32` per block.
    pub(super) scales: usize,
    /// Scale times the block's sum of fixed point values, one `f32` per block: what a bias is multiplied with.
    pub(super) scaled_sums: usize,
    /// Sums of the fixed point values, one `i32` per block.
    pub(super) sums: usize,
    /// Sums of the fixed point values, one `i32` per half block.
    pub(super) half_sums: usize,
    /// The high bytes of the fixed point values, then the low ones; within 8 columns as 0, 4, 1, 5, 2, 6, 3, 7. Only
    /// written for instruction sets with tiles.
    pub(super) bytes: usize,
    /// The high parts of the activations as BF16 values. These and the low ones are only written for instruction sets that
    /// multiply them.
    pub(super) high_parts: usize,
    /// The low parts.
    pub(super) low_parts: usize,
}

/// Below this a block's largest value counts as zero, so that the reciprocal of its scale stays finite.
const SMALLEST: f32 = 1e-30;

impl OperandKind {
    /// The form that a matrix of this layout multiplies.
    pub fn of(layout: &Layout) -> Self {
        if layout.is_integer() { Self::Fixed16 } else { Self::Float }
    }

    pub(super) fn record(self, padded_cols: usize) -> RecordLayout {
        let blocks = padded_cols / BLOCK_COLS;
        // One more cache line keeps rows from falling on the same cache sets when the columns are a power of two.
        let line = |bytes: usize| bytes.next_multiple_of(64) + 64;
        match self {
            Self::Fixed16 => {
                let scales = 2 * padded_cols;
                let scaled_sums = scales + 4 * blocks;
                let sums = scaled_sums + 4 * blocks;
                let half_sums = sums + 4 * blocks;
                let bytes = (half_sums + 8 * blocks).next_multiple_of(64);
                let end = bytes + 2 * padded_cols;
                RecordLayout {
                    stride: line(end),
                    scales,
                    scaled_sums,
                    sums,
                    half_sums,
                    bytes,
                    high_parts: end,
                    low_parts: end,
                }
            }
            Self::Float => {
                let high_parts = 4 * padded_cols;
                let low_parts = high_parts + 2 * padded_cols;
                let end = low_parts + 2 * padded_cols;
                RecordLayout {
                    stride: line(end),
                    scales: end,
                    scaled_sums: end,
                    sums: end,
                    half_sums: end,
                    bytes: end,
                    high_parts,
                    low_parts,
                }
            }
        }
    }
}

impl Operand {
    /// Room for up to `max_rows` rows of up to `max_cols` columns of either kind.
    pub fn new(max_rows: usize, max_cols: usize) -> Self {
        let padded = max_cols.next_multiple_of(BLOCK_COLS);
        let stride = OperandKind::Float
            .record(padded)
            .stride
            .max(OperandKind::Fixed16.record(padded).stride);
        let capacity = max_rows * stride;
        let mut area = AlignedBytes::zeroed(capacity);
        let base = area.as_mut_ptr();
        Self { area: UnsafeCell::new(area), base, capacity }
    }

    /// Bytes of the room.
    pub fn bytes(&self) -> usize {
        self.capacity
    }

    /// Prepares `rows` of `input`. All rows of one use must be prepared with the same kind and columns, and for the
    /// instruction set that multiplies them.
    ///
    /// In fixed point a block that holds an infinity or NaN becomes NaN, so that every output of its row is NaN; in BF16 parts
    /// the value becomes NaN, with the same effect.
    ///
    /// # Panics
    /// If the rows are not in `input`, or there is no room for them.
    ///
    /// # Safety
    /// No other thread may use these rows of this operand, or write these rows of `input`, during the call.
    pub unsafe fn prepare_rows(
        &self,
        isa: Isa,
        kind: OperandKind,
        input: InputView,
        rows: Range<usize>,
    ) {
        let padded_cols = input.cols().next_multiple_of(BLOCK_COLS);
        let record = kind.record(padded_cols);
        assert!(rows.end <= input.rows(), "rows {rows:?} of an input of {} rows", input.rows());
        assert!(
            rows.end * record.stride <= self.capacity,
            "no room for row {} of {padded_cols} columns",
            rows.end
        );
        for row in rows {
            let x = input.row(row);
            // SAFETY: the record is inside the area, by the assertion above.
            let to = unsafe { self.base.add(row * record.stride) };
            match kind {
                OperandKind::Fixed16 => isa.run(ToFixed16 {
                    x,
                    cols: input.cols(),
                    padded_cols,
                    record,
                    to,
                    bytes: isa.has_tiles(),
                }),
                OperandKind::Float => {
                    // SAFETY: the input row has `cols` floats and the record room for `padded_cols`.
                    unsafe {
                        std::ptr::copy_nonoverlapping(x, to.cast::<f32>(), input.cols());
                        to.cast::<f32>()
                            .add(input.cols())
                            .write_bytes(0, padded_cols - input.cols());
                    }
                    if isa.has_bf16_pairs() {
                        isa.run(ToBf16Parts { padded_cols, record, to });
                    }
                }
            }
        }
    }

    /// Makes row `from` of `other` row `to` of this operand, both prepared with `kind` and so many padded columns.
    ///
    /// # Panics
    /// If there is no room for the rows.
    ///
    /// # Safety
    /// No other thread may use this row of this operand, or write that of the other one, during the call.
    pub unsafe fn copy_row(
        &self,
        kind: OperandKind,
        padded_cols: usize,
        other: &Operand,
        from: usize,
        to: usize,
    ) {
        let from = other.record_of(kind, padded_cols, &(from..from + 1));
        let to = self.record_of(kind, padded_cols, &(to..to + 1)).cast_mut();
        // SAFETY: both records are inside their areas, which are different ones.
        unsafe { std::ptr::copy_nonoverlapping(from, to, kind.record(padded_cols).stride) };
    }

    /// The record of the first of `rows`.
    ///
    /// # Panics
    /// If there is no room for the rows.
    pub(super) fn record_of(
        &self,
        kind: OperandKind,
        padded_cols: usize,
        rows: &Range<usize>,
    ) -> *const u8 {
        let stride = kind.record(padded_cols).stride;
        assert!(
            rows.end * stride <= self.capacity,
            "no room for row {} of {padded_cols} columns",
            rows.end
        );
        // SAFETY: the record is inside the area, by the assertion above.
        unsafe { self.base.add(rows.start * stride) }
    }
}

impl std::fmt::Debug for Operand {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let _keeps_alive = &self.area;
        formatter.debug_struct("Operand").field("bytes", &self.capacity).finish_non_exhaustive()
    }
}

/// Splits one row of floats, which its record already holds, into BF16 parts.
pub(super) struct ToBf16Parts {
    pub(super) padded_cols: usize,
    pub(super) record: RecordLayout,
    pub(super) to: *mut u8,
}

impl Kernel for ToBf16Parts {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for col in (0..self.padded_cols).step_by(LANES) {
            // SAFETY: the record holds `padded_cols` floats and has room for as many 16-bit values at each offset; the
            // columns are a multiple of the lanes.
            unsafe {
                let a = s.load(self.to.cast::<f32>().add(col));
                // Rounding needs a NaN with an empty low half, which this one is; infinities join it.
                let a = s.select_less(s.abs(a), s.splat(f32::INFINITY), a, s.splat(f32::NAN));
                let high = s.round_to_bf16(a);
                s.store_bf16(self.to.add(self.record.high_parts).cast::<u16>().add(col), high);
                let low = s.sub(a, high);
                s.store_bf16(self.to.add(self.record.low_parts).cast::<u16>().add(col), low);
            }
        }
    }
}

/// Turns one row into fixed point.
pub(super) struct ToFixed16 {
    pub(super) x: *const f32,
    pub(super) cols: usize,
    pub(super) padded_cols: usize,
    pub(super) record: RecordLayout,
    pub(super) to: *mut u8,
    /// Whether the byte planes are written.
    pub(super) bytes: bool,
}

impl Kernel for ToFixed16 {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for block in 0..self.padded_cols / BLOCK_COLS {
            let col = block * BLOCK_COLS;
            // SAFETY: the input row has `cols` floats; loads are cut to them.
            let halves: [S::F; 2] = unsafe {
                if col + BLOCK_COLS <= self.cols {
                    [s.load(self.x.add(col)), s.load(self.x.add(col + LANES))]
                } else {
                    let middle = (col + LANES).min(self.cols);
                    [
                        s.load_first(self.x.add(col), self.cols - col),
                        s.load_first(self.x.add(middle), self.cols - middle),
                    ]
                }
            };
            let largest = s.maximum(s.max(s.abs(halves[0]), s.abs(halves[1])));
            // Zero, or NaN if any value is infinite or not a number.
            let zero = s.sum(s.fma(halves[1], s.zero(), s.mul(halves[0], s.zero())));
            let (scale, inverse) = if largest < SMALLEST {
                (0.0, 0.0)
            } else {
                (largest / 32767.0, 32767.0 / largest)
            };
            let scale = scale + zero;
            let mut half_sums = [0; 2];
            for (half, x) in halves.into_iter().enumerate() {
                let q = s.to_i32(s.mul(x, s.splat(inverse)));
                half_sums[half] = s.sum_i32(q);
                // SAFETY: the record has room for `padded_cols` 16-bit values at its start.
                unsafe { s.store_low_halves(self.to.cast::<u16>().add(col + half * LANES), q) };
            }
            if self.bytes {
                // SAFETY: the record has room for two planes of `padded_cols` bytes, and the block's values are written.
                unsafe { self.split_bytes(col) };
            }
            let sum = half_sums[0].wrapping_add(half_sums[1]);
            let RecordLayout { scales, scaled_sums, sums, half_sums: halves_at, .. } = self.record;
            // SAFETY: the record has room for these values per block at these offsets, each aligned to 4 bytes.
            unsafe {
                self.to.add(scales).cast::<f32>().add(block).write(scale);
                self.to.add(scaled_sums).cast::<f32>().add(block).write(scale * sum as f32);
                self.to.add(sums).cast::<i32>().add(block).write(sum);
                self.to.add(halves_at).cast::<i32>().add(2 * block).write(half_sums[0]);
                self.to.add(halves_at).cast::<i32>().add(2 * block + 1).write(half_sums[1]);
            }
        }
    }
}

impl ToFixed16 {
    /// Writes the high and low bytes of the block of fixed point values from column `col` on.
    ///
    /// # Safety
    /// The record must have its full size, and these values must be written.
    #[inline(always)]
    unsafe fn split_bytes(&self, col: usize) {
        const LOW: u64 = 0x00FF_00FF_00FF_00FF;
        for eight in (col..col + BLOCK_COLS).step_by(8) {
            // SAFETY: the caller's promise is the same.
            unsafe {
                let values = self.to.cast::<u16>().add(eight).cast::<u64>();
                let first = u64::from_le(values.read_unaligned());
                let second = u64::from_le(values.add(1).read_unaligned());
                let high = (first >> 8 & LOW) | (second & !LOW);
                let low = (first & LOW) | (second & LOW) << 8;
                let to = self.to.add(self.record.bytes + eight);
                to.cast::<u64>().write_unaligned(high.to_le());
                to.add(self.padded_cols).cast::<u64>().write_unaligned(low.to_le());
            }
        }
    }
}
