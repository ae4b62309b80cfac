//! Examines one run: compares its row, its inbox, its suspensions and its decisions with its log.

use std::collections::BTreeSet;

use machine::Control;
use machine::id::{DecisionId, RunId, SuspensionId};
use machine::inbox::Item;
use tokio_postgres::Row;

use super::examine_error::ExamineError;
use super::log::{CommitPage, parse_commit};
use super::thread::{LoggedRows, PostgresExpectedThread};
use super::value::columns;
use crate::columns::to_u64;
use crate::doctor::{
    ColumnValue, ExpectedRun, Fault, FindingCode, Findings, INBOX_COLUMNS, LogFold, RUN_COLUMNS,
    SUSPENSION_COLUMNS, awaited_children, control_fault, decision_fault, differences, inbox_columns,
    new_fault, run_columns,
};
use crate::postgres::connection::Parameters;
use crate::postgres::nul_escape::{escape, unescape};
use crate::postgres::snapshot::Snapshot;

/// The columns derived from the log come first, in the order of [`RUN_COLUMNS`]. Ordered by age, which has an index.
pub(super) const RUNS_OF_THREAD: &str = "SELECT
        r.id, r.agent, r.status, r.seq, r.in_doubt, r.wake_at, r.created_at, r.started_at, r.ended_at, r.promised,
        r.tenant, r.parent_call,
        r.run, r.parent, p.tenant, p.id, r.holds, r.epoch, r.interrupt_accepted, r.ready = 1, r.node IS NOT NULL,
        r.control
    FROM runs r LEFT JOIN runs p ON p.run = r.parent
    WHERE r.thread = $1 AND (r.created_at, r.id) > ($2, $3) ORDER BY r.created_at, r.id LIMIT $4";
const INBOX: &str =
    "SELECT tenant, kind, call, arguments, ticket, item FROM inbox WHERE run = $1 ORDER BY ticket";
const SUSPENSIONS: &str =
    "SELECT tenant, seq, closed_seq, call, kind, status, arguments, created_at, expires_at, decided_at,
        decided_by, reason, note, id, answered_by
    FROM suspensions WHERE run = $1";
/// Decisions read at once.
const DECISION_COUNT_MAX: i64 = 64;
const DECISIONS: &str =
    "SELECT tenant, id, decision FROM decisions WHERE run = $1 AND id > $2 ORDER BY id LIMIT $3";

/// The row of a run.
pub(super) struct PostgresRunColumns {
    pub(super) row: i64,
    /// In the order of [`RUN_COLUMNS`].
    derived: Vec<ColumnValue>,
    /// The stored values after which the next page begins.
    pub(super) place: (i64, String),
    pub(super) ended: bool,
    pub(super) holds: bool,
    parent: Option<i64>,
    /// Tenant and id of the parent, if it still exists.
    parent_found: Option<(String, String)>,
    epoch: u64,
    interrupt_accepted: bool,
    is_woken: bool,
    /// A node holds the run.
    is_held: bool,
    control: Vec<u8>,
}

impl PostgresRunColumns {
    pub(super) fn from_row(row: &Row) -> Result<Self, ExamineError> {
        let parent_tenant: Option<String> = row.try_get(14)?;
        let parent_id: Option<String> = row.try_get(15)?;
        Ok(Self {
            derived: columns(row, 0, RUN_COLUMNS.len())?,
            place: (row.try_get(6)?, row.try_get(0)?),
            ended: row.try_get::<_, Option<i64>>(8)?.is_some(),
            row: row.try_get(12)?,
            parent: row.try_get(13)?,
            parent_found: parent_tenant.map(unescape).zip(parent_id.map(unescape)),
            holds: row.try_get(16)?,
            epoch: to_u64(row.try_get(17)?),
            interrupt_accepted: row.try_get(18)?,
            is_woken: row.try_get(19)?,
            is_held: row.try_get(20)?,
            control: row.try_get(21)?,
        })
    }

    fn id(&self) -> String {
        unescape(self.place.1.clone())
    }
}

/// What a run is compared with, besides its log.
pub(super) struct PostgresRunContext<'e> {
    pub(super) snapshot: &'e Snapshot<'e>,
    pub(super) tenant: &'e str,
    pub(super) thread: &'e str,
    pub(super) thread_row: i64,
}

/// Examines one run. Returns `None` if its log is unreadable, which is a finding of its own.
pub(super) async fn examine(
    context: &PostgresRunContext<'_>,
    run: &PostgresRunColumns,
    thread: &mut PostgresExpectedThread,
    findings: &mut Findings,
) -> Result<Option<u64>, ExamineError> {
    let place = format!("run {} on thread {} of {}", run.id(), context.thread, context.tenant);
    let expected = match read_log(context, run, thread, findings).await {
        Ok(expected) => expected,
        Err(ExamineError::Broken(Fault { code, what })) => {
            findings.add(code, place, what);
            return Ok(None);
        }
        Err(other @ (ExamineError::Damaged(_) | ExamineError::Refused(_))) => return Err(other),
    };
    thread.pinned.insert(expected.control.revision);
    let mut note = |code, what: String| findings.add(code, place.as_str(), what);
    let derived = run_columns(context.tenant, run.parent.is_some(), &expected);
    if let Some(what) = differences(&RUN_COLUMNS, &run.derived, &derived) {
        note(FindingCode::RunDiffers, what);
    }
    if expected.control.thread.as_str() != context.thread {
        note(
            FindingCode::RunDiffers,
            format!("the log says that it is on thread {}", expected.control.thread),
        );
    }
    let faults = [
        control_fault(&run.control, &expected),
        lease_fault(run, &expected),
        parent_fault(context, run, &expected),
    ];
    for Fault { code, what } in faults.into_iter().flatten() {
        note(code, what);
    }
    let of_run: Parameters<'_> = &[&run.row];
    let (items, suspended) =
        tokio::try_join!(context.snapshot.read(INBOX, of_run), context.snapshot.read(SUSPENSIONS, of_run))?;
    let inbox = inbox(context, run, &items, &mut note)?;
    suspensions(context, &expected, &inbox, &suspended, &mut note)?;
    decisions(context, run, &expected, &mut note).await?;
    children(context, &expected.control, &inbox, &mut note).await?;
    if !run.ended && !has_revision(context, &expected.control).await? {
        note(
            FindingCode::RevisionDiffers,
            format!("its frozen agent {} is not stored", expected.control.revision),
        );
    }
    Ok(Some(expected.control.seq))
}

/// Reads the whole log and compares the messages and calls of each page with their rows.
async fn read_log(
    context: &PostgresRunContext<'_>,
    run: &PostgresRunColumns,
    thread: &mut PostgresExpectedThread,
    findings: &mut Findings,
) -> Result<ExpectedRun, ExamineError> {
    let (mut log, mut after) = (LogFold::default(), 0);
    loop {
        let page = CommitPage::read(context.snapshot, run.row, after).await?;
        let mut logged_rows = LoggedRows::default();
        for row in &page.rows {
            let owner = unescape(row.try_get(0)?);
            let commit = parse_commit(row, &owner)?;
            after = commit.last_seq;
            let rows = log.fold_commit(context.tenant, &commit)?;
            thread.add_rows(run.row, &rows);
            logged_rows.add_rows(rows);
        }
        logged_rows.compare(context, run.row, findings).await?;
        if page.is_last {
            return Ok(log.finish()?);
        }
    }
}

/// Leases are not examined. But the log must not contain an epoch that the row never reached.
fn lease_fault(run: &PostgresRunColumns, expected: &ExpectedRun) -> Option<Fault> {
    (expected.epoch > run.epoch).then(|| {
        let what = format!("its lease has epoch {}; the log knows {}", run.epoch, expected.epoch);
        new_fault(FindingCode::RunDiffers, what)
    })
}

/// A missing parent was deleted with its thread. An existing one must be the one that the log names.
fn parent_fault(
    context: &PostgresRunContext<'_>,
    run: &PostgresRunColumns,
    expected: &ExpectedRun,
) -> Option<Fault> {
    let row = run.parent?;
    let named = expected.control.parent.as_ref().map(|parent| parent.run_id.as_str());
    let fits = match (&run.parent_found, named) {
        (Some((tenant, id)), Some(named)) => tenant == context.tenant && id == named,
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

/// The unprocessed items of the run.
#[derive(Default)]
struct PostgresPendingInbox {
    tickets: BTreeSet<i64>,
    ended_children: BTreeSet<RunId>,
}

fn inbox(
    context: &PostgresRunContext<'_>,
    run: &PostgresRunColumns,
    rows: &[Row],
    note: &mut impl FnMut(FindingCode, String),
) -> Result<PostgresPendingInbox, ExamineError> {
    let mut inbox = PostgresPendingInbox::default();
    for row in rows {
        let (ticket, item): (i64, &str) = (row.try_get(4)?, row.try_get(5)?);
        inbox.tickets.insert(ticket);
        let item: Item = match serde_json::from_str(item) {
            Ok(item) => item,
            Err(why) => {
                note(FindingCode::Unreadable, format!("inbox row {ticket}: {why}"));
                continue;
            }
        };
        let derived = inbox_columns(context.tenant, &item);
        if let Some(what) = differences(&INBOX_COLUMNS, &columns(row, 0, INBOX_COLUMNS.len())?, &derived) {
            note(FindingCode::InboxDiffers, format!("inbox row {ticket}: {what}"));
        }
        if matches!(item, Item::Interrupt { .. }) && !run.interrupt_accepted {
            note(
                FindingCode::InboxDiffers,
                format!("inbox row {ticket} interrupts, and the run does not say so"),
            );
        }
        if let Item::ChildEnded(ended) = item {
            inbox.ended_children.insert(ended.run);
        }
    }
    let waiting = inbox.tickets.len();
    if waiting > 0 && run.ended {
        note(FindingCode::InboxDiffers, format!("it has ended, and {waiting} rows wait in its inbox"));
    } else if waiting > 0 && !run.is_woken && !run.is_held {
        // The node that holds the run read its inbox with the claim, and is notified of later items.
        note(
            FindingCode::InboxDiffers,
            format!("{waiting} rows wait in its inbox, and nobody is told to look"),
        );
    }
    Ok(inbox)
}

fn suspensions(
    context: &PostgresRunContext<'_>,
    expected: &ExpectedRun,
    inbox: &PostgresPendingInbox,
    rows: &[Row],
    note: &mut impl FnMut(FindingCode, String),
) -> Result<(), ExamineError> {
    let mut seen = BTreeSet::new();
    for row in rows {
        let id = SuspensionId::from(unescape(row.try_get(13)?));
        let Some(suspension) = expected.suspensions.get(&id) else {
            note(FindingCode::SuspensionDiffers, format!("suspension {id} is not in the log"));
            continue;
        };
        let found = columns(row, 0, SUSPENSION_COLUMNS.len())?;
        if let Some(what) = differences(&SUSPENSION_COLUMNS, &found, &suspension.values(context.tenant)) {
            note(FindingCode::SuspensionDiffers, format!("suspension {id}: {what}"));
        }
        if let Some(ticket) = row.try_get::<_, Option<i64>>(14)?
            && !inbox.tickets.contains(&ticket)
        {
            note(
                FindingCode::SuspensionDiffers,
                format!("suspension {id} is answered by row {ticket}, which is not there"),
            );
        }
        seen.insert(id);
    }
    for id in expected.suspensions.keys().filter(|id| !seen.contains(*id)) {
        note(FindingCode::SuspensionDiffers, format!("suspension {id} of the log has no row"));
    }
    Ok(())
}

/// A decision that closed nothing appears in no event, so only one direction can be checked.
async fn decisions(
    context: &PostgresRunContext<'_>,
    run: &PostgresRunColumns,
    expected: &ExpectedRun,
    note: &mut impl FnMut(FindingCode, String),
) -> Result<(), ExamineError> {
    let mut missing = expected.decisions.clone();
    let mut after = String::new();
    loop {
        let rows = context.snapshot.read(DECISIONS, &[&run.row, &after, &DECISION_COUNT_MAX]).await?;
        let Some(last) = rows.last() else { break };
        after = last.try_get(1)?;
        for row in &rows {
            let (tenant, id): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            let (tenant, id) = (unescape(tenant), DecisionId::from(unescape(id)));
            if let Some(Fault { code, what }) = decision_fault(context.tenant, &id, &tenant, row.try_get(2)?)
            {
                note(code, what);
            }
            missing.remove(&id);
        }
    }
    for id in missing {
        note(FindingCode::DecisionDiffers, format!("decision {id} of the log is not remembered"));
    }
    Ok(())
}

/// A child run that works on a call is still running, or its end waits in the inbox.
async fn children(
    context: &PostgresRunContext<'_>,
    control: &Control,
    inbox: &PostgresPendingInbox,
    note: &mut impl FnMut(FindingCode, String),
) -> Result<(), ExamineError> {
    for (call, child) in awaited_children(control) {
        let sql = "SELECT ended_at IS NULL FROM runs WHERE tenant = $1 AND id = $2";
        let rows = context.snapshot.read(sql, &[&escape(context.tenant), &escape(child.as_str())]).await?;
        let under_way = rows.first().map(|row| row.try_get::<_, bool>(0)).transpose()?;
        if under_way != Some(true) && !inbox.ended_children.contains(child) {
            note(FindingCode::ChildLost, format!("call {call} waits for run {child}, which is over or gone"));
        }
    }
    Ok(())
}

async fn has_revision(context: &PostgresRunContext<'_>, control: &Control) -> Result<bool, ExamineError> {
    let sql = "SELECT 1 FROM brought WHERE thread = $1 AND digest = $2
        UNION ALL SELECT 1 FROM revisions WHERE digest = $2 LIMIT 1";
    let digest = control.revision.0.as_slice();
    Ok(!context.snapshot.read(sql, &[&context.thread_row, &digest]).await?.is_empty())
}
