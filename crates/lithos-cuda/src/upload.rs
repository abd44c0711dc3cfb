//! Filling memory of a card from many threads, each of which makes a piece while its last one is copied.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::device::Device;
use crate::error::CudaError;
use crate::memory::{DeviceBuffer, PinnedBuffer};
use crate::stream::Stream;

/// How long a copy of a piece may take.
const COPY_LIMIT: Duration = Duration::from_secs(5);

/// Where a part of a staged piece goes: from `at` of the staging memory, so many bytes, to `to` of the card's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staged {
    /// Offset in the staging memory.
    pub at: usize,
    /// Bytes.
    pub bytes: usize,
    /// Offset in the buffer.
    pub to: usize,
}

/// Writes a piece to staging memory, and says where its parts go.
pub type MakePiece<'a> = dyn Fn(usize, &mut [u8]) -> Result<Vec<Staged>, CudaError> + Sync + 'a;

/// Fills a buffer. `make` writes piece `index` to staging memory of `staging` bytes, which holds anything before, and says where
/// its parts go. `progress` hears, on this thread, how many bytes of all pieces were sent.
///
/// # Errors
/// The first error of `make` or of the driver.
pub fn upload(
    buffer: &DeviceBuffer,
    device: &Arc<Device>,
    pieces: usize,
    staging: usize,
    threads: usize,
    make: &MakePiece<'_>,
    progress: &mut dyn FnMut(usize),
) -> Result<(), CudaError> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let (sent, heard) = mpsc::channel();
    let work = |sent: mpsc::Sender<usize>| -> Result<(), CudaError> {
        let streams = [Stream::new(device)?, Stream::new(device)?];
        let mut memories =
            [PinnedBuffer::new(device, staging)?, PinnedBuffer::new(device, staging)?];
        for turn in 0.. {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= pieces || failed.load(Ordering::Relaxed) {
                break;
            }
            let (stream, memory) = (&streams[turn % 2], &mut memories[turn % 2]);
            // The piece before the last one was sent from this memory.
            stream.wait(COPY_LIMIT)?;
            let mut total = 0;
            for part in make(index, memory.bytes_mut())? {
                let bytes = memory.bytes().get(part.at..part.at + part.bytes);
                let bytes = bytes.ok_or_else(|| {
                    CudaError::Source(format!("piece {index} is larger than its memory"))
                })?;
                buffer.write_in(stream, part.to, bytes)?;
                total += part.bytes;
            }
            // Nobody listens any more only if the caller is gone.
            let _ = sent.send(total);
        }
        streams.iter().try_for_each(|stream| stream.wait(COPY_LIMIT))
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.clamp(1, pieces.max(1)))
            .map(|_| {
                let sent = sent.clone();
                scope.spawn(|| {
                    let result = work(sent);
                    if result.is_err() {
                        failed.store(true, Ordering::Relaxed);
                    }
                    result
                })
            })
            .collect();
        drop(sent);
        let mut done = 0;
        for bytes in heard {
            done += bytes;
            progress(done);
        }
        let panicked = || CudaError::Source("a thread that packs weights panicked".to_owned());
        let mut result = Ok(());
        for worker in workers {
            result = result.and(worker.join().unwrap_or_else(|_| Err(panicked())));
        }
        result
    })
}
