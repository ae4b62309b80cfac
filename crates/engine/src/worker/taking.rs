//! How a worker comes to its run.

use std::sync::Arc;

use machine::Timestamp;

use super::standing::{halt, pause};
use super::{Desk, Entry, Worker};
use crate::agent::Pinned;
use crate::node::{Mail, Place, Reply};
use crate::store::{Claim, Claimed, Lease, Loaded, Refused, Trouble};

/// A run that is held and could be loaded.
pub(super) struct Taken {
    pub(super) lease: Lease,
    pub(super) loaded: Loaded,
    pub(super) doubt_at: Timestamp,
}

/// None where somebody else has the run, or it has ended.
pub(super) async fn take(
    desk: &mut Desk,
    place: &mut Place,
    entry: Entry,
) -> Result<Option<Worker>, Refused> {
    let node = &desk.node;
    let claimed = match entry {
        Entry::Created(newborn) => return Ok(Some(Worker::born(node, *newborn))),
        Entry::Claimed(claimed) => *claimed,
        Entry::Claim => {
            let claim = Claim::Run { tenant: desk.tenant.clone(), run: desk.run.clone() };
            match node.store.claim(claim).await?.pop() {
                Some(claimed) => claimed,
                None => return Ok(taken_meanwhile(desk, place).await),
            }
        }
    };
    Ok(worker(desk, place, claimed).await)
}

async fn worker(desk: &mut Desk, place: &mut Place, claimed: Claimed) -> Option<Worker> {
    let taken = loaded(desk, place, claimed).await?;
    let pinned = pinned(desk, place, &taken).await?;
    Some(Worker::of(&desk.node, taken, pinned))
}

/// A run that cannot be decoded is halted until it can be, or until an interrupt ends it: then there is none.
async fn loaded(desk: &mut Desk, place: &mut Place, claimed: Claimed) -> Option<Taken> {
    let Claimed { lease, loaded, doubt_at } = claimed;
    let mut loaded = loaded.map_err(Refused::Trouble);
    loop {
        match loaded {
            Ok(loaded) => return Some(Taken { lease, loaded, doubt_at }),
            Err(Refused::Fenced | Refused::NotFound) => return None,
            Err(Refused::Trouble(trouble @ (Trouble::Unavailable(_) | Trouble::Full(_)))) => {
                tracing::error!(run = %lease.run, %trouble, "the store is in trouble; the run waits");
                pause(desk).await;
            }
            Err(
                refused @ (Refused::Trouble(Trouble::Corrupt(_))
                | Refused::Behind
                | Refused::Stale
                | Refused::Busy(_)
                | Refused::Impossible(_)),
            ) => {
                tracing::error!(run = %lease.run, why = %refused, "run is unreadable and has been halted; run `holdpoint doctor`");
                if !halt(desk, place, &lease).await {
                    return None;
                }
            }
        }
        loaded = desk.node.store.load(&lease).await;
    }
}

/// Nobody else gets the run: there is no way but to wait until the store answers. None where a lost lease let it go, where an
/// interrupt ended it, and where the engine stops before what is damaged can be read.
async fn pinned(desk: &mut Desk, place: &mut Place, taken: &Taken) -> Option<Arc<Pinned>> {
    let mut was_aside = false;
    loop {
        match desk.node.pinned(&taken.lease.tenant, &taken.loaded.control).await {
            Ok(pinned) => {
                if was_aside {
                    // Whatever rang meanwhile is not in what was loaded with the claim.
                    desk.look.ring();
                }
                return Some(pinned);
            }
            Err(Refused::NotFound) => return None,
            Err(Refused::Trouble(trouble @ (Trouble::Unavailable(_) | Trouble::Full(_)))) => {
                tracing::error!(run = %taken.lease.run, %trouble, "the store is in trouble; the run waits");
                pause(desk).await;
            }
            Err(refused) => {
                tracing::error!(run = %taken.lease.run, trouble = %refused, "the agent of the run cannot be read; the run waits");
                if !halt(desk, place, &taken.lease).await {
                    return None;
                }
                was_aside = true;
            }
        }
    }
}

/// The dispatcher may have claimed the run for this very worker.
async fn taken_meanwhile(desk: &mut Desk, place: &mut Place) -> Option<Worker> {
    let mut claimed = None;
    while let Ok(mail) = desk.mail.try_recv() {
        match mail {
            Mail::Claimed(other) => claimed = Some(other),
            Mail::Direct(direct) => drop(direct.reply.send(Reply::UseTheInbox)),
        }
    }
    worker(desk, place, *claimed?).await
}
