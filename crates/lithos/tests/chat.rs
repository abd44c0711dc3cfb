//! `lithos chat` through a pipe.

mod support;

use std::io::{Read, Write};
use std::process::Stdio;

use support::{command, run, run_with, text_model};

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

#[cfg(unix)]
#[test]
fn an_interrupt_stops_the_answer_and_keeps_the_session() {
    let model = text_model();
    // The interpreter is slow enough that the answer cannot be over before the signal.
    let mut child = command()
        .args(["chat", "--backend", "interpreter", "--model"])
        .arg(model.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"Hello\n").unwrap();
    let mut first = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    support::interrupt(&child);
    stdin.write_all(b"/system\n").unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.stdout.ends_with(b"\n(no system text)\n"));
}
