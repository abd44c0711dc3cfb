//! What passes took, kept on disk: measured once for a model, processor or card, threads, fusion level and version of the program.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use lithos_graph::Graph;
use serde::{Deserialize, Serialize};

use crate::pass_costs::PassCosts;

/// The folder of measurements: `lithos/costs` in `XDG_CACHE_HOME` or `~/.cache`; `None` where there is neither.
pub(crate) fn folder() -> Option<PathBuf> {
    let named = |variable| std::env::var_os(variable).filter(|value| !value.is_empty());
    let cache = named("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| named("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    Some(cache.join("lithos").join("costs"))
}

/// What a measurement holds for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CostKey {
    /// Of the program.
    version: String,
    /// Whether it was built with checks.
    checked: bool,
    /// Of what a pass computes.
    model: String,
    /// As listings have it, with instruction set and threads, or the card.
    backend: String,
    processor: String,
    fusion: String,
}

/// A kept measurement.
#[derive(Serialize, Deserialize)]
struct Entry {
    key: CostKey,
    /// Of passes of one row, two, and so on.
    seconds: Vec<Option<f64>>,
}

impl CostKey {
    /// The key of a graph with this digest on a backend that describes itself so.
    pub(crate) fn new(digest: u64, backend: &str, fusion: &str) -> Self {
        CostKey {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            checked: cfg!(debug_assertions),
            model: format!("{digest:016x}"),
            backend: backend.to_owned(),
            processor: processor(),
            fusion: fusion.to_owned(),
        }
    }

    /// What was measured under this key. A file that is damaged, or of another key, is none.
    pub(crate) fn load(&self, folder: &Path) -> Option<PassCosts> {
        let bytes = fs::read(folder.join(self.file_name())).ok()?;
        let entry: Entry = serde_json::from_slice(&bytes).ok()?;
        if entry.key == *self { PassCosts::from_seconds(&entry.seconds) } else { None }
    }

    /// Keeps a measurement: written beside and renamed, so that nobody ever reads half of it.
    ///
    /// # Errors
    /// If the folder cannot be written.
    pub(crate) fn store(&self, folder: &Path, costs: &PassCosts) -> io::Result<()> {
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        fs::create_dir_all(folder)?;
        let entry = Entry { key: self.clone(), seconds: costs.all().to_vec() };
        let name = self.file_name();
        let count = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let beside = folder.join(format!("{name}.{}.{count}", std::process::id()));
        fs::write(&beside, serde_json::to_vec(&entry)?)?;
        fs::rename(&beside, folder.join(name))
    }

    fn file_name(&self) -> String {
        let parts = [&self.version, &self.model, &self.backend, &self.processor, &self.fusion];
        let text = parts.map(String::as_str).join("\n");
        format!("{:016x}.json", fnv(&format!("{text}\n{}", self.checked)))
    }
}

/// A digest of all that a pass computes: operations, sizes and encodings.
pub(crate) fn digest(graph: &Graph) -> u64 {
    fnv(&format!("{graph:?}"))
}

/// FNV-1a.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The processor's name, as far as the system says: a folder may be shared by several machines.
fn processor() -> String {
    let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named =
        |line: &str| Some(line.strip_prefix("model name")?.split_once(':')?.1.trim().to_owned());
    information.lines().find_map(named).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(digest: u64) -> CostKey {
        CostKey::new(digest, "avx2 with 2 threads", "step")
    }

    fn costs() -> PassCosts {
        let mut seconds = vec![None; lithos_compiler::MAX_DECODE_ROWS];
        (seconds[0], seconds[7]) = (Some(0.001), Some(0.0025));
        PassCosts::from_seconds(&seconds).expect("sound")
    }

    #[test]
    fn a_measurement_is_found_again_and_by_its_key_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("deeper");
        assert_eq!(key(1).load(&folder), None);
        key(1).store(&folder, &costs()).expect("is written");
        assert_eq!(key(1).load(&folder), Some(costs()));
        let others = [
            key(2),
            CostKey::new(1, "avx2 with 3 threads", "step"),
            CostKey::new(1, "avx2 with 2 threads", "layer"),
            CostKey { version: "0".into(), ..key(1) },
            CostKey { processor: "another".into(), ..key(1) },
            CostKey { checked: !key(1).checked, ..key(1) },
        ];
        for other in others {
            assert_eq!(other.load(&folder), None, "{other:?}");
            // Nor if it had the same file.
            fs::copy(folder.join(key(1).file_name()), folder.join(other.file_name())).unwrap();
            assert_eq!(other.load(&folder), None, "{other:?}");
        }
        let files = fs::read_dir(&folder).expect("is there").count();
        assert_eq!(files, 7, "nothing is left beside");
    }

    #[test]
    fn damaged_files_are_none_and_are_written_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        key(1).store(folder.path(), &costs()).expect("is written");
        let file = folder.path().join(key(1).file_name());
        let whole = fs::read_to_string(&file).expect("is there");
        let half = &whole[..whole.len() / 2];
        let negative = whole.replace("0.0025", "-0.0025");
        let none = whole.replacen("0.001", "null", 1);
        let short = whole.replacen("null,", "", 1);
        for damaged in ["", "{}", half, &negative, &none, &short] {
            assert_ne!(damaged, whole);
            fs::write(&file, damaged).expect("is written");
            assert_eq!(key(1).load(folder.path()), None, "{damaged}");
        }
        key(1).store(folder.path(), &costs()).expect("is written");
        assert_eq!(key(1).load(folder.path()), Some(costs()));
    }
}
