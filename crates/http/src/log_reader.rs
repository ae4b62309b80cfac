//! Reads the log of a run as envelopes, and stops when the caller has enough.
//!
//! The log stores every text once: the result of a call is in the event that settled it, and the message that gives
//! it to the model only refers to that event. So reading starts a little before the first event that is asked for.

use std::ops::ControlFlow;

use engine::store::{CommittedEvent, LogEntry, RunView, Store, StoreError, Tenant};
use machine::event::Fact;
use machine::id::RunId;
use machine::policy::Continuation;

use crate::wire::event::Envelope;
use crate::wire::hydrate::EventHydrator;

/// Events per read.
const READ_MAX: usize = 256;

/// Passes every envelope after `after` to `visit`, in order, until `visit` breaks.
pub(crate) async fn read_envelopes(
    store: &dyn Store,
    tenant: &Tenant,
    run: &RunView,
    after: u64,
    mut visit: impl FnMut(Envelope) -> ControlFlow<()> + Send,
) -> Result<(), StoreError> {
    let mut hydrator = EventHydrator::new(run.thread.clone(), run.id.clone()).dropping_large_results();
    let mut read = replay_start(store, tenant, run, after).await?;
    loop {
        let events = store.events(tenant, &run.id, read, READ_MAX).await?;
        let Some(last) = events.last() else { return Ok(()) };
        read = last.seq();
        for logged in &events {
            let envelopes = match logged {
                LogEntry::Event(committed) => {
                    hydrate(store, tenant, &mut hydrator, &run.id, committed).await?
                }
                LogEntry::Unreadable(event) => hydrator.hydrate_unreadable(event),
            };
            for envelope in envelopes {
                if envelope.seq > after && visit(envelope).is_break() {
                    return Ok(());
                }
            }
        }
    }
}

/// The envelopes for this event. Reads the event that the hydrator is missing, if any.
pub(crate) async fn hydrate(
    store: &dyn Store,
    tenant: &Tenant,
    hydrator: &mut EventHydrator,
    run: &RunId,
    committed: &CommittedEvent,
) -> Result<Vec<Envelope>, StoreError> {
    if let Some(seq) = hydrator.missing_event(committed) {
        let read = store.events(tenant, run, seq.saturating_sub(1), 1).await?;
        read.iter().filter_map(LogEntry::readable).for_each(|found| hydrator.supply_event(&found.event));
    }
    Ok(hydrator.hydrate(committed))
}

/// The seq after which reading has to start so that every event after `after` can be hydrated: the start of the step
/// that was open then. Under `eager` a call may settle many steps later, so the whole log is read.
pub(crate) async fn replay_start(
    store: &dyn Store,
    tenant: &Tenant,
    run: &RunView,
    after: u64,
) -> Result<u64, StoreError> {
    match run.control.as_ref().map(|control| control.policy.continuation) {
        Some(Continuation::Eager) | None => return Ok(0),
        Some(Continuation::AllSettled) => {}
    }
    let mut until = after;
    while until > 0 {
        let from = until.saturating_sub(READ_MAX as u64);
        if let Some(begun) = last_step_between(store, tenant, &run.id, from, until).await? {
            return Ok(begun - 1);
        }
        until = from;
    }
    Ok(0)
}

/// The seq at which the last step starts that starts after `from` and no later than `until`.
async fn last_step_between(
    store: &dyn Store,
    tenant: &Tenant,
    run: &RunId,
    from: u64,
    until: u64,
) -> Result<Option<u64>, StoreError> {
    let (mut read, mut begun) = (from, None);
    while read < until {
        let events = store.events(tenant, run, read, READ_MAX).await?;
        let Some(last) = events.last() else { break };
        read = last.seq();
        let events = events.iter().filter_map(LogEntry::readable);
        let steps = events.filter(|committed| matches!(committed.event.fact, Fact::StepStarted { .. }));
        let mut seqs = steps.map(|committed| committed.event.seq);
        begun = seqs.rfind(|seq| *seq <= until).or(begun);
    }
    Ok(begun)
}
