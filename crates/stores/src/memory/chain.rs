//! The head of a run's hash chain. It is computed from the log when a caller asks for it: nothing outside of this
//! process can change a log in memory, so a stored hash would have nothing to protect.

use engine::store::{CommittedEvent, StoreError};
use machine::chain::{ChainHead, CommitContent, anchor, link};

use super::state::MemoryRun;
use crate::commit_text::{checkpoint_name, commit_body};

/// `None` if the run has no events.
pub(super) fn head(run: &MemoryRun) -> Result<Option<ChainHead>, StoreError> {
    let mut hash = anchor(&run.control.revision, 1);
    // The last event of each commit has the commit's checkpoint.
    for commit in run.log.chunk_by(|event, _| event.checkpoint.is_none()) {
        let (Some(first), Some(last)) = (commit.first(), commit.last()) else { continue };
        let Some(checkpoint) = last.checkpoint else {
            return Err(StoreError::Impossible(format!("the last commit of {} has no checkpoint", run.id)));
        };
        let content = CommitContent {
            tenant: run.tenant.as_str(),
            run: run.id.as_str(),
            first_seq: first.event.seq,
            last_seq: last.event.seq,
            checkpoint: checkpoint_name(checkpoint),
            body: &commit_body(commit.iter().map(|CommittedEvent { event, .. }| &**event))?,
        };
        hash = link(&hash, &content.hash());
    }
    Ok((!run.log.is_empty()).then_some(ChainHead { starts_at: 1, hash }))
}
