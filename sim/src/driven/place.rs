//! Where the data of a world is.

use std::fmt;

/// Worlds on a file are slower, so only every nth one uses a file. That is enough to show that the two stores agree.
const FILE_EVERY: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Memory,
    /// An SQLite file.
    File,
    /// A PostgreSQL server that the simulator starts.
    Server,
}

impl Place {
    /// Where the world of a seed is played by default.
    #[must_use]
    pub const fn of_seed(seed: u64) -> Self {
        if seed % FILE_EVERY == FILE_EVERY - 1 { Self::File } else { Self::Memory }
    }

    /// Parses the name used on the command line.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Memory, Self::File, Self::Server].into_iter().find(|place| place.name() == name)
    }

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::File => "sqlite",
            Self::Server => "postgres",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
