//! The tasks of a run: started when their effect is wanted, stopped when it no longer is.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use machine::phase::Phase;
use machine::{Control, Effect};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::call_hooks::{asks_about_call, in_order};
use super::hooks::{Hooks, Subscriber};
use super::plugin_lock::PluginLock;
use super::{FinishedTask, Stop, TaskOutput, TaskResult, Worker};
use crate::plugin::Subject;

/// A running task. Dropping it aborts it: when a worker is gone, so are the tasks it started.
pub(crate) struct RunningTask {
    pub(crate) number: u64,
    pub(crate) effect: Effect,
    /// The task has returned a result, which may not be stored yet.
    pub(crate) finished: bool,
    /// How many times in a row the same effect was started again.
    round: u32,
    cancelled: CancellationToken,
    /// None if it finished on its first poll.
    task: Option<AbortHandle>,
    /// For an attempt that waits before it is sent: while this is true it keeps waiting.
    pub(super) held_back: Option<watch::Sender<bool>>,
}

/// How often the same effect may finish without consequence before the run is stopped.
const ROUNDS_MAX: u32 = 16;

impl Drop for RunningTask {
    fn drop(&mut self) {
        self.cancelled.cancel();
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl RunningTask {
    fn hold_back(&self, held: bool) {
        if let Some(held_back) = &self.held_back {
            held_back.send_replace(held);
        }
    }
}

impl Worker {
    /// Before a commit: an attempt that waits for its time and is no longer wanted must not be sent while the commit
    /// that cancels it is in flight. If the commit fails, [`Worker::reconcile`] lets the attempt continue.
    pub(super) fn hold_back_unwanted(&self) {
        let waits = |task: &&RunningTask| task.held_back.is_some() && !task.finished;
        if !self.tasks.iter().any(|task| waits(&task)) {
            return;
        }
        let wanted = self.run.wanted();
        let unwanted = |task: &&RunningTask| !wanted.iter().any(|effect| effect.same_task(&task.effect));
        self.tasks.iter().filter(waits).filter(unwanted).for_each(|task| task.hold_back(true));
    }

    /// After a commit: stops tasks that are no longer wanted, and starts those that are wanted and not running.
    pub(super) async fn reconcile(&mut self) -> Result<(), Stop> {
        let wanted = self.run.wanted();
        self.after_tools.retain(|heard| {
            wanted.contains(&Effect::RunAfterToolHooks { call: heard.call.clone(), status: heard.status })
        });
        let mut again: Vec<(Effect, u32)> = Vec::new();
        for task in std::mem::take(&mut self.tasks) {
            let still = wanted.iter().find(|effect| effect.same_task(&task.effect));
            match still {
                Some(effect) if !task.finished => {
                    let effect = effect.clone();
                    task.hold_back(false);
                    self.tasks.push(task);
                    if let Some(kept) = self.tasks.last_mut() {
                        kept.effect = effect;
                    }
                }
                // Its answer is kept and applied again together with others.
                Some(Effect::RunAfterToolHooks { .. }) => self.tasks.push(task),
                // It is wanted again, or its result had no consequence.
                Some(effect) if *effect == task.effect => again.push((effect.clone(), task.round + 1)),
                Some(_) => {}
                None => self.stop(task),
            }
        }
        for effect in in_order(&self.run.control, wanted) {
            if self.tasks.iter().any(|task| task.effect.same_task(&effect)) {
                continue;
            }
            // It gets its turn after the answer that is being asked for now is committed.
            if asks_about_call(&effect) && self.is_asking_about_call() {
                continue;
            }
            let round = again.iter().find(|(known, _)| *known == effect).map_or(0, |(_, round)| *round);
            if round > ROUNDS_MAX {
                return Err(Stop::Broken(format!("{effect:?} comes back and nothing follows from it")));
            }
            self.begin(effect).await?;
            if let Some(begun) = self.tasks.last_mut() {
                begun.round = round;
            }
        }
        Ok(())
    }

    async fn begin(&mut self, effect: Effect) -> Result<(), Stop> {
        match &effect {
            Effect::RunPhase(phase) => {
                let (phase, hooks) = (*phase, self.hooks().await?);
                let subject = phase_subject(phase, &self.run.control);
                self.spawn(effect, move |_| async move {
                    let (hooks, guard) = hooks.ask(subject).await;
                    let said = machine::Input::PhaseAnswered { phase, hooks };
                    TaskOutput { body: TaskResult::Input(Box::new(said)), guard: Some(guard) }
                });
            }
            Effect::CallModel { .. } => self.begin_model_call(effect).await?,
            Effect::Gate(call) => {
                let (call, hooks) = (call.clone(), self.hooks().await?);
                let subject = self.gate_subject(&call).await?;
                self.spawn(effect, move |_| async move {
                    let (hooks, guard) = hooks.ask(subject).await;
                    TaskOutput { body: TaskResult::Gate { call, hooks }, guard: Some(guard) }
                });
            }
            Effect::RunTool { .. } => self.begin_attempt(effect).await?,
            Effect::RunAfterToolHooks { call, status } => {
                let (call, status, hooks) = (call.clone(), *status, self.hooks().await?);
                let subject = self.result_subject(&call).await?;
                self.spawn(effect, move |_| async move {
                    let (hooks, guard) = hooks.ask(subject).await;
                    TaskOutput { body: TaskResult::AfterTool { call, status, hooks }, guard: Some(guard) }
                });
            }
        }
        Ok(())
    }

    /// Runs it as its own task, so that work that blocks its thread does not block the worker.
    pub(super) fn spawn<F: Future<Output: Into<TaskOutput>> + Send + 'static>(
        &mut self,
        effect: Effect,
        work: impl FnOnce(CancellationToken) -> F,
    ) {
        let cancelled = CancellationToken::new();
        let work = work(cancelled.clone());
        let number = self.register_task(effect, cancelled);
        self.spawn_numbered(number, work);
    }

    /// The same for work that may finish at once: it is polled first, which avoids a task and a wake-up.
    pub(super) async fn poll_then_spawn<F: Future<Output: Into<TaskOutput>> + Send + 'static>(
        &mut self,
        effect: Effect,
        work: F,
    ) {
        let number = self.register_task(effect, CancellationToken::new());
        let mut work = Box::pin(work);
        let first = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
        match first {
            Poll::Ready(output) => self.receive_result(FinishedTask { task: number, output: output.into() }),
            Poll::Pending => self.spawn_numbered(number, work),
        }
    }

    fn register_task(&mut self, effect: Effect, cancelled: CancellationToken) -> u64 {
        self.last_task += 1;
        let number = self.last_task;
        self.tasks.push(RunningTask {
            number,
            effect,
            finished: false,
            round: 0,
            cancelled,
            task: None,
            held_back: None,
        });
        number
    }

    fn spawn_numbered<F: Future<Output: Into<TaskOutput>> + Send + 'static>(&mut self, number: u64, work: F) {
        let results = self.results_in.clone();
        let task = self.node.tasks.spawn(async move {
            let output = work.await.into();
            // The send fails if the worker is gone.
            let _ = results.send(FinishedTask { task: number, output }).await;
        });
        if let Some(begun) = self.tasks.last_mut() {
            begun.task = Some(task.abort_handle());
        }
    }

    pub(super) fn stop_all(&mut self) {
        for task in std::mem::take(&mut self.tasks) {
            self.stop(task);
        }
    }

    /// A tool is cancelled and gets a grace period to clean up; everything else is just dropped.
    fn stop(&self, task: RunningTask) {
        if !matches!(task.effect, Effect::RunTool { .. }) || task.finished {
            return;
        }
        // An attempt that has not been sent yet must not be sent any more.
        task.hold_back(true);
        task.cancelled.cancel();
        let grace = self.node.settings.cancel_grace;
        self.node.tasks.spawn(async move {
            tokio::time::sleep(grace).await;
            drop(task);
        });
    }

    /// After a commit: the plugins' answers are stored, so the next plugins may be asked with the new state.
    pub(super) async fn release_plugin_lock(&mut self) -> Result<(), Stop> {
        if !self.plugin_guards.is_empty() && self.run.control.ended().is_none() {
            self.read_state().await?;
            self.plugin_guards.clear();
        }
        Ok(())
    }

    async fn read_state(&mut self) -> Result<(), Stop> {
        // Most agents have no plugin: skip the read then.
        if self.state.is_none() && !self.pinned.plugins.is_empty() {
            let state = self.node.store.plugin_state(&self.lease).await?;
            self.set_plugin_state(state.into());
        }
        Ok(())
    }

    pub(super) fn set_plugin_state(&mut self, state: Arc<[machine::projection_rows::StateRow]>) {
        self.plugin_lock.set_state(&state);
        self.state = Some(state);
    }

    /// What is needed to ask the plugins of this run.
    pub(super) async fn hooks(&mut self) -> Result<Hooks, Stop> {
        self.read_state().await?;
        Ok(self.hooks_with_lock(self.plugin_lock.clone()))
    }

    pub(super) fn hooks_with_lock(&self, plugin_lock: PluginLock) -> Hooks {
        let agents = self.node.agents();
        let live = agents.by_name.get(&self.pinned.agent);
        let plugins = self
            .pinned
            .plugins
            .iter()
            .map(|(name, phases)| {
                let plugin =
                    live.and_then(|agent| agent.plugins.iter().find(|plugin| plugin.name() == name).cloned());
                Subscriber { name: name.clone(), phases: *phases, plugin }
            })
            .collect();
        let control = &self.run.control;
        Hooks {
            plugins,
            tenant: self.lease.tenant.clone(),
            thread: self.lease.thread.clone(),
            run: self.lease.run.clone(),
            agent: self.pinned.agent.clone(),
            step: control.step,
            usage: control.usage,
            plugin_lock,
            timeout: self.node.settings.hook_timeout,
        }
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
