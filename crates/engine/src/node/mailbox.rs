//! How to reach a worker: the messages it accepts, its replies, and the signal for its inbox.

use std::sync::atomic::{AtomicBool, Ordering};

use machine::inbox::{Item, Verdict};
use tokio::sync::{Notify, oneshot};

use crate::store::Claimed;

/// A message to a worker that holds a run.
pub(crate) enum WorkerMessage {
    /// An item submitted on the node that holds the run.
    Submit(Box<DirectSubmission>),
    /// The dispatcher claimed the run while this worker was about to.
    Claimed(Box<Claimed>),
}

pub(crate) struct DirectSubmission {
    pub(crate) item: Item,
    pub(crate) reply: oneshot::Sender<Reply>,
}

pub(crate) enum Reply {
    /// The item is stored.
    Stored(Verdict),
    /// This worker cannot take the item: submit it through the store.
    UseInbox,
    /// The worker has just released the run. Another one may claim it, and process the item in its first commit.
    Released,
}

/// Signals that the inbox has to be read.
#[derive(Debug, Default)]
pub(crate) struct InboxSignal {
    due: AtomicBool,
    notify: Notify,
}

impl InboxSignal {
    pub(crate) fn notify(&self) {
        self.due.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    pub(crate) fn take(&self) -> bool {
        self.due.swap(false, Ordering::AcqRel)
    }

    pub(crate) async fn notified(&self) {
        while !self.due.load(Ordering::Acquire) {
            self.notify.notified().await;
        }
    }
}
