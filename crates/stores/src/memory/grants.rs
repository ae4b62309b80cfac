//! Grants: given for a whole thread, read for a call or a list, revoked.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use engine::store::{
    AutoApproval, GRANTS_READ_MAX, GrantFilter, GrantView, Listed, Page, StoreError, Tenant,
};
use machine::Timestamp;
use machine::audit::{Actor, AuditEntry};
use machine::grant::{Grant, GrantCoverage};
use machine::id::{GrantId, Principal, ThreadId, ToolName};
use machine::projection_rows::GrantRow;

use super::lists::newest_first;
use super::state::{MemoryState, MemoryThread};

const fn granted_tool(grant: &Grant) -> Option<&ToolName> {
    match &grant.covers {
        GrantCoverage::Thread => None,
        GrantCoverage::Tool(granted) => Some(&granted.tool),
    }
}

impl MemoryThread {
    pub(super) fn auto_approved_by(&self) -> Option<Principal> {
        let everything = self.grants.iter().find(|row| granted_tool(&row.grant).is_none());
        everything.map(|row| row.grant.by.clone())
    }

    /// Returns the grants that end.
    fn set_auto_approve(&mut self, given: Option<&AutoApproval>, now: Timestamp) -> Vec<Grant> {
        let ends = |row: &GrantRow| given.is_none() || granted_tool(&row.grant).is_none();
        let (ended, kept): (Vec<GrantRow>, Vec<GrantRow>) = self.grants.drain(..).partition(ends);
        self.grants = kept;
        if let Some(AutoApproval { id, by }) = given {
            let grant = Grant { id: id.clone(), by: by.clone(), covers: GrantCoverage::Thread };
            self.grants.push(GrantRow { grant, since: now });
        }
        let mut ended: Vec<Grant> = ended.into_iter().map(|row| row.grant).collect();
        ended.sort_by(|one, other| one.id.cmp(&other.id));
        ended
    }

    /// Sorted by name.
    pub(super) fn granted_tools(&self) -> Vec<ToolName> {
        let tools: BTreeSet<&ToolName> =
            self.grants.iter().filter_map(|row| granted_tool(&row.grant)).collect();
        tools.into_iter().cloned().collect()
    }

    /// Grants for every tool first, then the newest.
    pub(super) fn grants_for(&self, tool: &ToolName) -> Vec<Grant> {
        let is_for = |row: &&GrantRow| granted_tool(&row.grant).is_none_or(|granted| granted == tool);
        let mut rows: Vec<&GrantRow> = self.grants.iter().filter(is_for).collect();
        rows.sort_by_key(|row| {
            (granted_tool(&row.grant).is_some(), Reverse((row.since, row.grant.id.clone())))
        });
        rows.into_iter().take(GRANTS_READ_MAX).map(|row| row.grant.clone()).collect()
    }
}

impl MemoryState {
    pub(super) fn set_auto_approve(
        &mut self,
        tenant: &Tenant,
        thread: &ThreadId,
        given: Option<&AutoApproval>,
        actor: &Actor,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let rows = self.tenants.get_mut(tenant).ok_or(StoreError::NotFound)?;
        let (id, thread) = (thread, rows.threads.get_mut(thread).ok_or(StoreError::NotFound)?);
        let mut entries = vec![AuditEntry::of_auto_approve(now, id, given.map(|given| &given.id), actor)];
        let ended = thread.set_auto_approve(given, now);
        entries.extend(ended.iter().map(|grant| AuditEntry::of_revoked_grant(now, id, grant, actor)));
        entries.iter().for_each(|entry| self.record(tenant, entry));
        Ok(())
    }

    pub(super) fn grants_of(&self, tenant: &Tenant) -> impl Iterator<Item = GrantView> {
        let threads = self.tenants.get(tenant).into_iter().flat_map(|rows| &rows.threads);
        threads.flat_map(|(id, thread)| {
            thread.grants.iter().map(|GrantRow { grant, since }| GrantView {
                grant: grant.clone(),
                is_unreadable: false,
                thread: id.clone(),
                since: *since,
            })
        })
    }

    /// Newest first.
    pub(super) fn grants(
        &self,
        tenant: &Tenant,
        filter: &GrantFilter,
        page: &Page,
    ) -> Result<Listed<GrantView>, StoreError> {
        let is_giver = |giver: &Principal, by: &Principal| giver == by || giver.involves(by.as_str());
        let given_by = |view: &GrantView| filter.by.as_ref().is_none_or(|by| is_giver(&view.grant.by, by));
        let found = self.grants_of(tenant).filter(given_by);
        let by_id: BTreeMap<GrantId, GrantView> = found.map(|view| (view.grant.id.clone(), view)).collect();
        let by_age: BTreeSet<(Timestamp, GrantId)> =
            by_id.values().map(|view| (view.since, view.grant.id.clone())).collect();
        newest_first(&by_age, page, |id| by_id.get(id).cloned())
    }

    pub(super) fn revoke_grant(
        &mut self,
        tenant: &Tenant,
        id: &GrantId,
        actor: &Actor,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let rows = self.tenants.get_mut(tenant).ok_or(StoreError::NotFound)?;
        let revoked = rows.threads.iter_mut().find_map(|(name, thread)| {
            let index = thread.grants.iter().position(|row| row.grant.id == *id)?;
            Some(AuditEntry::of_revoked_grant(now, name, &thread.grants.remove(index).grant, actor))
        });
        self.record(tenant, &revoked.ok_or(StoreError::NotFound)?);
        Ok(())
    }
}
