//! What the hooks of plugins answer in these stories.

use std::sync::Arc;

use machine::phase::{Action, HookAnswer, HookAnswers, HookOutcome, Phase, Scope};
use machine::revision::Revision;
use serde_json::Value;

pub(crate) fn says(plugin: &str, actions: &[Action]) -> HookAnswer {
    HookAnswer { plugin: plugin.into(), outcome: HookOutcome::Actions(actions.to_vec()) }
}

pub(crate) fn fails(plugin: &str, why: &str) -> HookAnswer {
    HookAnswer { plugin: plugin.into(), outcome: HookOutcome::Failed(why.into()) }
}

/// In registration order.
pub(crate) fn together(answers: &[HookAnswer]) -> HookAnswers {
    HookAnswers { answers: answers.to_vec(), state_bytes_after: 0 }
}

pub(crate) fn one(plugin: &str, action: Action) -> HookAnswers {
    together(&[says(plugin, &[action])])
}

pub(crate) fn block(reason: &str) -> Action {
    Action::Block { reason: reason.into() }
}

pub(crate) fn note(text: &str) -> Action {
    Action::AddNote { text: text.into() }
}

pub(crate) fn set_state(key: &str, value: Value) -> Action {
    Action::SetState { key: key.into(), scope: Scope::Run, value: Arc::new(value) }
}

/// An agent whose plugins subscribe to these phases.
pub(crate) fn hooked(phases: &[Phase]) -> Revision {
    Revision { phases: phases.iter().copied().collect(), ..Revision::default() }
}
