//! Tools: the functions that a client puts on offer, and the calls that a model writes into its answer.
//!
//! Models write calls as text, each family in its own form. [`ToolParser`] takes that text as it comes, in pieces of any size,
//! and gives out what it means: text, and calls with their name and their arguments as JSON. It knows two forms, one file each:
//! the XML of Qwen3-Coder and Qwen3.5, and the JSON of Hermes that Qwen3 and others took over. Which one a call is in shows in
//! its first characters, so nothing needs to be set.
//!
//! A call is held back until it is complete and valid: its function is on offer, its required arguments are there, and their
//! types are those of the function's JSON schema. What is less than that is no call: its words come out as text, without tags,
//! so that no client takes it for one. Nothing here belongs to a dialect.

mod definitions;
mod event;
mod forced;
mod form;
mod hermes_json;
mod markup;
mod offer;
mod parser;
mod qwen_xml;
mod schema;
mod written_value;

pub use definitions::Tools;
pub use event::{AnswerEnd, CallFault, ToolEvent};
pub use forced::CallSyntax;
pub(crate) use forced::grammar;
pub use offer::{Calls, ToolChoice};
pub(crate) use offer::{Offer, OfferBuilder, function, object, parameters};
pub use parser::ToolParser;
