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
mod known_calls;
mod model_task;
mod panics;
mod pass;
mod plugin_lock;
mod plugin_turn;
mod run_copy;
mod run_end;
mod run_metrics;
mod takeover;
mod task_result;
mod tasks;
mod tool_task;
mod yield_slot;

use std::sync::Arc;

use machine::event::Event;
use machine::id::RunId;
use machine::phase::PhaseSet;
use machine::status::RunStatus;
use machine::{Effect, Input, Timestamp};
use tokio::sync::mpsc;

pub(crate) use batch::{Batch, committed};
pub(crate) use run_copy::RunCopy;

use crate::agent::Pinned;
use crate::clock::NotBefore;
use crate::feed::RunFeed;
use crate::held_feed::HeldFeed;
use crate::live::LiveOutput;
use crate::node::{DirectSubmission, InboxSignal, Node, Slot, WorkerExit, WorkerMessage};
use crate::store::{Claimed, Lease, Loaded, StoreError, StoreFailure, Tenant};
use claim::{LoadedClaim, claim_run};
use known_calls::KnownCalls;
use pass::UncertainCommit;
use plugin_turn::PluginTurn;
use takeover::Takeover;
use task_result::{FinishedTask, TaskOutput, TaskResult};
use tasks::Tasks;

/// What a worker works on and how it is reached.
pub(crate) struct WorkerContext {
    pub(crate) node: Arc<Node>,
    pub(crate) tenant: Tenant,
    pub(crate) run: RunId,
    /// Distinguishes this worker from an earlier one on the same run.
    pub(crate) number: u64,
    pub(crate) mailbox: mpsc::Receiver<WorkerMessage>,
    pub(crate) inbox_signal: Arc<InboxSignal>,
    pub(crate) slot: Slot,
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
    pub(crate) run: RunCopy,
    pub(crate) pinned: Arc<Pinned>,
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
    run: RunCopy,
    takeover: Takeover,
    /// The last pass would have overtaken an accepted answer: the next one processes the inbox first.
    inbox_first: bool,
    /// Task results that are not stored yet.
    unstored: Vec<TaskResult>,
    submissions: Vec<DirectSubmission>,
    uncertain_commit: Option<UncertainCommit>,
    tasks: Tasks,
    plugins: PluginTurn,
    calls: KnownCalls,
}

pub(crate) async fn work(mut ctx: WorkerContext, source: RunSource) {
    let node = ctx.node.clone();
    let stop = match claim_run(&mut ctx, source).await {
        Ok(Some(worker)) => worker.work(&mut ctx).await,
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
    node.finish_worker(ctx, exit);
}

impl Worker {
    fn for_claimed(node: &Arc<Node>, claim: LoadedClaim, pinned: Arc<Pinned>) -> Self {
        let LoadedClaim { lease, loaded, doubt_at } = claim;
        let feed = node.feeds.for_run(&lease.run);
        // Another worker may have continued the run since the transcript was cached.
        let cached = node.transcript_cache.take(&lease.tenant, &lease.run);
        let history = cached.filter(|history| history.seq() == loaded.control.seq);
        let takeover = if node.unstarted.take(&lease, loaded.control.seq) {
            Takeover::not_needed(doubt_at)
        } else {
            Takeover::pending(doubt_at)
        };
        let run = RunCopy::loaded(pinned.revision.clone(), loaded, history);
        Self::new(node, lease, pinned, feed, run, takeover)
    }

    /// No takeover is needed: no worker has held the run before.
    fn for_created(node: &Arc<Node>, created: CreatedRun) -> Self {
        let CreatedRun { lease, run, pinned, feed } = created;
        Self::new(node, lease, pinned, feed, run, Takeover::not_needed(Timestamp::ZERO))
    }

    fn new(
        node: &Arc<Node>,
        lease: Lease,
        pinned: Arc<Pinned>,
        feed: Arc<RunFeed>,
        run: RunCopy,
        takeover: Takeover,
    ) -> Self {
        Self {
            feed: HeldFeed::new(feed, node.store.is_shared()),
            node: node.clone(),
            lease,
            pinned,
            run,
            takeover,
            inbox_first: false,
            unstored: Vec::new(),
            submissions: Vec::new(),
            uncertain_commit: None,
            tasks: Tasks::new(node),
            plugins: PluginTurn::new(),
            calls: KnownCalls::default(),
        }
    }

    async fn work(mut self, ctx: &mut WorkerContext) -> Stop {
        match self.run_loop(ctx).await {
            Stop::Broken(why) => self.run_halted(ctx, &why).await,
            stop @ (Stop::Gone | Stop::StoreFailed(_)) => stop,
        }
    }

    async fn run_loop(&mut self, ctx: &mut WorkerContext) -> Stop {
        loop {
            self.read_mailbox(ctx);
            if ctx.claimed.is_some() {
                return Stop::Gone;
            }
            let was_queued = self.run.committed.status == RunStatus::Queued;
            let settled = match self.pass(ctx).await {
                Ok(()) if self.run.control().ended().is_some() => {
                    self.tasks.stop_all();
                    if !was_queued {
                        self.ask_run_end_hooks();
                    }
                    Err(Stop::Gone)
                }
                Ok(()) if ctx.slot.is_spare() => Ok(()),
                Ok(()) => self.reconcile().await,
                Err(stop) => Err(stop),
            };
            let parked = match settled {
                Ok(()) if ctx.slot.is_spare() => self.yield_slot(ctx).await,
                Ok(()) => self.release_if_idle(ctx).await,
                Err(stop) => Err(stop),
            };
            match parked {
                Ok(true) => return Stop::Gone,
                Ok(false) => self.wait(ctx).await,
                Err(Stop::StoreFailed(trouble)) => {
                    if let Err(stop) = self.wait_for_store(ctx, &trouble).await {
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
        let resting = match &self.run.control().status {
            RunStatus::Waiting(_) => true,
            RunStatus::Queued => !self.run.holds_thread,
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
            if let Some(history) = self.run.history.take() {
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
            Some(finished) = self.tasks.next_result() => self.receive_result(finished),
            Some(message) = ctx.mailbox.recv() => self.receive_message(ctx, message),
            () = ctx.inbox_signal.notified() => {}
            () = due => {}
        }
        // Results that are ready at the same moment share the commit; the worker does not wait for others.
        tokio::task::yield_now().await;
        while let Some(finished) = self.tasks.ready_result() {
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
        !self.unstored.is_empty()
            || !self.submissions.is_empty()
            || self.run.has_processable_items(self.inbox_first)
    }

    fn receive_result(&mut self, finished: FinishedTask) {
        let Some(effect) = self.tasks.finish(finished.task) else { return };
        let TaskOutput { body, guard } = finished.output;
        self.plugins.hold(guard);
        if let TaskResult::Input(input) = &body
            && let Input::PhaseAnswered { phase: answered, .. } = &**input
            && let Effect::CallModel { ask_first, .. } = effect
        {
            self.plugins.note_silent(ask_first, *answered);
        }
        match body {
            TaskResult::AfterTool { call, status, hooks } => self.plugins.add_after_tool(call, status, hooks),
            body @ (TaskResult::Input(_) | TaskResult::ToolChanged(_) | TaskResult::Gate { .. }) => {
                self.unstored.push(body)
            }
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
        if loaded.control.seq == self.run.committed.seq {
            self.run.adopt_inbox(loaded);
        } else {
            self.adopt(loaded);
        }
        Ok(())
    }

    /// Discards the copy and loads what is stored.
    async fn reload(&mut self) -> Result<(), Stop> {
        match self.node.store.load(&self.lease).await {
            Ok(loaded) => self.adopt(loaded),
            Err(refused) => {
                // The run may have ended in a commit whose confirmation was lost.
                self.announce_unconfirmed_commit();
                return Err(refused.into());
            }
        }
        Ok(())
    }

    fn adopt(&mut self, loaded: Loaded) {
        if loaded.control.seq != self.run.committed.seq {
            // A commit whose confirmation was lost is stored after all, and may have ended the run or woken others.
            self.announce_unconfirmed_commit();
            self.forget_derived();
        }
        if loaded.control.seq > self.run.committed.seq {
            // That commit included the takeover: every attempt since then was started by this worker.
            self.takeover.complete();
        }
        self.run.adopt(loaded);
        self.plugins.apply_after_tools_again();
    }

    fn announce_unconfirmed_commit(&self) {
        self.feed.invalidate();
        self.node.schedule_dispatch();
        self.node.approvals.changed(&self.lease.tenant, &self.lease.run);
    }

    /// What was derived from the log has to be read again.
    fn forget_derived(&mut self) {
        self.run.history = None;
        self.plugins.forget_state();
    }

    /// Discards the copy and starts again from the last known stored state.
    fn restart_from_committed(&mut self) {
        self.run.discard_pass();
        self.plugins.apply_after_tools_again();
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
        NotBefore::new(at, self.node.clock.now(), self.run.committed.at)
    }

    /// Where live updates of a step go.
    fn live_output(&self, step: u32) -> LiveOutput {
        LiveOutput { feed: self.feed.clone(), clock: self.node.clock.clone(), step }
    }

    fn phases(&self) -> PhaseSet {
        self.pinned.revision.phases
    }
}
