//! A run that cannot go on: the store is in trouble, what is stored cannot be read, or a mistake of ours stands in the way.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::{Desk, Stop, Worker};
use crate::node::{Mail, Need, Node, Place, Reply};
use crate::store::{Appended, Lease, Refused, Trouble};

/// Before what cannot be read is read again. Somebody has to mend it first; whoever brings something does not wait for this.
const DAMAGED_PAUSE: Duration = Duration::from_secs(60);

/// While the store is in trouble nobody is kept waiting for this worker: whoever brings something asks the store.
pub(super) async fn pause(desk: &mut Desk) {
    // Not by the engine's clock: a store in trouble may be whose clock that is.
    let over = tokio::time::sleep(desk.node.settings.trouble_pause);
    tokio::pin!(over);
    loop {
        tokio::select! {
            biased;
            () = &mut over => return,
            Some(mail) = desk.mail.recv() => answer(desk, mail),
        }
    }
}

/// The same where what is stored of this one run cannot be read. Somebody else has its place meanwhile, and it may be
/// left without one. False where the engine stops, which does not wait for it.
pub(super) async fn set_aside(desk: &mut Desk, place: &mut Place) -> bool {
    place.leave();
    let node = desk.node.clone();
    let look = desk.look.clone();
    let over = tokio::time::sleep(DAMAGED_PAUSE);
    tokio::pin!(over);
    loop {
        tokio::select! {
            biased;
            () = node.stopping.cancelled() => return false,
            () = look.rung() => break,
            () = &mut over => break,
            Some(mail) = desk.mail.recv() => answer(desk, mail),
        }
    }
    desk.look.take();
    if let Some(free) = node.place_past_nobody(&desk.tenant, Need::Continue) {
        *place = free;
    }
    true
}

/// Of a run that cannot be loaded: ends it where an interrupt was accepted, else waits until there may be something new.
/// False where there is nothing to try again for.
pub(super) async fn halt(desk: &mut Desk, place: &mut Place, lease: &Lease) -> bool {
    match end_if_interrupted(&desk.node, lease).await {
        Ok(true) | Err(Refused::Fenced | Refused::NotFound) => false,
        Ok(false) => set_aside(desk, place).await,
        Err(
            refused @ (Refused::Trouble(_)
            | Refused::Behind
            | Refused::Stale
            | Refused::Busy(_)
            | Refused::Impossible(_)),
        ) => {
            tracing::error!(run = %lease.run, %refused, "an unreadable run cannot be ended");
            set_aside(desk, place).await
        }
    }
}

/// Ends a run that cannot go on by the plain columns of its store, if an interrupt of it was accepted.
async fn end_if_interrupted(node: &Arc<Node>, lease: &Lease) -> Result<bool, Refused> {
    let view = node.store.run(&lease.tenant, &lease.run).await?.ok_or(Refused::NotFound)?;
    if !view.interrupt_accepted {
        return Ok(false);
    }
    let Appended { woken, .. } = node.store.end_undecoded(lease).await?;
    tracing::warn!(run = %lease.run, "an unreadable run was interrupted and has ended");
    node.feeds.of(&lease.run).forget();
    node.approvals.changed(&lease.tenant, &lease.run);
    for run in woken {
        node.wake(&lease.tenant, &run, Need::Start);
    }
    Ok(true)
}

fn answer(desk: &mut Desk, mail: Mail) {
    match mail {
        Mail::Direct(direct) => drop(direct.reply.send(Reply::UseTheInbox)),
        Mail::Claimed(claimed) => desk.claimed = Some(claimed),
    }
}

impl Worker {
    /// The store is in trouble: what is stored is found out once it answers again. Tasks go on meanwhile.
    pub(super) async fn wait_out(
        &mut self,
        desk: &mut Desk,
        place: &mut Place,
        trouble: &Trouble,
    ) -> Result<(), Stop> {
        let mut trouble = trouble.clone();
        loop {
            tracing::error!(run = %self.lease.run, %trouble, "the store is in trouble; the run waits");
            for direct in mem::take(&mut self.directs) {
                let _ = direct.reply.send(Reply::UseTheInbox);
            }
            while let Ok(news) = self.news.try_recv() {
                self.hear_of(news);
            }
            let executes = self.under_way.iter().any(|task| !task.finished);
            if executes || !matches!(trouble, Trouble::Corrupt(_)) {
                pause(desk).await;
            } else if !set_aside(desk, place).await {
                return Err(Stop::Gone);
            }
            let reloaded = match self.reload().await {
                Err(Stop::Trouble(again)) => {
                    self.end_if_corrupt(&again).await?;
                    trouble = again;
                    continue;
                }
                reloaded @ (Ok(()) | Err(Stop::Gone | Stop::Broken(_))) => reloaded,
            };
            match self.find_out().await {
                Ok(()) => {}
                Err(Stop::Trouble(again)) => {
                    self.end_if_corrupt(&again).await?;
                    trouble = again;
                    continue;
                }
                Err(Stop::Gone | Stop::Broken(_)) => continue,
            }
            self.history = None;
            self.state = None;
            return reloaded;
        }
    }

    /// [`Stop::Gone`] where the run cannot be decoded and an accepted interrupt has ended it.
    async fn end_if_corrupt(&self, trouble: &Trouble) -> Result<(), Stop> {
        match trouble {
            Trouble::Corrupt(_) => self.end_if_interrupted().await,
            Trouble::Unavailable(_) | Trouble::Full(_) => Ok(()),
        }
    }

    async fn end_if_interrupted(&self) -> Result<(), Stop> {
        match end_if_interrupted(&self.node, &self.lease).await {
            Ok(true) | Err(Refused::Fenced | Refused::NotFound) => Err(Stop::Gone),
            Ok(false) => Ok(()),
            Err(
                refused @ (Refused::Trouble(_)
                | Refused::Behind
                | Refused::Stale
                | Refused::Busy(_)
                | Refused::Impossible(_)),
            ) => {
                tracing::error!(run = %self.lease.run, %refused, "an unreadable run cannot be ended");
                Ok(())
            }
        }
    }

    /// A mistake of ours: what is stored and what follows from it disagree. What is under way is given up as in a crash,
    /// nothing begins any more, and nobody else gets the run from this process. What is brought to it is heard all the
    /// same, so that an interrupt ends it.
    pub(super) async fn stand_still(mut self, desk: &mut Desk, place: &mut Place, why: &str) -> Stop {
        tracing::error!(
            run = %self.lease.run,
            why,
            "the run is stopped: what is stored and what follows disagree; it hears an interrupt and nothing else"
        );
        place.leave();
        self.only_hears = true;
        self.give_up();
        loop {
            let heard = self.hear_what_is_there(desk).await;
            if let Err(stop @ (Stop::Trouble(_) | Stop::Broken(_))) = &heard {
                tracing::error!(run = %self.lease.run, ?stop, "the stopped run cannot hear what was brought");
                self.give_up();
                for direct in mem::take(&mut self.directs) {
                    let _ = direct.reply.send(Reply::UseTheInbox);
                }
                let ended = match stop {
                    Stop::Trouble(trouble) => self.end_if_corrupt(trouble).await,
                    Stop::Broken(_) | Stop::Gone => self.end_if_interrupted().await,
                };
                if let Err(stop) = ended {
                    return stop;
                }
            }
            match heard {
                Ok(()) if self.run.control.ended().is_some() => return Stop::Gone,
                Err(Stop::Gone) => return Stop::Gone,
                // The bell was heard, and what it rang for was not.
                Err(Stop::Trouble(_)) => {
                    pause(desk).await;
                    if self.node.stopping.is_cancelled() {
                        return Stop::Gone;
                    }
                    continue;
                }
                Ok(()) | Err(Stop::Broken(_)) => {}
            }
            let (node, look) = (self.node.clone(), desk.look.clone());
            tokio::select! {
                biased;
                () = node.stopping.cancelled() => return Stop::Gone,
                () = look.rung() => {}
                Some(mail) = desk.mail.recv() => self.open(desk, mail),
            }
        }
    }

    async fn hear_what_is_there(&mut self, desk: &mut Desk) -> Result<(), Stop> {
        desk.look.take();
        self.reload().await?;
        self.open_all(desk);
        if desk.claimed.is_some() {
            return Err(Stop::Gone);
        }
        if self.inbox.is_empty() && self.directs.is_empty() {
            return Ok(());
        }
        self.pass(desk).await
    }

    /// As if this worker had just come to its run.
    fn give_up(&mut self) {
        self.stop_all();
        self.unsaid.clear();
        self.after_tools.clear();
        self.unsure = None;
        self.history = None;
        self.state = None;
        self.drained = false;
    }
}
