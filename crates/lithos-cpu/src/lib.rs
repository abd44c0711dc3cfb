//! Runs a schedule on the CPU with persistent worker threads and SIMD task bodies.
//!
//! [`CpuBackend`] holds one model: packed [`Weights`], the [`States`] of its slots, and one [`Program`] for each kind of pass. A
//! program is a schedule with its task bodies bound; [`Workers`] run its regions, joining between phases without returning
//! to the host.

mod ahead;
mod backend;
pub mod linear;
pub mod mixers;
mod pass;
mod program;
mod queue;
pub mod simd;
mod states;
mod tasks;
mod weights;
mod workers;

pub use backend::{CpuBackend, CpuError, CpuOptions};
pub use program::Program;
pub use states::States;
pub use weights::{Weights, WeightsError};
pub use workers::{Joiner, LaunchError, LaunchFailed, Workers};
