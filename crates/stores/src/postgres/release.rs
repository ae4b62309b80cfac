//! Releases runs that have nothing to do: those of one node in a batch, each with its own answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::store::{Lease, StoreError, Tenant};
use machine::id::ThreadId;
use tokio::sync::oneshot;

use super::PostgresShared;
use super::batch_commit::{reply_lost, stored_names};
use super::batch_queue::BatchItem;
use super::errors::{PostgresError, corrupt};
use crate::columns::to_i64;

/// A run for which its worker has nothing to do.
pub(super) struct ReleaseRequest {
    lease: Lease,
    /// A request that arrives late, after its worker has continued, releases nothing.
    seq: i64,
    reply: oneshot::Sender<Result<ReleaseOutcome, StoreError>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReleaseOutcome {
    /// Its inbox holds an item, or its log has grown.
    Kept,
    Released {
        /// The run should be claimed again by a worker.
        needs_worker: bool,
    },
    Fenced,
}

impl BatchItem for ReleaseRequest {
    fn thread(&self) -> (&Tenant, &ThreadId) {
        (&self.lease.tenant, &self.lease.thread)
    }

    fn bytes(&self) -> u64 {
        0
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }
}

impl PostgresShared {
    /// True if the run is released; false while its inbox holds an item, or its log an event its worker has not seen.
    pub(super) async fn release(self: &Arc<Self>, lease: &Lease) -> Result<bool, PostgresError> {
        let seq = to_i64(self.leases.seq(lease).ok_or(StoreError::Fenced)?);
        let (reply, answer) = oneshot::channel();
        if self.batch_queues.releases.push(ReleaseRequest { lease: lease.clone(), seq, reply }) {
            let shared = self.clone();
            tokio::spawn(async move {
                let send = |batch| {
                    let shared = shared.clone();
                    async move { shared.release_batch(batch).await }
                };
                shared.batch_queues.releases.send_batches(send).await;
            });
        }
        match answer.await.map_err(reply_lost)?? {
            ReleaseOutcome::Kept => Ok(false),
            ReleaseOutcome::Released { .. } => Ok(true),
            ReleaseOutcome::Fenced => Err(StoreError::Fenced.into()),
        }
    }

    async fn release_batch(&self, batch: Vec<ReleaseRequest>) {
        match self.send_releases(&batch).await {
            Ok(outcomes) => {
                batch
                    .into_iter()
                    .zip(outcomes)
                    .for_each(|(one, outcome)| self.finish_release(one, Ok(outcome)));
            }
            // One of them is impossible; the others can be released.
            Err(PostgresError(StoreError::Impossible(_))) if batch.len() > 1 => {
                for one in batch {
                    Box::pin(self.release_batch(vec![one])).await;
                }
            }
            Err(PostgresError(refused)) => {
                batch.into_iter().for_each(|one| self.finish_release(one, Err(refused.clone())))
            }
        }
    }

    fn finish_release(
        &self,
        ReleaseRequest { lease, reply, .. }: ReleaseRequest,
        outcome: Result<ReleaseOutcome, StoreError>,
    ) {
        match &outcome {
            Ok(ReleaseOutcome::Released { needs_worker }) => {
                self.leases.forget(&lease);
                if *needs_worker {
                    self.outgoing.queue_ready();
                }
            }
            Ok(ReleaseOutcome::Fenced) => self.leases.forget(&lease),
            Ok(ReleaseOutcome::Kept) | Err(_) => {}
        }
        // A caller that is gone finds out by reading.
        let _ = reply.send(outcome);
    }

    /// The outcomes, in the order of the requests.
    async fn send_releases(&self, batch: &[ReleaseRequest]) -> Result<Vec<ReleaseOutcome>, PostgresError> {
        let node = self.leases.node().ok_or(StoreError::Fenced)?;
        let runs: Vec<i64> = batch.iter().map(|one| one.lease.row).collect();
        let epochs: Vec<i64> = batch.iter().map(|one| to_i64(one.lease.epoch)).collect();
        let seqs: Vec<i64> = batch.iter().map(|one| one.seq).collect();
        let (tenants, ids) = stored_names(batch.iter().map(|one| &one.lease));
        let sql = "SELECT * FROM release_batch($1, $2, $3, $4, $5, $6, $7)";
        let at = self.clock.override_ms();
        let rows = self.change(sql, &[&runs, &tenants, &ids, &node, &epochs, &seqs, &at]).await?;
        let mut outcomes = BTreeMap::new();
        for row in &rows {
            let outcome = match row.try_get(1)? {
                "kept" => ReleaseOutcome::Kept,
                "released" => ReleaseOutcome::Released { needs_worker: row.try_get(2)? },
                "fenced" => ReleaseOutcome::Fenced,
                other => return Err(corrupt(format!("a release came to {other}"))),
            };
            outcomes.insert(row.try_get::<_, i64>(0)?, outcome);
        }
        let outcome = |run: &i64| outcomes.get(run).copied();
        let all: Option<Vec<ReleaseOutcome>> = runs.iter().map(outcome).collect();
        all.ok_or_else(|| corrupt("a release came to nothing"))
    }
}
