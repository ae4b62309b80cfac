//! Examines what a thread stores beside its logs: the order of its messages, the keys of posted messages, stored
//! responses, and the frozen agents that came with its messages.

use std::collections::BTreeSet;

use machine::id::Digest;

use super::fault::ExamineError;
use super::finding::{FindingCode, PlaceFindings};
use super::rows::SnapshotRows;
use super::thread::ExaminedThread;

pub(super) async fn examine(
    thread: &ExaminedThread<'_, impl SnapshotRows>,
    at: &mut PlaceFindings<'_>,
) -> Result<(), ExamineError> {
    let ExaminedThread { rows, number, tenant, .. } = *thread;
    let count = rows.messages_out_of_order(number).await?;
    if count > 0 {
        let what = format!("{count} messages are not in the order of the logs");
        at.add(FindingCode::MessageDiffers, what);
    }
    for key in rows.post_keys(number, tenant).await? {
        let (code, what) = match key.run_thread {
            None => (FindingCode::Orphan, "names a run that does not exist"),
            Some(other) if other != number => (FindingCode::ThreadDiffers, "names a run of another thread"),
            Some(_) if !key.is_of_tenant => (FindingCode::ThreadDiffers, "belongs to another tenant"),
            Some(_) if !key.is_intact => (FindingCode::ThreadDiffers, "is not what was written"),
            Some(_) => continue,
        };
        at.add(code, format!("the key {:?} of a message {what}", key.scope));
    }
    for response in rows.stored_responses(number, tenant).await? {
        let what = if !response.is_of_tenant {
            "belongs to another tenant"
        } else if !response.is_intact {
            "is not what was written"
        } else {
            continue;
        };
        let what = format!("the answer {:?} of run {} {what}", response.scope, response.run);
        at.add(FindingCode::DecisionDiffers, what);
    }
    Ok(())
}

/// Each must be stored under the digest of its text, belong to the thread's tenant, and be one that a run of the thread
/// is pinned to. `pinned` has the digests that the runs are pinned to; `None` if an unreadable log leaves that unknown.
pub(super) async fn examine_inline_agents(
    thread: &ExaminedThread<'_, impl SnapshotRows>,
    pinned: Option<&BTreeSet<Digest>>,
    at: &mut PlaceFindings<'_>,
) -> Result<(), ExamineError> {
    let mut after: Vec<u8> = Vec::new();
    loop {
        let page = thread.rows.inline_agents(thread.number, &after).await?;
        for (tenant, agent) in &page {
            let is_unknown = |pinned: &BTreeSet<Digest>| pinned.iter().all(|known| known.0 != *agent.digest);
            let (code, what) = if let Some(found) = agent.other_digest() {
                (FindingCode::RevisionDiffers, format!("has a text with the digest {found}"))
            } else if tenant != thread.tenant {
                (FindingCode::ThreadDiffers, "belongs to another tenant".into())
            } else if pinned.is_some_and(is_unknown) {
                (FindingCode::Orphan, "is one that no run of the thread is pinned to".into())
            } else {
                continue;
            };
            at.add(code, format!("the frozen agent {} that came with a message {what}", agent.name()));
        }
        match page.into_iter().next_back() {
            Some((_, last)) if last.digest > after => after = last.digest,
            // A damaged index could return the same rows again and again.
            Some(_) | None => return Ok(()),
        }
    }
}
