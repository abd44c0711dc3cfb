//! Products of a few rows with a matrix of BF16 pairs that comes from memory: attention's two products in decoding.
//!
//! A 32-bit word of the matrix holds two columns that lie 16 apart (see [`place`]), so that widening 16 words to 32 columns
//! takes one shift and one mask, and no shuffle. While a product runs it asks for the memory that is read next, a little at
//! every step: a burst of requests would fill the processor's miss buffers and stall what follows.
//!
//! As in [`product`](super::product) an element of the result is one chain of fused multiply-adds in the order of the
//! inner dimension, so the bits are those of the same product on widened elements.

use half::bf16;

use super::product::{Start, first, first_mut, has_wide_registers, shifted};
use crate::simd::Simd;

/// Columns that share 16 words.
pub(super) const COLUMNS: usize = 32;

/// Where column `column` of a row of `columns` is stored: in every whole 32 columns, columns `i` and `16 + i` are the low
/// and the high half of word `i`. Columns past the last whole 32 stay where they are.
#[inline(always)]
pub(super) fn place(column: usize, columns: usize) -> usize {
    let block = column / COLUMNS * COLUMNS;
    if block + COLUMNS > columns {
        return column;
    }
    let (half, word) = (column % COLUMNS / 16, column % 16);
    block + 2 * word + half
}

/// Widens a row.
///
/// # Safety
/// `columns` elements, a multiple of 16, are readable at `row`, and as many floats writable at `to`.
#[inline(always)]
pub(super) unsafe fn widen<S: Simd>(s: S, row: *const bf16, columns: usize, to: *mut f32) {
    let mut at = 0;
    // SAFETY: whole pairs of 16 columns, then at most 16 that are not paired, all below `columns`.
    unsafe {
        while at + COLUMNS <= columns {
            let words = s.load_i32(row.add(at).cast());
            s.store(to.add(at), s.bf16_low(words));
            s.store(to.add(at + 16), s.bf16_high(words));
            at += COLUMNS;
        }
        if at < columns {
            s.store(to.add(at), s.load_bf16(row.add(at).cast()));
        }
    }
}

/// Rows that one product takes at most.
pub(super) const MOST_ROWS: usize = super::product::BLOCK_ROWS;

/// A matrix of BF16 pairs, rows without gaps, and what is read after it.
#[derive(Clone, Copy)]
pub(super) struct Paired {
    pub start: *const bf16,
    pub columns: usize,
    /// What is asked for from here on: as many bytes as the product reads.
    pub next: *const u8,
}

/// What a product asks for while it runs.
#[derive(Clone, Copy)]
struct Ahead {
    next: *const u8,
    /// Bytes for each 32 columns of a row that are read.
    rate: usize,
}

/// `C (+)= A B` for up to [`MOST_ROWS`] rows given by their starts, over the first `columns` columns of `B`.
///
/// # Safety
/// `depth` floats are readable at the first `rows` of `a`, `depth` rows at `b`, and `columns` floats are readable and
/// writable at the first `rows` of `c`. Both numbers of columns are multiples of 16; `columns` is one of 32 unless it is
/// all of `b`'s.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "a matrix product has this many")]
pub(super) unsafe fn rows<S: Simd>(
    s: S,
    start: Start,
    rows: usize,
    a: &[*const f32; MOST_ROWS],
    b: Paired,
    depth: usize,
    c: &[*mut f32; MOST_ROWS],
    columns: usize,
) {
    debug_assert!(rows <= MOST_ROWS && columns.is_multiple_of(16) && columns <= b.columns);
    let all = Ahead { next: b.next, rate: 2 * COLUMNS };
    // SAFETY: the caller's promise.
    unsafe {
        match rows {
            0 => {}
            1 => across::<S, 1>(s, start, first(a), b, depth, first_mut(c), columns, all),
            2 => across::<S, 2>(s, start, first(a), b, depth, first_mut(c), columns, all),
            // Three rows have sums for too many registers with 32 columns and for too few with 16. Each part asks for
            // half of what is next.
            3 if !has_wide_registers::<S>() => {
                let near = Ahead { rate: COLUMNS, ..all };
                let far = Ahead { next: b.next.wrapping_add(columns * depth), ..near };
                across::<S, 2>(s, start, first(a), b, depth, first_mut(c), columns, near);
                across::<S, 1>(s, start, [a[2]], b, depth, [c[2]], columns, far);
            }
            3 => across::<S, 3>(s, start, first(a), b, depth, first_mut(c), columns, all),
            4 => across::<S, 4>(s, start, first(a), b, depth, first_mut(c), columns, all),
            5 => across::<S, 5>(s, start, first(a), b, depth, first_mut(c), columns, all),
            _ => across::<S, 6>(s, start, first(a), b, depth, first_mut(c), columns, all),
        }
    }
}

/// 16 columns of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The 16 columns in the low halves of 16 words.
    Low,
    /// The 16 columns in the high halves.
    High,
    /// 16 columns that are not paired.
    Plain,
}

/// `R` rows over all columns.
///
/// # Safety
/// As [`rows`].
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "a matrix product has this many")]
unsafe fn across<S: Simd, const R: usize>(
    s: S,
    start: Start,
    a: [*const f32; R],
    b: Paired,
    depth: usize,
    c: [*mut f32; R],
    columns: usize,
    ahead: Ahead,
) {
    let wide = has_wide_registers::<S>();
    let mut column = 0;
    // SAFETY: each block lies inside the columns that the caller vouches for.
    unsafe {
        while (R == 1 || wide && R <= 3) && column + 2 * COLUMNS <= columns {
            pairs::<S, R, 2>(s, start, a, b, column, depth, shifted(c, column), ahead);
            column += 2 * COLUMNS;
        }
        while (R <= 2 || wide) && column + COLUMNS <= columns {
            pairs::<S, R, 1>(s, start, a, b, column, depth, shifted(c, column), ahead);
            column += COLUMNS;
        }
        while column + COLUMNS <= columns {
            half::<S, R>(s, Part::Low, start, a, b, column, depth, shifted(c, column), ahead);
            half::<S, R>(s, Part::High, start, a, b, column, depth, shifted(c, column + 16), ahead);
            column += COLUMNS;
        }
        if column < columns {
            half::<S, R>(s, Part::Plain, start, a, b, column, depth, shifted(c, column), ahead);
        }
    }
}

/// `32 P` columns from `column` on.
///
/// # Safety
/// As [`rows`], for these columns.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "a matrix product has this many")]
unsafe fn pairs<S: Simd, const R: usize, const P: usize>(
    s: S,
    start: Start,
    a: [*const f32; R],
    b: Paired,
    column: usize,
    depth: usize,
    c: [*mut f32; R],
    ahead: Ahead,
) {
    let (mut low, mut high) = ([[s.zero(); P]; R], [[s.zero(); P]; R]);
    // SAFETY: `32 P` columns of `c`; step k is below the depth.
    unsafe {
        if start == Start::Add {
            for r in 0..R {
                for p in 0..P {
                    low[r][p] = s.load(c[r].add(COLUMNS * p));
                    high[r][p] = s.load(c[r].add(COLUMNS * p + 16));
                }
            }
        }
        let mut from = b.start.add(column).cast::<u8>();
        let mut next = ahead.next.wrapping_add(ahead.rate * column / COLUMNS * depth);
        for k in 0..depth {
            let mut left = [s.zero(); R];
            for r in 0..R {
                left[r] = s.splat(a[r].add(k).read());
            }
            for p in 0..P {
                s.prefetch(next);
                next = next.wrapping_add(ahead.rate);
                let words = s.load_i32(from.wrapping_add(2 * COLUMNS * p));
                let (first, second) = (s.bf16_low(words), s.bf16_high(words));
                for r in 0..R {
                    low[r][p] = s.fma(left[r], first, low[r][p]);
                    high[r][p] = s.fma(left[r], second, high[r][p]);
                }
            }
            from = from.wrapping_add(2 * b.columns);
        }
        for r in 0..R {
            for p in 0..P {
                s.store(c[r].add(COLUMNS * p), low[r][p]);
                s.store(c[r].add(COLUMNS * p + 16), high[r][p]);
            }
        }
    }
}

/// One part of 16 columns of the words from `column` on.
///
/// # Safety
/// As [`rows`], for these columns.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "a matrix product has this many")]
unsafe fn half<S: Simd, const R: usize>(
    s: S,
    part: Part,
    start: Start,
    a: [*const f32; R],
    b: Paired,
    column: usize,
    depth: usize,
    c: [*mut f32; R],
    ahead: Ahead,
) {
    let mut sums = [s.zero(); R];
    let logical = if part == Part::High { column + 16 } else { column };
    // SAFETY: 16 columns of `c`; step k is below the depth.
    unsafe {
        if start == Start::Add {
            for r in 0..R {
                sums[r] = s.load(c[r]);
            }
        }
        let mut from = b.start.add(column).cast::<u8>();
        let mut next = ahead.next.wrapping_add(ahead.rate * logical / COLUMNS * depth);
        for k in 0..depth {
            s.prefetch(next);
            let right = match part {
                Part::Low => s.bf16_low(s.load_i32(from)),
                Part::High => s.bf16_high(s.load_i32(from)),
                Part::Plain => s.load_bf16(from.cast()),
            };
            for r in 0..R {
                sums[r] = s.fma(s.splat(a[r].add(k).read()), right, sums[r]);
            }
            from = from.wrapping_add(2 * b.columns);
            next = next.wrapping_add(ahead.rate / 2);
        }
        for r in 0..R {
            s.store(c[r], sums[r]);
        }
    }
}
