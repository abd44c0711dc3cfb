//! The list of models: `GET /v1/models`. One object serves clients of both OpenAI's and Anthropic's API: each looks for its own
//! fields and passes over the others.

use serde::Serialize;

/// One model, as `GET /v1/models/{id}` gives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Model {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    display_name: String,
    created_at: String,
    max_input_tokens: usize,
    /// Tokens of prompt and answer together. In neither API, but clients look for it under these two names.
    context_length: usize,
    max_model_len: usize,
}

impl Model {
    /// Describes a model by its id, the time it was made (seconds since 1970) and its context in tokens.
    pub fn new(id: impl Into<String>, created: u64, context: usize) -> Self {
        let id = id.into();
        Model {
            display_name: id.clone(),
            id,
            object: "model",
            created,
            owned_by: "lithos",
            kind: "model",
            created_at: rfc_3339(created),
            max_input_tokens: context,
            context_length: context,
            max_model_len: context,
        }
    }
}

/// All models, on one page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelList {
    object: &'static str,
    data: Vec<Model>,
    has_more: bool,
    first_id: Option<String>,
    last_id: Option<String>,
}

impl ModelList {
    /// A list of these models.
    pub fn new(data: Vec<Model>) -> Self {
        let id = |model: &Model| model.id.clone();
        ModelList {
            object: "list",
            first_id: data.first().map(id),
            last_id: data.last().map(id),
            has_more: false,
            data,
        }
    }
}

/// Seconds since 1970 as date and time (RFC 3339, in UTC). Eras, years and days as in Howard Hinnant's `civil_from_days`
/// ("chrono-Compatible Low-Level Date Algorithms"): years begin in March, so that a leap day is the last of its year.
fn rfc_3339(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Since 1 March of the year 0; an era is 400 years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year + u64::from(month >= 10);
    let month = if month < 10 { month + 3 } else { month - 9 };
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_openais_and_anthropics() {
        let list = ModelList::new(vec![Model::new("small", 7, 2048)]);
        assert_eq!(
            serde_json::to_string(&list).unwrap(),
            concat!(
                r#"{"object":"list","data":[{"id":"small","object":"model","created":7,"owned_by":"lithos","#,
                r#""type":"model","display_name":"small","created_at":"1970-01-01T00:00:07Z","max_input_tokens":2048,"#,
                r#""context_length":2048,"max_model_len":2048}],"has_more":false,"first_id":"small","last_id":"small"}"#
            )
        );
    }

    #[test]
    fn times_are_dates() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc_3339(seconds), date);
        }
    }
}
