//! Implementations of [`engine::tool::Tool`] that are not the embedder's own code, one module for each kind.

pub mod builtin;
#[cfg(feature = "http")]
pub mod http;
