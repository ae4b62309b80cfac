//! How a worker obtains its run.

use std::sync::Arc;

use machine::Timestamp;

use super::halted::{halt, pause};
use super::{RunSource, Worker, WorkerContext};
use crate::agent::Pinned;
use crate::node::{Reply, WorkerMessage};
use crate::store::{Claim, Claimed, Lease, Loaded, StoreError, StoreFailure};

/// A run that was claimed and could be loaded.
pub(super) struct LoadedClaim {
    pub(super) lease: Lease,
    pub(super) loaded: Loaded,
    pub(super) doubt_at: Timestamp,
}

/// None if another worker has the run, or it has ended.
pub(super) async fn claim_run(
    ctx: &mut WorkerContext,
    source: RunSource,
) -> Result<Option<Worker>, StoreError> {
    let node = &ctx.node;
    let claimed = match source {
        RunSource::Created(created) => return Ok(Some(Worker::for_created(node, *created))),
        RunSource::Claimed(claimed) => *claimed,
        RunSource::Claim => {
            let claim = Claim::Run { tenant: ctx.tenant.clone(), run: ctx.run.clone() };
            match node.store.claim(claim).await?.pop() {
                Some(claimed) => claimed,
                None => return Ok(claimed_meanwhile(ctx).await),
            }
        }
    };
    Ok(load_worker(ctx, claimed).await)
}

async fn load_worker(ctx: &mut WorkerContext, claimed: Claimed) -> Option<Worker> {
    let claim = load_or_halt(ctx, claimed).await?;
    let pinned = pinned_or_halt(ctx, &claim).await?;
    Some(Worker::for_claimed(&ctx.node, claim, pinned))
}

/// A run that cannot be decoded is halted until it can be, or until an interrupt ends it, which returns None.
async fn load_or_halt(ctx: &mut WorkerContext, claimed: Claimed) -> Option<LoadedClaim> {
    let Claimed { lease, loaded, doubt_at } = claimed;
    let mut loaded = loaded.map_err(StoreError::Failed);
    loop {
        match loaded {
            Ok(loaded) => return Some(LoadedClaim { lease, loaded, doubt_at }),
            Err(StoreError::Fenced | StoreError::NotFound) => return None,
            Err(StoreError::Failed(trouble @ (StoreFailure::Unavailable(_) | StoreFailure::Full(_)))) => {
                tracing::error!(run = %lease.run, %trouble, "the store is in trouble; the run waits");
                pause(ctx).await;
            }
            Err(
                refused @ (StoreError::Failed(StoreFailure::Corrupt(_))
                | StoreError::Behind
                | StoreError::Stale
                | StoreError::Busy(_)
                | StoreError::Impossible(_)),
            ) => {
                tracing::error!(run = %lease.run, why = %refused, "run is unreadable and has been halted; run `holdpoint doctor`");
                if !halt(ctx, &lease).await {
                    return None;
                }
            }
        }
        loaded = ctx.node.store.load(&lease).await;
    }
}

/// No other worker can get the run, so wait until the store answers. None if the lease was lost, if an interrupt ended
/// the run, or if the engine stops before the damaged data can be read.
async fn pinned_or_halt(ctx: &mut WorkerContext, claim: &LoadedClaim) -> Option<Arc<Pinned>> {
    let mut was_halted = false;
    loop {
        match ctx.node.pinned(&claim.lease.tenant, &claim.loaded.control).await {
            Ok(pinned) => {
                if was_halted {
                    // Items that were signalled meanwhile are not in what was loaded with the claim.
                    ctx.inbox_signal.notify();
                }
                return Some(pinned);
            }
            Err(StoreError::NotFound) => return None,
            Err(StoreError::Failed(trouble @ (StoreFailure::Unavailable(_) | StoreFailure::Full(_)))) => {
                tracing::error!(run = %claim.lease.run, %trouble, "the store is in trouble; the run waits");
                pause(ctx).await;
            }
            Err(refused) => {
                tracing::error!(run = %claim.lease.run, trouble = %refused, "the agent of the run cannot be read; the run waits");
                if !halt(ctx, &claim.lease).await {
                    return None;
                }
                was_halted = true;
            }
        }
    }
}

/// The dispatcher may have claimed the run for this very worker.
async fn claimed_meanwhile(ctx: &mut WorkerContext) -> Option<Worker> {
    let mut claimed = None;
    while let Ok(message) = ctx.mailbox.try_recv() {
        match message {
            WorkerMessage::Claimed(other) => claimed = Some(other),
            WorkerMessage::Submit(submission) => drop(submission.reply.send(Reply::UseInbox)),
        }
    }
    load_worker(ctx, *claimed?).await
}
