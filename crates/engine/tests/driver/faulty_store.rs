//! A store that fails, hangs or says no where a test wants it to; all else is the store behind it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use engine::store::{
    Append, Appended, BoxFuture, Create, Created, Lease, LogEntry, RunStore, Store, StoreError, StoreFailure,
    SuspensionView, Tenant, ViewStore, Wrapper,
};
use machine::event::Event;
use machine::id::{Digest, RunId, SuspensionId, ThreadId};
use machine::inbox::{Item, Verdict};
use stores::memory::MemoryStore;
use tokio::sync::Notify;

/// What happens to one commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Stored,
    /// Nothing is stored, and the caller gets an error.
    FailsBefore,
    /// It is stored, and the caller gets an error.
    FailsAfter,
    /// The caller gets an error for an append, which is stored when the next one comes.
    ComesLate,
    /// Nothing is stored until the test says so.
    HangsBefore,
    /// It is stored, and the caller gets no answer until the test says so.
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
    /// The store deletes the thread before it looks for a frozen agent.
    pub(crate) deletes_first: AtomicBool,
    /// Others may work on the same runs.
    pub(crate) shared: AtomicBool,
    /// Reads of a suspension that will fail.
    pub(crate) failing_suspension_reads: AtomicU64,
    /// How often a watcher has read.
    pub(crate) read_count: AtomicU64,
    /// Letting a run go hangs until the test says so.
    pub(crate) hangs_on_release: AtomicBool,
    /// Rings when something hangs.
    pub(crate) hung: Notify,
    pub(crate) resume: Notify,
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
            failing_suspension_reads: AtomicU64::new(0),
            read_count: AtomicU64::new(0),
            hangs_on_release: AtomicBool::new(false),
            hung: Notify::new(),
            resume: Notify::new(),
            late: Mutex::default(),
        })
    }

    async fn commit<T>(
        &self,
        events: &[Arc<Event>],
        work: impl AsyncFnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
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
        self.resume.notified().await;
    }
}

fn trouble() -> StoreError {
    StoreFailure::Unavailable("the line is cut".into()).into()
}

impl Wrapper for FaultyStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn revision(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        digest: &Digest,
    ) -> BoxFuture<'_, Result<Option<String>, StoreError>> {
        let (tenant, thread, digest) = (tenant.clone(), thread.clone(), *digest);
        Box::pin(async move {
            if self.deletes_first.swap(false, Ordering::AcqRel) {
                self.inner.delete_thread(&tenant, &thread, &"tester".into()).await?;
            }
            self.inner.revision(&tenant, &thread, &digest).await
        })
    }

    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created, StoreError>> {
        Box::pin(async move {
            let events = create.append.events.clone();
            self.commit(&events, async || self.inner.create(create).await).await
        })
    }

    fn append(&self, lease: &Lease, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
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

    fn release(&self, lease: &Lease) -> BoxFuture<'_, Result<bool, StoreError>> {
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

    fn submit(&self, tenant: &Tenant, run: &RunId, item: Item) -> BoxFuture<'_, Result<Verdict, StoreError>> {
        let (tenant, run) = (tenant.clone(), run.clone());
        Box::pin(async move { self.commit(&[], async || self.inner.submit(&tenant, &run, item).await).await })
    }

    fn events(
        &self,
        tenant: &Tenant,
        run: &RunId,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<LogEntry>, StoreError>> {
        if self.unreadable.load(Ordering::Acquire) {
            return Box::pin(std::future::ready(Err(trouble())));
        }
        self.read_count.fetch_add(1, Ordering::AcqRel);
        self.inner.events(tenant, run, after, limit)
    }

    fn suspension(
        &self,
        tenant: &Tenant,
        id: &SuspensionId,
    ) -> BoxFuture<'_, Result<Option<SuspensionView>, StoreError>> {
        let left = &self.failing_suspension_reads;
        let one_less = |left: u64| left.checked_sub(1);
        if left.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_ok() {
            return Box::pin(std::future::ready(Err(trouble())));
        }
        self.inner.suspension(tenant, id)
    }

    fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Acquire)
    }
}
