//! What a commit of one run causes in other runs: children to create, ends and interrupts to deliver.

use alloc::sync::Arc;
use alloc::vec::Vec;
use serde_json::Value;

use crate::apply::{ImpossibleEvent, apply, initial_control};
use crate::control::Control;
use crate::event::{Event, Fact, InterruptCause};
use crate::id::{AgentName, CallId, RunId, ThreadId};
use crate::inbox::Item;
use crate::input::{ChildEnd, ChildEnded};
use crate::model_text::child_stopped;
use crate::suspension::Held;
use crate::termination::Termination;

/// A child run to create in the same commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spawn {
    pub call: CallId,
    pub run: RunId,
    pub thread: ThreadId,
    pub agent: AgentName,
    pub depth: u16,
    pub grant_tokens: Option<u64>,
    pub grant_descendants: u32,
}

/// An inbox row to write in the same commit.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    pub to: RunId,
    pub item: Item,
}

#[must_use]
pub fn spawns(events: &[Event]) -> Vec<Spawn> {
    let mut spawns = Vec::new();
    for event in events {
        if let Fact::ChildStarted {
            call_id,
            run_id,
            thread_id,
            agent,
            depth,
            grant_tokens,
            grant_descendants,
        } = &event.fact
        {
            spawns.push(Spawn {
                call: call_id.clone(),
                run: run_id.clone(),
                thread: thread_id.clone(),
                agent: agent.clone(),
                depth: *depth,
                grant_tokens: *grant_tokens,
                grant_descendants: *grant_descendants,
            });
        }
    }
    spawns
}

/// `before` is the state before the events, none for a run that begins with them; `last_text` is the text of the run's
/// last assistant message.
pub fn deliveries(
    before: Option<&Control>,
    events: &[Event],
    last_text: &str,
) -> Result<Vec<Delivery>, ImpossibleEvent> {
    let mut deliveries = Vec::new();
    let mut state: Option<Control> = before.cloned();
    for event in events {
        let Some(control) = &mut state else {
            state = Some(initial_control(event)?);
            continue;
        };
        if let Fact::ToolCancelled { call_id, .. } = &event.fact
            && let Some(child) = child_of(control, call_id, events)
        {
            let cause = InterruptCause::Parent(control.run.clone());
            deliveries.push(Delivery { to: child, item: Item::Interrupt { cause } });
        }
        if let Fact::RunEnded { termination, usage, .. } = &event.fact
            && let Some(parent) = &control.parent
        {
            let ended = ChildEnded {
                call: parent.call_id.clone(),
                run: control.run.clone(),
                end: child_end(termination, last_text),
                usage: *usage,
                descendants: control.descendants,
            };
            deliveries.push(Delivery { to: parent.run_id.clone(), item: Item::ChildEnded(ended) });
        }
        apply(control, event)?;
    }
    Ok(deliveries)
}

/// The child that works on a call which is being cancelled. A child that has just ended needs no interrupt.
fn child_of(control: &Control, call: &CallId, events: &[Event]) -> Option<RunId> {
    let Held::ChildRun { run, .. } = &control.call(call)?.suspension()?.held else {
        return None;
    };
    let ended =
        events.iter().any(|event| matches!(&event.fact, Fact::ChildEnded { run_id, .. } if run_id == run));
    (!ended).then(|| run.clone())
}

fn child_end(termination: &Termination, last_text: &str) -> ChildEnd {
    match termination {
        Termination::NaturalEnd | Termination::BehaviorRequested => completed(last_text),
        Termination::Stopped(stopped) if stopped.code.is_as_configured() => completed(last_text),
        Termination::Stopped(stopped) => ChildEnd::Failed { message: child_stopped(stopped, last_text) },
        Termination::Cancelled(_) => ChildEnd::Interrupted,
        Termination::Blocked(text) => ChildEnd::Failed { message: text.clone() },
        Termination::Error(error) => ChildEnd::Failed { message: error.text.clone() },
    }
}

fn completed(last_text: &str) -> ChildEnd {
    ChildEnd::Completed { answer: Arc::new(Value::String(last_text.into())) }
}
