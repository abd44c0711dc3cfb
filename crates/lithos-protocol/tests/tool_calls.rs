//! Calls in answers, in both forms: what comes out does not depend on the pieces in which the text comes in.

use lithos_protocol::tools::{AnswerEnd, CallFault, ToolEvent, ToolParser, Tools};
use proptest::prelude::*;
use serde_json::{Value, json};

const CALL: &str = "<tool_call>\n<function=get_weather>\n<parameter=place>\nOslo\n</parameter>\n</function>\n</tool_call>";
const WRITE: &str = "<tool_call>\n<function=write_file>\n<parameter=path>\na.txt\n</parameter>\n<parameter=content>\n";
const END: &str = "\n</parameter>\n</function>\n</tool_call>";

fn tools() -> Value {
    let function = |name: &str, properties: Value, required: Value| {
        let parameters = json!({"type": "object", "properties": properties, "required": required});
        json!({"type": "function", "function": {"name": name, "parameters": parameters}})
    };
    let text = json!({"type": "string"});
    json!([
        function("get_weather", json!({"place": text, "days": {"type": "integer"}}), json!(["place"])),
        function("write_file", json!({"path": text, "content": text}), json!(["path", "content"])),
        function(
            "typed",
            json!({
                "text": text, "whole": {"type": "integer"}, "number": {"type": "number"},
                "flag": {"type": "boolean"}, "list": {"type": "array"}, "object": {"type": "object"},
            }),
            json!([])
        ),
        {"type": "function", "function": {"name": "now"}},
    ])
}

/// What comes out, with neighbouring texts put together. Calls are texts too: `name {arguments}`.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    pieces: Vec<Piece>,
    faults: Vec<CallFault>,
}

#[derive(Debug, PartialEq)]
enum Piece {
    Text(String),
    Call(String, String),
}

impl Outcome {
    fn take_in(&mut self, events: Vec<ToolEvent>) {
        for event in events {
            match (event, self.pieces.last_mut()) {
                (ToolEvent::Text(text), Some(Piece::Text(last))) => last.push_str(&text),
                (ToolEvent::Text(text), _) => {
                    assert!(!text.is_empty());
                    self.pieces.push(Piece::Text(text));
                }
                (ToolEvent::CallBegan { index, name }, _) => {
                    assert_eq!(index, self.calls());
                    self.pieces.push(Piece::Call(name, String::new()));
                }
                (ToolEvent::Arguments { index, json }, last) => {
                    let Some(Piece::Call(_, arguments)) = last else { panic!("no call is open") };
                    arguments.push_str(&json);
                    assert_eq!(index + 1, self.calls());
                }
                (ToolEvent::CallEnded { index }, _) => assert_eq!(index + 1, self.calls()),
                (ToolEvent::NoCall(fault), _) => self.faults.push(fault),
            }
        }
    }

    fn calls(&self) -> usize {
        self.pieces.iter().filter(|piece| matches!(piece, Piece::Call(..))).count()
    }

    fn text(&self) -> String {
        let texts = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(text) => Some(text.as_str()),
            Piece::Call(..) => None,
        });
        texts.collect()
    }
}

fn read_pieces<'a>(pieces: impl IntoIterator<Item = &'a str>, end: AnswerEnd) -> Outcome {
    let mut parser = ToolParser::new(Tools::of_list(&tools()));
    let mut outcome = Outcome::default();
    for piece in pieces {
        outcome.take_in(parser.push(piece));
    }
    outcome.take_in(parser.finish(end));
    assert_eq!(parser.calls(), outcome.calls());
    outcome
}

/// Reads an answer in one piece, and in all ways of two pieces, and character by character.
fn read(answer: &str, end: AnswerEnd) -> Outcome {
    let whole = read_pieces([answer], end);
    for (at, _) in answer.char_indices() {
        let (first, second) = answer.split_at(at);
        assert_eq!(read_pieces([first, second], end), whole, "split behind {first:?}");
    }
    let characters = answer.char_indices().map(|(at, c)| &answer[at..at + c.len_utf8()]);
    assert_eq!(read_pieces(characters, end), whole, "character by character");
    whole
}

fn text(text: &str) -> Piece {
    Piece::Text(text.into())
}

fn call(name: &str, arguments: &str) -> Piece {
    Piece::Call(name.into(), arguments.into())
}

fn expect(answer: &str, pieces: &[Piece]) {
    let outcome = read(answer, AnswerEnd::Whole);
    assert_eq!(outcome.pieces, pieces, "of {answer:?}, with {:?}", outcome.faults);
    assert_eq!(outcome.faults, [], "of {answer:?}");
}

#[test]
fn a_call_in_either_form() {
    let wanted = [call("get_weather", r#"{"place": "Oslo"}"#)];
    expect(CALL, &wanted);
    expect(&format!("\n\n{CALL}\n"), &wanted);
    expect(
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"place\": \"Oslo\"}}\n</tool_call>",
        &wanted,
    );
    expect("<tool_call>\n<function=now>\n</function>\n</tool_call>", &[call("now", "{}")]);
    expect("<tool_call>{\"name\": \"now\"}</tool_call>", &[call("now", "{}")]);
}

#[test]
fn answers_without_calls_stay_as_they_are() {
    for answer in [
        "",
        "Paris.",
        "\n two \n\n lines \n",
        "a < b > c <d> </d> <tool> <tool_calls> <",
        "The tag `<tool_call>` begins a call, `</tool_call>` ends it; so does `<function=now>`.",
        "In a line <function=now> is no call.",
        "<function=nope>\n<parameter=a>\n1\n</parameter>\n</function>",
        "{\"name\": \"now\", \"arguments\": {}}",
    ] {
        let outcome = read(answer, AnswerEnd::Whole);
        assert_eq!((outcome.text().as_str(), outcome.calls()), (answer, 0));
    }
}

#[test]
fn text_around_calls_stays() {
    let weather = || call("get_weather", r#"{"place": "Oslo"}"#);
    expect(&format!("Let me look.\n\n{CALL}"), &[text("Let me look."), weather()]);
    expect(&format!("{CALL}\n\nDone."), &[weather(), text("Done.")]);
    expect(&format!("One.\n{CALL}\nTwo.\n"), &[text("One."), weather(), text("\nTwo.")]);
}

#[test]
fn several_calls_in_one_answer() {
    let weather = || call("get_weather", r#"{"place": "Oslo"}"#);
    expect(&format!("{CALL}\n{CALL}"), &[weather(), weather()]);
    expect(&format!("{CALL}and{CALL}"), &[weather(), text("and"), weather()]);
    let functions = "<tool_call><function=now></function><function=now></function></tool_call>";
    expect(functions, &[call("now", "{}"), call("now", "{}")]);
    let mixed = format!("<tool_call>{{\"name\": \"now\", \"arguments\": {{}}}}</tool_call>{CALL}");
    expect(&mixed, &[call("now", "{}"), weather()]);
}

#[test]
fn values_are_typed_and_stay_as_written() {
    let value = |key: &str, written: &str| {
        let answer = format!(
            "<tool_call>\n<function=typed>\n<parameter={key}>\n{written}\n</parameter>\n</function>\n</tool_call>"
        );
        let outcome = read(&answer, AnswerEnd::Whole);
        match outcome.pieces.as_slice() {
            [Piece::Call(_, arguments)] => {
                let prefix = format!("{{\"{key}\": ");
                Ok(arguments.strip_prefix(&prefix).unwrap().strip_suffix('}').unwrap().to_owned())
            }
            _ => Err(outcome.faults[0].clone()),
        }
    };
    for (key, written, wanted) in [
        ("text", "5", "\"5\""),
        ("text", "  two\n lines ", "\"  two\\n lines \""),
        ("text", "", "\"\""),
        ("text", "{\"a\": 1}", "\"{\\\"a\\\": 1}\""),
        ("text", "null", "\"null\""),
        ("whole", "5", "5"),
        ("number", "249.90", "249.90"),
        ("flag", "True", "true"),
        ("list", "[1, \"a\"]", "[1, \"a\"]"),
        ("object", "{\"b\": 1, \"a\": null}", "{\"b\": 1, \"a\": null}"),
        ("unknown", "5", "\"5\""),
    ] {
        assert_eq!(value(key, written).as_deref(), Ok(wanted), "{key}: {written}");
    }
    for (key, written) in
        [("whole", "a third"), ("flag", "maybe"), ("list", "{}"), ("object", "{"), ("number", "")]
    {
        let fault = CallFault::WrongArgument { function: "typed".into(), argument: key.into() };
        assert_eq!(value(key, written), Err(fault), "{key}: {written}");
    }
}

#[test]
fn what_need_not_be_there_can_be_null() {
    let answer = "<tool_call>\n<function=get_weather>\n<parameter=place>\nOslo\n</parameter>\n<parameter=days>\nnull\n</parameter>\n</function>\n</tool_call>";
    expect(answer, &[call("get_weather", r#"{"place": "Oslo"}"#)]);
}

#[test]
fn ac_12_the_opening_tag_may_be_missing() {
    let bare = CALL.strip_prefix("<tool_call>\n").unwrap();
    let weather = || call("get_weather", r#"{"place": "Oslo"}"#);
    expect(bare, &[weather()]);
    expect(&format!("Let me look.\n{bare}"), &[text("Let me look."), weather()]);
    expect(&format!("{bare}\n{bare}"), &[weather(), weather()]);
}

#[test]
fn ac_13_values_with_tags_are_verbatim() {
    for content in [
        "a < b && c > d",
        "<p>\n</p>\n</parameter-like>",
        "see </parameter> there",
        "</parameter>\nand so on",
        "<parameter=x>",
        "line\n<parameter=x>\nline",
        "<function=f>",
        "line\n<function=f>\nline",
        CALL,
        "a line\n<tool_call>\n<function=nope>\n<parameter=path>\nb\n</parameter>\n<parameter=c>\nd\n</parameter>\n</function>\n</tool_call>\na line",
        "one <tool_call> two </tool_call> three",
        "    indented\n\n\ttabs\n",
        "\"quoted\" and \\escaped\\ and 日本",
        "&lt; stays &amp; stays",
    ] {
        let wanted = format!("{{\"path\": \"a.txt\", \"content\": {}}}", json!(content));
        expect(&format!("{WRITE}{content}{END}"), &[call("write_file", &wanted)]);
        let arguments = json!({"path": "a.txt", "content": content}).to_string();
        let hermes = format!(
            "<tool_call>\n{{\"name\": \"write_file\", \"arguments\": {arguments}}}\n</tool_call>"
        );
        expect(&hermes, &[call("write_file", &arguments)]);
    }
}

#[test]
fn ac_15_ac_17_two_calls_after_prose_have_indices_0_and_1() {
    // The indices are checked wherever events are taken in.
    let outcome = read(&format!("I will look twice.\n{CALL}\n{CALL}"), AnswerEnd::Whole);
    assert_eq!((outcome.calls(), outcome.text().as_str()), (2, "I will look twice."));
}

#[test]
fn closing_tags_may_be_missing_where_the_call_is_complete() {
    let weather = || call("get_weather", r#"{"place": "Oslo"}"#);
    for missing in ["\n</tool_call>", "\n</function>\n</tool_call>", "l>", "tion>\n</tool_call>"] {
        expect(CALL.strip_suffix(missing).unwrap(), &[weather()]);
    }
    expect(&CALL.replace("</function>\n", ""), &[weather()]);
    expect(&CALL.replace("</parameter>\n", ""), &[weather()]);
    expect(&CALL.replace("</parameter>\n</function>\n", ""), &[weather()]);
    let two = CALL.strip_suffix("\n</function>\n</tool_call>").unwrap();
    expect(&format!("{two}\n{CALL}"), &[weather(), weather()]);
    let days = "<tool_call>\n<function=get_weather>\n<parameter=place>\nOslo\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>";
    expect(days, &[call("get_weather", r#"{"place": "Oslo", "days": 3}"#)]);
    expect("<tool_call>{\"name\": \"now\", \"arguments\": {}}", &[call("now", "{}")]);
}

#[test]
fn forms_that_models_really_emit() {
    let weather = || call("get_weather", r#"{"place": "Oslo"}"#);
    // Everything in one line, blank lines everywhere, quotes, tags twice.
    expect(
        "<tool_call><function=get_weather><parameter=place>Oslo</parameter></function></tool_call>",
        &[weather()],
    );
    expect(&CALL.replace('\n', "\n\n").replace("\n\nOslo\n\n", "\nOslo\n"), &[weather()]);
    expect(&CALL.replace("=get_weather>", "=\"get_weather\">"), &[weather()]);
    expect(&format!("<tool_call>\n{CALL}\n</tool_call>"), &[weather()]);
    expect(&CALL.replace('\n', "\r\n"), &[weather()]);
    for object in [
        r#"{"name": "get_weather", "parameters": {"place": "Oslo"}}"#,
        r#"{"name": "get_weather", "arguments": "{\"place\": \"Oslo\"}"}"#,
        r#"{"name": "get_weather", "arguments": {"place": "Oslo"}}}"#,
        r#"{"arguments": {"place": "Oslo"}, "name": "get_weather"}"#,
    ] {
        expect(&format!("<tool_call>\n{object}\n</tool_call>"), &[weather()]);
    }
    let wrongly_quoted =
        r#"<tool_call>{"name": "get_weather", "arguments": {"place": 7, "days": "3"}}</tool_call>"#;
    expect(wrongly_quoted, &[call("get_weather", r#"{"place":"7","days":3}"#)]);
    let line_break =
        "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"place\": \"a\nb\"}}</tool_call>";
    expect(line_break, &[call("get_weather", "{\"place\": \"a\\nb\"}")]);
}

/// What is no call comes out as words.
fn expect_words(answer: &str, end: AnswerEnd, words: &str, fault: CallFault) {
    let outcome = read(answer, end);
    assert_eq!((outcome.text().as_str(), outcome.calls()), (words, 0), "of {answer:?}");
    assert_eq!(outcome.faults, [fault], "of {answer:?}");
}

#[test]
fn nothing_is_a_call_before_it_is_complete() {
    // Cut anywhere, an answer has no call until its function is closed.
    let complete = CALL.find("</function>").unwrap() + "</function>".len();
    for end in 0..complete {
        let outcome = read_pieces([&CALL[..end]], AnswerEnd::Cut);
        assert_eq!(outcome.calls(), 0, "{:?}", &CALL[..end]);
        assert!(!outcome.text().contains('<') || end == 1, "{:?}", outcome.text());
    }
    for end in complete..=CALL.len() {
        assert_eq!(read_pieces([&CALL[..end]], AnswerEnd::Cut).calls(), 1);
    }
    let inside_value = &CALL[..CALL.find("lo\n</parameter>").unwrap()];
    for end in [AnswerEnd::Cut, AnswerEnd::Whole] {
        expect_words(inside_value, end, "get_weather\nplace\nOs", CallFault::Unfinished);
    }
    let hermes = "Well. <tool_call>{\"name\": \"get_weather\", \"arguments\": {\"place\": \"Os";
    let words = "Well. {\"name\": \"get_weather\", \"arguments\": {\"place\": \"Os";
    expect_words(hermes, AnswerEnd::Whole, words, CallFault::Unfinished);
}

#[test]
fn what_is_no_call_comes_out_as_words() {
    let end = AnswerEnd::Whole;
    let unknown = CallFault::UnknownFunction("get_whether".into());
    let answer = CALL.replace("get_weather", "get_whether");
    expect_words(&answer, end, "get_whether\nplace\nOslo", unknown.clone());
    let answer = r#"<tool_call>{"name": "get_whether", "arguments": {}}</tool_call>"#;
    expect_words(answer, end, r#"{"name": "get_whether", "arguments": {}}"#, unknown);
    let missing = CallFault::WrongArguments { function: "get_weather".into() };
    let answer = "<tool_call>\n<function=get_weather>\n</function>\n</tool_call>";
    expect_words(answer, end, "get_weather", missing);
    let answer = "<tool_call>\n<function=now>\nwhat time is it\n</function>\n</tool_call> So?";
    expect_words(answer, end, "now\nwhat time is it So?", CallFault::Malformed);
    let answer = "<tool_call>{\"name\": now}</tool_call> So?";
    expect_words(answer, end, "{\"name\": now} So?", CallFault::Malformed);
    let answer = "<tool_call>{\"name\": \"now</tool_call> So?";
    expect_words(answer, end, "{\"name\": \"now So?", CallFault::Malformed);
    // Not even the beginning of a call.
    let outcome = read("<tool_call>now()</tool_call>", end);
    assert_eq!(outcome.text(), "now()");
    // A call that follows is one.
    let outcome = read(&format!("<tool_call>{{\"name\": now}}</tool_call>{CALL}"), end);
    assert_eq!(outcome.calls(), 1);
}

#[test]
fn one_call_only_where_that_is_asked_for() {
    let mut parser = ToolParser::new(Tools::of_list(&tools())).one_call_only(true);
    let mut outcome = Outcome::default();
    outcome.take_in(parser.push(&format!("{CALL}\n{CALL}\n{CALL}")));
    outcome.take_in(parser.finish(AnswerEnd::Whole));
    assert_eq!((outcome.calls(), outcome.text().as_str()), (1, ""));
    assert_eq!(outcome.faults, [CallFault::OneCallOnly, CallFault::OneCallOnly]);
}

/// Answers made of the pieces that calls are made of, in any order.
fn scrambled_answer() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "<tool_call>",
        "</tool_call>",
        "<function=now>",
        "<function=get_weather>",
        "<function=nope>",
        "</function>",
        "<parameter=place>",
        "<parameter=days>",
        "</parameter>",
        "\n",
        "\n",
        "\n",
        " ",
        "3",
        "Oslo",
        "é",
        "<",
        "`",
        "{",
        "}",
        "\"",
        "\\",
        "{\"name\": \"now\", \"arguments\": ",
        "{}",
        "{\"name\": \"get_weather\", \"arguments\": {\"place\": \"a\"}}",
        "<tool_c",
        "</func",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// An answer that holds a whole call of random content, and words around it.
fn call_answer() -> impl Strategy<Value = (String, String)> {
    (scrambled_answer(), "[ -~\n]{0,40}").prop_map(|(content, words)| (content + &words, words))
}

/// Cuts an answer into pieces at places that the numbers pick.
fn pieces<'a>(answer: &'a str, cuts: &[prop::sample::Index]) -> Vec<&'a str> {
    let boundaries: Vec<usize> =
        (0..=answer.len()).filter(|at| answer.is_char_boundary(*at)).collect();
    let mut at: Vec<usize> = cuts.iter().map(|cut| *cut.get(&boundaries)).collect();
    at.extend([0, answer.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| &answer[pair[0]..pair[1]]).collect()
}

/// All that is neither white space nor part of a tag.
fn words(text: &str) -> String {
    const TAGS: [&str; 8] = [
        "<tool_call>",
        "</tool_call>",
        "</function>",
        "</parameter>",
        "<function=",
        "<parameter=",
        "<tool_c",
        "</func",
    ];
    let text = TAGS.iter().fold(text.to_owned(), |text, tag| text.replace(tag, ""));
    text.chars().filter(|c| !c.is_whitespace() && !"<>".contains(*c)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn events_do_not_depend_on_the_pieces(
        answer in prop_oneof![scrambled_answer(), call_answer().prop_map(|(content, _)| format!("{WRITE}{content}{END}"))],
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        whole in any::<bool>(),
    ) {
        let end = if whole { AnswerEnd::Whole } else { AnswerEnd::Cut };
        let at_once = read_pieces([answer.as_str()], end);
        prop_assert_eq!(&read_pieces(pieces(&answer, &cuts), end), &at_once);
        let characters = answer.char_indices().map(|(at, c)| &answer[at..at + c.len_utf8()]);
        prop_assert_eq!(&read_pieces(characters, end), &at_once);
        for piece in &at_once.pieces {
            if let Piece::Call(name, arguments) = piece {
                let arguments: Value = serde_json::from_str(arguments).unwrap();
                prop_assert!(arguments.is_object());
                prop_assert!(["now", "get_weather", "write_file"].contains(&name.as_str()));
                prop_assert!(name != "get_weather" || arguments["place"].is_string());
            }
        }
    }

    #[test]
    fn without_a_call_no_word_is_lost_and_no_tag_comes_out(answer in scrambled_answer()) {
        let answer = answer.replace('`', "") + ".";
        let outcome = read_pieces([answer.as_str()], AnswerEnd::Whole);
        let text = outcome.text();
        prop_assert!(!text.contains("<tool_call>") && !text.contains("</tool_call>"), "{}", text);
        if outcome.calls() == 0 {
            prop_assert_eq!(words(&text), words(&answer));
        }
    }

    #[test]
    fn contents_without_tags_are_verbatim(content in "[^<]{0,200}") {
        // Line ends of Windows stay inside, but the form's own line breaks may be such, too.
        prop_assume!(!content.ends_with('\r'));
        let outcome = read_pieces([format!("{WRITE}{content}{END}").as_str()], AnswerEnd::Whole);
        let wanted = format!("{{\"path\": \"a.txt\", \"content\": {}}}", json!(content));
        prop_assert_eq!(outcome.pieces, vec![call("write_file", &wanted)]);
    }
}
