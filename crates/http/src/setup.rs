//! What a server is built from: an engine, its credentials, and the agents as clients see them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};

use engine::store::Tenant;
use engine::{BoxFuture, Engine};
use machine::id::{AgentName, Digest, Principal};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;

use crate::origin::WebOrigin;

/// The principal of every caller if the server has no keys.
pub(crate) const ANONYMOUS: &str = "anonymous";

/// What a server needs before it can answer requests.
pub struct Setup {
    pub engine: Engine,
    pub auth: Auth,
    pub agents: Vec<AgentShown>,
    pub reload: Reload,
    pub origins: Origins,
    /// The same value that the engine was started with. The engine uses it to check whether the approver who gave a
    /// grant may still approve.
    pub approvers: Approvers,
    /// Why decisions of a tenant cannot be recorded where they have to be, if they cannot. Then nothing is decided.
    pub sink_fault: SinkFault,
    /// Counted by the log writer, and shown in the metrics.
    pub log_lines_dropped: Arc<AtomicU64>,
}

/// Asked before each decision.
pub type SinkFault = Arc<dyn Fn(&Tenant) -> Option<String> + Send + Sync>;

/// Reads the configuration again. Nothing changes until [`Reloaded::apply`]. An error is for the caller.
pub type Reload = Arc<dyn Fn() -> BoxFuture<'static, Result<Reloaded, String>> + Send + Sync>;

/// The agents that a server shows, and the credentials that it accepts, after a reload.
pub struct Reloaded {
    pub agents: Vec<AgentShown>,
    pub auth: Auth,
    pub allow_origins: Vec<WebOrigin>,
    /// SHA-256 of the configuration file, for the audit record.
    pub file: Option<Digest>,
    /// Uses the agents from now on. It is called once the reload is in the audit record.
    pub apply: Box<dyn FnOnce() + Send>,
}

/// Who may use the server.
#[derive(Clone)]
pub enum Auth {
    /// No keys: every caller on this machine may read and post. A request that decides a call, loosens a policy,
    /// deletes a thread or reloads the configuration needs the token with this digest, so that an agent's tool cannot
    /// approve its own calls. A request has to name this machine as its host, so that a web page cannot send one.
    Open { token_sha256: [u8; 32] },
    /// Holders of one of these keys.
    Keys(Vec<Key>),
}

impl Auth {
    /// No keys. Requests that need the token need this one.
    #[must_use]
    pub fn open(token: &str) -> Self {
        Self::Open { token_sha256: Sha256::digest(token).into() }
    }
}

impl Auth {
    /// The tenants that have a key; without keys, the default tenant.
    pub(crate) fn tenants(&self) -> BTreeSet<Tenant> {
        match self {
            Self::Open { .. } => BTreeSet::from([Tenant::default()]),
            Self::Keys(keys) => keys.iter().map(|key| key.tenant.clone()).collect(),
        }
    }
}

/// Who may approve, according to the server's current keys. A reload of the server updates it.
#[derive(Clone)]
pub struct Approvers(Arc<RwLock<Auth>>);

impl Approvers {
    #[must_use]
    pub fn new(auth: &Auth) -> Self {
        Self(Arc::new(RwLock::new(auth.clone())))
    }

    /// For [`EngineBuilder::approvers`](engine::EngineBuilder::approvers).
    #[must_use]
    pub fn for_engine(&self) -> engine::Approvers {
        let approvers = self.clone();
        Arc::new(move |tenant, principal, agent| approvers.may_approve(tenant, principal, Some(agent)))
    }

    /// Whether the principal may approve calls of this agent, or of any agent at all if `agent` is none. A person for
    /// whom a key acts may as long as that key may.
    pub(crate) fn may_approve(
        &self,
        tenant: &Tenant,
        principal: &Principal,
        agent: Option<&AgentName>,
    ) -> bool {
        match &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            Auth::Open { .. } => principal.as_str() == ANONYMOUS && *tenant == Tenant::default(),
            Auth::Keys(keys) => keys.iter().any(|key| {
                let is_giver = match principal.via() {
                    None => key.name == principal.as_str(),
                    Some(via) => key.name == via && key.acts_for,
                };
                is_giver
                    && key.tenant == *tenant
                    && key.roles.has(Role::Approve)
                    && agent.is_none_or(|agent| key.agents.includes(agent))
            }),
        }
    }

    /// The tenants that have a key; without keys, the default tenant.
    pub(crate) fn tenants(&self) -> BTreeSet<Tenant> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).tenants()
    }

    pub(crate) fn auth(&self) -> Auth {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn replace_auth(&self, auth: &Auth) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = auth.clone();
    }
}

/// A configured key. Only its holder knows the token itself.
#[derive(Clone)]
pub struct Key {
    /// Recorded in the log as the principal.
    pub name: String,
    /// Digest of the bearer token.
    pub sha256: [u8; 32],
    pub tenant: Tenant,
    pub roles: Roles,
    pub agents: AgentScope,
    /// Its holder is a trusted service that may say for which person it acts. Both names are recorded.
    pub acts_for: bool,
}

/// The agents that a key is for. For this key, anything that belongs to another agent does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AgentScope {
    /// Every agent that the tenant may use.
    #[default]
    All,
    Only(BTreeSet<AgentName>),
}

impl AgentScope {
    pub(crate) fn includes(&self, agent: &AgentName) -> bool {
        match self {
            Self::All => true,
            Self::Only(agents) => agents.contains(agent),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = KeyRole)]
pub enum Role {
    /// Threads, messages and runs, and the answers that a front end gives.
    Run,
    /// Decisions that a person makes.
    Approve,
    /// Everything within the tenant.
    Admin,
    /// The server itself: reload and metrics, but no tenant's data.
    Operator,
}

impl Role {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Approve => "approve",
            Self::Admin => "admin",
            Self::Operator => "operator",
        }
    }
}

/// The roles of a key. With none of them, it has no access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Roles {
    pub run: bool,
    pub approve: bool,
    pub admin: bool,
    pub operator: bool,
}

impl Roles {
    pub const ALL: Self = Self { run: true, approve: true, admin: true, operator: true };

    #[must_use]
    pub fn from_list(roles: &[Role]) -> Self {
        Self {
            run: roles.contains(&Role::Run),
            approve: roles.contains(&Role::Approve),
            admin: roles.contains(&Role::Admin),
            operator: roles.contains(&Role::Operator),
        }
    }

    /// What both sets of roles allow.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            run: self.has(Role::Run) && other.has(Role::Run),
            approve: self.has(Role::Approve) && other.has(Role::Approve),
            admin: self.admin && other.admin,
            operator: self.operator && other.operator,
        }
    }

    /// The roles by their names.
    #[must_use]
    pub fn list(self) -> Vec<Role> {
        let all = [
            (self.run, Role::Run),
            (self.approve, Role::Approve),
            (self.admin, Role::Admin),
            (self.operator, Role::Operator),
        ];
        all.into_iter().filter(|(has, _)| *has).map(|(_, role)| role).collect()
    }

    /// An admin may do what `run` and `approve` may. The server itself belongs to no tenant, so a tenant's admin may
    /// not operate it.
    #[must_use]
    pub const fn has(self, role: Role) -> bool {
        match role {
            Role::Run => self.run || self.admin,
            Role::Approve => self.approve || self.admin,
            Role::Admin => self.admin,
            Role::Operator => self.operator,
        }
    }
}

/// The addresses of this server. Without keys, a request from a page of any other origin is refused.
#[derive(Clone, Debug)]
pub struct Origins {
    /// The bound address, with the port that was actually chosen.
    pub listen: SocketAddr,
    /// The address that clients use, if it is a different one.
    pub public_url: Option<String>,
    /// Other origins whose pages may call. A reload replaces them.
    pub allow_origins: Vec<WebOrigin>,
}

/// An agent as clients see it, without the addresses and keys of its models and tools.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct AgentShown {
    pub name: String,
    /// The model's name in the configuration.
    pub model: String,
    pub instructions: String,
    pub tools: Vec<ToolShown>,
    /// The policy fields that the configuration sets. The others have their default values.
    #[schema(value_type = Object)]
    pub policy: Value,
    /// The tenants that may use it; not shown to clients. For other tenants the agent does not exist.
    #[serde(skip)]
    #[schema(ignore)]
    pub tenants: AgentTenants,
}

/// The tenants that may use an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AgentTenants {
    #[default]
    All,
    Only(BTreeSet<Tenant>),
}

impl AgentTenants {
    pub(crate) fn include(&self, tenant: &Tenant) -> bool {
        match self {
            Self::All => true,
            Self::Only(tenants) => tenants.contains(tenant),
        }
    }
}

/// A tool as clients see it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ToolShown {
    pub name: String,
    /// Who executes its calls: `http`, `client`, `external`, `agent` or `builtin`.
    pub kind: String,
    pub description: String,
    /// JSON Schema of its arguments.
    #[schema(value_type = Object)]
    pub parameters: Value,
    /// Side effects of a call: `read`, `idempotent` or `write`.
    pub effect: String,
    /// Whether its calls wait for approval: `never`, `ask` or `block`.
    pub approval: String,
}
