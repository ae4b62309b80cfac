//! The runs that this process holds: their workers, how many there may be, and how they are woken.

mod dispatch;
mod mailbox;
mod revision_cache;
mod slots;

pub(crate) use mailbox::{DirectSubmission, InboxSignal, Reply, WorkerMessage};
use revision_cache::RevisionCache;
pub(crate) use slots::{Need, Slot};
use slots::{Slots, UnstartedRuns};

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::Poll;
use std::time::Duration;

use machine::Control;
use machine::id::{AgentName, Digest, RunId, ToolName};
use machine::inbox::{Item, Refusal, Verdict};
use machine::visible::looks_like;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::{FrozenAgent, LiveAgent, Pinned};
use crate::approval_feed::ApprovalNotifier;
use crate::callback::{CallbackSecrets, Callbacks};
use crate::clock::Clock;
use crate::feed::Feeds;
use crate::grants::Approvers;
use crate::live::lock;
use crate::metrics::EngineCounters;
use crate::model::Model;
use crate::quota::Quotas;
use crate::store::{Store, StoreError, StoreFailure, Tenant};
use crate::transcript_cache::TranscriptCache;
use crate::worker::{self, RunSource, WorkerContext};

/// How much one engine takes on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Runs that execute at the same time; further ones are queued.
    pub running_runs_max: usize,
    /// Several tenants share this engine, and none may take all the slots in which runs execute. 90 % are for any
    /// tenant's runs; the rest is for other tenants, and half of it also for runs that continue, such as decided ones.
    pub several_tenants: bool,
    /// What one tenant may have in the store.
    pub quotas: Quotas,
    /// Time limit of one plugin hook.
    pub hook_timeout: Duration,
    /// Time limit of one model call. A call that exceeds it has failed and is retried.
    pub model_timeout: Duration,
    /// How long a cancelled tool may keep running before its task is aborted.
    pub cancel_grace: Duration,
    /// Pause before the next attempt after a store failure.
    pub store_retry_pause: Duration,
    /// Memory for the transcripts of recently released runs, so that a run that resumes soon need not read its log
    /// again. This is an upper bound, however many runs wait.
    pub transcript_cache_bytes: usize,
    /// Memory limit for the earlier runs of a thread if the model sees all of them. A run with more before it fails
    /// when it would call the model. If the agent sees only its newest turns, only those are kept.
    pub thread_bytes_max: usize,
    /// The address that accepts later reports from tools ([`Engine::verify_callback`](crate::Engine::verify_callback));
    /// None if nothing does.
    pub callbacks_at: Option<String>,
    /// The secrets for signing callback tokens. None: use a key that the store keeps.
    pub callback_secrets: Option<CallbackSecrets>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            running_runs_max: 256,
            several_tenants: false,
            quotas: Quotas::default(),
            hook_timeout: crate::plugin::HOOK_TIMEOUT,
            model_timeout: Duration::from_secs(600),
            cancel_grace: Duration::from_secs(5),
            store_retry_pause: Duration::from_secs(1),
            transcript_cache_bytes: 32 * 1024 * 1024,
            thread_bytes_max: 64 * 1024 * 1024,
            callbacks_at: None,
            callback_secrets: None,
        }
    }
}

pub(crate) fn stopped() -> StoreError {
    StoreError::Failed(StoreFailure::Unavailable("this engine is stopping".into()))
}

/// Capacity of one worker's mailbox; what does not fit goes through the store.
const MAILBOX_CAPACITY: usize = 256;

/// How a worker left its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerExit {
    /// It ended, was released, or another worker holds it.
    Done,
    /// It could not be loaded.
    NotLoaded,
}

/// The key includes the tenant, so that guessing another tenant's run id finds no worker.
type RunKey = (Tenant, RunId);

#[derive(Default)]
struct Active {
    workers: BTreeMap<RunKey, WorkerEntry>,
    /// No further worker starts.
    aborted: bool,
}

struct WorkerEntry {
    number: u64,
    mailbox: mpsc::Sender<WorkerMessage>,
    inbox_signal: Arc<InboxSignal>,
    abort: Option<AbortHandle>,
}

/// The agents as currently configured.
#[derive(Default)]
pub(crate) struct Agents {
    pub(crate) by_name: BTreeMap<AgentName, Arc<LiveAgent>>,
}

impl Agents {
    pub(crate) fn has_tool(&self, name: &ToolName) -> bool {
        self.by_name.values().any(|agent| agent.tools.contains_key(name))
    }

    /// Whether a tool of the server, used or not, has this name or one that a reader could mistake for it.
    pub(crate) fn is_reserved(&self, name: &ToolName) -> bool {
        let of_agents = self.by_name.values().flat_map(|agent| agent.tools.keys().chain(&agent.reserved));
        let mut known = of_agents.map(ToolName::as_str);
        known.any(|known| looks_like(known, name.as_str()))
    }

    /// One model name may mean different models, such as one with fallbacks: the run's own agent comes first.
    pub(crate) fn model(&self, agent: &AgentName, name: &str) -> Option<Arc<dyn Model>> {
        let mut agents = self.by_name.get(agent).into_iter().chain(self.by_name.values());
        let of = |agent: &LiveAgent| {
            let used = (agent.pinned.model == name).then_some(&agent.model);
            used.or_else(|| agent.other_models.get(name)).cloned()
        };
        agents.find_map(|agent| of(agent))
    }
}

pub(crate) struct Node {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    /// The current quotas; a reload may change them.
    pub(crate) quotas: Mutex<Quotas>,
    pub(crate) callbacks: Option<Callbacks>,
    pub(crate) approvers: Approvers,
    pub(crate) feeds: Arc<Feeds>,
    pub(crate) transcript_cache: TranscriptCache,
    agents: RwLock<Arc<Agents>>,
    revision_cache: RevisionCache,
    active: Mutex<Active>,
    /// Notified when a worker has left its run.
    worker_exits: Notify,
    slots: Slots,
    pub(crate) unstarted: UnstartedRuns,
    /// Some run is ready but found no slot.
    backlog: AtomicBool,
    /// Runs may be queued for a slot: since one found none, until a claim returns fewer runs than it had slots for.
    has_queue: AtomicBool,
    dispatch: Notify,
    /// When the dispatcher polls for due runs again.
    next_poll_at: AtomicU64,
    last_number: AtomicU64,
    pub(crate) stopping: CancellationToken,
    /// Cancelled to simulate a crash: work in flight stops where it is.
    aborted: CancellationToken,
    /// Notified whenever a suspension opens or closes.
    pub(crate) approvals: ApprovalNotifier,
    pub(crate) counters: EngineCounters,
    /// All tasks of this engine.
    pub(crate) tasks: TaskTracker,
}

impl Node {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        settings: Settings,
        callbacks: Option<Callbacks>,
        approvers: Approvers,
        agents: Agents,
    ) -> Arc<Self> {
        Arc::new(Self {
            slots: Slots::new(settings.running_runs_max, settings.several_tenants),
            unstarted: UnstartedRuns::default(),
            transcript_cache: TranscriptCache::new(settings.transcript_cache_bytes),
            store,
            clock,
            quotas: Mutex::new(settings.quotas),
            settings,
            callbacks,
            approvers,
            feeds: Arc::default(),
            agents: RwLock::new(Arc::new(agents)),
            revision_cache: RevisionCache::default(),
            active: Mutex::default(),
            worker_exits: Notify::new(),
            backlog: AtomicBool::new(false),
            has_queue: AtomicBool::new(false),
            dispatch: Notify::new(),
            next_poll_at: AtomicU64::new(u64::MAX),
            last_number: AtomicU64::new(0),
            stopping: CancellationToken::new(),
            aborted: CancellationToken::new(),
            approvals: ApprovalNotifier::default(),
            counters: EngineCounters::default(),
            tasks: TaskTracker::new(),
        })
    }

    pub(crate) fn agents(&self) -> Arc<Agents> {
        self.agents.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn replace_agents(&self, agents: Agents) {
        *self.agents.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(agents);
    }

    /// The frozen agent of a run. [`StoreError::NotFound`] if the run is gone: its thread was deleted meanwhile,
    /// together with the thread's inline agents.
    pub(crate) async fn pinned(&self, tenant: &Tenant, run: &Control) -> Result<Arc<Pinned>, StoreError> {
        let digest = &run.revision;
        let live = self.agents().by_name.values().find(|agent| agent.pinned.digest == *digest).cloned();
        if let Some(agent) = live {
            return Ok(agent.pinned.clone());
        }
        if let Some(known) = self.cached_revision(tenant, digest) {
            return Ok(known);
        }
        let text = self.store.revision(tenant, &run.thread, digest).await?;
        let unreadable =
            |why: String| StoreError::Failed(StoreFailure::Corrupt(format!("revision {digest}: {why}")));
        let Some(text) = text else {
            let there = self.store.run(tenant, &run.run).await?.is_some();
            return Err(if there { unreadable("it is not stored".into()) } else { StoreError::NotFound });
        };
        let frozen = FrozenAgent::from_json(&text).map_err(unreadable)?;
        let pinned = Pinned::compile(&frozen).map_err(|fault| unreadable(fault.to_string()))?;
        let pinned = Arc::new(pinned);
        self.cache_revision(tenant, pinned.clone());
        Ok(pinned)
    }

    /// A stored frozen agent, if it is cached.
    pub(crate) fn cached_revision(&self, tenant: &Tenant, digest: &Digest) -> Option<Arc<Pinned>> {
        self.revision_cache.get(tenant, digest)
    }

    pub(crate) fn cache_revision(&self, tenant: &Tenant, pinned: Arc<Pinned>) {
        self.revision_cache.put(tenant, pinned);
    }

    /// Submits an item to a run: directly to its worker if this process has one or can start one, otherwise through the
    /// store. Returns after the commit.
    pub(crate) async fn submit(
        self: &Arc<Self>,
        tenant: &Tenant,
        run: &RunId,
        item: Item,
    ) -> Result<Verdict, StoreError> {
        let item = match item.storable() {
            Ok(item) => item,
            Err(why) => return Ok(Verdict::Refused(Refusal::Invalid(why))),
        };
        let mut reply = self.submit_to_worker(tenant, run, &item).await;
        if matches!(reply, Some(Reply::Released)) {
            reply = self.submit_to_worker(tenant, run, &item).await;
        }
        if let Some(Reply::Stored(verdict)) = reply {
            return Ok(verdict);
        }
        // The caller may disappear meanwhile, but a stored item must still be processed.
        let (node, tenant, run) = (self.clone(), tenant.clone(), run.clone());
        let answers = item.call().is_some();
        let submitted = self.run_detached(async move {
            let submitted = node.store.submit(&tenant, &run, item).await;
            // An answered suspension is shown as its answer says, long before the run has processed the answer.
            if answers && submitted.as_ref().is_ok_and(Verdict::is_taken) {
                node.approvals.changed(&tenant, &run);
            }
            match &submitted {
                Ok(Verdict::Accepted | Verdict::ToolChanged | Verdict::AlreadyApplied) => {
                    node.wake(&tenant, &run, Need::Continue)
                }
                Ok(Verdict::Refused(_)) => {}
                // The item may be stored anyway, and then a worker has to process it.
                Err(_) => node.schedule_dispatch(),
            }
            submitted
        });
        submitted.await
    }

    /// Runs `work` to completion even if the caller is dropped. Only stopping the engine cancels it.
    pub(crate) async fn run_detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let aborted = self.aborted.clone();
        let mut work = Box::pin(async move {
            tokio::select! {
                biased;
                () = aborted.cancelled() => Err(stopped()),
                done = work => done,
            }
        });
        // A store that answers at once needs no task: the caller cannot be dropped in between.
        if let Poll::Ready(done) = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
            return done;
        }
        self.tasks.spawn(work).await.unwrap_or_else(|_| Err(stopped()))
    }

    /// None if there is no worker and no slot for one.
    async fn submit_to_worker(self: &Arc<Self>, tenant: &Tenant, run: &RunId, item: &Item) -> Option<Reply> {
        self.send_to_worker(tenant, run, item)?.await.ok()
    }

    fn send_to_worker(
        self: &Arc<Self>,
        tenant: &Tenant,
        run: &RunId,
        item: &Item,
    ) -> Option<oneshot::Receiver<Reply>> {
        let (reply, answer) = oneshot::channel();
        let message = WorkerMessage::Submit(Box::new(DirectSubmission { item: item.clone(), reply }));
        let mut active = lock(&self.active);
        if let Some(worker) = active.workers.get(&(tenant.clone(), run.clone())) {
            // The last place is reserved for a claim, which has no other way to the worker.
            let has_room = worker.mailbox.capacity() > 1;
            return (has_room && worker.mailbox.try_send(message).is_ok()).then_some(answer);
        }
        let slot = self.try_take_slot(tenant, Need::Continue)?;
        self.start(&mut active, tenant, run, RunSource::Claim, Some(message), slot);
        Some(answer)
    }

    /// There is work for this run. It gets a worker now, or as soon as a slot is free.
    pub(crate) fn wake(self: &Arc<Self>, tenant: &Tenant, run: &RunId, need: Need) {
        let mut active = lock(&self.active);
        if let Some(worker) = active.workers.get(&(tenant.clone(), run.clone())) {
            worker.inbox_signal.notify();
            return;
        }
        match self.try_take_slot(tenant, need) {
            Some(slot) => self.start(&mut active, tenant, run, RunSource::Claim, None, slot),
            None => self.queue_for_slot(tenant, need),
        }
    }

    /// Some run is ready and found no slot, or could not be loaded. The dispatcher takes it from here: a slot may have
    /// become free meanwhile.
    pub(crate) fn schedule_dispatch(&self) {
        self.backlog.store(true, Ordering::Release);
        self.dispatch.notify_one();
    }

    /// Starts a worker on a run that this process already holds.
    pub(crate) fn begin(self: &Arc<Self>, tenant: &Tenant, run: &RunId, source: RunSource, slot: Slot) {
        let mut active = lock(&self.active);
        self.start(&mut active, tenant, run, source, None, slot);
    }

    fn start(
        self: &Arc<Self>,
        active: &mut Active,
        tenant: &Tenant,
        run: &RunId,
        source: RunSource,
        message: Option<WorkerMessage>,
        slot: Slot,
    ) {
        if active.aborted {
            self.release_source(source);
            return;
        }
        let (sender, receiver) = mpsc::channel(MAILBOX_CAPACITY);
        if let Some(message) = message {
            // The channel is new and has room.
            let _ = sender.try_send(message);
        }
        let inbox_signal = Arc::new(InboxSignal::default());
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let ctx = WorkerContext {
            node: self.clone(),
            tenant: tenant.clone(),
            run: run.clone(),
            number,
            mailbox: receiver,
            inbox_signal: inbox_signal.clone(),
            slot,
            claimed: None,
        };
        let key = (tenant.clone(), run.clone());
        active
            .workers
            .insert(key.clone(), WorkerEntry { number, mailbox: sender, inbox_signal, abort: None });
        let task = self.tasks.spawn(worker::work(ctx, source));
        if let Some(worker) = active.workers.get_mut(&key).filter(|worker| worker.number == number) {
            worker.abort = Some(task.abort_handle());
        }
    }

    /// The engine was aborted: releases a run that was claimed meanwhile, if the store allows it.
    fn release_source(self: &Arc<Self>, source: RunSource) {
        let lease = match source {
            RunSource::Claim => return,
            RunSource::Claimed(claimed) => claimed.lease,
            RunSource::Created(created) => created.lease,
        };
        let store = self.store.clone();
        self.tasks.spawn(async move {
            if let Err(refused) = store.release(&lease).await {
                tracing::warn!(run = %lease.run, %refused, "a run of a stopped engine stays held");
            }
        });
    }

    /// A worker has left its run. Messages that reached it meanwhile are not lost.
    pub(crate) fn finish_worker(self: &Arc<Self>, mut ctx: WorkerContext, exit: WorkerExit) {
        let mut active = lock(&self.active);
        let key = (ctx.tenant.clone(), ctx.run.clone());
        if active.workers.get(&key).is_none_or(|worker| worker.number != ctx.number) {
            return;
        }
        active.workers.remove(&key);
        ctx.mailbox.close();
        let mut claimed = ctx.claimed.take();
        while let Ok(message) = ctx.mailbox.try_recv() {
            match message {
                WorkerMessage::Submit(submission) => drop(submission.reply.send(match exit {
                    WorkerExit::Done => Reply::Released,
                    WorkerExit::NotLoaded => Reply::UseInbox,
                })),
                WorkerMessage::Claimed(other) => claimed = Some(other),
            }
        }
        if let Some(claimed) = claimed {
            self.start(&mut active, &ctx.tenant, &ctx.run, RunSource::Claimed(claimed), None, ctx.slot);
        } else if ctx.inbox_signal.take() {
            self.start(&mut active, &ctx.tenant, &ctx.run, RunSource::Claim, None, ctx.slot);
        } else {
            drop(ctx.slot);
            if exit == WorkerExit::NotLoaded {
                self.schedule_dispatch();
            }
        }
        drop(active);
        self.worker_exits.notify_waiters();
    }

    /// Waits until this node has no worker.
    pub(crate) async fn wait_until_idle(&self) {
        loop {
            let exited = self.worker_exits.notified();
            tokio::pin!(exited);
            exited.as_mut().enable();
            if lock(&self.active).workers.is_empty() {
                return;
            }
            exited.await;
        }
    }

    /// Stops everything in flight, as a crash would.
    pub(crate) fn abort(&self) {
        self.stopping.cancel();
        let workers = {
            let mut active = lock(&self.active);
            active.aborted = true;
            self.aborted.cancel();
            self.feeds.stop();
            std::mem::take(&mut active.workers)
        };
        for worker in workers.into_values() {
            if let Some(abort) = worker.abort {
                abort.abort();
            }
        }
    }

    pub(crate) fn runs_in_memory(&self) -> usize {
        lock(&self.active).workers.len()
    }
}
