//! What Ctrl-C does: it ends an answer if there is one, and the program otherwise.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::anyhow;
use lithos_engine::Cancel;

use crate::INTERRUPTED;

/// What a second Ctrl-C does while the answer has not ended yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// Ends the program.
    Exits,
    /// Nothing more: the session goes on.
    Waits,
}

static ANSWER: Mutex<Option<(Cancel, Again)>> = Mutex::new(None);

/// While it lives, Ctrl-C ends the answer.
pub struct Armed;

/// Installs the handler.
///
/// # Errors
/// If the system refuses it.
pub fn install() -> anyhow::Result<()> {
    ctrlc::set_handler(handle).map_err(|error| anyhow!("cannot listen for Ctrl-C: {error}"))
}

/// Lets Ctrl-C end an answer.
pub fn arm(cancel: &Cancel, again: Again) -> Armed {
    *answer() = Some((cancel.clone(), again));
    Armed
}

impl Drop for Armed {
    fn drop(&mut self) {
        *answer() = None;
    }
}

fn answer() -> MutexGuard<'static, Option<(Cancel, Again)>> {
    ANSWER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn handle() {
    match &*answer() {
        Some((cancel, again)) if !cancel.is_cancelled() || *again == Again::Waits => {
            cancel.cancel();
        }
        _ => std::process::exit(i32::from(INTERRUPTED)),
    }
}
