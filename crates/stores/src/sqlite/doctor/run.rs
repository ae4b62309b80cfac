//! Checks one run: compares its row, its inbox, its suspensions and its decisions with its log.

use std::collections::BTreeSet;

use machine::Control;
use machine::id::{DecisionId, RunId, SuspensionId};
use machine::inbox::Item;
use machine::projection_rows::ProjectionRows;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::log;
use super::value::row_differences;
use crate::columns::to_u64;
use crate::doctor::{
    ExpectedRun, Fault, FindingCode, Findings, INBOX_COLUMNS, RUN_COLUMNS, SUSPENSION_COLUMNS,
    awaited_children, control_fault, decision_fault, inbox_columns, new_fault, run_columns,
};
use crate::sqlite::revisions;

/// The columns that follow from the log come first, in the order of [`RUN_COLUMNS`].
pub(super) const RUNS_OF_THREAD: &str = "SELECT id, agent, status, seq, in_doubt, wake_at, created_at, started_at, ended_at, promised, tenant, parent_call, \
        row, parent, holds, epoch, interrupt_accepted, ready, control \
     FROM runs WHERE thread = ?1 ORDER BY row";
/// The columns of a run that do not follow from its log.
pub(super) struct SqliteRunColumns {
    pub(super) row: i64,
    pub(super) id: String,
    pub(super) ended: bool,
    pub(super) holds: bool,
    parent: Option<i64>,
    epoch: u64,
    interrupt_accepted: bool,
    ready: i64,
    control: Vec<u8>,
}

impl SqliteRunColumns {
    pub(super) fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            ended: row.get::<_, Option<i64>>(8)?.is_some(),
            row: row.get(12)?,
            parent: row.get(13)?,
            holds: row.get(14)?,
            epoch: to_u64(row.get(15)?),
            interrupt_accepted: row.get(16)?,
            ready: row.get(17)?,
            control: row.get(18)?,
        })
    }
}

/// What a run is compared with besides its log.
pub(super) struct SqliteRunContext<'e> {
    pub(super) connection: &'e Connection,
    pub(super) tenant: &'e str,
    pub(super) thread: &'e str,
    /// How often the file was opened. No lease has an epoch of a later opening.
    pub(super) openings: u64,
}

/// Checks one run. Returns none if its log cannot be read, which is a finding of its own.
pub(super) fn examine(
    context: &SqliteRunContext<'_>,
    run: &SqliteRunColumns,
    row: &Row<'_>,
    findings: &mut Findings,
    mut each_commit: impl FnMut(i64, &ProjectionRows, &mut Findings) -> Result<(), Fault>,
) -> Result<Option<ExpectedRun>, Fault> {
    let place = format!("run {} on thread {} of {}", run.id, context.thread, context.tenant);
    let expected = log::read(context.connection, run.row, context.tenant, |commit, rows| {
        each_commit(commit, rows, findings)
    });
    let expected = match expected {
        Ok(expected) => expected,
        Err(Fault { code, what }) => {
            findings.add(code, place, what);
            return Ok(None);
        }
    };
    let mut note = |code, what: String| findings.add(code, place.as_str(), what);
    let expected_columns = run_columns(context.tenant, run.parent.is_some(), &expected);
    if let Some(what) = row_differences(row, 0, &RUN_COLUMNS, &expected_columns)? {
        note(FindingCode::RunDiffers, what);
    }
    if expected.control.thread.as_str() != context.thread {
        note(
            FindingCode::RunDiffers,
            format!("the log says that it is on thread {}", expected.control.thread),
        );
    }
    let control = control_fault(&run.control, &expected);
    let faults = [control, lease_fault(context, run, &expected), parent_fault(context, run, &expected)?];
    for Fault { code, what } in faults.into_iter().flatten() {
        note(code, what);
    }
    let inbox = inbox(context, run, &mut note)?;
    suspensions(context, run, &expected, &inbox, &mut note)?;
    decisions(context, run, &expected, &mut note)?;
    children(context, &expected.control, &inbox, &mut note)?;
    if !run.ended && !revisions::exists(context.connection, run.row, &expected.control.revision)? {
        note(
            FindingCode::RevisionDiffers,
            format!("its frozen agent {} is not stored", expected.control.revision),
        );
    }
    Ok(Some(expected))
}

fn lease_fault(
    context: &SqliteRunContext<'_>,
    run: &SqliteRunColumns,
    expected: &ExpectedRun,
) -> Option<Fault> {
    let of_this_file = run.epoch == 0 || run.epoch >> 32 < context.openings;
    if expected.epoch <= run.epoch && of_this_file {
        return None;
    }
    let what = format!(
        "its lease has epoch {}; the log knows {}, and the file was opened {} times",
        run.epoch, expected.epoch, context.openings
    );
    Some(new_fault(FindingCode::RunDiffers, what))
}

/// If the parent is missing, it was deleted with its thread. If it exists, it must be the one that the log names.
fn parent_fault(
    context: &SqliteRunContext<'_>,
    run: &SqliteRunColumns,
    expected: &ExpectedRun,
) -> rusqlite::Result<Option<Fault>> {
    let Some(row) = run.parent else { return Ok(None) };
    let mut statement = context.connection.prepare_cached("SELECT tenant, id FROM runs WHERE row = ?1")?;
    let found = statement.query_row([row], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let found: Option<(String, String)> = found;
    let named = expected.control.parent.as_ref().map(|parent| parent.run_id.as_str());
    let fits = match (&found, named) {
        (Some((tenant, id)), Some(named)) => tenant == context.tenant && id == named,
        (None, Some(_)) => true,
        (_, None) => false,
    };
    if fits {
        return Ok(None);
    }
    let found = found.map_or_else(|| row.to_string(), |(_, id)| id);
    let named = named.unwrap_or("none");
    Ok(Some(new_fault(FindingCode::RunDiffers, format!("its parent is {found}, the log says {named}"))))
}

/// What the run's inbox contains.
#[derive(Default)]
struct SqlitePendingInbox {
    tickets: BTreeSet<i64>,
    ended_children: BTreeSet<RunId>,
}

fn inbox(
    context: &SqliteRunContext<'_>,
    run: &SqliteRunColumns,
    note: &mut impl FnMut(FindingCode, String),
) -> Result<SqlitePendingInbox, Fault> {
    let mut statement = context.connection.prepare_cached(
        "SELECT ticket, item, tenant, kind, call, arguments FROM inbox WHERE run = ?1 ORDER BY ticket",
    )?;
    let mut rows = statement.query([run.row])?;
    let mut inbox = SqlitePendingInbox::default();
    while let Some(row) = rows.next()? {
        let ticket: i64 = row.get(0)?;
        inbox.tickets.insert(ticket);
        let item: Item = match serde_json::from_str(row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?)
        {
            Ok(item) => item,
            Err(why) => {
                note(FindingCode::Unreadable, format!("inbox row {ticket}: {why}"));
                continue;
            }
        };
        let expected = inbox_columns(context.tenant, &item);
        if let Some(what) = row_differences(row, 2, &INBOX_COLUMNS, &expected)? {
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
    } else if waiting > 0 && run.ready != 1 {
        note(
            FindingCode::InboxDiffers,
            format!("{waiting} rows wait in its inbox, and nobody is told to look"),
        );
    }
    Ok(inbox)
}

fn suspensions(
    context: &SqliteRunContext<'_>,
    run: &SqliteRunColumns,
    expected: &ExpectedRun,
    inbox: &SqlitePendingInbox,
    note: &mut impl FnMut(FindingCode, String),
) -> Result<(), Fault> {
    let columns = SUSPENSION_COLUMNS.join(", ");
    let sql = format!("SELECT id, answered_by, {columns} FROM suspensions WHERE run = ?1");
    let mut statement = context.connection.prepare_cached(&sql)?;
    let mut rows = statement.query([run.row])?;
    let mut seen = BTreeSet::new();
    while let Some(row) = rows.next()? {
        let id = SuspensionId::from(row.get::<_, String>(0)?);
        let Some(suspension) = expected.suspensions.get(&id) else {
            note(FindingCode::SuspensionDiffers, format!("suspension {id} is not in the log"));
            continue;
        };
        let expected_values = suspension.values(context.tenant);
        if let Some(what) = row_differences(row, 2, &SUSPENSION_COLUMNS, &expected_values)? {
            note(FindingCode::SuspensionDiffers, format!("suspension {id}: {what}"));
        }
        if let Some(ticket) = row.get::<_, Option<i64>>(1)?
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

/// A decision that closed no suspension appears in no event, so this can be checked in one direction only.
fn decisions(
    context: &SqliteRunContext<'_>,
    run: &SqliteRunColumns,
    expected: &ExpectedRun,
    note: &mut impl FnMut(FindingCode, String),
) -> Result<(), Fault> {
    let mut statement =
        context.connection.prepare_cached("SELECT tenant, id, decision FROM decisions WHERE run = ?1")?;
    let mut rows = statement.query([run.row])?;
    let mut seen = BTreeSet::new();
    while let Some(row) = rows.next()? {
        let (tenant, id): (String, String) = (row.get(0)?, row.get(1)?);
        let id = DecisionId::from(id);
        let decision = row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?;
        if let Some(Fault { code, what }) = decision_fault(context.tenant, &id, &tenant, decision) {
            note(code, what);
        }
        seen.insert(id);
    }
    for id in expected.decisions.iter().filter(|id| !seen.contains(*id)) {
        note(FindingCode::DecisionDiffers, format!("decision {id} of the log is not remembered"));
    }
    Ok(())
}

/// A child that a call waits for must still be running, or its end must be in the inbox.
fn children(
    context: &SqliteRunContext<'_>,
    control: &Control,
    inbox: &SqlitePendingInbox,
    note: &mut impl FnMut(FindingCode, String),
) -> Result<(), Fault> {
    for (call, child) in awaited_children(control) {
        let mut statement = context
            .connection
            .prepare_cached("SELECT ended_at IS NULL FROM runs WHERE tenant = ?1 AND id = ?2")?;
        let under_way: Option<bool> =
            statement.query_row(params![context.tenant, child.as_str()], |row| row.get(0)).optional()?;
        if under_way != Some(true) && !inbox.ended_children.contains(child) {
            note(FindingCode::ChildLost, format!("call {call} waits for run {child}, which is over or gone"));
        }
    }
    Ok(())
}
