//! Causal attention over KV pages with an online softmax (Milakov and Gimelshein 2018; in tiles as
//! in FlashAttention, Dao et al. 2022).
//!
//! A task holds the query rows of one KV head: the `group` query heads that share it, for each row
//! of the pass. It walks keys page by page. One page is one step of the online softmax:
//! scores of 64 keys (lanes are keys), their maximum, their exponentials, then
//! `output += probabilities * values` (lanes are dimensions).
//!
//! A row sees the same pages, steps and chains of additions whichever rows share the task, because
//! pages are cut at absolute positions. What does change a row's bits is where key ranges are cut:
//! partials of several ranges merge with other roundings than one range. So ranges must be cut at
//! absolute positions too, by a rule that does not look at the pass (fixed multiples of
//! [`PAGE_TOKENS`]); ranges past a row's last key then yield empty partials, which merge as nothing.

use std::ops::Range;

use half::bf16;

use super::exponential;
use super::kv::{KvPool, KvType, PAGE_TOKENS};
use super::paired::{self, Paired};
use super::product::{self, BLOCK_ROWS, Panel, Start};
use super::view::{Heads, Rows, RowsMut, Scratch, cut};
use crate::simd::{Isa, Kernel, Simd};

/// Floats before the output in a partial: 16 times the maximum, then 16 lanes of the sum.
const HEADER: usize = 32;

/// From this many query vectors on, BF16 pages are widened once instead of at every use.
const WIDEN_FROM: usize = 8;

/// Width of one partial result: for each (row, query head) a maximum, a sum and an output.
pub fn partial_width(head_dim: usize) -> usize {
    HEADER + head_dim
}

/// The query rows of one KV head.
#[derive(Clone, Copy, Debug)]
pub struct Queries<'a> {
    /// Rows of the pass, after norm and rotary embedding.
    pub rows: Rows<'a>,
    /// Where the query heads that share the KV head lie in a row.
    pub heads: Heads,
    /// For each row, how many keys from position 0 on it sees: its own position plus one.
    pub visible: &'a [usize],
    /// Factor on the scores, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
}

impl Queries<'_> {
    /// Number of (row, query head) pairs.
    fn records(&self) -> usize {
        self.rows.rows() * self.heads.count
    }

    /// Keys of a page (from `first` on, `end` exclusive over all pages) that record `r` sees.
    #[inline(always)]
    fn keys_in_page(&self, record: usize, first: usize, end: usize) -> usize {
        let last = self.visible[record / self.heads.count].min(end);
        last.saturating_sub(first).min(PAGE_TOKENS)
    }
}

/// Asks for the first keys that [`attend_range`] reads, to be called some work before it. From there on its products ask for
/// what they read next.
pub fn prefetch_keys(isa: Isa, pool: &KvPool<'_>, kv_head: usize, page: u32) {
    let start = pool.keys(page, kv_head);
    isa.run(PrefetchKeys { start, bytes: pool.geometry().half_bytes() });
}

struct PrefetchKeys {
    start: *const u8,
    bytes: usize,
}

impl Kernel for PrefetchKeys {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for line in (0..self.bytes).step_by(64) {
            s.prefetch(self.start.wrapping_add(line));
        }
    }
}

/// Attends to the keys at positions `keys` and writes one partial per (row, query head): record
/// `t * group + j` is row `t`, head `j`.
///
/// `keys.start` is a multiple of [`PAGE_TOKENS`]. Keys past a row's limit are neither used nor
/// read as values, so they may hold anything. Towards the end it asks for what is read next, from `then` on, if that is known.
///
/// # Panics
/// If shapes disagree or the page table does not cover the visible keys.
#[expect(clippy::too_many_arguments, reason = "a task body takes all its operands by name")]
pub fn attend_range(
    isa: Isa,
    pool: &KvPool<'_>,
    kv_head: usize,
    page_table: &[u32],
    queries: Queries<'_>,
    keys: Range<usize>,
    then: Option<*const u8>,
    scratch: &mut Scratch,
    partials: &mut RowsMut<'_>,
) {
    check(pool, &queries);
    assert!(keys.start.is_multiple_of(PAGE_TOKENS), "a key range starts at a page");
    let width = partial_width(queries.heads.dim);
    assert!(
        partials.rows() == queries.records() && partials.width() == width,
        "one partial per row and head"
    );
    let state = Panel { start: partials.start(), stride: partials.stride() };
    let widened = scratch.floats(widened_floats(pool)).as_mut_ptr();
    isa.run(Attend { pool, kv_head, page_table, queries, keys, then, state, widened });
}

/// Merges the partials of ascending key ranges of one row and query head into its output.
///
/// `partials` is `[ranges, partial_width]`. A row that saw no key at all gets zeros.
pub fn merge_partials(isa: Isa, partials: Rows<'_>, out: &mut [f32]) {
    assert_eq!(partials.width(), partial_width(out.len()), "a partial of this head's width");
    isa.run(Merge { partials, out });
}

/// Attends to all keys that each row sees and writes the outputs: query head `j` of row `t` goes to
/// head `j` of `out_heads` in row `t` of `out`.
///
/// For prefill. A block of some 64 to 128 (row, query head) pairs keeps its sums in the second
/// cache level. The bits are those of [`attend_range`] over one range.
///
/// # Panics
/// As [`attend_range`].
#[expect(clippy::too_many_arguments, reason = "a task body takes all its operands by name")]
pub fn attend_block(
    isa: Isa,
    pool: &KvPool<'_>,
    kv_head: usize,
    page_table: &[u32],
    queries: Queries<'_>,
    scratch: &mut Scratch,
    out: &mut RowsMut<'_>,
    out_heads: Heads,
) {
    check(pool, &queries);
    let group = queries.heads.count;
    assert!(
        out_heads.count == group && out_heads.dim == queries.heads.dim,
        "an output head per query head"
    );
    assert_eq!(out.rows(), queries.rows.rows(), "an output row per query row");
    let width = partial_width(queries.heads.dim);
    let widened_count = widened_floats(pool);
    let mut memory = scratch.floats(super::view::padded(widened_count) + queries.records() * width);
    let widened = cut(&mut memory, widened_count).as_mut_ptr();
    let records = memory;
    let state = Panel { start: records.as_mut_ptr(), stride: width };
    let keys = 0..queries.visible.iter().copied().max().unwrap_or(0);
    let then = None;
    isa.run(Attend { pool, kv_head, page_table, queries, keys, then, state, widened });
    for t in 0..queries.rows.rows() {
        for j in 0..group {
            let record = &records[(t * group + j) * width..][..width];
            let target = &mut out.row_mut(t)[out_heads.column(j)..][..out_heads.dim];
            merge_partials(isa, Rows::contiguous(record, width), target);
        }
    }
}

fn check(pool: &KvPool<'_>, queries: &Queries<'_>) {
    let heads = queries.heads;
    assert_eq!(heads.dim, pool.geometry().head_dim, "queries as wide as keys");
    assert_eq!(queries.visible.len(), queries.rows.rows(), "a limit for each row");
    assert!(
        heads.count > 0 && heads.column(heads.count - 1) + heads.dim <= queries.rows.width(),
        "query heads inside a row"
    );
}

fn widened_floats(pool: &KvPool<'_>) -> usize {
    match pool.geometry().element {
        KvType::F32 => 0,
        KvType::Bf16 => 2 * PAGE_TOKENS * pool.geometry().head_dim,
    }
}

struct Attend<'a> {
    pool: &'a KvPool<'a>,
    kv_head: usize,
    page_table: &'a [u32],
    queries: Queries<'a>,
    keys: Range<usize>,
    /// What is read after them.
    then: Option<*const u8>,
    /// One partial per record.
    state: Panel<*mut f32>,
    /// Room for one page of keys and values in f32, if the pool is BF16.
    widened: *mut f32,
}

/// The two products of a step of the online softmax with keys and values of one KV head in one page.
///
/// Both are chains of multiply-adds in the order of the inner dimension, so every implementor gives the same bits.
trait PageProducts: Copy {
    /// `scores = queries * keys`, for the first `width` keys, a multiple of 16.
    ///
    /// # Safety
    /// The first `taken` of `queries` are as long as a head, and those of `scores` have room for a page.
    unsafe fn score<S: Simd>(
        self,
        s: S,
        taken: usize,
        queries: &[*const f32; BLOCK_ROWS],
        scores: &[*mut f32; BLOCK_ROWS],
        width: usize,
    );
    /// `outputs += weights * values`, for the first `count` values.
    ///
    /// # Safety
    /// The first `taken` of `weights` are `count` long, and those of `outputs` as long as a head.
    unsafe fn weigh<S: Simd>(
        self,
        s: S,
        taken: usize,
        weights: &[*const f32; BLOCK_ROWS],
        count: usize,
        outputs: &[*mut f32; BLOCK_ROWS],
    );
}

/// A page of f32: `[head_dim][64]` keys and `[64][head_dim]` values.
#[derive(Clone, Copy)]
struct WidePage {
    keys: *const f32,
    values: *const f32,
    dim: usize,
}

impl PageProducts for WidePage {
    #[inline(always)]
    unsafe fn score<S: Simd>(
        self,
        s: S,
        taken: usize,
        queries: &[*const f32; BLOCK_ROWS],
        scores: &[*mut f32; BLOCK_ROWS],
        width: usize,
    ) {
        let keys = Panel { start: self.keys, stride: PAGE_TOKENS };
        // SAFETY: the caller's promise, and keys are `[dim][64]`.
        unsafe {
            product::rows(s, Start::Zero, taken, queries, keys, self.dim, scores, width);
        }
    }

    #[inline(always)]
    unsafe fn weigh<S: Simd>(
        self,
        s: S,
        taken: usize,
        weights: &[*const f32; BLOCK_ROWS],
        count: usize,
        outputs: &[*mut f32; BLOCK_ROWS],
    ) {
        let values = Panel { start: self.values, stride: self.dim };
        // SAFETY: the caller's promise, and values are `[64][dim]`.
        unsafe {
            product::rows(s, Start::Add, taken, weights, values, count, outputs, self.dim);
        }
    }
}

/// A page of BF16 as it is stored, in pairs of columns.
#[derive(Clone, Copy)]
struct PairedPage {
    keys: *const bf16,
    values: *const bf16,
    dim: usize,
    /// The keys that are read after this page.
    next: *const u8,
}

impl PageProducts for PairedPage {
    #[inline(always)]
    unsafe fn score<S: Simd>(
        self,
        s: S,
        taken: usize,
        queries: &[*const f32; BLOCK_ROWS],
        scores: &[*mut f32; BLOCK_ROWS],
        width: usize,
    ) {
        let keys = Paired { start: self.keys, columns: PAGE_TOKENS, next: self.values.cast() };
        // Whole pairs: a page has room for them.
        let width = width.next_multiple_of(paired::COLUMNS);
        // SAFETY: the caller's promise, and keys are `[dim][64]`.
        unsafe { paired::rows(s, Start::Zero, taken, queries, keys, self.dim, scores, width) };
    }

    #[inline(always)]
    unsafe fn weigh<S: Simd>(
        self,
        s: S,
        taken: usize,
        weights: &[*const f32; BLOCK_ROWS],
        count: usize,
        outputs: &[*mut f32; BLOCK_ROWS],
    ) {
        let values = Paired { start: self.values, columns: self.dim, next: self.next };
        // SAFETY: the caller's promise, and values are `[64][dim]`.
        unsafe { paired::rows(s, Start::Add, taken, weights, values, count, outputs, self.dim) };
    }
}

impl Kernel for Attend<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (records, dim) = (self.queries.records(), self.queries.heads.dim);
        for record in 0..records {
            // SAFETY: each record of the state is one partial wide.
            unsafe { clear(s, self.state.start.add(record * self.state.stride), dim) };
        }
        let visible = self.queries.visible.iter().copied().max().unwrap_or(0).min(self.keys.end);
        let pages = self.keys.start / PAGE_TOKENS..visible.div_ceil(PAGE_TOKENS);
        let few = records < WIDEN_FROM;
        for index in pages.clone() {
            let (page, first) = (self.page_table[index], index * PAGE_TOKENS);
            let keys = self.pool.keys(page, self.kv_head);
            let values = self.pool.values(page, self.kv_head);
            // SAFETY: the pool's halves have this element type and shape; `widened` has room.
            unsafe {
                match self.pool.geometry().element {
                    KvType::F32 => {
                        let page = WidePage { keys: keys.cast(), values: values.cast(), dim };
                        self.page(s, first, page);
                    }
                    KvType::Bf16 => {
                        let next = match self.page_table.get(index + 1) {
                            Some(page) if index + 1 < pages.end => {
                                self.pool.keys(*page, self.kv_head)
                            }
                            _ => self.then.unwrap_or(keys),
                        };
                        let (keys, values) = (keys.cast(), values.cast());
                        let page = PairedPage { keys, values, dim, next };
                        if few {
                            self.page(s, first, page);
                        } else {
                            let wide = widen(s, page, self.widened);
                            self.page(s, first, wide);
                        }
                    }
                }
            }
        }
    }
}

impl Attend<'_> {
    /// One step of the online softmax of all records: blocks of records that see the same number
    /// of this page's keys, so that no record reads a value that it must not see.
    ///
    /// # Safety
    /// `page` is a page of the pool's shape, and `state` has one partial per record.
    #[inline(always)]
    unsafe fn page<S: Simd>(&self, s: S, first: usize, page: impl PageProducts) {
        let records = self.queries.records();
        let mut record = 0;
        while record < records {
            let count = self.queries.keys_in_page(record, first, self.keys.end);
            let mut taken = 1;
            while taken < BLOCK_ROWS
                && record + taken < records
                && self.queries.keys_in_page(record + taken, first, self.keys.end) == count
            {
                taken += 1;
            }
            if count > 0 {
                // SAFETY: the caller's promise; `record + taken` records exist.
                unsafe { self.records(s, record, taken, count, page) };
            }
            record += taken;
        }
    }

    /// `taken` records from `record` on against the first `count` keys of a page.
    ///
    /// # Safety
    /// As [`Attend::page`].
    #[inline(always)]
    unsafe fn records<S: Simd>(
        &self,
        s: S,
        record: usize,
        taken: usize,
        count: usize,
        page: impl PageProducts,
    ) {
        let Heads { count: group, dim, .. } = self.queries.heads;
        let mut scores = [[0.0f32; PAGE_TOKENS]; BLOCK_ROWS];
        let mut queries = [std::ptr::null(); BLOCK_ROWS];
        let mut weights = [std::ptr::null(); BLOCK_ROWS];
        let mut targets = [std::ptr::null_mut(); BLOCK_ROWS];
        let mut outputs = [std::ptr::null_mut(); BLOCK_ROWS];
        for r in 0..taken {
            let (t, j) = ((record + r) / group, (record + r) % group);
            queries[r] = self.queries.rows.row(t)[self.queries.heads.column(j)..][..dim].as_ptr();
            targets[r] = scores[r].as_mut_ptr();
            weights[r] = targets[r].cast_const();
            outputs[r] = self.state.start.wrapping_add((record + r) * self.state.stride + HEADER);
        }
        // Whole vectors of keys; `soften` discards the lanes past `count`.
        let width = count.next_multiple_of(16);
        // SAFETY: queries are `dim` long, scores 64 long, and outputs the tail of a partial.
        unsafe {
            page.score(s, taken, &queries, &targets, width);
            for r in 0..taken {
                let partial = outputs[r].sub(HEADER);
                soften(s, targets[r], count, self.queries.scale, partial, dim);
            }
            page.weigh(s, taken, &weights, count, &outputs);
        }
    }
}

/// An empty partial: no key seen.
///
/// # Safety
/// `partial` is one partial wide.
#[inline(always)]
unsafe fn clear<S: Simd>(s: S, partial: *mut f32, dim: usize) {
    // SAFETY: the header and then `dim` floats, a multiple of 16.
    unsafe {
        s.store(partial, s.splat(f32::NEG_INFINITY));
        let mut at = 16;
        while at < HEADER + dim {
            s.store(partial.add(at), s.zero());
            at += 16;
        }
    }
}

/// Turns `count` scores into weights relative to the new maximum and rescales the partial to it.
///
/// # Safety
/// 64 scores are at `scores` and `partial` is one partial wide.
#[inline(always)]
unsafe fn soften<S: Simd>(
    s: S,
    scores: *mut f32,
    count: usize,
    scale: f32,
    partial: *mut f32,
    dim: usize,
) {
    let vectors = count.div_ceil(16);
    let scale = s.splat(scale);
    // SAFETY: below 64 scores; the partial's header is two vectors, its output `dim` floats.
    unsafe {
        for v in 0..vectors {
            s.store(scores.add(16 * v), s.mul(s.load(scores.add(16 * v)), scale));
        }
        for lane in count..16 * vectors {
            scores.add(lane).write(f32::NEG_INFINITY);
        }
        let mut peak = s.load(scores);
        for v in 1..vectors {
            peak = s.max(s.load(scores.add(16 * v)), peak);
        }
        let (old, peak) = (partial.read(), s.maximum(peak));
        let new = s.splat(if old > peak { old } else { peak });
        let mut sum = s.load(partial.add(16));
        // Where the maximum stays, the factor would be one.
        if old <= peak {
            let shrink = exponential::exp(s, s.sub(s.splat(old), new));
            sum = s.mul(sum, shrink);
            s.store(partial, new);
            let mut at = HEADER;
            while at < HEADER + dim {
                s.store(partial.add(at), s.mul(s.load(partial.add(at)), shrink));
                at += 16;
            }
        }
        for v in 0..vectors {
            let weight = exponential::exp(s, s.sub(s.load(scores.add(16 * v)), new));
            s.store(scores.add(16 * v), weight);
            sum = s.add(sum, weight);
        }
        s.store(partial.add(16), sum);
    }
}

/// Widens a page.
///
/// # Safety
/// The page has `64 dim` keys and values, and twice that many floats fit at `to`.
#[inline(always)]
unsafe fn widen<S: Simd>(s: S, page: PairedPage, to: *mut f32) -> WidePage {
    let dim = page.dim;
    let values = to.wrapping_add(PAGE_TOKENS * dim);
    // SAFETY: `dim` rows of 64 keys, then 64 rows of `dim` values.
    unsafe {
        for d in 0..dim {
            let at = d * PAGE_TOKENS;
            paired::widen(s, page.keys.add(at), PAGE_TOKENS, to.add(at));
        }
        for token in 0..PAGE_TOKENS {
            paired::widen(s, page.values.add(token * dim), dim, values.add(token * dim));
        }
    }
    WidePage { keys: to, values, dim }
}

struct Merge<'a> {
    partials: Rows<'a>,
    out: &'a mut [f32],
}

impl Kernel for Merge<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let ranges = self.partials.rows();
        let mut peak = f32::NEG_INFINITY;
        for range in 0..ranges {
            peak = peak.max(self.partials.row(range)[0]);
        }
        let mut sum = s.zero();
        self.out.fill(0.0);
        for range in 0..ranges {
            let partial = self.partials.row(range);
            if partial[0] == f32::NEG_INFINITY {
                continue;
            }
            let weight = exponential::exp(s, s.splat(partial[0] - peak));
            // SAFETY: the partial is HEADER + out.len() long, both multiples of 16.
            unsafe {
                sum = s.fma(weight, s.load(partial.as_ptr().add(16)), sum);
                let mut at = 0;
                while at < self.out.len() {
                    let target = self.out.as_mut_ptr().add(at);
                    s.store(
                        target,
                        s.fma(weight, s.load(partial.as_ptr().add(HEADER + at)), s.load(target)),
                    );
                    at += 16;
                }
            }
        }
        if peak == f32::NEG_INFINITY {
            return;
        }
        let total = s.splat(s.sum(sum));
        let mut at = 0;
        while at < self.out.len() {
            // SAFETY: inside the output.
            unsafe {
                let target = self.out.as_mut_ptr().add(at);
                s.store(target, s.div(s.load(target), total));
            }
            at += 16;
        }
    }
}
