//! Converts the agents, keys and roles of the configuration for the HTTP server.

use engine::agent::Agent;
use engine::tool::ToolDefinition;
use holdpoint_http::{AgentScope, AgentShown, AgentTenants, Auth, Key, Roles, ToolShown};
use serde::Serialize;
use serde_json::Value;

use crate::cli::config::{self, Configuration};

pub(super) fn agents(configuration: &Configuration) -> Vec<AgentShown> {
    configuration.agents.iter().map(|agent| agent_view(agent, configuration)).collect()
}

fn agent_view(agent: &Agent, configuration: &Configuration) -> AgentShown {
    AgentShown {
        name: agent.name.to_string(),
        model: agent.model_name.clone(),
        instructions: agent.instructions.clone(),
        tools: agent.tools.iter().map(|tool| tool_view(tool.definition(), configuration)).collect(),
        policy: serde_json::to_value(agent.policy).unwrap_or_default(),
        tenants: match configuration.tenants.get(&agent.name) {
            Some(tenants) => AgentTenants::Only(tenants.clone()),
            None => AgentTenants::All,
        },
    }
}

fn tool_view(tool: &ToolDefinition, configuration: &Configuration) -> ToolShown {
    ToolShown {
        name: tool.name.to_string(),
        kind: configuration.tool_kinds.get(&tool.name).map_or("unknown", |kind| kind.as_str()).to_owned(),
        description: tool.description.clone(),
        parameters: Value::clone(&tool.parameters),
        effect: serialized_name(&tool.effect),
        approval: serialized_name(&tool.approval),
    }
}

/// The word for this value in the file.
fn serialized_name(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        Ok(_) | Err(_) => String::new(),
    }
}

/// `open_token` is used only if there are no keys.
pub(super) fn auth(auth: Option<&config::Auth>, open_token: &str) -> Auth {
    let Some(auth) = auth else { return Auth::open(open_token) };
    let key = |key: &config::Key| Key {
        name: key.name.to_string(),
        sha256: key.sha256,
        tenant: key.tenant.clone(),
        roles: Roles::from_list(&key.roles),
        agents: key.agents.clone().map_or(AgentScope::All, AgentScope::Only),
        acts_for: key.acts_for,
    };
    Auth::Keys(auth.keys.iter().map(key).collect())
}
