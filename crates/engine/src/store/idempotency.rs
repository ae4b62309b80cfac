//! Keys by which a repeat is recognised: of a message that was posted, and of an answer that was given.

use machine::id::Digest;

use super::StoreError;

/// Of a scope. Longer ones are refused: a scope is part of an index.
pub const SCOPE_BYTES_MAX: usize = 1_024;
/// Of an answer that is remembered. Longer ones are refused.
pub const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Answers that one run remembers, or a few more where several are kept at once.
pub const STORED_RESPONSES_MAX: usize = 1_024;

/// Why one more answer is not kept.
#[must_use]
pub fn too_many_stored_responses() -> StoreError {
    StoreError::Impossible(format!("the run remembers {STORED_RESPONSES_MAX} answers, which is enough"))
}

/// What recognises a repeat of a posted message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostKey {
    /// Whose key it is and which: whoever posts chooses it. It counts within one thread.
    pub scope: String,
    /// Of what was posted: a repeat has the same.
    pub body: Digest,
}

impl PostKey {
    /// What speaks against it whatever is stored.
    pub fn check(&self) -> Result<(), StoreError> {
        check_scope(&self.scope)
    }
}

/// An answer as it was given, for whoever asks the same once more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// Of what was asked: a repeat has the same.
    pub body: Digest,
    pub status: u16,
    pub answer: String,
}

impl StoredResponse {
    /// What speaks against it whatever is stored.
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
