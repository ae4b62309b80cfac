//! Which denials, expiries and blocks end a run, judged only from the decision, the policy and the suspension.

use machine::Input;
use machine::decision::{Decision, DecisionAction};
use machine::event::{CancelReason, Event, Fact};
use machine::id::CallId;
use machine::input::GateInput;
use machine::phase::{Action, Phase};
use machine::policy::{OnBlock, OnReject};
use machine::suspension::SuspensionKind;
use machine::termination::{StopCode, Termination};
use machine::tool::{OnExpiry, ToolLookup};

use crate::judge::causes::askers_of;
use crate::judge::invariant::{Checked, Invariant, ensure};
use crate::judge::ledger::RunLedger;
use crate::world::hooks;
use crate::world::store::ProcessedInput;

/// The ends that a refusal can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RefusalEnd {
    Rejected,
    Expired,
    Blocked,
}

/// `ledger` is the state before the events that the input led to.
pub fn check(ledger: &RunLedger, said: &ProcessedInput) -> Checked {
    let ProcessedInput { input, events, .. } = said;
    // An end that was decided before stays. The ledger compares it with the actual end.
    if ledger.ending.is_some() {
        return Ok(());
    }
    let announced = events.iter().find_map(|event| end_of(&event.fact)).and_then(by_refusal);
    let expected = match input {
        // The interrupt ends the run.
        _ if said.before_interrupt => None,
        Input::Decide(decision) => after_denial(ledger, decision, events),
        Input::DeadlineReached => events.iter().find_map(|event| after_expiry(ledger, &event.fact)),
        Input::Gated(gated) if is_blocked(ledger, gated) => match ledger.policy.on_block {
            OnBlock::FailCall => None,
            OnBlock::EndRun => Some(RefusalEnd::Blocked),
        },
        Input::Gated(_)
        | Input::Start { .. }
        | Input::LeaseAcquired { .. }
        | Input::InboxDrained
        | Input::PhaseAnswered { .. }
        | Input::ModelAnswered(_)
        | Input::ModelFailed { .. }
        | Input::ToolReturned { .. }
        | Input::AfterTools { .. }
        | Input::ChildEnded(_)
        | Input::Interrupt { .. } => None,
    };
    ensure(announced == expected, Invariant::RefusalEndsAsSaid, || {
        format!("after {input:?} the run ends as {announced:?}, by its policy as {expected:?}")
    })
}

/// Whether the event starts something, or ends the run other than by an interrupt.
pub(crate) const fn goes_past_interrupt(fact: &Fact) -> bool {
    if let Fact::RunEnded { termination, .. } = fact {
        return !matches!(termination, Termination::Cancelled(_));
    }
    matches!(
        fact,
        Fact::ExecutionStarted { .. }
            | Fact::ChildStarted { .. }
            | Fact::StepStarted { .. }
            | Fact::ModelRetrying { .. }
            | Fact::RunStarted { .. }
    )
}

const fn end_of(fact: &Fact) -> Option<&Termination> {
    if let Fact::RunEnding { termination } | Fact::RunEnded { termination, .. } = fact {
        return Some(termination);
    }
    None
}

fn by_refusal(termination: &Termination) -> Option<RefusalEnd> {
    match termination {
        Termination::Blocked(_) => Some(RefusalEnd::Blocked),
        Termination::Stopped(stopped) => match stopped.code {
            StopCode::Rejected => Some(RefusalEnd::Rejected),
            StopCode::Expired => Some(RefusalEnd::Expired),
            StopCode::MaxRounds
            | StopCode::Timeout
            | StopCode::TokenBudget
            | StopCode::ConsecutiveErrors
            | StopCode::StopOnTool
            | StopCode::ContentMatch
            | StopCode::LoopDetection => None,
        },
        Termination::NaturalEnd
        | Termination::BehaviorRequested
        | Termination::Cancelled(_)
        | Termination::Error(_) => None,
    }
}

/// A denial ends the run if its author wants that, or else if the policy does.
fn after_denial(ledger: &RunLedger, decision: &Decision, events: &[Event]) -> Option<RefusalEnd> {
    let DecisionAction::Cancel { then, .. } = &decision.action else { return None };
    let kind = ledger.call(&decision.call).and_then(|call| call.open.as_ref()).map(|open| open.kind);
    if events.is_empty() || kind != Some(SuspensionKind::Approval) {
        return None;
    }
    match then.or(ledger.policy.on_reject) {
        Some(OnReject::EndRun) => Some(RefusalEnd::Rejected),
        Some(OnReject::Continue) | None => None,
    }
}

/// The suspension says what its expiry does. An approval that expires is also denied.
fn after_expiry(ledger: &RunLedger, fact: &Fact) -> Option<RefusalEnd> {
    let open = ledger.call(expired_call(fact)?)?.open.as_ref()?;
    let approval = open.kind == SuspensionKind::Approval;
    match (open.expiry?.then, ledger.policy.on_reject) {
        (OnExpiry::EndRun, _) => Some(RefusalEnd::Expired),
        (OnExpiry::Deny, Some(OnReject::EndRun)) if approval => Some(RefusalEnd::Rejected),
        (OnExpiry::Deny, Some(OnReject::EndRun | OnReject::Continue) | None) => None,
    }
}

const fn expired_call(fact: &Fact) -> Option<&CallId> {
    if let Fact::ToolDenied { call_id, expired: true, .. }
    | Fact::ToolCancelled { call_id, reason: CancelReason::Expired, .. } = fact
    {
        return Some(call_id);
    }
    None
}

/// Whether a valid hook answer, a rule or the tool's own setting forbids the call.
fn is_blocked(ledger: &RunLedger, gated: &GateInput) -> bool {
    if hooks::is_faulty(&gated.hooks, Phase::BeforeToolExecute) {
        return false;
    }
    let by_plugin = gated.hooks.actions().any(|(_, action)| matches!(action, Action::Block { .. }));
    let forbidden = ledger.call(&gated.call).is_some_and(|call| match &gated.tool {
        ToolLookup::Known(tool) => {
            askers_of(ledger, ledger.policy.approval, call.tool.as_str(), tool, &gated.arguments).is_none()
        }
        ToolLookup::Unknown | ToolLookup::OutOfScope => false,
    });
    by_plugin || forbidden
}
