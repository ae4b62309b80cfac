//! Reads the log of a run so that its messages can be told, and stops where nobody wants more.
//!
//! The log has every text once: the result of a call stands in the event that settled it, and the message that brings
//! it to the model only refers to that. So the telling begins a little earlier than what is asked for.

use std::ops::ControlFlow;

use engine::store::{CommittedEvent, LogEntry, RunView, Store, StoreError, Tenant};
use machine::event::Fact;
use machine::id::RunId;
use machine::policy::Continuation;

use crate::wire::event::Envelope;
use crate::wire::telling::Telling;

/// Events that are read at once.
const READ_MAX: usize = 256;

/// Every envelope behind `after` in order, until `hear` has enough.
pub(crate) async fn tell(
    store: &dyn Store,
    tenant: &Tenant,
    run: &RunView,
    after: u64,
    mut hear: impl FnMut(Envelope) -> ControlFlow<()> + Send,
) -> Result<(), StoreError> {
    let mut telling = Telling::new(run.thread.clone(), run.id.clone()).forgetting();
    let mut read = begins_after(store, tenant, run, after).await?;
    loop {
        let events = store.events(tenant, &run.id, read, READ_MAX).await?;
        let Some(last) = events.last() else { return Ok(()) };
        read = last.seq();
        for logged in &events {
            let told = match logged {
                LogEntry::Event(committed) => heard(store, tenant, &mut telling, &run.id, committed).await?,
                LogEntry::Unreadable(event) => telling.hear_unreadable(event),
            };
            for envelope in told {
                if envelope.seq > after && hear(envelope).is_break() {
                    return Ok(());
                }
            }
        }
    }
}

/// What is told of this event, with what has to be read again for it.
pub(crate) async fn heard(
    store: &dyn Store,
    tenant: &Tenant,
    telling: &mut Telling,
    run: &RunId,
    committed: &CommittedEvent,
) -> Result<Vec<Envelope>, StoreError> {
    if let Some(seq) = telling.needs(committed) {
        let read = store.events(tenant, run, seq.saturating_sub(1), 1).await?;
        read.iter().filter_map(LogEntry::readable).for_each(|found| telling.bring(&found.event));
    }
    Ok(telling.hear(committed))
}

/// The event behind which a telling has to begin so that everything behind `after` can be told: the beginning of the
/// step that was open then. Under `eager` a call may settle many steps later, and the whole log is heard.
pub(crate) async fn begins_after(
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
        if let Some(begun) = last_step_in(store, tenant, &run.id, from, until).await? {
            return Ok(begun - 1);
        }
        until = from;
    }
    Ok(0)
}

/// Where the last step begins that begins behind `from` and no later than `until`.
async fn last_step_in(
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
