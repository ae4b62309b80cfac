//! How worlds are played: from a tape, by the thousand, made short when they fail, counted, and told.

pub mod coverage;
pub mod differential;
pub mod names;
pub mod runner;
pub mod shrink;
pub mod story;
pub mod tables;
pub mod tape;
pub mod words;
