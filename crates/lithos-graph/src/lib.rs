//! The intermediate representation of a model.
//!
//! A [`Graph`] is a list of typed operations over named values, in execution order. Shapes are fixed except for one
//! symbol: the rows of a pass ([`Dimension::Rows`]). Effects are explicit: an operation lists the states that it reads
//! among its inputs and the states that it changes among its updates, so that a scheduler never has to guess.
//!
//! [`Interpreter`] runs any graph in f32, slowly and obviously. It is checked against reference values from independent
//! implementations, and every backend is checked against it.

mod builder;
mod graph;
mod interpreter;
mod op;
mod rotary;
mod stored;
mod validate;
mod value;

pub use builder::GraphBuilder;
pub use graph::{Graph, Limits};
pub use interpreter::{Interpreter, InterpreterError, SequenceState, WeightStore};
pub use op::{Op, OpKind, Part, Reach, Scope};
pub use rotary::{Rotary, RotaryScaling};
pub use stored::StoredWeight;
pub use validate::GraphError;
pub use value::{
    DType, Dimension, EXPERT, RowMap, StateKind, Value, ValueId, ValueKind, WeightForm,
    WeightSource,
};
