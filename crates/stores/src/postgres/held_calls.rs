//! Lists every held call in a database, independently of its nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::store::{StoreError, StoreFailure, Tenant};
use machine::Control;
use machine::control::ControlDecodeError;
use machine::id::{AgentName, CallId, Digest, RunId};

use super::doctor::rows::commits;
use super::errors::{PostgresError, corrupt};
use super::nul_escape::unescape;
use super::snapshot::Snapshot;
use super::stored_run::parse_event;
use super::upkeep::Upkeep;
use crate::columns::{parse_suspension_kind, to_u64};
use crate::doctor::{Fault, LogFold};
use crate::held_calls::{HoldingRun, SurveyedCall, UnreadableCall};

/// Held calls read in one short transaction.
const SCAN_COUNT_MAX: i64 = 64;
/// Ordered by run, so that each control is decoded once; each call comes with the event that holds it.
const SCAN: &str = "SELECT s.run, s.call, s.seq, split_part(c.body, E'\\n', (s.seq - c.first_seq + 1)::integer), s.kind
    FROM (
        SELECT run, call, seq, kind FROM suspensions
        WHERE status = 'pending' AND (run, call) > ($1, $2) ORDER BY run, call LIMIT $3
    ) AS s
    LEFT JOIN LATERAL (
        SELECT first_seq, body FROM commits WHERE commits.run = s.run AND last_seq >= s.seq ORDER BY last_seq LIMIT 1
    ) AS c ON true
    ORDER BY s.run, s.call";
/// An inline agent that came with a message of the run's thread, or one of the configuration.
const REVISION: &str =
    "SELECT b.text FROM runs r JOIN brought b ON b.thread = r.thread WHERE r.run = $1 AND b.digest = $2
    UNION ALL SELECT text FROM revisions WHERE digest = $2 LIMIT 1";

/// The stored text of each revision, by its digest.
type Revisions = BTreeMap<Digest, Arc<str>>;

impl Upkeep {
    /// Passes every held call to `judge`, in the order of runs and calls, and changes nothing. `progress` receives the
    /// number of calls so far.
    pub async fn held_calls<T>(
        &self,
        mut judge: impl FnMut(&SurveyedCall) -> T,
        mut progress: impl FnMut(u64),
    ) -> Result<Vec<T>, StoreError> {
        let mut judged = Vec::new();
        let mut after = (i64::MIN, String::new());
        let mut revisions = Revisions::new();
        while let Some(last) = self
            .scan(&after, &mut revisions, |held| judged.push(judge(held)))
            .await
            .map_err(|PostgresError(refused)| refused)?
        {
            after = last;
            progress(judged.len() as u64);
        }
        Ok(judged)
    }

    /// Reads the next held calls in one snapshot. Returns the last one, or `None` if there are no more.
    async fn scan(
        &self,
        after: &(i64, String),
        revisions: &mut Revisions,
        mut found: impl FnMut(&SurveyedCall),
    ) -> Result<Option<(i64, String)>, PostgresError> {
        let mut client = self.connections.client().await?;
        let snapshot = Snapshot::begin(&self.connections, &mut client).await?;
        let rows = snapshot.read(SCAN, &[&after.0, &after.1, &SCAN_COUNT_MAX]).await?;
        let mut of_run: Option<(i64, HoldingRun)> = None;
        let mut last = None;
        for row in &rows {
            let (run, call, seq): (i64, String, u64) =
                (row.try_get(0)?, row.try_get(1)?, to_u64(row.try_get(2)?));
            let line: Option<&str> = row.try_get(3)?;
            let id = CallId::from(unescape(call.clone()));
            let holder = match of_run.take() {
                Some((known, holder)) if known == run => Ok(holder),
                Some(_) | None => holder(&snapshot, run, revisions).await,
            };
            let held = holder.and_then(|holder| {
                let held = parse_event(line.unwrap_or_default(), seq)
                    .and_then(|event| Ok(holder.held_call(&id, &event)?));
                of_run = Some((run, holder));
                held
            });
            found(&match held {
                Ok(held) => SurveyedCall::Call(Box::new(held)),
                Err(PostgresError(StoreError::Failed(StoreFailure::Corrupt(_)))) => {
                    SurveyedCall::Unreadable(unreadable(&snapshot, run, id, row.try_get(4)?).await?)
                }
                Err(error) => return Err(error),
            });
            last = Some((run, call));
        }
        snapshot.end().await?;
        Ok(last)
    }
}

async fn unreadable(
    snapshot: &Snapshot<'_>,
    run: i64,
    call: CallId,
    kind: &str,
) -> Result<UnreadableCall, PostgresError> {
    let rows = snapshot.read("SELECT tenant, id, agent FROM runs WHERE run = $1", &[&run]).await?;
    let row = rows.first().ok_or_else(|| corrupt(format!("run {run} does not exist")))?;
    Ok(UnreadableCall {
        tenant: Tenant::from(unescape(row.try_get(0)?).as_str()),
        run: RunId::from(unescape(row.try_get(1)?)),
        agent: AgentName::from(unescape(row.try_get(2)?)),
        call,
        kind: parse_suspension_kind(kind)?,
    })
}

async fn holder(
    snapshot: &Snapshot<'_>,
    run: i64,
    revisions: &mut Revisions,
) -> Result<HoldingRun, PostgresError> {
    let rows = snapshot.read("SELECT tenant, control FROM runs WHERE run = $1", &[&run]).await?;
    let row = rows.first().ok_or_else(|| corrupt(format!("run {run} does not exist")))?;
    let tenant = unescape(row.try_get(0)?);
    let control = match Control::decode_read_only(row.try_get(1)?) {
        Ok(control) => control,
        Err(ControlDecodeError::UnsupportedVersion(_)) => fold_log(snapshot, run, &tenant).await?,
        Err(ControlDecodeError::Corrupt(why)) => {
            return Err(corrupt(format!("control of run {run}: {why}")));
        }
    };
    let revision = match revisions.get(&control.revision) {
        Some(known) => known.clone(),
        None => {
            let digest = control.revision.0.as_slice();
            let rows = snapshot.read(REVISION, &[&run, &digest]).await?;
            let row = rows.first().ok_or_else(|| corrupt(format!("run {} has no revision", control.run)))?;
            let text: Arc<str> = Arc::from(unescape(row.try_get(0)?));
            revisions.insert(control.revision, text.clone());
            text
        }
    };
    Ok(HoldingRun { tenant: Tenant::from(tenant.as_str()), control, revision })
}

/// A control that was written by another version of the fold is folded again from the log.
async fn fold_log(snapshot: &Snapshot<'_>, run: i64, tenant: &str) -> Result<Control, PostgresError> {
    let (mut log, mut after) = (LogFold::default(), 0);
    loop {
        let page = commits(snapshot, run, after).await?;
        for commit in &page.commits {
            after = commit.last_seq;
            log.fold_commit(tenant, commit).map_err(|fault| broken_log(run, &fault))?;
        }
        if page.is_last {
            return Ok(log.finish().map_err(|fault| broken_log(run, &fault))?.control);
        }
    }
}

fn broken_log(run: i64, fault: &Fault) -> PostgresError {
    corrupt(format!("log of run {run}: {}", fault.what))
}
