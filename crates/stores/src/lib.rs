//! Stores for runs. One contract ([`engine::store`]), one conformance suite, three stores.

pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub mod audit_reader;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod chain;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod columns;
mod commit_text;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub mod doctor;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod encoded_commit;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod failure_counters;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod grants;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub mod held_calls;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod page;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod pruned;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod read_permits;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub mod run_heads;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use pruned::Pruned;

use engine::store::StoreError;
use serde_json::Value;

/// Refuses metadata that could not be read back.
fn check_metadata(metadata: &Value) -> Result<(), StoreError> {
    let fault = machine::json_value::fault(metadata);
    fault.map_or(Ok(()), |fault| Err(StoreError::Impossible(format!("metadata cannot be stored: {fault}"))))
}
