//! Runs the program as a user does, and checks its standard output, standard error and exit code.

mod audit;
mod audit_of_a_server;
mod audit_run_heads;
mod audit_runs;
mod audit_sink;
mod browser;
mod callbacks;
mod check;
mod check_faults;
mod check_store;
mod client;
mod client_approvals;
mod client_errors;
mod client_runs;
mod client_watch;
mod database;
mod delegation;
mod demo;
mod example_pages;
mod fake_tool;
mod follower;
mod front_ends;
mod hooks;
mod http_tools;
mod memory;
mod old_stores;
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
mod thread_views;
mod unread_log;
mod unreadable;
mod upkeep;
mod usage;
