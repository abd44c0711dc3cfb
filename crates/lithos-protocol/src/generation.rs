//! What a request asks of the model, whatever its dialect.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::conversation::Conversation;
use crate::error::ApiError;
use crate::fields::{Fields, kind, wrong_type};
use crate::form::{AnswerForm, FormKind, read_structured};
use crate::thinking::Thinking;
use crate::tools::{CallSyntax, Calls, Offer, grammar};

const MOST_STOP_TEXTS: usize = 16;
const LONGEST_STOP_TEXT: usize = 4096;
const MOST_BIASES: usize = 4096;

/// A generation as asked for, checked. Numbers that the client left out are `None`: the model's own defaults apply.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// What the prompt is made of.
    pub conversation: Conversation,
    /// The calls that the answer may hold.
    pub calls: Calls,
    /// The form that is prescribed for the answer.
    pub form: Option<AnswerForm>,
    /// Tokens to generate at most.
    pub max_tokens: Option<usize>,
    /// 0 to 2.
    pub temperature: Option<f32>,
    /// 0 to 1.
    pub top_p: Option<f32>,
    /// 0 for all.
    pub top_k: Option<usize>,
    /// 0 to 1.
    pub min_p: Option<f32>,
    /// 0.01 to 100.
    pub repetition_penalty: Option<f32>,
    /// -2 to 2.
    pub presence_penalty: Option<f32>,
    /// -2 to 2.
    pub frequency_penalty: Option<f32>,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<LogitBias>,
    /// Repeats the same draws.
    pub seed: Option<u64>,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// Go on past end-of-text tokens.
    pub ignore_end: bool,
}

/// A token and what is added to its logit, -100 to 100.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogitBias {
    /// The token's number in the vocabulary.
    pub token: u32,
    /// The bias.
    pub bias: f32,
}

/// What a dialect calls the fields that others have under another name.
pub(crate) struct FieldNames {
    /// The limit of tokens; of several the last one wins.
    pub(crate) max_tokens: &'static [&'static str],
    /// The texts that end the answer.
    pub(crate) stop: &'static str,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl Generation {
    /// Takes the fields that all dialects share, besides the messages and what is said about thinking and tools. Fields that other
    /// local servers added are read in every dialect: `top_k`, `min_p`, the penalties, `logit_bias`, `seed`, `ignore_eos` and
    /// `chat_template_kwargs`.
    pub(crate) fn read(
        fields: &mut Fields,
        names: &FieldNames,
        messages: Value,
        thinking: &Thinking,
        offer: Offer,
        form: Option<AnswerForm>,
    ) -> Result<Self, ApiError> {
        let form = read_structured(fields, form)?;
        let held_to = match (&offer.calls, &form) {
            (calls, _) if calls.forced() => Some("tool_choice"),
            (calls, Some(form)) if calls.tools.is_some() && form.kind.schema().is_none() => {
                let message = format!(
                    "{} leaves no place for calls: leave out the tools, or choose none",
                    form.param
                );
                return Err(ApiError::invalid(form.param, message));
            }
            (_, form) => form.as_ref().map(|form| form.param),
        };
        let mut variables = template_variables(fields, thinking)?;
        if let Some(param) = held_to {
            without_thinking(&mut variables, param)?;
        }
        Ok(Generation {
            conversation: Conversation {
                messages,
                tools: offer.list,
                template_variables: variables,
            },
            calls: offer.calls,
            form,
            max_tokens: max_tokens(fields, names.max_tokens)?,
            temperature: fields.number("temperature", 0.0, 2.0)?,
            top_p: fields.number("top_p", 0.0, 1.0)?,
            top_k: top_k(fields)?,
            min_p: fields.number("min_p", 0.0, 1.0)?,
            repetition_penalty: fields.number("repetition_penalty", 0.01, 100.0)?,
            presence_penalty: fields.number("presence_penalty", -2.0, 2.0)?,
            frequency_penalty: fields.number("frequency_penalty", -2.0, 2.0)?,
            logit_bias: logit_bias(fields)?,
            // Negative seeds are as good as others: only the bits count.
            seed: fields.take::<i64>("seed", "a whole number")?.map(i64::cast_unsigned),
            stop: stop(fields, names.stop)?,
            ignore_end: fields.take("ignore_eos", "true or false")?.unwrap_or(false),
        })
    }
}

impl Generation {
    /// What the answer is held to, if to anything, by a model that was taught to call in this form: calls that are forced, or the form that
    /// was prescribed, or that form or calls where both are possible.
    pub fn held_to(&self, syntax: CallSyntax) -> Option<AnswerForm> {
        let lark = |json: Option<&Value>, param| {
            let kind = FormKind::Lark(grammar(&self.calls, json, syntax));
            Some(AnswerForm { kind, param })
        };
        match &self.form {
            _ if self.calls.forced() => lark(None, "tools"),
            Some(form) if self.calls.tools.is_some() => {
                lark(form.kind.schema().as_ref(), form.param)
            }
            form => form.clone(),
        }
    }
}

/// Turns thinking off, since an answer of a given form has no place for it.
fn without_thinking(variables: &mut Map<String, Value>, param: &str) -> Result<(), ApiError> {
    if variables.insert("enable_thinking".into(), false.into()) == Some(true.into()) {
        let message = format!("{param} leaves no place for thoughts: turn thinking off");
        return Err(ApiError::invalid(param, message));
    }
    Ok(())
}

fn max_tokens(fields: &mut Fields, names: &[&str]) -> Result<Option<usize>, ApiError> {
    let mut limit = None;
    for name in names {
        let value: Option<usize> = fields.take(name, "a whole number of at least 1")?;
        if value == Some(0) {
            return Err(ApiError::invalid(*name, format!("{name} is 0: it must be at least 1")));
        }
        limit = value.or(limit);
    }
    Ok(limit)
}

fn top_k(fields: &mut Fields) -> Result<Option<usize>, ApiError> {
    // Others write -1 for "all".
    let top_k: Option<i64> = fields.take("top_k", "a whole number")?;
    match top_k {
        Some(value) if value < -1 => {
            let message = format!("top_k is {value}: it must be at least 0, or -1 for all tokens");
            Err(ApiError::invalid("top_k", message))
        }
        Some(value) => Ok(Some(usize::try_from(value).unwrap_or(0))),
        None => Ok(None),
    }
}

fn logit_bias(fields: &mut Fields) -> Result<Vec<LogitBias>, ApiError> {
    let entries: Option<Map<String, Value>> =
        fields.take("logit_bias", "an object of token numbers and biases")?;
    let entries = entries.unwrap_or_default();
    if entries.len() > MOST_BIASES {
        let message =
            format!("logit_bias has {} tokens: at most {MOST_BIASES} are allowed", entries.len());
        return Err(ApiError::invalid("logit_bias", message));
    }
    let read = |(key, value): (String, Value)| {
        let token: Option<u32> = key.parse().ok();
        let bias = value.as_f64().filter(|bias| (-100.0..=100.0).contains(bias));
        match (token, bias) {
            (Some(token), Some(bias)) => Ok(LogitBias { token, bias: bias as f32 }),
            (None, _) => Err(ApiError::invalid(
                "logit_bias",
                "logit_bias has a key that is no token number: keys must be token ids, such as \"50256\"",
            )),
            (_, None) => Err(ApiError::invalid(
                "logit_bias",
                format!("logit_bias of token {key} must be a number between -100 and 100"),
            )),
        }
    };
    entries.into_iter().map(read).collect()
}

fn stop(fields: &mut Fields, name: &str) -> Result<Vec<String>, ApiError> {
    let stop: Option<OneOrMore> = fields.take(name, "a text or a list of texts")?;
    let mut stop = match stop {
        None => Vec::new(),
        Some(OneOrMore::One(text)) => vec![text],
        Some(OneOrMore::More(texts)) => texts,
    };
    if stop.len() > MOST_STOP_TEXTS {
        let message =
            format!("{name} has {} texts: at most {MOST_STOP_TEXTS} are allowed", stop.len());
        return Err(ApiError::invalid(name, message));
    }
    if stop.iter().any(|text| text.len() > LONGEST_STOP_TEXT) {
        let message = format!("{name} has a text of more than {LONGEST_STOP_TEXT} bytes");
        return Err(ApiError::invalid(name, message));
    }
    // Nothing ends at an empty text.
    stop.retain(|text| !text.is_empty());
    Ok(stop)
}

fn template_variables(
    fields: &mut Fields,
    thinking: &Thinking,
) -> Result<Map<String, Value>, ApiError> {
    let name = "chat_template_kwargs";
    let mut variables: Map<String, Value> = fields.take(name, "an object")?.unwrap_or_default();
    for reserved in ["messages", "tools", "add_generation_prompt"] {
        if variables.contains_key(reserved) {
            let param = format!("{name}.{reserved}");
            let message = format!("{param} is not allowed: the server sets this variable itself");
            return Err(ApiError::invalid(param, message));
        }
    }
    if let Some(enabled) = thinking.switch() {
        variables.entry("enable_thinking").or_insert(enabled.into());
    }
    if let Some(effort) = &thinking.effort {
        variables.entry("reasoning_effort").or_insert(effort.as_str().into());
    }
    let switch = variables.get("enable_thinking");
    if let Some(value) = switch.filter(|value| !value.is_boolean()) {
        return Err(wrong_type(format!("{name}.enable_thinking"), "true or false", kind(value)));
    }
    Ok(variables)
}
