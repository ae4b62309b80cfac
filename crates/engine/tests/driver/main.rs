//! The driver with real tasks, real tools and a real store.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a story that cannot be told fails"
)]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one thing and passes over the rest")]

mod approvals;
mod attempts;
mod brought_tools;
mod callback_keys;
mod crowds;
mod delegation;
mod draining;
mod fair_shares;
mod faulty_store;
mod feeds;
mod full_house;
mod gone_away;
mod grants;
mod holding;
mod interrupting;
mod judging;
mod keys;
mod models;
mod outputs;
mod own_questions;
mod places;
mod plugged;
mod plugin_trouble;
mod plugins;
mod quotas;
mod recovering;
mod rounds;
mod run_end;
mod sent_schemas;
mod shelving;
mod stage;
mod standing;
mod store_trouble;
mod thread_choice;
mod threads;
mod trimming;
mod watching_approvals;
mod when_decided;
