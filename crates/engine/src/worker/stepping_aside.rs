//! A worker without a place to execute in: it has heard what could not wait, and leaves the rest to whoever gets a place.

use machine::status::RunStatus;

use super::{Desk, Stop, Worker};
use crate::node::{Mail, Place, Reply};

impl Worker {
    /// Lets the run go, which stands in line if there is something to do. False while it has to be held: there is more to
    /// hear, or it has got a place.
    pub(super) async fn step_aside(&mut self, desk: &mut Desk, place: &mut Place) -> Result<bool, Stop> {
        self.open_all(desk);
        if self.something_to_hear() || self.is_due() {
            return Ok(false);
        }
        if self.node.store.release(&self.lease).await? {
            if self.run.control.status == RunStatus::Running {
                self.node.unbegun.put(&self.lease, self.committed.seq);
            }
            if let Some(history) = self.history.take() {
                self.node.shelf.put(&self.lease.tenant, &self.lease.run, history);
            }
            // It may fall due again, and a place may have become free meanwhile.
            self.node.later();
            return Ok(true);
        }
        self.read_inbox().await?;
        if !self.something_to_hear() {
            self.wait_for_a_place(desk, place).await;
        }
        Ok(false)
    }

    fn is_due(&self) -> bool {
        self.run.next_deadline().is_some_and(|deadline| deadline.at <= self.node.clock.now())
    }

    /// What is accepted has to stay until something that executes is done, and keeps the run held.
    async fn wait_for_a_place(&mut self, desk: &mut Desk, place: &mut Place) {
        let node = self.node.clone();
        let free = node.next_place(&self.lease.tenant);
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
                        *place = found;
                    }
                    return;
                }
                () = desk.look.rung() => return,
                () = &mut due => return,
                Some(mail) = desk.mail.recv() => match mail {
                    Mail::Direct(direct) => drop(direct.reply.send(Reply::UseTheInbox)),
                    Mail::Claimed(claimed) => {
                        desk.claimed = Some(claimed);
                        return;
                    }
                },
            }
        }
    }
}
