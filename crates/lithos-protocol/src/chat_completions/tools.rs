//! The functions that a request puts on offer, and the calls in its history.

use serde_json::{Map, Value};

use crate::conversation::arguments_as_object;
use crate::error::ApiError;
use crate::fields::{Fields, kind, wrong_type};
use crate::tools::{Offer, OfferBuilder, ToolChoice, object};

/// Reads `tools`, `tool_choice` and `parallel_tool_calls`.
pub(super) fn read_offer(fields: &mut Fields) -> Result<Offer, ApiError> {
    let parallel: Option<bool> = fields.take("parallel_tool_calls", "true or false")?;
    let choice = ToolChoice::read(fields.value("tool_choice"), chosen_function)?;
    let list: Vec<Value> = fields.take("tools", "a list")?.unwrap_or_default();
    let mut offer = OfferBuilder::default();
    for (index, tool) in list.into_iter().enumerate() {
        let path = format!("tools[{index}]");
        check_tool(&tool, &path)?;
        offer.add(tool, &format!("{path}.function.name"))?;
    }
    offer.finish(choice, parallel == Some(false))
}

/// The function that a choice names.
fn chosen_function(choice: &Map<String, Value>) -> Option<Option<String>> {
    let name = || choice.get("function")?["name"].as_str().map(str::to_owned);
    (choice.get("type")? == "function").then(name)
}

/// Checks a function, but for its name.
fn check_tool(tool: &Value, path: &str) -> Result<(), ApiError> {
    let tool = object(tool, path.to_owned())?;
    check_type(tool.get("type"), path, "tool")?;
    let path = format!("{path}.function");
    let function = object(tool.get("function").unwrap_or(&Value::Null), path.clone())?;
    if let Some(parameters) = function.get("parameters").filter(|value| !value.is_null()) {
        object(parameters, format!("{path}.parameters"))?;
    }
    if let Some(description) = function.get("description")
        && !(description.is_string() || description.is_null())
    {
        return Err(wrong_type(format!("{path}.description"), "a text", kind(description)));
    }
    Ok(())
}

/// Reads a call of the history: templates iterate over its arguments, which the API carries as a text.
pub(super) fn read_call(mut call: Value, path: &str) -> Result<Value, ApiError> {
    let entries = object(&call, path.to_owned())?;
    check_type(entries.get("type"), path, "call")?;
    let path = format!("{path}.function");
    let function = object(entries.get("function").unwrap_or(&Value::Null), path.clone())?;
    if !function.get("name").is_some_and(Value::is_string) {
        let message = format!("{path}.name must be a text");
        return Err(ApiError::invalid(format!("{path}.name"), message));
    }
    let arguments = match function.get("arguments") {
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(Value::String(text)) if text.trim().is_empty() => Value::Object(Map::new()),
        Some(Value::String(text)) => arguments_as_object(text),
        Some(other) => other.clone(),
    };
    if !arguments.is_object() {
        let param = format!("{path}.arguments");
        let message = format!("{param} must be a text with a JSON object in it");
        return Err(ApiError::invalid(param, message));
    }
    call["function"]["arguments"] = arguments;
    Ok(call)
}

/// Checks that a tool or a call is one of a function. Calls of the history may leave that out.
fn check_type(kind: Option<&Value>, path: &str, what: &str) -> Result<(), ApiError> {
    match kind.and_then(Value::as_str) {
        Some("function") => Ok(()),
        None if what == "call" && kind.is_none() => Ok(()),
        Some(_) => {
            let param = format!("{path}.type");
            let message = format!("{param} is not supported: the only kind of {what} is function");
            Err(ApiError::unsupported(param, message))
        }
        None => {
            let param = format!("{path}.type");
            Err(ApiError::invalid(param.clone(), format!("{param} must be function")))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::Tools;

    fn read(request: Value) -> Result<Offer, ApiError> {
        read_offer(&mut Fields::new(request, "").unwrap())
    }

    fn function(name: &str) -> Value {
        json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}})
    }

    #[test]
    fn functions_stay_as_they_are_written() {
        let tools = json!([function("b"), {"function": {"name": "a"}, "type": "function", "x": 1}]);
        let offer = read(json!({ "tools": tools })).unwrap();
        assert_eq!(offer.list.as_ref().unwrap().to_string(), tools.to_string());
        assert_eq!(offer.calls.tools, Some(Tools::of_list(&tools)));
        assert!(!offer.calls.one_only);
        for nothing in [json!({}), json!({"tools": []}), json!({"tools": null})] {
            assert_eq!(read(nothing).unwrap(), Offer::default());
        }
    }

    #[test]
    fn ac_25_no_choice_changes_the_prompt() {
        let tools = json!([function("f")]);
        let offer = |choice: &str| read(json!({"tools": tools, "tool_choice": choice})).unwrap();
        assert_eq!(offer("auto"), read(json!({ "tools": tools })).unwrap());
        assert_eq!(offer("none").list, offer("auto").list);
        assert_eq!(offer("none").calls.tools, None);
        let one = read(json!({"tools": tools, "parallel_tool_calls": false})).unwrap();
        assert!(one.calls.one_only);
    }

    #[test]
    fn what_cannot_be_used_names_its_place() {
        let named = json!({"type": "function", "function": {"name": "g"}});
        for (request, param) in [
            (json!({"tools": {}}), "tools"),
            (json!({"tools": [3]}), "tools[0]"),
            (json!({"tools": [function("f"), {"type": "custom"}]}), "tools[1].type"),
            (json!({"tools": [{"function": {"name": "f"}}]}), "tools[0].type"),
            (json!({"tools": [{"type": "function"}]}), "tools[0].function"),
            (json!({"tools": [function("")]}), "tools[0].function.name"),
            (json!({"tools": [function("a>b")]}), "tools[0].function.name"),
            (json!({"tools": [function("f"), function("f")]}), "tools[1].function.name"),
            (
                json!({"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]}),
                "tools[0].function.parameters",
            ),
            (json!({"tool_choice": "required"}), "tool_choice"),
            (json!({"tools": [function("f")], "tool_choice": named}), "tool_choice"),
            (json!({"tools": [function("f")], "tool_choice": "always"}), "tool_choice"),
            (json!({"tools": [function("f")], "tool_choice": 1}), "tool_choice"),
            (json!({"parallel_tool_calls": "no"}), "parallel_tool_calls"),
        ] {
            let error = read(request.clone()).expect_err(&request.to_string());
            assert_eq!((error.status, error.param.as_deref()), (400, Some(param)), "{request}");
        }
    }

    #[test]
    fn calls_of_the_history_have_objects_for_arguments() {
        let call = |arguments: Value| {
            let function = json!({"name": "f", "arguments": arguments});
            read_call(json!({"id": "c", "type": "function", "function": function}), "calls[0]")
        };
        let read = call(json!("{\"b\": 1, \"a\": [2]}")).unwrap();
        assert_eq!(read["function"]["arguments"].to_string(), r#"{"b":1,"a":[2]}"#);
        for empty in [json!(""), json!(null), json!({})] {
            assert_eq!(call(empty).unwrap()["function"]["arguments"], json!({}));
        }
        for wrong in [json!("not JSON"), json!("[1]"), json!(3)] {
            let error = call(wrong).unwrap_err();
            assert_eq!(error.param.as_deref(), Some("calls[0].function.arguments"));
        }
        let wrong = json!({"type": "custom", "custom": {"name": "f"}});
        assert_eq!(read_call(wrong, "c").unwrap_err().param.as_deref(), Some("c.type"));
        let wrong = json!({"type": "function", "function": {"arguments": "{}"}});
        assert_eq!(read_call(wrong, "c").unwrap_err().param.as_deref(), Some("c.function.name"));
    }
}
