//! A store that notes when a log is read, when a run is let go and when the dispatcher has looked around, and does
//! everything else as it is.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use engine::Engine;
use engine::callback::CallbackKey;
use engine::clock::Clock;
use engine::store::{
    Append, Appended, ApprovalFilter, Census, Claim, Claimed, Committed, Counts, Create, Created, Lease,
    Listed, Loaded, MessagePlace, MessageView, Page, Refused, Remembered, Ring, RunFilter, RunView, Said,
    Store, SuspensionView, Task, Tenant, ThreadView,
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

use crate::failure::Failure;
use crate::stage::parked;

pub(crate) struct Notes {
    first_log_read: Mutex<Option<Instant>>,
    last_release: Mutex<Option<Instant>>,
    released: Semaphore,
    looked: Semaphore,
}

impl Notes {
    fn log_is_read(&self) {
        let mut first = self.first_log_read.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(Instant::now);
    }

    /// When a log was first read since somebody asked.
    pub(crate) fn take_first_log_read(&self) -> Option<Instant> {
        self.first_log_read.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn is_released(&self) {
        *self.last_release.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.released.add_permits(1);
    }

    /// The dispatcher has claimed what was ready, and knows when to look again.
    pub(crate) async fn looked_around(&self) -> Result<(), Failure> {
        self.looked.acquire().await?.forget();
        Ok(())
    }

    /// The run that was let go has left memory; gives when it was let go. Looking at the engine all the while would
    /// keep a processor from it.
    pub(crate) async fn parked(&self, engine: &Engine) -> Result<Option<Instant>, Failure> {
        self.released.acquire().await?.forget();
        parked(engine).await;
        Ok(*self.last_release.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(crate) struct NotingStore {
    store: Arc<dyn Store>,
    notes: Arc<Notes>,
}

impl NotingStore {
    pub(crate) fn around(store: Arc<dyn Store>) -> (Self, Arc<Notes>) {
        let notes = Arc::new(Notes {
            first_log_read: Mutex::default(),
            last_release: Mutex::default(),
            released: Semaphore::new(0),
            looked: Semaphore::new(0),
        });
        (Self { store, notes: notes.clone() }, notes)
    }
}

impl Store for NotingStore {
    fn events(
        &self,
        tenant: &Tenant,
        run: &RunId,
        after: u64,
        limit: usize,
    ) -> Task<'_, Result<Vec<Committed>, Refused>> {
        self.notes.log_is_read();
        self.store.events(tenant, run, after, limit)
    }

    fn now(&self) -> Timestamp {
        self.store.now()
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

    fn release(&self, lease: &Lease) -> Task<'_, Result<bool, Refused>> {
        let released = self.store.release(lease);
        Box::pin(async move {
            let released = released.await;
            if released == Ok(true) {
                self.notes.is_released();
            }
            released
        })
    }

    fn may_send(&self, lease: &Lease) -> bool {
        self.store.may_send(lease)
    }

    fn submit(&self, tenant: &Tenant, run: &RunId, item: Item) -> Task<'_, Result<Verdict, Refused>> {
        self.store.submit(tenant, run, item)
    }

    fn next_wake(&self) -> Task<'_, Result<Option<Timestamp>, Refused>> {
        let next = self.store.next_wake();
        Box::pin(async move {
            let next = next.await;
            self.notes.looked.add_permits(1);
            next
        })
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

    fn runs(
        &self,
        tenant: &Tenant,
        filter: &RunFilter,
        page: &Page,
    ) -> Task<'_, Result<Listed<RunView>, Refused>> {
        self.store.runs(tenant, filter, page)
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

    fn messages(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        page: &Page,
    ) -> Task<'_, Result<Listed<MessageView>, Refused>> {
        self.store.messages(tenant, thread, page)
    }

    fn posted(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        scope: &str,
    ) -> Task<'_, Result<Option<(RunId, Digest)>, Refused>> {
        self.store.posted(tenant, thread, scope)
    }

    fn remember(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
        answer: Remembered,
    ) -> Task<'_, Result<Remembered, Refused>> {
        self.store.remember(tenant, run, scope, answer)
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

    fn approvals(
        &self,
        tenant: &Tenant,
        filter: &ApprovalFilter,
        page: &Page,
    ) -> Task<'_, Result<Listed<SuspensionView>, Refused>> {
        self.store.approvals(tenant, filter, page)
    }

    fn census(&self) -> Task<'_, Result<Census, Refused>> {
        self.store.census()
    }

    fn counts(&self) -> Counts {
        self.store.counts()
    }

    fn rung(&self) -> Task<'_, Ring> {
        self.store.rung()
    }

    fn watch(&self, run: &RunId) {
        self.store.watch(run);
    }

    fn tell(&self, run: &RunId, after: u64, said: Vec<Said>) {
        self.store.tell(run, after, said);
    }

    fn hand_over(&self) -> Task<'_, Result<(), Refused>> {
        self.store.hand_over()
    }

    fn clock(&self) -> Option<Arc<dyn Clock>> {
        self.store.clock()
    }
}
