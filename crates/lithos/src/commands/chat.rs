//! `lithos chat`: a conversation, line by line.

use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use clap::Args;
use lithos_engine::{Engine, FinishReason, Request};
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};

use crate::answer::{self, Streaming};
use crate::args::{AnswerArgs, ModelArgs, SamplingArgs};
use crate::conversation::{self, Conversation};
use crate::interrupt::{self, Again};
use crate::model;
use crate::output::{self, ClosedOutput};

const PROMPT: &str = "> ";

const HELP: &str = "\
/help           show this
/reset          forget the conversation, keep the system text
/system TEXT    set the text that precedes the conversation; without TEXT, show it
/exit           end (Ctrl-D too)
//...           say something that begins with a slash

Ctrl-C stops an answer, and clears a line that is being typed. The arrow keys bring back earlier lines.
";

/// The arguments of `chat`.
#[derive(Args)]
#[command(after_help = "Examples:
  lithos chat
  lithos chat --model ./Qwen3-0.6B --system \"Answer in one sentence.\" --thinking off
  printf 'My name is Ada.\\nWhat is my name?\\n' | lithos chat --model smollm2.gguf

Within the conversation, /help lists what else can be done. Lines typed are kept in
$XDG_STATE_HOME/lithos/chat_history (~/.local/state/lithos/chat_history), readable by you only.")]
pub struct ChatArgs {
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    model: ModelArgs,
}

/// Talks until the lines end.
pub fn run(args: &ChatArgs) -> anyhow::Result<ExitCode> {
    let model = model::given(args.model.model.as_deref())?;
    args.sampling.check()?;
    let engine = args.model.open(model)?.engine;
    // Better said before anything is typed.
    engine.text()?.template()?;
    interrupt::install()?;
    let mut lines = Lines::open()?;
    if lines.is_interactive() {
        output::line(&output::dim(&format!(
            "{}, {}, {} tokens of context. /help lists commands, Ctrl-D ends.",
            engine.name(),
            engine.describe_backend(),
            engine.context()
        )));
    }
    let conversation = Conversation::new(args.answer.system.clone());
    let mut session = Session { args, engine, conversation, interactive: lines.is_interactive() };
    loop {
        let done = match lines.next()? {
            Input::End => return Ok(ExitCode::SUCCESS),
            Input::Nothing => continue,
            Input::Line(line) => session.take(line.trim()),
        };
        match done {
            Ok(Next::Line) => {}
            Ok(Next::Exit) => return Ok(ExitCode::SUCCESS),
            // Whoever sits at a terminal can try something else.
            Err(error) if session.interactive && !error.is::<ClosedOutput>() => {
                output::error(&error.to_string());
            }
            Err(error) => return Err(error),
        }
    }
}

struct Session<'a> {
    args: &'a ChatArgs,
    engine: Engine,
    conversation: Conversation,
    interactive: bool,
}

/// What comes after a line.
enum Next {
    Line,
    Exit,
}

impl Session<'_> {
    fn take(&mut self, line: &str) -> anyhow::Result<Next> {
        let (command, rest) = match line.split_once(char::is_whitespace) {
            Some((command, rest)) => (command, rest.trim()),
            None => (line, ""),
        };
        match command {
            "" => {}
            "/help" => output::print(HELP)?,
            "/exit" | "/quit" => return Ok(Next::Exit),
            "/reset" => self.conversation.start_over(),
            "/system" if rest.is_empty() => {
                let system = self.conversation.system.as_deref().unwrap_or("(no system text)");
                output::print(&format!("{system}\n"))?;
            }
            "/system" => self.conversation.system = Some(rest.to_owned()),
            _ if line.starts_with("//") => self.say(&line[1..])?,
            _ if line.starts_with('/') => bail!("there is no {command}: /help lists the commands"),
            _ => self.say(line)?,
        }
        Ok(Next::Line)
    }

    fn say(&mut self, text: &str) -> anyhow::Result<()> {
        self.conversation.ask(text.to_owned());
        let answered = self.answer();
        if !matches!(answered, Ok(true)) {
            self.conversation.take_back();
        }
        answered.map(drop)
    }

    /// Answers the last turn; whether there is an answer to remember.
    fn answer(&mut self) -> anyhow::Result<bool> {
        let prompt = self.conversation.tokens(&self.engine, self.args.answer.thinking)?;
        let (limit, choice) = (&self.args.answer, &self.args.sampling);
        let request =
            Request { reuse: true, ..conversation::request(&self.engine, prompt, limit, choice)? };
        let completion =
            answer::stream(&mut self.engine, &request, Streaming::Pieces, Again::Waits)?;
        if !completion.text.ends_with('\n') {
            output::print("\n")?;
        }
        if self.interactive {
            let mut line = answer::speed_line(&completion);
            match completion.finish {
                FinishReason::Stop => {}
                FinishReason::Length => line += ", cut at the limit of tokens",
                FinishReason::Cancelled => line += ", stopped",
            }
            output::line(&output::dim(&line));
        }
        let said_something = !completion.text.is_empty();
        if said_something {
            self.conversation.answer(completion.text);
        }
        Ok(said_something)
    }
}

/// Where lines come from.
enum Lines {
    Terminal { editor: Box<Editor<(), FileHistory>>, history: Option<PathBuf> },
    Pipe { read: usize },
}

/// What was read.
enum Input {
    Line(String),
    Nothing,
    End,
}

impl Lines {
    fn open() -> anyhow::Result<Self> {
        if !io::stdin().is_terminal() || !output::stdout_is_terminal() {
            return Ok(Lines::Pipe { read: 0 });
        }
        let config = Config::builder().auto_add_history(true).history_ignore_space(true).build();
        let kept = FileHistory::with_config(&config);
        let mut editor = Editor::with_history(config, kept)
            .map_err(|error| anyhow!("cannot read from the terminal: {error}"))?;
        let history = history_file();
        if let Some(file) = history.as_ref().filter(|file| file.exists())
            && let Err(error) = editor.load_history(file)
        {
            output::note(&format!("{}: {error}", file.display()));
        }
        Ok(Lines::Terminal { editor: Box::new(editor), history })
    }

    fn is_interactive(&self) -> bool {
        matches!(self, Lines::Terminal { .. })
    }

    fn next(&mut self) -> anyhow::Result<Input> {
        match self {
            Lines::Terminal { editor, history } => match editor.readline(PROMPT) {
                Ok(line) => {
                    if let Some(file) = history
                        && let Err(error) = editor.append_history(file)
                    {
                        output::note(&format!("{}: {error}", file.display()));
                        *history = None;
                    }
                    Ok(Input::Line(line))
                }
                Err(ReadlineError::Interrupted) => Ok(Input::Nothing),
                Err(ReadlineError::Eof) => Ok(Input::End),
                Err(error) => Err(anyhow!("cannot read from the terminal: {error}")),
            },
            Lines::Pipe { read } => {
                let mut line = String::new();
                *read += 1;
                match io::stdin().lock().read_line(&mut line) {
                    Ok(0) => Ok(Input::End),
                    Ok(_) => Ok(Input::Line(line)),
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        Err(anyhow!("line {read} of standard input is not UTF-8 text"))
                    }
                    Err(error) => Err(anyhow!("cannot read standard input: {error}")),
                }
            }
        }
    }
}

/// Where lines are kept between conversations, if there is a place; its folder is made.
fn history_file() -> Option<PathBuf> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
    let folder = state.join("lithos");
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(&folder) {
        Ok(()) => Some(folder.join("chat_history")),
        Err(error) => {
            output::note(&format!("{}: {error}", folder.display()));
            None
        }
    }
}
