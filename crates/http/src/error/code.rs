//! Every code that a refusal can have, and its HTTP status.

use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

/// Identifies the kind of error. Programs should act on this code; the message is for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    /// A run of the thread has not ended.
    ActiveRunExists,
    AgentNotFound,
    ApprovalNotFound,
    /// The approval was decided or has expired, or its run has ended or is ending.
    ApprovalNotPending,
    BadRequest,
    /// The callback was already used, or its call is not held.
    CallbackSpent,
    /// The arguments are not the ones that the approver has seen.
    DigestMismatch,
    /// The server is stopping and accepts no new requests.
    Draining,
    /// The key may not do this.
    Forbidden,
    GrantNotFound,
    /// The Idempotency-Key was already used with another body.
    IdempotencyConflict,
    /// A call that may or may not have taken effect has to be settled first.
    InDoubt,
    /// A bug in the server.
    Internal,
    /// The arguments do not match the schema.
    InvalidArguments,
    MethodNotAllowed,
    /// There is no such route.
    NotFound,
    /// The request comes from a web page of another origin.
    OriginRefused,
    QueueFull,
    /// The tenant has reached one of its quotas.
    QuotaReached,
    RateLimited,
    RunNotFound,
    /// The store cannot be reached, or is full.
    StoreUnavailable,
    ThreadNotFound,
    TooLarge,
    /// The tool has changed since the approver was shown it.
    ToolChanged,
    /// A client tool has the same name as a tool of the server.
    ToolNameTaken,
    Unauthorized,
    /// Stored data cannot be decoded.
    Unreadable,
    UnsupportedMediaType,
    /// This kind of approval has to be answered in another way.
    WrongKind,
}

impl Code {
    pub const ALL: [Self; 30] = [
        Self::ActiveRunExists,
        Self::AgentNotFound,
        Self::ApprovalNotFound,
        Self::ApprovalNotPending,
        Self::BadRequest,
        Self::CallbackSpent,
        Self::DigestMismatch,
        Self::Draining,
        Self::Forbidden,
        Self::GrantNotFound,
        Self::IdempotencyConflict,
        Self::InDoubt,
        Self::Internal,
        Self::InvalidArguments,
        Self::MethodNotAllowed,
        Self::NotFound,
        Self::OriginRefused,
        Self::QueueFull,
        Self::QuotaReached,
        Self::RateLimited,
        Self::RunNotFound,
        Self::StoreUnavailable,
        Self::ThreadNotFound,
        Self::TooLarge,
        Self::ToolChanged,
        Self::ToolNameTaken,
        Self::Unauthorized,
        Self::Unreadable,
        Self::UnsupportedMediaType,
        Self::WrongKind,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ActiveRunExists => "ACTIVE_RUN_EXISTS",
            Self::AgentNotFound => "AGENT_NOT_FOUND",
            Self::ApprovalNotFound => "APPROVAL_NOT_FOUND",
            Self::ApprovalNotPending => "APPROVAL_NOT_PENDING",
            Self::BadRequest => "BAD_REQUEST",
            Self::CallbackSpent => "CALLBACK_SPENT",
            Self::DigestMismatch => "DIGEST_MISMATCH",
            Self::Draining => "DRAINING",
            Self::Forbidden => "FORBIDDEN",
            Self::GrantNotFound => "GRANT_NOT_FOUND",
            Self::IdempotencyConflict => "IDEMPOTENCY_CONFLICT",
            Self::InDoubt => "IN_DOUBT",
            Self::Internal => "INTERNAL",
            Self::InvalidArguments => "INVALID_ARGUMENTS",
            Self::MethodNotAllowed => "METHOD_NOT_ALLOWED",
            Self::NotFound => "NOT_FOUND",
            Self::OriginRefused => "ORIGIN_REFUSED",
            Self::QueueFull => "QUEUE_FULL",
            Self::QuotaReached => "QUOTA_REACHED",
            Self::RateLimited => "RATE_LIMITED",
            Self::RunNotFound => "RUN_NOT_FOUND",
            Self::StoreUnavailable => "STORE_UNAVAILABLE",
            Self::ThreadNotFound => "THREAD_NOT_FOUND",
            Self::TooLarge => "TOO_LARGE",
            Self::ToolChanged => "TOOL_CHANGED",
            Self::ToolNameTaken => "TOOL_NAME_TAKEN",
            Self::Unauthorized => "UNAUTHORIZED",
            Self::Unreadable => "UNREADABLE",
            Self::UnsupportedMediaType => "UNSUPPORTED_MEDIA_TYPE",
            Self::WrongKind => "WRONG_KIND",
        }
    }

    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::BadRequest | Self::ToolNameTaken => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden | Self::OriginRefused => StatusCode::FORBIDDEN,
            Self::AgentNotFound
            | Self::ApprovalNotFound
            | Self::GrantNotFound
            | Self::NotFound
            | Self::RunNotFound
            | Self::ThreadNotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::ActiveRunExists
            | Self::ApprovalNotPending
            | Self::CallbackSpent
            | Self::DigestMismatch
            | Self::IdempotencyConflict
            | Self::InDoubt
            | Self::QueueFull
            | Self::QuotaReached
            | Self::ToolChanged
            | Self::WrongKind => StatusCode::CONFLICT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::InvalidArguments => StatusCode::UNPROCESSABLE_ENTITY,
            Self::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            Self::Internal | Self::Unreadable => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Draining | Self::StoreUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}
