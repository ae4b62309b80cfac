//! Tools that come with a message: its sender's front end performs them, for one run. The run is pinned to its agent with
//! these tools beside its own, so a restart, another node and a changed configuration find them as they came.

use std::collections::BTreeSet;
use std::sync::Arc;

use machine::depth::too_deep;
use machine::id::Digest;

use crate::agent::{LiveAgent, Pinned};
use crate::node::{Agents, Node};
use crate::posting::PostRefused;
use crate::store::Refused;
use crate::tool::{Performer, ToolDefinition};

/// Tools of one message.
pub const BROUGHT_MAX: usize = 128;
/// Of the schema of one of them.
const SCHEMA_BYTES_MAX: usize = 64 * 1024;

/// What a run is going to be pinned to.
#[derive(Clone)]
pub(crate) struct Pin {
    pub(crate) pinned: Arc<Pinned>,
    /// Its text, where nobody may have stored it yet.
    unstored: Option<Arc<str>>,
}

impl Pin {
    pub(crate) fn of(agent: &LiveAgent) -> Self {
        Self { pinned: agent.pinned.clone(), unstored: None }
    }
}

/// The agent with the tools of a message beside its own. None of them may be taken for a tool of the server.
pub(crate) fn pin(
    node: &Node,
    agents: &Agents,
    agent: &LiveAgent,
    tools: &[ToolDefinition],
) -> Result<Pin, PostRefused> {
    if tools.len() > BROUGHT_MAX {
        let why = format!("a message brings at most {BROUGHT_MAX} tools, not {}", tools.len());
        return Err(PostRefused::BadTools { why });
    }
    let mut names = BTreeSet::new();
    for tool in tools {
        check(tool).map_err(|why| PostRefused::BadTools { why: format!("tool {}: {why}", tool.name) })?;
        if agents.has_tool(&tool.name) || !names.insert(&tool.name) {
            return Err(PostRefused::ToolNameTaken(tool.name.clone()));
        }
    }
    let bad = |why| PostRefused::BadTools { why };
    let frozen = agent.frozen.with_brought(tools);
    let text = frozen.text().map_err(bad)?;
    if let Some(pinned) = node.remembered(&Digest::of(text.as_bytes())) {
        return Ok(Pin { pinned, unstored: None });
    }
    let pinned = Arc::new(Pinned::compile(&frozen).map_err(bad)?);
    Ok(Pin { pinned, unstored: Some(Arc::from(text)) })
}

fn check(tool: &ToolDefinition) -> Result<(), String> {
    if tool.performer != Performer::Client {
        return Err("a tool that comes with a message is performed by whoever sent it".into());
    }
    if too_deep(&tool.parameters) || tool.parameters.to_string().len() > SCHEMA_BYTES_MAX {
        return Err(format!(
            "its parameters are nested too deeply, or have more than {SCHEMA_BYTES_MAX} bytes"
        ));
    }
    Ok(())
}

impl Node {
    /// Before the first run that is pinned to it.
    pub(crate) async fn keep(&self, pin: &Pin) -> Result<(), Refused> {
        let Some(text) = &pin.unstored else { return Ok(()) };
        self.store.put_revision(&pin.pinned.digest, text).await?;
        self.remember(pin.pinned.clone());
        Ok(())
    }
}
