//! What comes with a message for one run: tools that the sender's front end performs, and the output schema it wants.
//! The run is pinned to its agent extended by these, so they stay as they were sent after a restart, on another node,
//! and when the configuration changes. They are stored with the run, for its thread, and are deleted with the thread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::agent::{LiveAgent, PinError, Pinned};
use crate::node::{Agents, Node};
use crate::posting::{Message, PostError};
use crate::schema::{CompiledSize, SchemaSize, check_patterns};
use crate::store::InlineAgent;
use crate::tool::{Performer, ToolDefinition};

/// Maximum number of tools in one message.
pub const INLINE_TOOLS_MAX: usize = 128;
/// Maximum size of the parameters of all of them.
const PARAMETERS_BYTES_MAX: usize = 256 * 1024;

/// What a run will be pinned to.
#[derive(Clone)]
pub(crate) struct AgentPin {
    pub(crate) pinned: Arc<Pinned>,
    /// Set if it came with the message. It is stored again with every run, because an earlier copy may be deleted
    /// meanwhile.
    pub(crate) inline_agent: Option<InlineAgent>,
}

impl AgentPin {
    pub(crate) fn configured(agent: &LiveAgent) -> Self {
        Self { pinned: agent.pinned.clone(), inline_agent: None }
    }
}

/// The agent extended by the message's tools and output schema. None of the inline tools may be mistaken for a tool of
/// the server.
pub(crate) fn pin_with_inline(
    node: &Node,
    agents: &Agents,
    agent: &LiveAgent,
    message: &Message,
) -> Result<AgentPin, PostError> {
    let tools = &message.tools;
    if tools.len() > INLINE_TOOLS_MAX {
        let why = format!("a message brings at most {INLINE_TOOLS_MAX} tools, not {}", tools.len());
        return Err(PostError::BadTools { why });
    }
    let mut names = BTreeSet::new();
    for tool in tools {
        if agents.is_reserved(&tool.name) || !names.insert(&tool.name) {
            return Err(PostError::ToolNameTaken(tool.name.clone()));
        }
    }
    check_sizes(message)?;
    let frozen = agent.frozen.with_inline(tools, message.output_schema.as_ref());
    let inline_agent = InlineAgent::new(frozen.text().map_err(|why| PostError::BadTools { why })?);
    // The message may ask for exactly what the agent already has.
    if *inline_agent.digest() == agent.pinned.digest {
        return Ok(AgentPin::configured(agent));
    }
    let pinned = match node.cached_revision(&message.tenant, inline_agent.digest()) {
        Some(known) => known,
        None => Arc::new(Pinned::compile(&frozen).map_err(|fault| match fault {
            PinError::Output(why) => PostError::BadOutputSchema { why },
            PinError::Tool(why) | PinError::Agent(why) => PostError::BadTools { why },
        })?),
    };
    Ok(AgentPin { pinned, inline_agent: Some(inline_agent) })
}

/// Before anything is compiled: checks the limits of each inline part and of all together.
fn check_sizes(message: &Message) -> Result<(), PostError> {
    let bad_tools = |why| PostError::BadTools { why };
    let (mut bytes, mut patterns, mut compiled) = (0, BTreeMap::new(), CompiledSize::default());
    for tool in &message.tools {
        let size = schema_size(tool).map_err(|why| bad_tools(format!("tool {}: {why}", tool.name)))?;
        compiled.add(&size).map_err(bad_tools)?;
        bytes += size.bytes;
        patterns.extend(size.patterns);
    }
    if bytes > PARAMETERS_BYTES_MAX {
        return Err(bad_tools(format!(
            "the parameters of all tools have {bytes} bytes; a message brings at most {PARAMETERS_BYTES_MAX}"
        )));
    }
    check_patterns(&patterns).map_err(|why| bad_tools(format!("in all tools together: {why}")))?;
    if let Some(schema) = &message.output_schema {
        let bad_output = |why| PostError::BadOutputSchema { why };
        let size = SchemaSize::measure(schema).map_err(bad_output)?;
        compiled.add(&size).map_err(bad_output)?;
        patterns.extend(size.patterns);
        check_patterns(&patterns).map_err(|why| bad_output(format!("together with the tools: {why}")))?;
    }
    Ok(())
}

fn schema_size(tool: &ToolDefinition) -> Result<SchemaSize, String> {
    if tool.performer != Performer::Client {
        return Err("a tool that comes with a message is performed by the client that sent it".into());
    }
    SchemaSize::measure(&tool.parameters).map_err(|why| format!("its parameters cannot be used: {why}"))
}
