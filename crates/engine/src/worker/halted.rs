//! A run that cannot continue: the store fails, stored data cannot be read, or a bug in Holdpoint prevents it.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::{Stop, Worker, WorkerContext};
use crate::node::{Need, Node, Reply, WorkerMessage};
use crate::store::{Appended, Lease, StoreError, StoreFailure};

/// Pause before unreadable data is read again. An operator has to repair it first; submitters do not wait for this.
const UNREADABLE_RETRY_PAUSE: Duration = Duration::from_secs(60);

/// Waits while the store fails. Submitters are not kept waiting: they are redirected to the store.
pub(super) async fn pause(ctx: &mut WorkerContext) {
    // Does not use the engine's clock, which may belong to the failing store.
    let over = tokio::time::sleep(ctx.node.settings.store_retry_pause);
    tokio::pin!(over);
    loop {
        tokio::select! {
            biased;
            () = &mut over => return,
            Some(message) = ctx.mailbox.recv() => redirect_to_inbox(ctx, message),
        }
    }
}

/// The same if the stored data of this one run cannot be read. Its slot is released meanwhile, and the run may end up
/// without one. False if the engine stops, which does not wait for the repair.
pub(super) async fn wait_for_repair(ctx: &mut WorkerContext) -> bool {
    ctx.slot.release_for_spare();
    let node = ctx.node.clone();
    let inbox_signal = ctx.inbox_signal.clone();
    let over = tokio::time::sleep(UNREADABLE_RETRY_PAUSE);
    tokio::pin!(over);
    loop {
        tokio::select! {
            biased;
            () = node.stopping.cancelled() => return false,
            () = inbox_signal.notified() => break,
            () = &mut over => break,
            Some(message) = ctx.mailbox.recv() => redirect_to_inbox(ctx, message),
        }
    }
    ctx.inbox_signal.take();
    if let Some(free) = node.try_take_slot(&ctx.tenant, Need::Continue) {
        ctx.slot = free;
    }
    true
}

/// For a run that cannot be loaded: ends it if an interrupt was accepted, otherwise waits until something may have
/// changed. False if there is nothing to retry.
pub(super) async fn halt(ctx: &mut WorkerContext, lease: &Lease) -> bool {
    match end_if_interrupted(&ctx.node, lease).await {
        Ok(true) | Err(StoreError::Fenced | StoreError::NotFound) => false,
        Ok(false) => wait_for_repair(ctx).await,
        Err(
            refused @ (StoreError::Failed(_)
            | StoreError::Behind
            | StoreError::Stale
            | StoreError::Busy(_)
            | StoreError::Impossible(_)),
        ) => {
            tracing::error!(run = %lease.run, %refused, "an unreadable run cannot be ended");
            wait_for_repair(ctx).await
        }
    }
}

/// Ends a run that cannot continue using only the plain columns of its store, if an interrupt was accepted.
async fn end_if_interrupted(node: &Arc<Node>, lease: &Lease) -> Result<bool, StoreError> {
    let view = node.store.run(&lease.tenant, &lease.run).await?.ok_or(StoreError::NotFound)?;
    if !view.interrupt_accepted {
        return Ok(false);
    }
    let Appended { woken, .. } = node.store.end_undecoded(lease).await?;
    tracing::warn!(run = %lease.run, "an unreadable run was interrupted and has ended");
    node.feeds.for_run(&lease.run).invalidate();
    node.approvals.changed(&lease.tenant, &lease.run);
    for run in woken {
        node.wake(&lease.tenant, &run, Need::Start);
    }
    Ok(true)
}

fn redirect_to_inbox(ctx: &mut WorkerContext, message: WorkerMessage) {
    match message {
        WorkerMessage::Submit(submission) => drop(submission.reply.send(Reply::UseInbox)),
        WorkerMessage::Claimed(claimed) => ctx.claimed = Some(claimed),
    }
}

impl Worker {
    /// The store fails: once it answers again, find out what is stored. Tasks continue meanwhile.
    pub(super) async fn wait_for_store(
        &mut self,
        ctx: &mut WorkerContext,
        trouble: &StoreFailure,
    ) -> Result<(), Stop> {
        let mut trouble = trouble.clone();
        loop {
            tracing::error!(run = %self.lease.run, %trouble, "the store is in trouble; the run waits");
            for submission in mem::take(&mut self.submissions) {
                let _ = submission.reply.send(Reply::UseInbox);
            }
            while let Some(finished) = self.tasks.ready_result() {
                self.receive_result(finished);
            }
            if self.tasks.has_unfinished() || !matches!(trouble, StoreFailure::Corrupt(_)) {
                pause(ctx).await;
            } else if !wait_for_repair(ctx).await {
                return Err(Stop::Gone);
            }
            let reloaded = match self.reload().await {
                Err(Stop::StoreFailed(again)) => {
                    self.end_if_corrupt(&again).await?;
                    trouble = again;
                    continue;
                }
                reloaded @ (Ok(()) | Err(Stop::Gone | Stop::Broken(_))) => reloaded,
            };
            match self.resolve_uncertain_commit().await {
                Ok(()) => {}
                Err(Stop::StoreFailed(again)) => {
                    self.end_if_corrupt(&again).await?;
                    trouble = again;
                    continue;
                }
                Err(Stop::Gone | Stop::Broken(_)) => continue,
            }
            self.forget_derived();
            return reloaded;
        }
    }

    /// [`Stop::Gone`] if the run cannot be decoded and an accepted interrupt has ended it.
    async fn end_if_corrupt(&self, trouble: &StoreFailure) -> Result<(), Stop> {
        match trouble {
            StoreFailure::Corrupt(_) => self.end_if_interrupted().await,
            StoreFailure::Unavailable(_) | StoreFailure::Full(_) => Ok(()),
        }
    }

    async fn end_if_interrupted(&self) -> Result<(), Stop> {
        match end_if_interrupted(&self.node, &self.lease).await {
            Ok(true) | Err(StoreError::Fenced | StoreError::NotFound) => Err(Stop::Gone),
            Ok(false) => Ok(()),
            Err(
                refused @ (StoreError::Failed(_)
                | StoreError::Behind
                | StoreError::Stale
                | StoreError::Busy(_)
                | StoreError::Impossible(_)),
            ) => {
                tracing::error!(run = %self.lease.run, %refused, "an unreadable run cannot be ended");
                Ok(())
            }
        }
    }

    /// For a bug in Holdpoint: the stored state and its consequences disagree. Tasks are dropped as in a crash, nothing
    /// new starts, and this process does not release the run. Submitted items are still processed, so that an interrupt
    /// can end it.
    pub(super) async fn run_halted(mut self, ctx: &mut WorkerContext, why: &str) -> Stop {
        tracing::error!(
            run = %self.lease.run,
            why,
            "run halted: stored state is inconsistent (this is a bug in Holdpoint); only an interrupt is accepted"
        );
        ctx.slot.release_for_spare();
        self.reset();
        loop {
            let processed = self.process_pending(ctx).await;
            if let Err(stop @ (Stop::StoreFailed(_) | Stop::Broken(_))) = &processed {
                tracing::error!(run = %self.lease.run, ?stop, "the halted run cannot process what was submitted");
                self.reset();
                for submission in mem::take(&mut self.submissions) {
                    let _ = submission.reply.send(Reply::UseInbox);
                }
                let ended = match stop {
                    Stop::StoreFailed(trouble) => self.end_if_corrupt(trouble).await,
                    Stop::Broken(_) | Stop::Gone => self.end_if_interrupted().await,
                };
                if let Err(stop) = ended {
                    return stop;
                }
            }
            match processed {
                Ok(()) if self.run.control().ended().is_some() => return Stop::Gone,
                Err(Stop::Gone) => return Stop::Gone,
                // The signal was taken, but the inbox was not processed.
                Err(Stop::StoreFailed(_)) => {
                    pause(ctx).await;
                    if self.node.stopping.is_cancelled() {
                        return Stop::Gone;
                    }
                    continue;
                }
                Ok(()) | Err(Stop::Broken(_)) => {}
            }
            let (node, inbox_signal) = (self.node.clone(), ctx.inbox_signal.clone());
            tokio::select! {
                biased;
                () = node.stopping.cancelled() => return Stop::Gone,
                () = inbox_signal.notified() => {}
                Some(message) = ctx.mailbox.recv() => self.receive_message(ctx, message),
            }
        }
    }

    async fn process_pending(&mut self, ctx: &mut WorkerContext) -> Result<(), Stop> {
        ctx.inbox_signal.take();
        self.reload().await?;
        self.read_mailbox(ctx);
        if ctx.claimed.is_some() {
            return Err(Stop::Gone);
        }
        if self.run.inbox.is_empty() && self.submissions.is_empty() {
            return Ok(());
        }
        self.pass(ctx).await
    }

    /// As if this worker had just claimed its run.
    fn reset(&mut self) {
        self.tasks.stop_all();
        self.unstored.clear();
        self.plugins.reset();
        self.uncertain_commit = None;
        self.run.history = None;
        self.takeover.repeat();
    }
}
