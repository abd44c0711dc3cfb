//! A compiled form, and the walk of one answer through it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use lithos_model::text::TokenId;
use llguidance::Matcher;
use toktrie::SimpleVob;

use crate::error::{ConstraintError, one_line};

/// A compiled form. Clones share it; each answer walks through it by itself.
#[derive(Clone)]
pub struct Constraint {
    start: Arc<Mutex<Matcher>>,
}

impl Constraint {
    pub(crate) fn new(start: Matcher) -> Self {
        Constraint { start: Arc::new(Mutex::new(start)) }
    }

    /// Begins an answer.
    pub fn begin(&self) -> Walk {
        // What a panic left half done cannot be here: the start is only copied.
        let start = self.start.lock().unwrap_or_else(PoisonError::into_inner);
        Walk { matcher: start.deep_clone() }
    }
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Constraint").finish_non_exhaustive()
    }
}

/// One answer on its way through a form.
pub struct Walk {
    matcher: Matcher,
}

impl Walk {
    /// The tokens that may come next.
    ///
    /// # Errors
    /// [`ConstraintError::DeadEnd`] if there is none, [`ConstraintError::Step`] if the parser gave up.
    pub fn allowed(&mut self) -> Result<Allowed, ConstraintError> {
        let tokens = self.matcher.compute_mask_or_eos().map_err(step)?;
        if tokens.is_zero() { Err(ConstraintError::DeadEnd) } else { Ok(Allowed { tokens }) }
    }

    /// Takes in the token that was chosen.
    ///
    /// # Errors
    /// [`ConstraintError::Step`] if it has no place here.
    pub fn take(&mut self, token: TokenId) -> Result<(), ConstraintError> {
        self.matcher.consume_token(token.0).map_err(step)
    }

    /// Whether the answer is complete: nothing can follow, or an end token came.
    pub fn is_complete(&self) -> bool {
        self.matcher.is_stopped()
    }
}

fn step(error: impl fmt::Display) -> ConstraintError {
    ConstraintError::Step(one_line(&error.to_string()))
}

/// Tokens that may come next.
pub struct Allowed {
    tokens: SimpleVob,
}

impl Allowed {
    /// Whether this token is among them.
    pub fn contains(&self, token: TokenId) -> bool {
        token.index() < self.tokens.len() && self.tokens.is_allowed(token.0)
    }

    /// Sets the logits of all others to minus infinity.
    pub fn forbid_others(&self, logits: &mut [f32]) {
        // Places past the vocabulary are no tokens.
        let words = self.tokens.as_slice().iter().chain(std::iter::repeat(&0));
        for (word, logits) in words.zip(logits.chunks_mut(32)) {
            for (bit, logit) in logits.iter_mut().enumerate() {
                if (word >> bit) & 1 == 0 {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
    }
}
