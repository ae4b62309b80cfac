//! Where runs are kept. One contract ([`engine::store`]), one conformance suite, three stores.

pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

#[cfg(feature = "postgres")]
mod entry;
#[cfg(feature = "postgres")]
mod page;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod pruned;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod troublesome;
#[cfg(feature = "postgres")]
mod words;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use pruned::Pruned;
