//! One run: its row, its inbox, its suspensions and its decisions, beside what its log says.

use std::collections::BTreeSet;

use machine::Control;
use machine::id::{DecisionId, RunId, SuspensionId};
use machine::inbox::Item;
use machine::projection_rows::ProjectionRows;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::log;
use super::value::differing;
use crate::doctor::{
    Fault, FindingCode, Findings, INBOX_COLUMNS, RUN_COLUMNS, SUSPENSION_COLUMNS, Told, awaited_children,
    broken, control_fault, decision_fault, inbox_columns, run_columns,
};
use crate::sqlite::revisions;
use crate::words::unsigned;

/// The columns that follow from the log come first, in the order of [`RUN_COLUMNS`].
pub(super) const RUNS_OF_THREAD: &str = "SELECT id, agent, status, seq, in_doubt, wake_at, created_at, started_at, ended_at, promised, tenant, parent_call, \
        row, parent, holds, epoch, interrupt_accepted, ready, control \
     FROM runs WHERE thread = ?1 ORDER BY row";
/// The columns of a run that its log does not have.
pub(super) struct RunColumns {
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

impl RunColumns {
    pub(super) fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            ended: row.get::<_, Option<i64>>(8)?.is_some(),
            row: row.get(12)?,
            parent: row.get(13)?,
            holds: row.get(14)?,
            epoch: unsigned(row.get(15)?),
            interrupt_accepted: row.get(16)?,
            ready: row.get(17)?,
            control: row.get(18)?,
        })
    }
}

/// What a run is compared with beside its log.
pub(super) struct Around<'e> {
    pub(super) connection: &'e Connection,
    pub(super) tenant: &'e str,
    pub(super) thread: &'e str,
    /// How often the file was opened: no lease is of a later process.
    pub(super) openings: u64,
}

/// Looks at one run. Gives none where its log cannot be read, which is a finding of its own.
pub(super) fn examine(
    around: &Around<'_>,
    run: &RunColumns,
    row: &Row<'_>,
    findings: &mut Findings,
    mut each_commit: impl FnMut(i64, &ProjectionRows, &mut Findings) -> Result<(), Fault>,
) -> Result<Option<Told>, Fault> {
    let place = format!("run {} on thread {} of {}", run.id, around.thread, around.tenant);
    let told = log::read(around.connection, run.row, around.tenant, |commit, rows| {
        each_commit(commit, rows, findings)
    });
    let told = match told {
        Ok(told) => told,
        Err(Fault { code, what }) => {
            findings.add(code, place, what);
            return Ok(None);
        }
    };
    let mut note = |code, what: String| findings.add(code, place.as_str(), what);
    let told_columns = run_columns(around.tenant, run.parent.is_some(), &told);
    if let Some(what) = differing(row, 0, &RUN_COLUMNS, &told_columns)? {
        note(FindingCode::RunDiffers, what);
    }
    if told.control.thread.as_str() != around.thread {
        note(FindingCode::RunDiffers, format!("the log says that it is on thread {}", told.control.thread));
    }
    let control = control_fault(&run.control, &told);
    let faults = [control, lease_fault(around, run, &told), parent_fault(around, run, &told)?];
    for Fault { code, what } in faults.into_iter().flatten() {
        note(code, what);
    }
    let inbox = inbox(around, run, &mut note)?;
    suspensions(around, run, &told, &inbox, &mut note)?;
    decisions(around, run, &told, &mut note)?;
    children(around, &told.control, &inbox, &mut note)?;
    if !run.ended && !revisions::is_there(around.connection, run.row, &told.control.revision)? {
        note(
            FindingCode::RevisionDiffers,
            format!("its frozen agent {} is not stored", told.control.revision),
        );
    }
    Ok(Some(told))
}

fn lease_fault(around: &Around<'_>, run: &RunColumns, told: &Told) -> Option<Fault> {
    let of_this_file = run.epoch == 0 || run.epoch >> 32 < around.openings;
    if told.epoch <= run.epoch && of_this_file {
        return None;
    }
    let what = format!(
        "its lease has epoch {}; the log knows {}, and the file was opened {} times",
        run.epoch, told.epoch, around.openings
    );
    Some(broken(FindingCode::RunDiffers, what))
}

/// A parent that is gone went with its thread; one that is there is the one that the log names.
fn parent_fault(around: &Around<'_>, run: &RunColumns, told: &Told) -> rusqlite::Result<Option<Fault>> {
    let Some(row) = run.parent else { return Ok(None) };
    let mut statement = around.connection.prepare_cached("SELECT tenant, id FROM runs WHERE row = ?1")?;
    let found = statement.query_row([row], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let found: Option<(String, String)> = found;
    let named = told.control.parent.as_ref().map(|parent| parent.run_id.as_str());
    let fits = match (&found, named) {
        (Some((tenant, id)), Some(named)) => tenant == around.tenant && id == named,
        (None, Some(_)) => true,
        (_, None) => false,
    };
    if fits {
        return Ok(None);
    }
    let found = found.map_or_else(|| row.to_string(), |(_, id)| id);
    let named = named.unwrap_or("none");
    Ok(Some(broken(FindingCode::RunDiffers, format!("its parent is {found}, the log says {named}"))))
}

/// What waits for the run.
#[derive(Default)]
struct Inbox {
    tickets: BTreeSet<i64>,
    ended_children: BTreeSet<RunId>,
}

fn inbox(
    around: &Around<'_>,
    run: &RunColumns,
    note: &mut impl FnMut(FindingCode, String),
) -> Result<Inbox, Fault> {
    let mut statement = around.connection.prepare_cached(
        "SELECT ticket, item, tenant, kind, call, arguments FROM inbox WHERE run = ?1 ORDER BY ticket",
    )?;
    let mut rows = statement.query([run.row])?;
    let mut inbox = Inbox::default();
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
        let told = inbox_columns(around.tenant, &item);
        if let Some(what) = differing(row, 2, &INBOX_COLUMNS, &told)? {
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
    around: &Around<'_>,
    run: &RunColumns,
    told: &Told,
    inbox: &Inbox,
    note: &mut impl FnMut(FindingCode, String),
) -> Result<(), Fault> {
    let columns = SUSPENSION_COLUMNS.join(", ");
    let sql = format!("SELECT id, answered_by, {columns} FROM suspensions WHERE run = ?1");
    let mut statement = around.connection.prepare_cached(&sql)?;
    let mut rows = statement.query([run.row])?;
    let mut seen = BTreeSet::new();
    while let Some(row) = rows.next()? {
        let id = SuspensionId::from(row.get::<_, String>(0)?);
        let Some(suspension) = told.suspensions.get(&id) else {
            note(FindingCode::SuspensionDiffers, format!("suspension {id} is not in the log"));
            continue;
        };
        let told_values = suspension.values(around.tenant);
        if let Some(what) = differing(row, 2, &SUSPENSION_COLUMNS, &told_values)? {
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
    for id in told.suspensions.keys().filter(|id| !seen.contains(*id)) {
        note(FindingCode::SuspensionDiffers, format!("suspension {id} of the log has no row"));
    }
    Ok(())
}

/// A decision that closed nothing stands in no event, so only one direction can be asked for.
fn decisions(
    around: &Around<'_>,
    run: &RunColumns,
    told: &Told,
    note: &mut impl FnMut(FindingCode, String),
) -> Result<(), Fault> {
    let mut statement =
        around.connection.prepare_cached("SELECT tenant, id, decision FROM decisions WHERE run = ?1")?;
    let mut rows = statement.query([run.row])?;
    let mut seen = BTreeSet::new();
    while let Some(row) = rows.next()? {
        let (tenant, id): (String, String) = (row.get(0)?, row.get(1)?);
        let id = DecisionId::from(id);
        let decision = row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?;
        if let Some(Fault { code, what }) = decision_fault(around.tenant, &id, &tenant, decision) {
            note(code, what);
        }
        seen.insert(id);
    }
    for id in told.decisions.iter().filter(|id| !seen.contains(*id)) {
        note(FindingCode::DecisionDiffers, format!("decision {id} of the log is not remembered"));
    }
    Ok(())
}

/// Whoever works on a call is under way, or its end waits in the inbox.
fn children(
    around: &Around<'_>,
    control: &Control,
    inbox: &Inbox,
    note: &mut impl FnMut(FindingCode, String),
) -> Result<(), Fault> {
    for (call, child) in awaited_children(control) {
        let mut statement = around
            .connection
            .prepare_cached("SELECT ended_at IS NULL FROM runs WHERE tenant = ?1 AND id = ?2")?;
        let under_way: Option<bool> =
            statement.query_row(params![around.tenant, child.as_str()], |row| row.get(0)).optional()?;
        if under_way != Some(true) && !inbox.ended_children.contains(child) {
            note(FindingCode::ChildLost, format!("call {call} waits for run {child}, which is over or gone"));
        }
    }
    Ok(())
}
