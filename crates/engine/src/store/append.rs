//! What a worker hands to its store in one commit, and what the store returns.

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
    /// The sequence number of the last stored event.
    pub expected_seq: u64,
    /// The version of the run as its worker has seen it, including its whole inbox.
    pub expected_version: u64,
    /// Numbered without gaps after `expected_seq`. Empty if the commit only consumes rows that changed nothing.
    pub events: Vec<Arc<Event>>,
    /// The state after these events.
    pub control: Arc<Control>,
    /// In the order in which they were processed.
    pub consumed: Vec<Ticket>,
    pub accepted: Vec<Item>,
    pub spawn: Vec<NewChildRun>,
    pub deliver: Vec<Delivery>,
    pub rows: ProjectionRows,
}

/// A child run with its own thread, which it holds.
#[derive(Clone, Debug)]
pub struct NewChildRun {
    pub thread: ThreadId,
    /// `run.queued`, the first event of every log.
    pub first: Arc<Event>,
    pub control: Arc<Control>,
}

/// The consequences of a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    /// Runs of the same tenant that have work because of this commit.
    pub woken: Vec<RunId>,
    /// The run's version after this commit.
    pub version: u64,
}

/// A run to create.
#[derive(Clone, Debug)]
pub struct Create {
    pub tenant: Tenant,
    /// The thread as the caller saw it. One that was absent is created in the same commit. One that existed is never
    /// created again: [`StoreError::NotFound`] if it is gone.
    pub seen: ThreadView,
    /// How the store admits the run inside its transaction if the thread is busy.
    pub if_busy: IfBusy,
    /// The message after which the run begins, if the caller named one; otherwise the thread's last message.
    pub begins_after: Option<MessageId>,
    /// Identifies a repeat of the message.
    pub key: Option<PostKey>,
    /// The frozen agent that the run is pinned to, if it came with the message and is not in the configuration.
    pub inline_agent: Option<InlineAgent>,
    /// The caller continues the run at once. The thread must be free and its last message must be the one that was
    /// seen, otherwise [`StoreError::Stale`].
    pub lease: bool,
    /// The events, starting with event 1.
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

    /// The digest under which the run finds it.
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

/// A run that was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Never a refusal.
    pub admission: Admission,
    pub lease: Option<Lease>,
    /// Runs of the same tenant that have work because of this commit: the superseded ones.
    pub woken: Vec<RunId>,
    /// The run's version after this commit.
    pub version: u64,
}
