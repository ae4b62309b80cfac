//! Writes the events of one commit in order: to the log, the fold, the ledger and the transcript.

use machine::event::{Event, Fact};
use machine::id::RunId;
use machine::{Input, Rejection, event_codec};

use crate::judge::causes;
use crate::judge::ends::goes_past_interrupt;
use crate::judge::events::Cause;
use crate::judge::grants;
use crate::judge::invariant::{Checked, Invariant, breach, ensure};
use crate::judge::ledger::Announced;
use crate::play::coverage::Coverage;
use crate::play::names;
use crate::world::store::{Append, ProcessedInput, RunIndex, Store};

/// Returns the children that must be interrupted with this commit.
pub(crate) fn write_events(
    store: &mut Store,
    run: RunIndex,
    append: &Append,
    coverage: &mut Coverage,
) -> Checked<Vec<RunId>> {
    let mut left_alone = Vec::new();
    for said in &append.said {
        if let Some(ticket) = said.ticket {
            store.runs[run].ledger.unheard_at_takeover.retain(|unheard| *unheard != ticket);
        }
        if let Some(rejection) = &said.rejected {
            hear_rejected(store, run, said, rejection)?;
            continue;
        }
        causes::check(&store.runs[run].ledger, said)?;
        for event in &said.events {
            left_alone.extend(left_alone_by(store, run, &said.events, event));
            write_event(store, run, event, said, coverage)?;
        }
        if let Some(ticket) = said.ticket {
            store.runs[run].forget_heard(ticket);
        }
        store.runs[run].ledger.check_status(said.before_interrupt)?;
    }
    Ok(left_alone)
}

/// An accepted item may be rejected later only because an earlier item was processed first.
fn hear_rejected(store: &Store, run: RunIndex, said: &ProcessedInput, rejection: &Rejection) -> Checked {
    let stored = &store.runs[run];
    match &said.input {
        Input::Decide(decision) => {
            let open = stored.ledger.call(&decision.call).and_then(|call| call.open.as_ref());
            let still_open = open.is_some_and(|open| open.id == decision.suspension);
            ensure(!still_open, Invariant::AcceptedDecisionIsHeard, || {
                format!("{decision:?} was accepted, and rejected as {rejection}")
            })
        }
        Input::Interrupt { .. } => {
            breach(Invariant::InterruptWins, format!("an accepted interrupt was rejected as {rejection}"))
        }
        Input::Start { .. }
        | Input::LeaseAcquired { .. }
        | Input::InboxDrained
        | Input::PhaseAnswered { .. }
        | Input::ModelAnswered(_)
        | Input::ModelFailed { .. }
        | Input::Gated(_)
        | Input::ToolReturned { .. }
        | Input::AfterTools { .. }
        | Input::ChildEnded(_)
        | Input::DeadlineReached => Ok(()),
    }
}

/// The child of a call that is cancelled here while the child is still working.
fn left_alone_by(store: &Store, run: RunIndex, group: &[Event], event: &Event) -> Option<RunId> {
    let Fact::ToolCancelled { call_id, .. } = &event.fact else { return None };
    let call = store.runs[run].ledger.call(call_id)?;
    call.open.as_ref().filter(|open| open.kind == machine::suspension::SuspensionKind::ChildRun)?;
    let child = call.child.clone()?;
    let ended_here =
        group.iter().any(|event| matches!(&event.fact, Fact::ChildEnded { run_id, .. } if *run_id == child));
    (!ended_here).then_some(child)
}

fn write_event(
    store: &mut Store,
    run: RunIndex,
    event: &Event,
    said: &ProcessedInput,
    coverage: &mut Coverage,
) -> Checked {
    let stored_run = &mut store.runs[run];
    let thread = &mut store.threads[stored_run.thread];
    if store.checks_storage {
        check_storage(event)?;
    }
    coverage.event(&stored_run.ledger, event);
    let status_before = names::announced(&stored_run.ledger.status);
    if let Fact::ToolRequested { call_id, .. } = &event.fact {
        ensure(thread.call_ids.insert(call_id.clone()), Invariant::CallIdsAreUnique, || {
            format!("the thread has a call {call_id} already")
        })?;
    }
    // An inbox item may cause a retry. What the worker starts by itself must wait until all items are processed.
    let starts = said.ticket.is_none()
        && matches!(event.fact, Fact::ExecutionStarted { .. } | Fact::ModelRetrying { .. });
    ensure(
        !starts || stored_run.ledger.unheard_at_takeover.is_empty(),
        Invariant::InboxBeforeAttempts,
        || format!("{:?} while items {:?} wait", event.fact, stored_run.ledger.unheard_at_takeover),
    )?;
    ensure(
        !stored_run.interrupt_accepted || !goes_past_interrupt(&event.fact),
        Invariant::InterruptWins,
        || format!("{:?} is stored after an interrupt was accepted", event.fact),
    )?;
    stored_run.ledger.hear(event, Cause { input: &said.input, ticket: said.ticket })?;
    coverage.run_became(status_before, names::announced(&stored_run.ledger.status));
    if let Err(impossible) = machine::apply::apply(&mut stored_run.folded, event) {
        return breach(Invariant::NothingIsBroken, impossible.to_string());
    }
    if matches!(event.fact, Fact::RunStarted { .. })
        && let Some(queued) = stored_run.log.first()
    {
        thread.hear(queued)?;
    }
    thread.grants.extend(grants::given(&stored_run.ledger, event)?);
    stored_run.log.push(event.clone());
    let started = stored_run.log.get(1).is_some_and(|second| matches!(second.fact, Fact::RunStarted { .. }));
    if started && stored_run.ledger.status != Announced::Queued {
        thread.hear(event)?;
    }
    Ok(())
}

fn check_storage(event: &Event) -> Checked {
    let text = match event_codec::encode(event) {
        Ok(text) => text,
        Err(why) => return breach(Invariant::EventsSurviveStorage, why),
    };
    match event_codec::decode(&text) {
        Ok(read) => ensure(read == *event, Invariant::EventsSurviveStorage, || text.clone()),
        Err(unreadable) => breach(Invariant::EventsSurviveStorage, format!("{unreadable} in {text}")),
    }
}
