//! Names and numbers as they are stored in columns.

use machine::Timestamp;
use machine::checkpoint::Checkpoint;
use machine::id::Digest;
use machine::inbox::Item;
use machine::projection_rows::{ApprovalStatus, PublicRunStatus, Role};
use machine::suspension::SuspensionKind;

use engine::store::{StoreError, StoreFailure};

use crate::commit_text::checkpoint_name;

/// Saturates: databases have no larger numbers, and no due time is later.
pub(crate) fn to_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(crate) fn millis(at: Timestamp) -> i64 {
    to_i64(at.0)
}

pub(crate) fn timestamp(column: i64) -> Timestamp {
    Timestamp(to_u64(column))
}

pub(crate) fn to_u64(column: i64) -> u64 {
    u64::try_from(column).unwrap_or(0)
}

pub(crate) fn digest(column: &[u8]) -> Result<Digest, StoreError> {
    <[u8; 32]>::try_from(column).map(Digest).map_err(|_| corrupt("a digest does not have 32 bytes"))
}

const CHECKPOINTS: [Checkpoint; 6] = [
    Checkpoint::UserMessage,
    Checkpoint::AssistantTurn,
    Checkpoint::ToolResults,
    Checkpoint::ReplayResults,
    Checkpoint::Waiting,
    Checkpoint::RunFinished,
];

pub(crate) const fn role_name(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
        Role::Note => "note",
    }
}

pub(crate) const fn item_kind_name(item: &Item) -> &'static str {
    match item {
        Item::Decision(_) => "decision",
        Item::Early { .. } => "early",
        Item::Interrupt { .. } => "interrupt",
        Item::ChildEnded(_) => "child_ended",
        Item::LateAnswer { .. } => "late_answer",
    }
}

pub(crate) fn parse_checkpoint(word: &str) -> Result<Checkpoint, StoreError> {
    find(CHECKPOINTS, word, checkpoint_name)
}

pub(crate) fn parse_role(word: &str) -> Result<Role, StoreError> {
    find([Role::User, Role::Assistant, Role::Tool, Role::Note], word, role_name)
}

pub(crate) fn parse_status(word: &str) -> Result<PublicRunStatus, StoreError> {
    find(PublicRunStatus::ALL, word, PublicRunStatus::as_str)
}

pub(crate) fn parse_approval_status(word: &str) -> Result<ApprovalStatus, StoreError> {
    find(ApprovalStatus::ALL, word, ApprovalStatus::as_str)
}

pub(crate) fn parse_suspension_kind(word: &str) -> Result<SuspensionKind, StoreError> {
    find(SuspensionKind::ALL, word, SuspensionKind::as_str)
}

fn find<T: Copy, const N: usize>(
    all: [T; N],
    word: &str,
    name: impl Fn(T) -> &'static str,
) -> Result<T, StoreError> {
    all.into_iter().find(|one| name(*one) == word).ok_or_else(|| corrupt(format!("{word} means nothing")))
}

fn corrupt(why: impl Into<String>) -> StoreError {
    StoreFailure::Corrupt(why.into()).into()
}
