//! Lists every held call in a file.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use engine::store::{StoreError, StoreFailure, Tenant};
use machine::id::{AgentName, CallId, RunId};
use rusqlite::{Connection, params};

use super::errors::{SqliteError, corrupt};
use super::inspect::{InspectError, inspect};
use super::revisions;
use super::stored_run::{control_to_show, event_at};
use crate::columns::{parse_suspension_kind, to_u64};
use crate::held_calls::{HeldCall, HoldingRun, SurveyedCall, UnreadableCall};

/// Maximum number of suspensions read in one short transaction.
const SCAN_COUNT_MAX: i64 = 256;
/// Grouped by run, so that each control is decoded once.
const SCAN: &str = "SELECT run, call, seq, kind FROM suspensions \
    WHERE status = 'pending' AND (run, call) > (?1, ?2) ORDER BY run, call LIMIT ?3";

/// Judges every held call in the order of runs and calls, without locking or changing the file. `progress` receives the
/// number of calls so far. If the file was written to at the wrong moment, a call may be judged twice, but it is
/// counted once.
pub fn survey<T>(
    path: impl AsRef<Path>,
    mut judge: impl FnMut(&SurveyedCall) -> T,
    mut progress: impl FnMut(u64),
) -> Result<Vec<T>, InspectError> {
    inspect(path.as_ref(), |connection| {
        let mut judged = Vec::new();
        let mut after = (i64::MIN, String::new());
        let mut known = BTreeMap::new();
        while let Some(last) = scan(connection, &after, &mut known, |held| judged.push(judge(held)))
            .map_err(|SqliteError(refused)| failed(refused))?
        {
            after = last;
            progress(judged.len() as u64);
        }
        Ok(judged)
    })
}

pub(super) fn failed(refused: StoreError) -> InspectError {
    match refused {
        StoreError::Failed(trouble) => InspectError::Trouble(trouble),
        other @ (StoreError::Fenced
        | StoreError::Behind
        | StoreError::Stale
        | StoreError::Busy(_)
        | StoreError::Impossible(_)
        | StoreError::NotFound) => InspectError::Trouble(StoreFailure::Corrupt(other.to_string())),
    }
}

/// The next held calls, in one snapshot. Returns the last one, or none if there are no more.
fn scan(
    connection: &Connection,
    after: &(i64, String),
    known: &mut BTreeMap<[u8; 32], Arc<str>>,
    mut found: impl FnMut(&SurveyedCall),
) -> Result<Option<(i64, String)>, SqliteError> {
    let snapshot = connection.unchecked_transaction()?;
    let mut statement = connection.prepare_cached(SCAN)?;
    let rows = statement.query_map(params![after.0, after.1, SCAN_COUNT_MAX], |row| {
        Ok(OpenSuspension {
            run: row.get(0)?,
            call: row.get(1)?,
            seq: to_u64(row.get(2)?),
            kind: row.get(3)?,
        })
    })?;
    let rows: Vec<OpenSuspension> = rows.collect::<rusqlite::Result<_>>()?;
    let mut of_run: Option<(i64, HoldingRun)> = None;
    for row in &rows {
        found(&match held(connection, row, &mut of_run, known) {
            Ok(held) => SurveyedCall::Call(Box::new(held)),
            Err(SqliteError(StoreError::Failed(StoreFailure::Corrupt(_)) | StoreError::NotFound)) => {
                SurveyedCall::Unreadable(unreadable(connection, row)?)
            }
            Err(error) => return Err(error),
        });
    }
    drop(statement);
    drop(snapshot);
    Ok(rows.into_iter().next_back().map(|row| (row.run, row.call)))
}

/// An open suspension.
struct OpenSuspension {
    run: i64,
    call: String,
    seq: u64,
    kind: String,
}

fn held(
    connection: &Connection,
    row: &OpenSuspension,
    of_run: &mut Option<(i64, HoldingRun)>,
    known: &mut BTreeMap<[u8; 32], Arc<str>>,
) -> Result<HeldCall, SqliteError> {
    let holder = match of_run.take() {
        Some((of, holder)) if of == row.run => holder,
        Some(_) | None => holder(connection, row.run, known)?,
    };
    let event = event_at(connection, row.run, row.seq);
    let held = event.and_then(|event| Ok(holder.held_call(&CallId::from(row.call.as_str()), &event)?));
    *of_run = Some((row.run, holder));
    held
}

fn unreadable(connection: &Connection, row: &OpenSuspension) -> Result<UnreadableCall, SqliteError> {
    let mut statement = connection.prepare_cached("SELECT tenant, id, agent FROM runs WHERE row = ?1")?;
    let (tenant, run, agent): (String, String, String) =
        statement.query_row([row.run], |columns| Ok((columns.get(0)?, columns.get(1)?, columns.get(2)?)))?;
    Ok(UnreadableCall {
        tenant: Tenant::from(tenant.as_str()),
        run: RunId::from(run),
        agent: AgentName::from(agent),
        call: CallId::from(row.call.as_str()),
        kind: parse_suspension_kind(&row.kind)?,
    })
}

fn holder(
    connection: &Connection,
    row: i64,
    known: &mut BTreeMap<[u8; 32], Arc<str>>,
) -> Result<HoldingRun, SqliteError> {
    let mut statement = connection.prepare_cached("SELECT tenant, control FROM runs WHERE row = ?1")?;
    let (tenant, control): (String, Vec<u8>) =
        statement.query_row([row], |columns| Ok((columns.get(0)?, columns.get(1)?)))?;
    let control = control_to_show(connection, row, &control)?;
    let digest = control.revision.0;
    let revision = match known.get(&digest) {
        Some(text) => text.clone(),
        None => {
            let text = revisions::for_run(connection, row, &control.revision)?;
            let text = text.ok_or_else(|| corrupt(format!("run {} has no revision", control.run)))?;
            let text: Arc<str> = Arc::from(text);
            known.insert(digest, text.clone());
            text
        }
    };
    Ok(HoldingRun { tenant: Tenant::from(tenant.as_str()), control, revision })
}
