//! What the engine needs of a backend.

use lithos_compiler::{Fusion, StepState};

use crate::engine::MemoryUse;
use crate::error::EngineError;
use crate::options::BackendKind;
use crate::passes::PassTimes;
use crate::rounds::{Drained, LoopStart};

/// Bytes of what slots keep between passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateSizes {
    /// A page of keys and values, over all layers.
    pub(crate) page: usize,
    /// What a slot has beside them.
    pub(crate) recurrent: usize,
}

/// What is saved and restored at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StatePart<'p> {
    /// These pages.
    Pages(&'p [u32]),
    /// What a slot has beside its pages. It is whole where a prefill pass ended.
    Slot(usize),
}

/// Runs passes of one model.
pub(crate) trait Backend: Send {
    /// Runs a decode pass; logits of the rows that want them are then in [`Backend::logits`].
    fn decode(&mut self, step: &StepState, tokens: &[u32]) -> Result<(), EngineError>;

    /// Runs a prefill pass of one slot.
    fn prefill(&mut self, step: &StepState, tokens: &[u32]) -> Result<(), EngineError>;

    /// Computes the logits of other rows of the last prefill pass.
    fn prefill_head(&mut self, step: &StepState) -> Result<(), EngineError>;

    /// Logits of the last pass, `[logit rows, vocabulary]`.
    fn logits(&self) -> &[f32];

    /// Rows of a prefill chunk.
    fn chunk(&self) -> usize;

    /// Key/value pages, and tokens in each.
    fn pages(&self) -> (usize, usize);

    /// Empties a slot.
    fn reset(&mut self, slot: usize);

    /// Sets the pages of a slot.
    fn set_pages(&mut self, slot: usize, pages: &[u32]);

    /// Bytes of states; `None` where they cannot be saved, so that no prompt goes on from those of another one.
    fn state_sizes(&self) -> Option<StateSizes> {
        None
    }

    /// Appends a part of the states, in a layout that depends on nothing but the model and [`Backend::numerics`].
    fn save(&mut self, _part: StatePart<'_>, _out: &mut Vec<u8>) -> Result<(), EngineError> {
        Err(EngineError::NoSaving(self.kind()))
    }

    /// Writes what was saved. The bytes are as many as [`Backend::state_sizes`] says.
    fn restore(&mut self, _part: StatePart<'_>, _bytes: &[u8]) -> Result<(), EngineError> {
        Err(EngineError::NoSaving(self.kind()))
    }

    /// What the bits of states depend on beside the model and this program, in words.
    fn numerics(&self) -> String {
        String::new()
    }

    /// Bytes in memory.
    fn memory(&self) -> MemoryUse;

    /// Instruction set and threads, for listings.
    fn describe(&self) -> String;

    /// What it is, for errors of what only some backends can do.
    fn kind(&self) -> BackendKind;

    /// What the head of the last pass of the model reads before its norm, `[rows, width]`: the pass's first rows. Empty where they are not
    /// kept.
    fn hidden(&self, _rows: usize) -> &[f32] {
        &[]
    }

    /// Runs a pass over a drafter's block of one slot; `false` if there is no drafter. Its rows are then in [`Backend::draft_rows`], and its
    /// keys and values lie at positions that the next pass writes anew. `hidden` are rows that some drafters take beside the tokens.
    fn draft(
        &mut self,
        _step: &StepState,
        _tokens: &[u32],
        _hidden: &[f32],
    ) -> Result<bool, EngineError> {
        Ok(false)
    }

    /// Logits `[rows, vocabulary]` of the last block, and its rows `[rows, width]` before the norm of the head.
    fn draft_rows(&self, _rows: usize) -> (&[f32], &[f32]) {
        (&[], &[])
    }

    /// Begins a loop of passes of one slot that choose their tokens themselves; `false` if the backend has none, and the host must
    /// choose. The loop ends where any other pass is run.
    fn begin_loop(&mut self, _start: &LoopStart<'_>) -> Result<bool, EngineError> {
        Ok(false)
    }

    /// Runs passes of the loop, one after the other without a look between them, and drains the slot's ring. `ahead` more may be
    /// queued, for the next visit, so that the device does not wait for the host; then a visit brings what was queued before. Passes
    /// after the end do nothing. The passes of a visit together choose no more tokens than the ring holds.
    fn run_loop(
        &mut self,
        _slot: usize,
        _passes: usize,
        _ahead: usize,
    ) -> Result<Drained, EngineError> {
        Err(EngineError::NoLoop(self.kind()))
    }

    /// Ends the loop of a slot and brings what passes that were queued ahead have chosen; nothing if there is none.
    fn end_loop(&mut self, _slot: usize) -> Result<Option<Drained>, EngineError> {
        Ok(None)
    }

    /// Fills all intermediate buffers with NaN, so that what reads a value that no task wrote shows.
    fn poison(&mut self) -> Result<(), EngineError> {
        Err(EngineError::NotMeasured(self.kind()))
    }

    /// Goes on at another fusion level, with the same weights and states.
    fn set_fusion(&mut self, _fusion: Fusion) -> Result<(), EngineError> {
        Err(EngineError::NotMeasured(self.kind()))
    }

    /// What the memory delivers to plain reads, in bytes per second, several times.
    fn read_stream(&mut self) -> Result<Vec<f64>, EngineError> {
        Err(EngineError::NotMeasured(self.kind()))
    }

    /// Runs the same pass again and again and takes its time.
    fn measure(
        &mut self,
        _step: &StepState,
        _tokens: &[u32],
        _repeats: usize,
    ) -> Result<PassTimes, EngineError> {
        Err(EngineError::NotMeasured(self.kind()))
    }
}
