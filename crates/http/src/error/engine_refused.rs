//! Refusals of the engine and the store, worded for a client. Internals (paths, SQL, addresses) go to the operator's
//! log, never into a response.

use engine::posting::{MESSAGE_BYTES_MAX, PostError};
use engine::quota::QuotaReached;
use engine::store::{Countable, StoreError, StoreFailure};
use machine::json_value::ValueFault;
use machine::policy::LooseningRefused;
use machine::thread::Busy;

use super::{ApiError, Code};

impl From<StoreError> for ApiError {
    fn from(refused: StoreError) -> Self {
        match refused {
            StoreError::NotFound => Self::new(
                Code::NotFound,
                "nothing exists under this id, and nothing was changed; check the id and the key's tenant",
            ),
            StoreError::Busy(busy) => busy.into(),
            StoreError::Fenced | StoreError::Behind | StoreError::Stale => {
                tracing::warn!(refused = %refused, "a request failed after repeated conflicts with concurrent changes");
                Self::new(
                    Code::StoreUnavailable,
                    "the request kept conflicting with concurrent changes, and nothing was recorded; send it again",
                )
            }
            StoreError::Failed(StoreFailure::Unavailable(why)) => {
                tracing::error!(why, "the store cannot be reached");
                Self::new(
                    Code::StoreUnavailable,
                    "the store cannot be reached; send the request again later, with the same Idempotency-Key",
                )
            }
            StoreError::Failed(StoreFailure::Full(why)) => {
                tracing::error!(why, "the store is full");
                Self::new(
                    Code::StoreUnavailable,
                    "the store is full and nothing was recorded; report this to the operator of the server",
                )
            }
            StoreError::Failed(StoreFailure::Corrupt(why)) => {
                tracing::error!(why, "stored data cannot be decoded; run `holdpoint doctor`");
                Self::unreadable()
            }
            StoreError::Impossible(why) => {
                tracing::error!(why, "a commit contradicts the stored state; this is a bug in Holdpoint");
                Self::internal()
            }
        }
    }
}

impl ApiError {
    /// Something that the request needs cannot be decoded. The server's log says what.
    #[must_use]
    pub fn unreadable() -> Self {
        Self::new(
            Code::Unreadable,
            "some of the stored data cannot be decoded, and nothing was changed; interrupt the run or delete the thread \
             (neither needs that data), and report this to the operator of the server",
        )
    }

    /// A bug in the server. Its log has the cause.
    #[must_use]
    pub fn internal() -> Self {
        Self::new(
            Code::Internal,
            "internal error; the server's log has the cause. Check what is recorded before you try again",
        )
    }
}

const EMPTY_MESSAGE: &str = "the message is empty; send `text` or `content`";

impl From<PostError> for ApiError {
    fn from(refused: PostError) -> Self {
        match refused {
            PostError::NoSuchAgent(agent) => Self::new(
                Code::AgentNotFound,
                format!("there is no agent `{agent}`, and no run was started; GET /v1/agents lists them"),
            )
            .with("agent", agent.as_str()),
            PostError::NoSuchThread(thread) => Self::no_thread(thread.as_str()),
            PostError::Empty => bad_field("text", EMPTY_MESSAGE),
            PostError::TooLarge { bytes } => Self::new(
                Code::TooLarge,
                format!("the message has {bytes} bytes and was not accepted; send at most {MESSAGE_BYTES_MAX}"),
            )
            .with("bytes_max", MESSAGE_BYTES_MAX),
            PostError::Unstorable(fault) => unstorable_content(&fault),
            PostError::BadPart { place, why } => {
                bad_field(&format!("content[{place}]"), &format!("{why}; no run was started"))
            }
            PostError::Busy(busy) => busy.into(),
            PostError::Loosening(refused) => refused.into(),
            PostError::ToolNameTaken(tool) => Self::new(
                Code::ToolNameTaken,
                format!("a tool `{tool}` already exists, and no run was started; give yours another name"),
            )
            .with("tool", tool.as_str()),
            PostError::BadTools { why } => bad_field("tools", &format!("{why}; no run was started")),
            PostError::BadOutputSchema { why } => {
                bad_field("output_schema", &format!("{why}; no run was started"))
            }
            PostError::CannotBeginAfter { message, why } => {
                bad_field("after", &format!("cannot begin after `{message}`: {why}; name another message"))
            }
            PostError::MessageIdTaken(id) => bad_field(
                "message_id",
                &format!("the thread already has a message `{id}`; choose another id or omit the field"),
            ),
            PostError::MessageIdReserved(id) => bad_field(
                "message_id",
                &format!("`{id}` looks like an id that the server generates; choose another one"),
            ),
            PostError::KeyUsed { run } => Self::new(
                Code::IdempotencyConflict,
                format!(
                    "this Idempotency-Key was already used with another body, for run `{run}`; no new run was started. \
                     Choose a new key"
                ),
            )
            .with("run_id", run.as_str()),
            PostError::KeyTooLong { .. } => bad_field(
                "Idempotency-Key",
                "it is too long, and no run was started; send a shorter one",
            ),
            PostError::Quota(reached) => reached.into(),
            PostError::Draining => Self::new(
                Code::Draining,
                "this server is stopping and did not process the request; send it again to another server, or after the restart",
            ),
            PostError::Store(refused) => refused.into(),
        }
    }
}

impl From<QuotaReached> for ApiError {
    fn from(QuotaReached { what, max }: QuotaReached) -> Self {
        let (quota, next) = match what {
            Countable::Threads => ("max_threads", "delete threads that are no longer needed"),
            Countable::PendingApprovals => ("max_pending_approvals", "decide some of them"),
        };
        Self::new(
            Code::QuotaReached,
            format!(
                "this tenant has reached its limit of {max} {}, and nothing was created; {next}, or ask the operator to \
                 raise `limits.{quota}`",
                what.as_str()
            ),
        )
        .with("quota", quota)
        .with("max", max)
    }
}

impl From<Busy> for ApiError {
    /// Does not include the status of the active run: the caller has to look it up and add it.
    fn from(busy: Busy) -> Self {
        match busy {
            Busy::ActiveRun(run) => Self::new(
                Code::ActiveRunExists,
                format!(
                    "run `{run}` of this thread has not ended, and no run was started; wait for it, interrupt it, \
                     or send `on_busy`"
                ),
            )
            .with("run_id", run.as_str()),
            Busy::QueueFull { max } => Self::new(
                Code::QueueFull,
                format!(
                    "{max} runs are queued on this thread, which is the limit, and no run was started; wait until some \
                     have ended"
                ),
            )
            .with("queued_max", max),
            Busy::InDoubt(run) => Self::new(
                Code::InDoubt,
                format!(
                    "a call of run `{run}` may or may not have taken effect, so the run was left as it is; answer \
                     its approval of kind `in_doubt` first"
                ),
            )
            .with("run_id", run.as_str()),
        }
    }
}

impl From<LooseningRefused> for ApiError {
    fn from(refused: LooseningRefused) -> Self {
        let LooseningRefused { field } = refused;
        Self::new(
            Code::Forbidden,
            format!(
                "`policy.{field}` is looser than the agent's own policy, which needs the role `approve`; no run was \
                 started. Leave it out, or use a key with that role"
            ),
        )
        .with("field", format!("policy.{field}"))
        .with("roles", ["approve"])
    }
}

/// A field of the body has a value that cannot be accepted.
pub(crate) fn bad_field(field: &str, why: &str) -> ApiError {
    ApiError::new(Code::BadRequest, format!("`{field}`: {why}")).with("field", field)
}

fn unstorable_content(fault: &ValueFault) -> ApiError {
    match fault {
        ValueFault::TooManyNodes { nodes_max } => ApiError::new(
            Code::TooLarge,
            format!(
                "the content has more than {nodes_max} JSON values and no run was started; send fewer parts"
            ),
        )
        .with("nodes_max", *nodes_max),
        ValueFault::TooDeep | ValueFault::ReservedKey => {
            bad_field("content", &format!("{fault}; no run was started"))
        }
    }
}
