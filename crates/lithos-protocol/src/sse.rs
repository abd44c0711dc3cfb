//! Server-sent events (the WHATWG HTML standard, section 9.2).

use serde::Serialize;

/// One event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The value of its `event:` line; `None` for no such line.
    pub name: Option<&'static str>,
    /// Its data.
    pub data: String,
}

impl Event {
    /// An event without a name.
    pub fn data(data: impl Into<String>) -> Self {
        Event { name: None, data: data.into() }
    }

    /// An event whose data is a value as JSON. The value's keys must be texts, as those of all types here are.
    pub(crate) fn json(value: &impl Serialize) -> Self {
        // Types with text keys and no custom code cannot fail; an empty object would still be a valid event.
        Self::data(serde_json::to_string(value).unwrap_or_else(|_| "{}".to_owned()))
    }

    /// The event as it goes over the wire, with the empty line that ends it.
    pub fn encode(&self) -> String {
        let mut wire = String::with_capacity(self.data.len() + 16);
        if let Some(name) = self.name {
            wire.push_str("event: ");
            wire.push_str(name);
            wire.push('\n');
        }
        // A line break inside data would end the field: CR, LF and CRLF each begin another data line.
        for line in self.data.replace("\r\n", "\n").split(['\n', '\r']) {
            wire.push_str("data: ");
            wire.push_str(line);
            wire.push('\n');
        }
        wire.push('\n');
        wire
    }
}

/// Several events as they go over the wire.
pub fn encode(events: &[Event]) -> String {
    events.iter().map(Event::encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_end_in_an_empty_line() {
        let events = [Event::data("{}"), Event { name: Some("ping"), data: "x".into() }];
        assert_eq!(encode(&events), "data: {}\n\nevent: ping\ndata: x\n\n");
    }

    #[test]
    fn line_breaks_cannot_end_an_event() {
        let event = Event::data("a\nb\r\nc\rd");
        assert_eq!(event.encode(), "data: a\ndata: b\ndata: c\ndata: d\n\n");
        assert_eq!(Event::json(&"a\n\nb").encode(), "data: \"a\\n\\nb\"\n\n");
    }
}
