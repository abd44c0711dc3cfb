//! What names states: digests of a model and of the tokens that were taken in.

use std::fmt;

use blake3::Hasher;
use lithos_format::Checkpoint;
use lithos_graph::Graph;
use lithos_model::text::TokenId;

/// Raised whenever the same words of [`crate::backend::Backend::numerics`] come to mean other bits, or files have another form.
const REVISION: u32 = 1;

/// Bytes of a tensor that are hashed at a time.
const PIECE: usize = 1 << 20;

/// A BLAKE3 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Digest(pub(crate) [u8; 32]);

impl Digest {
    /// Of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Digest(*blake3::hash(bytes).as_bytes())
    }

    /// What [`Digest`] writes, read again.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let lower = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let hash = lower.then(|| blake3::Hash::from_hex(text).ok())??;
        Some(Digest(*hash.as_bytes()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Of all tokens up to here, from that of the tokens before these.
pub(crate) fn after(before: Digest, tokens: &[TokenId]) -> Digest {
    let mut hasher = Hasher::new();
    hasher.update(&before.0);
    for token in tokens {
        hasher.update(&token.0.to_le_bytes());
    }
    Digest(*hasher.finalize().as_bytes())
}

/// Of everything that decides a state's bits apart from the tokens: this program's version, the graph (of which its settings are a part),
/// every byte of every tensor, drafters included, and how the backend computes.
pub(crate) fn of_model(checkpoint: &Checkpoint, graph: &Graph, numerics: &str) -> Digest {
    let mut hasher = Hasher::new();
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    part(env!("CARGO_PKG_VERSION").as_bytes());
    part(&REVISION.to_le_bytes());
    part(numerics.as_bytes());
    part(format!("{graph:?}").as_bytes());
    let mut names: Vec<&str> = checkpoint.tensor_names().collect();
    names.sort_unstable();
    for name in names {
        let Some(tensor) = checkpoint.tensor(name) else { continue };
        part(name.as_bytes());
        part(format!("{} {:?}", tensor.dtype, tensor.shape).as_bytes());
        let bytes = tensor.bytes.len();
        for start in (0..bytes).step_by(PIECE) {
            part(&tensor.bytes.range(start..(start + PIECE).min(bytes)));
        }
        // Else the whole file stays in memory.
        checkpoint.release_pages(name);
    }
    Digest(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_written_and_read() {
        let digest = Digest::of(b"lithos");
        assert_eq!(Digest::parse(&digest.to_string()), Some(digest));
        assert_eq!(Digest::parse(&digest.to_string().to_uppercase()), None);
        assert_eq!(Digest::parse("12"), None);
    }

    #[test]
    fn tokens_in_another_order_or_after_others_have_another_digest() {
        let model = Digest::of(b"a");
        let [a, b] = [TokenId(1), TokenId(256)];
        let all = [
            after(model, &[a, b]),
            after(model, &[b, a]),
            after(model, &[a]),
            after(Digest::of(b"b"), &[a, b]),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one));
        }
    }
}
