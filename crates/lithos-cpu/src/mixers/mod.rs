//! Task bodies that are not weight products: norms, activations, rotary embedding, attention,
//! convolution and the gated delta rule.
//!
//! Each is a plain function on views of f32 rows, written once over [`Simd`](crate::simd::Simd) and
//! run under the [`Isa`](crate::simd::Isa) that the caller names; every instruction set gives the
//! same bits. None knows of the graph or the schedule: a task is a call with its part of the rows,
//! heads or columns, and two tasks whose parts differ may run at the same time.
//!
//! Shapes are checked with assertions, since they are fixed when a program is built and no request
//! can change them.

pub mod activation;
pub mod attention;
pub mod convolution;
mod exponential;
pub mod gdn;
pub mod kv;
pub mod mixture;
pub mod norm;
mod paired;
mod product;
pub mod rotary;
mod view;

pub use view::{Heads, Rows, RowsMut, Scratch};
