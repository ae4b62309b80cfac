//! The runs of a simulated world in the form that translators read, and what a client must show of them in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::store::{CommittedEvent, LogEntry};
use holdpoint_http::wire::feed::event_item;
use holdpoint_http::wire::hydrate::EventHydrator;
use machine::event::Event;
use protocols::ai_sdk::{ToolState, UiMessage, UiPart};
use protocols::feed::{Body, Item, RequestedCall, SuspensionKind};
use serde_json::Value;
use sim::play::tape::Tape;

use crate::chat_client::CLIENT_TOOLS;
use crate::random_story::Turn;
use crate::run_script::RUN;
use crate::world::{Held, World};

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Succeeded,
    Failed,
    Denied,
    Cancelled,
}

/// A run that has ended.
pub(crate) struct SimulatedRun {
    pub(crate) items: Vec<Item>,
}

impl SimulatedRun {
    /// The runs of a world that started and ended. The world is at rest, so few others are left.
    pub(crate) fn of_world(seed: u64) -> Vec<Self> {
        let mut world = sim::world::World::new(Tape::seeded(seed), false);
        world.play().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        let runs = world.store.runs.iter().map(|stored| Self { items: items(&stored.log) });
        let is_shown = |run: &Self| {
            let has = |wanted: fn(&Body) -> bool| run.items.iter().any(|item| wanted(&item.body));
            has(|body| matches!(body, Body::UserMessage { .. }))
                && has(|body| matches!(body, Body::RunEnded { .. }))
        };
        runs.filter(is_shown).collect()
    }

    /// The decisions of each wait that were processed before the next one.
    pub(crate) fn turns(&self) -> Vec<Turn> {
        let mut turns: Vec<Turn> = Vec::new();
        let mut resumed = BTreeSet::new();
        for (index, item) in self.items.iter().enumerate() {
            if let Body::RunWaiting { .. } = &item.body {
                turns.push(Turn { begin: index + 1, ..Turn::default() });
            }
            let Some(turn) = turns.last_mut() else { continue };
            match &item.body {
                Body::Approved { approval_id, .. } => turn.approvals.push((approval_id.clone(), true)),
                Body::Denied { approval_id, .. } => turn.approvals.push((approval_id.clone(), false)),
                Body::CallResumed { call_id, .. } => {
                    resumed.insert(call_id.clone());
                }
                Body::Succeeded { call_id, tool, result, .. }
                    if CLIENT_TOOLS.contains(&&**tool) && resumed.remove(call_id) =>
                {
                    turn.outputs.push((call_id.clone(), serde_json::from_str(result.get()).unwrap()));
                }
                _ => {}
            }
        }
        turns
    }

    pub(crate) fn outcomes(&self) -> BTreeMap<&str, Outcome> {
        let settled = self.items.iter().filter_map(|item| match &item.body {
            Body::Succeeded { call_id, .. } => Some((&**call_id, Outcome::Succeeded)),
            Body::Failed { call_id, .. } => Some((&**call_id, Outcome::Failed)),
            Body::Denied { call_id, .. } => Some((&**call_id, Outcome::Denied)),
            Body::Cancelled { call_id, .. } => Some((&**call_id, Outcome::Cancelled)),
            _ => None,
        });
        settled.collect()
    }

    /// The message of the AI SDK has the texts and the calls of the log, and each call ended as it did.
    pub(crate) fn check_message(&self, message: &UiMessage, seed: u64) {
        let (mut texts, mut states) = (String::new(), BTreeMap::new());
        for part in &message.parts {
            match part {
                UiPart::Text { text, discarded: false, .. } => texts.push_str(text),
                UiPart::Tool(tool) => {
                    let known = states.insert(&*tool.call_id, tool.state);
                    assert_eq!(known, None, "seed {seed}: {} is shown twice", tool.call_id);
                }
                _ => {}
            }
        }
        let (mut expected_texts, mut calls) = (String::new(), BTreeSet::new());
        for item in &self.items {
            if let Body::AssistantMessage { text, calls: requested, .. } = &item.body {
                expected_texts.push_str(text);
                calls.extend(requested.iter().map(|call| &*call.call_id));
            }
        }
        assert_eq!(texts, expected_texts, "seed {seed}");
        let begun = self.items.iter().filter(|item| matches!(item.body, Body::StepStarted { .. })).count();
        let shown = message.parts.iter().filter(|part| **part == UiPart::StepStart).count();
        assert!((begun..=begun + 1).contains(&shown), "seed {seed}: {shown} steps are shown of {begun}");
        assert_eq!(states.keys().copied().collect::<BTreeSet<_>>(), calls, "seed {seed}");
        for (call_id, outcome) in self.outcomes() {
            let expected = match outcome {
                Outcome::Succeeded => ToolState::OutputAvailable,
                Outcome::Failed | Outcome::Cancelled => ToolState::OutputError,
                Outcome::Denied => ToolState::OutputDenied,
            };
            assert_eq!(states[call_id], expected, "seed {seed}: {call_id} ended as {outcome:?}");
        }
    }

    /// What a client of AG-UI must end up with.
    pub(crate) fn world(&self) -> World {
        let mut world = World {
            items: self.items.clone(),
            held: Vec::new(),
            answers: BTreeMap::new(),
            results: BTreeMap::new(),
            messages: Vec::new(),
        };
        let mut held: BTreeMap<String, (Held, String)> = BTreeMap::new();
        let mut edited: BTreeMap<&str, &Value> = BTreeMap::new();
        for (index, item) in self.items.iter().enumerate() {
            if let Body::Approved { call_id, arguments: Some(arguments), .. } = &item.body {
                edited.insert(call_id, arguments);
            }
            // The model was given a placeholder before the call ended.
            if let Some((call_id, text)) = late_text(&item.body)
                && let Some(placeholder) = world.results.get_mut(call_id)
            {
                let note = |edited: &&Value| format!("Arguments were changed by the approver to: {edited}\n");
                *placeholder = edited.get(call_id).map(note).unwrap_or_default() + &text;
            }
            match &item.body {
                Body::UserMessage { id, content } => {
                    world.messages.push((id.clone(), content.as_str().map(str::to_owned), Vec::new()));
                }
                Body::AssistantMessage { id, text, calls, .. } if !text.is_empty() || !calls.is_empty() => {
                    let calls = calls.iter().map(|call| call.call_id.clone()).collect();
                    world.messages.push((id.clone(), (!text.is_empty()).then(|| text.clone()), calls));
                }
                Body::ToolMessage { call_id, text, .. } => {
                    world.results.insert(call_id.clone(), text.clone());
                }
                Body::ApprovalRequested { call, approval_id, .. } => {
                    held.insert(approval_id.clone(), (Held::Approval, call.call_id.clone()));
                }
                Body::Suspended { call, suspension } => {
                    held.insert(suspension.id.clone(), (held_as(&suspension.kind), call.call_id.clone()));
                }
                Body::Approved { approval_id: id, .. }
                | Body::Denied { approval_id: id, .. }
                | Body::ApprovalVoided { approval_id: id, .. }
                | Body::CallResumed { suspension_id: id, .. } => {
                    if let Some((Held::Approval | Held::Question | Held::InDoubt | Held::ClientTool, _)) =
                        held.remove(id)
                    {
                        world.answers.insert(id.clone(), index);
                    }
                }
                Body::Succeeded { call_id, .. }
                | Body::Failed { call_id, .. }
                | Body::Cancelled { call_id, .. } => held.retain(|_, (_, of)| of != call_id),
                Body::RunEnded { .. } => held.clear(),
                _ => {}
            }
            world.held.push(held.clone());
        }
        // The sort is stable, and the user's message is first.
        world.messages.sort_by_key(|(id, text, calls)| match text {
            Some(_) => self.position_of(id),
            None => calls.iter().map(|call| self.shown_from(id, call)).min().unwrap_or_default(),
        });
        world
    }

    /// The index of the event that adds the message.
    fn position_of(&self, message: &str) -> usize {
        let adds = |item: &Item| match &item.body {
            Body::UserMessage { id, .. } | Body::AssistantMessage { id, .. } => id == message,
            _ => false,
        };
        self.items.iter().position(adds).unwrap_or_default()
    }

    /// A front end runs what it is shown of its own tools, so it is shown such a call once it may run it, or at its end.
    fn shown_from(&self, message: &str, call: &str) -> usize {
        let is_shown = |item: &Item| match &item.body {
            Body::CallRequested { call: requested } => {
                requested.call_id == call && !CLIENT_TOOLS.contains(&&*requested.tool)
            }
            Body::Suspended { call: held, suspension } => {
                held.call_id == call && suspension.kind == SuspensionKind::ClientTool
            }
            Body::Succeeded { call_id, .. }
            | Body::Failed { call_id, .. }
            | Body::Denied { call_id, .. }
            | Body::Cancelled { call_id, .. } => call_id == call,
            _ => false,
        };
        self.items.iter().position(is_shown).unwrap_or_else(|| self.position_of(message))
    }
}

/// What a client shows as the result of a call that ends in this event.
fn late_text(body: &Body) -> Option<(&str, String)> {
    match body {
        Body::Succeeded { call_id, result, warning, .. } => {
            let text =
                serde_json::from_str::<String>(result.get()).unwrap_or_else(|_| result.get().to_owned());
            let warning = warning.as_ref().map(|warning| format!("\nWarning: {warning}"));
            Some((call_id, text + &warning.unwrap_or_default()))
        }
        Body::Failed { call_id, message, outcome_unknown, .. } => {
            let doubt = if *outcome_unknown { "; an earlier attempt may have taken effect" } else { "" };
            Some((call_id, format!("Error: {message}{doubt}")))
        }
        Body::Denied { call_id, by, reason, .. } => Some((call_id, format!("Denied by {by}: {reason}"))),
        Body::Cancelled { call_id, outcome_unknown: true, .. } => {
            Some((call_id, "Cancelled; it may have taken effect".to_owned()))
        }
        Body::Cancelled { call_id, reason, .. } => match reason.as_str() {
            "decided" | "given_up" | "" => Some((call_id, "Cancelled".to_owned())),
            reason => Some((call_id, format!("Cancelled: {reason}"))),
        },
        _ => None,
    }
}

const fn held_as(kind: &SuspensionKind) -> Held {
    match kind {
        SuspensionKind::ClientTool => Held::ClientTool,
        SuspensionKind::External => Held::External,
        SuspensionKind::Question => Held::Question,
        SuspensionKind::InDoubt => Held::InDoubt,
        SuspensionKind::ChildRun { .. } => Held::Child,
    }
}

/// What the server sends of this log, under the names that the clients of the tests know.
fn items(log: &[Event]) -> Vec<Item> {
    let mut hydrator = EventHydrator::new("thr_1".into(), RUN.into());
    let mut items = Vec::new();
    for event in log {
        let committed = CommittedEvent { event: Arc::new(event.clone()), checkpoint: None };
        let envelopes = hydrator.hydrate_entry(&LogEntry::Event(committed));
        items.extend(envelopes.into_iter().map(event_item));
    }
    let client_calls: BTreeSet<String> = items.iter().filter_map(client_call).collect();
    items.iter_mut().for_each(|item| rename_client_tool(&mut item.body, &client_calls));
    items
}

fn client_call(item: &Item) -> Option<String> {
    match &item.body {
        Body::Suspended { call, suspension } if suspension.kind == SuspensionKind::ClientTool => {
            Some(call.call_id.clone())
        }
        _ => None,
    }
}

/// In a world, a tool can be of the front end for one call and of the server for the next. The clients of the tests
/// know it by its name.
fn rename_client_tool(body: &mut Body, client_calls: &BTreeSet<String>) {
    let rename = |call: &mut RequestedCall| {
        if client_calls.contains(&call.call_id) {
            call.tool = CLIENT_TOOLS[0].into();
        }
    };
    match body {
        Body::AssistantMessage { calls, .. } => calls.iter_mut().for_each(rename),
        Body::CallRequested { call }
        | Body::ApprovalRequested { call, .. }
        | Body::Suspended { call, .. } => rename(call),
        Body::Approved { call_id, tool, .. }
        | Body::Denied { call_id, tool, .. }
        | Body::CallResumed { call_id, tool, .. }
        | Body::ExecutionStarted { call_id, tool, .. }
        | Body::Succeeded { call_id, tool, .. }
        | Body::Failed { call_id, tool, .. }
        | Body::Cancelled { call_id, tool, .. }
            if client_calls.contains(call_id) =>
        {
            *tool = CLIENT_TOOLS[0].into();
        }
        _ => {}
    }
}
