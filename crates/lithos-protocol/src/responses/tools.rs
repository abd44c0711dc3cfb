//! The tools that a request puts on offer. Models know functions only, so other kinds become functions, and calls of them become
//! again what they were.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::conversation::part_type;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::tools::{Offer, OfferBuilder, ToolChoice, function, parameters};

/// The only argument of a custom tool.
const INPUT: &str = "input";

/// What a tool is to the client, where the model knows it as a function of another name or form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    /// Takes a text instead of arguments.
    pub(super) custom: bool,
}

/// The origins of functions, by the names that the model knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Origins(HashMap<String, Origin>);

impl Origins {
    /// What a function is to the client.
    pub(super) fn of(&self, name: &str) -> Origin {
        let plain = || Origin { name: name.to_owned(), ..Origin::default() };
        self.0.get(name).cloned().unwrap_or_else(plain)
    }
}

/// What a request says about tools.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ReadTools {
    pub(super) offer: Offer,
    pub(super) origins: Origins,
    /// Tools that were passed over.
    pub(super) skipped: Vec<String>,
}

/// The name by which the model knows a function of a namespace.
pub(super) fn name_within(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        None | Some("") => name.to_owned(),
        // Some clients put the separator at the end of the namespace themselves.
        Some(namespace) => format!("{}__{name}", namespace.trim_end_matches('_')),
    }
}

/// The arguments with which the model is told that a custom tool was called.
pub(super) fn custom_arguments(input: &str) -> Value {
    json!({ INPUT: input })
}

/// The text of a call of a custom tool.
pub(super) fn custom_input(arguments: &str) -> String {
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    arguments[INPUT].as_str().unwrap_or_default().to_owned()
}

/// Reads `tools`, `tool_choice` and `parallel_tool_calls`.
pub(super) fn read_tools(fields: &mut Fields) -> Result<ReadTools, ApiError> {
    let parallel: Option<bool> = fields.take("parallel_tool_calls", "true or false")?;
    let choice = ToolChoice::read(fields.value("tool_choice"), chosen_tool)?;
    let list: Vec<Value> = fields.take("tools", "a list")?.unwrap_or_default();
    let mut reader = Reader::default();
    for (index, tool) in list.into_iter().enumerate() {
        reader.read(tool, &format!("tools[{index}]"), None)?;
    }
    let Reader { offer, origins, skipped } = reader;
    let offer = offer.finish(choice, parallel == Some(false))?;
    Ok(ReadTools { offer, origins, skipped })
}

#[derive(Default)]
struct Reader {
    offer: OfferBuilder,
    origins: Origins,
    skipped: Vec<String>,
}

impl Reader {
    fn read(&mut self, tool: Value, path: &str, namespace: Option<&str>) -> Result<(), ApiError> {
        let mut tool = Fields::new(tool, path)?;
        match part_type(&mut tool)?.as_str() {
            "function" => self.read_function(tool, namespace),
            "custom" => self.read_custom(tool, namespace),
            "namespace" if namespace.is_none() => {
                let name: String = tool.take("name", "a text")?.unwrap_or_default();
                let tools: Vec<Value> = tool.take("tools", "a list")?.unwrap_or_default();
                for (index, inner) in tools.into_iter().enumerate() {
                    self.read(inner, &format!("{path}.tools[{index}]"), Some(&name))?;
                }
                Ok(())
            }
            "" => Err(tool.missing("type", "it must be a text, such as function")),
            // OpenAI's own servers run the others. Requests carry them along.
            kind => {
                // The name is the client's: no more of it than the log should hold.
                let kind: String = kind.chars().take(48).collect();
                self.skipped.push(format!("{path} ({kind})"));
                Ok(())
            }
        }
    }

    fn read_function(&mut self, mut tool: Fields, namespace: Option<&str>) -> Result<(), ApiError> {
        let name: String = tool.take("name", "a text")?.unwrap_or_default();
        let description = tool.take("description", "a text")?;
        let schema = parameters(tool.value("parameters"), &tool.path("parameters"))?;
        self.add(tool, namespace, name, description, schema, false)
    }

    fn read_custom(&mut self, mut tool: Fields, namespace: Option<&str>) -> Result<(), ApiError> {
        let name: String = tool.take("name", "a text")?.unwrap_or_default();
        let mut description: String = tool.take("description", "a text")?.unwrap_or_default();
        if let Some(format) = tool.value("format") {
            let mut format = Fields::new(format, &tool.path("format"))?;
            let syntax: String = format.take("syntax", "a text")?.unwrap_or_default();
            let definition: Option<String> = format.take("definition", "a text")?;
            if let Some(definition) = definition {
                description
                    .push_str(&format!("\n\nThe input has this {syntax} grammar:\n{definition}"));
            }
        }
        let schema = json!({"type": "object", "properties": {INPUT: {"type": "string"}}, "required": [INPUT]});
        self.add(tool, namespace, name, Some(description), schema, true)
    }

    fn add(
        &mut self,
        mut tool: Fields,
        namespace: Option<&str>,
        name: String,
        description: Option<String>,
        schema: Value,
        custom: bool,
    ) -> Result<(), ApiError> {
        let param = tool.path("name");
        let known_as = name_within(namespace, &name);
        let function = function(&known_as, description, schema);
        match tool.take("defer_loading", "true or false")? {
            Some(true) => self.offer.defer(function, &param)?,
            _ => self.offer.add(function, &param)?,
        }
        if custom || namespace.is_some() {
            let namespace = namespace.map(str::to_owned);
            self.origins.0.insert(known_as, Origin { namespace, name, custom });
        }
        Ok(())
    }
}

/// The function or custom tool that a choice names, as the model knows it.
fn chosen_tool(choice: &Map<String, Value>) -> Option<Option<String>> {
    let text = |field: &str| choice.get(field).and_then(Value::as_str);
    let known = matches!(text("type")?, "function" | "custom");
    known.then(|| text("name").map(|name| name_within(text("namespace"), name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::Tools;

    fn read(request: Value) -> Result<ReadTools, ApiError> {
        read_tools(&mut Fields::new(request, "").unwrap())
    }

    fn function(name: &str) -> Value {
        json!({"type": "function", "name": name, "description": "d", "strict": false,
            "parameters": {"type": "object", "properties": {"b": {}, "a": {}}}})
    }

    #[test]
    fn functions_take_the_form_of_templates() {
        let read = read(json!({"tools": [function("f")], "parallel_tool_calls": false})).unwrap();
        let list = read.offer.list.unwrap();
        assert_eq!(
            list.to_string(),
            r#"[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"b":{},"a":{}}}}}]"#
        );
        assert_eq!(read.offer.calls.tools, Some(Tools::of_list(&list)));
        assert!(read.offer.calls.one_only && read.origins == Origins::default());
    }

    #[test]
    fn ac_21_namespaces_are_flattened_and_known_again() {
        let namespace = json!({"type": "namespace", "name": "agents", "tools": [function("spawn"), function("wait")]});
        let read = read(json!({"tools": [function("spawn"), namespace]})).unwrap();
        let names: Vec<_> = read
            .offer
            .list
            .as_ref()
            .unwrap()
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["function"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["spawn", "agents__spawn", "agents__wait"]);
        let origin = |namespace: Option<&str>| Origin {
            namespace: namespace.map(str::to_owned),
            name: "spawn".into(),
            custom: false,
        };
        assert_eq!(read.origins.of("agents__spawn"), origin(Some("agents")));
        assert_eq!(read.origins.of("spawn"), origin(None));
        assert_eq!(name_within(Some("mcp__x__"), "f"), "mcp__x__f");
    }

    #[test]
    fn ac_22_custom_tools_are_functions_of_one_text_and_hosted_ones_are_passed_over() {
        let custom = json!({"type": "custom", "name": "patch", "description": "d",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"}});
        let hosted = ["web_search", "image_generation", "mcp"].map(|kind| json!({"type": kind}));
        let [search, images, mcp] = hosted;
        let read = read(json!({"tools": [search, custom, images, mcp]})).unwrap();
        let list = read.offer.list.unwrap();
        assert_eq!(list.as_array().unwrap().len(), 1);
        let description = list[0]["function"]["description"].as_str().unwrap();
        assert!(description.ends_with("lark grammar:\nstart: x"), "{description}");
        assert!(read.origins.of("patch").custom);
        assert_eq!(
            read.skipped,
            ["tools[0] (web_search)", "tools[2] (image_generation)", "tools[3] (mcp)"]
        );
        assert_eq!(custom_input(&custom_arguments("a\n\"b\"").to_string()), "a\n\"b\"");
    }

    #[test]
    fn ac_25_choices_are_read_and_none_changes_no_prompt() {
        let offer = |choice: Value| {
            read(json!({"tools": [function("f")], "tool_choice": choice})).map(|read| read.offer)
        };
        let (auto, none) = (offer(json!("auto")).unwrap(), offer(json!("none")).unwrap());
        assert_eq!((&auto.list, &none.calls.tools), (&none.list, &None));
        for choice in [
            json!({"type": "function", "name": "g"}),
            json!("some"),
            json!(1),
            json!({"type": "function"}),
            json!({"type": "allowed_tools"}),
        ] {
            let error = offer(choice).unwrap_err();
            assert_eq!((error.status, error.param.as_deref()), (400, Some("tool_choice")));
        }
    }

    #[test]
    fn what_cannot_be_used_names_its_place() {
        for (tools, param) in [
            (json!({}), "tools"),
            (json!([3]), "tools[0]"),
            (json!([{"name": "f"}]), "tools[0].type"),
            (json!([{"type": "function"}]), "tools[0].name"),
            (json!([function("f"), function("f")]), "tools[1].name"),
            (json!([{"type": "function", "name": "f", "parameters": 1}]), "tools[0].parameters"),
            (
                json!([{"type": "namespace", "name": "n", "tools": [function("a b")]}]),
                "tools[0].tools[0].name",
            ),
        ] {
            let error = read(json!({ "tools": tools })).unwrap_err();
            assert_eq!((error.status, error.param.as_deref()), (400, Some(param)));
        }
    }
}
