//! What can go wrong, one line each.

use thiserror::Error;

/// Why an answer cannot be held to a form.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConstraintError {
    /// The form is not one, or has a part that is not supported.
    #[error("the {kind} cannot be compiled: {cause}")]
    Form {
        /// What the form is called.
        kind: &'static str,
        /// What the compiler said.
        cause: String,
    },
    /// The model's vocabulary does not do.
    #[error("answers of this model cannot be constrained: {0}")]
    Vocabulary(String),
    /// The grammar lost its way in the answer: too large a state, for instance.
    #[error("the constraint failed in the middle of the answer: {0}")]
    Step(String),
    /// No token of the vocabulary can come next.
    #[error(
        "the constraint leaves no token that can come next: its text cannot be written with this model's vocabulary"
    )]
    DeadEnd,
    /// No logit of a token that can come next is a number.
    #[error("none of the tokens that the constraint allows has a logit that is a number")]
    NoNumbers,
}

/// Characters of a message that are told, from its beginning and from its end: some repeat the whole form.
const TOLD: [usize; 2] = [300, 100];

/// A message of the library as one line, without the marks that it appends.
pub(crate) fn one_line(message: &str) -> String {
    let lines = message.lines().map(str::trim);
    let told = lines.filter(|line| !line.is_empty() && *line != "<non-verbose/>");
    let line = told.collect::<Vec<_>>().join(" ");
    if line == "NoExtensionBias" {
        return "there is no text that has it".to_owned();
    }
    let length = line.chars().count();
    if length <= TOLD[0] + TOLD[1] {
        return line;
    }
    let begin: String = line.chars().take(TOLD[0]).collect();
    let end: String = line.chars().skip(length - TOLD[1]).collect();
    format!("{begin} ... {end}")
}
