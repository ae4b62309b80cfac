//! Resources used by a process with all its threads, as the operating system counts them.

use std::fs;
use std::time::Duration;

/// The unit of `/proc/PID/stat`; the same on every Linux known to us.
const TICK: Duration = Duration::from_millis(10);

/// CPU time of a process.
pub(crate) struct Times {
    /// The id of its parent process.
    pub(crate) parent: u32,
    /// CPU time of all its threads, including those that have ended.
    pub(crate) own: Duration,
    /// CPU time of child processes that have ended.
    pub(crate) of_the_dead: Duration,
}

impl Times {
    pub(crate) fn all(&self) -> Duration {
        self.own + self.of_the_dead
    }
}

/// None if there is no `/proc`, or no such process.
pub(crate) fn times_of(number: u32) -> Option<Times> {
    let text = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // The second field is the program's name in parentheses, which may contain anything.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u32>().ok();
    Some(Times {
        parent: number(1)?,
        own: TICK * (number(11)? + number(12)?),
        of_the_dead: TICK * (number(13)? + number(14)?),
    })
}

/// CPU time of this process. None if there is no `/proc`.
pub(crate) fn cpu_time() -> Option<Duration> {
    times_of(std::process::id()).map(|times| times.own)
}

/// Bytes passed to the operating system to be written.
pub(crate) fn bytes_written() -> Option<u64> {
    number_behind("/proc/self/io", "wchar:")
}

/// Current memory of this process.
pub(crate) fn memory() -> Option<u64> {
    Some(number_behind("/proc/self/status", "VmRSS:")? * 1024)
}

/// Current memory of another process.
pub(crate) fn memory_of(number: u32) -> Option<u64> {
    Some(number_behind(&format!("/proc/{number}/status"), "VmRSS:")? * 1024)
}

/// Maximum number of open files and connections of this process and of its children.
pub(crate) fn open_files_max() -> Option<u64> {
    number_behind("/proc/self/limits", "Max open files")
}

/// Peak memory of this process.
pub(crate) fn peak_memory() -> Option<u64> {
    Some(number_behind("/proc/self/status", "VmHWM:")? * 1024)
}

fn number_behind(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::{bytes_written, cpu_time, memory, memory_of, open_files_max, peak_memory};

    #[test]
    fn the_system_tells_what_the_process_used() {
        assert!(cpu_time().is_some());
        assert!(bytes_written().is_some());
        // Other tests allocate meanwhile, so the peak is read last.
        let before = memory();
        assert!(before.is_some_and(|bytes| bytes > 100_000));
        assert!(peak_memory() >= before);
        assert!(memory_of(std::process::id()).is_some_and(|bytes| bytes > 100_000));
        assert!(open_files_max().is_some_and(|count| count > 10));
    }
}
