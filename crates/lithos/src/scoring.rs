//! How well a model predicts a text: what `score` and `eval` measure.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{anyhow, bail};
use lithos_engine::{Engine, TokenId};
use lithos_model::text::Tokenizer;

/// Reads a text; `-` is standard input.
///
/// # Errors
/// One line that names the file and the cause.
pub fn read_text(path: &Path) -> anyhow::Result<String> {
    let (name, bytes) = if path == Path::new("-") {
        let mut bytes = Vec::new();
        ("standard input".into(), io::stdin().read_to_end(&mut bytes).map(|_| bytes))
    } else {
        (path.display().to_string(), fs::read(path))
    };
    let bytes = bytes.map_err(|error| anyhow!("{name}: {error}"))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        anyhow!("{name}: not UTF-8 text: byte {at} is not part of a character")
    })
}

/// What the scored tokens of some texts add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Negative log-likelihood, in nats.
    surprise: f64,
    /// Tokens that were scored.
    pub tokens: usize,
    /// Bytes that they stand for.
    pub bytes: usize,
    /// Fresh starts that the texts were cut into.
    pub windows: usize,
}

impl Score {
    /// e to the mean negative log-likelihood of the tokens.
    pub fn perplexity(&self) -> f64 {
        (self.surprise / self.tokens as f64).exp()
    }

    /// Negative log2-likelihood of the tokens, over their bytes.
    pub fn bits_per_byte(&self) -> f64 {
        self.surprise / std::f64::consts::LN_2 / self.bytes as f64
    }

    /// Adds what other texts add up to.
    pub fn merge(&mut self, other: Score) {
        self.surprise += other.surprise;
        self.tokens += other.tokens;
        self.bytes += other.bytes;
        self.windows += other.windows;
    }

    fn add(&mut self, logits: &[f32], next: TokenId, bytes: usize) {
        self.surprise += surprise(logits, next);
        self.tokens += 1;
        self.bytes += bytes;
    }
}

/// The negative log of a token's softmax probability.
fn surprise(logits: &[f32], token: TokenId) -> f64 {
    let maximum = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let total: f64 = logits.iter().map(|logit| (f64::from(*logit) - maximum).exp()).sum();
    total.ln() + maximum - f64::from(logits[token.index()])
}

/// Scores texts by one model.
pub struct Scorer<'e> {
    engine: &'e mut Engine,
    tokenizer: Tokenizer,
    window: usize,
}

impl<'e> Scorer<'e> {
    /// A scorer that cuts texts into windows of at most `window` tokens, or of the context if that is less.
    ///
    /// # Errors
    /// If the model has no tokenizer, or a window has no room for a prediction.
    pub fn new(engine: &'e mut Engine, window: usize) -> anyhow::Result<Self> {
        let tokenizer = engine.text()?.tokenizer().clone();
        let window = window.min(engine.context());
        if window < 2 || window <= tokenizer.start_tokens().len() {
            bail!("a window of {window} tokens has no room for a prediction: raise --window");
        }
        Ok(Scorer { engine, tokenizer, window })
    }

    /// Tokens of a window at most.
    pub fn window(&self) -> usize {
        self.window
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Scores tokens, in windows that each begin afresh behind `start`. The first token of all, where nothing precedes it, is
    /// not scored, nor are special tokens: they steer the model and are no text. `advance` is told of tokens as they are
    /// done.
    ///
    /// # Errors
    /// If a pass fails.
    pub fn score(
        &mut self,
        start: &[TokenId],
        tokens: &[TokenId],
        advance: impl Fn(usize),
    ) -> anyhow::Result<Score> {
        let mut score = Score::default();
        let room = self.window.saturating_sub(start.len()).max(1);
        for part in tokens.chunks(room) {
            self.score_window(&[start, part].concat(), start.len().max(1), &mut score)?;
            score.windows += 1;
            advance(part.len());
        }
        Ok(score)
    }

    /// Scores the tokens of a window from `first` on, each by what precedes it.
    fn score_window(
        &mut self,
        window: &[TokenId],
        first: usize,
        score: &mut Score,
    ) -> anyhow::Result<()> {
        let Some(predictions) = window.len().checked_sub(first).filter(|count| *count > 0) else {
            return Ok(());
        };
        let tokenizer = &self.tokenizer;
        let mut sequence = self.engine.sequence();
        sequence.reset();
        // Nothing is predicted from the last token.
        sequence.prefill(&window[..window.len() - 1], predictions, |index, logits| {
            let next = window[index + 1];
            if !tokenizer.is_special(next) {
                let bytes = tokenizer.token_bytes(next).map_or(0, |bytes| bytes.len());
                score.add(logits, next, bytes);
            }
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_logits_are_equally_surprising() {
        let mut score = Score::default();
        score.add(&[1000.0; 4], TokenId(2), 1);
        score.add(&[-1000.0; 4], TokenId(0), 1);
        assert!((score.perplexity() - 4.0).abs() < 1e-9);
        assert!((score.bits_per_byte() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn scores_add_up() {
        let (mut one, mut two) = (Score::default(), Score::default());
        one.add(&[0.0; 4], TokenId(0), 1);
        two.add(&[0.0; 2], TokenId(1), 2);
        one.merge(two);
        assert_eq!((one.tokens, one.bytes), (2, 3));
        // Two bits and one bit over three bytes.
        assert!((one.bits_per_byte() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_likely_token_is_less_surprising() {
        let logits = [0.9f32.ln(), 0.1f32.ln()];
        assert!((surprise(&logits, TokenId(0)) + 0.9f64.ln()).abs() < 1e-6);
        assert!((surprise(&logits, TokenId(1)) + 0.1f64.ln()).abs() < 1e-6);
    }
}
