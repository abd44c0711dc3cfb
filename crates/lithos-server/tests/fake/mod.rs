//! A model without weights, whose answers the last message of the conversation prescribes.
//!
//! Its tokens are characters of the prompt and words of the answer. What it does for a last message:
//!
//! | message | the model |
//! |---|---|
//! | `say WORDS` | answers with the words |
//! | `hold WORDS` | the same, but waits for [`Control::release`] before the last word |
//! | `wait` | takes in its prompt until [`Control::release`], then answers `done` |
//! | `silent` | the same, without a sign of life |
//! | `forever` | answers `x x x …` until it is cancelled or reaches the limit |
//! | `refuse`, `fail`, `panic` | gives no answer |
//! | `fail late`, `panic late` | breaks off after one word |
//! | `panic in the template` | panics while the prompt is made |
//! | anything else | repeats it |

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lithos_engine::{
    Completion, Constraint, Event, FinishReason, Form, GenerationId, Grammars, Request, Sampling,
    StopTexts, Timings, TokenId,
};
use lithos_model::text::Tokenizer;
use lithos_protocol::tools::CallSyntax;
use lithos_protocol::{AnswerForm, Conversation, FormKind};
use lithos_server::{Ended, ModelError, ModelInfo, Prompts, Resources, TextModel};
use serde_json::{Map, Value};

/// Ends a prompt in which thinking was asked for by `enable_thinking`: the answer then begins inside a thought.
const THINK: TokenId = TokenId(2);

/// Tokens of the fake model's context.
pub const CONTEXT: usize = 4096;

/// The fake model.
pub struct FakeModel {
    control: Arc<Control>,
    admitted: Option<Request>,
    /// What becomes of a completion before it is handed out.
    pub finish: fn(&mut Completion),
    /// What it takes of the machine.
    pub resources: Resources,
}

/// What a test sees of the model, and how it lets it go on.
#[derive(Default)]
pub struct Control {
    released: AtomicBool,
    /// Generations begun.
    pub begun: AtomicUsize,
    /// How often everything was abandoned.
    pub abandoned: AtomicUsize,
    /// Generations ended by a cancellation.
    pub cancelled: AtomicUsize,
    /// All requests that reached the model.
    pub requests: Mutex<Vec<Request>>,
    /// The conversations that reached the model, and their template variables.
    pub conversations: Mutex<Vec<(Value, Map<String, Value>)>>,
    /// The functions that were on offer in each of them.
    pub tools: Mutex<Vec<Option<Value>>>,
    /// The forms that answers were held to.
    pub forms: Mutex<Vec<AnswerForm>>,
    /// The words of all answers: the vocabulary of tokens that are generated.
    words: Mutex<Vec<String>>,
}

impl Control {
    /// Lets generations that wait go on.
    #[allow(dead_code, reason = "the example has no use for it")]
    pub fn release(&self) {
        self.released.store(true, Ordering::SeqCst);
    }

    /// The token of a word.
    fn token(&self, word: &str) -> TokenId {
        let mut words = self.words.lock().unwrap();
        let known = words.iter().position(|known| known == word);
        let index = known.unwrap_or_else(|| {
            words.push(word.to_owned());
            words.len() - 1
        });
        TokenId(index as u32)
    }
}

impl FakeModel {
    /// A model and its control.
    pub fn new() -> (Self, Arc<Control>) {
        let control = Arc::new(Control::default());
        let model = FakeModel {
            control: control.clone(),
            admitted: None,
            finish: |_| (),
            resources: Resources::default(),
        };
        (model, control)
    }

    /// Waits to be released; returns whether the generation was cancelled instead.
    fn wait(&self, request: &Request, mut sign_of_life: impl FnMut()) -> bool {
        while !self.control.released.load(Ordering::SeqCst) {
            if request.cancel.is_cancelled() {
                return true;
            }
            sign_of_life();
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }

    fn script(
        &self,
        request: &Request,
        command: &str,
        answer: &mut Answer<'_, '_>,
    ) -> Result<FinishReason, ModelError> {
        match command {
            "fail" => return Err(ModelError::Failed("the fake model failed".into())),
            "panic" => panic!("the fake model panics, as it was told to"),
            "wait" | "silent" => {
                let total = request.prompt.len();
                let sign = || {
                    if command == "wait" {
                        (answer.on_event)(Event::Prefill { done: 1, total });
                    }
                };
                if self.wait(request, sign) {
                    return Ok(FinishReason::Cancelled);
                }
                return Ok(answer.words("done"));
            }
            "forever" => {
                while !request.cancel.is_cancelled() {
                    if let Some(reason) = answer.word("x ") {
                        return Ok(reason);
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
                return Ok(FinishReason::Cancelled);
            }
            _ => {}
        }
        (answer.on_event)(Event::Prefill {
            done: request.prompt.len(),
            total: request.prompt.len(),
        });
        if let Some((words, last)) = command.strip_prefix("hold ").and_then(|w| w.rsplit_once(' '))
        {
            answer.words(words);
            return Ok(match self.wait(request, || {}) {
                true => FinishReason::Cancelled,
                false => answer.words(last),
            });
        }
        match command {
            "fail late" => {
                answer.word("well ");
                Err(ModelError::Failed("the fake model failed late".into()))
            }
            "panic late" => {
                answer.word("well ");
                panic!("the fake model panics late, as it was told to")
            }
            _ => Ok(answer.words(command.strip_prefix("say ").unwrap_or(command))),
        }
    }
}

impl TextModel for FakeModel {
    fn info(&self) -> ModelInfo {
        ModelInfo { id: "lithos/fake".into(), context: CONTEXT, created: Some(1_700_000_000) }
    }

    fn prompts(&self) -> Result<Box<dyn Prompts>, ModelError> {
        Ok(Box::new(FakePrompts { control: self.control.clone() }))
    }

    fn admit(&mut self, request: Request) -> Result<GenerationId, ModelError> {
        self.admitted = Some(request);
        Ok(GenerationId(0))
    }

    fn step(&mut self, on_event: &mut dyn FnMut(GenerationId, Event<'_>)) -> Vec<Ended> {
        let Some(request) = self.admitted.take() else { return Vec::new() };
        let id = GenerationId(0);
        let mut completion = self.answer(&request, &mut |event| on_event(id, event));
        if let Ok(completion) = &mut completion {
            (self.finish)(completion);
        }
        vec![(id, completion)]
    }

    fn abandon(&mut self) {
        self.admitted = None;
        self.control.abandoned.fetch_add(1, Ordering::SeqCst);
    }

    fn default_sampling(&self) -> Sampling {
        Sampling { temperature: 0.7, top_k: 20, ..Sampling::greedy() }
    }

    fn resources(&self) -> Resources {
        self.resources
    }
}

impl FakeModel {
    fn answer(
        &self,
        request: &Request,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Completion, ModelError> {
        self.control.begun.fetch_add(1, Ordering::SeqCst);
        self.control.requests.lock().unwrap().push(request.clone());
        let prompt_tokens = request.prompt.len();
        if prompt_tokens >= CONTEXT {
            return Err(ModelError::ContextTooLong { prompt_tokens, context: CONTEXT });
        }
        let command: String = request
            .prompt
            .iter()
            .filter(|token| **token != THINK)
            .filter_map(|token| char::from_u32(token.0))
            .collect();
        let mut answer = Answer {
            control: &self.control,
            on_event,
            stops: StopTexts::new(&request.stop),
            limit: request.max_tokens.unwrap_or(CONTEXT - prompt_tokens),
            text: String::new(),
            tokens: Vec::new(),
        };
        let finish = self.script(request, &command, &mut answer)?;
        if finish == FinishReason::Cancelled {
            self.control.cancelled.fetch_add(1, Ordering::SeqCst);
        }
        answer.flush();
        Ok(Completion {
            tokens: answer.tokens,
            text: answer.text,
            finish,
            prompt_tokens,
            reused_tokens: 0,
            timings: Timings::default(),
            speculation: None,
        })
    }
}

struct FakePrompts {
    control: Arc<Control>,
}

impl Prompts for FakePrompts {
    fn encode_chat(&self, conversation: &Conversation) -> Result<Vec<TokenId>, ModelError> {
        let Conversation { messages, tools, template_variables } = conversation.clone();
        let last = messages.as_array().and_then(|messages| messages.last());
        let text = last.and_then(|message| message["content"].as_str()).unwrap_or("").to_owned();
        let thinks = template_variables.get("enable_thinking") == Some(&Value::Bool(true));
        self.control.conversations.lock().unwrap().push((messages, template_variables));
        self.control.tools.lock().unwrap().push(tools);
        match text.as_str() {
            "refuse" => Err(ModelError::Refused("the fake template refuses".into())),
            "panic in the template" => panic!("the fake template panics, as it was told to"),
            _ => {
                let mut prompt: Vec<TokenId> =
                    text.chars().map(|character| TokenId(character.into())).collect();
                if thinks {
                    prompt.push(THINK);
                }
                Ok(prompt)
            }
        }
    }

    fn encode_text(&self, text: &str) -> Result<Vec<TokenId>, ModelError> {
        Ok(text.chars().map(|character| TokenId(character.into())).collect())
    }

    fn opens_thought(&self, prompt: &[TokenId]) -> bool {
        prompt.last() == Some(&THINK)
    }

    fn call_syntax(&self) -> CallSyntax {
        CallSyntax::QwenXml
    }

    fn constraint(&self, form: &AnswerForm) -> Result<Constraint, ModelError> {
        self.control.forms.lock().unwrap().push(form.clone());
        let form = match form.kind.clone() {
            FormKind::JsonSchema(schema) => Form::JsonSchema(schema),
            FormKind::JsonObject => Form::JsonObject,
            FormKind::Regex(pattern) => Form::Regex(pattern),
            FormKind::Lark(grammar) => Form::Lark(grammar),
        };
        // Whatever the vocabulary: the fake model looks at no constraint.
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/lithos-mini/tokenizer.json");
        let tokenizer = Tokenizer::from_file(file.as_ref()).expect("the tokenizer loads");
        let size = tokenizer.vocabulary_size();
        let grammars = Grammars::new(tokenizer, size, vec![TokenId(0)]);
        grammars.compile(&form).map_err(|error| ModelError::Refused(error.to_string()))
    }

    fn text(&self, tokens: &[TokenId]) -> String {
        let words = self.control.words.lock().unwrap();
        tokens.iter().map(|token| words[token.index()].as_str()).collect()
    }
}

struct Answer<'a, 'e> {
    control: &'a Control,
    on_event: &'a mut (dyn FnMut(Event<'_>) + 'e),
    stops: StopTexts,
    limit: usize,
    text: String,
    tokens: Vec<TokenId>,
}

impl Answer<'_, '_> {
    /// Gives out one word; returns why the answer ends with it, if it does.
    fn word(&mut self, word: &str) -> Option<FinishReason> {
        self.tokens.push(self.control.token(word));
        let (certain, stopped) = self.stops.push(word);
        self.text.push_str(&certain);
        (self.on_event)(Event::Text(&certain));
        match (stopped, self.tokens.len() >= self.limit) {
            (true, _) => Some(FinishReason::Stop),
            (_, true) => Some(FinishReason::Length),
            _ => None,
        }
    }

    fn words(&mut self, text: &str) -> FinishReason {
        for word in text.split_inclusive(' ') {
            if let Some(reason) = self.word(word) {
                return reason;
            }
        }
        FinishReason::Stop
    }

    fn flush(&mut self) {
        let held = self.stops.finish();
        self.text.push_str(&held);
        (self.on_event)(Event::Text(&held));
    }
}
