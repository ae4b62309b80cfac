//! How a worker comes to its run.

use std::sync::Arc;

use super::{Desk, Entry, Worker, pause};
use crate::agent::Pinned;
use crate::node::{Mail, Reply};
use crate::store::{Claim, Claimed, Refused};

/// None where somebody else has the run, or it has ended.
pub(super) async fn take(desk: &mut Desk, entry: Entry) -> Result<Option<Worker>, Refused> {
    let node = &desk.node;
    let claimed = match entry {
        Entry::Created(newborn) => return Ok(Some(Worker::born(node, *newborn))),
        Entry::Claimed(claimed) => *claimed,
        Entry::Claim => {
            let claim = Claim::Run { tenant: desk.tenant.clone(), run: desk.run.clone() };
            match node.store.claim(claim).await?.pop() {
                Some(claimed) => claimed,
                None => return Ok(taken_meanwhile(desk).await),
            }
        }
    };
    let Some(pinned) = pinned(desk, &claimed).await else { return Ok(None) };
    Ok(Some(Worker::of(&desk.node, claimed, pinned)))
}

/// Nobody else gets the run: there is no way but to wait until the store answers. None where a lost lease let it go.
async fn pinned(desk: &mut Desk, claimed: &Claimed) -> Option<Arc<Pinned>> {
    loop {
        match desk.node.pinned(&claimed.lease.tenant, &claimed.loaded.control).await {
            Ok(pinned) => return Some(pinned),
            Err(Refused::NotFound) => return None,
            Err(refused) => {
                tracing::error!(run = %claimed.lease.run, trouble = %refused, "the store is in trouble; the run waits");
                pause(desk).await;
            }
        }
    }
}

/// The dispatcher may have claimed the run for this very worker.
async fn taken_meanwhile(desk: &mut Desk) -> Option<Worker> {
    let mut claimed = None;
    while let Ok(mail) = desk.mail.try_recv() {
        match mail {
            Mail::Claimed(other) => claimed = Some(other),
            Mail::Direct(direct) => drop(direct.reply.send(Reply::UseTheInbox)),
        }
    }
    let claimed = claimed?;
    let pinned = pinned(desk, &claimed).await?;
    Some(Worker::of(&desk.node, *claimed, pinned))
}
