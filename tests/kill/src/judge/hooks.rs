//! The hook: an answer that is recorded is never asked for again, and what it says is what happens.

use std::collections::{BTreeMap, BTreeSet};

use machine::event::{CallErrorCode, Fact, ResultFrom};
use machine::id::{CallId, RunId};
use machine::phase::Action;
use machine::termination::Termination;

use super::{Moment, Objections, Rule};
use crate::evidence::{Evidence, RunEvidence};
use crate::hook_server::AskedQuestion;
use crate::stories::{GATE, Gate};

pub(super) fn judge(evidence: &Evidence, run: &RunEvidence, moment: Moment, objections: &mut Objections) {
    let asked: Vec<_> = evidence.questions.iter().filter(|asked| asked.run == run.view.id).collect();
    judge_questions(evidence, &asked, objections);
    let recorded = recorded(run);
    for (key, count) in &recorded {
        let was_asked = asked.iter().any(|asked| asked.key == *key);
        objections.ensure(was_asked && *count == 1, Rule::HookAnswerIsKept, || {
            format!("the answer to `{key}` is recorded {count} times; was it asked for: {was_asked}")
        });
    }
    let ended = moment == Moment::End && run.control.ended() == Some(&Termination::NaturalEnd);
    for asked in asked.iter().filter(|asked| ended && asked.has_actions) {
        objections.ensure(recorded.contains_key(asked.key.as_str()), Rule::HookAnswerIsKept, || {
            format!("the answer to `{}` is recorded nowhere", asked.key)
        });
    }
    for (call, gate) in gates(run) {
        let agrees = !ended || agrees(run, &call, gate);
        objections.ensure(agrees, Rule::HookAnswerIsKept, || {
            format!("the hook answered {gate:?} about {call}, and something else happened")
        });
    }
}

/// What a node logs that was away until other nodes had taken its runs.
const LOST_LEASE: &str = "this node lost its lease";

/// A node that was paused past its lease may still ask about its old copy of a run, and reads the newer state of the hook
/// for the question. The store refuses what it makes of the answer.
fn judge_questions(evidence: &Evidence, asked: &[&AskedQuestion], objections: &mut Objections) {
    let was_away = |process: u32| {
        let mut of_process = evidence.complaints.iter().filter(|complaint| complaint.process == process);
        of_process.any(|complaint| complaint.words.contains(LOST_LEASE))
    };
    for asked in asked {
        objections.ensure(!asked.is_recorded || was_away(asked.process), Rule::HookAnswerIsKept, || {
            format!("process {} asked `{}` although the answer was recorded", asked.process, asked.key)
        });
    }
}

/// Questions of runs that no store has.
pub(super) fn judge_strangers(evidence: &Evidence, objections: &mut Objections) {
    let known: BTreeSet<&RunId> = evidence.runs.iter().map(|run| &run.view.id).collect();
    for asked in &evidence.questions {
        objections.ensure(known.contains(&asked.run), Rule::HookAnswerIsKept, || {
            format!("no store has the run of {asked:?}")
        });
    }
}

/// The keys of the recorded answers, and how often each was recorded.
fn recorded(run: &RunEvidence) -> BTreeMap<&str, u32> {
    let mut recorded = BTreeMap::new();
    for event in &run.log {
        let Fact::PhaseAnswered { actions, .. } = &event.fact else { continue };
        for action in actions {
            if let Action::SetState { key, .. } = action {
                *recorded.entry(key.as_str()).or_default() += 1;
            }
        }
    }
    recorded
}

/// The calls about which the hook answers with more than its state.
fn gates(run: &RunEvidence) -> Vec<(CallId, Gate)> {
    let requested = run.log.iter().filter_map(|event| {
        let Fact::ToolRequested { call_id, arguments, .. } = &event.fact else { return None };
        let gate = arguments.value()?.get(GATE)?.clone();
        Some((call_id.clone(), serde_json::from_value(gate).ok()?))
    });
    requested.collect()
}

fn agrees(run: &RunEvidence, call: &CallId, gate: Gate) -> bool {
    let of_call = || run.log.iter().map(|event| &event.fact).filter(|fact| fact.call_id() == Some(call));
    let is_started = of_call().any(|fact| matches!(fact, Fact::ExecutionStarted { .. }));
    match gate {
        Gate::Block => {
            let is_blocked = of_call().any(|fact| {
                let Fact::ExecutionFailed { error, .. } = fact else { return false };
                error.code == CallErrorCode::BlockedByPlugin
            });
            is_blocked && !is_started
        }
        Gate::Supply => {
            let by_the_hook = |fact| matches!(fact, &Fact::ExecutionSucceeded { by: ResultFrom::Hook, .. });
            of_call().any(by_the_hook) && !is_started
        }
        Gate::Suspend => {
            let asked = of_call().position(|fact| matches!(fact, Fact::ApprovalRequested(_)));
            let started = of_call().position(|fact| matches!(fact, Fact::ExecutionStarted { .. }));
            asked.is_some() && asked < started
        }
        Gate::Silent => is_started,
    }
}
