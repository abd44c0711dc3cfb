//! The shape of a DSpark drafter.

/// A DSpark drafter (arXiv 2607.05147): a small transformer that reads features of its target's layers and proposes a
/// block of tokens. It uses the target's embedding table and head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DrafterShape {
    /// Width of its residual stream.
    pub hidden: u64,
    /// Layers.
    pub layers: u64,
    /// Query heads.
    pub heads: u64,
    /// Key/value heads.
    pub key_value_heads: u64,
    /// Elements of a head.
    pub head_dim: u64,
    /// Width of the feed-forward network.
    pub intermediate: u64,
    /// Tokens of the target's vocabulary.
    pub vocabulary: u64,
    /// Positions that it was made for.
    pub context: u64,
    /// Layers of the target whose outputs are its features, counted from 0.
    pub taps: &'static [u64],
    /// Width of the target's residual stream.
    pub target_hidden: u64,
    /// Layers of the target.
    pub target_layers: u64,
    /// Rank of the Markov head.
    pub markov_rank: u64,
    /// Tokens that it proposes at once.
    pub block: u64,
    /// The token that stands for those to be proposed.
    pub mask_token: u64,
    /// Base of the rotary frequencies.
    pub theta: f64,
    /// YaRN scaling of the rotary frequencies, where there is one.
    pub yarn: Option<Yarn>,
}

/// YaRN scaling of rotary frequencies (arXiv 2309.00071).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// How many times longer the context became.
    pub factor: f64,
    /// Positions before.
    pub original_context: u64,
}

impl DrafterShape {
    /// Parameters, without the tables that are the target's.
    pub fn parameters(&self) -> u64 {
        let (queries, keys) = (self.heads * self.head_dim, self.key_value_heads * self.head_dim);
        let attention = self.hidden * (2 * queries + 2 * keys) + 2 * self.head_dim;
        let layer = attention + 3 * self.hidden * self.intermediate + 2 * self.hidden;
        let features = self.taps.len() as u64 * self.target_hidden * self.hidden;
        let markov = 2 * self.vocabulary * self.markov_rank;
        let confidence = self.hidden + self.markov_rank + 1;
        self.layers * layer + features + 2 * self.hidden + markov + confidence
    }
}

#[cfg(test)]
mod tests {
    use crate::shape::known;

    #[test]
    fn parameters_are_those_that_were_published() {
        assert_eq!(known::QWEN3_8_27B_DSPARK.parameters(), 1_857_358_337);
    }
}
