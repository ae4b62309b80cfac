//! The guide: one page for each question that comes up when an agent is embedded. Every block of code on these pages is
//! compiled and run by the tests.

pub mod approvals;
pub mod children;
pub mod crashes;
pub mod errors;
pub mod events;
pub mod guarantees;
pub mod models;
pub mod plugins;
pub mod stores;
pub mod threads;
pub mod tools;
