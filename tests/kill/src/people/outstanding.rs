//! What these people still wait for: an answer, an expiry, a late answer, or nothing.

use machine::event::Pending;
use machine::id::SuspensionId;
use machine::suspension::SuspensionKind;

use super::thread_changes::ThreadChange;
use super::{People, Posted, Subject, is_accepted};

impl People {
    /// No answer is outstanding, everything that started has ended, and the thread is gone if it is to be deleted.
    #[must_use]
    pub fn is_over(&self) -> bool {
        if self.story.deletes {
            let is_answered = self.waits_for.is_empty() && self.troubled.is_empty();
            return is_answered && self.is_changed(ThreadChange::Deletion);
        }
        self.is_done()
    }

    /// No answer is outstanding, and everything that started has ended.
    pub(super) fn is_done(&self) -> bool {
        let Some(snapshot) = &self.snapshot else { return false };
        let there =
            |posted: &Posted| snapshot.runs.iter().any(|run| run.message.as_ref() == Some(&posted.id));
        let unsaid = |id: &SuspensionId| !self.sent.contains(&Subject::Decision(id.clone()));
        self.messages.iter().all(there)
            && snapshot.runs.iter().all(|run| run.ended)
            && self.waits_for.is_empty()
            && self.troubled.is_empty()
            && self.has_permitted()
            && !self.decisions.keys().any(unsaid)
    }

    /// Nothing happens until time passes or a node claims the run again.
    #[must_use]
    pub fn waits_for_an_outage(&self) -> bool {
        self.waits_for_an_expiry() || self.waits_for_a_late_answer()
    }

    /// Nothing happens until time passes.
    #[must_use]
    pub fn waits_for_an_expiry(&self) -> bool {
        let Some(snapshot) = &self.snapshot else { return false };
        let expires = |open: &Pending| open.kind == SuspensionKind::Approval && open.expires_at.is_some();
        self.is_at_rest() && self.story.reply.is_none() && snapshot.pending().any(|(_, open)| expires(open))
    }

    fn waits_for_a_late_answer(&self) -> bool {
        let Some(snapshot) = &self.snapshot else { return false };
        let late = snapshot.pending().any(|(_, open)| {
            let responses = self.late_answers.get(&open.suspension_id);
            responses.is_some_and(|responses| responses.iter().any(is_accepted))
        });
        self.is_at_rest() && late
    }

    fn is_at_rest(&self) -> bool {
        let Some(snapshot) = &self.snapshot else { return false };
        self.waits_for.is_empty() && snapshot.runs.iter().all(|run| run.ended || run.waiting)
    }

    /// The answers these people still wait for, as text.
    #[must_use]
    pub fn open_requests(&self) -> String {
        format!("{:?}", self.waits_for)
    }
}
