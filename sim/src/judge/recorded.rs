//! The log records what was submitted: results, errors, names, edits, and hook answers.

use machine::Input;
use machine::decision::{Decision, DecisionAction, Payload, Resume};
use machine::event::{Event, Fact};
use machine::id::{CallId, PluginName};
use machine::input::{ChildEnd, Outcome, ToolAnswer};
use machine::phase::{Action, HookAnswer, HookAnswers, HookOutcome, Phase, Scope, SuppliedResult};
use serde_json::Value;

use crate::judge::invariant::{Checked, Invariant, ensure};
use crate::world::hooks;

pub fn check(input: &Input, events: &[Event]) -> Checked {
    check_results(input, events)?;
    if let Input::Decide(decision) = input {
        check_decision(decision, events)?;
    }
    check_hooks(input, events)
}

/// A call succeeds only with a value that was supplied for it.
fn check_results(input: &Input, events: &[Event]) -> Checked {
    let said = results_in(input);
    for event in events {
        let Fact::ExecutionSucceeded { call_id, result, .. } = &event.fact else { continue };
        let given = said.iter().any(|(call, value)| *call == call_id && **value == result.to_value());
        ensure(given, Invariant::WhatWasSaidIsStored, || {
            format!("call {call_id} is stored with {result}, said was {said:?}")
        })?;
    }
    Ok(())
}

/// The results that an input brings, with the calls that they are for.
fn results_in(input: &Input) -> Vec<(&CallId, &Value)> {
    match input {
        Input::ToolReturned {
            call, outcome: Outcome::Answered(ToolAnswer::Success { value, .. }), ..
        } => {
            vec![(call, value)]
        }
        Input::Decide(decision) => match &decision.action {
            DecisionAction::Resume(Resume { payload: Payload::Result(value), .. }) => {
                vec![(&decision.call, value)]
            }
            DecisionAction::Resume(_) | DecisionAction::Cancel { .. } => Vec::new(),
        },
        Input::ChildEnded(ended) => match &ended.end {
            ChildEnd::Completed { answer } => vec![(&ended.call, answer)],
            ChildEnd::Failed { .. } | ChildEnd::Interrupted => Vec::new(),
        },
        Input::Gated(gated) => gated
            .hooks
            .actions()
            .filter_map(|(_, action)| supplied(action))
            .map(|value| (&gated.call, value))
            .collect(),
        Input::ToolReturned { .. }
        | Input::Start { .. }
        | Input::LeaseAcquired { .. }
        | Input::InboxDrained
        | Input::PhaseAnswered { .. }
        | Input::ModelAnswered(_)
        | Input::ModelFailed { .. }
        | Input::AfterTools { .. }
        | Input::Interrupt { .. }
        | Input::DeadlineReached => Vec::new(),
    }
}

fn supplied(action: &Action) -> Option<&Value> {
    let Action::SetResult(SuppliedResult::Success { value, .. }) = action else { return None };
    Some(value)
}

/// The decider is in the log, with the edit and the answer that they gave.
fn check_decision(decision: &Decision, events: &[Event]) -> Checked {
    let (edited, passed, payload) = match &decision.action {
        DecisionAction::Resume(resume) => {
            (resume.arguments.as_ref(), resume.payload_arguments.as_ref(), Some(&resume.payload))
        }
        DecisionAction::Cancel { .. } => (None, None, None),
    };
    for event in events {
        let mut right = true;
        let mut named = None;
        if let Fact::ToolApproved { call_id, by, arguments, .. } = &event.fact {
            named = Some((call_id, by));
            right = arguments.as_ref() == edited;
        } else if let Fact::ToolResumed { call_id, by, arguments, answer, .. } = &event.fact {
            named = Some((call_id, by));
            let answered = answer.clone().map(Payload::Result);
            right = (answered.is_none() || answered.as_ref() == payload)
                && (arguments.is_none() || arguments.as_ref() == passed);
        } else if let Fact::ToolDenied { call_id, by, .. } | Fact::ToolCancelled { call_id, by, .. } =
            &event.fact
        {
            named = Some((call_id, by));
        }
        // Other calls may end with the run.
        let Some((_, by)) = named.filter(|(call_id, _)| **call_id == decision.call) else { continue };
        ensure(right && *by == decision.by, Invariant::WhatWasSaidIsStored, || {
            format!("{decision:?} is stored as {:?}", event.fact)
        })?;
    }
    Ok(())
}

/// A valid answer is stored as it was given, and each `set_state` in it is one change of the state.
fn check_hooks(input: &Input, events: &[Event]) -> Checked {
    let said = hooks_in(input);
    let mut recorded_count = 0;
    let mut wanted = Vec::new();
    let mut changed = Vec::new();
    for event in events {
        if let Fact::StateChanged { plugin, scope, key, value } = &event.fact {
            changed.push((plugin, *scope, key.as_str(), &**value));
        }
        let Fact::PhaseAnswered { phase, plugin, actions, failed: None, .. } = &event.fact else { continue };
        let given = said.iter().any(|(of, hooks)| of == phase && have_said(hooks, plugin, actions));
        ensure(given, Invariant::HookAnswersAreKept, || {
            format!("{plugin} did not say {actions:?} in {phase}")
        })?;
        recorded_count += 1;
        wanted.extend(actions.iter().filter_map(|action| state_set_by(plugin, action)));
    }
    ensure(wanted == changed, Invariant::HookAnswersAreKept, || {
        format!("recorded answers set {wanted:?}, the log says {changed:?}")
    })?;
    let complete =
        said.iter().all(|(phase, hooks)| !hooks::is_faulty(hooks, *phase)) && is_taken_whole(input);
    let given_count: usize = said.iter().map(|(_, hooks)| spoken_count(hooks)).sum();
    ensure(!complete || recorded_count == given_count, Invariant::HookAnswersAreKept, || {
        format!("{recorded_count} of the {given_count} answers in {said:?} are recorded")
    })
}

/// What hooks answered, with the phase in which they were called.
fn hooks_in(input: &Input) -> Vec<(Phase, &HookAnswers)> {
    match input {
        Input::PhaseAnswered { phase, hooks } => vec![(*phase, hooks)],
        Input::ModelAnswered(answered) => vec![(Phase::AfterInference, &answered.hooks)],
        Input::Gated(gated) => vec![(Phase::BeforeToolExecute, &gated.hooks)],
        Input::AfterTools { heard } => {
            heard.iter().map(|(_, hooks)| (Phase::AfterToolExecute, hooks)).collect()
        }
        Input::Start { .. }
        | Input::LeaseAcquired { .. }
        | Input::InboxDrained
        | Input::ModelFailed { .. }
        | Input::ToolReturned { .. }
        | Input::Decide(_)
        | Input::ChildEnded(_)
        | Input::Interrupt { .. }
        | Input::DeadlineReached => Vec::new(),
    }
}

/// Whether valid hook answers are always recorded if the input is accepted at all. A model answer may be unusable, and
/// hook answers about a call that has settled otherwise meanwhile are ignored.
const fn is_taken_whole(input: &Input) -> bool {
    match input {
        Input::PhaseAnswered { .. } | Input::Gated(_) => true,
        Input::ModelAnswered(_)
        | Input::AfterTools { .. }
        | Input::Start { .. }
        | Input::LeaseAcquired { .. }
        | Input::InboxDrained
        | Input::ModelFailed { .. }
        | Input::ToolReturned { .. }
        | Input::Decide(_)
        | Input::ChildEnded(_)
        | Input::Interrupt { .. }
        | Input::DeadlineReached => false,
    }
}

fn have_said(hooks: &HookAnswers, plugin: &PluginName, actions: &[Action]) -> bool {
    hooks.answers.iter().any(|answer| match &answer.outcome {
        HookOutcome::Actions(given) => answer.plugin == *plugin && given == actions,
        HookOutcome::Failed(_) => false,
    })
}

/// A plugin that answered with nothing leaves no trace.
fn spoken_count(hooks: &HookAnswers) -> usize {
    let spoke = |answer: &&HookAnswer| match &answer.outcome {
        HookOutcome::Actions(actions) => !actions.is_empty(),
        HookOutcome::Failed(_) => true,
    };
    hooks.answers.iter().filter(spoke).count()
}

fn state_set_by<'e>(
    plugin: &'e PluginName,
    action: &'e Action,
) -> Option<(&'e PluginName, Scope, &'e str, &'e Value)> {
    let Action::SetState { key, scope, value } = action else { return None };
    Some((plugin, *scope, key.as_str(), &**value))
}
