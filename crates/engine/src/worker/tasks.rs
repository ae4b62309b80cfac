//! The tasks of a run: started when their effect is wanted, stopped when it no longer is.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::mem;
use std::task::Poll;
use std::time::Duration;

use machine::phase::Phase;
use machine::{Control, Effect};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::call_hooks::{asks_about_call, in_order};
use super::{FinishedTask, Stop, TaskOutput, TaskResult, Worker};
use crate::node::Node;
use crate::plugin::Subject;

/// Capacity of the results channel: every task sends one result.
const RESULTS_MAX: usize = 256;
/// How often the same effect may finish without consequence before the run is stopped.
const ROUNDS_MAX: u32 = 16;

/// The tasks that a worker has started.
pub(super) struct Tasks {
    started: Vec<StartedTask>,
    last_number: u64,
    results_in: mpsc::Sender<FinishedTask>,
    results: mpsc::Receiver<FinishedTask>,
    /// Counts all tasks of this engine.
    tracker: TaskTracker,
    cancel_grace: Duration,
}

/// Dropping it aborts the task: when a worker is gone, so are the tasks it started.
struct StartedTask {
    number: u64,
    effect: Effect,
    state: TaskState,
    /// How many times in a row the same effect was started again.
    round: u32,
    cancelled: CancellationToken,
    /// For an attempt that waits before it is sent: while this is true it keeps waiting.
    held_back: Option<watch::Sender<bool>>,
}

enum TaskState {
    /// The worker polls it for the first time.
    FirstPoll,
    Spawned(AbortHandle),
    /// It has returned a result, which may not be stored yet.
    Finished,
}

impl Drop for StartedTask {
    fn drop(&mut self) {
        self.cancelled.cancel();
        if let TaskState::Spawned(task) = &self.state {
            task.abort();
        }
    }
}

impl StartedTask {
    fn hold_back(&self, held: bool) {
        if let Some(held_back) = &self.held_back {
            held_back.send_replace(held);
        }
    }

    const fn is_finished(&self) -> bool {
        match self.state {
            TaskState::Finished => true,
            TaskState::FirstPoll | TaskState::Spawned(_) => false,
        }
    }

    const fn waits_to_be_sent(&self) -> bool {
        self.held_back.is_some() && !self.is_finished()
    }
}

impl Tasks {
    pub(super) fn new(node: &Node) -> Self {
        let (results_in, results) = mpsc::channel(RESULTS_MAX);
        Self {
            started: Vec::new(),
            last_number: 0,
            results_in,
            results,
            tracker: node.tasks.clone(),
            cancel_grace: node.settings.cancel_grace,
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.started.is_empty()
    }

    pub(super) fn has_unfinished(&self) -> bool {
        self.started.iter().any(|task| !task.is_finished())
    }

    /// Whether plugins are being asked about a call. They are asked about the next one after that answer is stored.
    fn is_asking_about_call(&self) -> bool {
        self.started.iter().any(|task| !task.is_finished() && asks_about_call(&task.effect))
    }

    fn serves(&self, effect: &Effect) -> bool {
        self.started.iter().any(|task| task.effect.same_task(effect))
    }

    pub(super) async fn next_result(&mut self) -> Option<FinishedTask> {
        self.results.recv().await
    }

    pub(super) fn ready_result(&mut self) -> Option<FinishedTask> {
        self.results.try_recv().ok()
    }

    /// The effect of the task that has finished. None if the task was stopped meanwhile.
    pub(super) fn finish(&mut self, number: u64) -> Option<&Effect> {
        let task = self.started.iter_mut().find(|task| task.number == number)?;
        task.state = TaskState::Finished;
        Some(&task.effect)
    }

    /// Before a commit: an attempt that waits for its time and is no longer wanted must not be sent while the commit
    /// that cancels it is in flight. If the commit fails, [`Tasks::keep_wanted`] lets the attempt continue.
    pub(super) fn hold_back_unwanted(&self, wanted: impl FnOnce() -> BTreeSet<Effect>) {
        if !self.started.iter().any(StartedTask::waits_to_be_sent) {
            return;
        }
        let wanted = wanted();
        for task in self.started.iter().filter(|task| task.waits_to_be_sent()) {
            if !wanted.iter().any(|effect| effect.same_task(&task.effect)) {
                task.hold_back(true);
            }
        }
    }

    /// Stops tasks that are no longer wanted. Returns the effects that are wanted although their task has finished, and
    /// how many times in a row that has happened.
    fn keep_wanted(&mut self, wanted: &BTreeSet<Effect>) -> Vec<(Effect, u32)> {
        let mut again = Vec::new();
        for mut task in mem::take(&mut self.started) {
            let still = wanted.iter().find(|effect| effect.same_task(&task.effect));
            match still {
                Some(effect) if !task.is_finished() => {
                    task.hold_back(false);
                    task.effect = effect.clone();
                    self.started.push(task);
                }
                // Its answer is kept and applied again together with others.
                Some(Effect::RunAfterToolHooks { .. }) => self.started.push(task),
                // It is wanted again, or its result had no consequence.
                Some(effect) if *effect == task.effect => again.push((effect.clone(), task.round + 1)),
                Some(_) => {}
                None => self.stop(task),
            }
        }
        again
    }

    /// Runs it as its own task, so that work that blocks its thread does not block the worker.
    pub(super) fn spawn<F: Future<Output: Into<TaskOutput>> + Send + 'static>(
        &mut self,
        effect: Effect,
        work: impl FnOnce(CancellationToken) -> F,
    ) {
        self.spawn_held_back(effect, None, work);
    }

    /// The same for an attempt that waits before it is sent, for as long as `held_back` is true.
    pub(super) fn spawn_held_back<F: Future<Output: Into<TaskOutput>> + Send + 'static>(
        &mut self,
        effect: Effect,
        held_back: Option<watch::Sender<bool>>,
        work: impl FnOnce(CancellationToken) -> F,
    ) {
        let cancelled = CancellationToken::new();
        let work = work(cancelled.clone());
        let number = self.register(effect, cancelled, held_back);
        self.spawn_numbered(number, work);
    }

    /// The same for work that may finish at once: it is polled first, which avoids a task and a wake-up.
    pub(super) async fn poll_then_spawn<F: Future<Output: Into<TaskOutput>> + Send + 'static>(
        &mut self,
        effect: Effect,
        work: F,
    ) -> Option<FinishedTask> {
        let number = self.register(effect, CancellationToken::new(), None);
        let mut work = Box::pin(work);
        let first = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
        match first {
            Poll::Ready(output) => Some(FinishedTask { task: number, output: output.into() }),
            Poll::Pending => {
                self.spawn_numbered(number, work);
                None
            }
        }
    }

    fn register(
        &mut self,
        effect: Effect,
        cancelled: CancellationToken,
        held_back: Option<watch::Sender<bool>>,
    ) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        let state = TaskState::FirstPoll;
        self.started.push(StartedTask { number, effect, state, round: 0, cancelled, held_back });
        number
    }

    fn spawn_numbered<F: Future<Output: Into<TaskOutput>> + Send + 'static>(&mut self, number: u64, work: F) {
        let results = self.results_in.clone();
        let task = self.tracker.spawn(async move {
            let output = work.await.into();
            // The send fails if the worker is gone.
            let _ = results.send(FinishedTask { task: number, output }).await;
        });
        if let Some(begun) = self.started.last_mut() {
            begun.state = TaskState::Spawned(task.abort_handle());
        }
    }

    pub(super) fn stop_all(&mut self) {
        for task in mem::take(&mut self.started) {
            self.stop(task);
        }
    }

    /// A tool is cancelled and gets a grace period to clean up; everything else is just dropped.
    fn stop(&self, task: StartedTask) {
        if !matches!(task.effect, Effect::RunTool { .. }) || task.is_finished() {
            return;
        }
        // An attempt that has not been sent yet must not be sent any more.
        task.hold_back(true);
        task.cancelled.cancel();
        let grace = self.cancel_grace;
        self.tracker.spawn(async move {
            tokio::time::sleep(grace).await;
            drop(task);
        });
    }
}

impl Worker {
    /// After a commit: stops tasks that are no longer wanted, and starts those that are wanted and not running.
    pub(super) async fn reconcile(&mut self) -> Result<(), Stop> {
        let wanted = self.run.wanted();
        self.plugins.drop_unwanted_after_tools(&wanted);
        let again = self.tasks.keep_wanted(&wanted);
        for effect in in_order(self.run.control(), wanted) {
            if self.tasks.serves(&effect) {
                continue;
            }
            // It gets its turn after the answer that is being asked for now is committed.
            if asks_about_call(&effect) && self.tasks.is_asking_about_call() {
                continue;
            }
            let round = again.iter().find(|(known, _)| *known == effect).map_or(0, |(_, round)| *round);
            if round > ROUNDS_MAX {
                return Err(Stop::Broken(format!("{effect:?} comes back and nothing follows from it")));
            }
            self.begin(effect).await?;
            if let Some(begun) = self.tasks.started.last_mut() {
                begun.round = round;
            }
        }
        Ok(())
    }

    async fn begin(&mut self, effect: Effect) -> Result<(), Stop> {
        match &effect {
            Effect::RunPhase(phase) => {
                let (phase, hooks) = (*phase, self.hooks().await?);
                let subject = phase_subject(phase, self.run.control());
                self.tasks.spawn(effect, move |_| async move {
                    let (hooks, guard) = hooks.ask(subject).await;
                    let said = machine::Input::PhaseAnswered { phase, hooks };
                    TaskOutput { body: TaskResult::Input(Box::new(said)), guard: Some(guard) }
                });
            }
            Effect::CallModel { .. } => self.begin_model_call(effect).await?,
            Effect::Gate(call) => {
                let (call, hooks) = (call.clone(), self.hooks().await?);
                let subject = self.gate_subject(&call).await?;
                self.tasks.spawn(effect, move |_| async move {
                    let (hooks, guard) = hooks.ask(subject).await;
                    TaskOutput { body: TaskResult::Gate { call, hooks }, guard: Some(guard) }
                });
            }
            Effect::RunTool { .. } => self.begin_attempt(effect).await?,
            Effect::RunAfterToolHooks { call, status } => {
                let (call, status, hooks) = (call.clone(), *status, self.hooks().await?);
                let subject = self.result_subject(&call).await?;
                self.tasks.spawn(effect, move |_| async move {
                    let (hooks, guard) = hooks.ask(subject).await;
                    TaskOutput { body: TaskResult::AfterTool { call, status, hooks }, guard: Some(guard) }
                });
            }
        }
        Ok(())
    }
}

/// The subject of a phase that the machine wants by itself.
fn phase_subject(phase: Phase, control: &Control) -> Subject {
    match phase {
        Phase::RunStart => Subject::RunStart,
        Phase::RunEnd => {
            let termination = if let machine::control::Stage::Ending(how) = &control.stage {
                Some(how.clone())
            } else {
                None
            };
            Subject::RunEnd { termination }
        }
        Phase::StepStart => Subject::StepStart,
        // The other phases are asked together with what they are about, never by themselves.
        Phase::StepEnd
        | Phase::BeforeInference
        | Phase::AfterInference
        | Phase::BeforeToolExecute
        | Phase::AfterToolExecute => Subject::StepEnd,
    }
}
