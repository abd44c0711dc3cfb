//! The engine: one model on one backend, serving requests.

use std::path::Path;
use std::sync::Arc;

use lithos_compiler::{Fusion, MAX_DECODE_ROWS, MAX_SLOTS, SlotRows, StepState};
use lithos_format::Checkpoint;
use lithos_graph::{Graph, StateKind};
use lithos_model::dspark::{self, DraftHead};
use lithos_model::mtp::{self, FurtherNorms};
use lithos_model::text::{Text, TokenId};
use lithos_model::{Model, ModelError};

use crate::backend::Backend;
use crate::backend_cpu::{Cpu, key_value_type};
#[cfg(feature = "cuda")]
use crate::backend_cuda::{self, Cuda};
use crate::backend_emulator::Emulated;
use crate::backend_interpreter::Oracle;
use crate::cost_cache;
use crate::drafters::Draft;
use crate::error::EngineError;
use crate::generation::Generation;
use crate::memory;
use crate::options::{BackendKind, EngineOptions};
use crate::pages::PagePool;
use crate::pass_costs::PassCosts;
use crate::passes::PassTimes;
use crate::prefix::{Cuts, PrefixStore};
use crate::sequence::{Sequence, Slot};
use crate::speculation::{Speculator, Trained};
use crate::text_side::TextSide;
use crate::trace::Trace;
use crate::verify_length::VerifyLength;

/// Positions of the context unless asked otherwise, where model and memory allow: coding agents refuse less.
const DEFAULT_CONTEXT: usize = 65_536;

/// Part of the available memory that a default context may take.
const DEFAULT_CONTEXT_SHARE: u64 = 2;

/// Part of the available memory that kept prefixes may take, and bytes at most, unless asked otherwise.
const PREFIX_SHARE: u64 = 8;
const MOST_PREFIX_MEMORY: u64 = 4 << 30;

/// The same where the system does not say what is available.
const BLIND_PREFIX_MEMORY: u64 = 256 << 20;

/// One model on one backend.
pub struct Engine {
    name: String,
    architecture: String,
    parameters: u64,
    vocabulary: usize,
    context: usize,
    most_context: usize,
    kind: BackendKind,
    pub(crate) options: EngineOptions,
    pub(crate) text: Result<TextSide, String>,
    notices: Vec<String>,
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) pages: PagePool,
    /// The generation that holds each slot.
    pub(crate) live: Vec<Option<Generation>>,
    /// Generations admitted so far, and steps taken.
    pub(crate) admitted: u64,
    pub(crate) turn: u64,
    /// What drafts for each slot.
    pub(crate) speculators: Vec<Option<Speculator>>,
    /// How many of a round's drafts are verified.
    pub(crate) verify_length: VerifyLength,
    /// What passes take, once that was asked.
    pub(crate) pass_costs: Option<PassCosts>,
    /// Of what a pass computes.
    pub(crate) digest: u64,
    pub(crate) draft_head: Option<DraftHead>,
    /// The norms of the model's multi-token prediction layer, where that drafts.
    pub(crate) further: Option<FurtherNorms>,
    pub(crate) trace: Trace,
    pub(crate) prefixes: PrefixStore,
    pub(crate) checkpoint: Arc<Checkpoint>,
    pub(crate) graph: Graph,
}

/// Bytes in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Weights, buffers and recurrent states.
    pub resident: u64,
    /// Weights that one decode pass reads.
    pub read_per_pass: u64,
    /// One page of keys and values, over all layers.
    pub per_page: u64,
    /// Tokens of a page.
    pub page_tokens: usize,
}

impl Engine {
    /// Opens a Hugging Face directory or a GGUF file.
    ///
    /// # Errors
    /// [`EngineError`], one line that names the file and the cause.
    pub fn open(path: &Path, options: EngineOptions) -> Result<Engine, EngineError> {
        Engine::from_checkpoint(Checkpoint::open(path).map_err(ModelError::from)?, options)
    }

    /// Runs the model of an open checkpoint.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn from_checkpoint(
        checkpoint: Checkpoint,
        options: EngineOptions,
    ) -> Result<Engine, EngineError> {
        let drafter = own_drafter(&checkpoint, options)?;
        Engine::with_drafter(checkpoint, drafter, options)
    }

    /// Runs the model of an open checkpoint with a drafter that was made for it.
    ///
    /// # Errors
    /// As [`Engine::open`]; or if the drafter was made for another model.
    pub fn with_drafter(
        checkpoint: Checkpoint,
        drafter: Option<Checkpoint>,
        options: EngineOptions,
    ) -> Result<Engine, EngineError> {
        let model = Model::from_checkpoint(checkpoint)?;
        let text = Text::load(&model.checkpoint).map_err(|error| error.to_string());
        Engine::from_model(model, drafter, text, options)
    }

    fn from_model(
        model: Model,
        drafter: Option<Checkpoint>,
        text: Result<Text, String>,
        options: EngineOptions,
    ) -> Result<Engine, EngineError> {
        if options.chunk == Some(0) {
            return Err(EngineError::EmptyChunk);
        }
        let (name, parameters) = (model.name(), model.parameters());
        let (model, block, draft_head, further) = match (drafter, options.draft) {
            (Some(_), _) if !runs_drafters(options.backend) => {
                return Err(EngineError::NoDraftPass(options.backend));
            }
            (Some(drafter), _) => {
                let (model, drafter) = dspark::attach(model, drafter)?;
                (model, Some(drafter.block), Some(drafter.head), None)
            }
            (None, Draft::Mtp) => {
                if !runs_drafters(options.backend) {
                    return Err(EngineError::NoDraftPass(options.backend));
                }
                let (model, further) = mtp::attach(model)?;
                (model, Some(further.block), None, Some(further.norms))
            }
            (None, _) => (model, None, None, None),
        };
        let Model { checkpoint, graph, notices } = model;
        let weights = checkpoint.weight_bytes();
        let kind = match options.backend {
            BackendKind::Auto => choose_backend(weights).0,
            kind => kind,
        };
        let options = EngineOptions { backend: kind, ..options };
        let (context, slots) = choose_context(&graph, weights, &options, available(kind)?)?;
        let options = EngineOptions { slots, ..options };
        let checkpoint = Arc::new(checkpoint);
        let backend: Box<dyn Backend> = match options.backend {
            #[cfg(feature = "cuda")]
            BackendKind::Cuda => {
                let block = block.as_ref();
                Box::new(Cuda::new(&checkpoint, &graph, block, &options, context, slots)?)
            }
            #[cfg(not(feature = "cuda"))]
            BackendKind::Cuda => return Err(EngineError::NoCuda),
            BackendKind::Cpu | BackendKind::Auto => {
                Box::new(Cpu::new(&checkpoint, &graph, block.as_ref(), &options, context, slots)?)
            }
            BackendKind::Emulator => {
                let block = block.as_ref();
                Box::new(Emulated::new(&checkpoint, &graph, block, &options, context, slots)?)
            }
            BackendKind::Interpreter => {
                Box::new(Oracle::new(&checkpoint, &graph, options.chunk, context, slots))
            }
        };
        let (pages, tokens_per_page) = backend.pages();
        let prefixes = prefix_store(backend.as_ref(), &text);
        let mut engine = Engine {
            name,
            architecture: graph.architecture.clone(),
            parameters,
            vocabulary: graph.limits.vocabulary,
            context,
            most_context: graph.limits.context,
            kind: options.backend,
            options,
            text: text.map(|text| TextSide::new(text, graph.limits.vocabulary)),
            notices,
            backend,
            slots: vec![Slot::default(); slots],
            live: (0..slots).map(|_| None).collect(),
            admitted: 0,
            turn: 0,
            pages: PagePool::new(pages, tokens_per_page),
            speculators: (0..slots)
                .map(|_| {
                    let trained = Trained { dspark: draft_head.as_ref(), mtp: further.is_some() };
                    Speculator::new(options.draft, options.draft_length, options.backend, trained)
                })
                .collect(),
            verify_length: VerifyLength::new(options.draft_length),
            pass_costs: None,
            digest: cost_cache::digest(&graph),
            draft_head,
            further,
            trace: Trace::default(),
            prefixes,
            checkpoint,
            graph,
        };
        engine.know_pass_costs()?;
        Ok(engine)
    }

    /// The model's name.
    pub fn name(&self) -> String {
        self.name.clone()
    }

    /// The model's architecture.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// Parameters of the model; a table that is also the head counts once.
    pub fn parameters(&self) -> u64 {
        self.parameters
    }

    /// Tokens of the vocabulary.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// Positions that a sequence can reach.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Positions that the model was made for.
    pub fn most_context(&self) -> usize {
        self.most_context
    }

    /// What computes.
    pub fn backend(&self) -> BackendKind {
        self.kind
    }

    /// What it was opened with.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// Instruction set and threads.
    pub fn describe_backend(&self) -> String {
        self.backend.describe()
    }

    /// Fills all intermediate buffers with NaN, so that a task that reads what none wrote shows. For checks of kernels.
    ///
    /// # Errors
    /// [`EngineError::NotMeasured`] on backends other than CUDA.
    pub fn poison(&mut self) -> Result<(), EngineError> {
        self.backend.poison()
    }

    /// Goes on at another fusion level, with the same weights, and with what the sequence has taken in.
    ///
    /// # Errors
    /// [`EngineError::NotMeasured`] on backends other than CUDA.
    pub fn set_fusion(&mut self, fusion: Fusion) -> Result<(), EngineError> {
        self.backend.set_fusion(fusion)?;
        self.options.fusion = fusion;
        self.pass_costs = None;
        self.prefixes.forget();
        Ok(())
    }

    /// What the card's memory delivers to plain reads, in bytes per second, several times.
    ///
    /// # Errors
    /// As [`Engine::poison`].
    pub fn read_stream(&mut self) -> Result<Vec<f64>, EngineError> {
        self.backend.read_stream()
    }

    /// Takes the time of a decode pass of the last tokens, as many as `rows`, after the others, all of whose rows before it
    /// were accepted. Empties the sequence.
    ///
    /// # Errors
    /// As [`Engine::poison`]; or if the tokens do not fit the context.
    pub fn measure_passes(
        &mut self,
        tokens: &[TokenId],
        rows: usize,
        repeats: usize,
    ) -> Result<PassTimes, EngineError> {
        let rows = rows.clamp(1, MAX_DECODE_ROWS.min(tokens.len()));
        let (before, last) = tokens.split_at(tokens.len() - rows);
        let mut sequence = self.sequence();
        sequence.reset();
        sequence.make_room(tokens)?;
        sequence.prefill(before, 0, |_, _| ())?;
        let position = before.len() as u32;
        // As after a pass of as many rows, all accepted.
        let state_position = position.saturating_sub(rows as u32);
        let slot = SlotRows { slot: 0, first_row: 0, rows: rows as u32, position, state_position };
        let ids: Vec<u32> = last.iter().map(|token| token.0).collect();
        let times = self.backend.measure(&StepState::single(slot, rows), &ids, repeats);
        self.sequence().reset();
        times
    }

    /// What was left out of the checkpoint, one line each.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Bytes in memory.
    pub fn memory(&self) -> MemoryUse {
        self.backend.memory()
    }

    /// The first slot, to run passes on. It keeps what it has taken in.
    pub fn sequence(&mut self) -> Sequence<'_> {
        Sequence::new(self, 0)
    }
}

/// The drafter in the folder `draft` beside a model, where it is asked for and the backend can run it.
fn own_drafter(
    checkpoint: &Checkpoint,
    options: EngineOptions,
) -> Result<Option<Checkpoint>, EngineError> {
    let folder = checkpoint.folder().map(|folder| folder.subfolder("draft"));
    let folder = folder.filter(|folder| folder.contains("config.json"));
    let runs = runs_drafters(options.backend);
    match (options.draft, folder) {
        (Draft::Dspark, _) if !runs => Err(EngineError::NoDraftPass(options.backend)),
        (Draft::Dspark, None) => Err(EngineError::NoDrafter(checkpoint.path().to_path_buf())),
        // Not for `auto`: a processor's pass of several rows costs more than such drafts have been seen to give.
        (Draft::Dspark, Some(folder)) => {
            Ok(Some(Checkpoint::open_folder(folder).map_err(ModelError::from)?))
        }
        _ => Ok(None),
    }
}

/// Whether a backend runs a pass over a drafter's block.
fn runs_drafters(backend: BackendKind) -> bool {
    backend != BackendKind::Interpreter
}

/// A store for prefixes, which has room where the backend can save states.
fn prefix_store(backend: &dyn Backend, text: &Result<Text, String>) -> PrefixStore {
    if backend.state_sizes().is_none() {
        return PrefixStore::new(Cuts::new(backend.chunk(), Vec::new()), 0);
    }
    let ends = text.as_ref().map_or(Vec::new(), |text| text.defaults().eos_token_ids.clone());
    let budget = memory::available().map_or(BLIND_PREFIX_MEMORY, |available| {
        (available / PREFIX_SHARE).min(MOST_PREFIX_MEMORY)
    });
    PrefixStore::new(Cuts::new(backend.chunk(), ends), budget)
}

/// What [`BackendKind::Auto`] comes to for a model whose weights take so many bytes, and why, in one line.
pub fn choose_backend(weights: u64) -> (BackendKind, String) {
    #[cfg(feature = "cuda")]
    let found = backend_cuda::find_card(weights).map_err(EngineError::from);
    #[cfg(not(feature = "cuda"))]
    let found: Result<String, _> = {
        let _ = weights;
        Err(EngineError::NoCuda)
    };
    match found {
        Ok(card) => (BackendKind::Cuda, format!("running on {card}")),
        Err(cause) => (BackendKind::Cpu, format!("running on the CPU: {cause}")),
    }
}

/// Memory that a backend can take, if the system says.
fn available(kind: BackendKind) -> Result<Option<u64>, EngineError> {
    match kind {
        #[cfg(feature = "cuda")]
        BackendKind::Cuda => Ok(Some(backend_cuda::free_memory()?)),
        _ => Ok(memory::available()),
    }
}

/// Positions of each slot, and how many slots: as asked for, or what the model was made for, within a part of the memory. There are fewer
/// slots where memory does not hold so many contexts.
fn choose_context(
    graph: &Graph,
    weights: u64,
    options: &EngineOptions,
    available: Option<u64>,
) -> Result<(usize, usize), EngineError> {
    let most = graph.limits.context;
    let per_token = bytes_per_token(graph).max(1);
    let wanted_slots = options.slots.clamp(1, MAX_SLOTS);
    let room = available.unwrap_or(u64::MAX).saturating_sub(weights);
    // Contexts of so many tokens that so many bytes hold, at most as many as were asked for.
    let slots_in = |room: u64, context: usize| {
        (room / (per_token * context.max(1) as u64)).min(wanted_slots as u64) as usize
    };
    match options.context {
        Some(wanted) if wanted > most => Err(EngineError::ContextBeyondModel { wanted, most }),
        Some(wanted) => match (slots_in(room, wanted), available) {
            (0, Some(available)) => {
                let context_memory = per_token * wanted as u64;
                Err(EngineError::Memory {
                    needed: (weights + context_memory) >> 20,
                    weights: weights >> 20,
                    context_memory: context_memory >> 20,
                    context: wanted,
                    available: available >> 20,
                })
            }
            (slots, _) => Ok((wanted.max(1), slots.max(1))),
        },
        None => {
            let room = room / DEFAULT_CONTEXT_SHARE;
            let context = most.min((room / per_token).min(DEFAULT_CONTEXT as u64) as usize).max(1);
            Ok((context, slots_in(room, context).max(1)))
        }
    }
}

/// Bytes of keys and values of one token, over all layers.
fn bytes_per_token(graph: &Graph) -> u64 {
    let element = key_value_type(graph).bytes() as u64;
    let bytes = |id| match graph.value(id).state() {
        Some(StateKind::KeyValue { heads, head_dim }) => (2 * heads * head_dim) as u64 * element,
        _ => 0,
    };
    graph.states().map(bytes).sum()
}
