//! The functions that a request puts on offer.

use serde_json::Value;

use crate::conversation::part_type;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::refusal::refused;
use crate::tools::{OfferBuilder, ToolChoice, function, parameters};

/// Kinds of tools that Anthropic's own servers run, without their dates. Requests carry them along, so they are passed over.
const HOSTED: [&str; 5] =
    ["web_search_", "web_fetch_", "code_execution_", "tool_search_tool_", "advisor_"];

/// Reads `tools`: the functions, and what was passed over. Functions with `defer_loading` wait for the conversation to refer to
/// them.
pub(super) fn read_tools(fields: &mut Fields) -> Result<(OfferBuilder, Vec<String>), ApiError> {
    let list: Vec<Value> = fields.take("tools", "a list")?.unwrap_or_default();
    let (mut offer, mut skipped) = (OfferBuilder::default(), Vec::new());
    for (index, tool) in list.into_iter().enumerate() {
        let path = format!("tools[{index}]");
        let mut tool = Fields::new(tool, &path)?;
        let kind = part_type(&mut tool)?;
        if HOSTED.iter().any(|hosted| kind.starts_with(hosted)) {
            skipped.push(format!("{path} (hosted)"));
            continue;
        }
        let schema = tool.value("input_schema");
        if !matches!(kind.as_str(), "" | "custom") && schema.is_none() {
            // Its parameters are known to Anthropic's models only.
            return Err(refused(&tool.path("type"), "describe the tool with an input_schema"));
        }
        let name: String = tool.take("name", "a text")?.unwrap_or_default();
        let description = tool.take("description", "a text")?;
        let schema = parameters(schema, &tool.path("input_schema"))?;
        let function = function(&name, description, schema);
        let param = tool.path("name");
        match tool.take("defer_loading", "true or false")? {
            Some(true) => offer.defer(function, &param)?,
            _ => offer.add(function, &param)?,
        }
    }
    Ok((offer, skipped))
}

/// Reads `tool_choice`: the choice, and whether there may be one call only.
pub(super) fn read_choice(fields: &mut Fields) -> Result<(ToolChoice, bool), ApiError> {
    let Some(choice) = fields.value("tool_choice") else { return Ok((ToolChoice::Auto, false)) };
    let mut choice = Fields::new(choice, "tool_choice")?;
    let one_only = choice.take("disable_parallel_tool_use", "true or false")?.unwrap_or(false);
    let choice = match part_type(&mut choice)?.as_str() {
        "auto" => ToolChoice::Auto,
        "none" => ToolChoice::None,
        "any" => ToolChoice::Required,
        "tool" => {
            let name: Option<String> = choice.take("name", "a text")?;
            ToolChoice::Named(name.ok_or_else(|| choice.missing("name", "it must be a text"))?)
        }
        _ => {
            let message = "tool_choice.type must be auto, any, tool or none";
            return Err(ApiError::invalid("tool_choice.type", message));
        }
    };
    Ok((choice, one_only))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::{Offer, Tools};

    fn read(request: Value) -> Result<(Offer, Vec<String>), ApiError> {
        let mut fields = Fields::new(request, "").unwrap();
        let (choice, one_only) = read_choice(&mut fields)?;
        let (offer, skipped) = read_tools(&mut fields)?;
        Ok((offer.finish(choice, one_only)?, skipped))
    }

    fn tool(name: &str) -> Value {
        json!({"name": name, "description": "d", "input_schema": {"type": "object", "properties": {"b": {}, "a": {}}},
            "cache_control": {"type": "ephemeral"}})
    }

    #[test]
    fn ac_02_functions_take_the_form_of_templates_and_cache_marks_go() {
        let (offer, skipped) =
            read(json!({"tools": [tool("f"), {"name": "g", "type": "custom"}]})).unwrap();
        let list = offer.list.unwrap();
        assert_eq!(
            list[0].to_string(),
            r#"{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"b":{},"a":{}}}}}"#
        );
        assert_eq!(list[1]["function"]["parameters"]["type"], "object");
        assert_eq!(offer.calls.tools, Some(Tools::of_list(&list)));
        assert!(skipped.is_empty() && !offer.calls.one_only);
    }

    #[test]
    fn ac_22_hosted_tools_are_passed_over() {
        let hosted = json!({"type": "web_search_20250305", "name": "web_search"});
        let (offer, skipped) = read(json!({"tools": [hosted, tool("f")]})).unwrap();
        assert_eq!(offer.list.unwrap().as_array().unwrap().len(), 1);
        assert_eq!(skipped, ["tools[0] (hosted)"]);
        let (offer, _) = read(json!({"tools": [hosted]})).unwrap();
        assert_eq!((offer.list, offer.calls.tools), (None, None));
    }

    #[test]
    fn ac_24_deferred_functions_wait_for_a_reference() {
        let mut deferred = tool("late");
        deferred["defer_loading"] = true.into();
        let mut fields = Fields::new(json!({"tools": [tool("f"), deferred]}), "").unwrap();
        let (mut offer, _) = read_tools(&mut fields).unwrap();
        let text = offer.refer_to("late");
        assert!(text.contains(r#""name":"late""#) && text.contains("properties"), "{text}");
        // Once is enough, and what is not deferred needs no definition.
        assert_eq!((offer.refer_to("late"), offer.refer_to("f")), ("late".into(), "f".into()));
        let referred = offer.finish(ToolChoice::Auto, false).unwrap();
        let (not, _) = read(json!({"tools": [tool("f"), deferred]})).unwrap();
        assert_eq!(referred.list, not.list);
        assert_eq!(not.list.unwrap().as_array().unwrap().len(), 1);
        assert_ne!(referred.calls.tools, not.calls.tools);
    }

    #[test]
    fn ac_25_choices_are_read_and_none_changes_no_prompt() {
        let offer = |choice: Value| read(json!({"tools": [tool("f")], "tool_choice": choice}));
        let (auto, _) = offer(json!({"type": "auto", "disable_parallel_tool_use": true})).unwrap();
        let (none, _) = offer(json!({"type": "none"})).unwrap();
        assert!(auto.calls.one_only && auto.calls.tools.is_some() && none.calls.tools.is_none());
        assert_eq!(auto.list, none.list);
        for (choice, param) in [
            (json!({"type": "tool", "name": "g"}), "tool_choice"),
            (json!({"type": "tool"}), "tool_choice.name"),
            (json!({"type": "some"}), "tool_choice.type"),
            (json!("auto"), "tool_choice"),
        ] {
            let error = offer(choice).unwrap_err();
            assert_eq!((error.status, error.param.as_deref()), (400, Some(param)));
        }
    }

    #[test]
    fn what_cannot_be_used_names_its_place() {
        for (tools, param) in [
            (json!({}), "tools"),
            (json!([3]), "tools[0]"),
            (json!([{"input_schema": {}}]), "tools[0].name"),
            (json!([tool("f"), tool("f")]), "tools[1].name"),
            (json!([{"name": "f", "input_schema": []}]), "tools[0].input_schema"),
            (json!([{"name": "f", "description": 1}]), "tools[0].description"),
            (json!([{"name": "bash", "type": "bash_20250124"}]), "tools[0].type"),
        ] {
            let error = read(json!({ "tools": tools })).unwrap_err();
            assert_eq!((error.status, error.param.as_deref()), (400, Some(param)));
        }
    }
}
