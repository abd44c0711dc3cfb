//! Linear layers: packed weights times activation rows.
//!
//! `out[t, n] = sum over k of weight[n, k] * x[t, k]`, with the weights as a [`Packed`] matrix and the activations as an
//! [`Operand`]. [`linear`] computes a range of tiles of output rows for a range of activation rows; workers take
//! disjoint ranges of either.
//!
//! # A row's bits do not depend on its company
//!
//! The result of a row is the same, bit for bit, whether it is computed alone or among others, by whichever kernel and
//! (with one exception below) under whichever instruction set, because the order of its operations is defined here once:
//!
//! * **Integer codes** (U4, I8, E2M1). With the activations of each block of 32 columns in 16-bit fixed point
//!   (`a = s * q`, see [`OperandKind::Fixed16`]), the products `(code - zero point) * q` of a *unit* of columns (the
//!   smaller of scale block and activation block) are summed exactly in 32-bit integers, in any order. The units are
//!   then added in ascending order: `acc = fma(f32(sum) * d, s, acc)` with the weights' block scale `d`, and where there
//!   are biases `m`, `acc = fma(m, s * f32(sum of q), acc)` after it.
//! * **Float codes** (F32, F16, BF16, E4M3): `acc = fma(weight, a, acc)` over ascending columns.
//! * **BF16 and E4M3 where the processor multiplies pairs of BF16 values** (AVX512_BF16): these codes are BF16 values, and
//!   an activation is the sum of two, `high` and `low` (see [`OperandKind::Float`]). Over ascending pairs of columns,
//!   `acc = dot(weights, lows, acc)`, then `acc = dot(weights, highs, acc)`, where `dot` adds two products in the order of
//!   `VDPBF16PS`. In passes of more than [`FEW_ROWS`] rows, where there are tiles (AMX), it is one `TDPBF16PS` of the lows
//!   and one of the highs for every 32 columns. So these two kinds of codes have bits of their own on such processors, and
//!   on those with tiles a pass of many rows has others than one of few; within each, a row still does not depend on its
//!   company.
//!
//! How many rows a pass has is what its output has ([`OutputView`]), however they are split among calls.
//!
//! The sum is multiplied by the tensor's scale (together with powers of two that decoding left out), and the
//! [`Epilogue`] follows.
//!
//! # Three shapes of work
//!
//! One row streams the weights and decodes them in registers, with as few operations per weight as possible. Up to
//! [`FEW_ROWS`] rows decode in registers too, for as many rows at a time as registers hold. More rows decode a panel of
//! a tile into the first-level cache and multiply it there, so that decoding is shared by up to [`ROWS_PER_BLOCK`] rows;
//! where the processor has a tile matrix unit (AMX), integer codes and those with BF16 values are multiplied by it. Without
//! tiles, BF16 values of more rows are multiplied as those of few.

#[cfg(target_arch = "x86_64")]
mod bf16_pairs;
#[cfg(target_arch = "x86_64")]
mod bf16_tiles;
mod codes;
mod few_rows;
#[cfg(target_arch = "x86_64")]
mod matrix_tiles;
mod operand;
mod panel;
mod stream;
mod sums;

pub use operand::{Operand, OperandKind};

use std::mem::MaybeUninit;
use std::ops::Range;

use lithos_compiler::layout::{Packed, Region, TILE_ROWS};

use crate::simd::{Isa, Kernel, Simd, silu};
use codes::output_factor;
use sums::Product;

/// Rows up to which weights are decoded in registers: those of a decode step.
pub const FEW_ROWS: usize = 16;

/// Rows that share a tile's decoding.
pub const ROWS_PER_BLOCK: usize = 128;

/// Tiles whose sums are finished together when there is one row.
const TILES_PER_BATCH: usize = 16;

/// Activation rows to read: `rows` rows of `cols` floats, `row_stride` floats apart.
#[derive(Clone, Copy, Debug)]
pub struct InputView {
    at: *const f32,
    row_stride: usize,
    rows: usize,
    cols: usize,
}

// SAFETY: a view is an address; who made it vouched for the use of the memory behind it.
unsafe impl Send for InputView {}
// SAFETY: as above.
unsafe impl Sync for InputView {}

/// Output rows to write: `rows` rows of `cols` floats, `row_stride` floats apart. Workers write disjoint parts of it.
///
/// Its rows are all those of a pass, which may choose another order of additions if they are many (see the
/// [module](self)).
#[derive(Clone, Copy, Debug)]
pub struct OutputView {
    at: *mut f32,
    row_stride: usize,
    rows: usize,
    cols: usize,
}

// SAFETY: a view is an address; who made it vouched for the use of the memory behind it.
unsafe impl Send for OutputView {}
// SAFETY: as above.
unsafe impl Sync for OutputView {}

/// What becomes of a finished value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    /// It is stored.
    Store,
    /// It is added to what the output holds (a residual stream).
    Add,
}

/// A region for what every pass reads (packed matrices, keys and values) in pages as large as the operating system offers.
pub fn large_page_region(bytes: usize) -> Region {
    let region = Region::zeroed(bytes);
    advise_large_pages(&region);
    region
}

/// Computes `tiles` of output rows for `rows` of the operand, which must hold them prepared for this matrix's layout.
///
/// # Panics
/// If the tiles are not in the matrix, or the rows not in the operand's room or in `out`, or `out` has fewer columns
/// than the matrix has rows.
///
/// # Safety
/// The memory behind `out` must be valid for these rows and the tiles' columns, and no other thread may access that part
/// of it, or write these rows of the operand, during the call.
pub unsafe fn linear(
    isa: Isa,
    packed: &Packed,
    operand: &Operand,
    rows: Range<usize>,
    tiles: Range<usize>,
    out: OutputView,
    epilogue: Epilogue,
) {
    check(packed, &rows, &tiles, out);
    for rows in blocks(rows) {
        let product = Product::new(isa, packed, operand, &rows, out.rows);
        let batch = if rows.len() == 1 { TILES_PER_BATCH } else { 1 };
        let mut sums = MaybeUninit::<[f32; ROWS_PER_BLOCK * TILE_ROWS]>::uninit();
        for start in tiles.clone().step_by(batch) {
            let part = start..(start + batch).min(tiles.end);
            let sums = sums.as_mut_ptr().cast::<f32>();
            // SAFETY: a batch of one row, or a tile of a block of rows, fits the sums.
            unsafe { product.tiles(part.clone(), sums, None) };
            let factor = output_factor(packed);
            isa.run(Finish {
                sums,
                rows: rows.clone(),
                tiles: part,
                columns: packed.layout().rows(),
                factor,
                out,
                epilogue,
            });
        }
    }
}

/// Computes `silu(gate x) * (up x)` for `tiles` of output rows; both matrices must have the same shape and kind of codes.
///
/// # Panics
/// As [`linear`], for both matrices, and if their shapes differ.
///
/// # Safety
/// As [`linear`].
pub unsafe fn linear_gate_up(
    isa: Isa,
    gate: &Packed,
    up: &Packed,
    operand: &Operand,
    rows: Range<usize>,
    tiles: Range<usize>,
    out: OutputView,
) {
    check(gate, &rows, &tiles, out);
    check(up, &rows, &tiles, out);
    let shape = |packed: &Packed| {
        (packed.layout().rows(), packed.layout().cols(), packed.layout().is_integer())
    };
    assert_eq!(shape(gate), shape(up), "gate and up must have the same shape and kind of codes");
    for rows in blocks(rows) {
        let products = [gate, up].map(|packed| Product::new(isa, packed, operand, &rows, out.rows));
        let batch = if rows.len() == 1 { TILES_PER_BATCH } else { 1 };
        let mut sums = [const { MaybeUninit::<[f32; ROWS_PER_BLOCK * TILE_ROWS]>::uninit() }; 2];
        for start in tiles.clone().step_by(batch) {
            let part = start..(start + batch).min(tiles.end);
            let [gate_sums, up_sums] = sums.each_mut().map(|sums| sums.as_mut_ptr().cast::<f32>());
            // SAFETY: a batch of one row, or a tile of a block of rows, fits the sums.
            unsafe {
                products[0].tiles(part.clone(), gate_sums, Some(products[1].place(part.start)));
                products[1].tiles(part.clone(), up_sums, Some(products[0].place(part.end)));
            }
            isa.run(FinishGateUp {
                gate: gate_sums,
                up: up_sums,
                rows: rows.clone(),
                tiles: part,
                columns: gate.layout().rows(),
                factors: [output_factor(gate), output_factor(up)],
                out,
            });
        }
    }
}

impl InputView {
    /// A view of `rows` rows of `cols` floats in a slice, `row_stride` floats apart.
    ///
    /// # Panics
    /// If the slice is too short.
    pub fn new(x: &[f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(
            rows == 0 || (rows - 1) * row_stride + cols <= x.len(),
            "{rows} rows of {cols} are not in {}",
            x.len()
        );
        Self { at: x.as_ptr(), row_stride, rows, cols }
    }

    /// A view of memory that the caller looks after.
    ///
    /// # Safety
    /// The memory must be readable while the view is used.
    pub unsafe fn from_raw(at: *const f32, rows: usize, cols: usize, row_stride: usize) -> Self {
        Self { at, row_stride, rows, cols }
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    fn row(&self, row: usize) -> *const f32 {
        debug_assert!(row < self.rows);
        self.at.wrapping_add(row * self.row_stride)
    }
}

impl OutputView {
    /// A view of `rows` rows of `cols` floats in a slice, `row_stride` floats apart.
    ///
    /// # Panics
    /// If the slice is too short.
    pub fn new(out: &mut [f32], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(
            rows == 0 || (rows - 1) * row_stride + cols <= out.len(),
            "{rows} rows of {cols} are not in {}",
            out.len()
        );
        Self { at: out.as_mut_ptr(), row_stride, rows, cols }
    }

    /// A view of memory that the caller looks after.
    ///
    /// # Safety
    /// The memory must be readable and writable while the view is used.
    pub unsafe fn from_raw(at: *mut f32, rows: usize, cols: usize, row_stride: usize) -> Self {
        Self { at, row_stride, rows, cols }
    }

    /// Where a tile of a row is written.
    fn tile(&self, row: usize, tile: usize) -> *mut f32 {
        debug_assert!(row < self.rows && tile * TILE_ROWS < self.cols);
        self.at.wrapping_add(row * self.row_stride + tile * TILE_ROWS)
    }
}

fn check(packed: &Packed, rows: &Range<usize>, tiles: &Range<usize>, out: OutputView) {
    let layout = packed.layout();
    assert!(tiles.end <= layout.tiles(), "tiles {tiles:?} of a matrix of {} tiles", layout.tiles());
    assert!(rows.end <= out.rows, "rows {rows:?} of an output of {} rows", out.rows);
    assert!(
        layout.rows() <= out.cols,
        "{} output features for {} columns",
        layout.rows(),
        out.cols
    );
}

/// Cuts rows into blocks of at most [`ROWS_PER_BLOCK`].
fn blocks(rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = rows.end;
    rows.step_by(ROWS_PER_BLOCK).map(move |start| start..(start + ROWS_PER_BLOCK).min(end))
}

#[cfg(target_os = "linux")]
fn advise_large_pages(region: &Region) {
    let (start, bytes) = region.span();
    // SAFETY: the range is ours; the advice changes no contents, and may be refused.
    unsafe { libc::madvise(start.cast(), bytes, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise_large_pages(_region: &Region) {}

/// Writes sums `[tile][row][16]` to the output.
struct Finish {
    sums: *const f32,
    rows: Range<usize>,
    tiles: Range<usize>,
    /// Output columns, of which the last tile may have fewer than 16.
    columns: usize,
    factor: f32,
    out: OutputView,
    epilogue: Epilogue,
}

impl Kernel for Finish {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let factor = s.splat(self.factor);
        let mut sums = self.sums;
        for tile in self.tiles {
            let columns = (self.columns - tile * TILE_ROWS).min(TILE_ROWS);
            for row in self.rows.clone() {
                // SAFETY: the caller vouches for the output; the sums have a place for each tile and row.
                unsafe {
                    let value = s.mul(s.load(sums), factor);
                    sums = sums.add(TILE_ROWS);
                    write(s, self.out.tile(row, tile), columns, value, self.epilogue);
                }
            }
        }
    }
}

/// Writes `silu(gate) * up` of sums `[tile][row][16]` to the output.
struct FinishGateUp {
    gate: *const f32,
    up: *const f32,
    rows: Range<usize>,
    tiles: Range<usize>,
    columns: usize,
    factors: [f32; 2],
    out: OutputView,
}

impl Kernel for FinishGateUp {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let factors = [s.splat(self.factors[0]), s.splat(self.factors[1])];
        let (mut gate, mut up) = (self.gate, self.up);
        for tile in self.tiles {
            let columns = (self.columns - tile * TILE_ROWS).min(TILE_ROWS);
            for row in self.rows.clone() {
                // SAFETY: the caller vouches for the output; the sums have a place for each tile and row.
                unsafe {
                    let g = s.mul(s.load(gate), factors[0]);
                    let u = s.mul(s.load(up), factors[1]);
                    (gate, up) = (gate.add(TILE_ROWS), up.add(TILE_ROWS));
                    write(
                        s,
                        self.out.tile(row, tile),
                        columns,
                        s.mul(silu(s, g), u),
                        Epilogue::Store,
                    );
                }
            }
        }
    }
}

/// Writes the first `columns` lanes.
///
/// # Safety
/// `columns` floats must be readable and writable at `to`.
#[inline(always)]
unsafe fn write<S: Simd>(s: S, to: *mut f32, columns: usize, value: S::F, epilogue: Epilogue) {
    // SAFETY: the caller's promise is the same.
    unsafe {
        match (columns, epilogue) {
            (TILE_ROWS, Epilogue::Store) => s.store(to, value),
            (TILE_ROWS, Epilogue::Add) => s.store(to, s.add(s.load(to), value)),
            (_, Epilogue::Store) => s.store_first(to, columns, value),
            (_, Epilogue::Add) => {
                s.store_first(to, columns, s.add(s.load_first(to, columns), value))
            }
        }
    }
}
