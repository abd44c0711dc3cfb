//! What the forms of calls have in common.

use super::definitions::Tools;
use super::event::{AnswerEnd, CallFault};

/// Reads one call that is written in some form.
pub(super) trait CallForm: Send + std::fmt::Debug {
    /// Reads on. `source` is all of the answer from the call's first tag on, as far as it is known; `end` is there once nothing
    /// more will come, and then the reading must come to an end. What has been read once is not looked at again, so that
    /// the work is linear in the length of the call.
    fn read(&mut self, source: &str, tools: &Tools, end: Option<AnswerEnd>) -> Reading;
}

/// What has been read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// More must come before anything can be said.
    Unfinished,
    /// The first `length` bytes are a call, or would be one but for a fault.
    Read { length: usize, call: Result<Call, CallFault> },
}

/// A call that is complete and valid.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) name: String,
    /// A JSON object.
    pub(super) arguments: String,
}
