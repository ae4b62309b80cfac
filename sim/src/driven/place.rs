//! Where the data of a world is.

use std::fmt;

/// Worlds on a file are slower; one in so many is enough to show that the two stores are alike.
const FILE_EVERY: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Memory,
    /// A file of SQLite.
    File,
    /// A PostgreSQL server that the simulator starts.
    Server,
}

impl Place {
    /// Where the world of a seed is played unless somebody says otherwise.
    #[must_use]
    pub const fn of_seed(seed: u64) -> Self {
        if seed % FILE_EVERY == FILE_EVERY - 1 { Self::File } else { Self::Memory }
    }

    /// As the command line names it.
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
