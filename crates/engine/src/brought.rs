//! What comes with a message for one run: tools that its sender's front end performs, and the output that it wants. The
//! run is pinned to its agent with these beside its own, so a restart, another node and a changed configuration find them
//! as they came. They are stored with the run, for its thread, and go with the thread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::agent::{LiveAgent, PinFault, Pinned};
use crate::node::{Agents, Node};
use crate::posting::{Message, PostRefused};
use crate::schema::{Compiled, Extent, check_patterns};
use crate::store::Brought;
use crate::tool::{Performer, ToolDefinition};

/// Tools of one message.
pub const BROUGHT_MAX: usize = 128;
/// Of the parameters of all of them.
const PARAMETERS_BYTES_MAX: usize = 256 * 1024;

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
        if agents.is_reserved(&tool.name) || !names.insert(&tool.name) {
            return Err(PostRefused::ToolNameTaken(tool.name.clone()));
        }
    }
    check_extent(message)?;
    let frozen = agent.frozen.with_brought(tools, message.output_schema.as_ref());
    let brought = Brought::new(frozen.text().map_err(|why| PostRefused::BadTools { why })?);
    // A message may want what the agent gives anyway.
    if *brought.digest() == agent.pinned.digest {
        return Ok(Pin::of(agent));
    }
    let pinned = match node.remembered(&message.tenant, brought.digest()) {
        Some(known) => known,
        None => Arc::new(Pinned::compile(&frozen).map_err(|fault| match fault {
            PinFault::Output(why) => PostRefused::BadOutputSchema { why },
            PinFault::Tool(why) | PinFault::Agent(why) => PostRefused::BadTools { why },
        })?),
    };
    Ok(Pin { pinned, brought: Some(brought) })
}

/// Before anything is compiled: what comes along is bounded one by one and in all.
fn check_extent(message: &Message) -> Result<(), PostRefused> {
    let bad_tools = |why| PostRefused::BadTools { why };
    let (mut bytes, mut patterns, mut compiled) = (0, BTreeMap::new(), Compiled::default());
    for tool in &message.tools {
        let extent = extent(tool).map_err(|why| bad_tools(format!("tool {}: {why}", tool.name)))?;
        compiled.add(&extent).map_err(bad_tools)?;
        bytes += extent.bytes;
        patterns.extend(extent.patterns);
    }
    if bytes > PARAMETERS_BYTES_MAX {
        return Err(bad_tools(format!(
            "the parameters of all tools have {bytes} bytes; a message brings at most {PARAMETERS_BYTES_MAX}"
        )));
    }
    check_patterns(&patterns).map_err(|why| bad_tools(format!("in all tools together: {why}")))?;
    if let Some(schema) = &message.output_schema {
        let bad_output = |why| PostRefused::BadOutputSchema { why };
        let extent = Extent::of(schema).map_err(bad_output)?;
        compiled.add(&extent).map_err(bad_output)?;
        patterns.extend(extent.patterns);
        check_patterns(&patterns).map_err(|why| bad_output(format!("together with the tools: {why}")))?;
    }
    Ok(())
}

fn extent(tool: &ToolDefinition) -> Result<Extent, String> {
    if tool.performer != Performer::Client {
        return Err("a tool that comes with a message is performed by whoever sent it".into());
    }
    Extent::of(&tool.parameters).map_err(|why| format!("its parameters cannot be used: {why}"))
}
