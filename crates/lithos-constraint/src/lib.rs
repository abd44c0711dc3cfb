//! Grammars that an answer must follow, as the tokens that may come next.
//!
//! A [`Form`] says what an answer looks like: a JSON schema, any JSON object, a regular expression or a grammar in Lark's notation.
//! [`Grammars`] compiles forms for one model's vocabulary, and a [`Walk`] follows one answer: before each token it forbids those that
//! the form has no place for, and says when the answer is complete. The parser is that of the library llguidance.
//!
//! What cannot be compiled is refused: no part of a form is left out silently.

mod constraint;
mod error;
mod form;
mod grammars;
mod words;

pub use constraint::{Allowed, Constraint, Walk};
pub use error::ConstraintError;
pub use form::Form;
pub use grammars::Grammars;
