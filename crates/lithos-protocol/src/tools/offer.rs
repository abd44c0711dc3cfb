//! What a request says about calls: the functions on offer, and which of them may or must be called.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::definitions::Tools;
use crate::error::ApiError;
use crate::fields::{kind, wrong_type};
use crate::refusal::refused;

/// Which functions a model may or must call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// As it likes.
    #[default]
    Auto,
    /// None. The functions are still part of the prompt, so that the choice does not change its beginning.
    None,
    /// Any one, but one.
    Required,
    /// This one.
    Named(String),
}

impl ToolChoice {
    /// Reads OpenAI's `tool_choice`. `name_of` finds the name of the tool that an object chooses: `None` if this kind of choice is not
    /// known, `Some(None)` if it is and has no name.
    pub(crate) fn read(
        choice: Option<Value>,
        name_of: impl FnOnce(&Map<String, Value>) -> Option<Option<String>>,
    ) -> Result<Self, ApiError> {
        let unknown = || {
            let message = "tool_choice must be auto, none, required or a function";
            ApiError::invalid("tool_choice", message)
        };
        match &choice {
            None => Ok(ToolChoice::Auto),
            Some(Value::String(choice)) => match choice.as_str() {
                "auto" => Ok(ToolChoice::Auto),
                "none" => Ok(ToolChoice::None),
                "required" => Ok(ToolChoice::Required),
                _ => Err(unknown()),
            },
            Some(Value::Object(named)) => match name_of(named) {
                Some(name) => Ok(ToolChoice::Named(name.ok_or_else(unknown)?)),
                None => Err(refused("tool_choice", "this kind of choice is not known")),
            },
            Some(other) => {
                Err(wrong_type("tool_choice".into(), "a text or an object", kind(other)))
            }
        }
    }
}

impl Calls {
    /// Whether the answer must be a call.
    pub fn forced(&self) -> bool {
        matches!(self.choice, ToolChoice::Required | ToolChoice::Named(_))
    }
}

/// The calls that an answer may hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls {
    /// The functions that may be called; `None` for none.
    pub tools: Option<Tools>,
    /// What is asked of the model.
    pub choice: ToolChoice,
    /// At most one call in one answer.
    pub one_only: bool,
}

/// What a request puts on offer.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Offer {
    /// The functions as chat templates take them.
    pub(crate) list: Option<Value>,
    /// The calls that the answer may hold.
    pub(crate) calls: Calls,
}

/// Puts an offer together, function by function.
#[derive(Debug, Default)]
pub(crate) struct OfferBuilder {
    list: Vec<Value>,
    deferred: Vec<Value>,
    /// Of the deferred functions, those that the conversation refers to.
    referenced: Vec<Value>,
    names: HashSet<String>,
}

impl OfferBuilder {
    /// Adds a function in the form of chat templates, whose name came from `param`.
    pub(crate) fn add(&mut self, function: Value, param: &str) -> Result<(), ApiError> {
        self.check_name(&function, param)?;
        self.list.push(function);
        Ok(())
    }

    /// Adds a function that is not part of the prompt until the conversation refers to it.
    pub(crate) fn defer(&mut self, function: Value, param: &str) -> Result<(), ApiError> {
        self.check_name(&function, param)?;
        self.deferred.push(function);
        Ok(())
    }

    /// The text that stands where the conversation refers to a function: its definition if it was deferred. There it changes
    /// nothing in front of it, as an entry in the list of functions would.
    pub(crate) fn refer_to(&mut self, name: &str) -> String {
        let deferred = self.deferred.iter().position(|tool| tool["function"]["name"] == name);
        match deferred.map(|index| self.deferred.remove(index)) {
            Some(function) => {
                let text = function.to_string();
                self.referenced.push(function);
                text
            }
            None => name.to_owned(),
        }
    }

    /// The offer.
    pub(crate) fn finish(self, choice: ToolChoice, one_only: bool) -> Result<Offer, ApiError> {
        let all: Value = self.list.iter().chain(&self.referenced).cloned().collect();
        let callable = choice != ToolChoice::None && !all.as_array().is_none_or(Vec::is_empty);
        let tools = callable.then(|| Tools::of_list(&all));
        check_choice(&choice, tools.as_ref())?;
        let list = (!self.list.is_empty()).then_some(Value::Array(self.list));
        Ok(Offer { list, calls: Calls { tools, choice, one_only } })
    }

    fn check_name(&mut self, function: &Value, param: &str) -> Result<(), ApiError> {
        let name = function["function"]["name"].as_str().unwrap_or("");
        let letter = |c: char| c.is_ascii_alphanumeric() || "_-.:/".contains(c);
        if name.is_empty() || name.len() > 128 || !name.chars().all(letter) {
            let message = format!("{param} must be 1 to 128 letters, digits or any of _ - . : /");
            return Err(ApiError::invalid(param, message));
        }
        if !self.names.insert(name.to_owned()) {
            let message = format!("{param} is the name of another function, too");
            return Err(ApiError::invalid(param, message));
        }
        Ok(())
    }
}

/// A call can be forced only if it can be made.
fn check_choice(choice: &ToolChoice, tools: Option<&Tools>) -> Result<(), ApiError> {
    let message = match (choice, tools) {
        (ToolChoice::Required | ToolChoice::Named(_), None) => {
            "tool_choice asks for a call, and there are no tools to call".to_owned()
        }
        (ToolChoice::Named(name), Some(tools)) if tools.parameters(name).is_none() => {
            format!("tool_choice names '{name}', which is none of the tools")
        }
        _ => return Ok(()),
    };
    Err(ApiError::invalid("tool_choice", message))
}

/// A function in the form of chat templates, from its parts.
pub(crate) fn function(name: &str, description: Option<String>, parameters: Value) -> Value {
    let mut function = json!({ "name": name });
    if let Some(description) = description {
        function["description"] = description.into();
    }
    function["parameters"] = parameters;
    json!({"type": "function", "function": function})
}

/// A schema of parameters, or that of none.
pub(crate) fn parameters(schema: Option<Value>, path: &str) -> Result<Value, ApiError> {
    match schema {
        None => Ok(json!({"type": "object", "properties": {}})),
        Some(schema) => object(&schema, path.to_owned()).map(|_| ()).map(|()| schema),
    }
}

/// A value that must be an object.
pub(crate) fn object(value: &Value, path: String) -> Result<&Map<String, Value>, ApiError> {
    value.as_object().ok_or_else(|| wrong_type(path, "an object", kind(value)))
}
