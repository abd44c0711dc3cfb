//! Kernels of a few task bodies, compiled for the emulator.

use lithos_compiler::StepState;
use lithos_emulator::{Emulator, EmulatorError, Library};
use lithos_kernels::{Language, library};

/// The kernel `name` that makes these calls, one a line; nothing, which is said, where there is no compiler and none is required.
pub fn kernel(name: &str, calls: &str) -> Option<Library> {
    let text = format!(
        "{}\n{} {{\n    threadgroup float shared[SHARED_FLOATS];\n    \
         Memory memory = {{weights, arena, states, step, tokens, pages, joins}};\n    \
         Worker worker = THIS_WORKER;\n{calls}}}\n",
        library(Language::Metal, &StepState::c_text()),
        Language::Metal.signature(name),
    );
    let required = std::env::var_os("LITHOS_REQUIRE_CLANG").is_some();
    match Emulator::new().and_then(|emulator| emulator.compile(&text)) {
        Ok(library) => Some(library),
        Err(error @ EmulatorError::NoCompiler { .. }) if !required => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("compiles: {error}"),
    }
}
