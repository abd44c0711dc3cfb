//! The CPU backend behind the engine's trait.

use std::sync::Arc;

use lithos_compiler::StepState;
use lithos_cpu::mixers::kv::{KvType, PAGE_TOKENS};
use lithos_cpu::simd::Isa;
use lithos_cpu::{CpuBackend, CpuOptions};
use lithos_format::{Checkpoint, Codes};
use lithos_graph::{Graph, WeightForm};

use crate::backend::{Backend, StatePart, StateSizes};
use crate::engine::MemoryUse;
use crate::error::EngineError;
use crate::options::{BackendKind, EngineOptions};

/// [`CpuBackend`], and which pass ran last.
pub(crate) struct Cpu {
    backend: CpuBackend,
    last: LastPass,
}

#[derive(Clone, Copy)]
enum LastPass {
    Decode(usize),
    Prefill(usize),
}

impl Cpu {
    pub(crate) fn new(
        checkpoint: &Arc<Checkpoint>,
        graph: &Graph,
        block: Option<&Graph>,
        options: &EngineOptions,
        context: usize,
        slots: usize,
    ) -> Result<Self, EngineError> {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let options = CpuOptions {
            threads: options.threads.unwrap_or_else(cores),
            isa: options.isa.unwrap_or_else(Isa::detect),
            fusion: options.fusion,
            slots,
            capacity: context * slots,
            key_values: key_value_type(graph),
            chunk: options.chunk,
        };
        let backend = CpuBackend::new(checkpoint, graph, block, options)?;
        Ok(Cpu { backend, last: LastPass::Decode(0) })
    }
}

/// Keys and values are BF16, except where the weights are all F32: such a model is a reference.
pub(crate) fn key_value_type(graph: &Graph) -> KvType {
    let rounded = |id| match graph.value(id).weight().map(|source| source.form) {
        Some(WeightForm::Matrix(encoding) | WeightForm::Experts(encoding)) => {
            encoding.codes != Codes::F32
        }
        _ => false,
    };
    if graph.weights().any(rounded) { KvType::Bf16 } else { KvType::F32 }
}

impl Backend for Cpu {
    fn decode(&mut self, step: &StepState, tokens: &[u32]) -> Result<(), EngineError> {
        self.last = LastPass::Decode(step.logit_rows as usize);
        Ok(self.backend.decode(step, tokens)?)
    }

    fn prefill(&mut self, step: &StepState, tokens: &[u32]) -> Result<(), EngineError> {
        self.last = LastPass::Prefill(step.logit_rows as usize);
        Ok(self.backend.prefill(step, tokens)?)
    }

    fn prefill_head(&mut self, step: &StepState) -> Result<(), EngineError> {
        self.last = LastPass::Prefill(step.logit_rows as usize);
        Ok(self.backend.prefill_head(step)?)
    }

    fn hidden(&self, rows: usize) -> &[f32] {
        match self.last {
            LastPass::Decode(_) => self.backend.decode_hidden(rows),
            LastPass::Prefill(_) => self.backend.prefill_hidden(rows),
        }
    }

    fn draft(
        &mut self,
        step: &StepState,
        tokens: &[u32],
        hidden: &[f32],
    ) -> Result<bool, EngineError> {
        Ok(self.backend.draft(step, tokens, hidden)?)
    }

    fn draft_rows(&self, rows: usize) -> (&[f32], &[f32]) {
        self.backend.draft_rows(rows)
    }

    fn logits(&self) -> &[f32] {
        match self.last {
            LastPass::Decode(rows) => self.backend.decode_logits(rows),
            LastPass::Prefill(rows) => self.backend.prefill_logits(rows),
        }
    }

    fn chunk(&self) -> usize {
        self.backend.chunk()
    }

    fn pages(&self) -> (usize, usize) {
        (self.backend.states().pages(), PAGE_TOKENS)
    }

    fn reset(&mut self, slot: usize) {
        self.backend.states_mut().reset(slot);
    }

    fn set_pages(&mut self, slot: usize, pages: &[u32]) {
        self.backend.states_mut().set_pages(slot, pages);
    }

    fn state_sizes(&self) -> Option<StateSizes> {
        let states = self.backend.states();
        Some(StateSizes { page: states.page_bytes(), recurrent: states.recurrent_bytes() })
    }

    fn save(&mut self, part: StatePart<'_>, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let states = self.backend.states();
        match part {
            StatePart::Pages(pages) => pages.iter().for_each(|page| states.save_page(*page, out)),
            StatePart::Slot(slot) => states.save_recurrent(slot, out),
        }
        Ok(())
    }

    fn restore(&mut self, part: StatePart<'_>, bytes: &[u8]) -> Result<(), EngineError> {
        let states = self.backend.states_mut();
        match part {
            StatePart::Pages(pages) => {
                for (page, bytes) in pages.iter().zip(bytes.chunks(states.page_bytes())) {
                    states.load_page(*page, bytes);
                }
            }
            StatePart::Slot(slot) => states.load_recurrent(slot, bytes),
        }
        Ok(())
    }

    fn numerics(&self) -> String {
        self.backend.numerics().to_owned()
    }

    fn memory(&self) -> MemoryUse {
        let states = self.backend.states();
        MemoryUse {
            resident: self.backend.resident_bytes(),
            read_per_pass: self.backend.bytes_per_pass(),
            per_page: states.page_bytes() as u64,
            page_tokens: PAGE_TOKENS,
        }
    }

    fn kind(&self) -> BackendKind {
        BackendKind::Cpu
    }

    fn describe(&self) -> String {
        format!("{} with {} threads", self.backend.isa().name(), self.backend.threads())
    }
}
