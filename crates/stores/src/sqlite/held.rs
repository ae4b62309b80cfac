//! Every call that is held, with what it was held with: for whoever wants to know what another configuration would do.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use engine::store::{Refused, Tenant, Trouble};
use machine::call::Call;
use machine::event::{Fact, Opened};
use machine::id::{AgentName, CallId, RunId};
use rusqlite::{Connection, OptionalExtension, params};

use super::look::{LookFailed, look};
use super::stored_run::{control_of, event_at};
use super::trouble::{Stop, corrupt};
use super::words::unsigned;

/// So many suspensions are read in one short transaction.
const SCAN_COUNT_MAX: i64 = 256;
/// Of one run after the other, so that its control is decoded once.
const SCAN: &str = "SELECT run, call, seq FROM suspensions \
    WHERE status = 'pending' AND (run, call) > (?1, ?2) ORDER BY run, call LIMIT ?3";

/// One held call.
#[derive(Clone, Debug)]
pub struct HeldCall {
    pub tenant: Tenant,
    pub run: RunId,
    pub agent: AgentName,
    /// The frozen agent that the run is pinned to, as it is stored.
    pub revision: Arc<str>,
    pub call: Call,
    /// What was asked.
    pub opened: Opened,
}

/// Judges every held call, found without the lock of the file and without a change, in the order of runs and calls.
/// `progress` hears how many there were so far. A call is judged twice, and counted once, where the file was written
/// to at the wrong moment.
pub fn survey<T>(
    path: impl AsRef<Path>,
    mut judge: impl FnMut(&HeldCall) -> T,
    mut progress: impl FnMut(u64),
) -> Result<Vec<T>, LookFailed> {
    look(path.as_ref(), |connection| {
        let mut judged = Vec::new();
        let mut behind = (i64::MIN, String::new());
        let mut revisions = BTreeMap::new();
        while let Some(last) = scan(connection, &behind, &mut revisions, |held| judged.push(judge(held)))
            .map_err(|Stop(refused)| failed(refused))?
        {
            behind = last;
            progress(judged.len() as u64);
        }
        Ok(judged)
    })
}

pub(super) fn failed(refused: Refused) -> LookFailed {
    match refused {
        Refused::Trouble(trouble) => LookFailed::Trouble(trouble),
        other @ (Refused::Fenced
        | Refused::Behind
        | Refused::Stale
        | Refused::Impossible(_)
        | Refused::NotFound) => LookFailed::Trouble(Trouble::Corrupt(other.to_string())),
    }
}

/// The next held calls, as they are at one moment. Gives the last one, or none if there are no more.
fn scan(
    connection: &Connection,
    behind: &(i64, String),
    revisions: &mut BTreeMap<[u8; 32], Arc<str>>,
    mut found: impl FnMut(&HeldCall),
) -> Result<Option<(i64, String)>, Stop> {
    let moment = connection.unchecked_transaction()?;
    let mut statement = connection.prepare_cached(SCAN)?;
    let rows = statement.query_map(params![behind.0, behind.1, SCAN_COUNT_MAX], |row| {
        Ok((row.get(0)?, row.get(1)?, unsigned(row.get(2)?)))
    })?;
    let rows: Vec<(i64, String, u64)> = rows.collect::<rusqlite::Result<_>>()?;
    let mut of_run: Option<(i64, Holder)> = None;
    for (row, call, seq) in &rows {
        let holder = match of_run.take() {
            Some((known, holder)) if known == *row => holder,
            Some(_) | None => Holder::find(connection, *row, revisions)?,
        };
        found(&holder.held(connection, *row, call, *seq)?);
        of_run = Some((*row, holder));
    }
    drop(statement);
    drop(moment);
    Ok(rows.into_iter().next_back().map(|(row, call, _)| (row, call)))
}

/// A run that holds calls.
struct Holder {
    tenant: Tenant,
    control: machine::Control,
    revision: Arc<str>,
}

impl Holder {
    fn find(
        connection: &Connection,
        row: i64,
        revisions: &mut BTreeMap<[u8; 32], Arc<str>>,
    ) -> Result<Self, Stop> {
        let mut statement = connection.prepare_cached("SELECT tenant, control FROM runs WHERE row = ?1")?;
        let (tenant, control): (String, Vec<u8>) =
            statement.query_row([row], |columns| Ok((columns.get(0)?, columns.get(1)?)))?;
        let control = control_of(connection, row, &control)?;
        let digest = control.revision.0;
        let revision = match revisions.get(&digest) {
            Some(known) => known.clone(),
            None => {
                let mut statement =
                    connection.prepare_cached("SELECT text FROM revisions WHERE digest = ?1")?;
                let text: Option<String> =
                    statement.query_row([&digest[..]], |columns| columns.get(0)).optional()?;
                let text = text.ok_or_else(|| corrupt(format!("run {} has no revision", control.run)))?;
                let text: Arc<str> = Arc::from(text);
                revisions.insert(digest, text.clone());
                text
            }
        };
        Ok(Self { tenant: Tenant::from(tenant.as_str()), control, revision })
    }

    fn held(&self, connection: &Connection, row: i64, call: &str, seq: u64) -> Result<HeldCall, Stop> {
        let control = &self.control;
        let known = control.call(&CallId::from(call));
        let known = known.ok_or_else(|| corrupt(format!("run {} knows no call {call}", control.run)))?;
        let event = event_at(connection, row, seq)?;
        let (Fact::ApprovalRequested(opened) | Fact::ToolSuspended(opened)) = &event.fact else {
            return Err(corrupt(format!("event {seq} of run {} holds no call", control.run)));
        };
        Ok(HeldCall {
            tenant: self.tenant.clone(),
            run: control.run.clone(),
            agent: control.agent.clone(),
            revision: self.revision.clone(),
            call: known.clone(),
            opened: opened.clone(),
        })
    }
}
