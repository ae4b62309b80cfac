//! What a worker hands to its store in one commit, and what the store says to it.

use std::sync::Arc;

use machine::Control;
use machine::delivery::Delivery;
use machine::event::Event;
use machine::id::{Digest, MessageId, RunId, ThreadId};
use machine::inbox::{Item, Ticket};
use machine::projection_rows::ProjectionRows;
use machine::thread::{Admission, IfBusy};

use super::{Lease, PostKey, StoreError, Tenant, ThreadView};

/// One commit of a run.
#[derive(Clone, Debug)]
pub struct Append {
    /// Of the last event that is stored.
    pub expected_seq: u64,
    /// Of the run as its worker has seen it, with its whole inbox.
    pub expected_version: u64,
    /// Dense behind `expected_seq`. Empty where rows were consumed that changed nothing.
    pub events: Vec<Arc<Event>>,
    /// The state after these events.
    pub control: Arc<Control>,
    /// In the order in which they were heard.
    pub consumed: Vec<Ticket>,
    pub accepted: Vec<Item>,
    pub spawn: Vec<NewChildRun>,
    pub deliver: Vec<Delivery>,
    pub rows: ProjectionRows,
}

/// A child run with a thread of its own, which it holds.
#[derive(Clone, Debug)]
pub struct NewChildRun {
    pub thread: ThreadId,
    /// `run.queued`, the first event of every log.
    pub first: Arc<Event>,
    pub control: Arc<Control>,
}

/// What a commit leads to elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    /// Runs of the same tenant that have something to do because of this commit.
    pub woken: Vec<RunId>,
    /// Of the run after this commit.
    pub version: u64,
}

/// A run to create.
#[derive(Clone, Debug)]
pub struct Create {
    pub tenant: Tenant,
    /// The thread as it was when the caller looked. One that was absent is created in the same commit. One that was there
    /// is never created again: [`StoreError::NotFound`] if it is gone.
    pub seen: ThreadView,
    /// By which the store admits the run inside its transaction.
    pub if_busy: IfBusy,
    /// The message that the run begins after, where somebody asked for one; else it is the thread's last.
    pub begins_after: Option<MessageId>,
    /// By which a repeat of the message is recognised.
    pub key: Option<PostKey>,
    /// The frozen agent that the run is pinned to, where it came with the message and nobody else has it.
    pub inline_agent: Option<InlineAgent>,
    /// The caller continues with the run at once. The thread must be free and have the last message that was seen, else
    /// [`StoreError::Stale`].
    pub lease: bool,
    /// From event 1 on.
    pub append: Append,
}

/// A frozen agent that came with a message. It belongs to the thread of the run that is pinned to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InlineAgent {
    digest: Digest,
    text: Arc<str>,
}

impl InlineAgent {
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        Self { digest: Digest::sha256(text.as_bytes()), text }
    }

    /// Under which its run finds it.
    #[must_use]
    pub const fn digest(&self) -> &Digest {
        &self.digest
    }

    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// [`StoreError::Impossible`] unless the run is pinned to it.
    pub fn check(&self, run: &Control) -> Result<(), StoreError> {
        if self.digest == run.revision {
            return Ok(());
        }
        let why = format!("run {} is pinned to {}, and {} comes along", run.run, run.revision, self.digest);
        Err(StoreError::Impossible(why))
    }
}

/// A run that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Anything but a refusal.
    pub admission: Admission,
    pub lease: Option<Lease>,
    /// Runs of the same tenant that have something to do because of this commit: those that are superseded.
    pub woken: Vec<RunId>,
    /// Of the run after this commit.
    pub version: u64,
}
