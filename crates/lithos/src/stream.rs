//! How fast this machine reads memory: the bound of decoding, which reads every weight for each token.

use std::hint::black_box;
use std::thread;
use std::time::Instant;

use lithos_compiler::layout::AlignedBytes;
use lithos_cpu::linear::large_page_region;
use lithos_engine::{BackendKind, Engine};

use crate::memory;
use crate::statistics::Spread;

/// Much larger than the caches of common processors.
const LARGEST: usize = 1 << 30;

/// Still larger than most last-level caches.
const SMALLEST: usize = 128 << 20;

/// Words that are summed side by side, so that no sum waits for the one before: 128 bytes.
const LANES: usize = 16;

/// What decoding is compared with.
pub enum Stream {
    /// Reads of this machine's memory.
    Cores(ReadStream),
    /// Reads of the card's memory.
    Card,
}

impl Stream {
    /// The stream of the memory that a backend reads, by as many threads where it is this machine's.
    pub fn of(backend: BackendKind, threads: usize) -> Self {
        match backend {
            BackendKind::Cuda => Stream::Card,
            _ => Stream::Cores(ReadStream::new(threads)),
        }
    }

    /// Bytes of the buffer that is read, where it is this machine's.
    pub fn bytes(&self) -> Option<usize> {
        match self {
            Stream::Cores(stream) => Some(stream.bytes()),
            Stream::Card => None,
        }
    }

    /// Bytes per second.
    ///
    /// # Errors
    /// If a card fails.
    pub fn measure(&self, engine: &mut Engine) -> anyhow::Result<f64> {
        Ok(match self {
            Stream::Cores(stream) => stream.measure(),
            Stream::Card => {
                Spread::of(engine.read_stream()?).map_or(f64::NAN, |spread| spread.median)
            }
        })
    }
}

/// A buffer to read, and how many threads read it. It lies in pages as large as those of the weights: small ones cost a tenth
/// of the speed or more, and the weights would be held against a bound that is none.
pub struct ReadStream {
    memory: AlignedBytes,
    threads: usize,
}

impl ReadStream {
    /// A buffer of a gigabyte, or of a quarter of the available memory where that is less. Writing it brings its pages in.
    pub fn new(threads: usize) -> Self {
        let quarter = memory::available().map_or(LARGEST, |bytes| bytes as usize / 4);
        let bytes = quarter.clamp(SMALLEST, LARGEST);
        Self::of_words(bytes / 8, |index| index as u64, threads)
    }

    /// A buffer of so many words.
    fn of_words(count: usize, word: impl Fn(usize) -> u64, threads: usize) -> Self {
        let bytes = count * size_of::<u64>();
        let mut memory = large_page_region(bytes).take(bytes);
        for (index, place) in bytemuck::cast_slice_mut(&mut memory).iter_mut().enumerate() {
            *place = word(index);
        }
        ReadStream { memory, threads: threads.max(1) }
    }

    /// Bytes of the buffer.
    pub fn bytes(&self) -> usize {
        self.memory.len()
    }

    /// Reads the buffer once, each thread its part from beginning to end; returns bytes per second.
    pub fn measure(&self) -> f64 {
        let words: &[u64] = bytemuck::cast_slice(&self.memory);
        let part = words.len().div_ceil(self.threads);
        let started = Instant::now();
        let total: u64 = thread::scope(|scope| {
            let read = |part| scope.spawn(move || sum(part));
            let readers: Vec<_> = words.chunks(part).map(read).collect();
            readers.into_iter().filter_map(|reader| reader.join().ok()).fold(0, u64::wrapping_add)
        });
        black_box(total);
        self.bytes() as f64 / started.elapsed().as_secs_f64()
    }
}

fn sum(words: &[u64]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { sum_avx2(words) };
    }
    sum_lanes(words)
}

/// The same sums, in registers of 32 bytes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(words: &[u64]) -> u64 {
    sum_lanes(words)
}

#[inline(always)]
fn sum_lanes(words: &[u64]) -> u64 {
    let mut sums = [0u64; LANES];
    let chunks = words.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (sum, word) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().chain(rest).fold(0, |total, word| total.wrapping_add(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read() {
        let words: Vec<u64> = (0..1003u64).map(|word| word * word * 977).collect();
        assert_eq!(sum(&words), words.iter().sum::<u64>());
        let stream = ReadStream::of_words(words.len(), |index| words[index], 3);
        assert_eq!(stream.bytes(), 8024);
        assert!(stream.measure() > 0.0);
    }
}
