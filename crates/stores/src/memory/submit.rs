//! Items from outside: one transaction decides which of them wins.

use engine::store::{StoreError, Tenant};
use machine::Timestamp;
use machine::decision::Decision;
use machine::id::{RunId, SuspensionId};
use machine::inbox::{Item, SubmitContext, Verdict, judge_item};

use super::state::{MemoryRun, MemoryState};
use super::write::put_item;

pub(super) fn submit(
    state: &mut MemoryState,
    tenant: &Tenant,
    run: &RunId,
    item: &Item,
    now: Timestamp,
) -> Result<Verdict, StoreError> {
    let row = state.find_row(tenant, run).ok_or(StoreError::NotFound)?;
    let stored = state.runs.get(&row).ok_or(StoreError::NotFound)?;
    let inbox: Vec<Item> = stored.inbox.values().cloned().collect();
    let context = SubmitContext { control: &stored.control, inbox: &inbox, earlier: earlier(stored, item) };
    let verdict = judge_item(item, &context);
    if !verdict.is_taken() {
        return Ok(verdict);
    }
    let answers = answered_suspension(stored, item).cloned();
    let ticket = put_item(state, row, item);
    if let Some(id) = answers
        && let Some(suspension) = state.runs.get_mut(&row).and_then(|run| run.suspensions.get_mut(&id))
    {
        suspension.answered_by = ticket;
    }
    state.counts.commits += 1;
    state.update_queues(row, now);
    Ok(verdict)
}

/// The earlier decision with the same id.
fn earlier<'s>(run: &'s MemoryRun, item: &Item) -> Option<&'s Decision> {
    run.decisions.get(item.decision()?.id.as_ref()?)
}

/// The suspension that an accepted item answers.
fn answered_suspension<'s>(run: &'s MemoryRun, item: &'s Item) -> Option<&'s SuspensionId> {
    match item {
        Item::Decision(decision) => Some(&decision.suspension),
        Item::LateAnswer { call, .. } => run.open_suspension(call),
        Item::Early { .. } | Item::Interrupt { .. } | Item::ChildEnded(_) => None,
    }
}
