//! The commits: an append, a creation, a submitted item. Each is one statement, and so one round trip and one
//! transaction. The answer of its database function is the outcome.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::store::{Append, Appended, Create, Created, Lease, PostKey, StoreError, Tenant, ThreadView};
use machine::event::InterruptCause;
use machine::id::{MessageId, RunId, ThreadId};
use machine::inbox::{Item, SubmitContext, Verdict, judge_after_end, judge_item};
use machine::thread::{Admission, Busy, IfBusy, QUEUE_MAX, QUEUE_WITH_SUPERSEDING_MAX};
use machine::undecodable::judge_without_control;
use serde::Serialize;
use tokio_postgres::Row;

use super::PostgresShared;
use super::batch_commit::{BatchOutcome, LeasedRun, is_plain, is_plain_creation};
use super::binding::{AdmissionRequest, BoundCommit, BoundItem};
use super::errors::{PostgresError, corrupt, impossible, unavailable};
use super::notify::WakeTarget;
use super::nul_escape::{escape, unescape};
use super::stored_run::{control_to_show, parse_item};
use crate::columns::to_i64;
use crate::encoded_commit::{EncodedCommit, EncodedItem};

/// How often an item is judged again because the run changed in between.
const JUDGE_COUNT_MAX: usize = 64;

/// The version of a newly created run.
const CREATED_VERSION: u64 = 1;

/// Where and how a run is created.
struct CreationRequest {
    tenant: Tenant,
    seen: ThreadView,
    if_busy: IfBusy,
    starts: bool,
    begins_after: Option<MessageId>,
    key: Option<PostKey>,
}

/// The verdict on an item.
struct JudgedItem {
    number: i64,
    /// Detects a change of the state that the verdict is based on.
    version: i64,
    verdict: Verdict,
}

impl PostgresShared {
    pub(super) async fn append(
        self: &Arc<Self>,
        lease: &Lease,
        append: Append,
    ) -> Result<Appended, PostgresError> {
        let node = self.leases.node().filter(|_| self.leases.is_current(lease)).ok_or(StoreError::Fenced)?;
        let expected_seq = to_i64(append.expected_seq);
        let commit = match EncodedCommit::from_append(lease.tenant.as_str(), append) {
            Ok(commit) => Arc::new(commit),
            // A fenced worker gets `Fenced` first, whatever its commit looks like.
            Err(refused) => {
                let sql = "SELECT seq = $2 FROM runs WHERE run = $1";
                let rows = self.connections.read(sql, &[&lease.row, &expected_seq]).await?;
                let current = rows.first().map(|row| row.try_get::<_, bool>(0)).transpose()?;
                return Err(if current == Some(true) { refused } else { StoreError::Fenced }.into());
            }
        };
        let plain = is_plain(&commit) && commit.state.run == lease.run && commit.state.thread == lease.thread;
        let appended =
            if plain { self.append_plain(lease, commit.clone()).await? } else { BatchOutcome::SendAlone };
        let woken = match appended {
            BatchOutcome::Stored => Vec::new(),
            BatchOutcome::SendAlone => self.append_alone(lease, node, &commit).await?,
        };
        self.counters.count_commit(commit.bytes);
        self.notify_peers(lease, &commit);
        if commit.state.summary.status.ended() {
            self.leases.forget(lease);
        } else {
            self.leases.set_stored_seq(lease, commit.state.seq);
        }
        Ok(Appended { woken, version: commit.expected_version + 1 })
    }

    /// Returns the runs that it woke.
    pub(super) async fn append_alone(
        &self,
        lease: &Lease,
        node: i64,
        commit: &EncodedCommit,
    ) -> Result<Vec<RunId>, PostgresError> {
        let bound = json(&BoundCommit::new(lease.tenant.as_str(), &lease.run, commit))?;
        let body = commit.log.as_ref().map(|log| log.body.as_str());
        let links = commit.log.as_ref().map(|log| &log.links);
        let anchor = links.and_then(|links| links.anchor.as_ref()).map(|anchor| anchor.0.as_slice());
        let content = links.map(|links| links.content.0.as_slice());
        let row = self
            .connections
            .write_one(
                "SELECT * FROM append($1, $2, $3, $4, $5, $6::text::jsonb, $7, $8, $9, $10, $11)",
                &[
                    &lease.row,
                    &node,
                    &to_i64(lease.epoch),
                    &to_i64(commit.expected_seq),
                    &to_i64(commit.expected_version),
                    &bound,
                    &commit.state.control,
                    &body,
                    &anchor,
                    &content,
                    &self.clock.override_ms(),
                ],
            )
            .await?;
        match row.try_get(0)? {
            "held" => {}
            "behind" => return Err(StoreError::Behind.into()),
            "lapsed" => return Err(lease_lapsed()),
            "fenced" => return Err(StoreError::Fenced.into()),
            other => return Err(corrupt(format!("an append came to {other}"))),
        }
        self.counters.count_sync(1);
        self.woken(&row, 1)
    }

    pub(super) async fn create(self: &Arc<Self>, create: Create) -> Result<Created, PostgresError> {
        let Create { tenant, seen, if_busy, begins_after, key, inline_agent, lease, append } = create;
        key.as_ref().map_or(Ok(()), PostKey::check)?;
        let commit = Arc::new(EncodedCommit::for_creation(tenant.as_str(), append, inline_agent)?);
        check_first_commit(&seen, &commit)?;
        let leased = lease && !commit.state.summary.status.ended();
        let alone = begins_after.is_some() || key.is_some() || commit.state.parent.is_some();
        if leased
            && !alone
            && is_plain_creation(&commit)
            && let Some(LeasedRun { node, run }) = self.create_plain(&tenant, &seen, commit.clone()).await?
        {
            self.counters.count_commit(commit.bytes);
            let lease = Some(self.record_lease(node, run, &tenant, &commit));
            self.notify_thread(&tenant, &commit.state.thread);
            return Ok(Created {
                admission: Admission::Hold,
                lease,
                woken: Vec::new(),
                version: CREATED_VERSION,
            });
        }
        let node = if leased { Some(self.ensure_joined().await?) } else { None };
        let creation = CreationRequest { tenant, seen, if_busy, starts: lease, begins_after, key };
        self.create_alone(&creation, node, &commit).await
    }

    async fn create_alone(
        &self,
        creation: &CreationRequest,
        node: Option<i64>,
        commit: &EncodedCommit,
    ) -> Result<Created, PostgresError> {
        let CreationRequest { tenant, seen, if_busy, starts, begins_after, key } = creation;
        let cause = InterruptCause::Superseded(commit.state.run.clone());
        let superseded = EncodedItem::encode(Item::Interrupt { cause })?;
        let bound = BoundCommit::new(tenant.as_str(), &commit.state.run, commit);
        let bound = json(&bound.with_creation(commit, begins_after.as_ref(), key.as_ref(), &superseded))?;
        let asked = json(&AdmissionRequest::new(seen, *if_busy, *starts))?;
        let body = commit.log.as_ref().map(|log| log.body.as_str());
        let hash = commit.log.as_ref().and_then(|log| log.links.hash_after(None));
        let row = self
            .connections
            .write_one(
                "SELECT * FROM create_run($1, $2, $3::text::jsonb, $4::text::jsonb, $5, $6, $7, $8, $9)",
                &[
                    &escape(tenant.as_str()),
                    &escape(seen.id.as_str()),
                    &asked,
                    &bound,
                    &commit.state.control,
                    &body,
                    &hash.as_ref().map(|hash| hash.0.as_slice()),
                    &node,
                    &self.clock.override_ms(),
                ],
            )
            .await?;
        let front = || -> Result<RunId, PostgresError> { Ok(RunId::from(unescape(row.try_get(5)?))) };
        let admission = match row.try_get(0)? {
            "hold" => Admission::Hold,
            "enqueue" => Admission::Enqueue,
            "take_over" => Admission::Supersede,
            "stale" => return Err(StoreError::Stale.into()),
            "gone" => return Err(StoreError::NotFound.into()),
            "active_run" => return Err(StoreError::Busy(Busy::ActiveRun(front()?)).into()),
            "in_doubt" => return Err(StoreError::Busy(Busy::InDoubt(front()?)).into()),
            "queue_full" => return Err(StoreError::Busy(Busy::QueueFull { max: QUEUE_MAX }).into()),
            "line_full" => {
                return Err(StoreError::Busy(Busy::QueueFull { max: QUEUE_WITH_SUPERSEDING_MAX }).into());
            }
            "lapsed" => return Err(lease_lapsed()),
            // The node's lease is gone; the next caller makes the node join again.
            "fenced" => {
                node.into_iter().for_each(|node| self.leases.lose(node));
                return Err(lease_lapsed());
            }
            other => return Err(corrupt(format!("a creation came to {other}"))),
        };
        self.counters.count_sync(1);
        self.counters.count_commit(commit.bytes);
        let woken = self.woken(&row, 2)?;
        let number = row.try_get(1)?;
        let lease = node.map(|node| self.record_lease(node, number, tenant, commit));
        self.notify_thread(tenant, &commit.state.thread);
        if lease.is_none() && admission == Admission::Hold {
            self.outgoing.queue_ready();
        }
        Ok(Created { admission, lease, woken, version: CREATED_VERSION })
    }

    /// Records the lease of a run that was created as held by this node.
    fn record_lease(&self, node: i64, row: i64, tenant: &Tenant, commit: &EncodedCommit) -> Lease {
        let (run, thread) = (commit.state.run.clone(), commit.state.thread.clone());
        let lease = Lease { tenant: tenant.clone(), thread, run, epoch: 1, row };
        self.leases.add(node, lease.clone(), commit.state.seq);
        lease
    }

    pub(super) async fn submit(
        &self,
        tenant: &Tenant,
        run: &RunId,
        item: Item,
    ) -> Result<Verdict, PostgresError> {
        let encoded = EncodedItem::encode(item)?;
        for _ in 0..JUDGE_COUNT_MAX {
            let JudgedItem { number, version, verdict } = self.judge(tenant, run, &encoded.item).await?;
            if !verdict.is_taken() {
                return Ok(verdict);
            }
            let bound = json(&BoundItem::from_item(&encoded))?;
            let sql = "SELECT * FROM submit($1, $2, $3::text::jsonb, $4)";
            let row = self
                .connections
                .write_one(sql, &[&number, &version, &bound, &self.clock.override_ms()])
                .await?;
            if row.try_get::<_, &str>(0)? == "taken" {
                self.counters.count_sync(1);
                self.counters.count_commit(
                    (encoded.text.len() + encoded.decision.as_ref().map_or(0, String::len)) as u64,
                );
                if let Some(node) = row.try_get::<_, Option<i64>>(1)? {
                    self.wake(WakeTarget { run: number, node });
                }
                if encoded.item.call().is_some() {
                    self.outgoing.queue_approvals(tenant, run);
                }
                return Ok(verdict);
            }
        }
        Err(unavailable(format!("the run changed {JUDGE_COUNT_MAX} times while an item for it was judged")))
    }

    /// The verdict, based on the current state.
    async fn judge(&self, tenant: &Tenant, run: &RunId, item: &Item) -> Result<JudgedItem, PostgresError> {
        let id = item.decision().and_then(|decision| decision.id.as_ref()).map(|id| escape(id.as_str()));
        let sql = include_str!("sql/run_shown.sql");
        let rows =
            self.connections.read(sql, &[&escape(tenant.as_str()), &escape(run.as_str()), &id]).await?;
        let row = rows.first().ok_or(StoreError::NotFound)?;
        let (number, version): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        let earlier = row.try_get::<_, Option<&str>>(4)?.map(serde_json::from_str).transpose();
        let earlier = earlier.map_err(|error| corrupt(error.to_string()))?;
        let ended: bool = row.try_get(6)?;
        // The remaining state of a run that was ended by its columns need not be decodable.
        if ended {
            return Ok(JudgedItem { number, version, verdict: judge_after_end(item, earlier.as_ref()) });
        }
        if let Some(verdict) = judge_without_control(item, ended, row.try_get(5)?) {
            return Ok(JudgedItem { number, version, verdict });
        }
        let control = control_to_show(&self.connections, number, row.try_get(2)?).await?;
        let inbox: Vec<&str> = row.try_get(3)?;
        let inbox = inbox.into_iter().map(parse_item).collect::<Result<Vec<_>, _>>()?;
        let context = SubmitContext { control: &control, inbox: &inbox, earlier: earlier.as_ref() };
        Ok(JudgedItem { number, version, verdict: judge_item(item, &context) })
    }

    /// The runs that a commit woke, from the column `first` on. Notifies the other nodes that hold some of them.
    fn woken(&self, row: &Row, first: usize) -> Result<Vec<RunId>, PostgresError> {
        let woken: Vec<String> = row.try_get(first)?;
        let (runs, nodes): (Vec<i64>, Vec<i64>) = (row.try_get(first + 1)?, row.try_get(first + 2)?);
        for (run, node) in runs.into_iter().zip(nodes) {
            self.wake(WakeTarget { run, node });
        }
        Ok(woken.into_iter().map(|id| RunId::from(unescape(id))).collect())
    }

    /// Notifies watchers of the run on other nodes, and clients there that list pending approvals. It is unknown
    /// whether such clients exist: polling would not find what they missed.
    pub(super) fn notify_peers(&self, lease: &Lease, commit: &EncodedCommit) {
        if commit.rows.changes_suspensions() {
            self.outgoing.queue_approvals(&lease.tenant, &lease.run);
        }
        if commit.log.is_some() && self.has_peers.load(Ordering::Relaxed) {
            self.outgoing.queue_committed(&commit.state.run);
        }
    }

    /// Notifies clients of other nodes that follow the thread: it has a new run, or is gone.
    pub(super) fn notify_thread(&self, tenant: &Tenant, thread: &ThreadId) {
        if self.has_peers.load(Ordering::Relaxed) {
            self.outgoing.queue_thread(tenant, thread);
        }
    }

    /// This node wakes the runs that it holds by itself.
    fn wake(&self, target: WakeTarget) {
        if self.leases.node() != Some(target.node) {
            self.outgoing.queue_run(target);
        }
    }
}

/// The node may not write until it has renewed its lease, which it tries continuously.
pub(super) fn lease_lapsed() -> PostgresError {
    unavailable("the lease of this node has run out and is not renewed yet")
}

pub(super) fn json(value: &impl Serialize) -> Result<String, PostgresError> {
    serde_json::to_string(value).map_err(|error| impossible(error.to_string()))
}

/// Checks that the commit is the first of its run.
fn check_first_commit(seen: &ThreadView, commit: &EncodedCommit) -> Result<(), PostgresError> {
    let first = commit.expected_seq == 0 && commit.log.is_some();
    if !first || commit.state.thread != seen.id || !commit.consumed.is_empty() {
        return Err(impossible("a log begins with event 1, on the thread that was judged"));
    }
    Ok(())
}
