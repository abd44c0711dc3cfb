//! How much memory there is.

/// Bytes that can be had without swapping, if the system says.
pub fn available() -> Option<u64> {
    // Only Linux has this file.
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}
