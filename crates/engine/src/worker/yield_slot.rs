//! A worker without a slot to execute in: it has processed the urgent input, and leaves the rest to a worker with a
//! slot.

use machine::status::RunStatus;

use super::{Stop, Worker, WorkerContext};
use crate::node::{Reply, WorkerMessage};

impl Worker {
    /// Releases the run, which is queued if it has something to do. False while it has to stay held: there is more
    /// input to process, or it has got a slot.
    pub(super) async fn yield_slot(&mut self, ctx: &mut WorkerContext) -> Result<bool, Stop> {
        self.read_mailbox(ctx);
        if self.has_pending_input() || self.run.is_due(self.node.clock.now()) {
            return Ok(false);
        }
        if self.node.store.release(&self.lease).await? {
            if self.run.control().status == RunStatus::Running {
                self.node.unstarted.put(&self.lease, self.run.committed.seq);
            }
            if let Some(history) = self.run.history.take() {
                self.node.transcript_cache.put(&self.lease.tenant, &self.lease.run, history);
            }
            // It may fall due again, and a slot may have become free meanwhile.
            self.node.schedule_dispatch();
            return Ok(true);
        }
        self.read_inbox().await?;
        if !self.has_pending_input() {
            self.wait_for_slot(ctx).await;
        }
        Ok(false)
    }

    /// Accepted items have to stay in the inbox until an executing task is done, so the run stays held.
    async fn wait_for_slot(&self, ctx: &mut WorkerContext) {
        let node = self.node.clone();
        let free = node.wait_for_slot(&self.lease.tenant);
        let deadline = self.run.next_deadline().map(|deadline| deadline.at);
        let due = async {
            match deadline {
                Some(at) => node.clock.sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(free, due);
        loop {
            tokio::select! {
                biased;
                found = &mut free => {
                    if let Some(found) = found {
                        ctx.slot = found;
                    }
                    return;
                }
                () = ctx.inbox_signal.notified() => return,
                () = &mut due => return,
                Some(message) = ctx.mailbox.recv() => match message {
                    WorkerMessage::Submit(submission) => drop(submission.reply.send(Reply::UseInbox)),
                    WorkerMessage::Claimed(claimed) => {
                        ctx.claimed = Some(claimed);
                        return;
                    }
                },
            }
        }
    }
}
