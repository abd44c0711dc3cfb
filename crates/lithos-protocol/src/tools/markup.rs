//! The tags of calls.

pub(super) const CALL: &str = "<tool_call>";
pub(super) const CALL_END: &str = "</tool_call>";
pub(super) const FUNCTION: &str = "<function=";
pub(super) const FUNCTION_END: &str = "</function>";
pub(super) const PARAMETER: &str = "<parameter=";
pub(super) const PARAMETER_END: &str = "</parameter>";

/// Longer names are none.
const LONGEST_NAME: usize = 256;

/// A name behind [`FUNCTION`] or [`PARAMETER`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Name<'a> {
    /// The name, and how many bytes it takes with the `>` that ends it.
    Complete(&'a str, usize),
    /// More must come.
    Open,
    /// There is none.
    None,
}

/// Reads the name at the start of `rest`, which stands behind `<function=` or `<parameter=`.
pub(super) fn name(rest: &str) -> Name<'_> {
    match rest.find(['>', '\n', '<']) {
        Some(at) if at <= LONGEST_NAME && rest[at..].starts_with('>') => {
            // Some models put it into quotes.
            let name = rest[..at].trim().trim_matches(['"', '\'']);
            if name.is_empty() { Name::None } else { Name::Complete(name, at + 1) }
        }
        Some(_) => Name::None,
        None if rest.len() <= LONGEST_NAME => Name::Open,
        None => Name::None,
    }
}

/// Whether one of the tags begins with `rest` but is longer.
pub(super) fn may_become(rest: &str, tags: &[&str]) -> bool {
    tags.iter().any(|tag| tag.len() > rest.len() && tag.starts_with(rest))
}

/// Whether one of the tags follows behind white space. The end of everything counts as one of them. `None` if it depends on
/// what is still to come.
pub(super) fn follows(rest: &str, tags: &[&str], ended: bool) -> Option<bool> {
    let rest = rest.trim_start();
    if rest.is_empty() {
        return ended.then_some(true);
    }
    if tags.iter().any(|tag| rest.starts_with(tag)) {
        return Some(true);
    }
    // At the end, a tag that is broken off counts as one.
    if may_become(rest, tags) { ended.then_some(true) } else { Some(false) }
}

/// The words of a call that cannot be made: its source without tags, of which names stay.
pub(super) fn without_tags(source: &str) -> String {
    const WHOLE: [&str; 4] = [CALL, CALL_END, FUNCTION_END, PARAMETER_END];
    const NAMED: [&str; 2] = [FUNCTION, PARAMETER];
    let mut words = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        words.push_str(before);
        rest = tag;
        if let Some(after) = WHOLE.iter().find_map(|tag| rest.strip_prefix(tag)) {
            rest = after;
        } else if let Some(after) = NAMED.iter().find_map(|tag| rest.strip_prefix(tag)) {
            rest = after;
            if let Name::Complete(name, length) = name(after) {
                words.push_str(name);
                rest = &after[length..];
            }
        } else if may_become(rest, &WHOLE) || may_become(rest, &NAMED) {
            // The answer ended inside a tag.
            rest = "";
        } else {
            words.push('<');
            rest = &rest[1..];
        }
    }
    words.push_str(rest);
    words.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_on_their_line() {
        assert_eq!(name("get_weather>\n"), Name::Complete("get_weather", 12));
        assert_eq!(name(" \"a b\" >x"), Name::Complete("a b", 8));
        assert_eq!(name("get_we"), Name::Open);
        assert_eq!(name(""), Name::Open);
        for none in [">", "a\nb>", "a<b>", "\n"] {
            assert_eq!(name(none), Name::None, "{none:?}");
        }
        assert_eq!(name(&"x".repeat(1000)), Name::None);
    }

    #[test]
    fn words_stay_and_tags_go() {
        let source = "<tool_call>\n<function=nope>\n<parameter=a>\nx < y </b>\n</parameter>\n</function>\n</tool_call>";
        assert_eq!(without_tags(source), "nope\na\nx < y </b>");
        assert_eq!(without_tags("<tool_call>\n<function=no"), "no");
        assert_eq!(without_tags("<tool_call>{\"name\": 1}</tool_c"), "{\"name\": 1}");
        assert_eq!(without_tags("a < <"), "a <");
    }
}
