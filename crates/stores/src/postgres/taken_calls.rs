//! Which ids of calls are taken on a thread: asked whenever a model has asked for calls, so by many runs at once. What is
//! asked together is read together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::store::{Lease, StoreError, Tenant};
use machine::id::{CallId, ThreadId};
use tokio::sync::oneshot;

use super::Shared;
use super::line::Waiting;
use super::text::{kept, told};
use super::together::unheard;
use super::trouble::Stop;

/// Ids that one run asks for.
pub(super) struct Asking {
    lease: Lease,
    ids: Vec<String>,
    told: oneshot::Sender<Result<BTreeSet<CallId>, StoreError>>,
}

impl Waiting for Asking {
    fn thread(&self) -> (&Tenant, &ThreadId) {
        (&self.lease.tenant, &self.lease.thread)
    }

    fn bytes(&self) -> u64 {
        self.ids.iter().map(|id| id.len() as u64).sum()
    }

    fn is_given_up(&self) -> bool {
        self.told.is_closed()
    }
}

impl Shared {
    /// A call gets a message of its own, so an id whose message is there, or promised by a run in line, is taken too.
    pub(super) async fn taken_call_ids(
        self: &Arc<Self>,
        lease: Lease,
        ids: Vec<String>,
    ) -> Result<BTreeSet<CallId>, Stop> {
        let (told, answer) = oneshot::channel();
        if self.together.askings.join(Asking { lease, ids, told }) {
            let shared = self.clone();
            tokio::spawn(async move {
                let send = |askings| {
                    let shared = shared.clone();
                    async move { shared.answer(askings).await }
                };
                shared.together.askings.work_off(send).await;
            });
        }
        Ok(answer.await.map_err(unheard)??)
    }

    async fn answer(&self, askings: Vec<Asking>) {
        let read = self.read_taken(&askings).await.map_err(|Stop(refused)| refused);
        for Asking { lease, told, .. } in askings {
            let taken = read.as_ref().map(|taken| taken.get(&lease.row).cloned().unwrap_or_default());
            // Whoever does not listen any more has no use for it.
            let _ = told.send(taken.map_err(Clone::clone));
        }
    }

    /// By the number of the run.
    async fn read_taken(&self, askings: &[Asking]) -> Result<BTreeMap<i64, BTreeSet<CallId>>, Stop> {
        let each = || askings.iter().flat_map(|asking| asking.ids.iter().map(|id| (asking.lease.row, id)));
        let runs: Vec<i64> = each().map(|(run, _)| run).collect();
        let ids: Vec<_> = each().map(|(_, id)| kept(id)).collect();
        let rows = self.connections.read(include_str!("sql/calls_taken.sql"), &[&runs, &ids]).await?;
        let mut taken: BTreeMap<i64, BTreeSet<CallId>> = BTreeMap::new();
        for row in &rows {
            taken.entry(row.try_get(0)?).or_default().insert(CallId::from(told(row.try_get(1)?)));
        }
        Ok(taken)
    }
}
