//! What can go wrong with a card, one line each.

use cudarc::driver::DriverError;
use thiserror::Error;

/// Why something cannot be run on a card.
#[derive(Debug, Error)]
pub enum CudaError {
    /// The driver's library cannot be loaded.
    #[error(
        "no NVIDIA driver on this machine (libcuda.so.1 is not found): install the driver, or choose `--backend cpu`"
    )]
    NoDriver,
    /// The driver is there and has no card.
    #[error("the NVIDIA driver finds no card: {0}")]
    NoCard(String),
    /// The driver is older than what this program calls.
    #[error("the NVIDIA driver supports CUDA {found}, and {needed} is needed: update the driver")]
    OldDriver {
        /// What the driver supports.
        found: String,
        /// What is needed.
        needed: String,
    },
    /// The card lacks something.
    #[error("{card} cannot run this: {cause}")]
    Unsupported {
        /// The card's name.
        card: String,
        /// What it lacks.
        cause: String,
    },
    /// A call of the driver failed.
    #[error("cannot {action}: {cause}")]
    Driver {
        /// What was being done.
        action: String,
        /// The driver's name and text of the error.
        cause: String,
    },
    /// The runtime compiler is not installed, or not where it is looked for.
    #[error(
        "NVIDIA's runtime compiler libnvrtc is not found: install the package cuda-nvrtc of your CUDA version (on Ubuntu cuda-nvrtc-13-0) or the Python package nvidia-cuda-nvrtc, and name its folder in LITHOS_NVRTC (searched: {searched})"
    )]
    NoCompiler {
        /// Where it was looked for.
        searched: String,
    },
    /// The runtime compiler lacks a function.
    #[error("libnvrtc at {path} cannot be used: {cause}")]
    Compiler {
        /// The library.
        path: String,
        /// Why.
        cause: String,
    },
    /// A text that the compiler refuses.
    #[error("the kernels of {name} do not compile ({place}): {log}")]
    Compile {
        /// What was compiled.
        name: String,
        /// The kernel that the first error is in, or that it is in none.
        place: String,
        /// The compiler's log.
        log: String,
    },
    /// More memory than is free.
    #[error("{card} has {free} MB of memory free, and {needed} MB are needed ({parts}): {advice}")]
    Memory {
        /// The card's name.
        card: String,
        /// In megabytes.
        free: u64,
        /// In megabytes.
        needed: u64,
        /// What for, each part with its megabytes.
        parts: String,
        /// What to do.
        advice: &'static str,
    },
    /// The card did not finish in time.
    #[error(
        "the card has not finished a pass within {seconds} s: its kernels hang; another level of --fusion may do, `none` waits for nothing"
    )]
    Hang {
        /// How long was waited.
        seconds: u64,
    },
    /// What fills the memory failed.
    #[error("{0}")]
    Source(String),
}

/// Says what was being done when the driver refused.
pub(crate) trait Action<T> {
    /// Names the action, in the infinitive.
    fn to(self, action: impl Into<String>) -> Result<T, CudaError>;
}

impl<T> Action<T> for Result<T, DriverError> {
    fn to(self, action: impl Into<String>) -> Result<T, CudaError> {
        self.map_err(|error| CudaError::Driver { action: action.into(), cause: describe(error) })
    }
}

/// The driver's own name and text of an error.
pub(crate) fn describe(error: DriverError) -> String {
    let text = |found: Result<&std::ffi::CStr, DriverError>| {
        found.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
    };
    format!("{} ({})", text(error.error_string()), text(error.error_name()))
}
