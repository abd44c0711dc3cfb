//! The choice of a token for which a draft was drawn (Leviathan, Kalman and Matias 2023; Chen et al. 2023).
//!
//! With p the distribution that the token has without drafts (after penalties, bias, constraint, temperature and filters) and q the one that the
//! draft d was drawn from: d is accepted with probability min(1, p(d) / q(d)); else another token is drawn from max(p - q, 0), divided by
//! its sum. What is chosen is then distributed as p, whatever q is.

use lithos_constraint::ConstraintError;
use lithos_model::text::TokenId;

use super::{Sampler, largest};
use crate::drafters::Distribution;
use crate::noise::Stream;

impl Sampler {
    /// Chooses a token for logits `[vocabulary]` where `draft` was drawn from `proposed`; it is the draft if that is accepted. Without
    /// temperature this is [`Sampler::sample`].
    ///
    /// # Errors
    /// As [`Sampler::sample`].
    pub fn choose(
        &mut self,
        logits: &[f32],
        draft: TokenId,
        proposed: &Distribution,
    ) -> Result<TokenId, ConstraintError> {
        if self.sampling.temperature == 0.0 {
            return self.sample(logits);
        }
        self.pick(logits, |sampler, logits| sampler.accept_or_draw(logits, draft, proposed))
    }

    fn accept_or_draw(
        &mut self,
        logits: &[f32],
        draft: TokenId,
        proposed: &Distribution,
    ) -> TokenId {
        let temperature = self.sampling.temperature;
        let maximum = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        self.filter(logits, maximum);
        let weight = |logit: f32| f64::from((logit - maximum) / temperature).exp();
        let total: f64 = self.candidates.iter().map(|(logit, _)| weight(*logit)).sum();
        let target = |logit: f32| weight(logit) / total;
        let of_draft = self.candidates.iter().find(|(_, id)| *id == draft.0);
        let of_draft = of_draft.map_or(0.0, |(logit, _)| target(*logit));
        let accepted = self.noise(Stream::Acceptance, 1.0).uniform();
        if accepted * proposed.of(draft) < of_draft {
            return draft;
        }
        let noise = self.noise(Stream::Residuals, 1.0);
        let mut best = f32::NEG_INFINITY;
        let mut token = None;
        for (logit, id) in &self.candidates {
            let residual = target(*logit) - proposed.of(TokenId(*id));
            if residual > 0.0 {
                let sum = noise.add(*id, residual.ln() as f32);
                if sum > best {
                    (best, token) = (sum, Some(TokenId(*id)));
                }
            }
        }
        // Nothing is left where p and q are the same up to rounding, and then a draft is as good as never refused.
        token
            .or_else(|| self.candidates.first().map(|(_, id)| TokenId(*id)))
            .unwrap_or_else(|| largest(logits))
    }
}
