//! The driver with real tasks, real tools and a real store.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one thing and passes over the rest")]

mod approvals;
mod attempts;
mod call_hooks;
mod callback_keys;
mod concurrency;
mod decision_timing;
mod delegation;
mod disconnected_callers;
mod draining;
mod faulty_store;
mod feeds;
mod function_plugin;
mod grants;
mod halted;
mod harness;
mod holding;
mod idempotency_keys;
mod inline_tools;
mod interrupting;
mod models;
mod outputs;
mod plugin_failures;
mod plugins;
mod quotas;
mod recovering;
mod rounds;
mod run_end;
mod sent_schemas;
mod slots;
mod slots_exhausted;
mod store_failures;
mod tenant_shares;
mod thread_targets;
mod threads;
mod tool_questions;
mod transcript_cache;
mod trimming;
mod watching_approvals;
