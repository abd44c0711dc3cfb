//! From a CUDA text to machine code, by way of the runtime compiler and a cache on disk.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::device::Device;
use crate::error::CudaError;
use crate::nvrtc::Nvrtc;

/// What a kept file begins with.
const MAGIC: &[u8; 16] = b"lithos cubin 1\n\0";

/// Characters of a compiler's log that an error shows.
const LOG_SHOWN: usize = 2000;

/// Registers that a multiprocessor has, and that a thread can have at most.
const REGISTERS: u32 = 65_536;
const MOST_REGISTERS: u32 = 255;

/// Compiles texts, and keeps what came of them.
#[derive(Debug)]
pub struct Compiler {
    nvrtc: Nvrtc,
    driver: i32,
    cache: Option<PathBuf>,
}

/// Everything that the machine code of a text depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheKey {
    parts: Vec<u8>,
}

/// What a text is compiled with for a card whose workers have so many threads.
pub fn compile_options((major, minor): (u32, u32), threads: u32) -> Vec<String> {
    // From Hopper on, the form with an `a` has what only this generation has; such code runs on no other anyway.
    let specific = if major >= 9 { "a" } else { "" };
    vec![
        format!("--gpu-architecture=sm_{major}{minor}{specific}"),
        "--std=c++17".to_owned(),
        // Task bodies that a program does not call.
        "--diag-suppress=177".to_owned(),
        format!("--maxrregcount={}", (REGISTERS / threads.max(1)).min(MOST_REGISTERS)),
    ]
}

impl Compiler {
    /// Finds the compiler; its cache is `lithos/cuda` in `XDG_CACHE_HOME` or `~/.cache`.
    ///
    /// # Errors
    /// [`CudaError::NoCompiler`] says where it was looked for and what to install.
    pub fn open(driver: i32) -> Result<Self, CudaError> {
        let named = |variable| std::env::var_os(variable).filter(|value| !value.is_empty());
        let cache = named("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| named("HOME").map(|home| PathBuf::from(home).join(".cache")));
        Compiler::with_cache(driver, cache.map(|cache| cache.join("lithos").join("cuda")))
    }

    /// As [`Compiler::open`], with this folder to keep code in, or none.
    ///
    /// # Errors
    /// As [`Compiler::open`].
    pub fn with_cache(driver: i32, cache: Option<PathBuf>) -> Result<Self, CudaError> {
        Ok(Compiler { nvrtc: Nvrtc::open()?, driver, cache })
    }

    /// The compiler's version.
    pub fn version(&self) -> (i32, i32) {
        self.nvrtc.version()
    }

    /// Compiles a text for a card; `name` says what it is in errors.
    ///
    /// # Errors
    /// As [`Compiler::compile`].
    pub fn compile_for(
        &self,
        device: &Device,
        threads: u32,
        name: &str,
        text: &str,
    ) -> Result<Vec<u8>, CudaError> {
        self.compile(name, text, &compile_options(device.compute_capability(), threads))
    }

    /// Compiles a text with some options, or takes what an earlier call kept.
    ///
    /// # Errors
    /// [`CudaError::Compile`] with the log and the kernel that its first error is in.
    pub fn compile(
        &self,
        name: &str,
        text: &str,
        options: &[String],
    ) -> Result<Vec<u8>, CudaError> {
        let key = CacheKey::new(text, options, self.nvrtc.version(), self.driver);
        if let Some(code) = self.cache.as_deref().and_then(|cache| key.load(cache)) {
            return Ok(code);
        }
        let failed = |log: &str| {
            let shown: String = log.chars().take(LOG_SHOWN).collect();
            CudaError::Compile {
                name: name.to_owned(),
                place: place_of_first_error(text, log),
                log: shown,
            }
        };
        let plain =
            |text: &str| CString::new(text).map_err(|_| failed("the text holds a zero byte"));
        let options: Vec<CString> =
            options.iter().map(|option| plain(option)).collect::<Result<_, _>>()?;
        let code = self
            .nvrtc
            .compile(&plain("kernels.cu")?, &plain(text)?, &options)
            .map_err(|log| failed(&log))?;
        if let Some(cache) = &self.cache {
            // A cache that cannot be written costs time, nothing else.
            let _ = key.store(cache, &code);
        }
        Ok(code)
    }
}

impl CacheKey {
    /// The key of a text with its options, by this compiler for this driver.
    pub fn new(text: &str, options: &[String], compiler: (i32, i32), driver: i32) -> Self {
        let mut parts = format!("{}.{} {driver}\n", compiler.0, compiler.1).into_bytes();
        for option in options {
            parts.extend(option.as_bytes());
            parts.push(b'\n');
        }
        parts.push(b'\n');
        parts.extend(text.as_bytes());
        CacheKey { parts }
    }

    /// Name of the file that keeps its code.
    pub fn file_name(&self) -> String {
        let hash = |seed: u64| {
            self.parts.iter().fold(seed, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
            })
        };
        // FNV-1a from its own start and from another. The file holds the whole key, so that a collision would cost a
        // compilation, never a wrong kernel.
        format!("{:016x}{:016x}.cubin", hash(0xcbf2_9ce4_8422_2325), hash(0x6c62_272e_07bb_0142))
    }

    /// The code that is kept for it.
    fn load(&self, cache: &Path) -> Option<Vec<u8>> {
        let bytes = fs::read(cache.join(self.file_name())).ok()?;
        let rest = bytes.strip_prefix(MAGIC)?;
        let (len, rest) = rest.split_first_chunk::<8>()?;
        let (key, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
        let (len, code) = rest.split_first_chunk::<8>()?;
        let whole = usize::try_from(u64::from_le_bytes(*len)).ok()? == code.len();
        (key == self.parts && whole && !code.is_empty()).then(|| code.to_vec())
    }

    /// Keeps code: written beside and renamed, so that nobody ever reads half of it.
    fn store(&self, cache: &Path, code: &[u8]) -> std::io::Result<()> {
        fs::create_dir_all(cache)?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend((self.parts.len() as u64).to_le_bytes());
        bytes.extend(&self.parts);
        bytes.extend((code.len() as u64).to_le_bytes());
        bytes.extend(code);
        let beside = cache.join(format!("{}.{}", self.file_name(), std::process::id()));
        fs::write(&beside, &bytes)?;
        fs::rename(&beside, cache.join(self.file_name()))
    }
}

/// The kernel in which a log's first error is, by its line: `kernels.cu(LINE): error: ...`.
fn place_of_first_error(text: &str, log: &str) -> String {
    let line = log.lines().filter(|line| line.contains("error")).find_map(|line| {
        line.split_once('(').and_then(|(_, rest)| rest.split_once(')')?.0.parse::<usize>().ok())
    });
    let Some(line) = line else { return "no line is named".to_owned() };
    let kernel = text.lines().take(line).filter_map(|line| {
        let (_, rest) = line.split_once("__global__ void ")?;
        rest.split(['(', ' ']).next()
    });
    match kernel.last() {
        Some(kernel) => format!("kernel {kernel}, line {line}"),
        None => format!("before the first kernel, line {line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str, option: &str, compiler: (i32, i32), driver: i32) -> CacheKey {
        CacheKey::new(text, &[option.to_owned()], compiler, driver)
    }

    #[test]
    fn keys_differ_by_everything_that_code_depends_on() {
        let keys = [
            key("text", "-a", (13, 0), 13_000),
            key("text ", "-a", (13, 0), 13_000),
            key("text", "-b", (13, 0), 13_000),
            key("text", "-a", (12, 9), 13_000),
            key("text", "-a", (13, 0), 12_080),
            CacheKey::new("text", &[], (13, 0), 13_000),
        ];
        for (index, first) in keys.iter().enumerate() {
            for second in &keys[index + 1..] {
                assert_ne!(first.file_name(), second.file_name());
            }
        }
        assert_eq!(keys[0], key("text", "-a", (13, 0), 13_000));
    }

    #[test]
    fn code_is_kept_whole_or_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let key = key("text", "-a", (13, 0), 13_000);
        assert_eq!(key.load(folder.path()), None);
        key.store(folder.path(), b"code").expect("stores");
        assert_eq!(key.load(folder.path()).as_deref(), Some(&b"code"[..]));
        let names: Vec<_> = fs::read_dir(folder.path()).expect("a folder").flatten().collect();
        assert_eq!(names.len(), 1, "nothing is left beside it");
        let path = folder.path().join(key.file_name());
        let bytes = fs::read(&path).expect("reads");
        for end in [0, 10, MAGIC.len() + 4, bytes.len() - 1] {
            fs::write(&path, &bytes[..end]).expect("writes");
            assert_eq!(key.load(folder.path()), None, "cut to {end} bytes");
        }
        // Another key's file under this name is no match.
        let other = CacheKey::new("other", &[], (13, 0), 13_000);
        other.store(folder.path(), b"code").expect("stores");
        fs::rename(folder.path().join(other.file_name()), &path).expect("renames");
        assert_eq!(key.load(folder.path()), None);
    }

    #[test]
    fn options_name_the_card_and_bound_the_registers() {
        let options = compile_options((9, 0), 512).join(" ");
        assert!(options.contains("sm_90a") && options.contains("--maxrregcount=128"), "{options}");
        let options = compile_options((8, 6), 256).join(" ");
        assert!(options.contains("sm_86 ") && options.contains("--maxrregcount=255"), "{options}");
    }

    #[test]
    fn an_error_names_its_kernel() {
        let text = "int a;\nextern \"C\" __global__ void region_0(int x)\n{}\nextern \"C\" __global__ void region_1(int x)\n{ b }\n";
        let log = "kernels.cu(5): error: identifier \"b\" is undefined\n1 error detected";
        assert_eq!(place_of_first_error(text, log), "kernel region_1, line 5");
        assert_eq!(
            place_of_first_error(text, "kernels.cu(1): error: x"),
            "before the first kernel, line 1"
        );
        assert_eq!(place_of_first_error(text, "nvrtc: error: invalid value"), "no line is named");
    }

    /// Runs where the compiler is installed, with or without a card.
    #[test]
    fn a_text_becomes_code_and_a_wrong_one_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let compiler = match Compiler::with_cache(13_000, Some(folder.path().to_owned())) {
            Ok(compiler) => compiler,
            Err(error) => {
                assert!(error.to_string().contains("LITHOS_NVRTC"), "{error}");
                println!("skipped: {error}");
                return;
            }
        };
        let options = compile_options((9, 0), 256);
        let text = "extern \"C\" __global__ void region_0(float* x) { x[threadIdx.x] *= 2; }";
        let code = compiler.compile("a test", text, &options).expect("compiles");
        assert_eq!(code[..4], *b"\x7fELF");
        assert_eq!(compiler.compile("a test", text, &options).expect("is kept"), code);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
        let error = compiler.compile("a test", &text.replace("x[", "y["), &options);
        let error = error.expect_err("is refused").to_string();
        assert!(error.contains("kernel region_0, line 1") && error.contains("\"y\""), "{error}");
    }
}
