//! Drafters: what proposes tokens for a pass to verify.
//!
//! A draft costs a row of a pass that reads its weights anyway; where it is what the model would have chosen, the row's token is had
//! without a pass of its own. What is chosen never depends on drafts (`speculation.rs`).

mod copy;
mod dspark;
mod mixed;

use std::fmt;
use std::str::FromStr;

use lithos_compiler::MAX_DECODE_ROWS;
use lithos_model::text::TokenId;

pub(crate) use copy::Copying;
pub use dspark::Dspark;
pub(crate) use mixed::Mixed;

use crate::error::EngineError;
use crate::sequence::Sequence;

/// Tokens that a pass can verify at most, behind the one that was chosen last.
pub const MOST_DRAFTS: usize = MAX_DECODE_ROWS - 1;

/// Where drafts come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Draft {
    /// There are none: a pass makes one token.
    #[default]
    None,
    /// Copies: what followed where the last tokens stood before, in prompt or answer.
    Copy,
    /// The DSpark drafter in the folder `draft` beside the model.
    Dspark,
    /// What is likely to pay: copies; or, where a drafter was opened with the model, copies where they are likely and its drafts else.
    /// None where a backend chooses tokens by itself or a row costs as much as a pass.
    Auto,
}

impl Draft {
    /// All sources, by the name of each on the command line.
    pub const ALL: [Draft; 4] = [Draft::Auto, Draft::Dspark, Draft::Copy, Draft::None];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Draft::None => "none",
            Draft::Copy => "copy",
            Draft::Dspark => "dspark",
            Draft::Auto => "auto",
        }
    }
}

impl fmt::Display for Draft {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Draft {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Draft::ALL.into_iter().find(|draft| draft.name() == name).ok_or_else(|| {
            let names = Draft::ALL.map(Draft::name).join(", ");
            format!("unknown source of drafts `{name}`: one of {names}")
        })
    }
}

/// How many drafts a pass verifies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DraftLength {
    /// As many as are expected to pay, by what passes of so many rows were seen to take.
    #[default]
    Auto,
    /// This many, where there are as many, at most [`MOST_DRAFTS`].
    Fixed(usize),
}

/// Tokens that may follow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Proposal {
    /// The tokens, in order.
    pub tokens: Vec<TokenId>,
    /// For each, how likely it and all before it are accepted.
    pub survival: Vec<f64>,
}

/// What became of a round's drafts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Drafts that were verified.
    pub verified: usize,
    /// Of those, accepted.
    pub accepted: usize,
    /// Seconds to draft and to verify.
    pub seconds: f64,
    /// Seconds that a pass without drafts takes, once one was seen, and where drafts are to pay.
    pub one_row: Option<f64>,
}

/// Proposes tokens. It is told everything that is committed, in order.
pub trait Drafter: Send {
    /// Its name, for reports.
    fn source(&self) -> &'static str;

    /// A generation begins after these tokens; what was before is forgotten, but not what was learned.
    fn begin(&mut self, tokens: &[TokenId]);

    /// These tokens were committed or chosen.
    fn take_in(&mut self, tokens: &[TokenId]);

    /// At most so many tokens that may follow what the sequence has taken in and the last token taken in here.
    ///
    /// # Errors
    /// [`EngineError`] if a pass of the drafter failed.
    fn propose(
        &mut self,
        sequence: &mut Sequence<'_>,
        most: usize,
    ) -> Result<Proposal, EngineError>;

    /// What became of the last proposal.
    fn learn(&mut self, outcome: &Outcome);
}
