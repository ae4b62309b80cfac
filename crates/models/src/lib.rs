//! Implementations of [`engine::model::Model`], one module each.

pub mod fallback;
#[cfg(feature = "providers")]
pub mod providers;
pub mod scripted;
