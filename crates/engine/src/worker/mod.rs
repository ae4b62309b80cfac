//! One worker per held run. It takes what is ready, decides, stores the result in one commit, publishes it, and starts
//! the wanted effects.

mod batch;
mod call_hooks;
mod children;
mod claim;
mod current_tool;
mod gate;
mod halted;
mod hooks;
mod model_task;
mod panics;
mod pass;
mod plugin_lock;
mod run_end;
mod run_metrics;
mod task_result;
mod tasks;
mod tool_task;
mod yield_slot;

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use machine::event::Event;
use machine::id::{CallId, Digest, MessageId, RunId};
use machine::inbox::{Item, Ticket};
use machine::phase::{Phase, PhaseSet};
use machine::projection_rows::StateRow;
use machine::status::RunStatus;
use machine::tool::Arguments;
use machine::{Control, Effect, Input, Run, Timestamp};
use tokio::sync::mpsc;

pub(crate) use batch::{Batch, committed};
pub(crate) use children::child_runs;

use crate::agent::Pinned;
use crate::clock::NotBefore;
use crate::feed::{HeldFeed, RunFeed};
use crate::history::History;
use crate::node::{DirectSubmission, InboxSignal, Node, Slot, WorkerExit, WorkerMessage};
use crate::store::{Claimed, Lease, Loaded, StoreError, StoreFailure, Tenant};
use claim::{LoadedClaim, claim_run};
use pass::UncertainCommit;
use plugin_lock::{PluginLock, PluginLockGuard};
use run_metrics::RunMetrics;
use task_result::{AfterToolAnswer, FinishedTask, TaskOutput, TaskResult};
use tasks::RunningTask;

/// What a worker works on and how it is reached.
pub(crate) struct WorkerContext {
    pub(crate) node: Arc<Node>,
    pub(crate) tenant: Tenant,
    pub(crate) run: RunId,
    /// Distinguishes this worker from an earlier one on the same run.
    pub(crate) number: u64,
    pub(crate) mailbox: mpsc::Receiver<WorkerMessage>,
    pub(crate) inbox_signal: Arc<InboxSignal>,
    /// This process claimed the run again: this worker's lease is void, and another worker continues.
    pub(crate) claimed: Option<Box<Claimed>>,
}

/// How a worker obtains its run.
pub(crate) enum RunSource {
    Claim,
    Claimed(Box<Claimed>),
    /// The run was created here, in the commit that also started it.
    Created(Box<CreatedRun>),
}

pub(crate) struct CreatedRun {
    pub(crate) lease: Lease,
    pub(crate) run: Run,
    pub(crate) control: Arc<Control>,
    pub(crate) version: u64,
    pub(crate) pinned: Arc<Pinned>,
    /// Contains every stored event.
    pub(crate) history: Option<History>,
    /// The run's first events are already published.
    pub(crate) feed: Arc<RunFeed>,
}

/// Why a worker leaves its run.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Another worker holds the run, or it has ended.
    Gone,
    StoreFailed(StoreFailure),
    /// A bug in Holdpoint. The run stays as it is until someone interrupts it, and this process does not release it.
    Broken(String),
}

impl From<StoreError> for Stop {
    fn from(refused: StoreError) -> Self {
        match refused {
            StoreError::Fenced | StoreError::NotFound => Self::Gone,
            StoreError::Failed(trouble) => Self::StoreFailed(trouble),
            StoreError::Behind | StoreError::Stale | StoreError::Busy(_) => Self::Broken(refused.to_string()),
            StoreError::Impossible(why) => Self::Broken(why),
        }
    }
}

pub(crate) struct Worker {
    node: Arc<Node>,
    lease: Lease,
    pinned: Arc<Pinned>,
    feed: HeldFeed,
    /// The worker's own copy. Within a pass it runs ahead of the store; if the store refuses, it is loaded again.
    run: Run,
    committed: Arc<Control>,
    /// Every item that was accepted up to `version` and is not processed.
    inbox: Vec<(Ticket, Item)>,
    version: u64,
    holds_thread: bool,
    begins_after: Option<MessageId>,
    doubt_at: Timestamp,
    /// Everything that was accepted before the takeover has been processed.
    drained: bool,
    /// Its first events are stored, and no input has been applied since.
    is_just_created: bool,
    /// The last pass would have overtaken an accepted answer: the next one processes the inbox first.
    inbox_first: bool,
    /// There is no slot for this run to execute in.
    without_slot: bool,
    /// Task results that are not stored yet.
    unstored: Vec<TaskResult>,
    submissions: Vec<DirectSubmission>,
    uncertain_commit: Option<UncertainCommit>,
    after_tools: Vec<AfterToolAnswer>,
    tasks: Vec<RunningTask>,
    last_task: u64,
    results_in: mpsc::Sender<FinishedTask>,
    results: mpsc::Receiver<FinishedTask>,
    /// Phases before the model call of this step and attempt whose hooks returned nothing.
    silent_phases: (u32, u32, Vec<Phase>),
    history: Option<History>,
    /// Arguments of open calls, by the sequence number of the event that contains them.
    arguments: BTreeMap<u64, Arguments>,
    state: Option<Arc<[StateRow]>>,
    plugin_lock: PluginLock,
    /// Locks held for plugins whose answers are not stored yet.
    plugin_guards: Vec<PluginLockGuard>,
    /// The digest of each call's tool definition as the gate saw it.
    gated: BTreeMap<CallId, Digest>,
    metrics: RunMetrics,
}

/// Capacity of the results channel: every task sends one result.
const RESULTS_MAX: usize = 256;

pub(crate) async fn work(mut ctx: WorkerContext, source: RunSource, mut slot: Slot) {
    let node = ctx.node.clone();
    let stop = match claim_run(&mut ctx, &mut slot, source).await {
        Ok(Some(worker)) => worker.work(&mut ctx, &mut slot).await,
        Ok(None) => Stop::Gone,
        Err(refused) => refused.into(),
    };
    let exit = match stop {
        Stop::Gone => WorkerExit::Done,
        Stop::StoreFailed(trouble) => {
            tracing::error!(run = %ctx.run, %trouble, "the run cannot be loaded");
            WorkerExit::NotLoaded
        }
        Stop::Broken(why) => {
            tracing::error!(run = %ctx.run, why, "the run cannot be claimed");
            WorkerExit::NotLoaded
        }
    };
    node.finish_worker(&mut ctx, slot, exit);
}

impl Worker {
    fn new(node: &Arc<Node>, claim: LoadedClaim, pinned: Arc<Pinned>) -> Self {
        let feed = node.feeds.for_run(&claim.lease.run);
        Self::with_feed(node, claim, pinned, feed)
    }

    fn with_feed(node: &Arc<Node>, claim: LoadedClaim, pinned: Arc<Pinned>, feed: Arc<RunFeed>) -> Self {
        let LoadedClaim { lease, loaded, doubt_at } = claim;
        let Loaded { control, inbox, version, holds_thread, begins_after } = loaded;
        let committed = Arc::new(control.clone());
        // Another worker may have continued the run since the transcript was cached.
        let cached = node.transcript_cache.take(&lease.tenant, &lease.run);
        let history = cached.filter(|history| history.seq() == control.seq);
        let drained = node.unstarted.take(&lease, control.seq);
        let (results_in, results) = mpsc::channel(RESULTS_MAX);
        Self {
            feed: HeldFeed::new(feed, node.store.is_shared()),
            node: node.clone(),
            lease,
            run: Run::new(pinned.revision.clone(), control),
            pinned,
            committed,
            inbox,
            version,
            holds_thread,
            begins_after,
            doubt_at,
            drained,
            is_just_created: false,
            inbox_first: false,
            without_slot: false,
            unstored: Vec::new(),
            submissions: Vec::new(),
            uncertain_commit: None,
            after_tools: Vec::new(),
            tasks: Vec::new(),
            last_task: 0,
            results_in,
            results,
            silent_phases: (0, 0, Vec::new()),
            history,
            arguments: BTreeMap::new(),
            state: None,
            plugin_lock: PluginLock::new(),
            plugin_guards: Vec::new(),
            gated: BTreeMap::new(),
            metrics: RunMetrics::default(),
        }
    }

    /// No takeover is needed: no worker has held the run before.
    fn for_created(node: &Arc<Node>, created: CreatedRun) -> Self {
        let CreatedRun { lease, run, control, version, pinned, history, feed } = created;
        let loaded = Loaded {
            control: run.control,
            inbox: Vec::new(),
            version,
            holds_thread: true,
            begins_after: None,
        };
        let doubt_at = Timestamp::ZERO;
        let mut worker = Self::with_feed(node, LoadedClaim { lease, loaded, doubt_at }, pinned, feed);
        worker.metrics = RunMetrics::for_created(&control);
        worker.committed = control;
        (worker.drained, worker.is_just_created) = (true, true);
        worker.history = history;
        worker
    }

    async fn work(mut self, ctx: &mut WorkerContext, slot: &mut Slot) -> Stop {
        match self.run_loop(ctx, slot).await {
            Stop::Broken(why) => self.run_halted(ctx, slot, &why).await,
            stop @ (Stop::Gone | Stop::StoreFailed(_)) => stop,
        }
    }

    async fn run_loop(&mut self, ctx: &mut WorkerContext, slot: &mut Slot) -> Stop {
        let mut created = mem::take(&mut self.is_just_created);
        loop {
            self.without_slot = slot.is_spare;
            self.read_mailbox(ctx);
            if ctx.claimed.is_some() {
                return Stop::Gone;
            }
            let was_queued = self.committed.status == RunStatus::Queued;
            let passed = if created { Ok(()) } else { self.pass(ctx).await };
            created = false;
            let settled = match passed {
                Ok(()) if self.run.control.ended().is_some() => {
                    self.stop_all();
                    if !was_queued {
                        self.ask_run_end_hooks();
                    }
                    Err(Stop::Gone)
                }
                Ok(()) if slot.is_spare => Ok(()),
                Ok(()) => self.reconcile().await,
                Err(stop) => Err(stop),
            };
            let parked = match settled {
                Ok(()) if slot.is_spare => self.yield_slot(ctx, slot).await,
                Ok(()) => self.release_if_idle(ctx).await,
                Err(stop) => Err(stop),
            };
            match parked {
                Ok(true) => return Stop::Gone,
                Ok(false) => self.wait(ctx).await,
                Err(Stop::StoreFailed(trouble)) => {
                    if let Err(stop) = self.wait_for_store(ctx, slot, &trouble).await {
                        return stop;
                    }
                }
                Err(stop) => return stop,
            }
        }
    }

    /// Releases a run that has nothing to do, so that it leaves memory. False while there is something to do.
    async fn release_if_idle(&mut self, ctx: &mut WorkerContext) -> Result<bool, Stop> {
        self.read_mailbox(ctx);
        let resting = match &self.run.control.status {
            RunStatus::Waiting(_) => true,
            RunStatus::Queued => !self.holds_thread,
            RunStatus::Running | RunStatus::Interrupting | RunStatus::Done(_) => false,
        };
        let now = self.node.clock.now();
        let deadline = self.run.next_deadline().map(|deadline| deadline.at);
        let busy = !self.tasks.is_empty() || !self.unstored.is_empty() || !self.submissions.is_empty();
        if !resting || busy || deadline.is_some_and(|at| at <= now) {
            return Ok(false);
        }
        if self.node.store.release(&self.lease).await? {
            if let Some(at) = deadline {
                self.node.wake_dispatcher_by(at);
            }
            if let Some(history) = self.history.take() {
                self.node.transcript_cache.put(&self.lease.tenant, &self.lease.run, history);
            }
            return Ok(true);
        }
        self.read_inbox().await?;
        // The inbox may hold items that have to stay there; then the run stays held too.
        Ok(false)
    }

    /// Waits until a task finishes, a message arrives, the inbox is signalled, or the deadline is reached.
    async fn wait(&mut self, ctx: &mut WorkerContext) {
        if self.has_pending_input() {
            return;
        }
        let deadline = self.run.next_deadline().map(|deadline| deadline.at);
        let clock = self.node.clock.clone();
        let due = async move {
            match deadline {
                Some(at) => clock.sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(finished) = self.results.recv() => self.receive_result(finished),
            Some(message) = ctx.mailbox.recv() => self.receive_message(ctx, message),
            () = ctx.inbox_signal.notified() => {}
            () = due => {}
        }
        // Results that are ready at the same moment share the commit; the worker does not wait for others.
        tokio::task::yield_now().await;
        while let Ok(finished) = self.results.try_recv() {
            self.receive_result(finished);
        }
    }

    fn read_mailbox(&mut self, ctx: &mut WorkerContext) {
        while let Ok(message) = ctx.mailbox.try_recv() {
            self.receive_message(ctx, message);
        }
    }

    /// Whether there is input to process now, so that the worker must not wait: inbox rows that can be processed at
    /// this moment, submissions, and results that are not stored.
    fn has_pending_input(&self) -> bool {
        let items: Vec<Item> = self.inbox.iter().map(|(_, item)| item.clone()).collect();
        !self.unstored.is_empty()
            || !self.submissions.is_empty()
            || !machine::inbox::drain(&self.run.control, &items, self.inbox_first).is_empty()
    }

    fn receive_result(&mut self, finished: FinishedTask) {
        let Some(task) = self.tasks.iter_mut().find(|task| task.number == finished.task) else { return };
        task.finished = true;
        let TaskOutput { body, guard } = finished.output;
        self.plugin_guards.extend(guard);
        // The task asks its phases in order and stops at the first one whose hooks return something.
        if let TaskResult::Input(input) = &body
            && let Input::PhaseAnswered { phase: answered, .. } = &**input
            && let Effect::CallModel { ask_first, .. } = &task.effect
        {
            self.silent_phases.2.extend(ask_first.iter().copied().take_while(|phase| phase != answered));
        }
        match body {
            TaskResult::AfterTool { call, status, hooks } => {
                self.after_tools.push(AfterToolAnswer { call, status, hooks, fresh: true });
            }
            body @ (TaskResult::Input(_) | TaskResult::Gate { .. }) => self.unstored.push(body),
        }
    }

    fn receive_message(&mut self, ctx: &mut WorkerContext, message: WorkerMessage) {
        match message {
            WorkerMessage::Submit(submission) => self.submissions.push(*submission),
            WorkerMessage::Claimed(claimed) => ctx.claimed = Some(claimed),
        }
    }

    async fn read_inbox(&mut self) -> Result<(), Stop> {
        let loaded = self.node.store.load(&self.lease).await?;
        if loaded.control.seq != self.committed.seq {
            self.adopt(loaded);
            return Ok(());
        }
        self.set_inbox(loaded.inbox, loaded.version);
        self.holds_thread = loaded.holds_thread;
        self.begins_after = loaded.begins_after;
        Ok(())
    }

    /// Discards the copy and loads what is stored.
    async fn reload(&mut self) -> Result<(), Stop> {
        match self.node.store.load(&self.lease).await {
            Ok(loaded) => self.adopt(loaded),
            Err(refused) => {
                // The run may have ended in a commit whose confirmation was lost.
                self.feed.invalidate();
                self.node.schedule_dispatch();
                self.node.approvals.changed(&self.lease.tenant, &self.lease.run);
                return Err(refused.into());
            }
        }
        Ok(())
    }

    fn adopt(&mut self, loaded: Loaded) {
        if loaded.control.seq != self.committed.seq {
            // A commit whose confirmation was lost is stored after all, and may have ended the run or woken others.
            self.feed.invalidate();
            self.node.schedule_dispatch();
            self.node.approvals.changed(&self.lease.tenant, &self.lease.run);
            self.history = None;
            self.state = None;
        }
        // That commit included the takeover: every attempt since then was started by this worker.
        self.drained |= loaded.control.seq > self.committed.seq;
        self.committed = Arc::new(loaded.control.clone());
        self.run.control = loaded.control;
        self.set_inbox(loaded.inbox, loaded.version);
        self.holds_thread = loaded.holds_thread;
        self.begins_after = loaded.begins_after;
        self.after_tools.iter_mut().for_each(|answer| answer.fresh = true);
    }

    fn set_inbox(&mut self, inbox: Vec<(Ticket, Item)>, version: u64) {
        self.inbox = inbox;
        self.version = version;
    }

    /// Discards the copy and starts again from the last known stored state.
    fn restart_from_committed(&mut self) {
        self.run.control = (*self.committed).clone();
        self.after_tools.iter_mut().for_each(|answer| answer.fresh = true);
    }

    /// One event of the run. If the state refers to an event that is missing, the log is corrupt; the run is not gone.
    async fn event(&self, seq: u64) -> Result<Arc<Event>, Stop> {
        match self.node.store.event(&self.lease, seq).await {
            Ok(event) => Ok(event),
            Err(StoreError::NotFound) => {
                Err(Stop::StoreFailed(StoreFailure::Corrupt(format!("event {seq} is not in the log"))))
            }
            Err(refused) => Err(refused.into()),
        }
    }

    fn not_before(&self, at: Timestamp) -> Option<NotBefore> {
        NotBefore::new(at, self.node.clock.now(), self.committed.at)
    }

    fn phases(&self) -> PhaseSet {
        self.pinned.revision.phases
    }
}
