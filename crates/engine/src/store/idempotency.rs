//! Idempotency keys: for posted messages, and for stored responses.

use machine::id::Digest;

use super::StoreError;

/// Maximum size of a scope. Longer ones are refused because a scope is part of an index.
pub const SCOPE_BYTES_MAX: usize = 1_024;
/// Maximum size of a stored answer. Longer ones are refused.
pub const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Maximum number of answers that one run stores; concurrent requests may exceed it by a few.
pub const STORED_RESPONSES_MAX: usize = 1_024;

/// The error for one answer too many.
#[must_use]
pub fn too_many_stored_responses() -> StoreError {
    StoreError::Impossible(format!(
        "too many stored idempotent responses for this run (max {STORED_RESPONSES_MAX})"
    ))
}

/// Identifies a repeat of a posted message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostKey {
    /// The client's identity and the key it chose. Unique within one thread.
    pub scope: String,
    /// Digest of the posted body: a repeat has the same.
    pub body: Digest,
}

impl PostKey {
    /// Checks the limits that do not depend on stored data.
    pub fn check(&self) -> Result<(), StoreError> {
        check_scope(&self.scope)
    }
}

/// An answer as it was given, to be returned when the same request is repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// Digest of the request body: a repeat has the same.
    pub body: Digest,
    pub status: u16,
    pub answer: String,
}

impl StoredResponse {
    /// Checks the limits that do not depend on stored data.
    pub fn check(&self, scope: &str) -> Result<(), StoreError> {
        check_scope(scope)?;
        check_size("an answer", self.answer.len(), ANSWER_BYTES_MAX)
    }
}

fn check_scope(scope: &str) -> Result<(), StoreError> {
    check_size("a scope", scope.len(), SCOPE_BYTES_MAX)
}

fn check_size(what: &str, bytes: usize, bytes_max: usize) -> Result<(), StoreError> {
    if bytes <= bytes_max {
        return Ok(());
    }
    Err(StoreError::Impossible(format!("{what} has {bytes} bytes; at most {bytes_max}")))
}
