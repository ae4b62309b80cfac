//! A thread goes as a whole, with all that is kept of its runs.

use engine::store::{Refused, Tenant};
use machine::id::ThreadId;

use super::state::State;

impl State {
    /// Child runs have threads of their own, which stay.
    pub(super) fn delete_thread(&mut self, tenant: &Tenant, id: &ThreadId) -> Result<(), Refused> {
        let rows = self.tenants.get_mut(tenant).ok_or(Refused::NotFound)?;
        let thread = rows.threads.get(id).ok_or(Refused::NotFound)?;
        if thread.holder.is_some() || !thread.queue.is_empty() {
            return Err(Refused::Stale);
        }
        let Some(thread) = rows.threads.remove(id) else { return Err(Refused::NotFound) };
        rows.threads_by_age.remove(&(thread.created_at, id.clone()));
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
