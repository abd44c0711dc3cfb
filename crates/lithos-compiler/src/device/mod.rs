//! From a schedule to a program for a graphics processor: kernel text, parameter records, packed weights and the places of states.
//!
//! A region becomes one kernel, a phase a run of calls of task bodies ([`lithos_kernels`]), a join between phases a call of
//! `join`. What differs from layer to layer lies in parameter records, so layers of the same structure share their text, and
//! a run of equal layers within a region is a loop.

mod emit;
mod lanes;
mod load;
mod places;
mod program;
mod records;

pub use lanes::{LaneLayout, LaneLayoutError};
pub use load::{LoadError, PackedPart, WeightPieces};
pub use places::{ChoicePlaces, KeyValues, Places, StatePlaces, WeightPlaces};
pub use program::{DeviceError, DeviceOptions, Launch, Program};
