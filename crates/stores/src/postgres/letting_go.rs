//! Runs that have nothing to do are let go: those of one node together, each with an answer of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::store::{Lease, StoreError, Tenant};
use machine::id::ThreadId;
use tokio::sync::oneshot;

use super::Shared;
use super::line::Waiting;
use super::together::{names, unheard};
use super::trouble::{Stop, corrupt};
use crate::words::number;

/// A run that its worker has nothing to do for.
pub(super) struct LettingGo {
    lease: Lease,
    /// One that arrives late, after its worker went on, lets nothing go.
    seq: i64,
    told: oneshot::Sender<Result<LetGo, StoreError>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LetGo {
    /// Its inbox holds an item, or its log has gone on.
    Kept,
    Released {
        /// Somebody should take it up again.
        waits: bool,
    },
    Fenced,
}

impl Waiting for LettingGo {
    fn thread(&self) -> (&Tenant, &ThreadId) {
        (&self.lease.tenant, &self.lease.thread)
    }

    fn bytes(&self) -> u64 {
        0
    }

    fn is_given_up(&self) -> bool {
        self.told.is_closed()
    }
}

impl Shared {
    /// True if the run is let go; false while its inbox holds an item, or its log an event that its worker has not seen.
    pub(super) async fn release(self: &Arc<Self>, lease: &Lease) -> Result<bool, Stop> {
        let seq = number(self.leases.seq(lease).ok_or(StoreError::Fenced)?);
        let (told, answer) = oneshot::channel();
        if self.together.releases.join(LettingGo { lease: lease.clone(), seq, told }) {
            let shared = self.clone();
            tokio::spawn(async move {
                let send = |together| {
                    let shared = shared.clone();
                    async move { shared.let_go(together).await }
                };
                shared.together.releases.work_off(send).await;
            });
        }
        match answer.await.map_err(unheard)?? {
            LetGo::Kept => Ok(false),
            LetGo::Released { .. } => Ok(true),
            LetGo::Fenced => Err(StoreError::Fenced.into()),
        }
    }

    async fn let_go(&self, together: Vec<LettingGo>) {
        match self.send_releases(&together).await {
            Ok(outcomes) => {
                together.into_iter().zip(outcomes).for_each(|(one, outcome)| self.tell(one, Ok(outcome)));
            }
            // One of them cannot be; the others can.
            Err(Stop(StoreError::Impossible(_))) if together.len() > 1 => {
                for one in together {
                    Box::pin(self.let_go(vec![one])).await;
                }
            }
            Err(Stop(refused)) => together.into_iter().for_each(|one| self.tell(one, Err(refused.clone()))),
        }
    }

    fn tell(&self, LettingGo { lease, told, .. }: LettingGo, outcome: Result<LetGo, StoreError>) {
        match &outcome {
            Ok(LetGo::Released { waits }) => {
                self.leases.forget(&lease);
                if *waits {
                    self.posts.ready();
                }
            }
            Ok(LetGo::Fenced) => self.leases.forget(&lease),
            Ok(LetGo::Kept) | Err(_) => {}
        }
        // Whoever does not listen any more finds out by reading.
        let _ = told.send(outcome);
    }

    /// In the order in which they were asked for.
    async fn send_releases(&self, together: &[LettingGo]) -> Result<Vec<LetGo>, Stop> {
        let node = self.leases.node().ok_or(StoreError::Fenced)?;
        let runs: Vec<i64> = together.iter().map(|one| one.lease.row).collect();
        let epochs: Vec<i64> = together.iter().map(|one| number(one.lease.epoch)).collect();
        let seqs: Vec<i64> = together.iter().map(|one| one.seq).collect();
        let (tenants, ids) = names(together.iter().map(|one| &one.lease));
        let sql = "SELECT * FROM release_together($1, $2, $3, $4, $5, $6, $7)";
        let at = self.clock.given();
        let rows = self.change(sql, &[&runs, &tenants, &ids, &node, &epochs, &seqs, &at]).await?;
        let mut outcomes = BTreeMap::new();
        for row in &rows {
            let outcome = match row.try_get(1)? {
                "kept" => LetGo::Kept,
                "released" => LetGo::Released { waits: row.try_get(2)? },
                "fenced" => LetGo::Fenced,
                other => return Err(corrupt(format!("a release came to {other}"))),
            };
            outcomes.insert(row.try_get::<_, i64>(0)?, outcome);
        }
        let outcome = |run: &i64| outcomes.get(run).copied();
        let all: Option<Vec<LetGo>> = runs.iter().map(outcome).collect();
        all.ok_or_else(|| corrupt("a release came to nothing"))
    }
}
