//! The text of an answer, told apart: thoughts, words and calls. All dialects build on it.

use crate::dialect::{Ending, Heading};
use crate::thought::{ThoughtParser, ThoughtPiece};
use crate::tools::{Calls, ToolEvent, ToolParser};

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// More of what the model thinks.
    Thought(String),
    /// More of what it says.
    Text(String),
    /// A call, complete and valid.
    Call {
        /// Its place among the calls of the answer, from 0.
        index: usize,
        /// The function.
        name: String,
        /// A JSON object.
        arguments: String,
    },
}

/// Reads an answer, piece by piece.
#[derive(Debug)]
pub(crate) struct AnswerReader {
    thoughts: ThoughtParser,
    tools: Option<ToolParser>,
}

impl AnswerReader {
    /// A reader for an answer in which these calls may stand.
    pub(crate) fn new(heading: &Heading, calls: &Calls) -> Self {
        let parser = |tools: &crate::tools::Tools| {
            ToolParser::new(tools.clone()).one_call_only(calls.one_only)
        };
        AnswerReader {
            thoughts: ThoughtParser::new(heading.opens_thought),
            tools: calls.tools.as_ref().map(parser),
        }
    }

    /// Takes in more of the answer.
    pub(crate) fn push(&mut self, text: &str) -> Vec<Piece> {
        let pieces = self.thoughts.push(text);
        self.read(pieces)
    }

    /// Ends the answer.
    pub(crate) fn finish(&mut self, ending: &Ending) -> Vec<Piece> {
        let pieces = self.thoughts.finish();
        let mut out = self.read(pieces);
        if let Some(tools) = &mut self.tools {
            add(tools.finish(ending.into()), &mut out);
        }
        out
    }

    /// Calls so far.
    pub(crate) fn calls(&self) -> usize {
        self.tools.as_ref().map_or(0, ToolParser::calls)
    }

    fn read(&mut self, pieces: Vec<ThoughtPiece>) -> Vec<Piece> {
        let mut out = Vec::new();
        for piece in pieces {
            match (piece, &mut self.tools) {
                (ThoughtPiece::Thought(text), _) => out.push(Piece::Thought(text)),
                (ThoughtPiece::Text(text), Some(tools)) => add(tools.push(&text), &mut out),
                (ThoughtPiece::Text(text), None) => out.push(Piece::Text(text)),
            }
        }
        out
    }
}

/// An answer that is there as a whole.
#[derive(Debug, Default)]
pub(crate) struct WholeAnswer {
    /// What the model thought.
    pub(crate) thought: String,
    /// What it said.
    pub(crate) text: String,
    /// Names and arguments of its calls.
    pub(crate) calls: Vec<(String, String)>,
}

impl WholeAnswer {
    /// Reads the text of an answer.
    pub(crate) fn read(mut reader: AnswerReader, text: &str, ending: &Ending) -> Self {
        let mut pieces = reader.push(text);
        pieces.extend(reader.finish(ending));
        let mut whole = WholeAnswer::default();
        for piece in pieces {
            match piece {
                Piece::Thought(more) => whole.thought.push_str(&more),
                Piece::Text(more) => whole.text.push_str(&more),
                Piece::Call { name, arguments, .. } => whole.calls.push((name, arguments)),
            }
        }
        whole
    }
}

/// Adds what a tool parser gave out. The events of a call come together.
fn add(events: Vec<ToolEvent>, out: &mut Vec<Piece>) {
    for event in events {
        match event {
            ToolEvent::Text(text) => out.push(Piece::Text(text)),
            ToolEvent::CallBegan { index, name } => {
                out.push(Piece::Call { index, name, arguments: String::new() });
            }
            ToolEvent::Arguments { json, .. } => {
                if let Some(Piece::Call { arguments, .. }) = out.last_mut() {
                    arguments.push_str(&json);
                }
            }
            // The words of what is no call follow as text.
            ToolEvent::CallEnded { .. } | ToolEvent::NoCall(_) => {}
        }
    }
}
