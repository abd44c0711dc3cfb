//! A card.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys::{CUcontext, CUdevice, CUdevice_attribute as Attribute, CUresult};
use cudarc::driver::{DriverError, result, sys};

use crate::error::{Action, CudaError, describe};

/// What the driver must support: 1000 times the major number of CUDA, and ten times the minor one.
const LEAST_DRIVER: i32 = 12_000;

/// An open card. Buffers, streams and modules keep it open.
#[derive(Debug)]
pub struct Device {
    device: CUdevice,
    context: CUcontext,
    name: String,
    multiprocessors: u32,
    worker_memory: u32,
    compute_capability: (u32, u32),
    driver: i32,
    lost: AtomicBool,
}

// SAFETY: a context is a handle that the driver lets any thread use.
unsafe impl Send for Device {}
// SAFETY: as above; the driver locks what it must.
unsafe impl Sync for Device {}

impl Device {
    /// Opens a card by its number among those that the driver shows.
    ///
    /// # Errors
    /// [`CudaError`] if there is no driver, an old one, or no such card.
    pub fn open(ordinal: usize) -> Result<Arc<Device>, CudaError> {
        // The binding panics where the library is missing, so it is looked for first.
        // SAFETY: loading the driver's library runs nothing but its initialisers.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::NoDriver);
        }
        let driver = driver_version()?;
        check_driver(driver)?;
        if let Err(error) = result::init() {
            return Err(CudaError::NoCard(describe(error)));
        }
        let count = result::device::get_count().to("count cards")?;
        if ordinal as i64 >= i64::from(count) {
            let found = format!("number {ordinal} was asked for, and there are {count}");
            return Err(CudaError::NoCard(found));
        }
        let device = result::device::get(ordinal as i32).to("find the card")?;
        let name = result::device::get_name(device).to("read the card's name")?;
        let attribute = |attribute| {
            // SAFETY: the device was returned by the driver.
            unsafe { result::device::get_attribute(device, attribute) }
                .map(|value| value as u32)
                .to(format!("read what {name} can do"))
        };
        let multiprocessors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let worker_memory =
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let compute_capability = (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        if attribute(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? == 0 {
            let cause = "it has no cooperative launches".to_owned();
            return Err(CudaError::Unsupported { card: name, cause });
        }
        // SAFETY: the device was returned by the driver.
        let context = unsafe { result::primary_ctx::retain(device) }.to(format!("open {name}"))?;
        let lost = AtomicBool::new(false);
        let device = Device {
            device,
            context,
            name,
            multiprocessors,
            worker_memory,
            compute_capability,
            driver,
            lost,
        };
        device.bind()?;
        Ok(Arc::new(device))
    }

    /// The card's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Streaming multiprocessors.
    pub fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    /// Bytes of shared memory that a worker can have at most, declared and given at the launch together.
    pub fn worker_memory(&self) -> u32 {
        self.worker_memory
    }

    /// Compute capability, major and minor.
    pub fn compute_capability(&self) -> (u32, u32) {
        self.compute_capability
    }

    /// What the driver supports, as the driver counts: 13000 is CUDA 13.0.
    pub fn driver_version(&self) -> i32 {
        self.driver
    }

    /// Bytes of memory that are free, and in all.
    ///
    /// # Errors
    /// [`CudaError`] if the driver does not say.
    pub fn memory(&self) -> Result<(u64, u64), CudaError> {
        self.bind()?;
        let (free, total) = result::mem_get_info().to("read how much memory is free")?;
        Ok((free as u64, total as u64))
    }

    /// One line: name, multiprocessors, memory, driver.
    pub fn describe(&self) -> String {
        let total = self.memory().map_or(0, |(_, total)| total);
        format!(
            "{} ({} multiprocessors, {:.1} GB, driver for CUDA {})",
            self.name,
            self.multiprocessors,
            total as f64 / 1e9,
            version_text(self.driver)
        )
    }

    /// Makes this the card that the calling thread's calls are about.
    pub(crate) fn bind(&self) -> Result<(), CudaError> {
        // SAFETY: the context is held until this is dropped.
        unsafe { result::ctx::set_current(self.context) }.to(format!("use {}", self.name))
    }

    /// Notes that a kernel will never end: whatever waits for the card would wait for ever.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// Whether the card is past use by this process.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if !self.is_lost() {
            // SAFETY: the context was retained when this was made, once.
            let _ = unsafe { result::primary_ctx::release(self.device) };
        }
    }
}

fn driver_version() -> Result<i32, CudaError> {
    let mut version = 0;
    // SAFETY: writes one integer.
    match unsafe { sys::cuDriverGetVersion(&raw mut version) } {
        CUresult::CUDA_SUCCESS => Ok(version),
        error => Err(CudaError::NoCard(describe(DriverError(error)))),
    }
}

fn check_driver(found: i32) -> Result<(), CudaError> {
    if found >= LEAST_DRIVER {
        return Ok(());
    }
    Err(CudaError::OldDriver { found: version_text(found), needed: version_text(LEAST_DRIVER) })
}

fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_driver_is_refused_with_both_versions() {
        assert!(check_driver(13_000).is_ok() && check_driver(12_000).is_ok());
        let text = check_driver(11_080).expect_err("too old").to_string();
        assert_eq!(
            text,
            "the NVIDIA driver supports CUDA 11.8, and 12.0 is needed: update the driver"
        );
    }

    #[test]
    fn a_machine_without_a_driver_says_so() {
        match Device::open(0) {
            Err(error @ CudaError::NoDriver) => {
                let text = error.to_string();
                assert!(text.contains("no NVIDIA driver") && !text.contains('\n'), "{text}");
            }
            // On a machine with a card there is one to open, and none with this number.
            Ok(_) => assert!(matches!(Device::open(4096), Err(CudaError::NoCard(_)))),
            Err(error) => println!("skipped: {error}"),
        }
    }
}
