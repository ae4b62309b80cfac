//! A store that notes what is read of it, can be held up and forget, and does everything else as it is.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use engine::callback::CallbackKey;
use engine::clock::Clock;
use engine::store::{
    Append, Appended, ApprovalFilter, Census, Claim, Claimed, Committed, Counts, Create, Created, Lease,
    Listed, Loaded, MessagePlace, MessageView, Page, Refused, Remembered, Ring, RunFilter, RunView, Store,
    SuspensionView, Task, Tenant, ThreadView, Trouble,
};
use machine::Timestamp;
use machine::decision::Decision;
use machine::event::Event;
use machine::id::{
    CallId, DecisionId, Digest, MessageId, Principal, RunId, SuspensionId, ThreadId, ToolName,
};
use machine::inbox::{Item, Verdict};
use machine::rows::StateRow;
use machine::tool::Leave;
use serde_json::Value;
use tokio::sync::Semaphore;

/// What was read, and what is done to whoever reads.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) events_read: AtomicUsize,
    /// Approvals that were listed of one run, whatever became of them.
    pub(crate) changes_listed: AtomicUsize,
    /// The most rows that a page of approvals or messages was asked for.
    pub(crate) rows_max: AtomicUsize,
    pub(crate) next_wakes: AtomicUsize,
    /// Answers that were to be kept.
    pub(crate) answers: AtomicUsize,
    /// No answer is kept, as if the process had died before.
    pub(crate) forgets: AtomicBool,
    /// The clock is ahead by so much.
    pub(crate) ahead_ms: AtomicU64,
    hold_up: Mutex<Option<Arc<HoldUp>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// A list of runs.
    Runs,
    /// A list of approvals, once it is read.
    Approvals,
}

/// Whoever comes here waits.
pub(crate) struct HoldUp {
    at: At,
    arrived: Semaphore,
    let_go: Semaphore,
}

impl HoldUp {
    /// One more has come.
    pub(crate) async fn arrives(&self) {
        self.arrived.acquire().await.expect("it is never closed").forget();
    }

    /// One of them may go on.
    pub(crate) fn let_one_go(&self) {
        self.let_go.add_permits(1);
    }
}

impl Notes {
    /// From here on, until it ends.
    pub(crate) fn hold_up(&self, at: At) -> Arc<HoldUp> {
        let hold_up = Arc::new(HoldUp { at, arrived: Semaphore::new(0), let_go: Semaphore::new(0) });
        *self.hold_up.lock().expect("nobody panics here") = Some(hold_up.clone());
        hold_up
    }

    pub(crate) fn end_hold_up(&self) {
        *self.hold_up.lock().expect("nobody panics here") = None;
    }

    async fn pass(&self, at: At) {
        let found = self.hold_up.lock().expect("nobody panics here").clone();
        let Some(hold_up) = found.filter(|hold_up| hold_up.at == at) else { return };
        hold_up.arrived.add_permits(1);
        hold_up.let_go.acquire().await.expect("it is never closed").forget();
    }

    pub(crate) fn count(number: &AtomicUsize) -> usize {
        number.load(Ordering::SeqCst)
    }
}

pub(crate) struct WatchedStore {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) notes: Arc<Notes>,
}

impl Store for WatchedStore {
    fn now(&self) -> Timestamp {
        self.store.now().plus_ms(self.notes.ahead_ms.load(Ordering::SeqCst))
    }

    fn events(
        &self,
        tenant: &Tenant,
        run: &RunId,
        after: u64,
        limit: usize,
    ) -> Task<'_, Result<Vec<Committed>, Refused>> {
        let reading = self.store.events(tenant, run, after, limit);
        Box::pin(async move {
            let events = reading.await?;
            self.notes.events_read.fetch_add(events.len(), Ordering::SeqCst);
            Ok(events)
        })
    }

    fn census(&self) -> Task<'_, Result<Census, Refused>> {
        self.store.census()
    }

    fn next_wake(&self) -> Task<'_, Result<Option<Timestamp>, Refused>> {
        self.notes.next_wakes.fetch_add(1, Ordering::SeqCst);
        self.store.next_wake()
    }

    fn remember(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
        answer: Remembered,
    ) -> Task<'_, Result<Remembered, Refused>> {
        self.notes.answers.fetch_add(1, Ordering::SeqCst);
        if self.notes.forgets.load(Ordering::SeqCst) && !answer.answer.is_empty() {
            let gone = Refused::Trouble(Trouble::Unavailable("it died before".into()));
            return Box::pin(std::future::ready(Err(gone)));
        }
        self.store.remember(tenant, run, scope, answer)
    }

    fn runs(
        &self,
        tenant: &Tenant,
        filter: &RunFilter,
        page: &Page,
    ) -> Task<'_, Result<Listed<RunView>, Refused>> {
        let reading = self.store.runs(tenant, filter, page);
        Box::pin(async move {
            self.notes.pass(At::Runs).await;
            reading.await
        })
    }

    fn approvals(
        &self,
        tenant: &Tenant,
        filter: &ApprovalFilter,
        page: &Page,
    ) -> Task<'_, Result<Listed<SuspensionView>, Refused>> {
        self.notes.rows_max.fetch_max(page.limit, Ordering::SeqCst);
        let of_run = filter.run.is_some() && filter.status.is_none();
        let reading = self.store.approvals(tenant, filter, page);
        Box::pin(async move {
            let listed = reading.await?;
            if of_run {
                self.notes.changes_listed.fetch_add(listed.items.len(), Ordering::SeqCst);
            }
            self.notes.pass(At::Approvals).await;
            Ok(listed)
        })
    }

    fn messages(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        page: &Page,
    ) -> Task<'_, Result<Listed<MessageView>, Refused>> {
        self.notes.rows_max.fetch_max(page.limit, Ordering::SeqCst);
        self.store.messages(tenant, thread, page)
    }

    fn release(&self, lease: &Lease) -> Task<'_, Result<bool, Refused>> {
        self.store.release(lease)
    }

    fn put_thread(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        metadata: &Value,
    ) -> Task<'_, Result<bool, Refused>> {
        self.store.put_thread(tenant, thread, metadata)
    }

    fn thread(&self, tenant: &Tenant, thread: &ThreadId) -> Task<'_, Result<ThreadView, Refused>> {
        self.store.thread(tenant, thread)
    }

    fn threads(&self, tenant: &Tenant, page: &Page) -> Task<'_, Result<Listed<ThreadView>, Refused>> {
        self.store.threads(tenant, page)
    }

    fn set_auto_approve(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        by: Option<&Principal>,
    ) -> Task<'_, Result<(), Refused>> {
        self.store.set_auto_approve(tenant, thread, by)
    }

    fn leave(&self, lease: &Lease, tool: &ToolName) -> Task<'_, Result<Leave, Refused>> {
        self.store.leave(lease, tool)
    }

    fn delete_thread(&self, tenant: &Tenant, thread: &ThreadId) -> Task<'_, Result<(), Refused>> {
        self.store.delete_thread(tenant, thread)
    }

    fn put_revision(&self, digest: &Digest, text: &str) -> Task<'_, Result<(), Refused>> {
        self.store.put_revision(digest, text)
    }

    fn revision(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        digest: &Digest,
    ) -> Task<'_, Result<Option<String>, Refused>> {
        self.store.revision(tenant, thread, digest)
    }

    fn callback_key(&self, drawn: CallbackKey) -> Task<'_, Result<CallbackKey, Refused>> {
        self.store.callback_key(drawn)
    }

    fn create(&self, create: Create) -> Task<'_, Result<Created, Refused>> {
        self.store.create(create)
    }

    fn claim(&self, claim: Claim) -> Task<'_, Result<Vec<Claimed>, Refused>> {
        self.store.claim(claim)
    }

    fn load(&self, lease: &Lease) -> Task<'_, Result<Loaded, Refused>> {
        self.store.load(lease)
    }

    fn append(&self, lease: &Lease, append: Append) -> Task<'_, Result<Appended, Refused>> {
        self.store.append(lease, append)
    }

    fn may_send(&self, lease: &Lease) -> bool {
        self.store.may_send(lease)
    }

    fn submit(&self, tenant: &Tenant, run: &RunId, item: Item) -> Task<'_, Result<Verdict, Refused>> {
        self.store.submit(tenant, run, item)
    }

    fn decision(
        &self,
        tenant: &Tenant,
        run: &RunId,
        id: &DecisionId,
    ) -> Task<'_, Result<Option<Decision>, Refused>> {
        self.store.decision(tenant, run, id)
    }

    fn run(&self, tenant: &Tenant, run: &RunId) -> Task<'_, Result<Option<RunView>, Refused>> {
        self.store.run(tenant, run)
    }

    fn event(&self, lease: &Lease, seq: u64) -> Task<'_, Result<Arc<Event>, Refused>> {
        self.store.event(lease, seq)
    }

    fn message(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        message: &MessageId,
    ) -> Task<'_, Result<Option<MessagePlace>, Refused>> {
        self.store.message(tenant, thread, message)
    }

    fn posted(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        scope: &str,
    ) -> Task<'_, Result<Option<(RunId, Digest)>, Refused>> {
        self.store.posted(tenant, thread, scope)
    }

    fn remembered(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
    ) -> Task<'_, Result<Option<Remembered>, Refused>> {
        self.store.remembered(tenant, run, scope)
    }

    fn state(&self, tenant: &Tenant, run: &RunId) -> Task<'_, Result<Vec<StateRow>, Refused>> {
        self.store.state(tenant, run)
    }

    fn taken_call_ids(&self, lease: &Lease, asked: &[String]) -> Task<'_, Result<BTreeSet<CallId>, Refused>> {
        self.store.taken_call_ids(lease, asked)
    }

    fn plugin_state(&self, lease: &Lease) -> Task<'_, Result<Vec<StateRow>, Refused>> {
        self.store.plugin_state(lease)
    }

    fn suspension(
        &self,
        tenant: &Tenant,
        id: &SuspensionId,
    ) -> Task<'_, Result<Option<SuspensionView>, Refused>> {
        self.store.suspension(tenant, id)
    }

    fn counts(&self) -> Counts {
        self.store.counts()
    }

    fn rung(&self) -> Task<'_, Ring> {
        self.store.rung()
    }

    fn hand_over(&self) -> Task<'_, Result<(), Refused>> {
        self.store.hand_over()
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.store.clock()
    }
}
