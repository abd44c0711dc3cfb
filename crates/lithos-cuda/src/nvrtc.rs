//! NVIDIA's runtime compiler, looked for where it is usually installed.
//!
//! Loaded here and not by the binding of the driver, which looks for fixed names only and panics where none is found.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::Library;

use crate::error::CudaError;

/// Names of the library, the newest first.
const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// Folders of the library under the root of a toolkit or of Python packages.
const FOLDERS: [&str; 7] = [
    "",
    "lib64",
    "lib",
    "targets/x86_64-linux/lib",
    "targets/sbsa-linux/lib",
    "nvidia/cu13/lib",
    "nvidia/cuda_nvrtc/lib",
];

type Program = *mut c_void;

/// The functions that are called.
#[derive(Debug)]
pub(crate) struct Nvrtc {
    // Keeps the functions loaded.
    _library: Library,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    log: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    cubin_size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    destroy: unsafe extern "C" fn(*mut Program) -> c_int,
    error_text: unsafe extern "C" fn(c_int) -> *const c_char,
    version: (i32, i32),
}

impl Nvrtc {
    /// Finds and loads the compiler: `LITHOS_NVRTC`, the loader's own path, `CUDA_HOME`, `CUDA_PATH`, then toolkits in
    /// /usr/local.
    pub(crate) fn open() -> Result<Self, CudaError> {
        let named = |variable| std::env::var_os(variable).filter(|value| !value.is_empty());
        let chosen = named("LITHOS_NVRTC").map(PathBuf::from);
        let mut roots: Vec<PathBuf> =
            ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(named).map(PathBuf::from).collect();
        roots.extend(toolkits(Path::new("/usr/local")));
        let mut searched = Vec::new();
        for folder in chosen.iter().flat_map(|root| folders(root)) {
            if let Some(found) = in_folder(&folder) {
                return found;
            }
        }
        searched.extend(chosen.iter().map(|root| root.display().to_string()));
        for name in NAMES {
            // SAFETY: loading the library runs nothing but its initialisers.
            if let Ok(library) = unsafe { Library::new(name) } {
                return Nvrtc::new(library, name);
            }
        }
        searched.push("the loader's path".to_owned());
        for folder in roots.iter().flat_map(|root| folders(root)) {
            if let Some(found) = in_folder(&folder) {
                return found;
            }
        }
        searched.extend(roots.iter().map(|root| root.display().to_string()));
        Err(CudaError::NoCompiler { searched: searched.join(", ") })
    }

    fn new(library: Library, path: &str) -> Result<Self, CudaError> {
        let unusable = |cause: String| CudaError::Compiler { path: path.to_owned(), cause };
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the type of the field that takes it is that of NVIDIA's header.
                *unsafe { library.get($name.to_bytes_with_nul()) }
                    .map_err(|error| unusable(error.to_string()))?
            };
        }
        let version_of: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int =
            function!(c"nvrtcVersion");
        let mut version = (0, 0);
        // SAFETY: writes two integers.
        unsafe { version_of(&raw mut version.0, &raw mut version.1) };
        Ok(Nvrtc {
            create: function!(c"nvrtcCreateProgram"),
            compile: function!(c"nvrtcCompileProgram"),
            log_size: function!(c"nvrtcGetProgramLogSize"),
            log: function!(c"nvrtcGetProgramLog"),
            cubin_size: function!(c"nvrtcGetCUBINSize"),
            cubin: function!(c"nvrtcGetCUBIN"),
            destroy: function!(c"nvrtcDestroyProgram"),
            error_text: function!(c"nvrtcGetErrorString"),
            version,
            _library: library,
        })
    }

    /// Its version, major and minor.
    pub(crate) fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Compiles a text to machine code of a card; the error is the compiler's log.
    pub(crate) fn compile(
        &self,
        name: &CStr,
        text: &CStr,
        options: &[CString],
    ) -> Result<Vec<u8>, String> {
        let mut program: Program = ptr::null_mut();
        // SAFETY: all strings live until the end of the function, and there are no headers.
        let made = unsafe {
            (self.create)(
                &raw mut program,
                text.as_ptr(),
                name.as_ptr(),
                0,
                ptr::null(),
                ptr::null(),
            )
        };
        if made != 0 {
            return Err(self.error(made));
        }
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program was made above, and the options live.
        let compiled =
            unsafe { (self.compile)(program, pointers.len() as c_int, pointers.as_ptr()) };
        let result = match compiled {
            0 => self.bytes(program, self.cubin_size, self.cubin),
            error => Err(self
                .bytes(program, self.log_size, self.log)
                .map(|log| String::from_utf8_lossy(&log).trim_matches(['\0', '\n']).to_owned())
                .ok()
                .filter(|log| !log.is_empty())
                .unwrap_or_else(|| self.error(error))),
        };
        // SAFETY: made above, destroyed once.
        unsafe { (self.destroy)(&raw mut program) };
        result
    }

    /// What a program holds, by a function for its size and one that copies.
    fn bytes(
        &self,
        program: Program,
        size: unsafe extern "C" fn(Program, *mut usize) -> c_int,
        copy: unsafe extern "C" fn(Program, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>, String> {
        let mut len = 0;
        // SAFETY: writes one integer.
        let known = unsafe { size(program, &raw mut len) };
        if known != 0 {
            return Err(self.error(known));
        }
        let mut bytes = vec![0u8; len];
        // SAFETY: there is room for as many as were announced.
        match unsafe { copy(program, bytes.as_mut_ptr().cast()) } {
            0 => Ok(bytes),
            error => Err(self.error(error)),
        }
    }

    fn error(&self, code: c_int) -> String {
        // SAFETY: the function returns a text of the library for any number.
        let text = unsafe { (self.error_text)(code) };
        if text.is_null() {
            return format!("error {code}");
        }
        // SAFETY: as above.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

fn folders(root: &Path) -> Vec<PathBuf> {
    FOLDERS.iter().map(|folder| root.join(folder)).collect()
}

/// Toolkits of a folder: `cuda`, then others that begin so, the newest first.
fn toolkits(parent: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let mut others: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("cuda-"))
        .map(|entry| entry.path())
        .collect();
    others.sort();
    others.push(parent.join("cuda"));
    others.reverse();
    others
}

/// The library of a folder, if it has one.
fn in_folder(folder: &Path) -> Option<Result<Nvrtc, CudaError>> {
    let path = NAMES.iter().map(|name| folder.join(name)).find(|path| path.is_file())?;
    load_builtins(folder);
    let shown = path.display().to_string();
    // SAFETY: loading the library runs nothing but its initialisers.
    Some(match unsafe { Library::new(&path) } {
        Ok(library) => Nvrtc::new(library, &shown),
        Err(error) => Err(CudaError::Compiler { path: shown, cause: error.to_string() }),
    })
}

/// Loads the compiler's own headers, which it looks for by name on the loader's path only.
fn load_builtins(folder: &Path) {
    #[cfg(unix)]
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("libnvrtc-builtins.so.") && !name.contains(".alt") {
            use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
            // SAFETY: a library of data. It stays loaded, as the compiler may ask for it at any time.
            let opened = unsafe { Library::open(Some(entry.path()), RTLD_NOW | RTLD_GLOBAL) };
            let _ = opened.map(std::mem::forget);
        }
    }
    #[cfg(not(unix))]
    let _ = folder;
}
