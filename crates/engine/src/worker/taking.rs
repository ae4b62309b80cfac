//! How a worker comes to its run.

use std::sync::Arc;

use super::standing::{pause, set_aside};
use super::{Desk, Entry, Worker};
use crate::agent::Pinned;
use crate::node::{Mail, Place, Reply};
use crate::store::{Claim, Claimed, Refused, Trouble};

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
    let Some(pinned) = pinned(desk, place, &claimed).await else { return Ok(None) };
    Ok(Some(Worker::of(&desk.node, claimed, pinned)))
}

/// Nobody else gets the run: there is no way but to wait until the store answers. None where a lost lease let it go, and
/// where the engine stops before what is damaged can be read.
async fn pinned(desk: &mut Desk, place: &mut Place, claimed: &Claimed) -> Option<Arc<Pinned>> {
    let mut was_aside = false;
    loop {
        match desk.node.pinned(&claimed.lease.tenant, &claimed.loaded.control).await {
            Ok(pinned) => {
                if was_aside {
                    // Whatever rang meanwhile is not in what was loaded with the claim.
                    desk.look.ring();
                }
                return Some(pinned);
            }
            Err(Refused::NotFound) => return None,
            Err(Refused::Trouble(trouble @ (Trouble::Unavailable(_) | Trouble::Full(_)))) => {
                tracing::error!(run = %claimed.lease.run, %trouble, "the store is in trouble; the run waits");
                pause(desk).await;
            }
            Err(refused) => {
                tracing::error!(run = %claimed.lease.run, trouble = %refused, "the agent of the run cannot be read; the run waits");
                if !set_aside(desk, place).await {
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
    let claimed = claimed?;
    let pinned = pinned(desk, place, &claimed).await?;
    Some(Worker::of(&desk.node, *claimed, pinned))
}
