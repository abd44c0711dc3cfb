//! The line of the text for an address of its code, by the tools that come with compilers.

use std::ffi::c_void;
use std::path::Path;
use std::process::Command;

/// The line of the text whose code returns to `address`, and those of the calls that were put in place around it; none
/// where no tool is there to tell.
pub(crate) fn lines_of(library: &Path, address: usize) -> Vec<u32> {
    tool_output(library, address)
        .map(|text| text.lines().filter_map(line_in_text).collect())
        .unwrap_or_default()
}

fn tool_output(library: &Path, address: usize) -> Option<String> {
    // SAFETY: a struct of pointers, for which zeros are valid.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is only looked up, and `found` is ours.
    if unsafe { libc::dladdr(address as *const c_void, &raw mut found) } == 0 {
        return None;
    }
    // Before the return address is the call.
    let offset = address.checked_sub(found.dli_fbase as usize)?.checked_sub(1)?;
    let tools: [(&str, &[&str]); 3] = [
        ("llvm-symbolizer", &["--output-style=GNU", "--inlining"]),
        ("llvm-symbolizer-19", &["--output-style=GNU", "--inlining"]),
        ("addr2line", &["-i"]),
    ];
    tools.iter().find_map(|(tool, arguments)| {
        let mut command = Command::new(tool);
        command.args(*arguments).arg("-e").arg(library).arg(format!("{offset:#x}"));
        let output = command.output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        text.lines().any(|line| line_in_text(line).is_some()).then_some(text)
    })
}

/// The line of `.../text.metal:LINE`, perhaps with a column or remark after it.
fn line_in_text(location: &str) -> Option<u32> {
    let after = location.split("text.metal:").nth(1)?;
    let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_locations() {
        assert_eq!(line_in_text("/a/b/text.metal:41"), Some(41));
        assert_eq!(line_in_text("text.metal:7 (discriminator 3)"), Some(7));
        assert_eq!(line_in_text("/a/metal_simdgroup:41"), None);
        assert_eq!(line_in_text("??:0"), None);
    }
}
