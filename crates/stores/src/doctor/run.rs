//! What the log of a run says about the columns of its row.

use machine::Control;
use machine::control::ControlDecodeError;
use machine::decision::Decision;
use machine::id::{CallId, DecisionId, MessageId, RunId};
use machine::inbox::Item;
use machine::projection_rows::RunSummary;
use machine::suspension::Held;

use super::fault::{Fault, new_fault};
use super::finding::FindingCode;
use super::log::ExpectedRun;
use super::value::{ColumnValue, bytes, integer, maybe_text, maybe_time, text, time};
use crate::columns::item_kind_name;

/// The columns of a run that follow from its log.
pub(crate) const RUN_COLUMNS: [&str; 12] = [
    "id",
    "agent",
    "status",
    "seq",
    "in_doubt",
    "wake_at",
    "created_at",
    "started_at",
    "ended_at",
    "promised",
    "tenant",
    "parent_call",
];

/// In the order of [`RUN_COLUMNS`].
pub(crate) fn run_columns(tenant: &str, has_parent: bool, expected: &ExpectedRun) -> [ColumnValue; 12] {
    let control = &expected.control;
    let summary = RunSummary::from_control(control);
    let ended = summary.status.ended();
    let waits_to_join = expected.started_at.is_none() && !ended;
    let message = control.user_message.as_ref().filter(|_| waits_to_join).map(MessageId::as_str);
    // A run whose parent was gone when it was created has neither a parent nor a parent call.
    let parent_call = control.parent.as_ref().filter(|_| has_parent);
    [
        text(control.run.as_str()),
        text(control.agent.as_str()),
        text(summary.status.as_str()),
        integer(control.seq),
        integer(u64::from(summary.in_doubt)),
        maybe_time(summary.wake_at.filter(|_| !ended)),
        time(expected.created_at),
        maybe_time(expected.started_at),
        maybe_time(ended.then_some(control.at)),
        maybe_text(message),
        text(tenant),
        maybe_text(parent_call.map(|parent| parent.call_id.as_str())),
    ]
}

/// The stored state must be the fold of the log.
pub(crate) fn control_fault(stored: &[u8], expected: &ExpectedRun) -> Option<Fault> {
    let (decoded, is_older) = match Control::decode(stored) {
        Err(ControlDecodeError::UnsupportedVersion(_)) => (Control::decode_read_only(stored), true),
        decoded @ (Ok(_) | Err(ControlDecodeError::Corrupt(_))) => (decoded, false),
    };
    match decoded {
        Ok(stored) if stored == expected.control => None,
        // An older version did not count all descendants.
        Ok(stored)
            if is_older
                && stored == (Control { descendants: stored.descendants, ..expected.control.clone() }) =>
        {
            None
        }
        Ok(stored) => Some(new_fault(
            FindingCode::ControlDiffers,
            format!(
                "the stored state (event {}, {:?}) is not the fold of the log (event {}, {:?})",
                stored.seq, stored.status, expected.control.seq, expected.control.status
            ),
        )),
        // It is folded from the log whenever it is read.
        Err(ControlDecodeError::UnsupportedVersion(_)) => None,
        Err(ControlDecodeError::Corrupt(why)) => {
            Some(new_fault(FindingCode::ControlDiffers, format!("the stored state cannot be read: {why}")))
        }
    }
}

/// The columns of an inbox row that follow from its item.
pub(crate) const INBOX_COLUMNS: [&str; 4] = ["tenant", "kind", "call", "arguments"];

/// In the order of [`INBOX_COLUMNS`].
pub(crate) fn inbox_columns(tenant: &str, item: &Item) -> [ColumnValue; 4] {
    let (call, digest) = match item {
        Item::Early { decision, digest } => (Some(decision.call.as_str()), Some(*digest)),
        Item::Decision(_) | Item::Interrupt { .. } | Item::ChildEnded(_) | Item::LateAnswer { .. } => {
            (None, None)
        }
    };
    [
        text(tenant),
        text(item_kind_name(item)),
        maybe_text(call),
        digest.map_or(ColumnValue::Null, |digest| bytes(&digest.0)),
    ]
}

/// A remembered decision must be the one that its id names. `found_tenant` is the tenant of its row.
pub(crate) fn decision_fault(
    tenant: &str,
    id: &DecisionId,
    found_tenant: &str,
    decision: &str,
) -> Option<Fault> {
    match serde_json::from_str::<Decision>(decision) {
        Ok(decision) if decision.id.as_ref() == Some(id) && found_tenant == tenant => None,
        Ok(decision) => Some(new_fault(
            FindingCode::DecisionDiffers,
            format!("decision {id} of {found_tenant} holds {:?}", decision.id),
        )),
        Err(why) => Some(new_fault(FindingCode::Unreadable, format!("decision {id}: {why}"))),
    }
}

/// The runs that work on calls of this one.
pub(crate) fn awaited_children(control: &Control) -> impl Iterator<Item = (&CallId, &RunId)> {
    control.calls.iter().filter_map(|call| match &call.suspension()?.held {
        Held::ChildRun { run, .. } => Some((&call.id, run)),
        Held::Approval { .. } | Held::ClientTool | Held::External | Held::Question | Held::InDoubt { .. } => {
            None
        }
    })
}
