//! `lithos chat` through a pipe.

mod support;

use support::{run, run_with, text_model};

const FLAGS: [&str; 4] = ["chat", "--max-tokens", "8", "--model"];

#[test]
fn every_line_gets_an_answer() {
    let model = text_model();
    let args = [&FLAGS[..], &[model.path().to_str().unwrap()]].concat();
    let one = run_with(&args, b"Hello\n").ok();
    assert!(one.ends_with('\n') && one.trim() != "", "{one:?}");
    // The first answer does not depend on what follows; the same words later do depend on what went before.
    let two = run_with(&args, b"Hello\n\nHello\n").ok();
    assert!(two.starts_with(&one) && two.len() > one.len(), "{two:?}");
    assert_ne!(two, one.repeat(2));
    // Forgetting brings back the first answer.
    let reset = run_with(&args, b"Hello\n/reset\nHello").ok();
    assert_eq!(reset, one.repeat(2));
    let system = run_with(&args, b"/system Be brief.\n/system\nHello\n/exit\nHello\n").ok();
    assert!(system.starts_with("Be brief.\n"), "{system:?}");
    assert_ne!(system, format!("Be brief.\n{one}"));
}

#[test]
fn a_conversation_is_what_generate_sees() {
    let model = text_model();
    let path = model.path().to_str().unwrap();
    let args = [&FLAGS[..], &[path]].concat();
    let one = run_with(&args, b"Hello\n").ok();
    let same = run(&["generate", "--max-tokens", "8", "--model", path, "Hello"]).ok();
    assert_eq!(one.trim_end_matches('\n'), same.trim_end_matches('\n'));
}

#[test]
fn commands_are_explained_and_unknown_ones_named() {
    let model = text_model();
    let args = [&FLAGS[..], &[model.path().to_str().unwrap()]].concat();
    let help = run_with(&args, b"/help\n").ok();
    for command in ["/help", "/reset", "/system", "/exit"] {
        assert!(help.contains(command), "{help}");
    }
    run_with(&args, b"/nonsense\n").refused(&["/nonsense", "/help"]);
    run_with(&args, b"\n\xff\n").refused(&["line 2", "UTF-8"]);
    std::fs::remove_file(model.path().join("chat_template.jinja")).unwrap();
    run_with(&args, b"Hello\n").refused(&["template"]);
}
