//! The audit record of each tenant: written with the change, then sealed into the tenant's chain.

use std::collections::VecDeque;

use engine::store::{
    AUDIT_RECORDS_MAX, AuditFilter, AuditStore, BoxFuture, ConfigurationRecord, Sealed, StoreError, Tenant,
    TenantChain,
};
use machine::Timestamp;
use machine::audit::{AuditChain, AuditEntry, AuditRecord, SealedRecord};
use machine::id::Digest;

use super::MemoryStore;
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
        while let Some(columns) = self.unsealed.pop_front() {
            self.push(columns);
        }
    }

    fn push(&mut self, mut columns: AuditRecord) {
        let sealed = self.head.seal(std::mem::take(&mut columns.body));
        self.sealed.push_back(SealedRow { columns, sealed });
    }

    fn prune(&mut self, older_than: Timestamp) -> u64 {
        let mut count = 0;
        // Changes of keys are found by comparing with the newest record of the configuration.
        let newest = self.sealed.iter().rev().find(|row| is_of_configuration(&row.columns));
        let newest = newest.map_or(u64::MAX, |row| row.sealed.seq);
        let is_old = |row: &SealedRow| row.columns.at < older_than && row.sealed.seq < newest;
        while self.sealed.front().is_some_and(is_old)
            && let Some(SealedRow { sealed: SealedRecord { seq, hash, .. }, .. }) = self.sealed.pop_front()
        {
            self.pruned = AuditChain { seq, hash };
            count += 1;
        }
        count
    }
}

fn is_of_configuration(row: &AuditRecord) -> bool {
    row.action.as_str().starts_with("configuration.")
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

    pub(super) fn record_configuration(&mut self, records: &[ConfigurationRecord]) -> Result<(), StoreError> {
        let is_newer = |ConfigurationRecord { tenant, known, .. }: &ConfigurationRecord| {
            let (Some(known), Some(audit)) = (known, self.audit.get(tenant)) else { return false };
            let sealed = audit.sealed.iter().filter(|row| row.sealed.seq > *known).map(|row| &row.columns);
            audit.unsealed.iter().chain(sealed).any(is_of_configuration)
        };
        if records.iter().any(is_newer) {
            return Err(StoreError::Behind);
        }
        for ConfigurationRecord { tenant, entries, .. } in records {
            entries.iter().for_each(|entry| self.record(tenant, entry));
        }
        Ok(())
    }

    pub(super) fn seal_audit(&mut self) -> Sealed {
        let mut records = 0;
        for audit in self.audit.values_mut() {
            records += audit.unsealed.len() as u64;
            audit.seal();
        }
        Sealed { records, stopped: Vec::new() }
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

    pub(super) fn sink_progress(&self, sink: Digest, tenant: &Tenant) -> u64 {
        self.audit_sinks.get(&(sink, tenant.clone())).copied().unwrap_or(0)
    }

    pub(super) fn set_sink_progress(&mut self, sink: Digest, tenant: &Tenant, seq: u64) {
        let taken = self.audit_sinks.entry((sink, tenant.clone())).or_default();
        *taken = seq.max(*taken);
    }

    pub(super) fn prune_audit(&mut self, older_than: Timestamp, now: Timestamp) -> u64 {
        let mut count = 0;
        for (tenant, audit) in &mut self.audit {
            let pruned = audit.prune(older_than);
            if pruned > 0 {
                let entry = AuditEntry::of_pruned_records(now, audit.pruned);
                audit.push(entry.to_record(tenant.as_str()));
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

impl AuditStore for MemoryStore {
    fn record_audit(&self, tenant: &Tenant, entry: &AuditEntry) -> BoxFuture<'_, Result<(), StoreError>> {
        self.change(|state, _| {
            state.record(tenant, entry);
            Ok(())
        })
    }

    fn record_configuration(&self, records: &[ConfigurationRecord]) -> BoxFuture<'_, Result<(), StoreError>> {
        let records = records.to_vec();
        self.change(move |state, _| state.record_configuration(&records))
    }

    fn seal_audit(&self) -> BoxFuture<'_, Result<Sealed, StoreError>> {
        self.change(|state, _| Ok(state.seal_audit()))
    }

    fn audit(
        &self,
        tenant: &Tenant,
        filter: &AuditFilter,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<SealedRecord>, StoreError>> {
        self.read(|state| Ok(state.sealed_records(tenant, filter, after, limit)))
    }

    fn audit_chains(&self) -> BoxFuture<'_, Result<Vec<TenantChain>, StoreError>> {
        self.read(|state| Ok(state.audit_chains()))
    }

    fn sink_progress(&self, sink: &Digest, tenant: &Tenant) -> BoxFuture<'_, Result<u64, StoreError>> {
        let (sink, tenant) = (*sink, tenant.clone());
        self.read(move |state| Ok(state.sink_progress(sink, &tenant)))
    }

    fn set_sink_progress(
        &self,
        sink: &Digest,
        tenant: &Tenant,
        seq: u64,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let (sink, tenant) = (*sink, tenant.clone());
        self.change(move |state, _| {
            state.set_sink_progress(sink, &tenant, seq);
            Ok(())
        })
    }

    fn prune_audit(&self, older_than: Timestamp) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.change(|state, now| Ok(state.prune_audit(older_than, now)))
    }
}
