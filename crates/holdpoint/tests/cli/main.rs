//! The program, run as a user runs it: what it prints where, and what it exits with.

mod check;
mod check_faults;
mod check_store;
mod demo;
mod program;
mod prove;
mod read_only;
mod real_models;
mod serve;
mod server;
mod upkeep;
mod usage;
