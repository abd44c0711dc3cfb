//! Stop texts: ends a generation at the first one, and holds back text in which one could still begin.

/// Watches generated text for stop texts.
pub struct StopTexts {
    stops: Vec<String>,
    /// Text not yet given out: it ends in what may be the start of a stop text.
    held: String,
}

impl StopTexts {
    /// Watches for these texts. Empty ones are ignored.
    pub fn new(stops: &[String]) -> Self {
        let stops = stops.iter().filter(|stop| !stop.is_empty()).cloned().collect();
        StopTexts { stops, held: String::new() }
    }

    /// Takes in text; returns what is certain, and whether a stop text was reached.
    pub fn push(&mut self, text: &str) -> (String, bool) {
        self.held.push_str(text);
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        if let Some(at) = found {
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), true);
        }
        let keep = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let kept = self.held.split_off(self.held.len() - keep);
        (std::mem::replace(&mut self.held, kept), false)
    }

    /// What was held back, at the end of the generation.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// Bytes at the end of `text` that are a proper start of `stop`.
fn overlap(text: &str, stop: &str) -> usize {
    let most = text.len().min(stop.len() - 1);
    (1..=most)
        .rev()
        .find(|count| {
            stop.is_char_boundary(*count) && text.as_bytes().ends_with(&stop.as_bytes()[..*count])
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_split_of_the_text_gives_the_same_output() {
        let text = "one </s><stop> two";
        for cut in 0..=text.len() {
            for second in cut..=text.len() {
                let mut stops = StopTexts::new(&["<stop>".into(), "nothing".into()]);
                let mut out = String::new();
                let mut stopped = false;
                for piece in [&text[..cut], &text[cut..second], &text[second..]] {
                    if !stopped {
                        let (certain, reached) = stops.push(piece);
                        out.push_str(&certain);
                        stopped = reached;
                    }
                }
                assert!(stopped, "cut at {cut}, {second}");
                assert_eq!(out, "one </s>");
            }
        }
    }

    #[test]
    fn held_text_comes_out_at_the_end() {
        let mut stops = StopTexts::new(&["END".into()]);
        assert_eq!(stops.push("the E"), ("the ".into(), false));
        assert_eq!(stops.push("N"), (String::new(), false));
        assert_eq!(stops.finish(), "EN");
    }

    #[test]
    fn the_earliest_stop_wins() {
        let mut stops = StopTexts::new(&["b".into(), "a".into()]);
        assert_eq!(stops.push("xxaxb"), ("xx".into(), true));
    }
}
