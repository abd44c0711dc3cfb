//! The engine: one model on one backend, serving requests.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use lithos_compiler::{Fusion, MAX_DECODE_ROWS, SlotRows, StepState};
use lithos_format::Checkpoint;
use lithos_graph::{Graph, StateKind};
use lithos_model::dspark::{self, DraftHead};
use lithos_model::mtp::{self, FurtherNorms};
use lithos_model::text::{Detokenizer, Text, TokenId};
use lithos_model::{Model, ModelError};

use crate::backend::Backend;
use crate::backend_cpu::{Cpu, key_value_type};
#[cfg(feature = "cuda")]
use crate::backend_cuda::{self, Cuda};
use crate::backend_emulator::Emulated;
use crate::backend_interpreter::Oracle;
use crate::drafters::Draft;
use crate::error::EngineError;
use crate::memory;
use crate::options::{BackendKind, EngineOptions};
use crate::pages::PagePool;
use crate::passes::PassTimes;
use crate::prefix::{Cuts, PrefixStore};
use crate::request::{Completion, Event, FinishReason, Request, Timings};
use crate::sampling::{Sampler, Sampling};
use crate::sequence::{Sequence, Slot};
use crate::speculation::{Speculation, Speculator, Trained};
use crate::stop::StopTexts;
use crate::trace::{Span, Trace};

/// Positions of the context unless asked otherwise, where model and memory allow: coding agents refuse less.
const DEFAULT_CONTEXT: usize = 65_536;

/// Part of the available memory that a default context may take.
const DEFAULT_CONTEXT_SHARE: u64 = 2;

/// Passes that a device runs by itself between two looks of the host: enough that looking costs little, few enough that text flows.
const PASSES_PER_VISIT: usize = 8;

/// Part of the available memory that kept prefixes may take, and bytes at most, unless asked otherwise.
const PREFIX_SHARE: u64 = 8;
const MOST_PREFIX_MEMORY: u64 = 4 << 30;

/// The same where the system does not say what is available.
const BLIND_PREFIX_MEMORY: u64 = 256 << 20;

/// Slots in use.
const SLOTS: usize = 1;

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
    text: Result<Text, String>,
    notices: Vec<String>,
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) pages: PagePool,
    pub(crate) speculator: Option<Speculator>,
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
            (Some(_), _) if options.backend != BackendKind::Cpu => {
                return Err(EngineError::NoDraftPass(options.backend));
            }
            (Some(drafter), _) => {
                let (model, drafter) = dspark::attach(model, drafter)?;
                (model, Some(drafter.block), Some(drafter.head), None)
            }
            (None, Draft::Mtp) => {
                if options.backend != BackendKind::Cpu {
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
        let context = choose_context(&graph, weights, options.context, available(kind)?)?;
        let checkpoint = Arc::new(checkpoint);
        let backend: Box<dyn Backend> = match options.backend {
            #[cfg(feature = "cuda")]
            BackendKind::Cuda => {
                Box::new(Cuda::new(&checkpoint, &graph, &options, context, SLOTS)?)
            }
            #[cfg(not(feature = "cuda"))]
            BackendKind::Cuda => return Err(EngineError::NoCuda),
            BackendKind::Cpu | BackendKind::Auto => {
                Box::new(Cpu::new(&checkpoint, &graph, block.as_ref(), &options, context, SLOTS)?)
            }
            BackendKind::Emulator => {
                Box::new(Emulated::new(&checkpoint, &graph, &options, context, SLOTS)?)
            }
            BackendKind::Interpreter => {
                Box::new(Oracle::new(&checkpoint, &graph, options.chunk, context, SLOTS))
            }
        };
        let (pages, tokens_per_page) = backend.pages();
        let prefixes = prefix_store(backend.as_ref(), &text);
        Ok(Engine {
            name,
            architecture: graph.architecture.clone(),
            parameters,
            vocabulary: graph.limits.vocabulary,
            context,
            most_context: graph.limits.context,
            kind: options.backend,
            options,
            text,
            notices,
            backend,
            slots: vec![Slot::default(); SLOTS],
            pages: PagePool::new(pages, tokens_per_page),
            speculator: Speculator::new(
                options.draft,
                options.draft_length,
                options.backend,
                Trained { dspark: draft_head.as_ref(), mtp: further.is_some() },
            ),
            draft_head,
            further,
            trace: Trace::default(),
            prefixes,
            checkpoint,
            graph,
        })
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

    /// The tokenizer, template and defaults.
    ///
    /// # Errors
    /// [`EngineError::NoText`] if the checkpoint has no usable tokenizer.
    pub fn text(&self) -> Result<&Text, EngineError> {
        self.text.as_ref().map_err(|cause| EngineError::NoText(cause.clone()))
    }

    /// The checkpoint's own choice of sampling.
    pub fn default_sampling(&self) -> Sampling {
        match &self.text {
            Ok(text) => Sampling::from_defaults(text.defaults()),
            Err(_) => Sampling::greedy(),
        }
    }

    /// The first slot, to run passes on. It keeps what it has taken in.
    pub fn sequence(&mut self) -> Sequence<'_> {
        Sequence::new(self, 0)
    }

    /// Serves a request. Text is handed out as it becomes certain.
    ///
    /// # Errors
    /// [`EngineError`]; [`EngineError::is_bad_request`] says whose fault it is. A prompt that does not fit is refused before
    /// any work.
    pub fn generate(
        &mut self,
        request: &Request,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Completion, EngineError> {
        let text = self.text()?;
        let mut output = Output {
            detokenizer: Detokenizer::new(text.tokenizer(), true),
            stops: StopTexts::new(&request.stop),
            ends: match request.ignore_end {
                true => Vec::new(),
                false => text.defaults().eos_token_ids.clone(),
            },
            tokens: Vec::new(),
            text: String::new(),
        };
        let limit = self.check(request)?;
        let mut sampler = Sampler::new(request.sampling.clone(), &request.prompt);
        let started = Instant::now();
        let reused = self.begin(&request.prompt, request.reuse)?;
        let first = self.take_in(request, reused, &mut sampler, on_event)?;
        let prefill = started.elapsed();
        let (finish, speculation) = match first {
            None => (FinishReason::Cancelled, None),
            Some(token) => {
                self.rounds(request, token, limit, &mut sampler, &mut output, on_event)?
            }
        };
        output.flush(on_event);
        Ok(Completion {
            tokens: output.tokens,
            text: output.text,
            finish,
            prompt_tokens: request.prompt.len(),
            reused_tokens: reused,
            timings: Timings { prefill, decode: started.elapsed() - prefill },
            speculation,
        })
    }

    /// Checks a request before any work; returns how many tokens may be generated.
    fn check(&self, request: &Request) -> Result<usize, EngineError> {
        request.sampling.validate().map_err(EngineError::Sampling)?;
        let (prompt, vocabulary) = (request.prompt.len(), self.vocabulary);
        if prompt == 0 {
            return Err(EngineError::EmptyPrompt);
        }
        if let Some(token) = request.prompt.iter().find(|token| token.index() >= vocabulary) {
            return Err(EngineError::TokenOutsideVocabulary { token: token.0, vocabulary });
        }
        if prompt >= self.context {
            let (context, most) = (self.context, self.most_context);
            return Err(EngineError::ContextTooLong { prompt, context, most });
        }
        // The last token is never taken in, so one more than the room left can be generated.
        let room = self.context - prompt + 1;
        Ok(request.max_tokens.map_or(room, |most| most.min(room)))
    }

    /// Takes in the prompt and chooses the first token; `None` if cancelled.
    fn take_in(
        &mut self,
        request: &Request,
        reused: usize,
        sampler: &mut Sampler,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Option<TokenId>, EngineError> {
        let total = request.prompt.len();
        let path = if request.reuse { self.prefixes.path(&request.prompt) } else { Vec::new() };
        let mut sequence = self.sequence();
        sequence.make_room(&request.prompt[reused..])?;
        let mut unwritten = sequence.unwritten();
        let mut done = reused;
        let mut first = None;
        // Nothing can refuse the request any more: whoever waits may know that it has begun.
        on_event(Event::Prefill { done, total });
        while done < total {
            if request.cancel.is_cancelled() {
                return Ok(None);
            }
            let began = Instant::now();
            let chunk = sequence.next_chunk(&request.prompt[done..]);
            sequence.prefill_chunk(&request.prompt[done..done + chunk])?;
            done += chunk;
            if done == total {
                let mut choose = |_: usize, logits: &[f32]| first = Some(sampler.sample(logits));
                sequence.visit_rows(0, chunk, chunk - 1, &mut choose)?;
            }
            sequence.engine.trace.since("prefill", began, chunk);
            if sequence.keep(&path, unwritten)? {
                unwritten = sequence.unwritten();
            }
            on_event(Event::Prefill { done, total });
        }
        Ok(first)
    }

    /// One round after another until something ends the generation.
    fn rounds(
        &mut self,
        request: &Request,
        first: TokenId,
        limit: usize,
        sampler: &mut Sampler,
        output: &mut Output,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<(FinishReason, Option<Speculation>), EngineError> {
        let mut token = first;
        if limit == 0 {
            return Ok((FinishReason::Length, None));
        }
        if let Some(finish) = output.take(token, limit, request, on_event) {
            return Ok((finish, None));
        }
        if self.speculator.is_some() {
            let finish = self.draft_rounds(request, token, limit, sampler, output, on_event)?;
            return Ok((finish, self.speculator.as_ref().map(|drafts| drafts.report().clone())));
        }
        if let Some(rounds) = sampler.rounds(self.vocabulary, &output.ends, limit - 1)
            && self.sequence().begin_rounds(&[token], &rounds)?
        {
            let (began, before) = (Instant::now(), output.tokens.len());
            let finish = self.device_rounds(request, limit, output, on_event)?;
            self.trace.since("device", began, output.tokens.len() - before);
            return Ok((finish, None));
        }
        loop {
            let began = Instant::now();
            let mut sequence = self.sequence();
            let logits = sequence.decode(&[token])?;
            let passed = Instant::now();
            token = sampler.sample(logits);
            sequence.accept(1);
            self.trace.add(Span { name: "pass", start: began, took: passed - began, tokens: 1 });
            self.trace.since("choose", passed, 1);
            if let Some(finish) = output.take(token, limit, request, on_event) {
                return Ok((finish, None));
            }
        }
    }

    /// Rounds that the device runs by itself, with a look at what it chose now and then, while it goes on. Where the host ends the
    /// generation, at a stop text or because it was cancelled, the device has taken in some tokens more.
    fn device_rounds(
        &mut self,
        request: &Request,
        limit: usize,
        output: &mut Output,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<FinishReason, EngineError> {
        let finish = 'visits: loop {
            let left = limit - output.tokens.len();
            let passes = PASSES_PER_VISIT.min(left);
            let visit = self.sequence().rounds(passes, PASSES_PER_VISIT.min(left - passes))?;
            for token in visit.tokens {
                if let Some(finish) = output.take(token, limit, request, on_event) {
                    break 'visits finish;
                }
            }
            if visit.ended {
                // The limit and the end tokens are the same on both sides, so this is never reached before them.
                break FinishReason::Length;
            }
        };
        self.sequence().end_rounds()?;
        Ok(finish)
    }
}

/// The output of one generation as it grows.
pub(crate) struct Output {
    detokenizer: Detokenizer,
    stops: StopTexts,
    ends: Vec<TokenId>,
    pub(crate) tokens: Vec<TokenId>,
    text: String,
}

impl Output {
    /// Takes in a token; returns why the generation ends with it, if it does.
    pub(crate) fn take(
        &mut self,
        token: TokenId,
        limit: usize,
        request: &Request,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Option<FinishReason> {
        if self.push(token, on_event) {
            return Some(FinishReason::Stop);
        }
        if self.tokens.len() == limit {
            return Some(FinishReason::Length);
        }
        request.cancel.is_cancelled().then_some(FinishReason::Cancelled)
    }

    /// Takes in a token; returns whether the generation ends with it.
    fn push(&mut self, token: TokenId, on_event: &mut dyn FnMut(Event<'_>)) -> bool {
        self.tokens.push(token);
        if self.ends.contains(&token) {
            return true;
        }
        let (certain, stopped) = self.stops.push(&self.detokenizer.push(token));
        self.emit(&certain, on_event);
        if stopped {
            // What the detokenizer still holds comes after the stop text.
            self.detokenizer.finish();
        }
        stopped
    }

    /// Gives out what was held back.
    fn flush(&mut self, on_event: &mut dyn FnMut(Event<'_>)) {
        let rest = self.detokenizer.finish();
        let (mut certain, stopped) = self.stops.push(&rest);
        if !stopped {
            certain.push_str(&self.stops.finish());
        }
        self.emit(&certain, on_event);
    }

    fn emit(&mut self, text: &str, on_event: &mut dyn FnMut(Event<'_>)) {
        if !text.is_empty() {
            self.text.push_str(text);
            on_event(Event::Text(text));
        }
    }
}

/// The drafter in the folder `draft` beside a model, where it is asked for and the backend can run it.
fn own_drafter(
    checkpoint: &Checkpoint,
    options: EngineOptions,
) -> Result<Option<Checkpoint>, EngineError> {
    let folder = checkpoint.folder().map(|folder| folder.subfolder("draft"));
    let folder = folder.filter(|folder| folder.contains("config.json"));
    let runs = options.backend == BackendKind::Cpu;
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

/// The context: as asked for, or what the model was made for within a part of the memory.
fn choose_context(
    graph: &Graph,
    weights: u64,
    wanted: Option<usize>,
    available: Option<u64>,
) -> Result<usize, EngineError> {
    let most = graph.limits.context;
    let per_token = bytes_per_token(graph);
    match wanted {
        Some(wanted) if wanted > most => Err(EngineError::ContextBeyondModel { wanted, most }),
        Some(wanted) => {
            let context_memory = per_token * wanted as u64;
            match available {
                Some(available) if weights + context_memory > available => {
                    Err(EngineError::Memory {
                        needed: (weights + context_memory) >> 20,
                        weights: weights >> 20,
                        context_memory: context_memory >> 20,
                        context: wanted,
                        available: available >> 20,
                    })
                }
                _ => Ok(wanted.max(1)),
            }
        }
        None => {
            let room =
                available.unwrap_or(u64::MAX).saturating_sub(weights) / DEFAULT_CONTEXT_SHARE;
            let fits = (room / per_token.max(1)).min(DEFAULT_CONTEXT as u64) as usize;
            Ok(most.min(fits).max(1))
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
