//! Where runs are kept. One contract ([`engine::store`]), one conformance suite, two stores.

pub mod memory;
#[cfg(feature = "sqlite")]
pub mod sqlite;
