//! Looks up which call ids are taken on a thread. Runs ask whenever a model has requested calls, often many at once:
//! their lookups are batched into one read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::store::{Lease, StoreError, Tenant};
use machine::id::{CallId, ThreadId};
use tokio::sync::oneshot;

use super::PostgresShared;
use super::batch_commit::reply_lost;
use super::batch_queue::BatchItem;
use super::errors::PostgresError;
use super::nul_escape::{escape, unescape};

/// The call ids that one run asks about.
pub(super) struct CallIdLookup {
    lease: Lease,
    ids: Vec<String>,
    reply: oneshot::Sender<Result<BTreeSet<CallId>, StoreError>>,
}

impl BatchItem for CallIdLookup {
    fn thread(&self) -> (&Tenant, &ThreadId) {
        (&self.lease.tenant, &self.lease.thread)
    }

    fn bytes(&self) -> u64 {
        self.ids.iter().map(|id| id.len() as u64).sum()
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }
}

impl PostgresShared {
    /// A call gets a message of its own, so an id whose message exists, or is promised by a queued run, is taken too.
    pub(super) async fn taken_call_ids(
        self: &Arc<Self>,
        lease: Lease,
        ids: Vec<String>,
    ) -> Result<BTreeSet<CallId>, PostgresError> {
        let (reply, answer) = oneshot::channel();
        if self.batch_queues.call_id_lookups.push(CallIdLookup { lease, ids, reply }) {
            let shared = self.clone();
            tokio::spawn(async move {
                let send = |call_id_lookups| {
                    let shared = shared.clone();
                    async move { shared.answer_lookups(call_id_lookups).await }
                };
                shared.batch_queues.call_id_lookups.send_batches(send).await;
            });
        }
        Ok(answer.await.map_err(reply_lost)??)
    }

    async fn answer_lookups(&self, call_id_lookups: Vec<CallIdLookup>) {
        let read = self.read_taken(&call_id_lookups).await.map_err(|PostgresError(refused)| refused);
        for CallIdLookup { lease, reply, .. } in call_id_lookups {
            let taken = read.as_ref().map(|taken| taken.get(&lease.row).cloned().unwrap_or_default());
            // A caller that is gone has no use for the answer.
            let _ = reply.send(taken.map_err(Clone::clone));
        }
    }

    /// The taken ids, by the number of the run.
    async fn read_taken(
        &self,
        call_id_lookups: &[CallIdLookup],
    ) -> Result<BTreeMap<i64, BTreeSet<CallId>>, PostgresError> {
        let each =
            || call_id_lookups.iter().flat_map(|lookup| lookup.ids.iter().map(|id| (lookup.lease.row, id)));
        let runs: Vec<i64> = each().map(|(run, _)| run).collect();
        let ids: Vec<_> = each().map(|(_, id)| escape(id)).collect();
        let rows = self.connections.read(include_str!("sql/calls_taken.sql"), &[&runs, &ids]).await?;
        let mut taken: BTreeMap<i64, BTreeSet<CallId>> = BTreeMap::new();
        for row in &rows {
            taken.entry(row.try_get(0)?).or_default().insert(CallId::from(unescape(row.try_get(1)?)));
        }
        Ok(taken)
    }
}
