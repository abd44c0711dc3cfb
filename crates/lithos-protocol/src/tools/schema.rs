//! As much of JSON Schema (<https://json-schema.org/draft/2020-12>) as types need.
//!
//! Looked at: `type`, `enum`, `const`, `properties`, `required`, `additionalProperties`, `items`, `anyOf`, `oneOf`, `allOf` and
//! `$ref` within the schema. The rest (ranges, patterns, lengths, formats) is for the tool itself, which can tell the model
//! what is wrong.

use serde_json::{Map, Value};

/// Schemas may refer to themselves, so that depth needs a bound. What lies deeper passes.
const DEEPEST: usize = 64;

/// A schema within the one that holds its definitions.
#[derive(Clone, Copy)]
pub(super) struct Schema<'a> {
    node: &'a Value,
    root: &'a Value,
    depth: usize,
}

/// The types that values may have, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    pub(super) const STRING: Types = Types(1);
    pub(super) const INTEGER: Types = Types(2);
    /// Every integer is a number too.
    pub(super) const NUMBER: Types = Types(2 | 4);
    pub(super) const BOOLEAN: Types = Types(8);
    pub(super) const NULL: Types = Types(16);
    const ARRAY: Types = Types(32);
    const OBJECT: Types = Types(64);
    pub(super) const ANY: Types = Types(127);

    fn named(name: &Value) -> Types {
        match name.as_str() {
            Some("string") => Types::STRING,
            Some("integer") => Types::INTEGER,
            Some("number") => Types::NUMBER,
            Some("boolean") => Types::BOOLEAN,
            Some("null") => Types::NULL,
            Some("array") => Types::ARRAY,
            Some("object") => Types::OBJECT,
            _ => Types::ANY,
        }
    }

    fn of(value: &Value) -> Types {
        match value {
            Value::Null => Types::NULL,
            Value::Bool(_) => Types::BOOLEAN,
            Value::Number(number) if is_whole(number) => Types::INTEGER,
            Value::Number(_) => Types(4),
            Value::String(_) => Types::STRING,
            Value::Array(_) => Types::ARRAY,
            Value::Object(_) => Types::OBJECT,
        }
    }

    pub(super) fn contain(self, other: Types) -> bool {
        self.0 & other.0 == other.0
    }

    fn union(types: impl Iterator<Item = Types>) -> Types {
        Types(types.fold(0, |all, types| all | types.0))
    }
}

/// JSON does not tell 5.0 from 5.
fn is_whole(number: &serde_json::Number) -> bool {
    !number.is_f64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
}

impl<'a> Schema<'a> {
    /// The schema of all parameters of a function.
    pub(super) fn root(root: &'a Value) -> Self {
        Schema { node: root, root, depth: 0 }
    }

    /// A schema that stands inside this one.
    pub(super) fn inner(self, node: &'a Value) -> Self {
        Schema { node, root: self.root, depth: self.depth + 1 }
    }

    /// The types that values may have; all of them where the schema does not say.
    pub(super) fn types(self) -> Types {
        let Some(node) = self.object() else { return Types::ANY };
        let union = |nodes: &'a [Value]| Types::union(nodes.iter().map(|n| self.inner(n).types()));
        match node.get("type") {
            Some(Value::Array(names)) => return Types::union(names.iter().map(Types::named)),
            Some(name) => return Types::named(name),
            None => {}
        }
        if let Some(reference) = self.reference(node) {
            return reference.types();
        }
        if let Some(Value::Array(values)) = node.get("enum") {
            return Types::union(values.iter().map(Types::of));
        }
        if let Some(value) = node.get("const") {
            return Types::of(value);
        }
        for name in ["anyOf", "oneOf"] {
            if let Some(Value::Array(nodes)) = node.get(name) {
                return union(nodes);
            }
        }
        if let Some(Value::Array(nodes)) = node.get("allOf") {
            return Types(nodes.iter().fold(127, |all, node| all & self.inner(node).types().0));
        }
        match node {
            node if node.contains_key("properties") => Types::OBJECT,
            node if node.contains_key("items") => Types::ARRAY,
            _ => Types::ANY,
        }
    }

    /// Whether the schema allows a value, as far as it is looked at here.
    pub(super) fn allows(self, value: &Value) -> bool {
        let node = match (self.node, self.object()) {
            (Value::Bool(allows), _) => return *allows,
            (_, None) => return true,
            (_, Some(node)) => node,
        };
        let list = |name: &str| node.get(name).and_then(Value::as_array);
        let types = match node.get("type") {
            Some(Value::Array(names)) => Types::union(names.iter().map(Types::named)),
            Some(name) => Types::named(name),
            None => Types::ANY,
        };
        let any_of = |name: &str| {
            list(name).is_none_or(|nodes| nodes.iter().any(|node| self.inner(node).allows(value)))
        };
        types.contain(Types::of(value))
            && list("enum").is_none_or(|values| values.contains(value))
            && node.get("const").is_none_or(|only| only == value)
            && self.reference(node).is_none_or(|schema| schema.allows(value))
            && any_of("anyOf")
            && any_of("oneOf")
            && list("allOf")
                .is_none_or(|nodes| nodes.iter().all(|node| self.inner(node).allows(value)))
            && self.allows_parts(node, value)
    }

    fn allows_parts(self, node: &'a Map<String, Value>, value: &Value) -> bool {
        match value {
            Value::Array(items) => node
                .get("items")
                .is_none_or(|schema| items.iter().all(|item| self.inner(schema).allows(item))),
            Value::Object(entries) => {
                let required = node.get("required").and_then(Value::as_array);
                let properties = node.get("properties").and_then(Value::as_object);
                let others = node.get("additionalProperties");
                // Names by pattern are not looked at.
                let others = others.filter(|_| !node.contains_key("patternProperties"));
                let present =
                    |name: &Value| name.as_str().is_none_or(|name| entries.contains_key(name));
                required.is_none_or(|names| names.iter().all(present))
                    && entries.iter().all(|(name, item)| {
                        let schema = properties.and_then(|properties| properties.get(name));
                        schema.or(others).is_none_or(|schema| self.inner(schema).allows(item))
                    })
            }
            _ => true,
        }
    }

    /// The schema's keywords; `None` if there are none to look at.
    fn object(self) -> Option<&'a Map<String, Value>> {
        self.node.as_object().filter(|_| self.depth < DEEPEST)
    }

    fn reference(self, node: &'a Map<String, Value>) -> Option<Schema<'a>> {
        let pointer = node.get("$ref")?.as_str()?.strip_prefix('#')?;
        Some(self.inner(self.root.pointer(pointer)?))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_are_found_wherever_they_stand() {
        let root =
            json!({"$defs": {"flag": {"type": "boolean"}, "loop": {"$ref": "#/$defs/loop"}}});
        for (schema, wanted) in [
            (json!({"type": "string"}), Types::STRING),
            (json!({"type": ["integer", "null"]}), Types(2 | 16)),
            (json!({"enum": ["a", 3]}), Types(1 | 2)),
            (json!({"const": true}), Types::BOOLEAN),
            (json!({"anyOf": [{"type": "number"}, {"type": "null"}]}), Types(2 | 4 | 16)),
            (json!({"$ref": "#/$defs/flag"}), Types::BOOLEAN),
            (json!({"allOf": [{"$ref": "#/$defs/flag"}, {}]}), Types::BOOLEAN),
            (json!({"properties": {}}), Types::OBJECT),
            (json!({"items": {}}), Types::ARRAY),
            (json!({"description": "anything"}), Types::ANY),
            (json!({"$ref": "#/$defs/loop"}), Types::ANY),
            (json!(true), Types::ANY),
        ] {
            let inside = Schema { node: &schema, root: &root, depth: 1 };
            assert_eq!(inside.types(), wanted, "{schema}");
        }
    }

    #[test]
    fn values_are_checked_at_every_depth() {
        let schema = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "mode": {"enum": ["r", "w"]},
                "lines": {"type": "array", "items": {"type": "integer"}},
                "edit": {"$ref": "#/$defs/edit"}
            },
            "required": ["path"],
            "additionalProperties": false,
            "$defs": {"edit": {"anyOf": [{"type": "null"}, {"properties": {"old": {"type": "string"}}, "required": ["old"], "type": "object"}]}}
        });
        let allows = |value: Value| Schema::root(&schema).allows(&value);
        assert!(allows(json!({"path": "a", "mode": "r", "lines": [1, 2.0], "edit": {"old": "x"}})));
        assert!(allows(json!({"path": "", "lines": [], "edit": null})));
        for wrong in [
            json!({}),
            json!([]),
            json!({"path": 1}),
            json!({"path": "a", "mode": "x"}),
            json!({"path": "a", "lines": [1, "2"]}),
            json!({"path": "a", "lines": [0.5]}),
            json!({"path": "a", "edit": {}}),
            json!({"path": "a", "edit": {"old": 3}}),
            json!({"path": "a", "more": 1}),
        ] {
            assert!(!allows(wrong.clone()), "{wrong}");
        }
        assert!(Schema::root(&Value::Null).allows(&json!({"any": "thing"})));
        assert!(!Schema::root(&json!(false)).allows(&json!({})));
    }
}
