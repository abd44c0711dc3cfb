//! The functions on offer.

use serde_json::{Map, Value};

/// The functions on offer: their names and the JSON schemas of their parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tools(Map<String, Value>);

impl Tools {
    /// Reads a list of functions as chat templates take it: objects with a `function` that has a `name` and, unless it takes
    /// no arguments, `parameters`. What is no such object is passed over.
    pub fn of_list(list: &Value) -> Self {
        let functions = list.as_array().into_iter().flatten().filter_map(|tool| {
            let function = tool.get("function")?;
            let name = function.get("name")?.as_str()?.to_owned();
            Some((name, function.get("parameters").cloned().unwrap_or_default()))
        });
        Tools(functions.collect())
    }

    /// Names and schemas of parameters, in the order of the offer.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, parameters)| (name.as_str(), parameters))
    }

    /// The schema of a function's parameters, `null` if there is none; `None` for a function that is not on offer.
    pub(super) fn parameters(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }
}

/// The schema of one parameter, if its function's schema has it.
pub(super) fn parameter<'a>(parameters: &'a Value, name: &str) -> Option<&'a Value> {
    parameters.get("properties")?.get(name)
}

/// Whether a function cannot do without a parameter.
pub(super) fn is_required(parameters: &Value, name: &str) -> bool {
    let required = parameters.get("required").and_then(Value::as_array);
    required.is_some_and(|names| names.iter().any(|required| required == name))
}
