//! Keys and values of one layer, in pages of [`PAGE_TOKENS`] tokens.
//!
//! A pool is an array of pages; a sequence has a page table, whose entry `i` names the page of its
//! positions `64 i .. 64 i + 63`. Inside a page, for each KV head, first the keys as
//! `[head_dim][PAGE_TOKENS]`, then the values as `[PAGE_TOKENS][head_dim]`:
//!
//! - keys are transposed so that a SIMD lane is a key: a query's scores against 16 keys are a
//!   chain of multiply-adds over the head dimension, with no sum across lanes;
//! - values are not, so that a lane is an output dimension.
//!
//! BF16 rows are stored in pairs of columns, so that a word holds two columns that lie 16 apart: a
//! kernel widens 16 words to 32 columns without a shuffle.
//!
//! One KV head of a page is contiguous, which is what an attention task reads. A pool should start
//! at a cache line (64 bytes): every read of 16 lanes then stays inside lines.

use std::marker::PhantomData;

use half::bf16;
use thiserror::Error;

use super::paired::place;
use super::view::Rows;

/// Tokens in a page, and keys in a tile of the online softmax.
pub const PAGE_TOKENS: usize = 64;

/// Element type of stored keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvType {
    /// Four bytes, exact.
    F32,
    /// Two bytes: rounded to nearest even when stored.
    Bf16,
}

impl KvType {
    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            KvType::F32 => 4,
            KvType::Bf16 => 2,
        }
    }
}

/// The shape of one layer's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvGeometry {
    /// Number of KV heads.
    pub kv_heads: usize,
    /// Elements of a key and of a value: a multiple of 16.
    pub head_dim: usize,
    /// Element type.
    pub element: KvType,
}

impl KvGeometry {
    /// Bytes of one KV head's keys (or values) in a page.
    pub fn half_bytes(&self) -> usize {
        PAGE_TOKENS * self.head_dim * self.element.bytes()
    }

    /// Bytes of a page of this layer.
    pub fn page_bytes(&self) -> usize {
        2 * self.kv_heads * self.half_bytes()
    }

    /// Pages that hold `tokens` tokens.
    pub fn pages_for(tokens: usize) -> usize {
        tokens.div_ceil(PAGE_TOKENS)
    }
}

/// Why a pool cannot be made.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum KvError {
    /// The head dimension does not fill whole SIMD lanes.
    #[error(
        "KV pool: head dimension {head_dim} is not a multiple of 16; this backend cannot run the model"
    )]
    HeadDim {
        /// The head dimension asked for.
        head_dim: usize,
    },
    /// The memory's start is not aligned to its elements.
    #[error(
        "KV pool: its memory starts at an address that is not a multiple of {bytes}; allocate it aligned"
    )]
    Alignment {
        /// Bytes of an element.
        bytes: usize,
    },
}

/// One layer's pages.
///
/// A pool made by [`KvPool::new`] owns its borrow alone. Tasks that run at the same time each make
/// their own handle with [`KvPool::from_raw_parts`] and take care of the races themselves.
#[derive(Debug)]
pub struct KvPool<'a> {
    start: *mut u8,
    pages: usize,
    page_stride: usize,
    geometry: KvGeometry,
    lifetime: PhantomData<&'a mut [u8]>,
}

impl<'a> KvPool<'a> {
    /// As many whole pages as `memory` holds.
    ///
    /// # Errors
    /// If the head dimension is not a multiple of 16 or `memory` is not aligned to an element.
    pub fn new(memory: &'a mut [u8], geometry: KvGeometry) -> Result<Self, KvError> {
        let pages = memory.len() / geometry.page_bytes().max(1);
        // SAFETY: the slice is borrowed uniquely for 'a and holds that many pages.
        unsafe { Self::from_raw_parts(memory.as_mut_ptr(), pages, geometry.page_bytes(), geometry) }
    }

    /// A handle on memory that other handles use too. Page `i` starts `i * page_stride` bytes after `start`: layers may
    /// share memory, each with its part of every page.
    ///
    /// # Errors
    /// As [`KvPool::new`]; the stride is a multiple of an element too.
    ///
    /// # Safety
    /// `pages` pages from `start` on are initialised memory, valid for `'a`, at a stride of at least
    /// [`KvGeometry::page_bytes`]. No position of a KV head is written through one handle while another handle reads or writes it.
    pub unsafe fn from_raw_parts(
        start: *mut u8,
        pages: usize,
        page_stride: usize,
        geometry: KvGeometry,
    ) -> Result<Self, KvError> {
        let bytes = geometry.element.bytes();
        if !geometry.head_dim.is_multiple_of(16) || geometry.head_dim == 0 {
            return Err(KvError::HeadDim { head_dim: geometry.head_dim });
        }
        if !start.addr().is_multiple_of(bytes) || !page_stride.is_multiple_of(bytes) {
            return Err(KvError::Alignment { bytes });
        }
        Ok(Self { start, pages, page_stride, geometry, lifetime: PhantomData })
    }

    /// The shape of the pages.
    pub fn geometry(&self) -> KvGeometry {
        self.geometry
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Where the keys (`half` 0) or values (`half` 1) of a KV head start in a page.
    fn half(&self, page: u32, kv_head: usize, half: usize) -> *mut u8 {
        let page = page as usize;
        assert!(page < self.pages, "page {page} of a pool of {}", self.pages);
        assert!(
            kv_head < self.geometry.kv_heads,
            "KV head {kv_head} of {}",
            self.geometry.kv_heads
        );
        let offset = page * self.page_stride + (2 * kv_head + half) * self.geometry.half_bytes();
        // SAFETY: page and head are inside the pool.
        unsafe { self.start.add(offset) }
    }

    /// Keys of a KV head in a page, `[head_dim][PAGE_TOKENS]` elements.
    pub(crate) fn keys(&self, page: u32, kv_head: usize) -> *const u8 {
        self.half(page, kv_head, 0)
    }

    /// Values of a KV head in a page, `[PAGE_TOKENS][head_dim]` elements.
    pub(crate) fn values(&self, page: u32, kv_head: usize) -> *const u8 {
        self.half(page, kv_head, 1)
    }

    /// Stores the keys and values of consecutive positions for one KV head.
    ///
    /// `keys` and `values` are `[T, head_dim]`: keys after their norm and rotary embedding. Row `t`
    /// goes to position `first_position + t`, whose page is found in `page_table`.
    ///
    /// # Panics
    /// If the page table or pool is too short for the positions; the engine allots pages first.
    pub fn write_rows(
        &mut self,
        kv_head: usize,
        page_table: &[u32],
        first_position: usize,
        keys: Rows<'_>,
        values: Rows<'_>,
    ) {
        let dim = self.geometry.head_dim;
        assert!(keys.width() == dim && values.width() == dim, "keys and values are one head wide");
        assert_eq!(keys.rows(), values.rows(), "as many keys as values");
        for t in 0..keys.rows() {
            let position = first_position + t;
            let page = page_table[position / PAGE_TOKENS];
            let token = position % PAGE_TOKENS;
            let (k, v) = (self.half(page, kv_head, 0), self.half(page, kv_head, 1));
            let (key, value) = (keys.row(t), values.row(t));
            // SAFETY: both halves hold PAGE_TOKENS * head_dim elements of this type, aligned since
            // the pool's start and every half's size are, and `token` is below PAGE_TOKENS.
            unsafe {
                match self.geometry.element {
                    KvType::F32 => {
                        let (k, v) = (k.cast::<f32>(), v.cast::<f32>());
                        store_token(k, v, token, key, value, |x| x, |column, _| column);
                    }
                    KvType::Bf16 => {
                        let (k, v) = (k.cast::<bf16>(), v.cast::<bf16>());
                        store_token(k, v, token, key, value, bf16::from_f32, place);
                    }
                }
            }
        }
    }

    /// Reads one position's key and value back (for checkpoints and tests).
    ///
    /// # Panics
    /// As [`KvPool::write_rows`].
    pub fn read_row(
        &self,
        kv_head: usize,
        page_table: &[u32],
        position: usize,
        key: &mut [f32],
        value: &mut [f32],
    ) {
        let dim = self.geometry.head_dim;
        assert!(key.len() == dim && value.len() == dim, "a key and a value are one head wide");
        let page = page_table[position / PAGE_TOKENS];
        let token = position % PAGE_TOKENS;
        let (k, v) = (self.keys(page, kv_head), self.values(page, kv_head));
        for d in 0..dim {
            // SAFETY: inside the two halves, as in `write_rows`.
            unsafe {
                (key[d], value[d]) = match self.geometry.element {
                    KvType::F32 => (
                        k.cast::<f32>().add(d * PAGE_TOKENS + token).read(),
                        v.cast::<f32>().add(token * dim + d).read(),
                    ),
                    KvType::Bf16 => (
                        k.cast::<bf16>()
                            .add(d * PAGE_TOKENS + place(token, PAGE_TOKENS))
                            .read()
                            .to_f32(),
                        v.cast::<bf16>().add(token * dim + place(d, dim)).read().to_f32(),
                    ),
                };
            }
        }
    }
}

/// Writes one token's key down its column and its value along its row. `place` says where a column of a row of so many
/// columns is stored.
///
/// # Safety
/// `keys` and `values` have room for `PAGE_TOKENS * key.len()` elements and `token` is below
/// `PAGE_TOKENS`.
#[inline(always)]
unsafe fn store_token<E>(
    keys: *mut E,
    values: *mut E,
    token: usize,
    key: &[f32],
    value: &[f32],
    convert: impl Fn(f32) -> E,
    place: impl Fn(usize, usize) -> usize,
) {
    let (dim, column) = (key.len(), place(token, PAGE_TOKENS));
    for (d, (&k, &v)) in key.iter().zip(value).enumerate() {
        // SAFETY: d is below the head dimension; the caller vouches for the rest.
        unsafe {
            keys.add(d * PAGE_TOKENS + column).write(convert(k));
            values.add(token * dim + place(d, dim)).write(convert(v));
        }
    }
}

// SAFETY: a unique view of plain bytes; handles made from raw parts promise not to race.
unsafe impl Send for KvPool<'_> {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for KvPool<'_> {}
