//! Runs generated kernels on NVIDIA cards.
//!
//! The driver and the runtime compiler are looked for when a program asks for a card, never before, so one binary serves
//! machines with and without: [`Device::open`] says in one line what is missing. Nothing here knows a model. A caller compiles
//! a text ([`Compiler`]), loads it ([`Module`]), fills memory ([`DeviceBuffer`], [`upload`]) and replays launches ([`Replay`]).

mod compile;
mod device;
mod error;
mod launch;
mod memory;
mod nvrtc;
mod read_stream;
mod replay;
mod stream;
mod upload;

pub use compile::{CacheKey, Compiler, compile_options};
pub use device::Device;
pub use error::CudaError;
pub use launch::{BINDINGS, Kernel, Launch, Module};
pub use memory::{DeviceBuffer, PinnedBuffer, check_room};
pub use read_stream::ReadStream;
pub use replay::Replay;
pub use stream::{Event, PASS_LIMIT, Stream};
pub use upload::{MakePiece, Staged, upload};
