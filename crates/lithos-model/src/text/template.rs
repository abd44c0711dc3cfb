//! Chat templates: Jinja programs that write a conversation as the text on which a model was trained.

use std::fmt;
use std::time::SystemTime;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind};
use serde_json::{Map, Value};

use super::template_json::to_json;
use super::template_time::format_time;

/// Why a template could not be read or did not write a prompt.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The template is not one that can be run.
    #[error("the chat template cannot be used: {cause}")]
    Invalid {
        /// What is wrong, with its line.
        cause: String,
    },
    /// The template itself refused the conversation, with `raise_exception`.
    #[error("the chat template refuses this conversation: {reason}")]
    Refused {
        /// What the template says.
        reason: String,
    },
    /// The template failed on this conversation.
    #[error("the chat template fails on this conversation: {cause}")]
    Failed {
        /// What went wrong, with its line.
        cause: String,
    },
}

/// The special tokens that templates write by name, such as `{{ bos_token }}`, as they are spelled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateTokens {
    /// `bos_token`: begins a document.
    pub bos: Option<String>,
    /// `eos_token`: ends a document or a turn.
    pub eos: Option<String>,
    /// `unk_token`: stands for what the vocabulary cannot express.
    pub unknown: Option<String>,
    /// `pad_token`: fills up a batch.
    pub padding: Option<String>,
}

/// What a template is asked for, besides the conversation.
#[derive(Clone, Debug, Default)]
pub struct TemplateOptions {
    /// End the prompt where the assistant's answer begins.
    pub add_generation_prompt: bool,
    /// Ask a model that can reason to do so or not; `None` leaves the template's own default.
    pub enable_thinking: Option<bool>,
    /// Further variables of the template, by name: `reasoning_effort`, `documents`.
    pub extra: Map<String, Value>,
    /// The time that `strftime_now` tells, in UTC; `None` is the current time.
    pub now: Option<SystemTime>,
}

/// A chat template with the meaning that Hugging Face transformers gives it (`apply_chat_template`).
///
/// Beyond plain Jinja: `raise_exception`, `strftime_now`, `tojson` as Python's `json.dumps`, `break` and `continue`,
/// Python's methods of text, lists and dictionaries, and the `generation` block, which only marks text for training.
#[derive(Clone)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    tokens: TemplateTokens,
}

const NAME: &str = "chat_template";

/// Bounds the work of one rendering, so that a template that never ends is an error: about one unit for each
/// instruction and for 64 bytes of text made. A conversation that fills a context of 10^6 tokens needs a small part.
const FUEL: u64 = 20_000_000;

/// Carries the message of `raise_exception` through the template engine.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

impl ChatTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// [`TemplateError::Invalid`] if it is not valid Jinja.
    pub fn new(source: &str, tokens: TemplateTokens) -> Result<Self, TemplateError> {
        let invalid = |error: Error| TemplateError::Invalid { cause: one_line(&error) };
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(invalid)?;
        environment.set_syntax(syntax);
        environment.set_fuel(Some(FUEL));
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", to_json);
        environment.add_function("raise_exception", raise_exception);
        environment.add_test("sequence", is_python_sequence);
        environment.add_template_owned(NAME, without_generation_blocks(source)).map_err(invalid)?;
        Ok(Self { environment, source: source.to_owned(), tokens })
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the template has a place for tools. Templates without one pass over them in silence.
    pub fn takes_tools(&self) -> bool {
        let template = self.environment.get_template(NAME);
        template.is_ok_and(|template| template.undeclared_variables(false).contains("tools"))
    }

    /// Writes a conversation as the model's prompt. `messages` is a list of objects with `role`, `content` and what
    /// else the template knows (`tool_calls`, `reasoning_content`); `tools` is a list of function descriptions.
    ///
    /// # Errors
    /// [`TemplateError::Refused`] if the template rejects the conversation, [`TemplateError::Failed`] if it fails.
    pub fn render(
        &self,
        messages: &Value,
        tools: Option<&Value>,
        options: &TemplateOptions,
    ) -> Result<String, TemplateError> {
        let template = self.environment.get_template(NAME).map_err(failure)?;
        template.render(self.context(messages, tools, options)).map_err(failure)
    }

    fn context(
        &self,
        messages: &Value,
        tools: Option<&Value>,
        options: &TemplateOptions,
    ) -> minijinja::Value {
        let mut variables = vec![
            ("messages", template_value(messages)),
            ("tools", tools.map_or(().into(), template_value)),
            ("documents", ().into()),
            ("add_generation_prompt", options.add_generation_prompt.into()),
        ];
        if let Some(thinking) = options.enable_thinking {
            variables.push(("enable_thinking", thinking.into()));
        }
        let tokens = &self.tokens;
        for (name, token) in [
            ("bos_token", &tokens.bos),
            ("eos_token", &tokens.eos),
            ("unk_token", &tokens.unknown),
            ("pad_token", &tokens.padding),
        ] {
            if let Some(token) = token {
                variables.push((name, token.as_str().into()));
            }
        }
        let now = options.now;
        let strftime_now = move |format: &str| {
            format_time(now.unwrap_or_else(SystemTime::now), format)
                .map_err(|cause| Error::new(ErrorKind::InvalidOperation, cause))
        };
        variables.push(("strftime_now", minijinja::Value::from_function(strftime_now)));
        let extra =
            options.extra.iter().map(|(name, value)| (name.as_str(), template_value(value)));
        minijinja::Value::from_pairs(variables.into_iter().chain(extra))
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate")
            .field("source", &self.source)
            .field("tokens", &self.tokens)
            .finish_non_exhaustive()
    }
}

/// JSON as the template engine holds it; the order of keys is kept.
fn template_value(json: &Value) -> minijinja::Value {
    match json {
        Value::Null => ().into(),
        Value::Bool(value) => (*value).into(),
        Value::Number(number) => {
            if let Some(integer) = number.as_i64() {
                integer.into()
            } else if let Some(integer) = number.as_u64() {
                integer.into()
            } else {
                number.as_f64().unwrap_or(f64::NAN).into()
            }
        }
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => items.iter().map(template_value).collect(),
        Value::Object(entries) => {
            let pairs = entries.iter().map(|(key, item)| (key.as_str(), template_value(item)));
            minijinja::Value::from_pairs(pairs)
        }
    }
}

fn raise_exception(arguments: Rest<minijinja::Value>) -> Result<minijinja::Value, Error> {
    let reason = arguments.first().map(ToString::to_string).unwrap_or_default();
    let error = Error::new(ErrorKind::InvalidOperation, reason.clone());
    Err(error.with_source(Raised(reason)))
}

/// Jinja's `sequence` test: in Python texts and dictionaries pass it too, since they have a length and items.
fn is_python_sequence(value: &minijinja::Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map)
}

fn failure(error: Error) -> TemplateError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(source) = cause {
        if let Some(Raised(reason)) = source.downcast_ref() {
            return TemplateError::Refused { reason: one_line(reason) };
        }
        cause = source.source();
    }
    TemplateError::Failed { cause: one_line(&error) }
}

fn one_line(text: &dyn fmt::Display) -> String {
    text.to_string().replace(['\n', '\r'], " ")
}

/// Turns `{% generation %}` … `{% endgeneration %}` into a block that always holds. Transformers adds this tag to mark
/// what the assistant wrote; it does not change the text.
fn without_generation_blocks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let (before, tag) = rest.split_at(open + 2);
        out.push_str(before);
        let inner = tag.trim_start_matches(['-', '+']);
        let name_at = tag.len() - inner.trim_start().len();
        let (lead, named) = tag.split_at(name_at);
        let name_end =
            named.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(named.len());
        let (name, after) = named.split_at(name_end);
        let closes = after.trim_start().trim_start_matches(['-', '+']).starts_with("%}");
        out.push_str(lead);
        out.push_str(match name {
            "generation" if closes => "if true",
            "endgeneration" if closes => "endif",
            other => other,
        });
        rest = after;
    }
    out.push_str(rest);
    out
}
