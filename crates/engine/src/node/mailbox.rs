//! How a worker is reached: what it may be told, what it answers, and the bell of its inbox.

use std::sync::atomic::{AtomicBool, Ordering};

use machine::inbox::{Item, Verdict};
use tokio::sync::{Notify, oneshot};

use crate::store::Claimed;

/// What a worker may be told while it holds a run.
pub(crate) enum WorkerMessage {
    /// Somebody brings something to the very node that holds the run.
    Submit(Box<DirectSubmission>),
    /// The run was claimed while this worker was about to.
    Claimed(Box<Claimed>),
}

pub(crate) struct DirectSubmission {
    pub(crate) item: Item,
    pub(crate) reply: oneshot::Sender<Reply>,
}

pub(crate) enum Reply {
    /// It is stored.
    Stored(Verdict),
    /// This worker cannot take it: the store decides.
    UseInbox,
    /// It has just let the run go: another one may take it up, and hears it with its first commit.
    Released,
}

/// Rings when an inbox has to be looked at.
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
