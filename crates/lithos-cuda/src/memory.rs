//! Memory of a card, and memory of the host that a card can copy from and to by itself.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::sys::CUdeviceptr;

use crate::device::Device;
use crate::error::{Action, CudaError};
use crate::stream::Stream;

/// Memory that the driver and other programs take while this one runs.
const RESERVE: u64 = 256 << 20;

/// Some memory of a card.
#[derive(Debug)]
pub struct DeviceBuffer {
    device: Arc<Device>,
    pointer: CUdeviceptr,
    bytes: usize,
}

impl DeviceBuffer {
    /// Memory whose content is anything. Never empty, so that every buffer has an address.
    ///
    /// # Errors
    /// [`CudaError`] if there is not enough.
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<Self, CudaError> {
        device.bind()?;
        let bytes = bytes.max(16);
        // SAFETY: the result is owned by this alone.
        let pointer = unsafe { result::malloc_sync(bytes) }.to(format!(
            "take {} MB of memory of {}",
            bytes >> 20,
            device.name()
        ))?;
        Ok(DeviceBuffer { device: device.clone(), pointer, bytes })
    }

    /// Memory of one byte again and again.
    ///
    /// # Errors
    /// As [`DeviceBuffer::new`].
    pub fn filled(device: &Arc<Device>, bytes: usize, byte: u8) -> Result<Self, CudaError> {
        let buffer = DeviceBuffer::new(device, bytes)?;
        buffer.fill(0, buffer.bytes, byte)?;
        Ok(buffer)
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self.pointer
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Fills a part, and waits for it.
    ///
    /// # Errors
    /// [`CudaError`] if the part is not within the buffer, or the driver refuses.
    pub fn fill(&self, offset: usize, bytes: usize, byte: u8) -> Result<(), CudaError> {
        self.device.bind()?;
        let at = self.part(offset, bytes)?;
        // SAFETY: the part is within the buffer.
        unsafe { result::memset_d8_sync(at, byte, bytes) }.to("fill memory of the card")?;
        result::ctx::synchronize().to("fill memory of the card")
    }

    /// Copies bytes in, and waits for it.
    ///
    /// # Errors
    /// As [`DeviceBuffer::fill`].
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), CudaError> {
        self.device.bind()?;
        let at = self.part(offset, bytes.len())?;
        // SAFETY: the part is within the buffer, and the call waits.
        unsafe { result::memcpy_htod_sync(at, bytes) }.to("copy to the card")?;
        // The call may return when the driver has the bytes, not yet the card; other streams do not wait for it.
        result::ctx::synchronize().to("copy to the card")
    }

    /// Copies bytes out, and waits for it.
    ///
    /// # Errors
    /// As [`DeviceBuffer::fill`].
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), CudaError> {
        self.device.bind()?;
        let at = self.part(offset, out.len())?;
        // SAFETY: the part is within the buffer, and the call waits.
        unsafe { result::memcpy_dtoh_sync(out, at) }.to("copy from the card")
    }

    /// Fills a part in the order of a stream.
    ///
    /// # Errors
    /// As [`DeviceBuffer::fill`].
    pub fn fill_in(
        &self,
        stream: &Stream,
        offset: usize,
        bytes: usize,
        byte: u8,
    ) -> Result<(), CudaError> {
        self.device.bind()?;
        let at = self.part(offset, bytes)?;
        // SAFETY: the part is within the buffer.
        unsafe { result::memset_d8_async(at, byte, bytes, stream.stream) }
            .to("fill memory of the card")
    }

    /// Copies from pinned memory in the order of a stream. The memory must stay as it is until the stream has come there.
    ///
    /// # Errors
    /// As [`DeviceBuffer::fill`].
    pub(crate) fn write_in(
        &self,
        stream: &Stream,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), CudaError> {
        let at = self.part(offset, bytes.len())?;
        // SAFETY: the part is within the buffer; that the source stays is what callers in this crate see to.
        unsafe { result::memcpy_htod_async(at, bytes, stream.stream) }.to("copy to the card")
    }

    /// Address of a part that is within the buffer.
    fn part(&self, offset: usize, bytes: usize) -> Result<CUdeviceptr, CudaError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(self.pointer + offset as u64),
            _ => Err(CudaError::Driver {
                action: format!("reach {bytes} bytes at {offset} of a buffer"),
                cause: format!("it has {}", self.bytes),
            }),
        }
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if !self.device.is_lost() && self.device.bind().is_ok() {
            // SAFETY: nobody else frees it.
            let _ = unsafe { result::free_sync(self.pointer) };
        }
    }
}

/// Memory of the host that does not move, so that a card copies from and to it while the host does something else.
#[derive(Debug)]
pub struct PinnedBuffer {
    device: Arc<Device>,
    pointer: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is owned by this alone.
unsafe impl Send for PinnedBuffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for PinnedBuffer {}

impl PinnedBuffer {
    /// Zeroed memory.
    ///
    /// # Errors
    /// [`CudaError`] if there is not enough.
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<Self, CudaError> {
        device.bind()?;
        let bytes = bytes.max(16);
        // SAFETY: the result is owned by this alone.
        let pointer: *mut c_void = unsafe { result::malloc_host(bytes, 0) }
            .to(format!("pin {} MB of memory", bytes.div_ceil(1 << 20)))?;
        let pointer = NonNull::new(pointer.cast::<u8>()).ok_or_else(|| CudaError::Driver {
            action: "pin memory".to_owned(),
            cause: "the driver returned none".to_owned(),
        })?;
        // SAFETY: the driver returned so many bytes.
        unsafe { pointer.as_ptr().write_bytes(0, bytes) };
        Ok(PinnedBuffer { device: device.clone(), pointer, bytes })
    }

    /// The bytes. No copy from or to them may be under way.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: initialised when made, and owned by this.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.bytes) }
    }

    /// The bytes, to write. No copy from or to them may be under way.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.bytes) }
    }

    /// The bytes as numbers. No copy to them may be under way.
    pub fn floats(&self) -> &[f32] {
        // SAFETY: as above; the driver aligns to whole pages, and any bits are a number.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr().cast::<f32>(), self.bytes / 4) }
    }

    /// Copies the first bytes to a buffer in the order of a stream, which must have come there before they change.
    ///
    /// # Errors
    /// [`CudaError`] if they do not fit, or the driver refuses.
    pub fn send(
        &self,
        stream: &Stream,
        bytes: usize,
        to: &DeviceBuffer,
        offset: usize,
    ) -> Result<(), CudaError> {
        self.device.bind()?;
        let bytes = bytes.min(self.bytes);
        to.write_in(stream, offset, &self.bytes()[..bytes])
    }

    /// Copies a part of a buffer to the bytes from `at` on, in the order of a stream, which must have come there before they
    /// are read.
    ///
    /// # Errors
    /// [`CudaError`] if the part is within neither, or the driver refuses.
    pub fn receive(
        &mut self,
        stream: &Stream,
        at: usize,
        from: &DeviceBuffer,
        offset: usize,
        bytes: usize,
    ) -> Result<(), CudaError> {
        self.device.bind()?;
        let source = from.part(offset, bytes)?;
        let room = self.bytes().len();
        let Some(out) = self.bytes_mut().get_mut(at..at + bytes) else {
            return Err(CudaError::Driver {
                action: format!("receive {bytes} bytes"),
                cause: format!("there is room for {room}"),
            });
        };
        // SAFETY: both parts are within their buffers; that nobody reads too early is the caller's to see to.
        unsafe { result::memcpy_dtoh_async(out, source, stream.stream) }.to("copy from the card")
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        if !self.device.is_lost() && self.device.bind().is_ok() {
            // SAFETY: nobody else frees it.
            let _ = unsafe { result::free_host(self.pointer.as_ptr().cast()) };
        }
    }
}

/// Checks that a card has room for what will be taken, before anything is; `parts` are names and bytes.
///
/// # Errors
/// [`CudaError::Memory`] with the numbers.
pub fn check_room(
    device: &Device,
    parts: &[(&str, u64)],
    advice: &'static str,
) -> Result<(), CudaError> {
    let (free, _) = device.memory()?;
    fits(device.name(), free, parts, advice)
}

fn fits(
    card: &str,
    free: u64,
    parts: &[(&str, u64)],
    advice: &'static str,
) -> Result<(), CudaError> {
    let needed = parts.iter().map(|(_, bytes)| bytes).sum::<u64>() + RESERVE;
    if needed <= free {
        return Ok(());
    }
    let megabytes = |bytes: u64| bytes.div_ceil(1 << 20);
    let mut listed: Vec<String> =
        parts.iter().map(|(name, bytes)| format!("{name} {}", megabytes(*bytes))).collect();
    listed.push(format!("reserve {}", megabytes(RESERVE)));
    Err(CudaError::Memory {
        card: card.to_owned(),
        free: free >> 20,
        needed: megabytes(needed),
        parts: listed.join(", "),
        advice,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_the_numbers() {
        let parts = [("weights", 17_600 << 20), ("keys and values", 100 << 20)];
        assert!(fits("card", (17_700 << 20) + RESERVE, &parts, "").is_ok());
        let error = fits("H200", (17_700 << 20) + RESERVE - 1, &parts, "lower the context");
        assert_eq!(
            error.expect_err("too much").to_string(),
            "H200 has 17955 MB of memory free, and 17956 MB are needed (weights 17600, keys and values 100, reserve 256): lower the context"
        );
    }
}
