//! Strided views of f32 matrices that several tasks share.
//!
//! A task body sees a few rows of a buffer and, in each, its own columns. [`Rows`] reads such a
//! part, [`RowsMut`] writes it. Both are a pointer, a number of rows, a width and a stride, because
//! the columns of two tasks lie interleaved in memory, where slices could not describe them.

use std::marker::PhantomData;

/// A read-only matrix: row `r`, column `c` lies at `start + r * stride + c`.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    start: *const f32,
    rows: usize,
    width: usize,
    stride: usize,
    lifetime: PhantomData<&'a [f32]>,
}

/// A matrix to write: row `r`, column `c` lies at `start + r * stride + c`.
///
/// Only the elements inside the view are reached through it, so two views of disjoint columns of
/// one buffer may be used by two threads.
#[derive(Debug)]
pub struct RowsMut<'a> {
    start: *mut f32,
    rows: usize,
    width: usize,
    stride: usize,
    lifetime: PhantomData<&'a mut [f32]>,
}

/// Elements that a view of this shape spans.
fn span(rows: usize, width: usize, stride: usize) -> usize {
    if rows == 0 { 0 } else { (rows - 1) * stride + width }
}

impl<'a> Rows<'a> {
    /// A view of the first `rows * stride` elements (the last row may end at its width).
    ///
    /// # Panics
    /// If `values` is too short or rows overlap; shapes are fixed when a program is built.
    pub fn new(values: &'a [f32], rows: usize, width: usize, stride: usize) -> Self {
        assert!(width <= stride || rows <= 1, "rows of a view overlap");
        assert!(values.len() >= span(rows, width, stride), "a view is longer than its buffer");
        // SAFETY: the span was checked against the slice, whose borrow the view keeps.
        unsafe { Self::from_raw_parts(values.as_ptr(), rows, width, stride) }
    }

    /// A view of `values` as rows of `width` elements without gaps.
    pub fn contiguous(values: &'a [f32], width: usize) -> Self {
        Self::new(values, values.len().checked_div(width).unwrap_or(0), width, width)
    }

    /// A view of memory that other views may write elsewhere at the same time.
    ///
    /// # Safety
    /// For `'a` every element of the view is valid to read and nothing writes it.
    pub unsafe fn from_raw_parts(
        start: *const f32,
        rows: usize,
        width: usize,
        stride: usize,
    ) -> Self {
        Self { start, rows, width, stride, lifetime: PhantomData }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Elements from the start of a row to the start of the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Row `index`.
    pub fn row(&self, index: usize) -> &'a [f32] {
        assert!(index < self.rows, "row {index} of a view of {} rows", self.rows);
        // SAFETY: inside the view, which is readable for 'a.
        unsafe { std::slice::from_raw_parts(self.start.add(index * self.stride), self.width) }
    }

    /// The same rows, only `width` columns from `first` on.
    pub fn columns(&self, first: usize, width: usize) -> Rows<'a> {
        assert!(first + width <= self.width, "columns outside a view");
        // SAFETY: a part of this view. The pointer is moved only when there is a row to point at.
        unsafe {
            Self::from_raw_parts(self.start.wrapping_add(first), self.rows, width, self.stride)
        }
    }

    /// `rows` rows from `first` on.
    pub fn part(&self, first: usize, rows: usize) -> Rows<'a> {
        assert!(first + rows <= self.rows, "rows outside a view");
        // SAFETY: a part of this view.
        unsafe {
            Self::from_raw_parts(
                self.start.wrapping_add(first * self.stride),
                rows,
                self.width,
                self.stride,
            )
        }
    }
}

impl<'a> RowsMut<'a> {
    /// A view of the first `rows * stride` elements (the last row may end at its width).
    ///
    /// # Panics
    /// If `values` is too short or rows overlap; shapes are fixed when a program is built.
    pub fn new(values: &'a mut [f32], rows: usize, width: usize, stride: usize) -> Self {
        assert!(width <= stride || rows <= 1, "rows of a view overlap");
        assert!(values.len() >= span(rows, width, stride), "a view is longer than its buffer");
        // SAFETY: the span was checked against the slice, whose unique borrow the view keeps.
        unsafe { Self::from_raw_parts(values.as_mut_ptr(), rows, width, stride) }
    }

    /// A view of `values` as rows of `width` elements without gaps.
    pub fn contiguous(values: &'a mut [f32], width: usize) -> Self {
        let rows = values.len().checked_div(width).unwrap_or(0);
        Self::new(values, rows, width, width)
    }

    /// A view of memory whose other elements other tasks may use at the same time.
    ///
    /// # Safety
    /// For `'a` every element of the view is valid to read and write, rows do not overlap, and
    /// nothing else reads or writes an element of the view.
    pub unsafe fn from_raw_parts(
        start: *mut f32,
        rows: usize,
        width: usize,
        stride: usize,
    ) -> Self {
        Self { start, rows, width, stride, lifetime: PhantomData }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements of a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Elements from the start of a row to the start of the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Where row 0 starts.
    pub(crate) fn start(&mut self) -> *mut f32 {
        self.start
    }

    /// Row `index`, to read.
    pub fn row(&self, index: usize) -> &[f32] {
        self.as_rows().row(index)
    }

    /// Row `index`, to write.
    pub fn row_mut(&mut self, index: usize) -> &mut [f32] {
        assert!(index < self.rows, "row {index} of a view of {} rows", self.rows);
        // SAFETY: inside the view, which is borrowed uniquely for as long as the row.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(index * self.stride), self.width) }
    }

    /// The same rows, only `width` columns from `first` on.
    pub fn columns_mut(&mut self, first: usize, width: usize) -> RowsMut<'_> {
        assert!(first + width <= self.width, "columns outside a view");
        // SAFETY: a part of this view, which stays borrowed.
        unsafe {
            RowsMut::from_raw_parts(self.start.wrapping_add(first), self.rows, width, self.stride)
        }
    }

    /// `rows` rows from `first` on.
    pub fn part_mut(&mut self, first: usize, rows: usize) -> RowsMut<'_> {
        assert!(first + rows <= self.rows, "rows outside a view");
        // SAFETY: a part of this view, which stays borrowed.
        unsafe {
            RowsMut::from_raw_parts(
                self.start.wrapping_add(first * self.stride),
                rows,
                self.width,
                self.stride,
            )
        }
    }

    /// The view, to read.
    pub fn as_rows(&self) -> Rows<'_> {
        // SAFETY: readable, and not written while this borrow lasts.
        unsafe { Rows::from_raw_parts(self.start, self.rows, self.width, self.stride) }
    }
}

// SAFETY: a shared view of plain numbers, as `&[f32]` is.
unsafe impl Send for Rows<'_> {}
// SAFETY: as above.
unsafe impl Sync for Rows<'_> {}
// SAFETY: a unique view of plain numbers, as `&mut [f32]` is.
unsafe impl Send for RowsMut<'_> {}
// SAFETY: a shared reference to a view only reads.
unsafe impl Sync for RowsMut<'_> {}

/// Where the heads of one row lie: head `h` is `dim` elements from `first + h * stride` on.
///
/// A query projection that yields each head's query and output gate side by side has a stride of
/// two head widths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Number of heads.
    pub count: usize,
    /// Elements of a head.
    pub dim: usize,
    /// Column of the first head.
    pub first: usize,
    /// Columns from the start of a head to the start of the next.
    pub stride: usize,
}

impl Heads {
    /// Heads side by side from column 0 on.
    pub fn dense(count: usize, dim: usize) -> Self {
        Self { count, dim, first: 0, stride: dim }
    }

    /// Column where head `head` starts.
    pub fn column(&self, head: usize) -> usize {
        self.first + head * self.stride
    }

    /// `count` heads from head `first` on.
    pub fn part(&self, first: usize, count: usize) -> Self {
        Self { count, first: self.column(first), ..*self }
    }
}

/// Working memory of one worker, grown at its first use and then kept.
///
/// Contents are unspecified at the start of each task body: bodies write before they read.
#[derive(Debug, Default)]
pub struct Scratch {
    lines: Vec<Line>,
}

/// One cache line, so that scratch starts at a line's boundary.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "read as part of a slice of f32")] [f32; 16]);

impl Scratch {
    /// No memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// `count` elements with unspecified contents, aligned to a cache line.
    pub fn floats(&mut self, count: usize) -> &mut [f32] {
        let lines = count.div_ceil(16);
        if self.lines.len() < lines {
            self.lines.resize(lines, Line([0.0; 16]));
        }
        // SAFETY: a Line is 16 f32 without padding, and at least `count` are there.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast::<f32>(), count) }
    }
}

/// Cuts `length` elements off the front of `scratch`, rounded up to whole cache lines.
pub(crate) fn cut<'s>(scratch: &mut &'s mut [f32], length: usize) -> &'s mut [f32] {
    let taken = std::mem::take(scratch);
    let (head, tail) = taken.split_at_mut(padded(length));
    *scratch = tail;
    &mut head[..length]
}

/// `length` rounded up to whole cache lines of f32.
pub(crate) fn padded(length: usize) -> usize {
    length.next_multiple_of(16)
}
