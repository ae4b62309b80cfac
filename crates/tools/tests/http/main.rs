//! Tools behind an address, against servers that answer, stall, hang up and lie.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod fake;
mod outcomes;
mod requests;
