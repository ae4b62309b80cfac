//! What the store shows: single items by id, and pages.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use engine::store::{
    ApprovalFilter, Countable, Listed, MessageOrder, MessageView, Page, PathEntry, RunCounts, RunFilter,
    RunView, StoreError, SuspensionView, Tenant, ThreadView, TimedMessage,
};
use machine::Timestamp;
use machine::decision::DecisionAction;
use machine::event::{Fact, OpenedSuspension};
use machine::id::{AgentName, MessageId, RunId, SuspensionId, ThreadId};
use machine::projection_rows::{ApprovalStatus, ClosedRow, PublicRunStatus};
use machine::suspension::SuspensionKind;
use machine::thread::{RunActivity, ThreadState};

use super::state::{MemoryRun, MemoryState, MemorySuspension, MemoryThread};

/// Number of the run's calls with an accepted approval that the run has not processed yet.
fn approved_count(run: &MemoryRun) -> u64 {
    let approvals = run.suspensions.values().filter(|held| held.opened.kind == SuspensionKind::Approval);
    let answers = approvals.filter_map(|held| run.inbox.get(&held.answered_by?)?.decision());
    answers.filter(|decision| matches!(decision.action, DecisionAction::Resume(_))).count() as u64
}

impl MemoryState {
    pub(super) fn thread_view(&self, tenant: &Tenant, id: &ThreadId) -> ThreadView {
        let Some(thread) = self.find_thread(tenant, id) else { return ThreadView::absent(id.clone()) };
        ThreadView {
            id: id.clone(),
            row: thread.row,
            created_at: Some(thread.created_at),
            metadata: Some(thread.metadata.clone()),
            head: thread.head.clone(),
            state: self.thread_state(thread),
            auto_approved_by: thread.auto_approved_by(),
            approved_tools: thread.granted_tools(),
        }
    }

    fn thread_state(&self, thread: &MemoryThread) -> ThreadState {
        let front = thread.holder.or_else(|| thread.queue.first().copied());
        let tree = self.with_descendants(front, |run| !run.summary.status.ended());
        let Some((front, descendants)) = tree.split_first() else { return ThreadState::Free };
        let descendants = descendants.iter().map(|run| run.summary.activity());
        let RunActivity { state, in_doubt } = front.summary.activity().with_descendants(descendants);
        ThreadState::Busy { front: front.id.clone(), front_is: state, in_doubt, queued: thread.queue.len() }
    }

    pub(super) fn run_counts(&self) -> RunCounts {
        let mut counts = RunCounts::default();
        for run in self.runs.values().filter(|run| !run.summary.status.ended()) {
            *counts.runs.entry(run.summary.status).or_default() += 1;
            counts.inbox += run.inbox.len() as u64;
            counts.approved += approved_count(run);
        }
        counts
    }

    pub(super) fn count_up_to(&self, tenant: &Tenant, what: Countable, max: u64) -> u64 {
        let Some(rows) = self.tenants.get(tenant) else { return 0 };
        let count = match what {
            Countable::Threads => rows.threads_by_age.len(),
            Countable::PendingApprovals => rows.pending_by_age.len(),
        };
        (count as u64).min(max)
    }

    pub(super) fn threads(&self, tenant: &Tenant, page: &Page) -> Result<Listed<ThreadView>, StoreError> {
        let Some(rows) = self.tenants.get(tenant) else { return empty_page(page) };
        newest_first(&rows.threads_by_age, page, |id| Some(self.thread_view(tenant, id)))
    }

    pub(super) fn has_other_agents(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        agents: &BTreeSet<AgentName>,
    ) -> bool {
        let runs = self.runs.values().filter(|run| run.tenant == *tenant && run.thread == *thread);
        runs.into_iter().any(|run| !agents.contains(&run.control.agent))
    }

    pub(super) fn runs(
        &self,
        tenant: &Tenant,
        filter: &RunFilter,
        page: &Page,
    ) -> Result<Listed<RunView>, StoreError> {
        let Some(rows) = self.tenants.get(tenant) else { return empty_page(page) };
        newest_first(&rows.runs_by_age, page, |id| {
            let run = self.find_run(tenant, id)?;
            let fits = filter.status.is_none_or(|status| shown_status(run) == status)
                && filter.thread.as_ref().is_none_or(|thread| run.thread == *thread)
                && filter.agent.as_ref().is_none_or(|agent| run.control.agent == *agent);
            fits.then(|| run_view(run))
        })
    }

    pub(super) fn runs_of_thread(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunId>, StoreError> {
        let rows = &self.find_thread(tenant, thread).ok_or(StoreError::NotFound)?.runs;
        let ids: Vec<&RunId> = rows.iter().filter_map(|row| Some(&self.runs.get(row)?.id)).collect();
        let skipped = match after {
            Some(after) => ids.iter().position(|id| *id == after).ok_or(StoreError::NotFound)? + 1,
            None => 0,
        };
        Ok(ids.into_iter().skip(skipped).take(limit).cloned().collect())
    }

    /// Numbered from 1 in the order in which they joined.
    pub(super) fn messages(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        order: MessageOrder,
        page: &Page,
    ) -> Result<Listed<MessageView>, StoreError> {
        let from = cursor::<MessageId>(page)?;
        let from = from.map(|(number, _)| usize::try_from(number.0).unwrap_or(usize::MAX));
        let thread = self.find_thread(tenant, thread).ok_or(StoreError::NotFound)?;
        let in_order = &thread.messages_in_order;
        let numbered = (1_u64..).map(Timestamp).zip(in_order.iter().cloned());
        let numbered: Vec<(Timestamp, MessageId)> = match order {
            MessageOrder::OldestFirst => numbered.skip(from.unwrap_or(0)).take(page_rows(page)).collect(),
            MessageOrder::NewestFirst => {
                let older = from.map_or(in_order.len(), |from| from.saturating_sub(1).min(in_order.len()));
                let skipped = older.saturating_sub(page_rows(page));
                let mut newest: Vec<_> = numbered.skip(skipped).take(older - skipped).collect();
                newest.reverse();
                newest
            }
        };
        Ok(listed(numbered.iter(), page, |id| {
            let place = thread.messages.get(id)?;
            let index = usize::try_from(place.seq.checked_sub(1)?).ok()?;
            let event = &self.find_run(tenant, &place.run)?.log.get(index)?.event;
            let (run, seq, role) = (place.run.clone(), place.seq, place.role);
            Some(MessageView { id: id.clone(), run, seq, role, said: TimedMessage::from_event(event) })
        }))
    }

    pub(super) fn suspension(&self, tenant: &Tenant, id: &SuspensionId) -> Option<SuspensionView> {
        let row = self.tenants.get(tenant)?.suspensions.get(id)?;
        let run = self.runs.get(row)?;
        self.suspension_view(run, run.suspensions.get(id)?)
    }

    pub(super) fn approvals(
        &self,
        tenant: &Tenant,
        filter: &ApprovalFilter,
        page: &Page,
    ) -> Result<Listed<SuspensionView>, StoreError> {
        let Some(rows) = self.tenants.get(tenant) else { return empty_page(page) };
        let by_age = match filter.status {
            Some(ApprovalStatus::Pending) => &rows.pending_by_age,
            None
            | Some(
                ApprovalStatus::Approved
                | ApprovalStatus::Rejected
                | ApprovalStatus::Expired
                | ApprovalStatus::Answered,
            ) => &rows.approvals_by_age,
        };
        let of_tree;
        let by_age = match self.tree_of(tenant, filter) {
            Some(runs) => {
                of_tree = by_age_of(&runs);
                &of_tree
            }
            None => by_age,
        };
        oldest_first(by_age, page, |id| {
            let run = self.runs.get(rows.suspensions.get(id)?)?;
            let suspension = run.suspensions.get(id)?;
            // If the run has not processed the answer yet, the answer determines the status that is shown.
            let may_be = |status| approval_status(suspension) == status || suspension.answered_by.is_some();
            let fits = filter.status.is_none_or(may_be)
                && (filter.run.is_none() || has_changed(suspension, filter.changed_after));
            if !fits {
                return None;
            }
            self.suspension_view(run, suspension).filter(|view| filter.matches(view))
        })
    }

    /// The runs whose suspensions the filter can match. None if it does not name a run or a thread.
    fn tree_of(&self, tenant: &Tenant, filter: &ApprovalFilter) -> Option<Vec<&MemoryRun>> {
        if let Some(run) = &filter.run {
            let row = self.find_row(tenant, run);
            let wanted = |one: &MemoryRun| filter.descendants || one.id == *run;
            return Some(self.with_descendants(row, wanted));
        }
        let thread = self.find_thread(tenant, filter.thread.as_ref()?);
        let rows = thread.into_iter().flat_map(|thread| thread.runs.iter().copied());
        Some(self.with_descendants(rows, |_| true))
    }

    fn suspension_view(&self, run: &MemoryRun, suspension: &MemorySuspension) -> Option<SuspensionView> {
        let MemorySuspension { opened, answered_by, closed } = suspension;
        let index = usize::try_from(opened.seq.checked_sub(1)?).ok()?;
        let event = &run.log.get(index)?.event;
        let (Fact::ApprovalRequested(shown) | Fact::ToolSuspended(shown)) = &event.fact else { return None };
        let closed: Option<&ClosedRow> = closed.as_ref();
        let view = SuspensionView {
            tenant: run.tenant.clone(),
            id: opened.id.clone(),
            run: run.id.clone(),
            thread: run.thread.clone(),
            agent: run.control.agent.clone(),
            call: opened.call.clone(),
            step: event.step.unwrap_or_default(),
            kind: opened.kind,
            status: approval_status(suspension),
            answered: false,
            edited: None,
            opened: Some(Arc::<OpenedSuspension>::new(shown.clone())),
            answer_is_unreadable: false,
            opened_seq: opened.seq,
            closed_seq: closed.map(|closed| closed.seq),
            created_at: opened.at,
            decided_at: closed.map(|closed| closed.at),
            decided_by: closed.map(|closed| closed.by.clone()),
            reason: closed.and_then(|closed| closed.reason.clone()),
            note: closed.and_then(|closed| closed.note.clone()),
            path: self.path(
                run,
                PathEntry {
                    run: run.id.clone(),
                    thread: run.thread.clone(),
                    agent: run.control.agent.clone(),
                    call: opened.call.clone(),
                },
            ),
        };
        let answer = answered_by.and_then(|ticket| run.inbox.get(&ticket));
        Some(match answer {
            Some(item) => view.answered_by(item),
            None => view,
        })
    }

    /// The path from the run that a person started, as far as its ancestors are stored.
    fn path(&self, run: &MemoryRun, last: PathEntry) -> Vec<PathEntry> {
        let mut path = vec![last];
        let mut child = run;
        while let Some(parent) = &child.control.parent
            && let Some(above) = self.find_run(&run.tenant, &parent.run_id)
        {
            path.push(PathEntry {
                run: above.id.clone(),
                thread: above.thread.clone(),
                agent: above.control.agent.clone(),
                call: parent.call_id.clone(),
            });
            child = above;
        }
        path.reverse();
        path
    }
}

fn by_age_of(runs: &[&MemoryRun]) -> BTreeSet<(Timestamp, SuspensionId)> {
    let suspensions = runs.iter().flat_map(|run| run.suspensions.values());
    let answered_by_people = suspensions.filter(|one| one.opened.kind.needs_person());
    answered_by_people.map(|one| (one.opened.at, one.opened.id.clone())).collect()
}

fn shown_status(run: &MemoryRun) -> PublicRunStatus {
    run.summary.status.with_interrupt(run.interrupt_accepted)
}

pub(super) fn run_view(run: &MemoryRun) -> RunView {
    RunView {
        id: run.id.clone(),
        thread: run.thread.clone(),
        agent: run.control.agent.clone(),
        status: run.summary.status,
        seq: run.seq(),
        control: Some((*run.control).clone()),
        interrupt_accepted: run.interrupt_accepted,
        created_at: run.created_at,
        started_at: run.started_at,
        ended_at: run.ended_at,
    }
}

/// True if an event after this one changed it, or an answer that no event contains yet.
fn has_changed(suspension: &MemorySuspension, after: u64) -> bool {
    let changed_seq = suspension.closed.as_ref().map_or(suspension.opened.seq, |closed| closed.seq);
    changed_seq > after || (suspension.closed.is_none() && suspension.answered_by.is_some())
}

fn approval_status(suspension: &MemorySuspension) -> ApprovalStatus {
    suspension.closed.as_ref().map_or(ApprovalStatus::Pending, |closed| closed.status)
}

/// An empty page. Still rejects a bad cursor.
fn empty_page<T>(page: &Page) -> Result<Listed<T>, StoreError> {
    cursor::<SuspensionId>(page)?;
    Ok(Listed { items: Vec::new(), next: None })
}

pub(super) fn newest_first<Id: Ord + From<String> + ToString, T>(
    by_age: &BTreeSet<(Timestamp, Id)>,
    page: &Page,
    show: impl Fn(&Id) -> Option<T>,
) -> Result<Listed<T>, StoreError> {
    let from = cursor(page)?;
    let before = from.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
    Ok(listed(by_age.range((Bound::Unbounded, before)).rev(), page, show))
}

fn oldest_first<Id: Ord + From<String> + ToString, T>(
    by_age: &BTreeSet<(Timestamp, Id)>,
    page: &Page,
    show: impl Fn(&Id) -> Option<T>,
) -> Result<Listed<T>, StoreError> {
    let from = cursor(page)?;
    let after = from.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
    Ok(listed(by_age.range((after, Bound::Unbounded)), page, show))
}

fn listed<'k, Id: ToString + 'k, T>(
    keys: impl Iterator<Item = &'k (Timestamp, Id)>,
    page: &Page,
    show: impl Fn(&Id) -> Option<T>,
) -> Listed<T> {
    let limit = page.limit.clamp(1, Page::LIMIT_MAX);
    let mut items = Vec::new();
    let mut last = None;
    for (at, id) in keys {
        let Some(item) = show(id) else { continue };
        if items.len() == limit {
            return Listed { items, next: last };
        }
        items.push(item);
        last = Some(format!("{}.{}", at.0, id.to_string()));
    }
    Listed { items, next: None }
}

/// One row more than the page has, to detect whether it is the last page.
fn page_rows(page: &Page) -> usize {
    page.limit.clamp(1, Page::LIMIT_MAX) + 1
}

fn cursor<Id: From<String>>(page: &Page) -> Result<Option<(Timestamp, Id)>, StoreError> {
    let Some(text) = &page.cursor else { return Ok(None) };
    let bad = || StoreError::Impossible("bad cursor".into());
    let (at, id) = text.split_once('.').ok_or_else(bad)?;
    let at = at.parse().map_err(|_| bad())?;
    Ok(Some((Timestamp(at), Id::from(id.to_owned()))))
}
