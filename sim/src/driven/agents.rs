//! The agents of a world in the engine's terms: the cast of the other worlds, with tools that act.

use std::sync::Arc;
use std::time::Duration;

use engine::agent::Agent;
use engine::tool::{DeclaredTool, Performer, Tool, ToolDefinition};
use machine::id::PluginName;
use machine::phase::Phase;
use machine::revision::Revision;
use serde_json::json;

use super::context::{Life, WorldContext};
use super::performers::{ScriptedModel, ScriptedPlugin, ScriptedTool, TOOL_TIMEOUT};
use crate::judge::outputs;
use crate::world::live::{LiveTool, Presence};
use crate::world::setup::{self, DESK, WorldSetup};

const PLUGINS: [&str; 2] = ["guard", "scribe"];

/// All agents as configured at this moment, for one process.
pub(crate) fn agents(setup: &WorldSetup, stage: &Arc<WorldContext>, life: &Arc<Life>) -> Vec<Agent> {
    setup.agents.iter().enumerate().map(|(place, agent)| of(setup, place, agent, stage, life)).collect()
}

fn of(
    setup: &WorldSetup,
    place: usize,
    agent: &setup::Agent,
    stage: &Arc<WorldContext>,
    life: &Arc<Life>,
) -> Agent {
    let revision: &Revision = &agent.revision;
    let model = ScriptedModel { stage: stage.clone(), life: life.clone(), revision: agent.revision.clone() };
    let mut described = Agent::new(agent.name.as_str(), model)
        .policy(revision.policy)
        .stop_when(revision.stop.clone())
        .limits(revision.limits);
    described.rules.clone_from(&revision.rules);
    described.output_schema = outputs::are_wanted(revision).then(|| outputs::SCHEMA.clone());
    if Phase::ALL.into_iter().any(|phase| revision.phases.has(phase)) {
        for (name, ordinal) in PLUGINS.into_iter().zip(0..) {
            described = described.plugin(ScriptedPlugin {
                stage: stage.clone(),
                life: life.clone(),
                name: PluginName::from(name),
                place: ordinal,
                revision: agent.revision.clone(),
            });
        }
    }
    for live in &setup.live.0 {
        let offered = match live.presence {
            Presence::Offered => true,
            // Another agent has it.
            Presence::OutOfScope => place != DESK,
            Presence::Gone => false,
        };
        if offered {
            described.tools.push(tool(live, stage, life));
        }
    }
    described
}

fn tool(live: &LiveTool, stage: &Arc<WorldContext>, life: &Arc<Life>) -> Arc<dyn Tool> {
    let definition = ToolDefinition {
        name: live.name.clone(),
        // Approvers see the description, so a new version is a new definition.
        description: format!("does what it says, {}", live.tool.definition),
        parameters: Arc::new(json!({
            "type": "object",
            "properties": {"amount": {"type": "integer"}, "to": {"type": "string"}},
        })),
        effect: live.tool.class,
        approval: live.tool.approval,
        performer: live.tool.performer.clone(),
        expires_in: live.tool.expires_in_ms.map(Duration::from_millis),
        on_expiry: live.tool.on_expiry,
        timeout: TOOL_TIMEOUT,
    };
    match &definition.performer {
        Performer::Server => Arc::new(ScriptedTool {
            stage: stage.clone(),
            life: life.clone(),
            definition: Arc::new(definition),
        }),
        Performer::Client | Performer::External | Performer::Agent { .. } => {
            Arc::new(DeclaredTool::new(definition))
        }
    }
}
