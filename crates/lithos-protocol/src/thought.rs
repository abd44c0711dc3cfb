//! What a model thinks, told from what it says.

/// Begins a thought, as the models that Lithos runs write it.
pub(crate) const THINK: &str = "<think>";
/// Ends a thought.
pub(crate) const THINK_END: &str = "</think>";
/// A call that begins inside a thought ends it: some models forget to.
const CALL: &str = "<tool_call>";

/// Between two thoughts of one answer, which clients get as one.
const BETWEEN_THOUGHTS: &str = "\n\n";

/// A piece of an answer. It is never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThoughtPiece {
    /// More of what the model thinks.
    Thought(String),
    /// More of what it says.
    Text(String),
}

/// Takes the text of an answer in pieces and tells thoughts from it: what stands between `<think>` and `</think>` in front of the
/// first words. In which pieces the text comes makes no difference, except that they may be given out in more or fewer.
///
/// White space around thoughts belongs to the form and is not given out. Behind the first words a tag is text. A thought that is
/// never closed stays a thought.
#[derive(Debug)]
pub struct ThoughtParser {
    state: State,
    /// Taken in, but not understood yet.
    held: String,
    /// Bytes of the answer in front of `held`.
    passed: usize,
    /// Bytes of the answer up to the end of the last thought.
    thought_bytes: usize,
    /// White space that is given out if more of the thought follows.
    blank: String,
    /// Whether any thought has been given out.
    thought: bool,
    /// Whether there is nothing but white space between the opening tag and `held`.
    leads: bool,
    /// Whether there is nothing but white space in front of `held` on its line.
    begins_line: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but white space has come.
    Start,
    Inside,
    /// Behind a thought, in front of the first words.
    Behind,
    Text,
}

impl ThoughtParser {
    /// A parser for an answer whose prompt ends inside a thought, or not.
    pub fn new(opened: bool) -> Self {
        ThoughtParser {
            state: if opened { State::Inside } else { State::Start },
            held: String::new(),
            passed: 0,
            thought_bytes: 0,
            blank: String::new(),
            thought: false,
            leads: true,
            begins_line: true,
        }
    }

    /// Takes in a piece of the answer.
    pub fn push(&mut self, text: &str) -> Vec<ThoughtPiece> {
        self.held.push_str(text);
        self.advance(false)
    }

    /// Ends the answer.
    pub fn finish(&mut self) -> Vec<ThoughtPiece> {
        self.advance(true)
    }

    /// How many bytes of the answer so far are thought, with its tags.
    pub fn thought_bytes(&self) -> usize {
        match self.state {
            State::Inside => self.passed + self.held.len(),
            _ => self.thought_bytes,
        }
    }

    fn advance(&mut self, ended: bool) -> Vec<ThoughtPiece> {
        let mut pieces = Vec::new();
        while !self.held.is_empty() {
            let known = match self.state {
                State::Start | State::Behind => self.look_for_thought(ended),
                State::Inside => self.think(ended, &mut pieces),
                State::Text => {
                    let text = self.take(self.held.len());
                    pieces.push(ThoughtPiece::Text(text));
                    true
                }
            };
            if !known {
                break;
            }
        }
        pieces
    }

    /// Sees whether a thought begins. Returns whether that is known.
    fn look_for_thought(&mut self, ended: bool) -> bool {
        let words = self.held.trim_start();
        let blank = self.held.len() - words.len();
        if words.starts_with(THINK) {
            self.take(blank + THINK.len());
            self.state = State::Inside;
            (self.begins_line, self.leads) = (true, true);
            self.blank = if self.thought { BETWEEN_THOUGHTS.into() } else { String::new() };
        } else if !ended && THINK.starts_with(words) {
            return false;
        } else {
            if self.state == State::Behind {
                self.take(blank);
            }
            self.state = State::Text;
        }
        true
    }

    /// Reads up to the next tag. Returns whether it became known what stands there.
    fn think(&mut self, ended: bool, pieces: &mut Vec<ThoughtPiece>) -> bool {
        let next = self.held.find('<').unwrap_or(self.held.len());
        let words = self.take(next);
        self.say(&words, pieces);
        let held = self.held.as_str();
        if held.is_empty() {
            return false;
        }
        let is_call = self.begins_line && held.starts_with(CALL);
        if is_call || held.starts_with(THINK_END) {
            if !is_call {
                self.take(THINK_END.len());
            }
            self.thought_bytes = self.passed;
            self.state = State::Behind;
            return true;
        }
        let may_end = THINK_END.starts_with(held) || (self.begins_line && CALL.starts_with(held));
        if may_end && !ended {
            return false;
        }
        if may_end && held.len() > 1 {
            // The answer breaks off inside the tag.
            self.take(self.held.len());
        } else {
            let words = self.take(1);
            self.say(&words, pieces);
        }
        true
    }

    fn say(&mut self, words: &str, pieces: &mut Vec<ThoughtPiece>) {
        for character in words.chars() {
            self.begins_line = character == '\n' || (self.begins_line && character.is_whitespace());
        }
        let words = if self.leads { words.trim_start() } else { words };
        let body = words.trim_end();
        if body.is_empty() {
            self.blank.push_str(words);
            return;
        }
        (self.thought, self.leads) = (true, false);
        let said = std::mem::take(&mut self.blank) + body;
        self.blank.push_str(&words[body.len()..]);
        match pieces.last_mut() {
            Some(ThoughtPiece::Thought(last)) => last.push_str(&said),
            _ => pieces.push(ThoughtPiece::Thought(said)),
        }
    }

    fn take(&mut self, length: usize) -> String {
        self.passed += length;
        self.held.drain(..length).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Thought, text, and how many bytes were thought.
    fn split<'a>(
        opened: bool,
        pieces: impl IntoIterator<Item = &'a str>,
    ) -> (String, String, usize) {
        let mut parser = ThoughtParser::new(opened);
        let mut out: Vec<ThoughtPiece> =
            pieces.into_iter().flat_map(|piece| parser.push(piece)).collect();
        out.extend(parser.finish());
        let (mut thought, mut text) = (String::new(), String::new());
        for piece in out {
            match piece {
                ThoughtPiece::Thought(more) => {
                    assert!(text.is_empty(), "a thought behind text");
                    thought.push_str(&more);
                }
                ThoughtPiece::Text(more) => text.push_str(&more),
            }
        }
        (thought, text, parser.thought_bytes())
    }

    fn check(opened: bool, answer: &str, thought: &str, text: &str) {
        let (found, said, bytes) = split(opened, [answer]);
        assert_eq!((found.as_str(), said.as_str()), (thought, text), "{answer:?}");
        assert!(answer.is_char_boundary(bytes));
    }

    #[test]
    fn thoughts_stand_in_front_of_the_words() {
        check(true, "hm\n</think>\n\nyes", "hm", "yes");
        check(true, "\nhm\n\nwell\n</think>yes\n", "hm\n\nwell", "yes\n");
        check(false, "<think>\nhm\n</think>\n\nyes", "hm", "yes");
        check(false, "\n <think></think>yes", "", "yes");
        check(false, " yes <think>no</think>", "", " yes <think>no</think>");
        check(false, "<think>a</think>\n<think>\nb</think>c", "a\n\nb", "c");
        check(
            true,
            "a < b, </thinking> and <think>\n</think>x",
            "a < b, </thinking> and <think>",
            "x",
        );
    }

    #[test]
    fn ac_32_what_is_never_closed_stays_a_thought() {
        check(true, "hm, ", "hm,", "");
        check(true, "hm</thi", "hm", "");
        check(false, "<think>hm <", "hm <", "");
        check(false, "<thi", "", "<thi");
        check(true, "", "", "");
    }

    #[test]
    fn a_call_ends_a_thought() {
        check(true, "I call\n <tool_call>\n{}", "I call", "<tool_call>\n{}");
        check(true, "as `<tool_call>` says</think>ok", "as `<tool_call>` says", "ok");
    }

    #[test]
    fn the_length_of_a_thought_is_that_of_its_tags_too() {
        assert_eq!(split(true, ["hm</think>\n\nyes"]).2, "hm</think>".len());
        assert_eq!(split(false, [" <think>hm</think>", "yes"]).2, " <think>hm</think>".len());
        assert_eq!(split(true, ["hm"]).2, 2);
        assert_eq!(split(false, ["yes <think>"]).2, 0);
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            parts in prop::collection::vec(
                prop::sample::select(vec!["<think>", "</think>", "\n", " ", "é", "<", "<tool_call>", "a"]), 0..12),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
            opened in any::<bool>(),
        ) {
            let answer = parts.concat();
            let places: Vec<usize> = answer.char_indices().map(|(at, _)| at).collect();
            let mut cuts: Vec<usize> = match places.is_empty() {
                true => Vec::new(),
                false => cuts.iter().map(|cut| *cut.get(&places)).collect(),
            };
            cuts.extend([0, answer.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|cut| &answer[cut[0]..cut[1]]);
            prop_assert_eq!(split(opened, pieces), split(opened, [answer.as_str()]));
        }
    }
}
