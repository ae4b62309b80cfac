//! PostgreSQL only: several nodes on one database, leases that expire, and a server that stops and restarts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failing test may panic")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one variant and ignores the rest")]

#[path = "../conformance/differential.rs"]
mod differential;
#[path = "../conformance/fixture.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod fixture;
#[path = "../conformance/postgres_fixture.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod postgres_fixture;
#[path = "server.rs"]
mod postgres_server;
#[path = "../conformance/sample_data.rs"]
#[allow(dead_code, reason = "the tests of files use all of it")]
mod sample_data;
#[path = "../conformance/snapshot.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod snapshot;
#[cfg(feature = "sqlite")]
#[path = "../conformance/sqlite_fixture.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod sqlite_fixture;
#[path = "../conformance/tampering.rs"]
mod tampering;
#[path = "../conformance/worker.rs"]
#[allow(dead_code, reason = "the conformance suite uses all of it")]
mod worker;

mod against_memory;
mod audit;
mod batched_requests;
mod batching;
mod chains;
mod claims;
mod constraints;
mod deltas;
mod doctor;
mod engines;
mod failover;
mod held_calls;
mod interrupts;
mod leases;
mod lists;
mod migrations;
mod nodes;
mod notifications;
mod orphan_rows;
mod outages;
mod planted_faults;
mod proxy;
mod query_plans;
mod retention;
mod tls;
