//! A store that fails, hangs or says no where a test wants it to; all else is the store behind it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use engine::callback::CallbackKey;
use engine::store::{
    Append, Appended, ApprovalFilter, Census, Claim, Claimed, Committed, Counts, Create, Created, Lease,
    Listed, Loaded, MessagePlace, MessageView, Page, Refused, Remembered, RunFilter, RunView, Store,
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
use stores::memory::MemoryStore;
use tokio::sync::Notify;

/// What becomes of one commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Stored,
    /// Nothing is stored, and the caller is told that it failed.
    FailsBefore,
    /// It is stored, and the caller is told that it failed.
    FailsAfter,
    /// The caller is told that an append failed; it is stored when the next one comes.
    ComesLate,
    /// Nothing is stored until the test says so.
    HangsBefore,
    /// It is stored, and the caller hears nothing until the test says so.
    HangsAfter,
}

/// By the number of the commit, from 1, and its events; a submitted item has none.
type Fates = dyn Fn(u64, &[Arc<Event>]) -> Fate + Send + Sync;

pub(crate) struct FaultyStore {
    inner: MemoryStore,
    fates: Box<Fates>,
    pub(crate) commit_count: AtomicU64,
    pub(crate) may_send: AtomicBool,
    /// Nothing can be read for a watcher.
    pub(crate) unreadable: AtomicBool,
    /// Somebody deletes the thread before a frozen agent is looked for.
    pub(crate) deletes_first: AtomicBool,
    /// Others may work on the same runs.
    pub(crate) shared: AtomicBool,
    /// How often a watcher has read.
    pub(crate) read_count: AtomicU64,
    /// Letting a run go hangs until the test says so.
    pub(crate) hangs_on_release: AtomicBool,
    /// Rings when something hangs.
    pub(crate) hung: Notify,
    pub(crate) go_on: Notify,
    late: Mutex<Option<(Lease, Append)>>,
}

impl FaultyStore {
    pub(crate) fn new(
        inner: &MemoryStore,
        fates: impl Fn(u64, &[Arc<Event>]) -> Fate + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            inner: inner.clone(),
            fates: Box::new(fates),
            commit_count: AtomicU64::new(0),
            may_send: AtomicBool::new(true),
            unreadable: AtomicBool::new(false),
            deletes_first: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            read_count: AtomicU64::new(0),
            hangs_on_release: AtomicBool::new(false),
            hung: Notify::new(),
            go_on: Notify::new(),
            late: Mutex::default(),
        })
    }

    async fn commit<T>(
        &self,
        events: &[Arc<Event>],
        work: impl AsyncFnOnce() -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let number = self.commit_count.fetch_add(1, Ordering::AcqRel) + 1;
        let fate = (self.fates)(number, events);
        match fate {
            Fate::FailsBefore | Fate::ComesLate => return Err(trouble()),
            Fate::HangsBefore => self.hang().await,
            Fate::Stored | Fate::FailsAfter | Fate::HangsAfter => {}
        }
        let done = work().await;
        match fate {
            Fate::FailsAfter => return Err(trouble()),
            Fate::HangsAfter => self.hang().await,
            Fate::Stored | Fate::FailsBefore | Fate::ComesLate | Fate::HangsBefore => {}
        }
        done
    }

    async fn hang(&self) {
        self.hung.notify_one();
        self.go_on.notified().await;
    }
}

fn trouble() -> Refused {
    Trouble::Unavailable("the line is cut".into()).into()
}

impl Store for FaultyStore {
    fn now(&self) -> Timestamp {
        self.inner.now()
    }

    fn put_thread(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        metadata: &Value,
    ) -> Task<'_, Result<bool, Refused>> {
        self.inner.put_thread(tenant, thread, metadata)
    }

    fn thread(&self, tenant: &Tenant, thread: &ThreadId) -> Task<'_, Result<ThreadView, Refused>> {
        self.inner.thread(tenant, thread)
    }

    fn threads(&self, tenant: &Tenant, page: &Page) -> Task<'_, Result<Listed<ThreadView>, Refused>> {
        self.inner.threads(tenant, page)
    }

    fn set_auto_approve(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        by: Option<&Principal>,
    ) -> Task<'_, Result<(), Refused>> {
        self.inner.set_auto_approve(tenant, thread, by)
    }

    fn leave(&self, lease: &Lease, tool: &ToolName) -> Task<'_, Result<Leave, Refused>> {
        self.inner.leave(lease, tool)
    }

    fn delete_thread(&self, tenant: &Tenant, thread: &ThreadId) -> Task<'_, Result<(), Refused>> {
        self.inner.delete_thread(tenant, thread)
    }

    fn put_revision(&self, digest: &Digest, text: &str) -> Task<'_, Result<(), Refused>> {
        self.inner.put_revision(digest, text)
    }

    fn revision(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        digest: &Digest,
    ) -> Task<'_, Result<Option<String>, Refused>> {
        let (tenant, thread, digest) = (tenant.clone(), thread.clone(), *digest);
        Box::pin(async move {
            if self.deletes_first.swap(false, Ordering::AcqRel) {
                self.inner.delete_thread(&tenant, &thread).await?;
            }
            self.inner.revision(&tenant, &thread, &digest).await
        })
    }

    fn callback_key(&self, drawn: CallbackKey) -> Task<'_, Result<CallbackKey, Refused>> {
        self.inner.callback_key(drawn)
    }

    fn create(&self, create: Create) -> Task<'_, Result<Created, Refused>> {
        Box::pin(async move {
            let events = create.append.events.clone();
            self.commit(&events, async || self.inner.create(create).await).await
        })
    }

    fn claim(&self, claim: Claim) -> Task<'_, Result<Vec<Claimed>, Refused>> {
        self.inner.claim(claim)
    }

    fn load(&self, lease: &Lease) -> Task<'_, Result<Loaded, Refused>> {
        self.inner.load(lease)
    }

    fn append(&self, lease: &Lease, append: Append) -> Task<'_, Result<Appended, Refused>> {
        let lease = lease.clone();
        Box::pin(async move {
            let late = self.late.lock().unwrap().take();
            if let Some((lease, append)) = late {
                self.inner.append(&lease, append).await?;
            }
            let next = self.commit_count.load(Ordering::Acquire) + 1;
            if (self.fates)(next, &append.events) == Fate::ComesLate {
                *self.late.lock().unwrap() = Some((lease.clone(), append.clone()));
            }
            let events = append.events.clone();
            self.commit(&events, async || self.inner.append(&lease, append).await).await
        })
    }

    fn release(&self, lease: &Lease) -> Task<'_, Result<bool, Refused>> {
        let lease = lease.clone();
        Box::pin(async move {
            if self.hangs_on_release.swap(false, Ordering::AcqRel) {
                self.hang().await;
            }
            self.inner.release(&lease).await
        })
    }

    fn may_send(&self, lease: &Lease) -> bool {
        self.may_send.load(Ordering::Acquire) && self.inner.may_send(lease)
    }

    fn submit(&self, tenant: &Tenant, run: &RunId, item: Item) -> Task<'_, Result<Verdict, Refused>> {
        let (tenant, run) = (tenant.clone(), run.clone());
        Box::pin(async move { self.commit(&[], async || self.inner.submit(&tenant, &run, item).await).await })
    }

    fn next_wake(&self) -> Task<'_, Result<Option<Timestamp>, Refused>> {
        self.inner.next_wake()
    }

    fn decision(
        &self,
        tenant: &Tenant,
        run: &RunId,
        id: &DecisionId,
    ) -> Task<'_, Result<Option<Decision>, Refused>> {
        self.inner.decision(tenant, run, id)
    }

    fn run(&self, tenant: &Tenant, run: &RunId) -> Task<'_, Result<Option<RunView>, Refused>> {
        self.inner.run(tenant, run)
    }

    fn runs(
        &self,
        tenant: &Tenant,
        filter: &RunFilter,
        page: &Page,
    ) -> Task<'_, Result<Listed<RunView>, Refused>> {
        self.inner.runs(tenant, filter, page)
    }

    fn events(
        &self,
        tenant: &Tenant,
        run: &RunId,
        after: u64,
        limit: usize,
    ) -> Task<'_, Result<Vec<Committed>, Refused>> {
        if self.unreadable.load(Ordering::Acquire) {
            return Box::pin(std::future::ready(Err(trouble())));
        }
        self.read_count.fetch_add(1, Ordering::AcqRel);
        self.inner.events(tenant, run, after, limit)
    }

    fn event(&self, lease: &Lease, seq: u64) -> Task<'_, Result<Arc<Event>, Refused>> {
        self.inner.event(lease, seq)
    }

    fn message(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        message: &MessageId,
    ) -> Task<'_, Result<Option<MessagePlace>, Refused>> {
        self.inner.message(tenant, thread, message)
    }

    fn messages(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        page: &Page,
    ) -> Task<'_, Result<Listed<MessageView>, Refused>> {
        self.inner.messages(tenant, thread, page)
    }

    fn posted(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        scope: &str,
    ) -> Task<'_, Result<Option<(RunId, Digest)>, Refused>> {
        self.inner.posted(tenant, thread, scope)
    }

    fn remember(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
        answer: Remembered,
    ) -> Task<'_, Result<Remembered, Refused>> {
        self.inner.remember(tenant, run, scope, answer)
    }

    fn remembered(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
    ) -> Task<'_, Result<Option<Remembered>, Refused>> {
        self.inner.remembered(tenant, run, scope)
    }

    fn state(&self, tenant: &Tenant, run: &RunId) -> Task<'_, Result<Vec<StateRow>, Refused>> {
        self.inner.state(tenant, run)
    }

    fn taken_call_ids(&self, lease: &Lease, asked: &[String]) -> Task<'_, Result<BTreeSet<CallId>, Refused>> {
        self.inner.taken_call_ids(lease, asked)
    }

    fn plugin_state(&self, lease: &Lease) -> Task<'_, Result<Vec<StateRow>, Refused>> {
        self.inner.plugin_state(lease)
    }

    fn suspension(
        &self,
        tenant: &Tenant,
        id: &SuspensionId,
    ) -> Task<'_, Result<Option<SuspensionView>, Refused>> {
        self.inner.suspension(tenant, id)
    }

    fn approvals(
        &self,
        tenant: &Tenant,
        filter: &ApprovalFilter,
        page: &Page,
    ) -> Task<'_, Result<Listed<SuspensionView>, Refused>> {
        self.inner.approvals(tenant, filter, page)
    }

    fn census(&self) -> Task<'_, Result<Census, Refused>> {
        self.inner.census()
    }

    fn counts(&self) -> Counts {
        self.inner.counts()
    }

    fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Acquire)
    }
}
