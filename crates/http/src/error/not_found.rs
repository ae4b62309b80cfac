//! Refusals for what does not exist, or belongs to others: the client cannot tell the difference.

use super::{ApiError, Code};

impl ApiError {
    #[must_use]
    pub fn no_thread(id: &str) -> Self {
        let next = "create it with POST /v1/threads";
        Self::new(
            Code::ThreadNotFound,
            format!("there is no thread `{}`, and nothing was changed; {next}", truncated(id)),
        )
    }

    /// For creating a thread under an id that belongs to a thread which the caller may not see.
    #[must_use]
    pub fn thread_id_unavailable(id: &str) -> Self {
        Self::new(
            Code::ThreadNotFound,
            format!(
                "the thread id `{}` is not available, and nothing was changed; choose another one",
                truncated(id)
            ),
        )
    }

    #[must_use]
    pub fn no_run(id: &str) -> Self {
        let next = "GET /v1/runs lists them";
        Self::new(
            Code::RunNotFound,
            format!("there is no run `{}`, and nothing was changed; {next}", truncated(id)),
        )
    }

    #[must_use]
    pub fn no_approval(id: &str) -> Self {
        let next = "GET /v1/approvals lists the pending ones";
        Self::new(
            Code::ApprovalNotFound,
            format!("there is no approval `{}`, and nothing was changed; {next}", truncated(id)),
        )
    }

    #[must_use]
    pub fn no_grant(id: &str) -> Self {
        let next = "GET /v1/grants lists them";
        Self::new(
            Code::GrantNotFound,
            format!("there is no grant `{}`, and nothing was changed; {next}", truncated(id)),
        )
    }

    #[must_use]
    pub fn no_agent(name: &str) -> Self {
        let next = "GET /v1/agents lists them";
        Self::new(
            Code::AgentNotFound,
            format!("there is no agent `{}`, and nothing was changed; {next}", truncated(name)),
        )
    }
}

/// An id in a path may have any length; a response repeats only this much of it.
fn truncated(id: &str) -> String {
    id.chars().take(128).collect()
}
