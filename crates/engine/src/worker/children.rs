//! Child runs: created by a call of an agent tool, in the same commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use machine::delivery::{Spawn, spawns};
use machine::event::{Fact, Parent, RunRequest, UserMessage};
use machine::id::MessageId;
use machine::policy::for_child;
use machine::tool::Arguments;
use machine::{Control, fold, queue};
use serde_json::Value;

use super::Batch;
use crate::node::Agents;
use crate::store::NewChildRun;

/// The argument in which the call of an agent tool describes its task; without it the child reads all arguments.
const MESSAGE_ARGUMENT: &str = "message";

/// Whether every agent that this commit delegates to is configured.
pub(super) fn has_all_agents(batch: &Batch, agents: &Agents) -> bool {
    spawns(&batch.events).iter().all(|spawn| agents.by_name.contains_key(&spawn.agent))
}

/// The runs that this commit creates.
pub(super) fn child_runs(
    batch: &Batch,
    agents: &Agents,
    arguments: &BTreeMap<u64, Arguments>,
) -> Result<Vec<NewChildRun>, String> {
    let spawned = spawns(&batch.events);
    if spawned.is_empty() {
        return Ok(Vec::new());
    }
    let Some(parent) = batch.before() else {
        return Err("a run cannot delegate before it has begun".into());
    };
    spawned.iter().map(|spawn| child(batch, parent, spawn, agents, arguments)).collect()
}

fn child(
    batch: &Batch,
    parent: &Control,
    spawn: &Spawn,
    agents: &Agents,
    arguments: &BTreeMap<u64, Arguments>,
) -> Result<NewChildRun, String> {
    let agent = agents
        .by_name
        .get(&spawn.agent)
        .ok_or_else(|| format!("agent {} is not configured any more", spawn.agent))?;
    let at = batch.events.last().map_or(parent.at, |event| event.at);
    let order = RunRequest {
        run_id: spawn.run.clone(),
        thread_id: spawn.thread.clone(),
        agent: spawn.agent.clone(),
        revision: agent.pinned.digest,
        policy: for_child(&parent.policy, &agent.pinned.revision.policy),
        loosened_by: None,
        message: Some(UserMessage {
            id: MessageId::from(format!("msg_{}_0", spawn.run)),
            content: Arc::new(task(batch, parent, spawn, arguments)),
            by: None,
        }),
        parent: Some(Parent {
            run_id: parent.run.clone(),
            call_id: spawn.call.clone(),
            depth: spawn.depth,
            grant_tokens: spawn.grant_tokens,
            grant_descendants: Some(spawn.grant_descendants),
        }),
    };
    let first = queue(order, at);
    let control = fold([&first]).map_err(|impossible| impossible.to_string())?;
    Ok(NewChildRun { thread: spawn.thread.clone(), first: Arc::new(first), control: Arc::new(control) })
}

/// The child's task: the call's arguments as they were decided on.
fn task(batch: &Batch, parent: &Control, spawn: &Spawn, arguments: &BTreeMap<u64, Arguments>) -> Value {
    let stored = parent.call(&spawn.call).map(|call| call.arguments_seq);
    let said_here = batch.events.iter().rev().find_map(|event| {
        let own = matches!(&event.fact,
            Fact::ToolRequested { call_id, .. }
            | Fact::ToolApproved { call_id, arguments: Some(_), .. }
            | Fact::ToolResumed { call_id, arguments: Some(_), .. } if *call_id == spawn.call);
        own.then_some(event.seq)
    });
    let value = said_here.or(stored).and_then(|seq| match arguments.get(&seq)? {
        Arguments::Valid { value, .. } => Some(value.clone()),
        Arguments::Invalid { .. } => None,
    });
    match value {
        Some(value) => match value.get(MESSAGE_ARGUMENT).and_then(Value::as_str) {
            Some(text) => Value::from(text),
            None => Value::from(value.to_string()),
        },
        None => Value::from(""),
    }
}
