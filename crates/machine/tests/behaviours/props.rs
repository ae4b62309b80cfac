//! Small things that several stories need: what hooks answer, how an event is stored, the transcript in lines.

use std::sync::Arc;

use machine::Event;
use machine::event_codec;
use machine::phase::{Action, HookAnswer, HookAnswers, HookOutcome, Phase, Scope};
use machine::revision::{Revision, StopCondition};
use machine::termination::Termination;
use machine::transcript::ModelMessage;
use serde_json::{Value, json};

use crate::story::Story;

/// Each plugin with its actions, in registration order.
pub(crate) fn hooks(answers: &[(&str, Vec<Action>)]) -> HookAnswers {
    let answers = answers
        .iter()
        .map(|(plugin, actions)| HookAnswer {
            plugin: (*plugin).into(),
            outcome: HookOutcome::Actions(actions.clone()),
        })
        .collect();
    HookAnswers { answers, state_bytes_after: 0 }
}

pub(crate) fn hook(action: Action) -> HookAnswers {
    hooks(&[("guard", vec![action])])
}

pub(crate) fn hook_failed(plugin: &str) -> HookAnswers {
    let outcome = HookOutcome::Failed("it panicked".into());
    HookAnswers { answers: vec![HookAnswer { plugin: plugin.into(), outcome }], state_bytes_after: 0 }
}

pub(crate) fn set_state(key: &str) -> Action {
    Action::SetState { key: key.into(), scope: Scope::Run, value: Arc::new(json!(1)) }
}

pub(crate) fn subscribing(phases: &[Phase]) -> Revision {
    Revision { phases: phases.iter().copied().collect(), ..Revision::default() }
}

pub(crate) fn stopping(stop: Vec<StopCondition>) -> Revision {
    Revision { stop, ..Revision::default() }
}

pub(crate) fn stored_json(event: &Event) -> Value {
    serde_json::from_str(&event_codec::encode(event).unwrap()).unwrap()
}

/// The payloads of all events of this type.
pub(crate) fn payloads(events: &[Event], kind: &str) -> Vec<Value> {
    events
        .iter()
        .map(stored_json)
        .filter(|event| event["type"] == kind)
        .map(|event| event["payload"].clone())
        .collect()
}

#[track_caller]
pub(crate) fn payload(events: &[Event], kind: &str) -> Value {
    let found = payloads(events, kind);
    assert_eq!(found.len(), 1, "one {kind} in {:?}", crate::story::names(events));
    found.into_iter().next().unwrap()
}

/// What the model reads, one line per message.
pub(crate) fn lines(story: &Story) -> Vec<String> {
    story
        .transcript()
        .into_iter()
        .map(|message| match message {
            ModelMessage::User { content, .. } => format!("user: {}", content.as_str().unwrap()),
            ModelMessage::Assistant { text, calls, .. } => {
                let calls: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
                format!("assistant: {text}[{}]", calls.join(" "))
            }
            ModelMessage::Tool { call, text } => format!("{call}: {text}"),
            ModelMessage::Note { call, text, .. } => format!("note {call}: {text}"),
            ModelMessage::Notice { text } => format!("notice: {text}"),
        })
        .collect()
}

#[track_caller]
pub(crate) fn termination(story: &Story) -> Termination {
    story.run.control.ended().expect("the run has not ended").clone()
}
