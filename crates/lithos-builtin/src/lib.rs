//! The model that is part of the program: the files of `models/lithos-mini`, an ordinary Hugging Face directory with its
//! drafter in `draft/`.
//!
//! The folder is read when this crate is built. Where it is absent then, as in a checkout without large files, there is a
//! warning and [`files`] is `None`.

/// The model's name.
pub const NAME: &str = "lithos-mini";

/// Bytes at an address that suits any element type and any load of a vector register.
#[allow(dead_code, reason = "without the model there is nothing to align")]
#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

/// The bytes of a file, aligned.
#[allow(unused_macros, reason = "without the model there is nothing to align")]
macro_rules! aligned {
    ($path:expr) => {{
        static FILE: &Aligned<[u8]> = &Aligned(*include_bytes!($path));
        &FILE.0
    }};
}

/// Paths within the folder, with `/` between parts, and bytes that begin at multiples of 64.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// The model's files: paths within its folder, with `/` between parts, and their bytes, which begin at multiples of 64.
/// `None` if this crate was built without the model.
pub fn files() -> Option<&'static [(&'static str, &'static [u8])]> {
    (!FILES.is_empty()).then_some(FILES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_aligned_and_those_of_the_folder() {
        let folder =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models").join(NAME);
        let Some(files) = files() else {
            assert!(!folder.exists(), "{} was not embedded", folder.display());
            return;
        };
        for (name, bytes) in files {
            assert_eq!(bytes.as_ptr().addr() % 64, 0, "{name}");
            let on_disk = std::fs::read(folder.join(name)).expect(name);
            assert!(*bytes == on_disk, "{name} differs");
        }
        let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
        assert!(names.contains(&"model.safetensors") && names.contains(&"tokenizer.json"));
    }
}
