//! What a parser gives out.

use crate::dialect::Ending;

/// A piece of an answer.
///
/// The three events of a call follow each other without anything between them, and come only once the whole call is known to
/// be complete and valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolEvent {
    /// More text. It is never empty.
    Text(String),
    /// A call begins.
    CallBegan {
        /// Its place among the calls of the answer, from 0.
        index: usize,
        /// The function.
        name: String,
    },
    /// More of the arguments of a call. All pieces together are a JSON object.
    Arguments {
        /// The call.
        index: usize,
        /// The piece.
        json: String,
    },
    /// A call is complete.
    CallEnded {
        /// The call.
        index: usize,
    },
    /// The model wrote something that looks like a call and is none. Its words follow as text.
    NoCall(CallFault),
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerEnd {
    /// The model ended it: a tag that is missing now was left out.
    Whole,
    /// Something else did, such as a limit or a stop text: what is missing now might have come.
    Cut,
}

/// Why something that looks like a call is none. The messages hold names, but no values, which may be private.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFault {
    /// No such function is on offer.
    #[error("the model called '{0}', which is not on offer")]
    UnknownFunction(String),
    /// The answer ended before the call did.
    #[error("the answer ended inside a call")]
    Unfinished,
    /// It does not have the form of a call.
    #[error("the model wrote a call in no known form")]
    Malformed,
    /// An argument has a value that its schema does not allow.
    #[error(
        "the model called '{function}' with a value of '{argument}' that its schema does not allow"
    )]
    WrongArgument {
        /// The function.
        function: String,
        /// The argument.
        argument: String,
    },
    /// The arguments together are not what the schema wants: one is missing, or one is not known.
    #[error("the model called '{function}' without a required argument, or with one too many")]
    WrongArguments {
        /// The function.
        function: String,
    },
    /// The client takes one call at a time, and this is another.
    #[error("the model made more than the one call that was asked for")]
    OneCallOnly,
}

impl From<&Ending> for AnswerEnd {
    fn from(ending: &Ending) -> Self {
        match ending {
            Ending::Model => AnswerEnd::Whole,
            Ending::StopText(_) | Ending::Limit => AnswerEnd::Cut,
        }
    }
}
