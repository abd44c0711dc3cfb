//! Streams of work, and events between them.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::result::{event, stream};
use cudarc::driver::sys::{CUevent, CUevent_flags, CUresult, CUstream};
use cudarc::driver::{DriverError, sys};

use crate::device::Device;
use crate::error::{Action, CudaError};

/// How long a pass may take before it counts as one that hangs.
pub const PASS_LIMIT: Duration = Duration::from_secs(5);

/// How long a wait asks the card without a pause. A pass takes milliseconds, and a sleep costs a good part of one.
const AWAKE: Duration = Duration::from_millis(20);

/// Work that runs in order.
#[derive(Debug)]
pub struct Stream {
    pub(crate) device: Arc<Device>,
    pub(crate) stream: CUstream,
}

// SAFETY: a stream is a handle that the driver lets any thread use.
unsafe impl Send for Stream {}

impl Stream {
    /// A stream of its own.
    ///
    /// # Errors
    /// [`CudaError`] if the driver refuses.
    pub fn new(device: &Arc<Device>) -> Result<Self, CudaError> {
        device.bind()?;
        let stream =
            stream::create(stream::StreamKind::NonBlocking).to("make a stream on the card")?;
        Ok(Stream { device: device.clone(), stream })
    }

    /// The card.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Waits for all work.
    ///
    /// # Errors
    /// [`CudaError::Hang`] past the limit, after which the card is lost to this process; [`CudaError`] if the work failed.
    pub fn wait(&self, limit: Duration) -> Result<(), CudaError> {
        // SAFETY: the stream lives as long as this.
        wait_until(&self.device, limit, || unsafe { sys::cuStreamQuery(self.stream) })
    }
}

/// Asks until the answer is that all is done.
fn wait_until(
    device: &Device,
    limit: Duration,
    query: impl Fn() -> CUresult,
) -> Result<(), CudaError> {
    device.bind()?;
    let started = Instant::now();
    loop {
        match query() {
            CUresult::CUDA_ERROR_NOT_READY => {}
            CUresult::CUDA_SUCCESS => return Ok(()),
            error => return Err(DriverError(error)).to("run the kernels"),
        }
        let waited = started.elapsed();
        if waited > limit {
            device.lose();
            return Err(CudaError::Hang { seconds: limit.as_secs() });
        }
        match waited > AWAKE {
            true => thread::sleep(Duration::from_micros(50)),
            false => std::hint::spin_loop(),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.device.is_lost() && self.device.bind().is_ok() {
            // SAFETY: nobody else destroys it.
            let _ = unsafe { stream::destroy(self.stream) };
        }
    }
}

/// A moment in a stream.
#[derive(Debug)]
pub struct Event {
    device: Arc<Device>,
    pub(crate) event: CUevent,
}

// SAFETY: an event is a handle that the driver lets any thread use.
unsafe impl Send for Event {}

impl Event {
    /// An event that keeps time.
    ///
    /// # Errors
    /// [`CudaError`] if the driver refuses.
    pub fn new(device: &Arc<Device>) -> Result<Self, CudaError> {
        device.bind()?;
        let event = event::create(CUevent_flags::CU_EVENT_DEFAULT).to("make an event")?;
        Ok(Event { device: device.clone(), event })
    }

    /// Sets it to the moment at which the stream has done everything so far.
    ///
    /// # Errors
    /// [`CudaError`] if the driver refuses.
    pub fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        self.device.bind()?;
        // SAFETY: both live.
        unsafe { event::record(self.event, stream.stream) }.to("record an event")
    }

    /// Waits until the stream has come to the moment that was recorded last.
    ///
    /// # Errors
    /// As [`Stream::wait`].
    pub fn wait(&self, limit: Duration) -> Result<(), CudaError> {
        // SAFETY: the event lives as long as this.
        wait_until(&self.device, limit, || unsafe { sys::cuEventQuery(self.event) })
    }

    /// Time from an earlier event, of work that is done.
    ///
    /// # Errors
    /// [`CudaError`] if either has not happened.
    pub fn since(&self, earlier: &Event) -> Result<Duration, CudaError> {
        self.device.bind()?;
        // SAFETY: both live.
        let milliseconds =
            unsafe { event::elapsed(earlier.event, self.event) }.to("read the time")?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if !self.device.is_lost() && self.device.bind().is_ok() {
            // SAFETY: nobody else destroys it.
            let _ = unsafe { event::destroy(self.event) };
        }
    }
}
