//! How much memory there is.

use anyhow::bail;
use lithos_engine::Engine;

/// Bytes that can be had without swapping, if the system says.
pub fn available() -> Option<u64> {
    // Only Linux has this file.
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// The most memory that this process has had resident, if the system says.
pub fn peak() -> Option<u64> {
    // Only Linux has this file.
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Checks that there is memory for so many copies more of an open model's weights.
///
/// # Errors
/// One line with the numbers; `what` needs them.
pub fn check_more(opened: &Engine, copies: usize, what: &str) -> anyhow::Result<()> {
    let needed = opened.memory().resident * copies as u64;
    match available() {
        Some(available) if needed > available => bail!(
            "{what} needs {} MB more, and this machine has {} MB available",
            needed >> 20,
            available >> 20
        ),
        _ => Ok(()),
    }
}
