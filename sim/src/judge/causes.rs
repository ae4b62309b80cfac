//! What an input may lead to: the gate, results, decisions and takeovers, judged without the machine's code.

use machine::Input;
use machine::decision::{Decision, DecisionAction, Payload};
use machine::event::{Event, Fact, OpenedSuspension};
use machine::id::CallId;
use machine::input::GateInput;
use machine::phase::{Action, Phase, SuppliedResult};
use machine::policy::ApprovalScope;
use machine::rules::{ArgumentTest, Asker, Condition, RuleAction};
use machine::status::CallStatus;
use machine::suspension::{Held, ResumeMode};
use machine::tool::{Approval, Arguments, EffectClass, Tool, ToolLookup};

use crate::judge::invariant::{Checked, Invariant, breach, ensure};
use crate::judge::ledger::{CallLedger, RunLedger};
use crate::judge::{answers, ends, grants, recorded};
use crate::world::arguments::{amount_of, receiver_of};
use crate::world::hooks;
use crate::world::store::ProcessedInput;

/// `ledger` is the state before the events that the input led to.
pub fn check(ledger: &RunLedger, said: &ProcessedInput) -> Checked {
    let (input, events) = (&said.input, &said.events);
    match input {
        Input::Gated(gated) => check_gated(ledger, gated, events)?,
        Input::ToolReturned { step, call, attempt, .. } => {
            check_returned(ledger, *step, call, *attempt, events)?;
            check_unasked_starts(ledger, input, events)?;
        }
        Input::Decide(decision) => {
            check_decided(ledger, decision, events)?;
            check_unasked_starts(ledger, input, events)?;
        }
        Input::LeaseAcquired { .. } => {
            let early = events.iter().find(|event| !matches!(event.fact, Fact::RunRecovered { .. }));
            ensure(early.is_none(), Invariant::InboxBeforeAttempts, || {
                format!("{early:?} before the inbox was processed")
            })?;
        }
        Input::ModelAnswered(answered) => {
            answers::check(ledger, answered, events)?;
            check_unasked_starts(ledger, input, events)?;
        }
        Input::Start { .. }
        | Input::InboxDrained
        | Input::PhaseAnswered { .. }
        | Input::ModelFailed { .. }
        | Input::AfterTools { .. }
        | Input::ChildEnded(_)
        | Input::Interrupt { .. }
        | Input::DeadlineReached => check_unasked_starts(ledger, input, events)?,
    }
    recorded::check(input, events)?;
    ends::check(ledger, said)
}

fn check_decided(ledger: &RunLedger, decision: &Decision, events: &[Event]) -> Checked {
    let open = ledger.call(&decision.call).and_then(|call| call.open.as_ref());
    let in_time = open
        .filter(|open| open.id == decision.suspension)
        .is_some_and(|open| open.expires_at().is_none_or(|at| decision.accepted_at < at));
    ensure(events.is_empty() || in_time, Invariant::ExpiredIsNeverAccepted, || {
        format!("{decision:?} came too late for {open:?}, and had an effect")
    })?;
    check_yes(ledger, &decision.call, &decision.action, events)
}

/// A null, a false or a malformed answer runs nothing, whatever the mode.
fn check_yes(ledger: &RunLedger, id: &CallId, action: &DecisionAction, events: &[Event]) -> Checked {
    let approved =
        events.iter().any(|event| matches!(&event.fact, Fact::ToolApproved { call_id, .. } if call_id == id));
    let runs_again = events.iter().any(|event| {
        let Fact::ToolResumed { call_id, mode, .. } = &event.fact else { return false };
        call_id == id && *mode != ResumeMode::UseDecisionAsToolResult
    });
    let DecisionAction::Resume(resume) = action else {
        return ensure(!approved && !runs_again, Invariant::VerdictIsRight, || {
            format!("call {id} was refused, and resumed")
        });
    };
    let plain_yes = match &resume.payload {
        Payload::Absent => true,
        Payload::Result(value) => value.as_bool() == Some(true),
        Payload::Error(_) => false,
    };
    let no = match &resume.payload {
        Payload::Absent => false,
        Payload::Result(value) => value.is_null() || value.as_bool() == Some(false),
        Payload::Error(_) => true,
    };
    let seen = ledger.call(id).map(|call| call.arguments.digest());
    let saw_it = resume.expect_digest.is_none() || resume.expect_digest == seen;
    ensure(!approved || (plain_yes && saw_it), Invariant::VerdictIsRight, || {
        format!("call {id} is approved by {resume:?}")
    })?;
    ensure(!runs_again || (!no && saw_it), Invariant::VerdictIsRight, || {
        format!("call {id} is run again by {resume:?}")
    })
}

fn check_returned(ledger: &RunLedger, step: u32, id: &CallId, attempt: u32, events: &[Event]) -> Checked {
    if events.is_empty() {
        return Ok(());
    }
    let current = ledger.call(id).is_some_and(|call| {
        let runs = call.status == CallStatus::Running && call.attempt == attempt;
        let doubted = call.doubted.contains(&attempt) && !call.status.terminal();
        call.step == step && (runs || doubted)
    });
    ensure(current, Invariant::OnlyTheCurrentAttemptSettles, || {
        format!(
            "attempt {attempt} of call {id} in step {step} had an effect; it is {:?}",
            ledger.call(id).map(|call| (call.step, call.status, call.attempt))
        )
    })
}

/// Only the gate starts a call. Other inputs may only start a retry of a repeatable call.
fn check_unasked_starts(ledger: &RunLedger, input: &Input, events: &[Event]) -> Checked {
    for event in events {
        if let Fact::ToolSuspended(opened) = &event.fact {
            ensure(!is_performed_elsewhere(opened), Invariant::GateIsObeyed, || {
                format!("{input:?} hands call {} out past the gate", opened.call_id)
            })?;
        }
        let Fact::ExecutionStarted { call_id, .. } = &event.fact else { continue };
        let Some(call) = ledger.call(call_id) else {
            return breach(Invariant::GateIsObeyed, format!("{input:?} starts the unknown call {call_id}"));
        };
        let repeat = call.status == CallStatus::Running && call.class.is_some_and(EffectClass::repeatable);
        ensure(repeat, Invariant::GateIsObeyed, || format!("{input:?} starts call {call_id} past the gate"))?;
    }
    Ok(())
}

fn check_gated(ledger: &RunLedger, gated: &GateInput, events: &[Event]) -> Checked {
    let Some(call) = ledger.call(&gated.call) else {
        return ensure(events.is_empty(), Invariant::GateIsObeyed, || {
            "an unknown call passed the gate".into()
        });
    };
    let passed = events.iter().find_map(|event| {
        if let Fact::ExecutionStarted { call_id, let_through_by, .. } = &event.fact {
            return (*call_id == call.id).then(|| let_through_by.clone());
        }
        let Fact::ToolSuspended(opened) = &event.fact else { return None };
        let elsewhere = opened.call_id == call.id && is_performed_elsewhere(opened);
        elsewhere.then(|| opened.let_through_by.clone())
    });
    let Some(let_through_by) = passed else { return Ok(()) };
    ensure(
        !hooks::is_faulty(&gated.hooks, Phase::BeforeToolExecute),
        Invariant::FailedHookStopsTheCall,
        || format!("call {} passes although {:?}", call.id, gated.hooks),
    )?;
    ensure(
        matches!(gated.arguments, Arguments::Valid { .. })
            && gated.arguments.digest() == call.arguments.digest(),
        Invariant::DispatchComparesDigests,
        || {
            format!(
                "call {} is sent with {:?}, decided on was {:?}",
                call.id, gated.arguments, call.arguments
            )
        },
    )?;
    check_plugins(call, gated)?;
    let ToolLookup::Known(tool) = &gated.tool else {
        return breach(Invariant::GateIsObeyed, format!("call {} runs a tool that is not there", call.id));
    };
    if call.needs_decision || call.approved.is_some() {
        let shown = call.approved.map(|shown| (shown.arguments, shown.definition));
        ensure(
            shown == Some((call.arguments.digest(), tool.definition)),
            Invariant::HeldCallNeedsItsDecision,
            || format!("call {} was approved as {shown:?} and runs as {:?}", call.id, tool.definition),
        )?;
    }
    let run = ledger.policy.approval;
    let Some(askers) = askers_of(ledger, run, call.tool.as_str(), tool, &gated.arguments) else {
        return breach(Invariant::GateIsObeyed, format!("call {} is forbidden and runs", call.id));
    };
    let unheard: Vec<&Asker> = askers.iter().filter(|asker| !is_answered(asker, &call.asked)).collect();
    let giver = |asker: &&Asker| grants::giver(ledger, call, asker, tool, &gated.grants);
    ensure(unheard.iter().all(|asker| giver(asker).is_some()), Invariant::GrantsAreWhatWasAsked, || {
        format!("call {} runs although {unheard:?} ask, and the grants are {:?}", call.id, gated.grants)
    })?;
    let own = ledger.revision.policy.approval;
    let own_askers = askers_of(ledger, own, call.tool.as_str(), tool, &gated.arguments);
    let own_unheard = own_askers.is_some_and(|own| own.iter().any(|asker| !is_answered(asker, &call.asked)));
    let loosened = ledger.policy.approval < own && own_unheard;
    let expected = if let Some(first) = unheard.first() {
        giver(first)
    } else if loosened {
        ledger.loosened_by.clone()
    } else {
        return Ok(());
    };
    ensure(expected.is_some() && let_through_by == expected, Invariant::LooseningIsNamed, || {
        format!("call {} is let through by {let_through_by:?}, not by {expected:?}", call.id)
    })
}

/// A person who has answered this asker is not asked again for it. One answer covers all askers that ask by a policy.
fn is_answered(asker: &Asker, asked: &[Asker]) -> bool {
    let by_policy = |asker: &Asker| match asker {
        Asker::Policy | Asker::Tool | Asker::Agent | Asker::Run => true,
        Asker::Rule(_) | Asker::Plugin(_) => false,
    };
    asked.contains(asker) || (by_policy(asker) && asked.iter().any(by_policy))
}

/// No plugin forbids the call, supplies its result or has yet to ask about it.
fn check_plugins(call: &CallLedger, gated: &GateInput) -> Checked {
    for (plugin, action) in gated.hooks.actions() {
        let passes = match action {
            Action::Block { .. }
            | Action::SetResult(SuppliedResult::Success { .. } | SuppliedResult::Error { .. }) => false,
            Action::Suspend(_) | Action::SetResult(SuppliedResult::Pending(_)) => {
                call.asked.contains(&Asker::Plugin(plugin.clone()))
            }
            Action::SetState { .. }
            | Action::End
            | Action::AddInstruction { .. }
            | Action::HideTool { .. }
            | Action::SetParam { .. }
            | Action::ReplaceMessage { .. }
            | Action::SkipInference
            | Action::DropCall { .. }
            | Action::SetArguments { .. }
            | Action::AddNote { .. } => true,
        };
        ensure(passes, Invariant::GateIsObeyed, || {
            format!("call {} runs past {plugin}: {action:?}", call.id)
        })?;
    }
    Ok(())
}

/// Whether the gate let the call through to be performed outside.
pub(crate) fn is_performed_elsewhere(opened: &OpenedSuspension) -> bool {
    match opened.held {
        Held::ClientTool | Held::External => opened.asked_by.is_empty() && opened.arguments.is_some(),
        Held::Approval { .. } | Held::Question | Held::InDoubt { .. } | Held::ChildRun { .. } => false,
    }
}

/// The askers whose approval this call needs before it runs. `None` if the call is forbidden.
pub(crate) fn askers_of(
    ledger: &RunLedger,
    scope: ApprovalScope,
    name: &str,
    tool: &Tool,
    arguments: &Arguments,
) -> Option<Vec<Asker>> {
    if tool.approval == Approval::Block {
        return None;
    }
    let own = ledger.revision.policy.approval;
    let matching: Vec<(u16, RuleAction)> = ledger
        .revision
        .rules
        .iter()
        .zip(0_u16..)
        .filter(|(rule, _)| {
            rule.tool.as_str() == name && rule.when.iter().all(|condition| holds(condition, arguments))
        })
        .map(|(rule, index)| (index, rule.then))
        .collect();
    if matching.iter().any(|(_, then)| *then == RuleAction::Deny) {
        return None;
    }
    let mut askers: Vec<Asker> = matching
        .iter()
        .filter(|(_, then)| *then == RuleAction::Ask)
        .map(|(index, _)| Asker::Rule(*index))
        .collect();
    if scope == ApprovalScope::Never {
        return Some(Vec::new());
    }
    if matching.is_empty() && tool.approval == Approval::Ask {
        askers.push(Asker::Tool);
    }
    let asks = |scope| match scope {
        ApprovalScope::Never | ApprovalScope::Policy => false,
        ApprovalScope::WriteTools => tool.class == EffectClass::Write,
        ApprovalScope::AllTools => true,
    };
    let (run_rank, own_rank) = (grants::rank(scope), grants::rank(own));
    if asks(if run_rank < own_rank { scope } else { own }) {
        askers.push(Asker::Agent);
    }
    let by_the_run = asks(scope) || (own == ApprovalScope::Never && !askers.is_empty());
    if run_rank > own_rank && by_the_run {
        askers.push(Asker::Run);
    }
    Some(askers)
}

/// Whether a condition holds for these arguments. Only covers conditions and arguments that the simulator writes.
#[must_use]
pub fn holds(condition: &Condition, arguments: &Arguments) -> bool {
    let amount = amount_of(arguments);
    let receiver = receiver_of(arguments);
    if condition.test == ArgumentTest::Absent {
        return matches!(arguments, Arguments::Valid { .. })
            && match condition.path.first().map(String::as_str) {
                Some("amount") => amount.is_none(),
                Some("to") => receiver.is_none(),
                Some(_) | None => true,
            };
    }
    match condition.path.first().map(String::as_str) {
        Some("amount") => amount.is_some_and(|amount| match &condition.test {
            ArgumentTest::Eq(wanted) => wanted.as_f64() == Some(amount),
            ArgumentTest::Ne(wanted) => wanted.as_f64() != Some(amount),
            ArgumentTest::Lt(limit) => amount < *limit,
            ArgumentTest::Lte(limit) => amount <= *limit,
            ArgumentTest::Gt(limit) => amount > *limit,
            ArgumentTest::Gte(limit) => amount >= *limit,
            ArgumentTest::In(wanted) => wanted.iter().any(|value| value.as_f64() == Some(amount)),
            ArgumentTest::Present => true,
            ArgumentTest::Matches(_) | ArgumentTest::Absent => false,
        }),
        Some("to") => receiver.is_some_and(|receiver| match &condition.test {
            ArgumentTest::Eq(wanted) => wanted.as_str() == Some(receiver),
            ArgumentTest::Matches(_) => receiver.starts_with('x'),
            ArgumentTest::Present => true,
            ArgumentTest::Ne(_)
            | ArgumentTest::Lt(_)
            | ArgumentTest::Lte(_)
            | ArgumentTest::Gt(_)
            | ArgumentTest::Gte(_)
            | ArgumentTest::In(_)
            | ArgumentTest::Absent => false,
        }),
        Some(_) | None => false,
    }
}
