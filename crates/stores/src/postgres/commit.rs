//! The commits: an append, a creation, a submitted item. Each is one statement, and so one round trip and one
//! transaction; what its function answered is what happened.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::store::{Append, Appended, Create, Created, Lease, PostKey, StoreError, Tenant, ThreadView};
use machine::event::InterruptCause;
use machine::id::{MessageId, RunId};
use machine::inbox::{Item, SubmitContext, Verdict, judge_after_end, judge_item};
use machine::thread::{Admission, Busy, IfBusy, QUEUE_MAX, QUEUE_WITH_SUPERSEDING_MAX};
use machine::undecodable::judge_without_control;
use serde::Serialize;
use tokio_postgres::Row;

use super::Shared;
use super::bells::Rung;
use super::binding::{Asked, Bound, BoundItem};
use super::stored_run::{control_to_show, item_of};
use super::text::{kept, told};
use super::together::{Appended as Plainly, InHand, is_plain, is_plain_creation};
use super::trouble::{Stop, corrupt, impossible, unavailable};
use crate::entry::{Entry, Written};
use crate::words::number;

/// Times that an item is judged again because something else came in between.
const JUDGE_COUNT_MAX: usize = 64;

/// The version that a run is created with.
const CREATED: u64 = 1;

/// Where a run comes into being.
struct Place {
    tenant: Tenant,
    seen: ThreadView,
    if_busy: IfBusy,
    starts: bool,
    begins_after: Option<MessageId>,
    key: Option<PostKey>,
}

/// What was judged of an item.
struct Judged {
    number: i64,
    /// By which a change of what was there is seen.
    version: i64,
    verdict: Verdict,
}

impl Shared {
    pub(super) async fn append(self: &Arc<Self>, lease: &Lease, append: Append) -> Result<Appended, Stop> {
        let node = self.leases.node().filter(|_| self.leases.is_current(lease)).ok_or(StoreError::Fenced)?;
        let expected_seq = number(append.expected_seq);
        let entry = match Entry::of(append) {
            Ok(entry) => Arc::new(entry),
            // Whoever is fenced hears that first, whatever its commit looks like.
            Err(refused) => {
                let sql = "SELECT seq = $2 FROM runs WHERE run = $1";
                let rows = self.connections.read(sql, &[&lease.row, &expected_seq]).await?;
                let current = rows.first().map(|row| row.try_get::<_, bool>(0)).transpose()?;
                return Err(if current == Some(true) { refused } else { StoreError::Fenced }.into());
            }
        };
        let plain = is_plain(&entry) && entry.state.run == lease.run && entry.state.thread == lease.thread;
        let appended = if plain { self.append_plain(lease, entry.clone()).await? } else { Plainly::Alone };
        let woken = match appended {
            Plainly::Held => Vec::new(),
            Plainly::Alone => self.append_alone(lease, node, &entry).await?,
        };
        self.tally.commit(entry.bytes);
        self.announce(lease, &entry);
        if entry.state.summary.status.ended() {
            self.leases.forget(lease);
        } else {
            self.leases.stored(lease, entry.state.seq);
        }
        Ok(Appended { woken, version: entry.expected_version + 1 })
    }

    /// The runs that it woke.
    pub(super) async fn append_alone(
        &self,
        lease: &Lease,
        node: i64,
        entry: &Entry,
    ) -> Result<Vec<RunId>, Stop> {
        let bound = json(&Bound::of(lease.tenant.as_str(), &lease.run, entry))?;
        let body = entry.log.as_ref().map(|log| log.body.as_str());
        let row = self
            .connections
            .write_one(
                "SELECT * FROM append($1, $2, $3, $4, $5, $6::text::jsonb, $7, $8, $9)",
                &[
                    &lease.row,
                    &node,
                    &number(lease.epoch),
                    &number(entry.expected_seq),
                    &number(entry.expected_version),
                    &bound,
                    &entry.state.control,
                    &body,
                    &self.clock.given(),
                ],
            )
            .await?;
        match row.try_get(0)? {
            "held" => {}
            "behind" => return Err(StoreError::Behind.into()),
            "lapsed" => return Err(lapsed()),
            "fenced" => return Err(StoreError::Fenced.into()),
            other => return Err(corrupt(format!("an append came to {other}"))),
        }
        self.tally.sync(1);
        self.woken(&row, 1)
    }

    pub(super) async fn create(self: &Arc<Self>, create: Create) -> Result<Created, Stop> {
        let Create { tenant, seen, if_busy, begins_after, key, inline_agent: brought, lease, append } =
            create;
        key.as_ref().map_or(Ok(()), PostKey::check)?;
        let entry = Arc::new(Entry::born(append, brought)?);
        check(&seen, &entry)?;
        let leased = lease && !entry.state.summary.status.ended();
        let alone = begins_after.is_some() || key.is_some() || entry.state.parent.is_some();
        if leased
            && !alone
            && is_plain_creation(&entry)
            && let Some(InHand { node, run }) = self.create_plain(&tenant, &seen, entry.clone()).await?
        {
            self.tally.commit(entry.bytes);
            let lease = Some(self.give(node, run, &tenant, &entry));
            return Ok(Created { admission: Admission::Hold, lease, woken: Vec::new(), version: CREATED });
        }
        let node = if leased { Some(self.node().await?) } else { None };
        let place = Place { tenant, seen, if_busy, starts: lease, begins_after, key };
        self.create_alone(&place, node, &entry).await
    }

    async fn create_alone(&self, place: &Place, node: Option<i64>, entry: &Entry) -> Result<Created, Stop> {
        let Place { tenant, seen, if_busy, starts, begins_after, key } = place;
        let cause = InterruptCause::Superseded(entry.state.run.clone());
        let superseded = Written::of(Item::Interrupt { cause })?;
        let bound = Bound::of(tenant.as_str(), &entry.state.run, entry);
        let bound = json(&bound.born(entry, begins_after.as_ref(), key.as_ref(), &superseded))?;
        let asked = json(&Asked::of(seen, *if_busy, *starts))?;
        let body = entry.log.as_ref().map(|log| log.body.as_str());
        let row = self
            .connections
            .write_one(
                "SELECT * FROM create_run($1, $2, $3::text::jsonb, $4::text::jsonb, $5, $6, $7, $8)",
                &[
                    &kept(tenant.as_str()),
                    &kept(seen.id.as_str()),
                    &asked,
                    &bound,
                    &entry.state.control,
                    &body,
                    &node,
                    &self.clock.given(),
                ],
            )
            .await?;
        let front = || -> Result<RunId, Stop> { Ok(RunId::from(told(row.try_get(5)?))) };
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
            "lapsed" => return Err(lapsed()),
            // The node is gone; the next one who asks joins again.
            "fenced" => {
                node.into_iter().for_each(|node| self.leases.lose(node));
                return Err(lapsed());
            }
            other => return Err(corrupt(format!("a creation came to {other}"))),
        };
        self.tally.sync(1);
        self.tally.commit(entry.bytes);
        let woken = self.woken(&row, 2)?;
        let number = row.try_get(1)?;
        let lease = node.map(|node| self.give(node, number, tenant, entry));
        if lease.is_none() && admission == Admission::Hold {
            self.posts.ready();
        }
        Ok(Created { admission, lease, woken, version: CREATED })
    }

    /// The run that was created in the hands of this node.
    fn give(&self, node: i64, row: i64, tenant: &Tenant, entry: &Entry) -> Lease {
        let (run, thread) = (entry.state.run.clone(), entry.state.thread.clone());
        let lease = Lease { tenant: tenant.clone(), thread, run, epoch: 1, row };
        self.leases.give(node, lease.clone(), entry.state.seq);
        lease
    }

    pub(super) async fn submit(&self, tenant: &Tenant, run: &RunId, item: Item) -> Result<Verdict, Stop> {
        let written = Written::of(item)?;
        for _ in 0..JUDGE_COUNT_MAX {
            let Judged { number, version, verdict } = self.judge(tenant, run, &written.item).await?;
            if !verdict.is_taken() {
                return Ok(verdict);
            }
            let bound = json(&BoundItem::of(&written))?;
            let sql = "SELECT * FROM submit($1, $2, $3::text::jsonb, $4)";
            let row =
                self.connections.write_one(sql, &[&number, &version, &bound, &self.clock.given()]).await?;
            if row.try_get::<_, &str>(0)? == "taken" {
                self.tally.sync(1);
                self.tally
                    .commit((written.text.len() + written.decision.as_ref().map_or(0, String::len)) as u64);
                if let Some(node) = row.try_get::<_, Option<i64>>(1)? {
                    self.ring(Rung { run: number, node });
                }
                if written.item.call().is_some() {
                    self.posts.approvals(tenant, run);
                }
                return Ok(verdict);
            }
        }
        Err(unavailable(format!("the run changed {JUDGE_COUNT_MAX} times while an item for it was judged")))
    }

    /// The verdict on what is there now.
    async fn judge(&self, tenant: &Tenant, run: &RunId, item: &Item) -> Result<Judged, Stop> {
        let id = item.decision().and_then(|decision| decision.id.as_ref()).map(|id| kept(id.as_str()));
        let sql = include_str!("sql/run_shown.sql");
        let rows = self.connections.read(sql, &[&kept(tenant.as_str()), &kept(run.as_str()), &id]).await?;
        let row = rows.first().ok_or(StoreError::NotFound)?;
        let (number, version): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        let earlier = row.try_get::<_, Option<&str>>(4)?.map(serde_json::from_str).transpose();
        let earlier = earlier.map_err(|error| corrupt(error.to_string()))?;
        let ended: bool = row.try_get(6)?;
        // What is left of a run that was ended by its columns need not be decodable.
        if ended {
            return Ok(Judged { number, version, verdict: judge_after_end(item, earlier.as_ref()) });
        }
        if let Some(verdict) = judge_without_control(item, ended, row.try_get(5)?) {
            return Ok(Judged { number, version, verdict });
        }
        let control = control_to_show(&self.connections, number, row.try_get(2)?).await?;
        let inbox: Vec<&str> = row.try_get(3)?;
        let inbox = inbox.into_iter().map(item_of).collect::<Result<Vec<_>, _>>()?;
        let context = SubmitContext { control: &control, inbox: &inbox, earlier: earlier.as_ref() };
        Ok(Judged { number, version, verdict: judge_item(item, &context) })
    }

    /// The runs that a commit woke, from the column `first` on. Whoever holds one of them elsewhere is told.
    fn woken(&self, row: &Row, first: usize) -> Result<Vec<RunId>, Stop> {
        let woken: Vec<String> = row.try_get(first)?;
        let (runs, nodes): (Vec<i64>, Vec<i64>) = (row.try_get(first + 1)?, row.try_get(first + 2)?);
        for (run, node) in runs.into_iter().zip(nodes) {
            self.ring(Rung { run, node });
        }
        Ok(woken.into_iter().map(|id| RunId::from(told(id))).collect())
    }

    /// Whoever watches the run on another node is told, and whoever shows what people have to answer. Of the latter
    /// nobody knows whether there is one: a look would not find what they missed.
    pub(super) fn announce(&self, lease: &Lease, entry: &Entry) {
        if entry.rows.changes_suspensions() {
            self.posts.approvals(&lease.tenant, &lease.run);
        }
        if entry.log.is_some() && self.has_company.load(Ordering::Relaxed) {
            self.posts.committed(&entry.state.run);
        }
    }

    /// This node wakes what it holds by itself.
    fn ring(&self, rung: Rung) {
        if self.leases.node() != Some(rung.node) {
            self.posts.run(rung);
        }
    }
}

/// The node may not write before it has renewed its lease; that is tried all the time.
pub(super) fn lapsed() -> Stop {
    unavailable("the lease of this node has run out and is not renewed yet")
}

pub(super) fn json(value: &impl Serialize) -> Result<String, Stop> {
    serde_json::to_string(value).map_err(|error| impossible(error.to_string()))
}

/// The commit is the first of its run.
fn check(seen: &ThreadView, entry: &Entry) -> Result<(), Stop> {
    let first = entry.expected_seq == 0 && entry.log.is_some();
    if !first || entry.state.thread != seen.id || !entry.consumed.is_empty() {
        return Err(impossible("a log begins with event 1, on the thread that was judged"));
    }
    Ok(())
}
