//! The data of the in-memory store: tenants with their threads and suspensions, and one struct for each run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::callback::StoredCallbackKeys;
use engine::store::{
    CommittedEvent, Lease, Loaded, MessagePosition, StoreError, StoreFailure, StoreMetrics, StoredResponse,
    Tenant,
};
use machine::decision::Decision;
use machine::id::{CallId, DecisionId, Digest, MessageId, PluginName, RunId, SuspensionId, ThreadId};
use machine::inbox::{Item, Ticket};
use machine::projection_rows::{ClosedRow, GrantRow, OpenedRow, PublicRunStatus, RunSummary, StateRow};
use machine::thread::UnendedRun;
use machine::{Control, Timestamp};
use serde_json::Value;

use super::audit::MemoryAudit;
use super::ready::{QueueKind, QueuePosition, ReadyQueues};

/// The store's own number for a run.
pub(super) type RunRowId = i64;
/// Plugin state, by plugin and key.
pub(super) type PluginRows = BTreeMap<(PluginName, String), StateRow>;

#[derive(Debug, Default)]
pub(super) struct MemoryState {
    pub(super) tenants: BTreeMap<Tenant, TenantRows>,
    pub(super) runs: BTreeMap<RunRowId, MemoryRun>,
    /// The runs that a run has delegated to.
    pub(super) children: BTreeMap<RunRowId, Vec<RunRowId>>,
    pub(super) ready: ReadyQueues,
    pub(super) revisions: BTreeMap<Digest, String>,
    pub(super) callback_keys: Option<StoredCallbackKeys>,
    pub(super) audit: BTreeMap<Tenant, MemoryAudit>,
    /// The last record that a sink has taken.
    pub(super) audit_sinks: BTreeMap<(Digest, Tenant), u64>,
    pub(super) counts: StoreMetrics,
    last_row: RunRowId,
    last_thread: i64,
    last_ticket: Ticket,
}

#[derive(Debug, Default)]
pub(super) struct TenantRows {
    pub(super) threads: BTreeMap<ThreadId, MemoryThread>,
    pub(super) threads_by_age: BTreeSet<(Timestamp, ThreadId)>,
    pub(super) runs: BTreeMap<RunId, RunRowId>,
    pub(super) runs_by_age: BTreeSet<(Timestamp, RunId)>,
    pub(super) suspensions: BTreeMap<SuspensionId, RunRowId>,
    /// Suspensions that a person answers, and those among them that have no answer yet.
    pub(super) approvals_by_age: BTreeSet<(Timestamp, SuspensionId)>,
    pub(super) pending_by_age: BTreeSet<(Timestamp, SuspensionId)>,
}

#[derive(Debug)]
pub(super) struct MemoryThread {
    /// Its number, which is never reused for another thread.
    pub(super) row: i64,
    pub(super) created_at: Timestamp,
    pub(super) metadata: Value,
    pub(super) head: Option<MessageId>,
    pub(super) holder: Option<RunRowId>,
    pub(super) queue: Vec<RunRowId>,
    /// All its runs, including ended ones.
    pub(super) runs: Vec<RunRowId>,
    pub(super) messages: BTreeMap<MessageId, MessagePosition>,
    /// In the order in which they joined.
    pub(super) messages_in_order: Vec<MessageId>,
    /// By idempotency key: the run that the message started, and the digest of the message.
    pub(super) posted: BTreeMap<String, (RunId, Digest)>,
    /// Frozen agents that came with the thread's messages.
    pub(super) inline_agents: BTreeMap<Digest, String>,
    pub(super) calls: BTreeSet<CallId>,
    /// Grants that were not revoked.
    pub(super) grants: Vec<GrantRow>,
    pub(super) plugin_rows: PluginRows,
}

#[derive(Debug)]
pub(super) struct MemoryRun {
    pub(super) tenant: Tenant,
    pub(super) thread: ThreadId,
    pub(super) id: RunId,
    pub(super) control: Arc<Control>,
    pub(super) summary: RunSummary,
    /// Event n is at index n - 1.
    pub(super) log: Vec<CommittedEvent>,
    pub(super) inbox: BTreeMap<Ticket, Item>,
    /// Incremented with every accepted item and every commit.
    pub(super) version: u64,
    pub(super) epoch: u64,
    pub(super) held: bool,
    pub(super) interrupt_accepted: bool,
    pub(super) decisions: BTreeMap<DecisionId, Decision>,
    pub(super) stored_responses: BTreeMap<String, StoredResponse>,
    pub(super) suspensions: BTreeMap<SuspensionId, MemorySuspension>,
    pub(super) plugin_rows: PluginRows,
    /// Only set if the caller asked for one.
    pub(super) begins_after: Option<MessageId>,
    pub(super) created_at: Timestamp,
    pub(super) started_at: Option<Timestamp>,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) position: QueuePosition,
}

#[derive(Debug)]
pub(super) struct MemorySuspension {
    pub(super) opened: OpenedRow,
    /// The inbox item that answers it, until the run has processed that item.
    pub(super) answered_by: Option<Ticket>,
    pub(super) closed: Option<ClosedRow>,
}

impl MemoryThread {
    const fn new(row: i64, created_at: Timestamp, metadata: Value) -> Self {
        Self {
            row,
            created_at,
            metadata,
            head: None,
            holder: None,
            queue: Vec::new(),
            runs: Vec::new(),
            messages: BTreeMap::new(),
            messages_in_order: Vec::new(),
            posted: BTreeMap::new(),
            inline_agents: BTreeMap::new(),
            calls: BTreeSet::new(),
            grants: Vec::new(),
            plugin_rows: BTreeMap::new(),
        }
    }
}

impl MemoryRun {
    pub(super) fn new(tenant: Tenant, control: Arc<Control>, created_at: Timestamp) -> Self {
        Self {
            tenant,
            thread: control.thread.clone(),
            id: control.run.clone(),
            summary: RunSummary::from_control(&control),
            control,
            log: Vec::new(),
            inbox: BTreeMap::new(),
            version: 0,
            epoch: 0,
            held: false,
            interrupt_accepted: false,
            decisions: BTreeMap::new(),
            stored_responses: BTreeMap::new(),
            suspensions: BTreeMap::new(),
            plugin_rows: BTreeMap::new(),
            begins_after: None,
            created_at,
            started_at: None,
            ended_at: None,
            position: QueuePosition::default(),
        }
    }

    pub(super) const fn ended(&self) -> bool {
        self.summary.status.ended()
    }

    pub(super) fn seq(&self) -> u64 {
        self.log.len() as u64
    }

    /// The open suspension of a call.
    pub(super) fn open_suspension(&self, call: &CallId) -> Option<&SuspensionId> {
        self.control.call(call)?.suspension().map(|open| &open.id)
    }
}

impl MemoryState {
    /// True if the thread is new.
    pub(super) fn put_thread(
        &mut self,
        tenant: &Tenant,
        id: &ThreadId,
        metadata: Value,
        now: Timestamp,
    ) -> bool {
        let rows = self.tenants.entry(tenant.clone()).or_default();
        if rows.threads.contains_key(id) {
            return false;
        }
        self.last_thread += 1;
        rows.threads.insert(id.clone(), MemoryThread::new(self.last_thread, now, metadata));
        rows.threads_by_age.insert((now, id.clone()));
        true
    }

    /// The holder of a thread, then the queued runs in order of arrival.
    pub(super) fn unended<'s>(&'s self, thread: &'s MemoryThread) -> impl Iterator<Item = UnendedRun<'s>> {
        self.as_unended(thread.holder.iter().chain(&thread.queue))
    }

    pub(super) fn queued_runs<'s>(
        &'s self,
        thread: &'s MemoryThread,
    ) -> impl Iterator<Item = UnendedRun<'s>> {
        self.as_unended(thread.queue.iter())
    }

    fn as_unended<'s>(
        &'s self,
        rows: impl Iterator<Item = &'s RunRowId>,
    ) -> impl Iterator<Item = UnendedRun<'s>> {
        rows.filter_map(|row| self.runs.get(row))
            .map(|run| UnendedRun { run: &run.id, interrupted: run.interrupt_accepted })
    }

    pub(super) const fn next_ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        self.last_ticket
    }

    /// Adds a run to an existing thread. Its log is still empty, and it is in no queue.
    pub(super) fn add_run(&mut self, run: MemoryRun) -> RunRowId {
        self.last_row += 1;
        let row = self.last_row;
        let parent =
            run.control.parent.as_ref().and_then(|parent| self.find_row(&run.tenant, &parent.run_id));
        if let Some(parent) = parent {
            self.children.entry(parent).or_default().push(row);
        }
        let tenant = self.tenants.entry(run.tenant.clone()).or_default();
        tenant.runs.insert(run.id.clone(), row);
        tenant.runs_by_age.insert((run.created_at, run.id.clone()));
        if let Some(thread) = tenant.threads.get_mut(&run.thread) {
            thread.runs.push(row);
        }
        self.runs.insert(row, run);
        row
    }

    /// These runs, and every run that they delegated to, directly or through others, as long as each of them is wanted.
    pub(super) fn with_descendants(
        &self,
        rows: impl IntoIterator<Item = RunRowId>,
        wanted: impl Fn(&MemoryRun) -> bool,
    ) -> Vec<&MemoryRun> {
        let mut ahead: Vec<RunRowId> = rows.into_iter().collect();
        let mut found = Vec::new();
        while let Some(row) = ahead.pop() {
            let Some(run) = self.runs.get(&row).filter(|run| wanted(run)) else { continue };
            ahead.extend(self.children.get(&row).into_iter().flatten());
            found.push(run);
        }
        found
    }

    pub(super) fn find_row(&self, tenant: &Tenant, run: &RunId) -> Option<RunRowId> {
        self.tenants.get(tenant)?.runs.get(run).copied()
    }

    pub(super) fn find_run(&self, tenant: &Tenant, run: &RunId) -> Option<&MemoryRun> {
        self.runs.get(&self.find_row(tenant, run)?)
    }

    pub(super) fn find_thread(&self, tenant: &Tenant, thread: &ThreadId) -> Option<&MemoryThread> {
        self.tenants.get(tenant)?.threads.get(thread)
    }

    /// Plugin state of a run and of its thread.
    pub(super) fn plugin_rows(&self, run: &MemoryRun) -> Vec<StateRow> {
        let thread = self.find_thread(&run.tenant, &run.thread);
        let of_thread = thread.into_iter().flat_map(|thread| thread.plugin_rows.values());
        run.plugin_rows.values().chain(of_thread).cloned().collect()
    }

    /// Messages that will join a thread once their run, which already exists, has started.
    pub(super) fn unstarted_messages<'s>(
        &'s self,
        thread: &'s MemoryThread,
    ) -> impl Iterator<Item = &'s MessageId> {
        let unended = thread.holder.iter().chain(&thread.queue);
        unended.filter_map(|row| self.runs.get(row)).filter_map(|run| run.control.user_message.as_ref())
    }

    /// The run of a lease, if the lease is still valid.
    pub(super) fn leased(&self, lease: &Lease) -> Result<&MemoryRun, StoreError> {
        self.runs
            .get(&lease.row)
            .filter(|run| run.held && run.epoch == lease.epoch)
            .filter(|run| run.id == lease.run && run.tenant == lease.tenant)
            .ok_or(StoreError::Fenced)
    }

    pub(super) fn leased_with_thread(
        &self,
        lease: &Lease,
    ) -> Result<(&MemoryRun, &MemoryThread), StoreError> {
        let run = self.leased(lease)?;
        let thread = self.find_thread(&run.tenant, &run.thread).ok_or_else(|| missing_thread(run))?;
        Ok((run, thread))
    }

    pub(super) fn load(&self, row: RunRowId) -> Result<Loaded, StoreError> {
        let run = self.runs.get(&row).ok_or_else(|| missing_run(row))?;
        let thread = self.find_thread(&run.tenant, &run.thread).ok_or_else(|| missing_thread(run))?;
        Ok(Loaded {
            control: (*run.control).clone(),
            inbox: run.inbox.iter().map(|(ticket, item)| (*ticket, item.clone())).collect(),
            version: run.version,
            holds_thread: thread.holder == Some(row),
            begins_after: run.begins_after.clone().or_else(|| thread.head.clone()),
        })
    }

    /// Puts a run into the queue in which a claim finds it, or removes it from all. Called after each change of a run.
    pub(super) fn update_queues(&mut self, row: RunRowId, now: Timestamp) {
        let Some(run) = self.runs.get(&row) else { return };
        let kind = if run.held || run.ended() {
            QueueKind::NotQueued
        } else if is_under_way(run.summary.status) || !run.inbox.is_empty() {
            QueueKind::Urgent
        } else if run.summary.status == PublicRunStatus::Queued && self.holds(run, row) {
            QueueKind::Queued
        } else {
            QueueKind::NotQueued
        };
        let Some(run) = self.runs.get_mut(&row) else { return };
        let wake_at = if run.held || run.ended() { None } else { run.summary.wake_at };
        self.ready.put(row, run, kind, wake_at, now);
    }

    fn holds(&self, run: &MemoryRun, row: RunRowId) -> bool {
        self.find_thread(&run.tenant, &run.thread).is_some_and(|thread| thread.holder == Some(row))
    }

    pub(super) fn release(&mut self, lease: &Lease, now: Timestamp) -> Result<bool, StoreError> {
        if !self.leased(lease)?.inbox.is_empty() {
            return Ok(false);
        }
        if let Some(run) = self.runs.get_mut(&lease.row) {
            run.held = false;
        }
        self.update_queues(lease.row, now);
        Ok(true)
    }
}

/// Without a worker such a run makes no progress, although it waits for nothing.
const fn is_under_way(status: PublicRunStatus) -> bool {
    match status {
        PublicRunStatus::Running | PublicRunStatus::Interrupting => true,
        PublicRunStatus::Queued
        | PublicRunStatus::WaitingApproval
        | PublicRunStatus::WaitingTool
        | PublicRunStatus::Completed
        | PublicRunStatus::Failed
        | PublicRunStatus::Interrupted => false,
    }
}

pub(super) fn missing_run(row: RunRowId) -> StoreError {
    StoreFailure::Corrupt(format!("run number {row} is gone")).into()
}

pub(super) fn missing_thread(run: &MemoryRun) -> StoreError {
    StoreFailure::Corrupt(format!("thread {} of run {} is gone", run.thread, run.id)).into()
}
