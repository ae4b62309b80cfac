//! What people change about a whole thread: auto-approval on and off, and its deletion at the end.

use machine::audit::AuditAction;
use machine::id::ThreadId;

use super::{People, Subject, is_accepted};
use crate::stories::THREAD;
use crate::wire::{Command, Request, Response, RunsSnapshot};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadChange {
    AutoApproveOn,
    AutoApproveOff,
    Deletion,
}

/// How often a change was sent, and its answers.
#[derive(Clone, Debug, Default)]
pub struct SentChange {
    pub sent_count: usize,
    pub responses: Vec<Response>,
}

impl ThreadChange {
    pub const ALL: [Self; 3] = [Self::AutoApproveOn, Self::AutoApproveOff, Self::Deletion];

    /// What the audit record calls it.
    #[must_use]
    pub const fn action(self) -> AuditAction {
        match self {
            Self::AutoApproveOn => AuditAction::AutoApproveOn,
            Self::AutoApproveOff => AuditAction::AutoApproveOff,
            Self::Deletion => AuditAction::ThreadDeleted,
        }
    }

    fn request(self) -> Request {
        let thread = ThreadId::from(THREAD);
        match self {
            Self::AutoApproveOn => Request::AutoApprove { thread, is_on: true },
            Self::AutoApproveOff => Request::AutoApprove { thread, is_on: false },
            Self::Deletion => Request::DeleteThread { thread },
        }
    }
}

impl People {
    /// How often a change was accepted, and how often it was sent.
    #[must_use]
    pub fn thread_change_counts(&self, change: ThreadChange) -> (usize, usize) {
        let Some(sent) = self.thread_changes.get(&change) else { return (0, 0) };
        (sent.responses.iter().filter(|response| is_accepted(response)).count(), sent.sent_count)
    }

    /// Whether the thread may be gone.
    #[must_use]
    pub fn has_deleted(&self) -> bool {
        self.thread_changes.contains_key(&ThreadChange::Deletion)
    }

    /// Everything that these people want to change about the thread is changed, apart from its deletion.
    pub(super) fn has_permitted(&self) -> bool {
        self.story.auto_approve.is_none() || self.is_changed(ThreadChange::AutoApproveOff)
    }

    pub(super) fn is_changed(&self, change: ThreadChange) -> bool {
        self.thread_change_counts(change).0 > 0
    }

    pub(super) fn auto_approve(&mut self, snapshot: &RunsSnapshot, commands: &mut Vec<Command>) {
        let Some((on, off)) = self.story.auto_approve else { return };
        if self.is_time(on, snapshot) {
            self.change_thread(ThreadChange::AutoApproveOn, commands);
        }
        if self.is_time(off, snapshot) && self.is_changed(ThreadChange::AutoApproveOn) {
            self.change_thread(ThreadChange::AutoApproveOff, commands);
        }
    }

    /// The last thing that these people do.
    pub(super) fn delete(&mut self, commands: &mut Vec<Command>) {
        if self.has_deleted() || (self.story.deletes && self.is_done()) {
            self.change_thread(ThreadChange::Deletion, commands);
        }
    }

    /// Sent again to every process until it is accepted.
    fn change_thread(&mut self, change: ThreadChange, commands: &mut Vec<Command>) {
        if !self.is_changed(change) && self.send_once(Subject::Thread(change), change.request(), commands) {
            self.thread_changes.entry(change).or_default().sent_count += 1;
        }
    }
}
