//! What is written where: results to standard output, everything about them to standard error.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

static VERBOSE: AtomicBool = AtomicBool::new(false);

/// The reader of standard output went away, as `head` does when it has its lines.
#[derive(Debug)]
pub struct ClosedOutput;

impl fmt::Display for ClosedOutput {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("standard output was closed")
    }
}

impl std::error::Error for ClosedOutput {}

/// Whether notes are also written where nobody may be looking.
pub fn set_verbose(verbose: bool) {
    VERBOSE.store(verbose, Ordering::Relaxed);
}

/// Whether notes are written wherever they go.
pub fn is_verbose() -> bool {
    VERBOSE.load(Ordering::Relaxed)
}

/// Whether standard output is a terminal.
pub fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether standard error is a terminal.
pub fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Writes bytes to standard output at once.
///
/// # Errors
/// [`ClosedOutput`] if nobody reads it; otherwise one line with the cause.
pub fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => anyhow::Error::new(ClosedOutput),
        _ => anyhow::anyhow!("cannot write to standard output: {error}"),
    })
}

/// Writes text to standard output at once.
///
/// # Errors
/// As [`print_bytes`].
pub fn print(text: &str) -> anyhow::Result<()> {
    print_bytes(text.as_bytes())
}

/// Writes text of a model to standard output at once. A terminal is spared control characters, with which a text could
/// change its state; anything else gets the text as it is.
///
/// # Errors
/// As [`print_bytes`].
pub fn print_model_text(text: &str) -> anyhow::Result<()> {
    if stdout_is_terminal() { print(&without_controls(text)) } else { print(text) }
}

fn without_controls(text: &str) -> String {
    let harmless = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    text.chars().map(|c| if harmless(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

/// Writes a line to standard error. That it cannot be written is no reason to fail.
pub fn line(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes the one line that says why a command failed.
pub fn error(cause: &str) {
    line(&format!("error: {}", one_line(cause)));
}

/// Says something that is good to know, on a terminal or if asked to be verbose.
pub fn note(text: &str) {
    if stderr_is_terminal() || is_verbose() {
        line(&dim(&format!("note: {}", one_line(text))));
    }
}

/// Less bright on a terminal that wants styles.
pub fn dim(text: &str) -> String {
    let unwanted = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    if stderr_is_terminal() && !unwanted("NO_COLOR") && !dumb {
        format!("\x1b[2m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// A number of parameters, as models are named: `26M`, `1.7B`, `14.8B`.
pub fn parameters(count: u64) -> String {
    let (millions, billions) = (count as f64 / 1e6, count as f64 / 1e9);
    match count {
        0..9_950_000 => format!("{millions:.1}M"),
        9_950_000..999_500_000 => format!("{millions:.0}M"),
        999_500_000..99_950_000_000 => format!("{billions:.1}B"),
        _ => format!("{billions:.0}B"),
    }
}

fn one_line(text: &str) -> String {
    text.split(['\n', '\r'])
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// A sign of life on a terminal's standard error while something takes long.
pub fn spinner(message: &str) -> ProgressBar {
    let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{spinner} {msg}");
    spinner.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    spinner.set_message(message.to_owned());
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

/// A bar on a terminal's standard error; nothing elsewhere.
pub fn bar(message: &str, total: usize, unit: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr());
    let template = format!("{{msg}} {{bar:30}} {{human_pos}}/{{human_len}} {unit}, {{eta}} left");
    let style = ProgressStyle::with_template(&template);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(message.to_owned());
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_one_line() {
        assert_eq!(one_line("a\n  b\r\n\nc\n"), "a b c");
    }

    #[test]
    fn parameters_are_short() {
        for (count, text) in [
            (1_740_000, "1.7M"),
            (26_400_000, "26M"),
            (999_600_000, "1.0B"),
            (14_768_307_200, "14.8B"),
            (405_000_000_000, "405B"),
        ] {
            assert_eq!(parameters(count), text);
        }
    }

    #[test]
    fn control_characters_do_not_reach_a_terminal() {
        assert_eq!(without_controls("a\x1b[2Jb\n\tc\r"), "a\u{fffd}[2Jb\n\tc\u{fffd}");
    }
}
