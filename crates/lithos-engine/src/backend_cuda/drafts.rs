//! Passes over a drafter's block on a card.

use lithos_compiler::{Fusion, StepState};
use lithos_cuda::CudaError;

use super::{Cuda, Level, Part};
use crate::cuda_plan::Inputs;
use crate::error::EngineError;

impl Cuda {
    /// Runs a pass over a drafter's block; `false` if there is no drafter. Where a join fails, again without joins: the block's keys and
    /// values are written anew, and nothing else of the slot was touched.
    pub(super) fn draft_pass(
        &mut self,
        step: &StepState,
        tokens: &[u32],
        hidden: &[f32],
    ) -> Result<bool, EngineError> {
        if self.block.is_none() {
            return Ok(false);
        }
        self.give_hidden(hidden)?;
        match self.run(step, tokens, Part::Block) {
            Err(EngineError::Join { region, fusion }) if fusion != Fusion::None => {
                self.leave_joins(&region)?;
                self.give_hidden(hidden)?;
                self.run(step, tokens, Part::Block)?;
            }
            result => result?,
        }
        Ok(true)
    }

    /// Gives the block the rows that it takes beside its tokens, if it takes any.
    fn give_hidden(&self, hidden: &[f32]) -> Result<(), CudaError> {
        let Some(level) = self.blocks.get(&self.fusion) else { return Ok(()) };
        let schedule = &level.program.schedule;
        match schedule.inputs.first() {
            Some(input) => {
                let rows: Vec<u8> = hidden.iter().flat_map(|value| value.to_le_bytes()).collect();
                level.arena.write(schedule.buffer(*input).offset, &rows)
            }
            None => Ok(()),
        }
    }

    /// Keeps what the head of the model's last pass read, where a block takes such rows.
    pub(super) fn keep_hidden(&mut self, rows: usize) -> Result<(), EngineError> {
        let takes = |block: &Level| !block.program.schedule.inputs.is_empty();
        if self.blocks.get(&self.fusion).is_some_and(takes) {
            self.hidden = self.level().head_input(rows)?;
        }
        Ok(())
    }

    /// Keeps what came of a block's pass.
    pub(super) fn keep_drafted(&mut self, rows: usize) -> Result<(), EngineError> {
        let logits = &self.model.received.floats()[Inputs::JOIN_BYTES / 4..][..self.logits];
        self.drafted = (logits.to_vec(), self.blocks[&self.fusion].head_input(rows)?);
        // They lie where those of the model's pass were.
        self.logits = 0;
        Ok(())
    }
}

impl Level {
    /// What the head of the last pass read before its norm.
    fn head_input(&self, rows: usize) -> Result<Vec<f32>, CudaError> {
        let schedule = &self.program.schedule;
        let Some(buffer) = schedule.head_input() else { return Ok(Vec::new()) };
        let buffer = schedule.buffer(buffer);
        let mut bytes = vec![0; rows * buffer.width * 4];
        self.arena.read(buffer.offset, &mut bytes)?;
        Ok(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }
}
