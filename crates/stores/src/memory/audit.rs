//! The audit record of each tenant: written with the change, then sealed into the tenant's chain.

use std::collections::VecDeque;

use engine::store::{AUDIT_RECORDS_MAX, AuditFilter, Tenant, TenantChain};
use machine::Timestamp;
use machine::audit::{AuditChain, AuditEntry, AuditRecord, SealedRecord};

use super::state::{MemoryState, RunRowId};

#[derive(Debug)]
pub(super) struct MemoryAudit {
    unsealed: VecDeque<AuditRecord>,
    sealed: VecDeque<SealedRow>,
    pruned: AuditChain,
    head: AuditChain,
}

#[derive(Debug)]
struct SealedRow {
    /// Its body is in `sealed`.
    columns: AuditRecord,
    sealed: SealedRecord,
}

impl Default for MemoryAudit {
    fn default() -> Self {
        let (pruned, head) = (AuditChain::START, AuditChain::START);
        Self { unsealed: VecDeque::new(), sealed: VecDeque::new(), pruned, head }
    }
}

impl MemoryAudit {
    fn seal(&mut self) {
        while let Some(mut columns) = self.unsealed.pop_front() {
            let sealed = self.head.seal(std::mem::take(&mut columns.body));
            self.sealed.push_back(SealedRow { columns, sealed });
        }
    }

    fn prune(&mut self, older_than: Timestamp) -> u64 {
        let mut count = 0;
        while self.sealed.front().is_some_and(|row| row.columns.at < older_than)
            && let Some(SealedRow { sealed: SealedRecord { seq, hash, .. }, .. }) = self.sealed.pop_front()
        {
            self.pruned = AuditChain { seq, hash };
            count += 1;
        }
        count
    }
}

fn matches(filter: &AuditFilter, row: &AuditRecord) -> bool {
    filter.since.is_none_or(|since| row.at >= since)
        && filter.until.is_none_or(|until| row.at < until)
        && filter.by.as_ref().is_none_or(|by| row.by == *by)
        && filter.action.is_none_or(|action| row.action == action)
}

impl MemoryState {
    pub(super) fn record(&mut self, tenant: &Tenant, entry: &AuditEntry) {
        let record = entry.to_record(tenant.as_str());
        self.audit.entry(tenant.clone()).or_default().unsealed.push_back(record);
    }

    pub(super) fn seal_audit(&mut self) -> u64 {
        let mut count = 0;
        for audit in self.audit.values_mut() {
            count += audit.unsealed.len() as u64;
            audit.seal();
        }
        count
    }

    pub(super) fn sealed_records(
        &self,
        tenant: &Tenant,
        filter: &AuditFilter,
        after: u64,
        limit: usize,
    ) -> Vec<SealedRecord> {
        let rows = self.audit.get(tenant).into_iter().flat_map(|audit| &audit.sealed);
        let found = rows.filter(|row| row.sealed.seq > after && matches(filter, &row.columns));
        found.take(limit.min(AUDIT_RECORDS_MAX)).map(|row| row.sealed.clone()).collect()
    }

    pub(super) fn audit_chains(&self) -> Vec<TenantChain> {
        let chains = self.audit.iter().filter(|(_, audit)| audit.head.seq > 0);
        chains
            .map(|(tenant, audit)| TenantChain {
                tenant: tenant.clone(),
                pruned: audit.pruned,
                head: audit.head,
            })
            .collect()
    }

    pub(super) fn prune_audit(&mut self, older_than: Timestamp, now: Timestamp) -> u64 {
        let mut count = 0;
        for (tenant, audit) in &mut self.audit {
            let pruned = audit.prune(older_than);
            if pruned > 0 {
                let entry = AuditEntry::of_pruned_records(now, audit.pruned);
                audit.unsealed.push_back(entry.to_record(tenant.as_str()));
            }
            count += pruned;
        }
        count
    }

    /// What a commit of this run records.
    pub(super) fn record_commit(&mut self, row: RunRowId, entries: &[AuditEntry]) {
        let Some(run) = self.runs.get(&row).filter(|_| !entries.is_empty()) else { return };
        let records =
            entries.iter().map(|entry| entry.to_record_of_run(run.tenant.as_str(), &run.thread, &run.id));
        self.audit.entry(run.tenant.clone()).or_default().unsealed.extend(records);
    }
}
