//! Pseudo-random bytes by place: a counter-based generator, and what turns its bits into codes.

use std::fmt;
use std::sync::Arc;

use lithos_format::GeneratedBytes;

/// Bytes that are computed at once. Each kind of code makes a whole number of them from whole words.
const BLOCK: usize = 256;

/// Entries of a table of 16-bit or 8-bit codes.
pub(crate) const ENTRIES: usize = 1 << 12;

/// Entries of a table of scales.
pub(crate) const SCALES: usize = 1 << 8;

/// Selects a tensor's stream of random words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u64);

impl Key {
    /// The stream of a tensor: the FNV-1a hash of its name, mixed with the seed.
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Key(mix(hash ^ mix(seed.wrapping_add(GAMMA))))
    }

    /// Consecutive words of the stream, from `first` on: SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom
    /// Number Generators, 2014), whose state is a counter.
    #[inline]
    fn words<const N: usize>(self, first: u64) -> [u64; N] {
        let mut counter = self.0.wrapping_add(first.wrapping_mul(GAMMA));
        std::array::from_fn(|_| {
            counter = counter.wrapping_add(GAMMA);
            mix(counter)
        })
    }
}

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline]
fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// What random bits become. Tables hold equally likely codes.
#[derive(Clone)]
pub(crate) enum Recipe {
    /// 16-bit numbers.
    Halves(Arc<[u16; ENTRIES]>),
    /// 8-bit codes.
    Bytes(Arc<[u8; ENTRIES]>),
    /// Pairs of 4-bit codes, low nibble first.
    Nibbles(Nibbles),
    /// 8-bit scales.
    ByteScales(Arc<[u8; SCALES]>),
    /// 16-bit scales or biases.
    HalfScales(Arc<[u16; SCALES]>),
    /// One number, single precision, again and again.
    Constant(f32),
}

/// 4-bit codes of a sign and a magnitude of eight steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nibbles {
    /// The magnitude is how many of these a random number below 128 reaches; ascending.
    pub(crate) thresholds: [u8; 7],
    /// Combined with the magnitude by exclusive or where the sign is positive, and where it is negative.
    pub(crate) signs: [u8; 2],
}

/// The bytes of one tensor.
#[derive(Debug)]
pub(crate) struct RandomBytes {
    pub(crate) key: Key,
    pub(crate) recipe: Recipe,
}

impl Recipe {
    /// One block of a stream.
    fn block(&self, key: Key, index: usize, out: &mut [u8; BLOCK]) {
        let index = index as u64;
        match self {
            Recipe::Halves(table) => {
                let words = key.words::<{ BLOCK / 8 }>(index * (BLOCK / 8) as u64);
                for (word, out) in words.iter().zip(out.as_chunks_mut::<8>().0) {
                    for (part, out) in out.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                        *out = table[(word >> (16 * part)) as usize % ENTRIES].to_le_bytes();
                    }
                }
            }
            Recipe::Bytes(table) => {
                let words = key.words::<{ BLOCK / 4 }>(index * (BLOCK / 4) as u64);
                for (word, out) in words.iter().zip(out.as_chunks_mut::<4>().0) {
                    *out =
                        std::array::from_fn(|part| table[(word >> (16 * part)) as usize % ENTRIES]);
                }
            }
            Recipe::Nibbles(nibbles) => {
                nibbles.block(&key.words::<{ BLOCK / 4 }>(index * (BLOCK / 4) as u64), out);
            }
            Recipe::ByteScales(table) => {
                let words = key.words::<{ BLOCK / 8 }>(index * (BLOCK / 8) as u64);
                for (word, out) in words.iter().zip(out.as_chunks_mut::<8>().0) {
                    *out = word.to_le_bytes().map(|byte| table[usize::from(byte)]);
                }
            }
            Recipe::HalfScales(table) => {
                let words = key.words::<{ BLOCK / 16 }>(index * (BLOCK / 16) as u64);
                for (word, out) in words.iter().zip(out.as_chunks_mut::<16>().0) {
                    for (byte, out) in word.to_le_bytes().iter().zip(out.as_chunks_mut().0) {
                        *out = table[usize::from(*byte)].to_le_bytes();
                    }
                }
            }
            Recipe::Constant(value) => {
                out.as_chunks_mut().0.fill(value.to_le_bytes());
            }
        }
    }
}

impl Nibbles {
    /// Two random bytes become one byte of two codes.
    fn block(self, words: &[u64; BLOCK / 4], out: &mut [u8; BLOCK]) {
        let mut random = [0; 2 * BLOCK];
        for (word, bytes) in words.iter().zip(random.as_chunks_mut().0) {
            *bytes = word.to_le_bytes();
        }
        let (low, high) = random.split_at(BLOCK);
        for ((out, low), high) in out.iter_mut().zip(low).zip(high) {
            *out = self.code(*low) | self.code(*high) << 4;
        }
    }

    /// The code of eight random bits: a sign and seven of magnitude. A plain loop over signed bytes, because compilers
    /// turn that into vector instructions: three times the speed of a sum over an iterator.
    #[inline(always)]
    fn code(self, random: u8) -> u8 {
        let below = (random & 0x7f) as i8;
        let mut magnitude = 0;
        for threshold in self.thresholds {
            magnitude += u8::from(below >= threshold as i8);
        }
        let [positive, negative] = self.signs;
        magnitude ^ if (random as i8) < 0 { negative } else { positive }
    }
}

impl GeneratedBytes for RandomBytes {
    fn copy_to(&self, offset: usize, mut out: &mut [u8]) {
        let (mut index, skipped) = (offset / BLOCK, offset % BLOCK);
        let mut block = [0; BLOCK];
        if skipped > 0 {
            self.recipe.block(self.key, index, &mut block);
            let (head, rest) = out.split_at_mut(out.len().min(BLOCK - skipped));
            head.copy_from_slice(&block[skipped..skipped + head.len()]);
            (index, out) = (index + 1, rest);
        }
        let (whole, rest) = out.as_chunks_mut::<BLOCK>();
        for block in whole {
            self.recipe.block(self.key, index, block);
            index += 1;
        }
        if !rest.is_empty() {
            self.recipe.block(self.key, index, &mut block);
            rest.copy_from_slice(&block[..rest.len()]);
        }
    }
}

impl fmt::Debug for Recipe {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Recipe::Halves(_) => "halves",
            Recipe::Bytes(_) => "bytes",
            Recipe::Nibbles(_) => "nibbles",
            Recipe::ByteScales(_) => "byte scales",
            Recipe::HalfScales(_) => "half scales",
            Recipe::Constant(_) => "constant",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipes() -> Vec<Recipe> {
        let nibbles = Nibbles { thresholds: [8, 20, 40, 60, 80, 100, 120], signs: [0, 8] };
        vec![
            Recipe::Halves(Arc::new(std::array::from_fn(|i| i as u16))),
            Recipe::Bytes(Arc::new(std::array::from_fn(|i| i as u8))),
            Recipe::Nibbles(nibbles),
            Recipe::ByteScales(Arc::new(std::array::from_fn(|i| i as u8))),
            Recipe::HalfScales(Arc::new(std::array::from_fn(|i| i as u16))),
            Recipe::Constant(1.5),
        ]
    }

    #[test]
    fn bytes_depend_on_their_place_alone() {
        for recipe in recipes() {
            let source = RandomBytes { key: Key::new(3, "a.weight"), recipe };
            let mut whole = vec![0; 5 * BLOCK + 17];
            source.copy_to(0, &mut whole);
            for (start, len) in [(0, 1), (1, 7), (100, 300), (255, 2), (256, 256), (511, 600)] {
                let mut part = vec![0; len];
                source.copy_to(start, &mut part);
                assert_eq!(part, whole[start..start + len], "{source:?} {start} {len}");
            }
            // Backwards, byte by byte.
            for start in (0..whole.len()).rev().step_by(13) {
                let mut byte = [0];
                source.copy_to(start, &mut byte);
                assert_eq!(byte[0], whole[start]);
            }
        }
    }

    #[test]
    fn streams_differ_by_seed_and_name() {
        let bytes = |seed, name| {
            let table = Arc::new(std::array::from_fn(|i| i as u8));
            let source = RandomBytes { key: Key::new(seed, name), recipe: Recipe::Bytes(table) };
            let mut out = [0; 64];
            source.copy_to(0, &mut out);
            out
        };
        let all = [bytes(0, "a"), bytes(1, "a"), bytes(0, "b"), bytes(u64::MAX, "a")];
        for (index, first) in all.iter().enumerate() {
            assert!(all[index + 1..].iter().all(|second| first != second));
        }
    }

    /// The generator's own reference values for the seed 0 (Vigna's splitmix64.c).
    #[test]
    fn words_are_those_of_splitmix64() {
        let words = Key(0).words::<3>(0);
        assert_eq!(words, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
        assert_eq!(Key(0).words::<1>(2), [words[2]]);
    }

    #[test]
    fn nibbles_follow_their_thresholds() {
        let nibbles = Nibbles { thresholds: [16, 32, 48, 64, 80, 96, 112], signs: [8, 7] };
        let mut counts = [0u32; 16];
        let source = RandomBytes { key: Key::new(0, "n"), recipe: Recipe::Nibbles(nibbles) };
        let mut out = vec![0; 1 << 16];
        source.copy_to(0, &mut out);
        for byte in out {
            counts[usize::from(byte & 15)] += 1;
            counts[usize::from(byte >> 4)] += 1;
        }
        // Sixteen equally likely codes, 8192 of each expected.
        assert!(counts.iter().all(|count| (7700..8700).contains(count)), "{counts:?}");
    }
}
