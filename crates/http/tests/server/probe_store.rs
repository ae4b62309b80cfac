//! A store that notes what is read of it, can be held up and forget, and does everything else as it is.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use engine::store::{
    Append, Appended, ApprovalFilter, BoxFuture, ConfigurationRecord, Create, Created, Lease, Listed,
    LogEntry, MessageOrder, MessagePosition, MessageView, Page, RunFilter, RunView, Store, StoreError,
    StoreFailure, StoredResponse, SuspensionView, Tenant, Wrapper,
};
use machine::Timestamp;
use machine::decision::Decision;
use machine::id::{DecisionId, MessageId, RunId, SuspensionId, ThreadId};
use tokio::sync::Semaphore;

/// What was read, and what is done to the reader.
#[derive(Default)]
pub(crate) struct StoreProbe {
    pub(crate) events_read: AtomicUsize,
    /// Reads of one run, suspension, decision, message or stored response. A worker makes none of these.
    pub(crate) row_reads: AtomicUsize,
    /// Approvals that were listed of one run, whatever became of them.
    pub(crate) changes_listed: AtomicUsize,
    /// The most rows that a page of approvals or messages was asked for.
    pub(crate) rows_max: AtomicUsize,
    pub(crate) next_wakes: AtomicUsize,
    /// Answers that were to be kept.
    pub(crate) answers: AtomicUsize,
    /// No answer is kept, as if the process had died before.
    pub(crate) drops_answers: AtomicBool,
    /// No record of a configuration is written.
    pub(crate) refuses_configurations: AtomicBool,
    /// The clock is ahead by so much.
    pub(crate) ahead_ms: AtomicU64,
    barrier: Mutex<Option<Arc<StoreBarrier>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockPoint {
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

/// A caller that arrives here waits.
pub(crate) struct StoreBarrier {
    at: BlockPoint,
    arrived: Semaphore,
    let_go: Semaphore,
}

impl StoreBarrier {
    /// One more has come.
    pub(crate) async fn wait_for_arrival(&self) {
        self.arrived.acquire().await.expect("it is never closed").forget();
    }

    /// One of them may go on.
    pub(crate) fn release_one(&self) {
        self.let_go.add_permits(1);
    }
}

impl StoreProbe {
    /// From here on, until it ends.
    pub(crate) fn block_at(&self, at: BlockPoint) -> Arc<StoreBarrier> {
        let barrier = Arc::new(StoreBarrier { at, arrived: Semaphore::new(0), let_go: Semaphore::new(0) });
        *self.barrier.lock().expect("the lock is not poisoned") = Some(barrier.clone());
        barrier
    }

    pub(crate) fn unblock(&self) {
        *self.barrier.lock().expect("the lock is not poisoned") = None;
    }

    async fn wait_at(&self, at: BlockPoint) {
        let found = self.barrier.lock().expect("the lock is not poisoned").clone();
        let Some(barrier) = found.filter(|barrier| barrier.at == at) else { return };
        barrier.arrived.add_permits(1);
        barrier.let_go.acquire().await.expect("it is never closed").forget();
    }

    pub(crate) fn count(number: &AtomicUsize) -> usize {
        number.load(Ordering::SeqCst)
    }
}

pub(crate) struct ProbedStore {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) probe: Arc<StoreProbe>,
}

impl Wrapper for ProbedStore {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn now(&self) -> Timestamp {
        self.store.now().plus_ms(self.probe.ahead_ms.load(Ordering::SeqCst))
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
            self.probe.events_read.fetch_add(events.len(), Ordering::SeqCst);
            Ok(events)
        })
    }

    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created, StoreError>> {
        Box::pin(async move {
            self.probe.wait_at(BlockPoint::Create).await;
            self.store.create(create).await
        })
    }

    fn run(&self, tenant: &Tenant, run: &RunId) -> BoxFuture<'_, Result<Option<RunView>, StoreError>> {
        self.probe.row_reads.fetch_add(1, Ordering::SeqCst);
        self.store.run(tenant, run)
    }

    fn message(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        message: &MessageId,
    ) -> BoxFuture<'_, Result<Option<MessagePosition>, StoreError>> {
        self.probe.row_reads.fetch_add(1, Ordering::SeqCst);
        self.store.message(tenant, thread, message)
    }

    fn stored_response(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
    ) -> BoxFuture<'_, Result<Option<StoredResponse>, StoreError>> {
        self.probe.row_reads.fetch_add(1, Ordering::SeqCst);
        self.store.stored_response(tenant, run, scope)
    }

    fn next_wake(&self) -> BoxFuture<'_, Result<Option<Timestamp>, StoreError>> {
        self.probe.next_wakes.fetch_add(1, Ordering::SeqCst);
        self.store.next_wake()
    }

    fn store_response(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
        answer: StoredResponse,
    ) -> BoxFuture<'_, Result<StoredResponse, StoreError>> {
        self.probe.answers.fetch_add(1, Ordering::SeqCst);
        if self.probe.drops_answers.load(Ordering::SeqCst) && !answer.answer.is_empty() {
            let gone = StoreError::Failed(StoreFailure::Unavailable("it died before".into()));
            return Box::pin(std::future::ready(Err(gone)));
        }
        self.store.store_response(tenant, run, scope, answer)
    }

    fn record_configuration(&self, records: &[ConfigurationRecord]) -> BoxFuture<'_, Result<(), StoreError>> {
        if self.probe.refuses_configurations.load(Ordering::SeqCst) {
            let full = StoreError::Failed(StoreFailure::Full("no space left".into()));
            return Box::pin(std::future::ready(Err(full)));
        }
        self.store.record_configuration(records)
    }

    fn append(&self, lease: &Lease, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        let lease = lease.clone();
        Box::pin(async move {
            self.probe.wait_at(BlockPoint::Append).await;
            self.store.append(&lease, append).await
        })
    }

    fn decision(
        &self,
        tenant: &Tenant,
        run: &RunId,
        id: &DecisionId,
    ) -> BoxFuture<'_, Result<Option<Decision>, StoreError>> {
        self.probe.row_reads.fetch_add(1, Ordering::SeqCst);
        let reading = self.store.decision(tenant, run, id);
        Box::pin(async move {
            self.probe.wait_at(BlockPoint::Decision).await;
            reading.await
        })
    }

    fn suspension(
        &self,
        tenant: &Tenant,
        id: &SuspensionId,
    ) -> BoxFuture<'_, Result<Option<SuspensionView>, StoreError>> {
        self.probe.row_reads.fetch_add(1, Ordering::SeqCst);
        let (tenant, id) = (tenant.clone(), id.clone());
        Box::pin(async move {
            self.probe.wait_at(BlockPoint::Approval).await;
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
            self.probe.wait_at(BlockPoint::Runs).await;
            reading.await
        })
    }

    fn approvals(
        &self,
        tenant: &Tenant,
        filter: &ApprovalFilter,
        page: &Page,
    ) -> BoxFuture<'_, Result<Listed<SuspensionView>, StoreError>> {
        self.probe.rows_max.fetch_max(page.limit, Ordering::SeqCst);
        let of_run = filter.run.is_some() && filter.status.is_none();
        let reading = self.store.approvals(tenant, filter, page);
        Box::pin(async move {
            let listed = reading.await?;
            if of_run {
                self.probe.changes_listed.fetch_add(listed.items.len(), Ordering::SeqCst);
            }
            self.probe.wait_at(BlockPoint::Approvals).await;
            Ok(listed)
        })
    }

    fn messages(
        &self,
        tenant: &Tenant,
        thread: &ThreadId,
        order: MessageOrder,
        page: &Page,
    ) -> BoxFuture<'_, Result<Listed<MessageView>, StoreError>> {
        self.probe.rows_max.fetch_max(page.limit, Ordering::SeqCst);
        self.store.messages(tenant, thread, order, page)
    }
}
