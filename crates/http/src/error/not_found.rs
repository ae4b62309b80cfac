//! What is not there, or belongs to somebody else, which looks the same.

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

    /// For a thread that is to be created where the caller is not shown the one with this id.
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

/// An id out of a path may be of any length; an answer repeats only so much of it.
fn truncated(id: &str) -> String {
    id.chars().take(128).collect()
}
