//! `holdpoint.toml`: reads and validates the whole file, and turns it into what the engine needs.
//!
//! All mistakes are reported at once, each with its line and key, and a file with a mistake yields no configuration.
//! The file never contains types of the engine: each table has a module here that converts it.

mod agents;
mod amounts;
mod audit;
mod auth;
mod budgets;
mod fault;
#[cfg(test)]
mod fuzz_tests;
mod hooks;
mod http_settings;
mod mcp;
mod models;
pub(super) mod overlap;
mod pattern;
mod policy;
mod quotas;
mod rules;
mod schema;
mod schema_analysis;
#[cfg(test)]
mod schema_analysis_tests;
mod server;
mod source;
mod stop;
mod store_url;
mod table;
mod tenancy;
#[cfg(test)]
mod tests;
mod tools;
mod trim;
mod value_sets;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ::toml::de::DeTable;
use engine::agent::Agent;
use engine::quota::Quotas;
use engine::store::Tenant;
use machine::id::{AgentName, Digest, ToolName};

pub(super) use audit::{AuditSettings, AuditSink, SinkTarget};
pub(super) use auth::{Auth, Key};
pub(super) use fault::ConfigFaults;
pub(super) use hooks::{ConfiguredHook, PHASES};
pub(super) use models::Provider;
pub(super) use server::{EXPOSED_WITHOUT_TLS, Server, listen_address};
pub(super) use tools::ToolKind;

use super::problem::{Exit, Problem};
use super::store::StoreUrl;
use source::{FileError, Source};
use table::Table;

/// Everything that a file says, with defaults for the rest.
pub(super) struct Configuration {
    pub(super) server: Server,
    pub(super) store: StoreUrl,
    pub(super) audit: AuditSettings,
    /// None: no authentication, and reachable from this machine only.
    pub(super) auth: Option<Auth>,
    /// In the order of the file.
    pub(super) agents: Vec<Agent>,
    /// The models to try when an agent's first model has failed, by agent name.
    pub(super) fallback_models: BTreeMap<AgentName, Vec<String>>,
    /// The hooks of each agent, in the order in which they are asked.
    pub(super) hooks: BTreeMap<AgentName, Vec<ConfiguredHook>>,
    /// The tenants of each agent that is not open to all tenants.
    pub(super) tenants: BTreeMap<AgentName, BTreeSet<Tenant>>,
    /// The provider of each model.
    pub(super) providers: BTreeMap<String, Provider>,
    pub(super) tool_kinds: BTreeMap<ToolName, ToolKind>,
    /// The folders that tools write to.
    pub(super) written_folders: Vec<PathBuf>,
    /// Environment variables that the file names and that are not set. `serve` needs them; `check` does not.
    pub(super) unset: Option<ConfigFaults>,
    /// Settings that are valid but probably not intended.
    pub(super) warnings: Option<ConfigFaults>,
    /// The limits of one tenant in the store.
    pub(super) quotas: Quotas,
    /// SHA-256 of the file, for the audit record.
    pub(super) digest: Digest,
}

impl Configuration {
    /// Whether the keys of `[auth]` belong to more than one tenant.
    pub(super) fn has_several_tenants(&self) -> bool {
        self.auth.as_ref().is_some_and(Auth::has_several_tenants)
    }

    pub(super) fn load(path: &Path) -> Result<Self, Problem> {
        let source = Source::open(path).map_err(|why| {
            let next = match &why {
                FileError::Unreadable(_) => "Name the configuration with --config FILE.",
                FileError::NotText(_) => "Save the file again as UTF-8, and run holdpoint check.",
            };
            Problem::new("CONFIGURATION_UNREADABLE", why.to_string(), next, Exit::Configuration)
        })?;
        read(&source).map_err(Problem::ConfigFaults)
    }
}

fn read(source: &Source) -> Result<Configuration, ConfigFaults> {
    let (whole, mistakes) = DeTable::parse_recoverable(source.text());
    for mistake in &mistakes {
        source.syntax_fault(mistake.span().map_or(0, |span| span.start), mistake.message());
    }
    // With syntax errors, further faults would be misleading.
    source.fail_on_faults()?;
    let mut table = Table::root(source, whole.get_ref());
    let (server, store, auth) = (table.take("server"), table.take("store"), table.take("auth"));
    let server = Server::read(server, auth.is_some());
    let quotas = quotas::read(table.take("limits"));
    let audit = audit::read(table.take("audit"));
    let store = store_url::read(store, source.root().path("holdpoint.db"));
    let agents = table.take("agents");
    let catalog = agents::Catalog {
        models: models::read(table.take("models")),
        tools: tools::read(table.take("tools"), &agents::names(agents.as_ref())),
        servers: mcp::read(table.take("mcp")),
    };
    let names = agents::names(agents.as_ref());
    let agents = agents::read(agents, &catalog);
    tenancy::check_delegation(&agents);
    budgets::check(&agents);
    let tenants = tenancy::by_agent(&agents);
    let auth = auth.and_then(|entry| Auth::read(&entry, &names, &tenants));
    table.finish();
    source.check_written_folders(store.path());
    source.fail_on_faults()?;
    let agents::Catalog { models, tools, .. } = catalog;
    let fallback_models =
        agents.iter().map(|named| (named.agent.name.clone(), named.fallback_models.clone())).collect();
    let hooks = agents.iter().map(|named| (named.agent.name.clone(), named.hooks.clone())).collect();
    Ok(Configuration {
        server,
        store,
        audit,
        auth,
        agents: agents.into_iter().map(|named| named.agent).collect(),
        fallback_models,
        hooks,
        tenants,
        providers: models.into_iter().filter_map(|(name, model)| Some((name, model?.provider))).collect(),
        tool_kinds: tools
            .into_iter()
            .filter_map(|(name, tool)| Some((ToolName::from(name), tool?.kind)))
            .collect(),
        written_folders: source.written_folders(),
        unset: source.unset(),
        warnings: source.warnings(),
        quotas,
        digest: source.digest(),
    })
}
