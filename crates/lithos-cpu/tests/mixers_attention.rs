//! Attention over KV pages against softmax attention in f64.

mod mixers_support;

use std::ops::Range;

use lithos_cpu::mixers::attention::{self, Queries, partial_width};
use lithos_cpu::mixers::kv::{KvError, KvGeometry, KvPool, KvType, PAGE_TOKENS};
use lithos_cpu::mixers::{Heads, Rows, RowsMut, Scratch};
use lithos_cpu::simd::Isa;
use mixers_support::*;

/// A sequence of keys and values in a pool, its pages in shuffled order.
struct Sequence {
    geometry: KvGeometry,
    memory: Vec<u32>,
    page_table: Vec<u32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    tokens: usize,
}

impl Sequence {
    fn new(random: &mut Random, geometry: KvGeometry, tokens: usize) -> Self {
        let pages = KvGeometry::pages_for(tokens) + 3;
        let page_table = random.shuffled(pages)[..KvGeometry::pages_for(tokens)].to_vec();
        let count = tokens * geometry.kv_heads * geometry.head_dim;
        let (keys, values) = (random.values(count, -2.0, 2.0), random.values(count, -1.0, 1.0));
        // All ones is NaN in F32 and in BF16: a read past the written positions would show.
        let memory = vec![u32::MAX; pages * geometry.page_bytes() / 4];
        let mut sequence = Self { geometry, memory, page_table, keys, values, tokens };
        sequence.write(0..tokens / 2);
        sequence.write(tokens / 2..tokens);
        sequence
    }

    fn write(&mut self, positions: Range<usize>) {
        let (dim, width) =
            (self.geometry.head_dim, self.geometry.kv_heads * self.geometry.head_dim);
        let mut pool = KvPool::new(bytes(&mut self.memory), self.geometry).unwrap();
        let keys = Rows::contiguous(&self.keys, width).part(positions.start, positions.len());
        let values = Rows::contiguous(&self.values, width).part(positions.start, positions.len());
        for head in 0..self.geometry.kv_heads {
            let (k, v) = (keys.columns(head * dim, dim), values.columns(head * dim, dim));
            pool.write_rows(head, &self.page_table, positions.start, k, v);
        }
    }

    fn pool(&mut self) -> KvPool<'_> {
        KvPool::new(bytes(&mut self.memory), self.geometry).unwrap()
    }

    /// Softmax attention of one query over the first `visible` keys.
    fn reference(&self, query: &[f32], kv_head: usize, visible: usize, scale: f64) -> Vec<f64> {
        let (dim, width) =
            (self.geometry.head_dim, self.geometry.kv_heads * self.geometry.head_dim);
        let at = |values: &[f32], t: usize| wide(&values[t * width + kv_head * dim..][..dim]);
        let scores: Vec<f64> = (0..visible)
            .map(|t| {
                scale
                    * at(&self.keys, t)
                        .iter()
                        .zip(query)
                        .map(|(k, &q)| k * f64::from(q))
                        .sum::<f64>()
            })
            .collect();
        let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = scores.iter().map(|s| (s - top).exp()).sum();
        let mut out = vec![0.0; dim];
        for (t, score) in scores.iter().enumerate() {
            let weight = (score - top).exp() / total;
            for (o, v) in out.iter_mut().zip(at(&self.values, t)) {
                *o += weight * v;
            }
        }
        out
    }
}

fn bytes(memory: &mut [u32]) -> &mut [u8] {
    let length = memory.len() * 4;
    // SAFETY: any u32 is four bytes, and the slice stays borrowed.
    unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), length) }
}

/// Query rows `[T][kv_heads * group]`, each head followed by as much of something else.
struct Block {
    query: Vec<f32>,
    group: usize,
    dim: usize,
    kv_heads: usize,
    visible: Vec<usize>,
    scale: f32,
}

impl Block {
    fn new(random: &mut Random, geometry: KvGeometry, group: usize, visible: Vec<usize>) -> Self {
        let (dim, kv_heads) = (geometry.head_dim, geometry.kv_heads);
        let query = random.values(visible.len() * kv_heads * group * 2 * dim, -2.0, 2.0);
        Self { query, group, dim, kv_heads, visible, scale: 1.0 / (dim as f32).sqrt() }
    }

    fn width(&self) -> usize {
        self.kv_heads * self.group * 2 * self.dim
    }

    fn queries(&self, kv_head: usize, rows: Range<usize>) -> Queries<'_> {
        let all = Heads {
            count: self.kv_heads * self.group,
            dim: self.dim,
            first: 0,
            stride: 2 * self.dim,
        };
        Queries {
            rows: Rows::contiguous(&self.query, self.width()).part(rows.start, rows.len()),
            heads: all.part(kv_head * self.group, self.group),
            visible: &self.visible[rows],
            scale: self.scale,
        }
    }

    fn query_of(&self, row: usize, head: usize) -> &[f32] {
        &self.query[row * self.width() + head * 2 * self.dim..][..self.dim]
    }

    fn out_width(&self) -> usize {
        self.kv_heads * self.group * self.dim
    }

    fn reference(&self, sequence: &Sequence) -> Vec<f64> {
        let mut out = Vec::new();
        for (row, &visible) in self.visible.iter().enumerate() {
            for head in 0..self.kv_heads * self.group {
                let query = self.query_of(row, head);
                out.extend(sequence.reference(
                    query,
                    head / self.group,
                    visible,
                    f64::from(self.scale),
                ));
            }
        }
        out
    }

    /// Decode: partials of the given key ranges, then their merge.
    fn decode(
        &self,
        isa: Isa,
        sequence: &mut Sequence,
        rows: Range<usize>,
        ranges: &[Range<usize>],
    ) -> Vec<f32> {
        let mut scratch = Scratch::new();
        let heads = self.kv_heads * self.group;
        let width = partial_width(self.dim);
        let pages = sequence.page_table.clone();
        let pool = sequence.pool();
        let mut out = poisoned(rows.len() * self.out_width());
        for kv_head in 0..self.kv_heads {
            let records = rows.len() * self.group;
            let mut partials = poisoned(ranges.len() * records * width);
            for (range, partial) in ranges.iter().zip(partials.chunks_mut(records * width)) {
                let queries = self.queries(kv_head, rows.clone());
                let mut partial = RowsMut::contiguous(partial, width);
                attention::attend_range(
                    isa,
                    &pool,
                    kv_head,
                    &pages,
                    queries,
                    range.clone(),
                    None,
                    &mut scratch,
                    &mut partial,
                );
            }
            for record in 0..records {
                let of_record =
                    Rows::new(&partials[record * width..], ranges.len(), width, records * width);
                let (t, j) = (record / self.group, record % self.group);
                let target =
                    &mut out[(t * heads + kv_head * self.group + j) * self.dim..][..self.dim];
                attention::merge_partials(isa, of_record, target);
            }
        }
        out
    }

    /// Prefill: rows in blocks of the given sizes.
    fn prefill(&self, isa: Isa, sequence: &mut Sequence, blocks: &[usize]) -> Vec<f32> {
        let mut scratch = Scratch::new();
        let pages = sequence.page_table.clone();
        let pool = sequence.pool();
        let mut out = poisoned(self.visible.len() * self.out_width());
        let mut first = 0;
        for &rows in blocks {
            for kv_head in 0..self.kv_heads {
                let mut view = RowsMut::contiguous(&mut out, self.out_width());
                let mut block = view.part_mut(first, rows);
                let target = Heads::dense(self.kv_heads * self.group, self.dim)
                    .part(kv_head * self.group, self.group);
                let queries = self.queries(kv_head, first..first + rows);
                attention::attend_block(
                    isa,
                    &pool,
                    kv_head,
                    &pages,
                    queries,
                    &mut scratch,
                    &mut block,
                    target,
                );
            }
            first += rows;
        }
        assert_eq!(first, self.visible.len());
        out
    }
}

/// All keys as one range.
fn one_range(tokens: usize) -> Vec<Range<usize>> {
    std::iter::once(0..tokens).collect()
}

fn fixed_ranges(tokens: usize, size: usize) -> Vec<Range<usize>> {
    (0..tokens.div_ceil(size)).map(|i| i * size..(i + 1) * size).collect()
}

#[test]
fn kv_rows_come_back_through_a_shuffled_page_table() {
    for element in [KvType::F32, KvType::Bf16] {
        let geometry = KvGeometry { kv_heads: 2, head_dim: 48, element };
        let mut sequence = Sequence::new(&mut Random::new(1), geometry, 3 * PAGE_TOKENS + 5);
        let (pages, keys, values) =
            (sequence.page_table.clone(), sequence.keys.clone(), sequence.values.clone());
        let tokens = sequence.tokens;
        let pool = sequence.pool();
        let (mut key, mut value) = (vec![0.0; 48], vec![0.0; 48]);
        for position in 0..tokens {
            for head in 0..2 {
                pool.read_row(head, &pages, position, &mut key, &mut value);
                let start = (position * 2 + head) * 48;
                let tolerance = if element == KvType::F32 { 1e-30 } else { 1.0 / 256.0 };
                for (got, want) in
                    key.iter().zip(&keys[start..]).chain(value.iter().zip(&values[start..]))
                {
                    assert!((got - want).abs() <= tolerance * want.abs(), "{got} is not {want}");
                }
            }
        }
    }
}

#[test]
fn kv_pool_refuses_what_it_cannot_hold() {
    let mut memory = vec![0u32; 1024];
    let geometry = KvGeometry { kv_heads: 1, head_dim: 20, element: KvType::F32 };
    assert_eq!(
        KvPool::new(bytes(&mut memory), geometry).unwrap_err(),
        KvError::HeadDim { head_dim: 20 }
    );
    let geometry = KvGeometry { head_dim: 16, ..geometry };
    let unaligned = &mut bytes(&mut memory)[1..];
    assert_eq!(KvPool::new(unaligned, geometry).unwrap_err(), KvError::Alignment { bytes: 4 });
}

#[test]
fn attention_equals_softmax_for_every_shape() {
    let mut random = Random::new(2);
    for (case, &(dim, group)) in
        [(32, 1), (64, 3), (64, 2), (128, 5), (256, 6), (256, 4), (80, 1), (16, 7), (96, 3)]
            .iter()
            .enumerate()
    {
        let geometry = KvGeometry { kv_heads: 2, head_dim: dim, element: KvType::F32 };
        let tokens = 3 * PAGE_TOKENS + 11;
        let mut sequence = Sequence::new(&mut random, geometry, tokens);
        let visible = if case % 2 == 0 {
            (tokens - 4..=tokens).collect()
        } else {
            vec![1, 63, 64, 65, tokens]
        };
        let block = Block::new(&mut random, geometry, group, visible);
        let want = block.reference(&sequence);
        let memory = sequence.memory.clone();
        let decoded = on_every_isa("decode", |isa| {
            let mut own = Sequence { memory: memory.clone(), ..clone(&sequence) };
            block.decode(isa, &mut own, 0..5, &one_range(tokens))
        });
        assert_close(&decoded, &want, 1e-5, &format!("decode, head {dim}, group {group}"));
        let isa = Isa::available()[0];
        let prefilled = block.prefill(isa, &mut sequence, &[5]);
        assert_same_bits(&decoded, &prefilled, "one range is the block");
    }
}

fn clone(sequence: &Sequence) -> Sequence {
    Sequence {
        geometry: sequence.geometry,
        memory: Vec::new(),
        page_table: sequence.page_table.clone(),
        keys: Vec::new(),
        values: Vec::new(),
        tokens: sequence.tokens,
    }
}

#[test]
fn bf16_pages_are_within_their_rounding() {
    let mut random = Random::new(3);
    let geometry = KvGeometry { kv_heads: 2, head_dim: 64, element: KvType::Bf16 };
    let mut sequence = Sequence::new(&mut random, geometry, 200);
    let block = Block::new(&mut random, geometry, 3, (180..=200).collect());
    let want = block.reference(&sequence);
    for isa in Isa::available() {
        let got = block.decode(isa, &mut sequence, 0..21, &fixed_ranges(200, 64));
        assert_close(&got, &want, 1e-2, "bf16");
        // Many rows expand the page once; a single row converts as it goes. Same bits.
        let block_bits = block.prefill(isa, &mut sequence, &[21]);
        assert_same_bits(&block_bits, &block.prefill(isa, &mut sequence, &[1; 21]), "bf16 blocks");
    }
}

/// Few rows multiply BF16 pairs as they are stored, many rows widen a page first: for every number of rows that a block may
/// have, and head sizes with and without a rest of 16.
#[test]
fn bf16_pairs_give_the_bits_of_widened_pages() {
    let mut random = Random::new(8);
    for dim in [16, 32, 80, 96, 128] {
        for group in 1..=7 {
            let geometry = KvGeometry { kv_heads: 2, head_dim: dim, element: KvType::Bf16 };
            let tokens = 2 * PAGE_TOKENS + 41;
            let mut sequence = Sequence::new(&mut random, geometry, tokens);
            let visible: Vec<usize> = (tokens - 7..=tokens).collect();
            let block = Block::new(&mut random, geometry, group, visible);
            let memory = sequence.memory.clone();
            let widened = on_every_isa("widened", |isa| {
                let mut own = Sequence { memory: memory.clone(), ..clone(&sequence) };
                block.prefill(isa, &mut own, &[8])
            });
            assert_close(&widened, &block.reference(&sequence), 2e-2, "bf16");
            for isa in Isa::available() {
                let rows = block.prefill(isa, &mut sequence, &[1; 8]);
                assert_same_bits(&widened, &rows, &format!("head {dim}, group {group}"));
            }
        }
    }
}

#[test]
fn merged_ranges_equal_one_range() {
    let mut random = Random::new(4);
    let geometry = KvGeometry { kv_heads: 1, head_dim: 64, element: KvType::F32 };
    let tokens = 700;
    let mut sequence = Sequence::new(&mut random, geometry, tokens);
    let block = Block::new(&mut random, geometry, 3, vec![5, 64, 300, 699, 700]);
    let isa = Isa::available()[0];
    let whole = block.decode(isa, &mut sequence, 0..5, &one_range(tokens));
    for size in [64, 128, 256, 512] {
        let merged = block.decode(isa, &mut sequence, 0..5, &fixed_ranges(tokens, size));
        assert_close(&merged, &wide(&whole), 1e-6, "merged");
    }
    // Ranges past every visible key change nothing.
    let mut longer = fixed_ranges(tokens, 256);
    longer.push(768..1024);
    let a = block.decode(isa, &mut sequence, 0..5, &fixed_ranges(tokens, 256));
    let b = block.decode(isa, &mut sequence, 0..5, &longer);
    assert_same_bits(&a, &b, "an empty range");
}

#[test]
fn a_row_does_not_depend_on_the_rows_beside_it() {
    let mut random = Random::new(5);
    let shapes = [(64, 3), (256, 6), (32, 1), (128, 4)];
    let elements = [KvType::F32, KvType::Bf16];
    for (element, (dim, group)) in elements.iter().flat_map(|e| shapes.map(|shape| (*e, shape))) {
        let geometry = KvGeometry { kv_heads: 1, head_dim: dim, element };
        let tokens = 2 * PAGE_TOKENS + 4;
        let mut sequence = Sequence::new(&mut random, geometry, tokens);
        // Rows on both sides of a page's end.
        let visible: Vec<usize> = (tokens - 11..=tokens).collect();
        let rows = visible.len();
        let block = Block::new(&mut random, geometry, group, visible);
        for isa in Isa::available() {
            let ranges = fixed_ranges(tokens, 128);
            let together = block.decode(isa, &mut sequence, 0..rows, &ranges);
            let blocks = block.prefill(isa, &mut sequence, &[rows]);
            assert_same_bits(
                &blocks,
                &block.prefill(isa, &mut sequence, &[1, 5, 2, rows - 8]),
                "blocks",
            );
            let width = block.out_width();
            for row in 0..rows {
                let alone = block.decode(isa, &mut sequence, row..row + 1, &ranges);
                assert_same_bits(&together[row * width..][..width], &alone, "row alone");
            }
        }
    }
}

#[test]
fn a_rejected_key_beyond_the_limit_is_not_seen() {
    let mut random = Random::new(6);
    let geometry = KvGeometry { kv_heads: 1, head_dim: 32, element: KvType::F32 };
    let mut sequence = Sequence::new(&mut random, geometry, 100);
    let block = Block::new(&mut random, geometry, 2, vec![90, 91]);
    let isa = Isa::available()[0];
    let before = block.decode(isa, &mut sequence, 0..2, &one_range(128));
    for x in &mut sequence.values[91 * 32..] {
        *x = f32::NAN;
    }
    for x in &mut sequence.keys[91 * 32..] {
        *x = f32::INFINITY;
    }
    sequence.write(91..100);
    assert_same_bits(
        &before,
        &block.decode(isa, &mut sequence, 0..2, &one_range(128)),
        "keys beyond the limit",
    );
}

#[test]
fn scores_of_any_size_stay_finite() {
    let mut random = Random::new(7);
    let geometry = KvGeometry { kv_heads: 1, head_dim: 64, element: KvType::F32 };
    let mut sequence = Sequence::new(&mut random, geometry, 150);
    let mut block = Block::new(&mut random, geometry, 1, vec![150]);
    block.scale = 100.0;
    let got = block.decode(Isa::available()[0], &mut sequence, 0..1, &fixed_ranges(150, 64));
    assert_close(&got, &block.reference(&sequence), 1e-3, "large scores");
}
