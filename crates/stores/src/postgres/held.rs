//! Every call that is held in a database, found beside its nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::store::{StoreError, StoreFailure, Tenant};
use machine::Control;
use machine::control::ControlDecodeError;
use machine::id::{AgentName, CallId, Digest, RunId};

use super::doctor::log::{Page, commit_of};
use super::look::Look;
use super::stored_run::event;
use super::text::told;
use super::trouble::{Stop, corrupt};
use super::upkeep::Upkeep;
use crate::doctor::{Fault, Log};
use crate::held::{Holder, Surveyed, UnreadableCall};
use crate::words::{kind_of, unsigned};

/// So many are read in one short transaction.
const SCAN_COUNT_MAX: i64 = 64;
/// Of one run after the other, so that its control is decoded once; each with the event that holds it.
const SCAN: &str = "SELECT s.run, s.call, s.seq, split_part(c.body, E'\\n', (s.seq - c.first_seq + 1)::integer), s.kind
    FROM (
        SELECT run, call, seq, kind FROM suspensions
        WHERE status = 'pending' AND (run, call) > ($1, $2) ORDER BY run, call LIMIT $3
    ) AS s
    LEFT JOIN LATERAL (
        SELECT first_seq, body FROM commits WHERE commits.run = s.run AND last_seq >= s.seq ORDER BY last_seq LIMIT 1
    ) AS c ON true
    ORDER BY s.run, s.call";
/// One that came with a message of the run's thread, or one of the configuration.
const REVISION: &str =
    "SELECT b.text FROM runs r JOIN brought b ON b.thread = r.thread WHERE r.run = $1 AND b.digest = $2
    UNION ALL SELECT text FROM revisions WHERE digest = $2 LIMIT 1";

/// By its digest, as it is stored.
type Revisions = BTreeMap<Digest, Arc<str>>;

impl Upkeep {
    /// Judges every held call, without a change, in the order of runs and calls. `progress` hears how many there were
    /// so far.
    pub async fn held_calls<T>(
        &self,
        mut judge: impl FnMut(&Surveyed) -> T,
        mut progress: impl FnMut(u64),
    ) -> Result<Vec<T>, StoreError> {
        let mut judged = Vec::new();
        let mut behind = (i64::MIN, String::new());
        let mut revisions = Revisions::new();
        while let Some(last) = self
            .scan(&behind, &mut revisions, |held| judged.push(judge(held)))
            .await
            .map_err(|Stop(refused)| refused)?
        {
            behind = last;
            progress(judged.len() as u64);
        }
        Ok(judged)
    }

    /// The next held calls, as they are at one moment. Gives the last one, or none if there are no more.
    async fn scan(
        &self,
        behind: &(i64, String),
        revisions: &mut Revisions,
        mut found: impl FnMut(&Surveyed),
    ) -> Result<Option<(i64, String)>, Stop> {
        let mut client = self.connections.client().await?;
        let look = Look::begin(&self.connections, &mut client).await?;
        let rows = look.read(SCAN, &[&behind.0, &behind.1, &SCAN_COUNT_MAX]).await?;
        let mut of_run: Option<(i64, Holder)> = None;
        let mut last = None;
        for row in &rows {
            let (run, call, seq): (i64, String, u64) =
                (row.try_get(0)?, row.try_get(1)?, unsigned(row.try_get(2)?));
            let line: Option<&str> = row.try_get(3)?;
            let id = CallId::from(told(call.clone()));
            let holder = match of_run.take() {
                Some((known, holder)) if known == run => Ok(holder),
                Some(_) | None => holder(&look, run, revisions).await,
            };
            let held = holder.and_then(|holder| {
                let held =
                    event(line.unwrap_or_default(), seq).and_then(|event| Ok(holder.held(&id, &event)?));
                of_run = Some((run, holder));
                held
            });
            found(&match held {
                Ok(held) => Surveyed::Call(Box::new(held)),
                Err(Stop(StoreError::Failed(StoreFailure::Corrupt(_)))) => {
                    Surveyed::Unreadable(unreadable(&look, run, id, row.try_get(4)?).await?)
                }
                Err(stop) => return Err(stop),
            });
            last = Some((run, call));
        }
        look.end().await?;
        Ok(last)
    }
}

async fn unreadable(look: &Look<'_>, run: i64, call: CallId, kind: &str) -> Result<UnreadableCall, Stop> {
    let rows = look.read("SELECT tenant, id, agent FROM runs WHERE run = $1", &[&run]).await?;
    let row = rows.first().ok_or_else(|| corrupt(format!("run {run} is not there")))?;
    Ok(UnreadableCall {
        tenant: Tenant::from(told(row.try_get(0)?).as_str()),
        run: RunId::from(told(row.try_get(1)?)),
        agent: AgentName::from(told(row.try_get(2)?)),
        call,
        kind: kind_of(kind)?,
    })
}

async fn holder(look: &Look<'_>, run: i64, revisions: &mut Revisions) -> Result<Holder, Stop> {
    let rows = look.read("SELECT tenant, control FROM runs WHERE run = $1", &[&run]).await?;
    let row = rows.first().ok_or_else(|| corrupt(format!("run {run} is not there")))?;
    let tenant = told(row.try_get(0)?);
    let control = match Control::decode_read_only(row.try_get(1)?) {
        Ok(control) => control,
        Err(ControlDecodeError::UnsupportedVersion(_)) => folded(look, run, &tenant).await?,
        Err(ControlDecodeError::Corrupt(why)) => {
            return Err(corrupt(format!("control of run {run}: {why}")));
        }
    };
    let revision = match revisions.get(&control.revision) {
        Some(known) => known.clone(),
        None => {
            let digest = control.revision.0.as_slice();
            let rows = look.read(REVISION, &[&run, &digest]).await?;
            let row = rows.first().ok_or_else(|| corrupt(format!("run {} has no revision", control.run)))?;
            let text: Arc<str> = Arc::from(told(row.try_get(0)?));
            revisions.insert(control.revision, text.clone());
            text
        }
    };
    Ok(Holder { tenant: Tenant::from(tenant.as_str()), control, revision })
}

/// A control that another fold wrote is folded anew from the log.
async fn folded(look: &Look<'_>, run: i64, tenant: &str) -> Result<Control, Stop> {
    let (mut log, mut after) = (Log::default(), 0);
    loop {
        let page = Page::read(look, run, after).await?;
        for row in &page.rows {
            let owner = told(row.try_get(0)?);
            let commit = commit_of(row, &owner)?;
            after = commit.last_seq;
            log.read(tenant, &commit).map_err(|fault| broken_log(run, &fault))?;
        }
        if page.is_last {
            return Ok(log.end().map_err(|fault| broken_log(run, &fault))?.control);
        }
    }
}

fn broken_log(run: i64, fault: &Fault) -> Stop {
    corrupt(format!("log of run {run}: {}", fault.what))
}
