//! Inputs, events and decisions as text, for stories and failures.

use machine::decision::{Decision, DecisionAction, Payload};
use machine::event::{Event, Fact, Message, ToolBody};
use machine::{Input, Timestamp};

use crate::play::names;
use crate::world::script::outcome_name;

#[must_use]
pub fn input(input: &Input) -> String {
    match input {
        Input::Start { .. } => "start".into(),
        Input::LeaseAcquired { epoch, doubt_at } => {
            format!("lease acquired, epoch {epoch}, doubt at {doubt_at}")
        }
        Input::InboxDrained => "inbox drained".into(),
        Input::PhaseAnswered { phase, hooks } => format!("hooks of {phase}: {:?}", hooks.answers),
        Input::ModelAnswered(answered) => {
            let calls: Vec<String> =
                answered.calls.iter().map(|call| format!("{:?} {}", call.id, call.tool)).collect();
            format!("model answered step {}: {:?} {calls:?}", answered.step, answered.text)
        }
        Input::ModelFailed { step, attempt, failure } => {
            format!("model attempt {attempt} of step {step} failed: {}", failure.message)
        }
        Input::Gated(gated) => format!("call {} at the gate, hooks {:?}", gated.call, gated.hooks.answers),
        Input::ToolReturned { step, call, attempt, outcome } => {
            format!("attempt {attempt} of call {call} of step {step}: {}", outcome_name(outcome))
        }
        Input::AfterTools { heard } => {
            let calls: Vec<&str> = heard.iter().map(|(call, _)| call.as_str()).collect();
            format!("hooks after {calls:?}")
        }
        Input::Decide(decided) => decision(decided),
        Input::ChildEnded(ended) => {
            format!("child {} of call {} ended: {:?}", ended.run, ended.call, ended.end)
        }
        Input::Interrupt { cause } => format!("interrupt: {cause:?}"),
        Input::DeadlineReached => "deadline reached".into(),
    }
}

#[must_use]
pub fn decision(decision: &Decision) -> String {
    let what = match &decision.action {
        DecisionAction::Cancel { then, .. } => format!("cancel, then {then:?}"),
        DecisionAction::Resume(resume) => {
            let payload = match &resume.payload {
                Payload::Absent => "yes".to_owned(),
                Payload::Result(value) => format!("result {value}"),
                Payload::Error(why) => format!("error {why:?}"),
            };
            let with = resume.arguments.is_some() || resume.payload_arguments.is_some();
            let edited = if with { ", with arguments" } else { "" };
            let mode = resume.mode.map(names::resume_mode).unwrap_or_default();
            format!("{payload}{edited} {mode}")
        }
    };
    let id = decision.id.as_ref().map_or("-", |id| id.as_str());
    format!("decision {id} by {} on call {}: {what}", decision.by, decision.call)
}

/// One line of a log.
#[must_use]
pub fn event(event: &Event) -> String {
    let name = event.fact.name();
    let Timestamp(at) = event.at;
    let detail = fact_detail(&event.fact);
    format!("{:>3} {at} {name:<26} {detail}", event.seq)
}

fn fact_detail(fact: &Fact) -> String {
    match fact {
        Fact::RunQueued(order) => format!("{:?}", order.policy),
        Fact::RunWaiting { on, .. } => format!("on {on:?}"),
        Fact::RunInterrupting { cause } => format!("{cause:?}"),
        Fact::RunEnding { termination } | Fact::RunEnded { termination, .. } => termination.done_reason(),
        Fact::RunRecovered { epoch, lost, .. } => format!("epoch {epoch}, lost {}", lost.len()),
        Fact::StepStarted { step, .. } | Fact::StepEnded { step, .. } => format!("step {step}"),
        Fact::MessageAdded(message) => message_detail(message),
        Fact::ModelRetrying { attempt, .. } => format!("attempt {attempt}"),
        Fact::PhaseAnswered { phase, plugin, failed, .. } => format!("{phase} {plugin} {failed:?}"),
        Fact::ToolRequested { call_id, tool, .. } => format!("{call_id} {tool}"),
        Fact::ApprovalRequested(opened) | Fact::ToolSuspended(opened) => {
            let until = opened.expiry.map(|expiry| format!(" until {}", expiry.at)).unwrap_or_default();
            format!("{} {}{until}", opened.call_id, opened.held.kind())
        }
        Fact::ToolApproved { call_id, by, .. }
        | Fact::ToolDenied { call_id, by, .. }
        | Fact::ToolResumed { call_id, by, .. } => format!("{call_id} by {by}"),
        Fact::ExecutionStarted { call_id, attempt, .. } => format!("{call_id} attempt {attempt}"),
        Fact::ExecutionFailed { call_id, error, .. } => {
            format!("{call_id} {}", names::call_error(error.code))
        }
        Fact::ToolCancelled { call_id, reason, .. } => format!("{call_id} {}", names::cancel_reason(*reason)),
        Fact::ChildStarted { call_id, run_id, .. } | Fact::ChildEnded { call_id, run_id, .. } => {
            format!("{call_id} {run_id}")
        }
        Fact::ApprovalVoided { call_id, .. } | Fact::ExecutionSucceeded { call_id, .. } => {
            call_id.to_string()
        }
        Fact::RunStarted { .. } | Fact::RunResumed {} | Fact::StateChanged { .. } => String::new(),
    }
}

fn message_detail(message: &Message) -> String {
    match message {
        Message::User { .. } => "user".into(),
        Message::Assistant { text, calls, .. } => format!("assistant {text:?}, {} calls", calls.len()),
        Message::Tool { call_id, body: ToolBody::Settled { .. }, .. } => format!("tool {call_id}"),
        Message::Tool { call_id, body: ToolBody::Placeholder { .. }, .. } => format!("placeholder {call_id}"),
        Message::Note { call_id, .. } => format!("note {call_id}"),
        Message::Correction { why, .. } => format!("correction: {why}"),
        Message::CallsDropped { taken, dropped, .. } => format!("{taken} calls taken, {dropped} dropped"),
        Message::Interruption { .. } => "interruption".into(),
    }
}
