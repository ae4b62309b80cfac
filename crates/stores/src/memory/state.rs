//! What the store in memory keeps: tenants with their threads and suspensions, and one struct for each run.

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

use super::ready::{Line, Placed, Ready};

/// The store's own number for a run.
pub(super) type Row = i64;
/// What plugins keep, by plugin and key.
pub(super) type PluginRows = BTreeMap<(PluginName, String), StateRow>;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) tenants: BTreeMap<Tenant, TenantRows>,
    pub(super) runs: BTreeMap<Row, StoredRun>,
    pub(super) ready: Ready,
    pub(super) revisions: BTreeMap<Digest, String>,
    pub(super) callback_keys: Option<StoredCallbackKeys>,
    pub(super) counts: StoreMetrics,
    last_row: Row,
    last_thread: i64,
    last_ticket: Ticket,
}

#[derive(Debug, Default)]
pub(super) struct TenantRows {
    pub(super) threads: BTreeMap<ThreadId, StoredThread>,
    pub(super) threads_by_age: BTreeSet<(Timestamp, ThreadId)>,
    pub(super) runs: BTreeMap<RunId, Row>,
    pub(super) runs_by_age: BTreeSet<(Timestamp, RunId)>,
    pub(super) suspensions: BTreeMap<SuspensionId, Row>,
    /// Suspensions that a person answers, and those among them that nobody has answered.
    pub(super) approvals_by_age: BTreeSet<(Timestamp, SuspensionId)>,
    pub(super) pending_by_age: BTreeSet<(Timestamp, SuspensionId)>,
}

#[derive(Debug)]
pub(super) struct StoredThread {
    /// Its number, which no other thread ever has.
    pub(super) row: i64,
    pub(super) created_at: Timestamp,
    pub(super) metadata: Value,
    pub(super) head: Option<MessageId>,
    pub(super) holder: Option<Row>,
    pub(super) queue: Vec<Row>,
    /// All its runs, ended ones too.
    pub(super) runs: Vec<Row>,
    pub(super) messages: BTreeMap<MessageId, MessagePosition>,
    /// In the order in which they joined.
    pub(super) messages_in_order: Vec<MessageId>,
    /// What was posted under a key, and the run that it started.
    pub(super) posted: BTreeMap<String, (RunId, Digest)>,
    /// Frozen agents that came with its messages.
    pub(super) brought: BTreeMap<Digest, String>,
    pub(super) calls: BTreeSet<CallId>,
    /// Those that were not revoked.
    pub(super) grants: Vec<GrantRow>,
    pub(super) plugin_rows: PluginRows,
}

#[derive(Debug)]
pub(super) struct StoredRun {
    pub(super) tenant: Tenant,
    pub(super) thread: ThreadId,
    pub(super) id: RunId,
    pub(super) control: Arc<Control>,
    pub(super) summary: RunSummary,
    /// Event n stands at n - 1.
    pub(super) log: Vec<CommittedEvent>,
    pub(super) inbox: BTreeMap<Ticket, Item>,
    /// Raised with every accepted item and every commit.
    pub(super) version: u64,
    pub(super) epoch: u64,
    pub(super) held: bool,
    pub(super) interrupt_accepted: bool,
    pub(super) decisions: BTreeMap<DecisionId, Decision>,
    pub(super) remembered: BTreeMap<String, StoredResponse>,
    pub(super) suspensions: BTreeMap<SuspensionId, StoredSuspension>,
    pub(super) plugin_rows: PluginRows,
    /// Only where somebody asked for one.
    pub(super) begins_after: Option<MessageId>,
    pub(super) created_at: Timestamp,
    pub(super) started_at: Option<Timestamp>,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) placed: Placed,
}

#[derive(Debug)]
pub(super) struct StoredSuspension {
    pub(super) opened: OpenedRow,
    /// The inbox row that answers it, until the run has heard that row.
    pub(super) answered_by: Option<Ticket>,
    pub(super) closed: Option<ClosedRow>,
}

impl StoredThread {
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
            brought: BTreeMap::new(),
            calls: BTreeSet::new(),
            grants: Vec::new(),
            plugin_rows: BTreeMap::new(),
        }
    }
}

impl StoredRun {
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
            remembered: BTreeMap::new(),
            suspensions: BTreeMap::new(),
            plugin_rows: BTreeMap::new(),
            begins_after: None,
            created_at,
            started_at: None,
            ended_at: None,
            placed: Placed::default(),
        }
    }

    pub(super) const fn ended(&self) -> bool {
        self.summary.status.ended()
    }

    pub(super) fn seq(&self) -> u64 {
        self.log.len() as u64
    }

    /// The open suspension of a call.
    pub(super) fn held_by(&self, call: &CallId) -> Option<&SuspensionId> {
        self.control.call(call)?.suspension().map(|open| &open.id)
    }
}

impl State {
    /// True if it is new.
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
        rows.threads.insert(id.clone(), StoredThread::new(self.last_thread, now, metadata));
        rows.threads_by_age.insert((now, id.clone()));
        true
    }

    /// The holder of a thread, then those in line in the order in which they came.
    pub(super) fn unended<'s>(&'s self, thread: &'s StoredThread) -> impl Iterator<Item = UnendedRun<'s>> {
        self.shown(thread.holder.iter().chain(&thread.queue))
    }

    pub(super) fn line<'s>(&'s self, thread: &'s StoredThread) -> impl Iterator<Item = UnendedRun<'s>> {
        self.shown(thread.queue.iter())
    }

    fn shown<'s>(&'s self, rows: impl Iterator<Item = &'s Row>) -> impl Iterator<Item = UnendedRun<'s>> {
        rows.filter_map(|row| self.runs.get(row))
            .map(|run| UnendedRun { run: &run.id, interrupted: run.interrupt_accepted })
    }

    pub(super) const fn ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        self.last_ticket
    }

    /// Adds a run to a thread that exists. Nothing is in its log yet, and it is in no line.
    pub(super) fn add_run(&mut self, run: StoredRun) -> Row {
        self.last_row += 1;
        let row = self.last_row;
        let tenant = self.tenants.entry(run.tenant.clone()).or_default();
        tenant.runs.insert(run.id.clone(), row);
        tenant.runs_by_age.insert((run.created_at, run.id.clone()));
        if let Some(thread) = tenant.threads.get_mut(&run.thread) {
            thread.runs.push(row);
        }
        self.runs.insert(row, run);
        row
    }

    pub(super) fn row_of(&self, tenant: &Tenant, run: &RunId) -> Option<Row> {
        self.tenants.get(tenant)?.runs.get(run).copied()
    }

    pub(super) fn run_of(&self, tenant: &Tenant, run: &RunId) -> Option<&StoredRun> {
        self.runs.get(&self.row_of(tenant, run)?)
    }

    pub(super) fn thread_of(&self, tenant: &Tenant, thread: &ThreadId) -> Option<&StoredThread> {
        self.tenants.get(tenant)?.threads.get(thread)
    }

    /// What plugins keep for a run and for its thread.
    pub(super) fn plugin_rows(&self, run: &StoredRun) -> Vec<StateRow> {
        let thread = self.thread_of(&run.tenant, &run.thread);
        let of_thread = thread.into_iter().flat_map(|thread| thread.plugin_rows.values());
        run.plugin_rows.values().chain(of_thread).cloned().collect()
    }

    /// Messages that join a thread once a run that exists has started.
    pub(super) fn unstarted_messages<'s>(
        &'s self,
        thread: &'s StoredThread,
    ) -> impl Iterator<Item = &'s MessageId> {
        let unended = thread.holder.iter().chain(&thread.queue);
        unended.filter_map(|row| self.runs.get(row)).filter_map(|run| run.control.user_message.as_ref())
    }

    /// The run of a lease that counts.
    pub(super) fn leased(&self, lease: &Lease) -> Result<&StoredRun, StoreError> {
        self.runs
            .get(&lease.row)
            .filter(|run| run.held && run.epoch == lease.epoch)
            .filter(|run| run.id == lease.run && run.tenant == lease.tenant)
            .ok_or(StoreError::Fenced)
    }

    pub(super) fn leased_with_thread(
        &self,
        lease: &Lease,
    ) -> Result<(&StoredRun, &StoredThread), StoreError> {
        let run = self.leased(lease)?;
        let thread = self.thread_of(&run.tenant, &run.thread).ok_or_else(|| lost_thread(run))?;
        Ok((run, thread))
    }

    pub(super) fn load(&self, row: Row) -> Result<Loaded, StoreError> {
        let run = self.runs.get(&row).ok_or_else(|| lost_row(row))?;
        let thread = self.thread_of(&run.tenant, &run.thread).ok_or_else(|| lost_thread(run))?;
        Ok(Loaded {
            control: (*run.control).clone(),
            inbox: run.inbox.iter().map(|(ticket, item)| (*ticket, item.clone())).collect(),
            version: run.version,
            holds_thread: thread.holder == Some(row),
            begins_after: run.begins_after.clone().or_else(|| thread.head.clone()),
        })
    }

    /// Puts a run where a claim finds it, or takes it out of every line. Called after each change of a run.
    pub(super) fn line_up(&mut self, row: Row, now: Timestamp) {
        let Some(run) = self.runs.get(&row) else { return };
        let line = if run.held || run.ended() {
            Line::Nowhere
        } else if is_under_way(run.summary.status) || !run.inbox.is_empty() {
            Line::Urgent
        } else if run.summary.status == PublicRunStatus::Queued && self.holds(run, row) {
            Line::Queued
        } else {
            Line::Nowhere
        };
        let Some(run) = self.runs.get_mut(&row) else { return };
        let wake_at = if run.held || run.ended() { None } else { run.summary.wake_at };
        self.ready.put(row, run, line, wake_at, now);
    }

    fn holds(&self, run: &StoredRun, row: Row) -> bool {
        self.thread_of(&run.tenant, &run.thread).is_some_and(|thread| thread.holder == Some(row))
    }

    pub(super) fn release(&mut self, lease: &Lease, now: Timestamp) -> Result<bool, StoreError> {
        if !self.leased(lease)?.inbox.is_empty() {
            return Ok(false);
        }
        if let Some(run) = self.runs.get_mut(&lease.row) {
            run.held = false;
        }
        self.line_up(lease.row, now);
        Ok(true)
    }
}

/// Without a worker such a run stands still although nothing is waited for.
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

pub(super) fn lost_row(row: Row) -> StoreError {
    StoreFailure::Corrupt(format!("run number {row} is gone")).into()
}

pub(super) fn lost_thread(run: &StoredRun) -> StoreError {
    StoreFailure::Corrupt(format!("thread {} of run {} is gone", run.thread, run.id)).into()
}
