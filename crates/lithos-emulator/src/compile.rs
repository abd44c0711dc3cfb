//! From a Metal text to a loaded library, by way of clang and a cache on disk.

use crate::error::EmulatorError;
use crate::machine::{Lane, Runtime, VariableRecord};
use crate::source::{Kernel, Source};
use std::collections::HashMap;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Earlier versions cannot compute with bfloat.
const LEAST_VERSION: u32 = 17;
const LATEST_VERSION: u32 = 24;
/// The stand-in for Metal's library.
const HEADERS: [(&str, &str); 7] = [
    ("lithos_runtime", include_str!("../include/lithos_runtime")),
    ("metal_types", include_str!("../include/metal_types")),
    ("metal_math", include_str!("../include/metal_math")),
    ("metal_atomic", include_str!("../include/metal_atomic")),
    ("metal_simdgroup", include_str!("../include/metal_simdgroup")),
    ("metal_simdgroup_matrix", include_str!("../include/metal_simdgroup_matrix")),
    ("metal_stdlib", include_str!("../include/metal_stdlib")),
];

/// Compiles Metal texts: a clang and a directory for what it makes.
#[derive(Debug, Clone)]
pub struct Emulator {
    compiler: Compiler,
    cache: PathBuf,
}

#[derive(Debug, Clone)]
struct Compiler {
    path: PathBuf,
    version: String,
}

/// A compiled text. What is compiled is compiled when it is first needed: runs with and without checks are two builds.
pub struct Library {
    emulator: Emulator,
    source: Source,
    fast: OnceLock<Arc<Loaded>>,
    checked: OnceLock<Arc<Loaded>>,
}

/// A loaded build. Only one launch at a time runs in it, for what it knows of the running lane is one variable.
pub(crate) struct Loaded {
    library: libloading::Library,
    pub(crate) path: PathBuf,
    running: Mutex<()>,
}

/// Where the loaded build keeps what the emulator must set or read.
pub(crate) struct Symbols {
    pub(crate) runtime: *mut Runtime,
    pub(crate) lane: *mut *mut Lane,
    pub(crate) variables: *const VariableRecord,
    pub(crate) variable_count: u64,
}

impl Emulator {
    /// Finds a clang (`LITHOS_CLANG`, or the newest `clang++` on the path) and the cache directory (`lithos/emulator`
    /// in `XDG_CACHE_HOME` or `~/.cache`).
    ///
    /// # Errors
    ///
    /// [`EmulatorError::NoCompiler`] where there is none of version 17 or later.
    pub fn new() -> Result<Self, EmulatorError> {
        let cache = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
            .unwrap_or_else(std::env::temp_dir);
        Self::with_cache(cache.join("lithos").join("emulator"))
    }

    /// As [`Emulator::new`], with this cache directory; it is made where it is missing.
    ///
    /// # Errors
    ///
    /// [`EmulatorError::NoCompiler`].
    pub fn with_cache(cache: impl Into<PathBuf>) -> Result<Self, EmulatorError> {
        static FOUND: OnceLock<Option<Compiler>> = OnceLock::new();
        let compiler = FOUND.get_or_init(Compiler::find).clone();
        let compiler = compiler.ok_or_else(|| EmulatorError::NoCompiler {
            searched: format!("clang++-{LATEST_VERSION} to clang++-{LEAST_VERSION}, clang++"),
            minimum: LEAST_VERSION,
        })?;
        Ok(Self { compiler, cache: cache.into() })
    }

    /// Compiles a text for fast runs. A build for checked runs is made by the first of them.
    ///
    /// # Errors
    ///
    /// [`EmulatorError::Compile`] with clang's log, [`EmulatorError::Source`], [`EmulatorError::File`],
    /// [`EmulatorError::Load`].
    pub fn compile(&self, text: &str) -> Result<Library, EmulatorError> {
        let library = self.prepare(text)?;
        library.loaded(false)?;
        Ok(library)
    }

    /// Reads a text without compiling it; the first run compiles what it needs.
    ///
    /// # Errors
    ///
    /// [`EmulatorError::Source`].
    pub fn prepare(&self, text: &str) -> Result<Library, EmulatorError> {
        Ok(Library {
            emulator: self.clone(),
            source: Source::parse(text)?,
            fast: OnceLock::new(),
            checked: OnceLock::new(),
        })
    }

    /// Checks that no pointer to one address space is used as a pointer to another. C-style casts pass.
    ///
    /// # Errors
    ///
    /// [`EmulatorError::AddressSpaces`] with clang's log.
    pub fn check_address_spaces(&self, text: &str) -> Result<(), EmulatorError> {
        let source = Source::parse(text)?;
        let arguments = ["-fsyntax-only", "-DLITHOS_ADDRESS_SPACES", "-ferror-limit=0"];
        let key = self.key(&source.address_spaces, &arguments);
        let passed = self.cache.join(format!("{key}.address-spaces"));
        if holds(&passed, &source.address_spaces) {
            return Ok(());
        }
        let directory = self.work_directory(&key)?;
        let file = directory.join("text.cpp");
        write(&file, &framed(&source.address_spaces))?;
        let log = self.invoke(&directory, &file, &arguments, None)?.unwrap_or_default();
        // C++ cannot copy a struct out of an address space, Metal can.
        let errors: Vec<&str> = log.lines().filter(|line| is_mix_up(line)).collect();
        let _ = std::fs::remove_dir_all(&directory);
        if !errors.is_empty() {
            return Err(EmulatorError::AddressSpaces { log: errors.join("; ") });
        }
        write(&passed, &source.address_spaces)
    }

    fn build(&self, source: &Source, checked: bool) -> Result<PathBuf, EmulatorError> {
        let mut arguments = vec!["-shared", "-fPIC", "-fvisibility=hidden"];
        if cfg!(target_arch = "x86_64") {
            arguments.push("-march=native");
        }
        if checked {
            arguments.extend(CHECKED);
        } else {
            arguments.push("-O2");
        }
        let key = self.key(&source.running, &arguments);
        let library = self.cache.join(format!("{key}.so"));
        let kept = self.cache.join(format!("{key}.text"));
        if library.exists() && holds(&kept, &source.running) {
            return Ok(library);
        }
        let directory = self.work_directory(&key)?;
        let file = directory.join("text.cpp");
        write(&file, &framed(&source.running))?;
        let made = directory.join("text.so");
        let log = self.invoke(&directory, &file, &arguments, Some(&made))?;
        let published = match log {
            Some(log) => Err(EmulatorError::Compile { log }),
            None => std::fs::rename(&made, &library)
                .map_err(|source| EmulatorError::File { path: library.clone(), source })
                .and_then(|()| write(&kept, &source.running)),
        };
        let _ = std::fs::remove_dir_all(&directory);
        published.map(|()| library)
    }

    /// Runs clang; its log where it failed.
    fn invoke(
        &self,
        directory: &Path,
        file: &Path,
        arguments: &[&str],
        output: Option<&Path>,
    ) -> Result<Option<String>, EmulatorError> {
        let mut command = Command::new(&self.compiler.path);
        command.args(ALWAYS).args(arguments).arg("-I").arg(directory).arg(file);
        if let Some(output) = output {
            command.args(["-nostdlib++", "-o"]).arg(output).arg("-lm");
        }
        let output = command
            .output()
            .map_err(|source| EmulatorError::File { path: self.compiler.path.clone(), source })?;
        let failed = !output.status.success();
        Ok(failed.then(|| String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }

    /// A directory of this build alone, with the headers in it.
    fn work_directory(&self, key: &str) -> Result<PathBuf, EmulatorError> {
        static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let directory = self.cache.join(format!("{key}.{}.{count}", std::process::id()));
        std::fs::create_dir_all(&directory)
            .map_err(|source| EmulatorError::File { path: directory.clone(), source })?;
        for (name, text) in HEADERS {
            write(&directory.join(name), text)?;
        }
        Ok(directory)
    }

    fn key(&self, text: &str, arguments: &[&str]) -> String {
        let mut hasher = DefaultHasher::new();
        (text, arguments, ALWAYS, HEADERS, &self.compiler.version, processor()).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }
}

const ALWAYS: [&str; 14] = [
    "-x",
    "c++",
    "-std=c++20",
    "-w",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-fno-stack-protector",
    // Only what the text asks for is fused, and every half and bfloat operation rounds.
    "-ffp-contract=off",
    "-fno-math-errno",
    "-Xclang",
    "-ffloat16-excess-precision=none",
    "-Xclang",
    "-fbfloat16-excess-precision=none",
];

/// Every access as the text has it, each announced to the emulator before it is made.
const CHECKED: [&str; 17] = [
    "-O1",
    "-gline-tables-only",
    "-fno-vectorize",
    "-fno-slp-vectorize",
    "-fsanitize=kernel-address",
    "-mllvm",
    "-asan-instrumentation-with-call-threshold=0",
    "-mllvm",
    "-asan-stack=0",
    "-mllvm",
    "-asan-globals=0",
    "-mllvm",
    "-asan-kernel-mem-intrinsic-prefix=1",
    "-mllvm",
    "-asan-opt=0",
    "-DLITHOS_CHECKS",
    "-fno-omit-frame-pointer",
];

impl Compiler {
    fn find() -> Option<Self> {
        if let Some(named) = std::env::var_os("LITHOS_CLANG") {
            return Self::at(named);
        }
        (LEAST_VERSION..=LATEST_VERSION)
            .rev()
            .map(|version| OsString::from(format!("clang++-{version}")))
            .chain([OsString::from("clang++")])
            .find_map(Self::at)
    }

    fn at(path: OsString) -> Option<Self> {
        let output = Command::new(&path).arg("--version").output().ok()?;
        let version = String::from_utf8(output.stdout).ok()?;
        let number = version.split("clang version ").nth(1)?.split('.').next()?;
        let enough = number.parse::<u32>().ok()? >= LEAST_VERSION;
        enough.then(|| Self { path: path.into(), version })
    }
}

impl Library {
    /// The kernels of the text.
    pub fn kernels(&self) -> &[Kernel] {
        &self.source.kernels
    }

    /// Compiles for checked runs now, which otherwise the first of them does.
    ///
    /// # Errors
    ///
    /// As [`Emulator::compile`].
    pub fn compile_checked(&self) -> Result<(), EmulatorError> {
        self.loaded(true).map(|_| ())
    }

    /// The kernel of this name and its index.
    pub(crate) fn kernel(&self, name: &str) -> Result<(usize, &Kernel), EmulatorError> {
        let kernels = &self.source.kernels;
        let found = kernels.iter().enumerate().find(|(_, kernel)| kernel.name == name);
        found.ok_or_else(|| EmulatorError::UnknownKernel {
            kernel: name.to_owned(),
            known: kernels.iter().map(|kernel| kernel.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }

    /// Names of a kernel's threadgroup variables.
    pub(crate) fn variable_names(&self, kernel: usize) -> &[String] {
        &self.source.variables[kernel]
    }

    pub(crate) fn loaded(&self, checked: bool) -> Result<&Arc<Loaded>, EmulatorError> {
        let slot = if checked { &self.checked } else { &self.fast };
        if let Some(loaded) = slot.get() {
            return Ok(loaded);
        }
        let loaded = Loaded::open(&self.emulator.build(&self.source, checked)?)?;
        Ok(slot.get_or_init(|| loaded))
    }
}

impl Loaded {
    /// Loads a build, or finds it loaded: the system's loader gives the same variables to whoever opens a file again.
    fn open(path: &Path) -> Result<Arc<Self>, EmulatorError> {
        static LOADED: OnceLock<Mutex<HashMap<PathBuf, Arc<Loaded>>>> = OnceLock::new();
        let mut loaded = lock(LOADED.get_or_init(Mutex::default));
        if let Some(found) = loaded.get(path) {
            return Ok(found.clone());
        }
        // SAFETY: the file was made by our compiler from our headers; its initialisers only fill its own table.
        let library = unsafe { libloading::Library::new(path) }
            .map_err(|cause| EmulatorError::Load { cause: cause.to_string() })?;
        let opened = Arc::new(Self { library, path: path.to_owned(), running: Mutex::new(()) });
        loaded.insert(path.to_owned(), opened.clone());
        Ok(opened)
    }

    /// Keeps other launches out.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        lock(&self.running)
    }

    /// The function that a lane of a kernel starts in.
    pub(crate) fn entry(&self, kernel: &str) -> Result<*const u8, EmulatorError> {
        self.symbol::<u8>(&format!("lithos_entry_{kernel}")).map(|pointer| pointer.cast_const())
    }

    pub(crate) fn symbols(&self) -> Result<Symbols, EmulatorError> {
        let count = self.symbol::<u64>("lithos_variable_count")?;
        Ok(Symbols {
            runtime: self.symbol("lithos_runtime")?,
            lane: self.symbol("lithos_lane")?,
            variables: self.symbol::<VariableRecord>("lithos_variables")?.cast_const(),
            // SAFETY: the header defines it with this type; it changes only while the library is loaded.
            variable_count: unsafe { *count },
        })
    }

    fn symbol<T>(&self, name: &str) -> Result<*mut T, EmulatorError> {
        // SAFETY: only the address is taken; uses of it are with the header's types.
        let symbol = unsafe { self.library.get::<*mut T>(name.as_bytes()) };
        let symbol = symbol.map_err(|cause| EmulatorError::Load { cause: cause.to_string() })?;
        Ok(*symbol)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Includes the library first, as some texts rely on, and names the text in messages.
fn framed(text: &str) -> String {
    format!("#line 1 \"text.metal\"\n{text}")
}

fn write(path: &Path, text: &str) -> Result<(), EmulatorError> {
    std::fs::write(path, text)
        .map_err(|source| EmulatorError::File { path: path.to_owned(), source })
}

fn holds(path: &Path, text: &str) -> bool {
    std::fs::read(path).is_ok_and(|bytes| bytes == text.as_bytes())
}

/// Whether a line of clang's log says that address spaces are mixed up, and not that a struct in one cannot be copied.
fn is_mix_up(line: &str) -> bool {
    line.contains(" error: ")
        && ![
            "no viable conversion from",
            "no viable overloaded '='",
            "no matching constructor",
            "'this' argument to member function",
            "no matching member function",
        ]
        .iter()
        .any(|copy| line.contains(copy))
}

/// What the processor can do, for a build uses all of it.
fn processor() -> &'static str {
    static FLAGS: OnceLock<String> = OnceLock::new();
    FLAGS.get_or_init(|| {
        let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        information
            .lines()
            .find(|line| line.starts_with("flags") || line.starts_with("Features"))
            .unwrap_or_default()
            .to_owned()
    })
}
