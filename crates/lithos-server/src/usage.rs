//! What became of drafts, beside the counts of tokens: in every dialect `usage` also has `speculation`.

use lithos_engine::Speculation;
use lithos_protocol::sse::Event;
use serde_json::{Value, json};

/// Where dialects have their usage: at the top of an answer or an event, or in the answer that an event holds.
const HOLDERS: [&str; 2] = ["response", "message"];

/// Adds to the usage of an answer in one piece.
pub(crate) fn add(answer: &mut Value, drafts: Option<&Speculation>) {
    let Some(drafts) = drafts else { return };
    add_to(answer, drafts);
}

/// Adds to the usage of the events that end a stream.
pub(crate) fn add_to_events(events: &mut [Event], drafts: Option<&Speculation>) {
    let Some(drafts) = drafts else { return };
    for event in events.iter_mut().filter(|event| event.data.contains("\"usage\"")) {
        // The data of some events is no object, as `[DONE]`.
        if let Ok(mut data) = serde_json::from_str::<Value>(&event.data)
            && add_to(&mut data, drafts)
        {
            event.data = data.to_string();
        }
    }
}

/// Returns whether there was a usage.
fn add_to(value: &mut Value, drafts: &Speculation) -> bool {
    let holder = HOLDERS.into_iter().find(|holder| value[*holder]["usage"].is_object());
    let holder = match holder {
        Some(name) => &mut value[name],
        None => value,
    };
    match holder.get_mut("usage").and_then(Value::as_object_mut) {
        Some(usage) => {
            usage.insert("speculation".into(), json!(drafts));
            true
        }
        None => false,
    }
}
