//! The form of a file that holds one part of a kept state: a head that says what it is, the bytes, and a BLAKE3 digest of both.

use std::io::{self, Write};

use super::digest::Digest;
use super::{Name, Part};

const MAGIC: &[u8; 8] = b"LITHOSPX";

/// Magic, model, tokens, position, part, length.
const HEAD: usize = 8 + 32 + 32 + 8 + 8 + 8;

const DIGEST: usize = 32;

/// Bytes of a file with so many bytes in it.
pub(crate) fn size(payload: usize) -> u64 {
    (HEAD + payload + DIGEST) as u64
}

fn head(model: Digest, name: &Name, payload: usize) -> [u8; HEAD] {
    let part: u64 = match name.part {
        Part::Keys => 1,
        Part::State => 2,
    };
    let numbers = [name.end as u64, part, payload as u64].map(u64::to_le_bytes);
    let parts: [&[u8]; 6] =
        [MAGIC, &model.0, &name.digest.0, &numbers[0], &numbers[1], &numbers[2]];
    let mut head = [0; HEAD];
    for (to, from) in head.iter_mut().zip(parts.concat()) {
        *to = from;
    }
    head
}

/// Writes a file.
pub(crate) fn write(
    to: &mut impl Write,
    model: Digest,
    name: &Name,
    payload: &[u8],
) -> io::Result<()> {
    let head = head(model, name, payload.len());
    let mut hasher = blake3::Hasher::new();
    hasher.update(&head).update(payload);
    to.write_all(&head)?;
    to.write_all(payload)?;
    to.write_all(hasher.finalize().as_bytes())
}

/// What a file holds, if it is whole and what its name says; else why not.
pub(crate) fn read<'b>(
    bytes: &'b [u8],
    model: Digest,
    name: &Name,
) -> Result<&'b [u8], &'static str> {
    let Some(payload) = bytes.len().checked_sub(HEAD + DIGEST) else {
        return Err("it is cut short");
    };
    let (content, digest) = bytes.split_at(HEAD + payload);
    if blake3::hash(content).as_bytes() != digest {
        return Err("its bytes are not those that were written");
    }
    if content[..HEAD] != head(model, name, payload) {
        return Err("it holds something else than its name says");
    }
    Ok(&content[HEAD..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_was_written_and_no_other_is() {
        let model = Digest::of(b"model");
        let name = Name { digest: Digest::of(b"tokens"), end: 512, part: Part::Keys };
        let mut file = Vec::new();
        write(&mut file, model, &name, b"keys and values").unwrap();
        assert_eq!(file.len() as u64, size(15));
        assert_eq!(read(&file, model, &name), Ok(&b"keys and values"[..]));
        for other in [
            Name { digest: model, ..name },
            Name { end: 511, ..name },
            Name { part: Part::State, ..name },
        ] {
            assert!(read(&file, model, &other).is_err());
        }
        assert!(read(&file, name.digest, &name).is_err());
        // Any byte that is another one, and any length.
        for place in 0..file.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bad = file.clone();
                bad[place] ^= flip;
                assert!(read(&bad, model, &name).is_err(), "{place}");
            }
            assert!(read(&file[..place], model, &name).is_err(), "{place}");
        }
        file.push(0);
        assert!(read(&file, model, &name).is_err());
    }
}
