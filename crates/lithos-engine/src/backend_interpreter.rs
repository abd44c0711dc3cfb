//! The f32 oracle behind the engine's trait.

use std::collections::BTreeMap;
use std::sync::Arc;

use lithos_compiler::StepState;
use lithos_format::Checkpoint;
use lithos_graph::{Graph, Interpreter, SequenceState};
use lithos_model::CheckpointWeights;

use crate::backend::Backend;
use crate::engine::MemoryUse;
use crate::error::EngineError;
use crate::options::BackendKind;

/// Tokens of a page: the interpreter has no pages, and this makes none either.
const PAGE_TOKENS: usize = 64;

/// Rows of a prefill chunk unless asked otherwise.
const CHUNK: usize = 512;

/// Runs passes with the interpreter. Instead of folding a log it keeps the state after each row, until the next pass says how
/// many of the rows were accepted.
pub(crate) struct Oracle {
    checkpoint: Arc<Checkpoint>,
    graph: Graph,
    states: Vec<BTreeMap<usize, SequenceState>>,
    last: Vec<f32>,
    logits: Vec<f32>,
    chunk: usize,
    pages: usize,
}

impl Oracle {
    pub(crate) fn new(
        checkpoint: &Arc<Checkpoint>,
        graph: &Graph,
        chunk: Option<usize>,
        context: usize,
        slots: usize,
    ) -> Self {
        Oracle {
            checkpoint: Arc::clone(checkpoint),
            graph: graph.clone(),
            states: vec![BTreeMap::new(); slots],
            last: Vec::new(),
            logits: Vec::new(),
            chunk: chunk.unwrap_or(CHUNK),
            pages: slots * context.div_ceil(PAGE_TOKENS),
        }
    }

    /// Runs the rows of every slot, `at_once` or one by one with the state after each kept.
    fn run(&mut self, step: &StepState, tokens: &[u32], at_once: bool) -> Result<(), EngineError> {
        let weights = CheckpointWeights::new(&self.checkpoint, &self.graph)?;
        let interpreter = Interpreter::new(&self.graph, &weights);
        self.last.clear();
        for slot in step.active() {
            let kept = &mut self.states[slot.slot as usize];
            let position = slot.position as usize;
            let mut state =
                kept.get(&position).cloned().unwrap_or_else(|| interpreter.empty_state());
            kept.clear();
            let first = slot.first_row as usize;
            let rows = &tokens[first..first + slot.rows as usize];
            if at_once {
                self.last.extend(interpreter.run(&mut state, rows)?);
            } else {
                // All of them may be rejected, so the state before them is kept too.
                kept.insert(position, state.clone());
                for token in rows {
                    self.last.extend(interpreter.run(&mut state, &[*token])?);
                    kept.insert(state.position, state.clone());
                }
            }
            kept.insert(state.position, state);
        }
        self.select(step);
        Ok(())
    }

    fn select(&mut self, step: &StepState) {
        let vocabulary = self.graph.limits.vocabulary;
        let first = step.logit_first_row as usize * vocabulary;
        let end = first + step.logit_rows as usize * vocabulary;
        self.logits.clear();
        self.logits.extend_from_slice(&self.last[first..end]);
    }
}

impl Backend for Oracle {
    fn decode(&mut self, step: &StepState, tokens: &[u32]) -> Result<(), EngineError> {
        self.run(step, tokens, false)
    }

    fn prefill(&mut self, step: &StepState, tokens: &[u32]) -> Result<(), EngineError> {
        self.run(step, tokens, true)
    }

    fn prefill_head(&mut self, step: &StepState) -> Result<(), EngineError> {
        self.select(step);
        Ok(())
    }

    fn logits(&self) -> &[f32] {
        &self.logits
    }

    fn chunk(&self) -> usize {
        self.chunk
    }

    fn pages(&self) -> (usize, usize) {
        (self.pages, PAGE_TOKENS)
    }

    fn reset(&mut self, slot: usize) {
        self.states[slot].clear();
    }

    fn set_pages(&mut self, _slot: usize, _pages: &[u32]) {}

    fn memory(&self) -> MemoryUse {
        let bytes = self.checkpoint.weight_bytes();
        MemoryUse { resident: bytes, read_per_pass: bytes, per_page: 0, page_tokens: PAGE_TOKENS }
    }

    fn kind(&self) -> BackendKind {
        BackendKind::Interpreter
    }

    fn describe(&self) -> String {
        "f32 interpreter with 1 thread".into()
    }
}
