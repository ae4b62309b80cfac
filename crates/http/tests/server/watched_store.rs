//! A store that notes what is read of it, can be held up and forget, and does everything else as it is.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use engine::store::{
    Append, Appended, ApprovalFilter, BoxFuture, Create, Created, Lease, Listed, LogEntry, MessageView, Page,
    RunFilter, RunView, Store, StoreError, StoreFailure, StoredResponse, SuspensionView, Tenant, Wrapper,
};
use machine::Timestamp;
use machine::decision::Decision;
use machine::id::{DecisionId, RunId, SuspensionId, ThreadId};
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
    /// A look at one approval, before it is read.
    Approval,
    /// A look for an earlier decision of the same id.
    Decision,
    /// A commit of a run, before it is stored.
    Append,
    /// The creation of a run on a thread that was seen, before it is stored.
    Create,
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

impl Wrapper for WatchedStore {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn now(&self) -> Timestamp {
        self.store.now().plus_ms(self.notes.ahead_ms.load(Ordering::SeqCst))
    }

    fn events(
        &self,
        tenant: &Tenant,
        run: &RunId,
        after: u64,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<LogEntry>, StoreError>> {
        let reading = self.store.events(tenant, run, after, limit);
        Box::pin(async move {
            let events = reading.await?;
            self.notes.events_read.fetch_add(events.len(), Ordering::SeqCst);
            Ok(events)
        })
    }

    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created, StoreError>> {
        Box::pin(async move {
            self.notes.pass(At::Create).await;
            self.store.create(create).await
        })
    }

    fn next_wake(&self) -> BoxFuture<'_, Result<Option<Timestamp>, StoreError>> {
        self.notes.next_wakes.fetch_add(1, Ordering::SeqCst);
        self.store.next_wake()
    }

    fn store_response(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
        answer: StoredResponse,
    ) -> BoxFuture<'_, Result<StoredResponse, StoreError>> {
        self.notes.answers.fetch_add(1, Ordering::SeqCst);
        if self.notes.forgets.load(Ordering::SeqCst) && !answer.answer.is_empty() {
            let gone = StoreError::Failed(StoreFailure::Unavailable("it died before".into()));
            return Box::pin(std::future::ready(Err(gone)));
        }
        self.store.store_response(tenant, run, scope, answer)
    }

    fn append(&self, lease: &Lease, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        let lease = lease.clone();
        Box::pin(async move {
            self.notes.pass(At::Append).await;
            self.store.append(&lease, append).await
        })
    }

    fn decision(
        &self,
        tenant: &Tenant,
        run: &RunId,
        id: &DecisionId,
    ) -> BoxFuture<'_, Result<Option<Decision>, StoreError>> {
        let reading = self.store.decision(tenant, run, id);
        Box::pin(async move {
            self.notes.pass(At::Decision).await;
            reading.await
        })
    }

    fn suspension(
        &self,
        tenant: &Tenant,
        id: &SuspensionId,
    ) -> BoxFuture<'_, Result<Option<SuspensionView>, StoreError>> {
        let (tenant, id) = (tenant.clone(), id.clone());
        Box::pin(async move {
            self.notes.pass(At::Approval).await;
            self.store.suspension(&tenant, &id).await
        })
    }

    fn runs(
        &self,
        tenant: &Tenant,
        filter: &RunFilter,
        page: &Page,
    ) -> BoxFuture<'_, Result<Listed<RunView>, StoreError>> {
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
    ) -> BoxFuture<'_, Result<Listed<SuspensionView>, StoreError>> {
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
    ) -> BoxFuture<'_, Result<Listed<MessageView>, StoreError>> {
        self.notes.rows_max.fetch_max(page.limit, Ordering::SeqCst);
        self.store.messages(tenant, thread, page)
    }
}
