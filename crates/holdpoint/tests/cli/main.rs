//! The program, run as a user runs it: what it prints where, and what it exits with.

mod asking;
mod asking_approvals;
mod asking_doors;
mod asking_runs;
mod callbacks;
mod callee;
mod check;
mod check_faults;
mod check_store;
mod database;
mod delegation;
mod demo;
mod earlier;
mod follower;
mod http_tools;
mod memory;
mod open_mode;
mod orderly_stop;
#[path = "../../../stores/tests/postgres/server.rs"]
#[allow(dead_code, reason = "the tests of the store use all of it")]
mod postgres_server;
mod program;
mod prove;
mod read_only;
mod real_models;
mod rotation;
mod secrets;
mod serve;
mod server;
mod streams_over_kills;
mod unread_log;
mod upkeep;
mod usage;
mod watching;
