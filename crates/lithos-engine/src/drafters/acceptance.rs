//! How a source's drafts fared of late, against what it expected of them.

/// How much of what was seen is kept when more is seen.
const MEMORY: f64 = 0.97;

/// And where drafts were made and none was verified: a source that was refused is heard again some time.
const MEMORY_UNTRIED: f64 = 0.99;

/// How many accepted drafts the source's own word is worth.
const WORTH: f64 = 3.0;

/// What a source expected, and what became of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acceptance {
    expected: f64,
    accepted: f64,
}

impl Acceptance {
    /// How likely a draft is accepted, if those before it are, of which its source is so sure.
    pub(super) fn likely(&self, confidence: f64) -> f64 {
        (confidence * ((self.accepted + WORTH) / (self.expected + WORTH))).min(1.0)
    }

    /// So many drafts were accepted of those that were verified, of which the source was so sure, each if those before it are accepted.
    pub(super) fn learn(&mut self, verified: impl Iterator<Item = f64>, accepted: usize) {
        // The first that is refused was tried, too.
        let tried: f64 = verified.take(accepted + 1).sum();
        let memory = if tried > 0.0 { MEMORY } else { MEMORY_UNTRIED };
        self.expected = self.expected * memory + tried;
        self.accepted = self.accepted * memory + accepted as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_accepted_less_often_than_expected_is_expected_less() {
        let mut acceptance = Acceptance::default();
        assert_eq!(acceptance.likely(0.8), 0.8);
        // Of drafts that are said to be 0.8 sure, half are accepted: one, and then one refused.
        for _ in 0..200 {
            acceptance.learn([0.8; 4].into_iter(), 1);
        }
        let likely = acceptance.likely(0.8);
        assert!((likely - 0.5).abs() < 0.03, "{likely}");
        for _ in 0..200 {
            acceptance.learn([0.8; 4].into_iter(), 4);
        }
        assert!(acceptance.likely(0.8) > 0.95 && acceptance.likely(1.0) == 1.0);
    }

    #[test]
    fn a_source_that_was_always_refused_is_heard_again() {
        let mut acceptance = Acceptance::default();
        (0..100).for_each(|_| acceptance.learn([0.9].into_iter(), 0));
        let refused = acceptance.likely(0.9);
        assert!(refused < 0.1, "{refused}");
        (0..600).for_each(|_| acceptance.learn([].into_iter(), 0));
        assert!(acceptance.likely(0.9) > 0.8);
    }
}
