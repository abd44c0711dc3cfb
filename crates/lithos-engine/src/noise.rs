//! Random numbers of tokens: a function of seed, position and token alone, so that hosts and devices draw the same, in any order and
//! however many rows a pass has. Kernels compute them by the same operations.

/// Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011).
pub(crate) fn philox(key: u64, mut counter: [u32; 4]) -> [u32; 4] {
    let mut key = halves(key);
    for _ in 0..10 {
        let first = halves(0xd251_1f53 * u64::from(counter[0]));
        let second = halves(0xcd9e_8d57 * u64::from(counter[2]));
        counter =
            [second[1] ^ counter[1] ^ key[0], second[0], first[1] ^ counter[3] ^ key[1], first[0]];
        key[0] = key[0].wrapping_add(0x9e37_79b9);
        key[1] = key[1].wrapping_add(0xbb67_ae85);
    }
    counter
}

/// The low and the upper word.
pub(crate) fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

/// Gumbel noise `-ln(-ln(1 - u))` for a word's share `u` of 2^32. A series where `u` is small, so that large noise is as fine as the
/// word.
pub(crate) fn gumbel(word: u32) -> f32 {
    let share = (word as f32 + 0.5) * 2.328_306_4e-10;
    let waited = if share < 0.015625 {
        share * (1.0 + share * (0.5 + share * (0.333_333_34 + share * 0.25)))
    } else {
        -(1.0 - share).ln()
    };
    -waited.ln()
}

/// What [`gumbel`] does not exceed for a word, at the cost of counting zeros: -ln(1 - u) >= u.
fn most(word: u32) -> f32 {
    (word.leading_zeros() + 1) as f32 * std::f32::consts::LN_2 + 1e-4
}

/// What numbers are for: those of one purpose say nothing about those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// To draw the token at a position.
    Tokens = 0,
    /// To draw what a drafter proposes for it.
    Drafts = 1,
    /// To accept that.
    Acceptance = 2,
    /// To draw another where it is not accepted.
    Residuals = 3,
}

/// The noise of the tokens at a position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noise {
    pub(crate) seed: u64,
    pub(crate) position: u32,
    pub(crate) stream: Stream,
    pub(crate) temperature: f32,
}

impl Noise {
    fn words(self, token: u32) -> [u32; 4] {
        philox(self.seed, [token / 4, self.position, self.stream as u32, 0])
    }

    /// A number between 0 and 1, both excluded.
    pub(crate) fn uniform(self) -> f64 {
        (f64::from(self.words(0)[0]) + 0.5) / 4_294_967_296.0
    }

    /// What tokens are drawn by: the largest wins.
    pub(crate) fn add(self, token: u32, logit: f32) -> f32 {
        logit + self.temperature * gumbel(self.words(token)[token as usize % 4])
    }

    /// The token drawn from `logits`, without those below `least`: the largest sum; of equal ones the first. `None` without numbers.
    pub(crate) fn draw(self, logits: &[f32], least: f32) -> Option<u32> {
        let (mut best, mut token) = (f32::NEG_INFINITY, None);
        for (four, logits) in logits.chunks(4).enumerate() {
            let words = self.words(four as u32 * 4);
            for (i, (logit, word)) in logits.iter().zip(words).enumerate() {
                // Most tokens are out of the question, without a logarithm.
                if *logit < least || logit + self.temperature * most(word) < best {
                    continue;
                }
                let sum = logit + self.temperature * gumbel(word);
                if sum > best {
                    (best, token) = (sum, Some((four * 4 + i) as u32));
                }
            }
        }
        token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors that its authors publish (Random123, `kat_vectors`).
    #[test]
    fn philox_gives_the_known_answers() {
        assert_eq!(philox(0, [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox(u64::MAX, [u32::MAX; 4]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(0x299f_31d0_a409_3822, [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn noise_is_gumbel_and_bounded() {
        let words = [0, 1, 2, 77, 1 << 12, 0x03ff_ffff, 0x0400_0000, 0x7fff_ffff, 0xf000_0000];
        for word in words {
            let share = (f64::from(word) + 0.5) / 4_294_967_296.0;
            let exact = -(-(-share).ln_1p()).ln();
            assert!((f64::from(gumbel(word)) - exact).abs() < 2e-6 * (1.0 + exact.abs()), "{word}");
            assert!(gumbel(word) <= most(word), "{word}");
        }
        // Never a number that wins or loses every comparison.
        assert!(gumbel(0) < 23.0 && gumbel(u32::MAX) < -2.0);
    }

    #[test]
    fn skipping_tokens_changes_no_draw() {
        for position in 0..200 {
            let (stream, temperature) = (Stream::Tokens, 0.9);
            let noise = Noise { seed: 5, position, stream, temperature };
            let logits: Vec<f32> = (0..70).map(|i| (i * 37 % 70) as f32 * 0.1).collect();
            let sums = (0..70).map(|token| noise.add(token, logits[token as usize]));
            let all: Vec<f32> = sums.collect();
            assert_eq!(noise.draw(&logits, f32::NEG_INFINITY), Some(crate::largest(&all).0));
        }
    }
}
