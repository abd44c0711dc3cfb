//! Small matrix products on 16 lanes: what attention and the chunked delta rule are made of.
//!
//! Every product is `C += A B` with the lanes along the columns of `B` and `C`. An element of `C`
//! is one chain of fused multiply-adds in the order of the inner dimension, whatever the blocking,
//! so a row of `C` has the same bits however many rows are computed together.

use crate::simd::Simd;

/// A matrix in memory: row `r` starts at `start + r * stride`.
#[derive(Clone, Copy)]
pub(super) struct Panel<P> {
    pub start: P,
    pub stride: usize,
}

/// Rows that one block of a product computes together.
pub(super) const BLOCK_ROWS: usize = 6;

/// Whether 12 sums of 16 lanes fit the registers beside their operands.
///
/// 16 lanes are one of 32 registers where they are aligned as one (AVX-512); elsewhere they are two
/// of 16 or four of 32.
#[inline(always)]
pub(super) fn has_wide_registers<S: Simd>() -> bool {
    align_of::<S::F>() >= 64
}

/// Adds `A B` to the sums of one block: `R` rows, `N` times 16 columns.
///
/// # Safety
/// `depth` floats are readable at each of `a`, and `depth` rows of `16 N` floats at `b`.
#[inline(always)]
#[expect(
    clippy::needless_range_loop,
    reason = "row and column of a register block read best as indices"
)]
pub(super) unsafe fn multiply_add<S: Simd, const R: usize, const N: usize>(
    s: S,
    mut sums: [[S::F; N]; R],
    a: [*const f32; R],
    b: Panel<*const f32>,
    depth: usize,
) -> [[S::F; N]; R] {
    for k in 0..depth {
        let mut left = [s.zero(); R];
        for r in 0..R {
            // SAFETY: k is below the depth.
            left[r] = s.splat(unsafe { a[r].add(k).read() });
        }
        for n in 0..N {
            // SAFETY: row k and columns 16 n .. 16 n + 16 of `b`.
            let right = unsafe { s.load(b.start.add(k * b.stride + 16 * n)) };
            for r in 0..R {
                sums[r][n] = s.fma(left[r], right, sums[r][n]);
            }
        }
    }
    sums
}

/// What a product does with the old contents of `C`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// `C = A B`.
    Zero,
    /// `C = C + A B`.
    Add,
}

/// `C (+)= A B` for one block.
///
/// # Safety
/// As [`multiply_add`], and `R` rows of `16 N` floats are readable and writable at `c`.
#[inline(always)]
#[expect(
    clippy::needless_range_loop,
    reason = "row and column of a register block read best as indices"
)]
pub(super) unsafe fn block<S: Simd, const R: usize, const N: usize>(
    s: S,
    start: Start,
    a: [*const f32; R],
    b: Panel<*const f32>,
    depth: usize,
    c: [*mut f32; R],
) {
    let mut sums = [[s.zero(); N]; R];
    if start == Start::Add {
        for r in 0..R {
            for n in 0..N {
                // SAFETY: inside the block of `c`.
                sums[r][n] = unsafe { s.load(c[r].add(16 * n)) };
            }
        }
    }
    // SAFETY: the caller's promise.
    sums = unsafe { multiply_add::<S, R, N>(s, sums, a, b, depth) };
    for r in 0..R {
        for n in 0..N {
            // SAFETY: inside the block of `c`.
            unsafe { s.store(c[r].add(16 * n), sums[r][n]) };
        }
    }
}

/// `C (+)= A B` for up to [`BLOCK_ROWS`] rows given by their starts, all `columns` wide.
///
/// # Safety
/// `depth` floats are readable at the first `rows` of `a`, `depth` rows of `columns` floats at
/// `b`, and `columns` floats are readable and writable at the first `rows` of `c`. `columns` is a
/// multiple of 16.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "a matrix product has this many")]
pub(super) unsafe fn rows<S: Simd>(
    s: S,
    start: Start,
    rows: usize,
    a: &[*const f32; BLOCK_ROWS],
    b: Panel<*const f32>,
    depth: usize,
    c: &[*mut f32; BLOCK_ROWS],
    columns: usize,
) {
    debug_assert!(rows <= BLOCK_ROWS && columns.is_multiple_of(16));
    // SAFETY: the caller's promise.
    unsafe {
        match rows {
            0 => {}
            1 => across::<S, 1>(s, start, first(a), b, depth, first_mut(c), columns),
            2 => across::<S, 2>(s, start, first(a), b, depth, first_mut(c), columns),
            3 => across::<S, 3>(s, start, first(a), b, depth, first_mut(c), columns),
            4 => across::<S, 4>(s, start, first(a), b, depth, first_mut(c), columns),
            5 => across::<S, 5>(s, start, first(a), b, depth, first_mut(c), columns),
            _ => across::<S, 6>(s, start, first(a), b, depth, first_mut(c), columns),
        }
    }
}

#[inline(always)]
pub(super) fn first<const R: usize>(pointers: &[*const f32; BLOCK_ROWS]) -> [*const f32; R] {
    let mut out = [std::ptr::null(); R];
    out.copy_from_slice(&pointers[..R]);
    out
}

#[inline(always)]
pub(super) fn first_mut<const R: usize>(pointers: &[*mut f32; BLOCK_ROWS]) -> [*mut f32; R] {
    let mut out = [std::ptr::null_mut(); R];
    out.copy_from_slice(&pointers[..R]);
    out
}

/// `R` rows over all columns, as many at a time as keep 8 to 12 registers of sums going.
///
/// # Safety
/// As [`rows`].
#[inline(always)]
unsafe fn across<S: Simd, const R: usize>(
    s: S,
    start: Start,
    a: [*const f32; R],
    b: Panel<*const f32>,
    depth: usize,
    c: [*mut f32; R],
    columns: usize,
) {
    let mut column = 0;
    // SAFETY: each block lies inside the columns that the caller vouches for.
    unsafe {
        if R == 1 {
            while column + 64 <= columns {
                block::<S, R, 4>(s, start, a, from(b, column), depth, shifted(c, column));
                column += 64;
            }
        }
        while (R <= 2 || has_wide_registers::<S>()) && column + 32 <= columns {
            block::<S, R, 2>(s, start, a, from(b, column), depth, shifted(c, column));
            column += 32;
        }
        while column < columns {
            block::<S, R, 1>(s, start, a, from(b, column), depth, shifted(c, column));
            column += 16;
        }
    }
}

/// The panel from `column` on.
#[inline(always)]
pub(super) fn from(b: Panel<*const f32>, column: usize) -> Panel<*const f32> {
    Panel { start: b.start.wrapping_add(column), stride: b.stride }
}

#[inline(always)]
pub(super) fn shifted<const R: usize>(mut c: [*mut f32; R], column: usize) -> [*mut f32; R] {
    for pointer in &mut c {
        *pointer = pointer.wrapping_add(column);
    }
    c
}

/// `C (+)= A B` with `A` of `[count, depth]` and `C` of `[count, columns]`.
///
/// # Safety
/// The three panels are readable (and `c` writable) in those shapes, `c` overlaps neither `a` nor
/// `b`, and `columns` is a multiple of 16.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "a matrix product has this many")]
pub(super) unsafe fn matrix<S: Simd>(
    s: S,
    start: Start,
    count: usize,
    a: Panel<*const f32>,
    b: Panel<*const f32>,
    depth: usize,
    c: Panel<*mut f32>,
    columns: usize,
) {
    let mut column = 0;
    // 32 columns of B at a time, so that they stay in the nearest cache for all rows of A.
    while column < columns {
        let width = (columns - column).min(32);
        let mut row = 0;
        while row < count {
            let taken = (count - row).min(BLOCK_ROWS);
            let mut left = [std::ptr::null(); BLOCK_ROWS];
            let mut target = [std::ptr::null_mut(); BLOCK_ROWS];
            for r in 0..taken {
                left[r] = a.start.wrapping_add((row + r) * a.stride);
                target[r] = c.start.wrapping_add((row + r) * c.stride + column);
            }
            // SAFETY: rows and columns are inside the shapes that the caller vouches for.
            unsafe { rows(s, start, taken, &left, from(b, column), depth, &target, width) };
            row += taken;
        }
        column += width;
    }
}
