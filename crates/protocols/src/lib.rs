//! Pure translators between Holdpoint and the protocols of front ends: a run's events and live frames become protocol
//! frames, and requests become messages and decisions. Nothing here waits, reads a clock or keeps state beside what it
//! is given.

pub mod ag_ui;
pub mod ai_sdk;
pub mod feed;
