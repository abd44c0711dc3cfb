//! How fast a card reads its memory: the bound of decoding, which reads every weight for each pass.

use std::sync::Arc;
use std::time::Duration;

use crate::compile::Compiler;
use crate::device::Device;
use crate::error::CudaError;
use crate::launch::{BINDINGS, Launch, Module};
use crate::memory::DeviceBuffer;
use crate::replay::Replay;
use crate::stream::{Event, Stream};

/// Threads of a block.
const THREADS: u32 = 512;

/// Blocks of a multiprocessor: two to four read fastest on a Hopper card.
const BLOCKS: u32 = 4;

/// The card's caches hold a small part of it.
const LARGEST: u64 = 8 << 30;

/// How long one reading may take.
const LIMIT: Duration = Duration::from_secs(5);

/// Sums all words with loads of 16 bytes, four under way in each thread.
const TEXT: &str = r#"
extern "C" __global__ void read_stream(const uint4* words, unsigned long long* count, unsigned* out,
                                       void*, void*, void*, void*, void*) {
    size_t total = *count, stride = (size_t)gridDim.x * blockDim.x;
    size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sum = 0;
    for (; at + 3 * stride < total; at += 4 * stride) {
        uint4 a = __ldcs(words + at), b = __ldcs(words + at + stride);
        uint4 c = __ldcs(words + at + 2 * stride), d = __ldcs(words + at + 3 * stride);
        sum += (a.x ^ a.y ^ a.z ^ a.w) + (b.x ^ b.y ^ b.z ^ b.w) + (c.x ^ c.y ^ c.z ^ c.w) + (d.x ^ d.y ^ d.z ^ d.w);
    }
    for (; at < total; at += stride) {
        uint4 a = __ldcs(words + at);
        sum += a.x ^ a.y ^ a.z ^ a.w;
    }
    if (sum == 0x12345678u) *out = sum;
}
"#;

/// Memory of a card to read, and the kernel that reads it.
#[derive(Debug)]
pub struct ReadStream {
    stream: Stream,
    events: [Event; 2],
    replay: Replay,
    bytes: u64,
    // What the launch reads from; kept as long.
    _memory: [DeviceBuffer; 3],
    _module: Module,
}

impl ReadStream {
    /// Takes 8 GiB, or half of what is free where that is less.
    ///
    /// # Errors
    /// [`CudaError`] if there is no memory or no compiler.
    pub fn new(device: &Arc<Device>, compiler: &Compiler) -> Result<Self, CudaError> {
        let (free, _) = device.memory()?;
        let bytes = LARGEST.min(free / 2) & !0xff;
        let code = compiler.compile_for(device, THREADS, "the read stream", TEXT)?;
        let module = Module::load(device, &code)?;
        let kernel = module.kernel("read_stream")?;
        let words = DeviceBuffer::filled(device, bytes as usize, 1)?;
        let count = DeviceBuffer::new(device, 8)?;
        count.write(0, &(bytes / 16).to_le_bytes())?;
        let out = DeviceBuffer::filled(device, 16, 0)?;
        let mut buffers = [0; BINDINGS];
        buffers[..3].copy_from_slice(&[words.address(), count.address(), out.address()]);
        let launch = Launch {
            kernel: 0,
            cooperative: false,
            overlaps: false,
            workers: device.multiprocessors() * BLOCKS,
            threads: THREADS,
            shared_bytes: 0,
            buffers,
        };
        let stream = Stream::new(device)?;
        Ok(ReadStream {
            replay: Replay::new(&stream, vec![kernel], vec![launch])?,
            events: [Event::new(device)?, Event::new(device)?],
            stream,
            bytes,
            _memory: [words, count, out],
            _module: module,
        })
    }

    /// Bytes of the memory.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads the memory once; returns bytes per second.
    ///
    /// # Errors
    /// [`CudaError`] if the card fails.
    pub fn measure(&self) -> Result<f64, CudaError> {
        self.events[0].record(&self.stream)?;
        self.replay.run(&self.stream)?;
        self.events[1].record(&self.stream)?;
        self.stream.wait(LIMIT)?;
        let time = self.events[1].since(&self.events[0])?;
        Ok(self.bytes as f64 / time.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::compile_options;

    #[test]
    fn its_text_compiles_where_the_compiler_is() {
        match Compiler::with_cache(13_000, None) {
            Ok(compiler) => {
                let code = compiler.compile("it", TEXT, &compile_options((9, 0), THREADS));
                assert!(code.expect("compiles").len() > 100);
            }
            Err(error) => println!("skipped: {error}"),
        }
    }
}
