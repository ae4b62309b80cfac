//! What comes from outside: one transaction that decides who wins.

use engine::store::{Refused, Tenant};
use machine::Timestamp;
use machine::id::{RunId, SuspensionId};
use machine::inbox::{Item, Shown, Verdict, judge};

use super::state::{State, StoredRun};
use super::write::put_item;

pub(super) fn submit(
    state: &mut State,
    tenant: &Tenant,
    run: &RunId,
    item: &Item,
    now: Timestamp,
) -> Result<Verdict, Refused> {
    let row = state.row_of(tenant, run).ok_or(Refused::NotFound)?;
    let stored = state.runs.get(&row).ok_or(Refused::NotFound)?;
    let verdict = judge(item, &shown(stored, item));
    if !verdict.is_taken() {
        return Ok(verdict);
    }
    let answers = answers(stored, item).cloned();
    let ticket = put_item(state, row, item);
    if let Some(id) = answers
        && let Some(suspension) = state.runs.get_mut(&row).and_then(|run| run.suspensions.get_mut(&id))
    {
        suspension.answered_by = ticket;
    }
    state.counts.commits += 1;
    state.line_up(row, now);
    Ok(verdict)
}

fn shown<'s>(run: &'s StoredRun, item: &Item) -> Shown<'s> {
    let open = item.call().and_then(|call| run.held_by(call));
    Shown {
        control: &run.control,
        interrupt_accepted: run.interrupt_accepted,
        end_accepted: run.end_accepted(),
        answered: open.is_some_and(|id| run.answered_by(id).is_some()),
        early_kept: run.inbox.values().any(|kept| match kept {
            Item::Early { decision, .. } => Some(&decision.call) == item.call(),
            Item::Decision(_) | Item::Interrupt { .. } | Item::ChildEnded(_) | Item::LateAnswer { .. } => {
                false
            }
        }),
        earlier: item
            .decision()
            .and_then(|decision| decision.id.as_ref())
            .and_then(|id| run.decisions.get(id)),
    }
}

/// The suspension that a taken item answers.
fn answers<'s>(run: &'s StoredRun, item: &'s Item) -> Option<&'s SuspensionId> {
    match item {
        Item::Decision(decision) => Some(&decision.suspension),
        Item::LateAnswer { call, .. } => run.held_by(call),
        Item::Early { .. } | Item::Interrupt { .. } | Item::ChildEnded(_) => None,
    }
}
