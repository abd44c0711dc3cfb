//! Loaded code, its kernels, and launches of them.

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::sys::{
    self, CUfunction, CUfunction_attribute as FunctionAttribute, CUlaunchAttribute,
    CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig, CUmodule,
};

use crate::device::Device;
use crate::error::{Action, CudaError};
use crate::stream::Stream;

/// Buffers that a kernel receives.
pub const BINDINGS: usize = 8;

/// Code on a card.
#[derive(Debug)]
pub struct Module {
    device: Arc<Device>,
    module: CUmodule,
}

// SAFETY: a module is a handle that the driver lets any thread use.
unsafe impl Send for Module {}

/// A kernel of a module, which must be kept as long.
#[derive(Clone, Debug)]
pub struct Kernel {
    function: CUfunction,
    name: String,
}

// SAFETY: a function is a handle that the driver lets any thread use.
unsafe impl Send for Kernel {}

/// One launch: a kernel by its index, on how many workers of how many threads, with the addresses of its buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Index of the kernel.
    pub kernel: usize,
    /// Whether all workers must run at once.
    pub cooperative: bool,
    /// Whether it may begin while the launch before it ends, because its kernel waits where it must (programmatic dependent launch).
    pub overlaps: bool,
    /// Workers: blocks.
    pub workers: u32,
    /// Threads of each.
    pub threads: u32,
    /// Bytes of shared memory of each, beside what the kernel declares: at most what [`Kernel::allow_shared_memory`] gave.
    pub shared_bytes: u32,
    /// Addresses of the buffers, in the order of the kernel's signature.
    pub buffers: [u64; BINDINGS],
}

impl Module {
    /// Loads machine code.
    ///
    /// # Errors
    /// [`CudaError`] if it is not for this card or this driver.
    pub fn load(device: &Arc<Device>, code: &[u8]) -> Result<Self, CudaError> {
        device.bind()?;
        // SAFETY: the code was made by the compiler for this kind of card; the driver checks its header.
        let module = unsafe { result::module::load_data(code.as_ptr().cast::<c_void>()) }
            .to(format!("load kernels onto {}", device.name()))?;
        Ok(Module { device: device.clone(), module })
    }

    /// A kernel by name.
    ///
    /// # Errors
    /// [`CudaError`] if there is none.
    pub fn kernel(&self, name: &str) -> Result<Kernel, CudaError> {
        self.device.bind()?;
        let action = format!("find kernel {name}");
        let c_name = CString::new(name).map_err(|error| CudaError::Driver {
            action: action.clone(),
            cause: error.to_string(),
        })?;
        // SAFETY: the module lives.
        let function = unsafe { result::module::get_function(self.module, c_name) }.to(action)?;
        Ok(Kernel { function, name: name.to_owned() })
    }

    /// Workers of so many threads and bytes of shared memory beside the declared that run at once, of any of these kernels; 0 if one
    /// does not fit at all.
    ///
    /// # Errors
    /// [`CudaError`] if the driver does not say.
    pub fn most_workers(
        &self,
        kernels: &[&Kernel],
        threads: u32,
        shared_bytes: u32,
    ) -> Result<u32, CudaError> {
        self.device.bind()?;
        let mut most = u32::MAX;
        for kernel in kernels {
            // SAFETY: the function lives.
            let each = unsafe {
                result::occupancy::max_active_block_per_multiprocessor(
                    kernel.function,
                    threads as i32,
                    shared_bytes as usize,
                )
            }
            .to(format!("ask how many workers of {} run at once", kernel.name))?;
            most = most.min(each.max(0) as u32 * self.device.multiprocessors());
        }
        Ok(most)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if !self.device.is_lost() && self.device.bind().is_ok() {
            // SAFETY: nobody else unloads it.
            let _ = unsafe { result::module::unload(self.module) };
        }
    }
}

impl Kernel {
    /// Its name in the text.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Registers of a thread, bytes of a thread's local memory (spills), and static shared bytes of a worker.
    ///
    /// # Errors
    /// [`CudaError`] if the driver does not say.
    pub fn resources(&self) -> Result<(u32, u32, u32), CudaError> {
        let attribute = |attribute| {
            // SAFETY: the function lives.
            unsafe { result::function::get_function_attribute(self.function, attribute) }
                .map(|value| value.max(0) as u32)
                .to(format!("read what {} takes", self.name))
        };
        Ok((
            attribute(FunctionAttribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            attribute(FunctionAttribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            attribute(FunctionAttribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
        ))
    }

    /// Lets launches have `wanted` bytes of shared memory beside what the kernel declares, or as many as a worker can have on this
    /// card. Returns how many.
    ///
    /// # Errors
    /// [`CudaError`] if the driver refuses.
    pub fn allow_shared_memory(&self, device: &Device, wanted: u32) -> Result<u32, CudaError> {
        let (_, _, declared) = self.resources()?;
        let bytes = wanted.min(device.worker_memory().saturating_sub(declared));
        let attribute = FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function lives.
        unsafe { result::function::set_function_attribute(self.function, attribute, bytes as i32) }
            .to(format!("give {} {bytes} bytes of shared memory", self.name))?;
        Ok(bytes)
    }

    /// Puts a launch into a stream.
    pub(crate) fn launch(&self, stream: &Stream, launch: &Launch) -> Result<(), CudaError> {
        let mut buffers = launch.buffers;
        let mut parameters: [*mut c_void; BINDINGS] =
            std::array::from_fn(|index| (&raw mut buffers[index]).cast::<c_void>());
        let (grid, block) = ((launch.workers, 1, 1), (launch.threads, 1, 1));
        // Cards before Hopper have no such launches, and their kernels do not wait.
        if launch.overlaps && stream.device.compute_capability().0 >= 9 {
            return self.launch_overlapping(stream, launch, &mut parameters);
        }
        let launched = match launch.cooperative {
            // SAFETY: the kernel takes eight pointers, and the driver copies them before it returns. That they lead to
            // buffers of the sizes that the kernel expects is what the compiler of the program sees to.
            true => unsafe {
                result::launch_cooperative_kernel(
                    self.function,
                    grid,
                    block,
                    launch.shared_bytes,
                    stream.stream,
                    &mut parameters,
                )
            },
            // SAFETY: as above.
            false => unsafe {
                result::launch_kernel(
                    self.function,
                    grid,
                    block,
                    launch.shared_bytes,
                    stream.stream,
                    &mut parameters,
                )
            },
        };
        launched.to(format!("launch {}", self.name))
    }

    /// Puts a launch into a stream that may begin before the one before it has ended.
    fn launch_overlapping(
        &self,
        stream: &Stream,
        launch: &Launch,
        parameters: &mut [*mut c_void; BINDINGS],
    ) -> Result<(), CudaError> {
        let mut attribute = CUlaunchAttribute {
            id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: Default::default(),
            value: CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = CUlaunchConfig {
            gridDimX: launch.workers,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: launch.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: launch.shared_bytes,
            hStream: stream.stream,
            attrs: &raw mut attribute,
            numAttrs: 1,
        };
        // SAFETY: as for the other launches; the driver copies the configuration, too.
        let result = unsafe {
            sys::cuLaunchKernelEx(&config, self.function, parameters.as_mut_ptr(), ptr::null_mut())
        };
        result.result().to(format!("launch {}", self.name))
    }
}
