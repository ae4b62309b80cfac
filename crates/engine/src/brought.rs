//! What comes with a message for one run: tools that its sender's front end performs, and the output that it wants. The
//! run is pinned to its agent with these beside its own, so a restart, another node and a changed configuration find them
//! as they came. They are stored with the run, for its thread, and go with the thread.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::agent::{LiveAgent, Pinned};
use crate::node::{Agents, Node};
use crate::output::{SCHEMA_BYTES_MAX, WantedOutput, check_size};
use crate::posting::{Message, PostRefused};
use crate::store::Brought;
use crate::tool::{Performer, ToolDefinition};

/// Tools of one message.
pub const BROUGHT_MAX: usize = 128;

/// What a run is going to be pinned to.
#[derive(Clone)]
pub(crate) struct Pin {
    pub(crate) pinned: Arc<Pinned>,
    /// Where it came with the message: stored with every run anew, since nobody knows what else goes meanwhile.
    pub(crate) brought: Option<Brought>,
}

impl Pin {
    pub(crate) fn of(agent: &LiveAgent) -> Self {
        Self { pinned: agent.pinned.clone(), brought: None }
    }
}

/// The agent with what a message brings beside its own. None of its tools may be taken for a tool of the server.
pub(crate) fn pin(
    node: &Node,
    agents: &Agents,
    agent: &LiveAgent,
    message: &Message,
) -> Result<Pin, PostRefused> {
    let tools = &message.tools;
    if tools.len() > BROUGHT_MAX {
        let why = format!("a message brings at most {BROUGHT_MAX} tools, not {}", tools.len());
        return Err(PostRefused::BadTools { why });
    }
    let mut names = BTreeSet::new();
    for tool in tools {
        check(tool).map_err(|why| PostRefused::BadTools { why: format!("tool {}: {why}", tool.name) })?;
        if agents.is_reserved(&tool.name) || !names.insert(&tool.name) {
            return Err(PostRefused::ToolNameTaken(tool.name.clone()));
        }
    }
    if let Some(schema) = &message.output_schema {
        let checked = check_size(schema).and_then(|()| WantedOutput::compile(schema));
        checked.map_err(|why| PostRefused::BadOutputSchema { why })?;
    }
    let bad = |why| PostRefused::BadTools { why };
    let frozen = agent.frozen.with_brought(tools, message.output_schema.as_ref());
    let brought = Brought::new(frozen.text().map_err(bad)?);
    // A message may want what the agent gives anyway.
    if *brought.digest() == agent.pinned.digest {
        return Ok(Pin::of(agent));
    }
    let pinned = match node.remembered(&message.tenant, brought.digest()) {
        Some(known) => known,
        None => Arc::new(Pinned::compile(&frozen).map_err(bad)?),
    };
    Ok(Pin { pinned, brought: Some(brought) })
}

fn check(tool: &ToolDefinition) -> Result<(), String> {
    if tool.performer != Performer::Client {
        return Err("a tool that comes with a message is performed by whoever sent it".into());
    }
    check_size(&tool.parameters).map_err(|_| {
        format!("its parameters are nested too deeply, or have more than {SCHEMA_BYTES_MAX} bytes")
    })
}
