//! Drafters: what proposes tokens for a pass to verify.
//!
//! A draft costs a row of a pass that reads its weights anyway; where it is what the model would have chosen, the row's token is had
//! without a pass of its own. What is chosen never depends on drafts (`speculation.rs`).

mod acceptance;
mod copy;
mod dspark;
mod mixed;
mod mtp;
mod proposal;
mod trial;

use std::fmt;
use std::str::FromStr;

use lithos_compiler::MAX_DECODE_ROWS;
use lithos_model::text::TokenId;

pub(crate) use copy::Copying;
pub use dspark::Dspark;
pub(crate) use mixed::Mixed;
pub use mtp::Mtp;
#[cfg(test)]
pub(crate) use proposal::Candidates;
pub use proposal::{Distribution, Draws, Proposal};

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
    /// The multi-token prediction layer that the model's own file has.
    Mtp,
    /// What is likely to pay: copies; or, where a drafter was opened with the model, copies where they are likely and its drafts else.
    /// None where a backend chooses tokens by itself or a row costs as much as a pass.
    Auto,
}

impl Draft {
    /// All sources, by the name of each on the command line.
    pub const ALL: [Draft; 5] = [Draft::Auto, Draft::Dspark, Draft::Mtp, Draft::Copy, Draft::None];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Draft::None => "none",
            Draft::Copy => "copy",
            Draft::Dspark => "dspark",
            Draft::Mtp => "mtp",
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
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum DraftLength {
    /// As many as are expected to pay, by what passes of so many rows take here.
    #[default]
    Auto,
    /// This many, where there are as many, at most [`MOST_DRAFTS`]; whether they pay or not.
    Fixed(usize),
    /// Those before the first one that is accepted with less than this probability if all before it are; whether they pay or not.
    Threshold(f64),
}

/// As on the command line: `auto`, a number, or `threshold:P`.
impl FromStr for DraftLength {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(DraftLength::Auto);
        }
        if let Some(least) = text.strip_prefix("threshold:") {
            return match least.parse() {
                Ok(least) if least > 0.0 && least <= 1.0 => Ok(DraftLength::Threshold(least)),
                _ => Err(format!(
                    "`{least}` is no probability: write one above 0 and at most 1, as in threshold:0.6"
                )),
            };
        }
        match text.parse() {
            Ok(length) if (1..=MOST_DRAFTS).contains(&length) => Ok(DraftLength::Fixed(length)),
            _ => Err(format!(
                "a number from 1 to {MOST_DRAFTS}, auto, or threshold:P with a probability P"
            )),
        }
    }
}

/// What a trained drafter proposes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proposals {
    /// Its likeliest tokens. A text is then the same as without drafts, also where it is drawn.
    #[default]
    Likeliest,
    /// Tokens drawn from its distribution, where the text is drawn: more of them are accepted where it is about as unsure as the model. The
    /// text has the same distribution as without drafts, and is another one. It is the same in every run with a seed only where the number
    /// of drafts is fixed: else that depends on what passes take.
    Drawn,
}

impl Proposals {
    /// All of them.
    pub const ALL: [Proposals; 2] = [Proposals::Likeliest, Proposals::Drawn];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Proposals::Likeliest => "likeliest",
            Proposals::Drawn => "drawn",
        }
    }
}

impl FromStr for Proposals {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Proposals::ALL.into_iter().find(|proposals| proposals.name() == name).ok_or_else(|| {
            let names = Proposals::ALL.map(Proposals::name).join(", ");
            format!("unknown proposals `{name}`: one of {names}")
        })
    }
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
    /// Seconds that a pass without drafts takes, once that is known, and where drafts are to pay.
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

    /// Whether and how the proposals that follow are drawn. What only ever has one proposal ignores it.
    fn draw(&mut self, _draws: Option<Draws>) {}

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
