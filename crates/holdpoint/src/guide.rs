//! The guide: one page for each question that comes up when you embed an agent. The tests compile and run every code
//! block on these pages.

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
