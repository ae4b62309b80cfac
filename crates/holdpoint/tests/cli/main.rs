//! The program, run as a user runs it: what it prints where, and what it exits with.

mod program;
mod read_only;
mod upkeep;
mod usage;
