//! The list of models: `GET /v1/models`.

use serde::Serialize;

/// One model, as `GET /v1/models/{id}` gives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Model {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    /// Tokens of prompt and answer together. Not in OpenAI's object, but clients look for it under these two names.
    context_length: usize,
    max_model_len: usize,
}

impl Model {
    /// Describes a model by its id, the time it was made (seconds since 1970) and its context in tokens.
    pub fn new(id: impl Into<String>, created: u64, context: usize) -> Self {
        Model {
            id: id.into(),
            object: "model",
            created,
            owned_by: "lithos",
            context_length: context,
            max_model_len: context,
        }
    }
}

/// All models.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelList {
    object: &'static str,
    data: Vec<Model>,
}

impl ModelList {
    /// A list of these models.
    pub fn new(data: Vec<Model>) -> Self {
        ModelList { object: "list", data }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_openais() {
        let list = ModelList::new(vec![Model::new("small", 7, 2048)]);
        assert_eq!(
            serde_json::to_string(&list).unwrap(),
            r#"{"object":"list","data":[{"id":"small","object":"model","created":7,"owned_by":"lithos","context_length":2048,"max_model_len":2048}]}"#
        );
    }
}
