//! Which tenants may use which agents: `tenants` of an agent, and `agents` of a key.

use std::collections::{BTreeMap, BTreeSet};

use engine::store::Tenant;
use engine::tool::Performer;
use machine::id::AgentName;

use super::agents::ConfiguredAgent;
use super::table::Entry;

const TENANTS: &str = "a list of the names of tenants";
const AGENTS: &str = "a list of the names of [agents.NAME] tables";

/// `tenants` of an agent.
pub(super) fn read(entry: &Entry<'_>) -> Option<BTreeSet<Tenant>> {
    let items = entry.items(TENANTS)?;
    if items.is_empty() {
        return entry
            .location
            .refuse("no tenant could use the agent; name one, or remove the key for every tenant");
    }
    items.iter().map(|item| item.nonempty("the name of a tenant").map(Tenant::from)).collect()
}

pub(super) fn by_agent(agents: &[ConfiguredAgent<'_>]) -> BTreeMap<AgentName, BTreeSet<Tenant>> {
    let limited = |named: &ConfiguredAgent<'_>| Some((named.agent.name.clone(), named.tenants.clone()?));
    agents.iter().filter_map(limited).collect()
}

/// An agent delegates on behalf of the tenant that uses it, so that tenant must be allowed to use the other agent. This
/// is checked here and not when a run delegates: a call that is never permitted is a mistake in the file.
pub(super) fn check_delegation(agents: &[ConfiguredAgent<'_>]) {
    let tenants = by_agent(agents);
    for named in agents {
        for tool in &named.agent.tools {
            let definition = tool.definition();
            let Performer::Agent { agent: other, .. } = &definition.performer else { continue };
            let Some(allowed) = tenants.get(other) else { continue };
            let excluded: Vec<&str> = match &named.tenants {
                None => vec!["every other tenant"],
                Some(own) => own.difference(allowed).map(Tenant::as_str).collect(),
            };
            if !excluded.is_empty() {
                named.location.fault(format!(
                    "its tool {:?} delegates to {:?}, which is not for {}; add `tenants` here that {:?} has too, or add \
                     them there",
                    definition.name.as_str(),
                    other.as_str(),
                    excluded.join(", "),
                    other.as_str()
                ));
            }
        }
    }
}

/// `agents` of a key: each must exist in the file and be open to the key's tenant.
pub(super) fn key_agents(
    entry: &Entry<'_>,
    tenant: Option<&Tenant>,
    known: &BTreeSet<String>,
    tenants: &BTreeMap<AgentName, BTreeSet<Tenant>>,
) -> Option<BTreeSet<AgentName>> {
    let items = entry.items(AGENTS)?;
    if items.is_empty() {
        return entry
            .location
            .refuse("the key could use no agent; name one, or remove the key for every agent");
    }
    let mut agents = Some(BTreeSet::new());
    for item in items {
        let name = item.nonempty("the name of an [agents.NAME] table").and_then(|name| {
            if !known.contains(name) {
                return item.location.refuse(format!("there is no agent {name:?}; add a table [agents.{name}]"));
            }
            let agent = AgentName::from(name);
            match (tenants.get(&agent), tenant) {
                (Some(allowed), Some(tenant)) if !allowed.contains(tenant) => item.location.refuse(format!(
                    "{name:?} is not for the tenant {:?} of this key; remove it, or add the tenant to agents.{name}.tenants",
                    tenant.as_str()
                )),
                (Some(_) | None, _) => Some(agent),
            }
        });
        match (&mut agents, name) {
            (Some(agents), Some(name)) => {
                agents.insert(name);
            }
            (_, None) => agents = None,
            (None, Some(_)) => {}
        }
    }
    agents
}
