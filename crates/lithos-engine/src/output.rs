//! The text of one generation, and where it ends.

use lithos_model::text::{Detokenizer, Text, TokenId};

use crate::request::{Event, FinishReason, Request};
use crate::stop::StopTexts;

/// The output of one generation as it grows.
pub(crate) struct Output {
    detokenizer: Detokenizer,
    stops: StopTexts,
    /// Tokens that end it.
    pub(crate) ends: Vec<TokenId>,
    /// All so far.
    pub(crate) tokens: Vec<TokenId>,
    /// What they are as text, as far as it was given out.
    pub(crate) text: String,
}

impl Output {
    /// Nothing yet, for a request.
    pub(crate) fn new(text: &Text, request: &Request) -> Self {
        Output {
            detokenizer: Detokenizer::new(text.tokenizer(), true),
            stops: StopTexts::new(&request.stop),
            ends: match request.ignore_end {
                true => Vec::new(),
                false => text.defaults().eos_token_ids.clone(),
            },
            tokens: Vec::new(),
            text: String::new(),
        }
    }

    /// Takes in a token; returns why the generation ends with it, if it does.
    pub(crate) fn take(
        &mut self,
        token: TokenId,
        limit: usize,
        request: &Request,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Option<FinishReason> {
        if self.push(token, on_event) {
            return Some(FinishReason::Stop);
        }
        if self.tokens.len() == limit {
            return Some(FinishReason::Length);
        }
        request.cancel.is_cancelled().then_some(FinishReason::Cancelled)
    }

    /// Takes in a token; returns whether the generation ends with it.
    fn push(&mut self, token: TokenId, on_event: &mut dyn FnMut(Event<'_>)) -> bool {
        self.tokens.push(token);
        if self.ends.contains(&token) {
            return true;
        }
        let (certain, stopped) = self.stops.push(&self.detokenizer.push(token));
        self.emit(&certain, on_event);
        if stopped {
            // What the detokenizer still holds comes after the stop text.
            self.detokenizer.finish();
        }
        stopped
    }

    /// Gives out what was held back.
    pub(crate) fn flush(&mut self, on_event: &mut dyn FnMut(Event<'_>)) {
        let rest = self.detokenizer.finish();
        let (mut certain, stopped) = self.stops.push(&rest);
        if !stopped {
            certain.push_str(&self.stops.finish());
        }
        self.emit(&certain, on_event);
    }

    fn emit(&mut self, text: &str, on_event: &mut dyn FnMut(Event<'_>)) {
        if !text.is_empty() {
            self.text.push_str(text);
            on_event(Event::Text(text));
        }
    }
}
