//! Refusals for what does not exist, or belongs to others: the client cannot tell the difference.

use super::{ApiError, Code};

impl ApiError {
    #[must_use]
    pub fn no_thread(id: &str) -> Self {
        not_found(Code::ThreadNotFound, "thread", id, "create it with POST /v1/threads")
    }

    /// For creating a thread under an id that belongs to a thread which the caller may not see.
    #[must_use]
    pub fn thread_id_unavailable(id: &str) -> Self {
        let id = truncated(id);
        let message =
            format!("the thread id `{id}` is not available, and nothing was changed; choose another one");
        Self::new(Code::ThreadNotFound, message)
    }

    #[must_use]
    pub fn no_run(id: &str) -> Self {
        not_found(Code::RunNotFound, "run", id, "GET /v1/runs lists them")
    }

    #[must_use]
    pub fn no_approval(id: &str) -> Self {
        not_found(Code::ApprovalNotFound, "approval", id, "GET /v1/approvals lists the pending ones")
    }

    #[must_use]
    pub fn no_grant(id: &str) -> Self {
        not_found(Code::GrantNotFound, "grant", id, "GET /v1/grants lists them")
    }

    #[must_use]
    pub fn no_agent(name: &str) -> Self {
        not_found(Code::AgentNotFound, "agent", name, "GET /v1/agents lists them")
    }
}

fn not_found(code: Code, what: &str, id: &str, next: &str) -> ApiError {
    let id = truncated(id);
    ApiError::new(code, format!("there is no {what} `{id}`, and nothing was changed; {next}"))
}

/// An id in a path may have any length; a response repeats only this much of it.
fn truncated(id: &str) -> String {
    id.chars().take(128).collect()
}
