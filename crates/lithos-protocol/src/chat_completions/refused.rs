//! Fields that ask for what is not there. To ignore them would change the answer without a word, so they are refused by
//! name; values that ask for nothing (`null`, `false`, 0, an empty list) pass.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::refusal::{asks_for_something, refused};

/// Refused whenever they ask for anything.
const REFUSED: [(&str, &str); 9] = [
    ("functions", "functions go by the name of tools now"),
    ("function_call", "functions go by the name of tools now"),
    ("audio", "there is no audio output"),
    ("logprobs", "log probabilities are not given out yet"),
    ("top_logprobs", "log probabilities are not given out yet"),
    ("web_search_options", "there is no web search"),
    ("continue_final_message", "an assistant's message cannot be continued"),
    ("echo", "the prompt is not repeated in the answer"),
    ("min_tokens", "a least number of tokens cannot be asked for"),
];

/// Refuses a request that asks for what is not there.
pub(super) fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    for (name, reason) in REFUSED {
        let asks = fields.value(name).is_some_and(|value| match (name, &value) {
            ("function_call", value) => value != "none" && value != "auto",
            _ => asks_for_something(&value),
        });
        if asks {
            return Err(refused(name, reason));
        }
    }
    fields.one_answer_only()?;
    let modalities: Option<Vec<String>> = fields.take("modalities", "a list of texts")?;
    if modalities.is_some_and(|list| list.iter().any(|modality| modality != "text")) {
        return Err(refused("modalities", "answers are text only"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refuse(name: &str, value: Value) -> Option<ApiError> {
        let mut fields = Fields::new(json!({ name: value }), "").unwrap();
        refuse_unsupported(&mut fields).err()
    }

    #[test]
    fn what_would_change_the_answer_is_refused_by_name() {
        for (name, value) in [
            ("n", json!(2)),
            ("best_of", json!(3)),
            ("functions", json!([{"name": "f"}])),
            ("function_call", json!({"name": "f"})),
            ("audio", json!({"voice": "x"})),
            ("modalities", json!(["text", "audio"])),
            ("logprobs", json!(true)),
            ("top_logprobs", json!(2)),
        ] {
            let error = refuse(name, value.clone()).unwrap_or_else(|| panic!("{name}: {value}"));
            assert_eq!((error.status, error.param.as_deref()), (400, Some(name)));
            assert_eq!(error.code, Some("unsupported_value"));
            assert!(error.message.contains(name));
        }
    }

    #[test]
    fn what_asks_for_nothing_passes() {
        for (name, value) in [
            ("n", json!(1)),
            ("function_call", json!("none")),
            ("modalities", json!(["text"])),
            ("logprobs", json!(false)),
            ("top_logprobs", json!(0)),
            ("service_tier", json!("auto")),
        ] {
            assert_eq!(refuse(name, value), None, "{name}");
        }
    }
}
