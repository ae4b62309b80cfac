//! The caller of a request: who it is, and what it may reach.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use engine::store::{RunView, SuspensionView, Tenant};
use machine::Timestamp;
use machine::audit::Actor;
use machine::id::{AgentName, Principal, ThreadId};
use machine::suspension::SuspensionKind;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::access::{forbidden, unauthorized};
use crate::browser_token::Reach;
use crate::capacity::RequestPermit;
use crate::error::ApiError;
use crate::open_token::OpenToken;
use crate::server::Server;
use crate::setup::{AgentScope, AgentShown, Role, Roles};

/// Runs above a run that are looked at, to find out whether a caller can reach it.
const ANCESTORS_MAX: usize = 128;

/// The caller of a request, identified by its key. None of this is ever taken from a body.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) principal: Principal,
    pub(crate) tenant: Tenant,
    pub(crate) roles: Roles,
    pub(crate) agents: Arc<AgentScope>,
    pub(crate) mode: AuthMode,
    pub(crate) reach: Reach,
    /// Digest of the key, or of the server's token if there are no keys.
    pub(crate) key_sha256: [u8; 32],
    /// Whether the key may name a person for whom it acts.
    pub(crate) acts_for: bool,
    /// The other end of the connection, for the audit record.
    pub(crate) address: Option<IpAddr>,
    /// The permit under which the request is processed.
    pub(crate) permit: Arc<RequestPermit>,
    pub(crate) validity: Validity,
}

/// How the caller was authenticated. A refusal uses it to say what the caller lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthMode {
    /// The server has no keys.
    Open(OpenToken),
    /// The caller sent a valid key.
    Key,
    /// The caller sent a valid browser token.
    Token,
}

/// How long what a caller started may continue in its name.
#[derive(Clone)]
pub(crate) struct Validity {
    /// Cancelled once the key is no longer valid.
    pub(crate) revoked: CancellationToken,
    /// When the browser token expires: for the response, and on the clock by which a stream is ended.
    pub(crate) expires: Option<(Timestamp, Instant)>,
}

impl Validity {
    /// Returns once the key is no longer valid or the token has expired.
    pub(crate) async fn ended(&self) {
        match self.expires {
            None => self.revoked.cancelled().await,
            Some((_, at)) => tokio::select! {
                () = self.revoked.cancelled() => {}
                () = tokio::time::sleep_until(at) => {}
            },
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.revoked.is_cancelled() || self.expires.is_some_and(|(_, at)| Instant::now() >= at)
    }
}

impl Caller {
    /// The refusal for a caller who has none of these roles. Without keys, the caller lacks the server's token.
    pub(crate) fn denial(&self, roles: &[Role], server: &Server) -> ApiError {
        match self.mode {
            AuthMode::Key | AuthMode::Token => forbidden(roles),
            AuthMode::Open(token) => token.refusal(server.access.listen()),
        }
    }

    /// The caller as the audit record names it.
    pub(crate) fn actor(&self) -> Actor {
        let address = self.address.map(|address| address.to_string());
        Actor { address, ..Actor::from(self.principal.clone()) }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.mode, AuthMode::Open(_))
    }

    /// Whether the caller may see the runs of this agent and their approvals.
    pub(crate) fn may_see(&self, agent: &AgentName) -> bool {
        self.agents.includes(agent)
    }

    /// The agents that the key is limited to. None if it is for all agents.
    pub(crate) fn agents(&self) -> Option<&BTreeSet<AgentName>> {
        match &*self.agents {
            AgentScope::All => None,
            AgentScope::Only(agents) => Some(agents),
        }
    }

    /// Whether the caller may start runs of this agent: both the key and the agent's tenants must allow it.
    pub(crate) fn may_use(&self, agent: &AgentShown) -> bool {
        self.may_see(&AgentName::from(agent.name.as_str())) && agent.tenants.include(&self.tenant)
    }

    /// Whether the caller can reach a thread as a whole, with its messages and everything that is allowed in it.
    pub(crate) fn reaches_thread(&self, id: &ThreadId) -> bool {
        match &self.reach {
            Reach::Tenant => true,
            Reach::Thread(thread) => thread == id.as_str(),
            Reach::Run(_) => false,
        }
    }

    /// Whether the caller can reach a run: directly, or because a run that it can reach has delegated it.
    pub(crate) async fn reaches_run(&self, server: &Server, view: &RunView) -> Result<bool, ApiError> {
        if self.reach.is_tenant() {
            return Ok(true);
        }
        let mut above = Some(view.clone());
        for _ in 0..ANCESTORS_MAX {
            let Some(run) = above else { return Ok(false) };
            let is_inside = match &self.reach {
                Reach::Tenant => true,
                Reach::Thread(thread) => run.thread.as_str() == thread,
                Reach::Run(id) => run.id.as_str() == id,
            };
            if is_inside {
                return Ok(true);
            }
            let parent = run.control.as_ref().and_then(|control| control.parent.as_ref());
            let Some(parent) = parent else { return Ok(false) };
            above = server.engine.view(&self.tenant, &parent.run_id).await?;
        }
        Ok(false)
    }

    /// The same for a suspension: its path names the runs above it.
    pub(crate) fn reaches_suspension(&self, view: &SuspensionView) -> bool {
        match &self.reach {
            Reach::Tenant => true,
            Reach::Thread(thread) => {
                view.thread.as_str() == thread
                    || view.path.iter().any(|entry| entry.thread.as_str() == thread)
            }
            Reach::Run(run) => {
                view.run.as_str() == run || view.path.iter().any(|entry| entry.run.as_str() == run)
            }
        }
    }

    /// Whether the caller may read the suspension as an approval.
    pub(crate) fn can_read(&self, view: &SuspensionView) -> bool {
        self.may_see(&view.agent) && self.reaches_suspension(view)
    }

    /// Whether the caller may decide a call that is held for this reason.
    pub(crate) fn may_decide(&self, kind: SuspensionKind, server: &Server) -> Result<(), ApiError> {
        let roles: &[Role] = match kind {
            SuspensionKind::Approval | SuspensionKind::InDoubt => &[Role::Approve],
            SuspensionKind::ClientTool | SuspensionKind::External => &[Role::Run],
            // Only the child run answers a `ChildRun`; the decision itself is refused later.
            SuspensionKind::Question | SuspensionKind::ChildRun => &[Role::Run, Role::Approve],
        };
        if roles.iter().any(|role| self.roles.has(*role)) { Ok(()) } else { Err(self.denial(roles, server)) }
    }

    /// The kinds of suspension that the caller may decide.
    pub(crate) fn decidable_kinds(&self, server: &Server) -> Vec<SuspensionKind> {
        SuspensionKind::ALL.into_iter().filter(|kind| self.may_decide(*kind, server).is_ok()).collect()
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        // A route without a guard has no caller, so it cannot show any tenant's data.
        parts.extensions.get::<Self>().cloned().ok_or_else(|| unauthorized(&parts.headers))
    }
}
