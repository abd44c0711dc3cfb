//! Serves a model without weights that follows a script, to try coding agents against:
//! `cargo run -p lithos-server --example scripted [ADDRESS]`. It
//!
//! - answers a conversation that asks for the tool, where a tool that runs commands is on offer, with a call of it;
//! - repeats what the tool gave, once it did;
//! - answers everything else with one sentence.
//!
//! `scripts/agents-check` runs agents against it.

use lithos_engine::{
    Completion, Event, FinishReason, GenerationId, Request, Sampling, StopTexts, Timings, TokenId,
};
use lithos_protocol::Conversation;
use lithos_server::{
    DEFAULT_ADDRESS, Ended, ModelError, ModelInfo, Prompts, ServerOptions, TextModel, serve,
};
use serde_json::Value;
use tokio::net::TcpListener;

/// More than any agent asks for.
const CONTEXT: usize = 131_072;

/// With these words a user asks for the tool.
const ASKED: &str = "use the tool";

/// What the tool is to run. Its output is not in the request, so who shows it has run it.
const COMMAND: &str = "echo lithos-$((6 * 7))";

const SENTENCE: &str = "Good morning from the scripted model.";

/// A token is a character, and a prompt is the answer to it.
#[derive(Default)]
struct Scripted {
    admitted: Option<Request>,
}

impl TextModel for Scripted {
    fn info(&self) -> ModelInfo {
        ModelInfo { id: "scripted".into(), context: CONTEXT, created: None }
    }

    fn prompts(&self) -> Result<Box<dyn Prompts>, ModelError> {
        Ok(Box::new(Scripted::default()))
    }

    fn admit(&mut self, request: Request) -> Result<GenerationId, ModelError> {
        self.admitted = Some(request);
        Ok(GenerationId(0))
    }

    fn step(&mut self, on_event: &mut dyn FnMut(GenerationId, Event<'_>)) -> Vec<Ended> {
        let Some(request) = self.admitted.take() else { return Vec::new() };
        let id = GenerationId(0);
        vec![(id, Ok(self.repeat(&request, &mut |event| on_event(id, event))))]
    }

    fn abandon(&mut self) {
        self.admitted = None;
    }

    fn default_sampling(&self) -> Sampling {
        Sampling::greedy()
    }
}

impl Scripted {
    fn repeat(&self, request: &Request, on_event: &mut dyn FnMut(Event<'_>)) -> Completion {
        let (mut stops, mut text) = (StopTexts::new(&request.stop), String::new());
        let mut tokens = Vec::new();
        let limit = request.max_tokens.unwrap_or(CONTEXT);
        let mut finish = FinishReason::Stop;
        for token in &request.prompt {
            if request.cancel.is_cancelled() {
                finish = FinishReason::Cancelled;
                break;
            }
            if tokens.len() == limit {
                finish = FinishReason::Length;
                break;
            }
            tokens.push(*token);
            let (certain, stopped) = stops.push(&self.text(&[*token]));
            on_event(Event::Text(&certain));
            text.push_str(&certain);
            if stopped {
                break;
            }
        }
        let held = stops.finish();
        on_event(Event::Text(&held));
        text.push_str(&held);
        Completion {
            tokens,
            text,
            finish,
            prompt_tokens: request.prompt.len(),
            reused_tokens: 0,
            timings: Timings::default(),
            speculation: None,
        }
    }
}

impl Prompts for Scripted {
    fn opens_thought(&self, _prompt: &[TokenId]) -> bool {
        false
    }

    fn encode_chat(&self, conversation: &Conversation) -> Result<Vec<TokenId>, ModelError> {
        Ok(answer(conversation).chars().map(|c| TokenId(c.into())).collect())
    }

    fn text(&self, tokens: &[TokenId]) -> String {
        tokens.iter().filter_map(|token| char::from_u32(token.0)).collect()
    }
}

fn answer(conversation: &Conversation) -> String {
    let messages = conversation.messages.as_array().map_or(&[][..], Vec::as_slice);
    let text = |message: &Value| message["content"].as_str().unwrap_or("").to_owned();
    let result = messages.iter().rev().find(|message| message["role"] == "tool").map(text);
    if let Some(result) = result {
        return format!("The tool gave: {}", result.trim());
    }
    let asked = messages.iter().any(|m| m["role"] == "user" && text(m).contains(ASKED));
    asked.then(|| call(conversation.tools.as_ref()?)).flatten().unwrap_or_else(|| SENTENCE.into())
}

/// A call of the first tool on offer that runs a command.
fn call(tools: &Value) -> Option<String> {
    tools.as_array()?.iter().find_map(|tool| {
        let name = tool["function"]["name"].as_str()?;
        let runs = ["bash", "exec_command", "terminal"].iter().any(|n| name.eq_ignore_ascii_case(n));
        let properties = tool["function"]["parameters"]["properties"].as_object()?;
        let parameter = ["command", "cmd"].into_iter().find(|p| properties.contains_key(*p))?;
        runs.then(|| {
            let required = tool["function"]["parameters"]["required"].as_array();
            let others = required.into_iter().flatten().filter_map(Value::as_str);
            let others: String = others
                .filter(|other| *other != parameter)
                .map(|other| format!("<parameter={other}>\nsay hello\n</parameter>\n"))
                .collect();
            format!(
                "<tool_call>\n<function={name}>\n<parameter={parameter}>\n{COMMAND}\n</parameter>\n{others}</function>\n</tool_call>"
            )
        })
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| DEFAULT_ADDRESS.to_owned());
    let listener = TcpListener::bind(&address).await?;
    println!("http://{}", listener.local_addr()?);
    let interrupted = async {
        if let Err(error) = tokio::signal::ctrl_c().await {
            eprintln!("interrupts are not seen: {error}");
        }
    };
    serve(listener, Scripted::default(), ServerOptions::default(), interrupted).await?;
    Ok(())
}
