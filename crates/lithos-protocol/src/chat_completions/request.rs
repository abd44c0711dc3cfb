//! What a client asks for.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::messages::read_messages;
use super::refused::refuse_unsupported;
use crate::error::ApiError;
use crate::fields::Fields;

const MOST_STOP_TEXTS: usize = 16;
const LONGEST_STOP_TEXT: usize = 4096;
const MOST_BIASES: usize = 4096;

/// A request, checked. Numbers that the client left out are `None`: the model's own defaults apply.
///
/// Besides OpenAI's fields it reads those that other local servers added: `top_k`, `min_p`, `repetition_penalty`,
/// `ignore_eos`, `enable_thinking` and `chat_template_kwargs`. Fields that cannot change the answer are ignored.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    /// The model asked for; empty if the client named none.
    pub model: String,
    /// The conversation as chat templates take it: a list of objects with `role` and a text as `content`.
    pub messages: Value,
    /// Variables for the chat template.
    pub template_variables: Map<String, Value>,
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
    /// Answer as a stream of events.
    pub stream: bool,
    /// End the stream with the counts of tokens.
    pub include_usage: bool,
}

/// A token and what is added to its logit, -100 to 100.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogitBias {
    /// The token's number in the vocabulary.
    pub token: u32,
    /// The bias.
    pub bias: f32,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl ChatRequest {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// 400 if it is no JSON, if a field has the wrong type or is out of range, or if it asks for something that is not
    /// there and whose absence would change the answer. The error names the field.
    pub fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let value: Value = serde_json::from_slice(body).map_err(|error| {
            let message = format!(
                "the body is not valid JSON: line {}, column {}",
                error.line(),
                error.column()
            );
            ApiError::bad_request(message).with_code("invalid_json")
        })?;
        let mut fields = Fields::new(value, "")?;
        refuse_unsupported(&mut fields)?;
        let (stream, include_usage) = streaming(&mut fields)?;
        Ok(ChatRequest {
            model: fields.take("model", "a text")?.unwrap_or_default(),
            messages: messages(&mut fields)?,
            template_variables: template_variables(&mut fields)?,
            max_tokens: max_tokens(&mut fields)?,
            temperature: fields.number("temperature", 0.0, 2.0)?,
            top_p: fields.number("top_p", 0.0, 1.0)?,
            top_k: top_k(&mut fields)?,
            min_p: fields.number("min_p", 0.0, 1.0)?,
            repetition_penalty: fields.number("repetition_penalty", 0.01, 100.0)?,
            presence_penalty: fields.number("presence_penalty", -2.0, 2.0)?,
            frequency_penalty: fields.number("frequency_penalty", -2.0, 2.0)?,
            logit_bias: logit_bias(&mut fields)?,
            // Negative seeds are as good as others: only the bits count.
            seed: fields.take::<i64>("seed", "a whole number")?.map(i64::cast_unsigned),
            stop: stop(&mut fields)?,
            ignore_end: fields.take("ignore_eos", "true or false")?.unwrap_or(false),
            stream,
            include_usage,
        })
    }
}

fn messages(fields: &mut Fields) -> Result<Value, ApiError> {
    let missing = || {
        ApiError::bad_request("messages is missing: it must be a list with at least one message")
            .with_param("messages")
            .with_code("missing_required_parameter")
    };
    read_messages(fields.value("messages").ok_or_else(missing)?)
}

fn streaming(fields: &mut Fields) -> Result<(bool, bool), ApiError> {
    let stream = fields.take("stream", "true or false")?.unwrap_or(false);
    let Some(options) = fields.value("stream_options") else { return Ok((stream, false)) };
    let mut options = Fields::new(options, "stream_options")?;
    let include_usage = options.take("include_usage", "true or false")?.unwrap_or(false);
    Ok((stream, stream && include_usage))
}

fn max_tokens(fields: &mut Fields) -> Result<Option<usize>, ApiError> {
    // The newer name is read last and wins.
    let mut limit = None;
    for name in ["max_tokens", "max_completion_tokens"] {
        let value: Option<usize> = fields.take(name, "a whole number of at least 1")?;
        if value == Some(0) {
            return Err(ApiError::invalid(name, format!("{name} is 0: it must be at least 1")));
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

fn stop(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let stop: Option<OneOrMore> = fields.take("stop", "a text or a list of texts")?;
    let mut stop = match stop {
        None => Vec::new(),
        Some(OneOrMore::One(text)) => vec![text],
        Some(OneOrMore::More(texts)) => texts,
    };
    if stop.len() > MOST_STOP_TEXTS {
        let message =
            format!("stop has {} texts: at most {MOST_STOP_TEXTS} are allowed", stop.len());
        return Err(ApiError::invalid("stop", message));
    }
    if stop.iter().any(|text| text.len() > LONGEST_STOP_TEXT) {
        let message = format!("stop has a text of more than {LONGEST_STOP_TEXT} bytes");
        return Err(ApiError::invalid("stop", message));
    }
    // Nothing ends at an empty text.
    stop.retain(|text| !text.is_empty());
    Ok(stop)
}

fn template_variables(fields: &mut Fields) -> Result<Map<String, Value>, ApiError> {
    let name = "chat_template_kwargs";
    let mut variables: Map<String, Value> = fields.take(name, "an object")?.unwrap_or_default();
    for reserved in ["messages", "tools", "add_generation_prompt"] {
        if variables.contains_key(reserved) {
            let param = format!("{name}.{reserved}");
            let message = format!("{param} is not allowed: the server sets this variable itself");
            return Err(ApiError::invalid(param, message));
        }
    }
    let thinking: Option<bool> = fields.take("enable_thinking", "true or false")?;
    let effort: Option<String> = fields.take("reasoning_effort", "a text")?;
    let thinking = thinking.or((effort.as_deref() == Some("none")).then_some(false));
    if let Some(thinking) = thinking {
        variables.entry("enable_thinking").or_insert(thinking.into());
    }
    if let Some(effort) = effort {
        variables.entry("reasoning_effort").or_insert(effort.into());
    }
    let switch = &variables.get("enable_thinking");
    if let Some(value) = switch.filter(|value| !value.is_boolean()) {
        let param = format!("{name}.enable_thinking");
        return Err(crate::fields::wrong_type(param, "true or false", crate::fields::kind(value)));
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A small request with further fields.
    fn parse(fields: Value) -> Result<ChatRequest, ApiError> {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
        for (name, value) in fields.as_object().unwrap() {
            body[name] = value.clone();
        }
        ChatRequest::parse(body.to_string().as_bytes())
    }

    fn param(fields: Value) -> String {
        let error = parse(fields).unwrap_err();
        assert_eq!(error.status, 400);
        error.param.unwrap()
    }

    #[test]
    fn all_fields_are_read() {
        let request = parse(json!({
            "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1,
            "repetition_penalty": 1.1, "presence_penalty": -1, "frequency_penalty": 2,
            "logit_bias": {"7": -100, "8": 1.5}, "seed": -1, "stop": ["a", "", "b"],
            "ignore_eos": true, "stream": true, "stream_options": {"include_usage": true},
            "n": 1, "user": "someone", "store": false, "metadata": {"any": "thing"}
        }))
        .unwrap();
        assert_eq!(request.messages, json!([{"role": "user", "content": "hi"}]));
        assert_eq!((request.max_tokens, request.top_k), (Some(5), Some(40)));
        assert_eq!((request.temperature, request.top_p), (Some(0.5), Some(0.9)));
        assert_eq!((request.presence_penalty, request.frequency_penalty), (Some(-1.0), Some(2.0)));
        assert_eq!((request.min_p, request.repetition_penalty), (Some(0.1), Some(1.1)));
        let biases: Vec<_> = request.logit_bias.iter().map(|b| (b.token, b.bias)).collect();
        assert_eq!(biases, [(7, -100.0), (8, 1.5)]);
        assert_eq!(request.seed, Some(u64::MAX));
        assert_eq!(request.stop, ["a", "b"]);
        assert!(request.ignore_end && request.stream && request.include_usage);
    }

    #[test]
    fn absent_and_null_fields_leave_the_defaults() {
        let plain = parse(json!({})).unwrap();
        assert_eq!((plain.max_tokens, plain.temperature, plain.seed), (None, None, None));
        assert!(!plain.stream && plain.stop.is_empty() && plain.template_variables.is_empty());
        let nulls = json!({
            "max_tokens": null, "temperature": null, "stop": null, "stream": null, "tools": null,
            "stream_options": null, "logit_bias": null, "response_format": null, "n": null
        });
        assert_eq!(parse(nulls).unwrap(), plain);
    }

    #[test]
    fn variants_of_fields() {
        assert_eq!(parse(json!({"stop": "x"})).unwrap().stop, ["x"]);
        let both = json!({"max_tokens": 3, "max_completion_tokens": 4});
        assert_eq!(parse(both).unwrap().max_tokens, Some(4));
        assert_eq!(parse(json!({"top_k": -1})).unwrap().top_k, Some(0));
        // Usage is only asked for in streams.
        let plain = json!({"stream_options": {"include_usage": true}});
        assert!(!parse(plain).unwrap().include_usage);
    }

    #[test]
    fn values_that_cannot_be_used_name_their_field() {
        for (name, value) in [
            ("temperature", json!("hot")),
            ("temperature", json!(2.1)),
            ("top_p", json!(-0.1)),
            ("top_k", json!(-2)),
            ("max_tokens", json!(0)),
            ("max_completion_tokens", json!(1.5)),
            ("stream", json!("yes")),
            ("stream_options", json!(true)),
            ("seed", json!(0.5)),
            ("stop", json!(7)),
            ("stop", json!(vec!["x"; 17])),
            ("stop", json!("x".repeat(4097))),
            ("logit_bias", json!({"x": 1})),
            ("logit_bias", json!({"1": 101})),
            ("logit_bias", json!([1])),
            ("messages", json!([])),
            ("messages", json!("hi")),
            ("messages", json!(null)),
            ("model", json!(3)),
        ] {
            assert_eq!(param(json!({ name: value.clone() })), name, "{value}");
        }
        assert_eq!(
            param(json!({"stream_options": {"include_usage": 1}})),
            "stream_options.include_usage"
        );
    }

    #[test]
    fn broken_json_says_where() {
        let error = ChatRequest::parse(b"{\"model\":").unwrap_err();
        assert_eq!((error.status, error.code), (400, Some("invalid_json")));
        assert!(error.message.contains("line 1, column 9"));
        assert_eq!(ChatRequest::parse(b"[]").unwrap_err().status, 400);
        // Deep nesting is an error, not a stack overflow.
        assert!(ChatRequest::parse("[".repeat(100_000).as_bytes()).is_err());
    }

    #[test]
    fn thinking_reaches_the_template() {
        let variables = |fields| parse(fields).unwrap().template_variables;
        assert_eq!(variables(json!({"enable_thinking": true}))["enable_thinking"], true);
        let inner = json!({"chat_template_kwargs": {"enable_thinking": false, "x": [1]}, "enable_thinking": true});
        assert_eq!(Value::Object(variables(inner)), json!({"enable_thinking": false, "x": [1]}));
        let none = variables(json!({"reasoning_effort": "none"}));
        assert_eq!(none["enable_thinking"], false);
        assert_eq!(variables(json!({"reasoning_effort": "high"}))["reasoning_effort"], "high");
        let reserved = json!({"chat_template_kwargs": {"messages": []}});
        assert_eq!(param(reserved), "chat_template_kwargs.messages");
        let text = json!({"chat_template_kwargs": {"enable_thinking": "no"}});
        assert_eq!(param(text), "chat_template_kwargs.enable_thinking");
    }
}
