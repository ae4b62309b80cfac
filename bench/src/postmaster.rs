//! Resources used by a PostgreSQL server on this machine with all its processes, as the operating system counts them.

use std::fs;
use std::time::Duration;

use crate::process::{self, Times};

/// The process that starts all other processes of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Postmaster {
    number: u32,
}

impl Postmaster {
    /// The postmaster that started this backend; None if it is not a server on this machine.
    pub(crate) fn of_backend(number: i32) -> Option<Self> {
        let backend = u32::try_from(number).ok()?;
        let number = process::times_of(backend)?.parent;
        let is_postgres = |number: u32| {
            fs::read_to_string(format!("/proc/{number}/comm")).is_ok_and(|name| name.starts_with("postgres"))
        };
        (is_postgres(backend) && is_postgres(number)).then_some(Self { number })
    }

    /// CPU time, including that of processes which have ended.
    pub(crate) fn cpu_time(self) -> Option<Duration> {
        let own = process::times_of(self.number)?;
        let others = fs::read_dir("/proc").ok()?.filter_map(|entry| {
            let number = entry.ok()?.file_name().to_str()?.parse().ok()?;
            process::times_of(number).filter(|times| times.parent == self.number)
        });
        Some(others.fold(own.all(), |sum, times: Times| sum + times.all()))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::Postmaster;

    #[test]
    fn whatever_is_not_of_a_server_has_no_postmaster() {
        let own = i32::try_from(std::process::id()).expect("the number of a process is small");
        assert!(Postmaster::of_backend(own).is_none() && Postmaster::of_backend(-1).is_none());
    }
}
