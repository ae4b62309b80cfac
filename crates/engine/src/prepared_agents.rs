//! Agents that an engine can use: they are valid, and their revisions are stored.

use std::sync::Arc;

use machine::tool::Performer;

use crate::agent::{Agent, AgentError, LiveAgent};
use crate::engine::{Engine, StartError};
use crate::node::Agents;
use crate::store::Store;

/// Agents that no run uses yet.
pub struct PreparedAgents(Agents);

impl Engine {
    /// Replaces the agents. Runs stay pinned to the agent they began with; tools are looked up in the new agents.
    pub async fn replace_agents(&self, agents: Vec<Agent>) -> Result<(), StartError> {
        let prepared = self.prepare_agents(agents).await?;
        self.use_agents(prepared);
        Ok(())
    }

    /// Does everything that can fail of [`Engine::replace_agents`]. Nothing changes until [`Engine::use_agents`].
    pub async fn prepare_agents(&self, agents: Vec<Agent>) -> Result<PreparedAgents, StartError> {
        let agents = compile(agents).map_err(StartError::Agent)?;
        freeze(&**self.store(), &agents).await?;
        Ok(PreparedAgents(agents))
    }

    pub fn use_agents(&self, PreparedAgents(agents): PreparedAgents) {
        self.node().replace_agents(agents);
    }
}

pub(crate) fn compile(described: Vec<Agent>) -> Result<Agents, AgentError> {
    let mut agents = Agents::default();
    for agent in described {
        let live = LiveAgent::compile(agent)?;
        let name = live.name.clone();
        if agents.by_name.insert(name.clone(), Arc::new(live)).is_some() {
            return Err(AgentError { agent: name, why: "it is there twice".into() });
        }
    }
    for agent in agents.by_name.values() {
        for (name, tool) in &agent.tools {
            if let Performer::Agent { agent: other, .. } = &tool.gate.performer
                && !agents.by_name.contains_key(other)
            {
                let why = format!("tool {name} delegates to agent {other}, which is not configured");
                return Err(AgentError { agent: agent.name.clone(), why });
            }
        }
    }
    Ok(agents)
}

/// A frozen agent is stored before the first run that uses it.
pub(crate) async fn freeze(store: &dyn Store, agents: &Agents) -> Result<(), StartError> {
    for agent in agents.by_name.values() {
        let text = agent
            .frozen
            .text()
            .map_err(|why| StartError::Agent(AgentError { agent: agent.name.clone(), why }))?;
        store.put_revision(&agent.pinned.digest, &text).await?;
    }
    Ok(())
}
