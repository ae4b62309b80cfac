//! Every code that a refusal can have, and its HTTP status.

use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

/// One line for each code: its value, its name, and the status of the response.
macro_rules! codes {
    ($($(#[$note:meta])* $code:ident = $name:literal, $status:ident;)+) => {
        /// Identifies the kind of error. Programs should act on this code; the message is for people.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
        #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
        pub enum Code {
            $($(#[$note])* $code,)+
        }

        impl Code {
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$code),+];

            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$code => $name,)+ }
            }

            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$code => StatusCode::$status,)+ }
            }
        }
    };
}

codes! {
    /// A run of the thread has not ended.
    ActiveRunExists = "ACTIVE_RUN_EXISTS", CONFLICT;
    AgentNotFound = "AGENT_NOT_FOUND", NOT_FOUND;
    ApprovalNotFound = "APPROVAL_NOT_FOUND", NOT_FOUND;
    /// The approval was decided or has expired, or its run has ended or is ending.
    ApprovalNotPending = "APPROVAL_NOT_PENDING", CONFLICT;
    /// The sink of the audit record is required and does not work, so nothing is decided.
    AuditSinkDown = "AUDIT_SINK_DOWN", SERVICE_UNAVAILABLE;
    BadRequest = "BAD_REQUEST", BAD_REQUEST;
    /// The callback was already used, or its call is not held.
    CallbackSpent = "CALLBACK_SPENT", CONFLICT;
    /// The arguments are not the ones that the approver has seen.
    DigestMismatch = "DIGEST_MISMATCH", CONFLICT;
    /// The server is stopping and accepts no new requests.
    Draining = "DRAINING", SERVICE_UNAVAILABLE;
    /// The key may not do this.
    Forbidden = "FORBIDDEN", FORBIDDEN;
    GrantNotFound = "GRANT_NOT_FOUND", NOT_FOUND;
    /// The Idempotency-Key was already used with another body.
    IdempotencyConflict = "IDEMPOTENCY_CONFLICT", CONFLICT;
    /// A call that may or may not have taken effect has to be settled first.
    InDoubt = "IN_DOUBT", CONFLICT;
    /// A bug in the server.
    Internal = "INTERNAL", INTERNAL_SERVER_ERROR;
    /// The arguments do not match the schema.
    InvalidArguments = "INVALID_ARGUMENTS", UNPROCESSABLE_ENTITY;
    MethodNotAllowed = "METHOD_NOT_ALLOWED", METHOD_NOT_ALLOWED;
    /// There is no such route.
    NotFound = "NOT_FOUND", NOT_FOUND;
    /// The request comes from a web page of another origin.
    OriginRefused = "ORIGIN_REFUSED", FORBIDDEN;
    QueueFull = "QUEUE_FULL", CONFLICT;
    /// The tenant has reached one of its quotas.
    QuotaReached = "QUOTA_REACHED", CONFLICT;
    RateLimited = "RATE_LIMITED", TOO_MANY_REQUESTS;
    RunNotFound = "RUN_NOT_FOUND", NOT_FOUND;
    /// The store cannot be reached, or is full.
    StoreUnavailable = "STORE_UNAVAILABLE", SERVICE_UNAVAILABLE;
    ThreadNotFound = "THREAD_NOT_FOUND", NOT_FOUND;
    TooLarge = "TOO_LARGE", PAYLOAD_TOO_LARGE;
    /// The tool has changed since the approver was shown it.
    ToolChanged = "TOOL_CHANGED", CONFLICT;
    /// A client tool has the same name as a tool of the server.
    ToolNameTaken = "TOOL_NAME_TAKEN", BAD_REQUEST;
    Unauthorized = "UNAUTHORIZED", UNAUTHORIZED;
    /// Stored data cannot be decoded.
    Unreadable = "UNREADABLE", INTERNAL_SERVER_ERROR;
    UnsupportedMediaType = "UNSUPPORTED_MEDIA_TYPE", UNSUPPORTED_MEDIA_TYPE;
    /// This kind of approval has to be answered in another way.
    WrongKind = "WRONG_KIND", CONFLICT;
}
