//! How worlds are played: from a tape, by the thousand, shrunk when they fail, counted, and printed as stories.

pub mod coverage;
pub mod differential;
pub mod names;
pub mod runner;
pub mod shrink;
pub mod story;
pub mod tables;
pub mod tape;
pub mod words;
