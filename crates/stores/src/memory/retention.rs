//! Deletes a whole thread, with everything stored about its runs and about the runs that they delegated to.

use std::collections::{BTreeSet, VecDeque};

use engine::store::{Deleted, Deletion, StoreError, Tenant};
use machine::Timestamp;
use machine::audit::{AuditAction, AuditEntry, DeletedThread};
use machine::event::{Fact, OpenedSuspension};
use machine::id::ThreadId;
use machine::suspension::Held;

use super::state::{MemoryRun, MemoryState};

impl MemoryState {
    /// Also deletes the threads of the runs that its runs delegated to, directly or indirectly.
    pub(super) fn delete_thread(
        &mut self,
        tenant: &Tenant,
        id: &ThreadId,
        deletion: &Deletion,
        now: Timestamp,
    ) -> Result<Deleted, StoreError> {
        let mut family = BTreeSet::from([id.clone()]);
        let mut ahead = VecDeque::from([id.clone()]);
        while let Some(id) = ahead.pop_front() {
            let thread = self.find_thread(tenant, &id).ok_or(StoreError::NotFound)?;
            if thread.holder.is_some() || !thread.queue.is_empty() {
                return Err(StoreError::Stale);
            }
            let runs = thread.runs.iter().filter_map(|row| self.runs.get(row));
            for child in runs.flat_map(|run| self.threads_of_children(run)) {
                if family.insert(child.clone()) {
                    ahead.push_back(child);
                }
            }
        }
        let threads: Vec<DeletedThread> =
            family.iter().filter_map(|id| self.contents_of(tenant, id)).collect();
        if !deletion.decided_approvals && threads.iter().any(|thread| !thread.approvals.is_empty()) {
            return Ok(Deleted::Nothing);
        }
        for thread in &threads {
            self.drop_thread(tenant, &thread.id)?;
            let entry = AuditEntry::new(now, AuditAction::ThreadDeleted, deletion.actor.clone());
            self.record(tenant, &entry.of_deleted_thread(thread));
        }
        Ok(Deleted::Thread)
    }

    fn contents_of(&self, tenant: &Tenant, id: &ThreadId) -> Option<DeletedThread> {
        let thread = self.find_thread(tenant, id)?;
        let runs: Vec<&MemoryRun> = thread.runs.iter().filter_map(|row| self.runs.get(row)).collect();
        let decided = runs
            .iter()
            .flat_map(|run| &run.suspensions)
            .filter(|(_, suspension)| suspension.opened.kind.needs_person() && suspension.closed.is_some());
        let approvals: BTreeSet<String> = decided.map(|(id, _)| id.to_string()).collect();
        let runs: BTreeSet<String> = runs.iter().map(|run| run.id.to_string()).collect();
        Some(DeletedThread {
            id: id.clone(),
            runs: runs.into_iter().collect(),
            approvals: approvals.into_iter().collect(),
        })
    }

    /// The event that opened the suspension names the child.
    fn threads_of_children(&self, run: &MemoryRun) -> Vec<ThreadId> {
        let mut threads = Vec::new();
        for committed in &run.log {
            if let Fact::ToolSuspended(OpenedSuspension { held: Held::ChildRun { run: child, .. }, .. }) =
                &committed.event.fact
                && let Some(child) = self.find_run(&run.tenant, child)
            {
                threads.push(child.thread.clone());
            }
        }
        threads
    }

    fn drop_thread(&mut self, tenant: &Tenant, id: &ThreadId) -> Result<(), StoreError> {
        let rows = self.tenants.get_mut(tenant).ok_or(StoreError::NotFound)?;
        let thread = rows.threads.remove(id).ok_or(StoreError::NotFound)?;
        rows.threads_by_age.remove(&(thread.created_at, id.clone()));
        for row in &thread.runs {
            self.children.remove(row);
        }
        for run in thread.runs.iter().filter_map(|row| self.runs.remove(row)) {
            for (suspension, stored) in run.suspensions {
                let key = (stored.opened.at, suspension);
                rows.approvals_by_age.remove(&key);
                rows.pending_by_age.remove(&key);
                rows.suspensions.remove(&key.1);
            }
            rows.runs_by_age.remove(&(run.created_at, run.id.clone()));
            rows.runs.remove(&run.id);
        }
        Ok(())
    }
}
