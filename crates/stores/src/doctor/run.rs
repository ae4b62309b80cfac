//! Examines one run: compares its row, its inbox, its suspensions and its decisions with its log.

use std::collections::BTreeSet;

use machine::Control;
use machine::control::ControlDecodeError;
use machine::decision::Decision;
use machine::id::{CallId, DecisionId, MessageId, RunId, SuspensionId};
use machine::inbox::Item;
use machine::projection_rows::RunSummary;

use super::chain::{self, ChainCounts};
use super::fault::{ExamineError, Fault, new_fault};
use super::finding::{FindingCode, PlaceFindings};
use super::log::{ExpectedRun, LogFold, SUSPENSION_COLUMNS};
use super::rows::{DecisionRow, InboxRow, RunRow, SnapshotRows, SuspensionRow};
use super::thread::{ExaminedThread, ExpectedThread, LoggedRows};
use super::value::{ColumnValue, bytes, differences, integer, maybe_text, maybe_time, text, time};
use crate::chain::ChainCheck;
use crate::columns::item_kind_name;

/// Examines one run. Returns the number of its events, or `None` if its log is unreadable, which is a finding of its
/// own. `at_thread` receives what is wrong with the rows of its messages and calls.
pub(super) async fn examine(
    thread: &ExaminedThread<'_, impl SnapshotRows>,
    run: &RunRow,
    expected_thread: &mut ExpectedThread,
    chains: &mut ChainCounts,
    at_thread: &mut PlaceFindings<'_>,
) -> Result<Option<u64>, ExamineError> {
    let place = format!("run {} on thread {} of {}", run.id, thread.id, thread.tenant);
    let log = read_log(thread, run, expected_thread, at_thread).await;
    let mut at = PlaceFindings { place: &place, findings: at_thread.findings };
    let ReadLog { folded, broken_chain } = match log {
        Ok(read) => read,
        Err(ExamineError::Broken(Fault { code, what })) => {
            at.add(code, what);
            return Ok(None);
        }
        Err(other @ (ExamineError::Damaged(_) | ExamineError::Refused(_))) => return Err(other),
    };
    chain::examine(run, broken_chain, thread.last_unchained, chains, &mut at);
    let expected = match folded {
        Ok(expected) => expected,
        Err(Fault { code, what }) => {
            at.add(code, what);
            return Ok(None);
        }
    };
    expected_thread.pinned.insert(expected.control.revision);
    let derived = run_columns(thread.tenant, run.parent.is_some(), &expected);
    if let Some(what) = differences(&RUN_COLUMNS, &run.derived, &derived) {
        at.add(FindingCode::RunDiffers, what);
    }
    if expected.control.thread.as_str() != thread.id {
        let what = format!("the log says that it is on thread {}", expected.control.thread);
        at.add(FindingCode::RunDiffers, what);
    }
    let faults = [
        control_fault(&run.control, &expected),
        lease_fault(thread.rows.openings(), run, &expected),
        parent_fault(thread.tenant, run, &expected),
    ];
    for Fault { code, what } in faults.into_iter().flatten() {
        at.add(code, what);
    }
    let inbox = examine_inbox(thread.tenant, run, &thread.rows.inbox(run.row).await?, &mut at);
    let suspensions = thread.rows.suspensions(run.row).await?;
    examine_suspensions(thread.tenant, &expected, &inbox, suspensions, &mut at);
    examine_decisions(thread, run.row, &expected, &mut at).await?;
    examine_children(thread, &expected.control, &inbox, &mut at).await?;
    let revision = expected.control.revision;
    if !run.ended && !thread.rows.has_revision(thread.number, &revision).await? {
        at.add(FindingCode::RevisionDiffers, format!("its frozen agent {revision} is not stored"));
    }
    Ok(Some(expected.control.seq))
}

/// A log that was read to its end.
struct ReadLog {
    folded: Result<ExpectedRun, Fault>,
    /// Where the hash chain breaks, if it does.
    broken_chain: Option<String>,
}

/// Reads the whole log, compares every commit with its hash, and compares the messages and calls of each page with
/// their rows. After the first commit that cannot be folded, only hashes are compared.
async fn read_log(
    thread: &ExaminedThread<'_, impl SnapshotRows>,
    run: &RunRow,
    expected_thread: &mut ExpectedThread,
    at_thread: &mut PlaceFindings<'_>,
) -> Result<ReadLog, ExamineError> {
    let (mut log, mut after, mut fault) = (LogFold::default(), 0, None);
    let mut chain = ChainCheck::new(thread.tenant, &run.id, &run.chain);
    loop {
        let page = thread.rows.commits(run.row, after).await?;
        let mut logged_rows = LoggedRows::default();
        for commit in &page.commits {
            if fault.is_none() {
                match log.fold_commit(thread.tenant, commit) {
                    Ok(rows) => {
                        expected_thread.add_rows(run.row, &rows);
                        logged_rows.add_rows(rows);
                    }
                    Err(found) => fault = Some(found),
                }
            }
            chain.add(&commit.as_hashed(), log.revision());
        }
        logged_rows.compare(thread, run.row, at_thread).await?;
        let last = page.commits.last().map_or(after, |commit| commit.last_seq);
        // A damaged index could return the same commits again and again.
        if page.is_last || last <= after {
            let folded = fault.map_or_else(|| log.finish(), Err);
            return Ok(ReadLog { folded, broken_chain: chain.finish(run.seq) });
        }
        after = last;
    }
}

/// Leases are not examined, because who holds a run follows from no log. But the log must not contain an epoch that the
/// row never reached, and no epoch is of a later opening of the store.
fn lease_fault(openings: Option<u64>, run: &RunRow, expected: &ExpectedRun) -> Option<Fault> {
    let is_of_store = openings.is_none_or(|openings| run.epoch == 0 || run.epoch >> 32 < openings);
    if expected.epoch <= run.epoch && is_of_store {
        return None;
    }
    let mut what = format!("its lease has epoch {}; the log knows {}", run.epoch, expected.epoch);
    if let Some(openings) = openings {
        what.push_str(&format!(", and the file was opened {openings} times"));
    }
    Some(new_fault(FindingCode::RunDiffers, what))
}

/// A missing parent was deleted with its thread. An existing one must be the one that the log names.
fn parent_fault(tenant: &str, run: &RunRow, expected: &ExpectedRun) -> Option<Fault> {
    let row = run.parent?;
    let named = expected.control.parent.as_ref().map(|parent| parent.run_id.as_str());
    let fits = match (&run.parent_found, named) {
        (Some((found_tenant, id)), Some(named)) => found_tenant == tenant && id == named,
        (None, Some(_)) => true,
        (_, None) => false,
    };
    if fits {
        return None;
    }
    let found = run.parent_found.as_ref().map_or_else(|| row.to_string(), |(_, id)| id.clone());
    let named = named.unwrap_or("none");
    Some(new_fault(FindingCode::RunDiffers, format!("its parent is {found}, the log says {named}")))
}

/// The unprocessed items of a run.
#[derive(Default)]
struct PendingInbox {
    tickets: BTreeSet<i64>,
    ended_children: BTreeSet<RunId>,
}

fn examine_inbox(tenant: &str, run: &RunRow, rows: &[InboxRow], at: &mut PlaceFindings<'_>) -> PendingInbox {
    let mut inbox = PendingInbox::default();
    for InboxRow { ticket, item, columns } in rows {
        inbox.tickets.insert(*ticket);
        let item: Item = match serde_json::from_str(item) {
            Ok(item) => item,
            Err(why) => {
                at.add(FindingCode::Unreadable, format!("inbox row {ticket}: {why}"));
                continue;
            }
        };
        if let Some(what) = differences(&INBOX_COLUMNS, columns, &inbox_columns(tenant, &item)) {
            at.add(FindingCode::InboxDiffers, format!("inbox row {ticket}: {what}"));
        }
        if matches!(item, Item::Interrupt { .. }) && !run.interrupt_accepted {
            let what =
                format!("inbox row {ticket} is an interrupt, but the run is not marked as interrupted");
            at.add(FindingCode::InboxDiffers, what);
        }
        if let Item::ChildEnded(ended) = item {
            inbox.ended_children.insert(ended.run);
        }
    }
    let waiting = inbox.tickets.len();
    if waiting > 0 && run.ended {
        at.add(FindingCode::InboxDiffers, format!("it has ended, and {waiting} rows wait in its inbox"));
    } else if waiting > 0 && !run.inbox_is_noticed {
        let what = format!("{waiting} rows wait in its inbox, and no worker has been notified");
        at.add(FindingCode::InboxDiffers, what);
    }
    inbox
}

fn examine_suspensions(
    tenant: &str,
    expected: &ExpectedRun,
    inbox: &PendingInbox,
    rows: Vec<SuspensionRow>,
    at: &mut PlaceFindings<'_>,
) {
    let mut note = |what: String| at.add(FindingCode::SuspensionDiffers, what);
    let mut seen = BTreeSet::new();
    for SuspensionRow { id, answered_by, columns } in rows {
        let id = SuspensionId::from(id);
        let Some(suspension) = expected.suspensions.get(&id) else {
            note(format!("suspension {id} is not in the log"));
            continue;
        };
        if let Some(what) = differences(&SUSPENSION_COLUMNS, &columns, &suspension.values(tenant)) {
            note(format!("suspension {id}: {what}"));
        }
        if let Some(ticket) = answered_by
            && !inbox.tickets.contains(&ticket)
        {
            note(format!("suspension {id} is answered by row {ticket}, which does not exist"));
        }
        seen.insert(id);
    }
    for id in expected.suspensions.keys().filter(|id| !seen.contains(*id)) {
        note(format!("suspension {id} of the log has no row"));
    }
}

/// A decision that closed no suspension appears in no event, so only one direction can be checked.
async fn examine_decisions(
    thread: &ExaminedThread<'_, impl SnapshotRows>,
    run: i64,
    expected: &ExpectedRun,
    at: &mut PlaceFindings<'_>,
) -> Result<(), ExamineError> {
    let mut seen = BTreeSet::new();
    let mut after = String::new();
    loop {
        let page = thread.rows.decisions(run, &after).await?;
        let Some(last) = page.last() else { break };
        after.clone_from(&last.id);
        let seen_before = seen.len();
        for DecisionRow { tenant, id, decision } in page {
            let id = DecisionId::from(id);
            if let Some(Fault { code, what }) = decision_fault(thread.tenant, &id, &tenant, &decision) {
                at.add(code, what);
            }
            seen.insert(id);
        }
        // A damaged index could return the same decisions again and again.
        if seen.len() == seen_before {
            break;
        }
    }
    for id in expected.decisions.difference(&seen) {
        at.add(FindingCode::DecisionDiffers, format!("decision {id} of the log is not remembered"));
    }
    Ok(())
}

/// A child run that works on a call is still running, or its end waits in the inbox.
async fn examine_children(
    thread: &ExaminedThread<'_, impl SnapshotRows>,
    control: &Control,
    inbox: &PendingInbox,
    at: &mut PlaceFindings<'_>,
) -> Result<(), ExamineError> {
    for (call, child) in awaited_children(control) {
        let is_under_way = thread.rows.is_under_way(thread.tenant, child.as_str()).await?;
        if is_under_way != Some(true) && !inbox.ended_children.contains(child) {
            let what = format!("call {call} waits for run {child}, which is over or gone");
            at.add(FindingCode::ChildLost, what);
        }
    }
    Ok(())
}

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
fn run_columns(tenant: &str, has_parent: bool, expected: &ExpectedRun) -> [ColumnValue; 12] {
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
fn control_fault(stored: &[u8], expected: &ExpectedRun) -> Option<Fault> {
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
fn inbox_columns(tenant: &str, item: &Item) -> [ColumnValue; 4] {
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
fn decision_fault(tenant: &str, id: &DecisionId, found_tenant: &str, decision: &str) -> Option<Fault> {
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
fn awaited_children(control: &Control) -> impl Iterator<Item = (&CallId, &RunId)> {
    control.calls.iter().filter_map(|call| Some((&call.id, call.suspension()?.held.child_run()?)))
}
