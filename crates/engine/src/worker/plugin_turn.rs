//! The plugins of a run: their lock, their state, and the answers that are not stored yet.

use std::collections::BTreeSet;
use std::sync::Arc;

use machine::Effect;
use machine::id::CallId;
use machine::phase::{HookAnswers, Phase};
use machine::projection_rows::StateRow;
use machine::status::CallStatus;

use super::hooks::{Hooks, Subscriber, put};
use super::plugin_lock::{PluginLock, PluginLockGuard};
use super::{Stop, Worker};

pub(super) struct PluginTurn {
    lock: PluginLock,
    /// Locks held for plugins whose answers are not stored yet.
    guards: Vec<PluginLockGuard>,
    /// None until it is read.
    state: Option<Arc<[StateRow]>>,
    silent: SilentPhases,
    after_tools: Vec<AfterToolAnswer>,
}

/// Phases before the model call of this step and attempt whose hooks returned nothing.
#[derive(Default)]
struct SilentPhases {
    step: u32,
    attempt: u32,
    phases: Vec<Phase>,
}

/// Answers of AfterToolExecute hooks that are not recorded yet.
struct AfterToolAnswer {
    call: CallId,
    status: CallStatus,
    hooks: HookAnswers,
    /// It has not been applied since it arrived or since the run was loaded.
    fresh: bool,
}

impl AfterToolAnswer {
    fn is_wanted(&self, wanted: &BTreeSet<Effect>) -> bool {
        wanted.contains(&Effect::RunAfterToolHooks { call: self.call.clone(), status: self.status })
    }
}

impl PluginTurn {
    pub(super) fn new() -> Self {
        Self {
            lock: PluginLock::new(),
            guards: Vec::new(),
            state: None,
            silent: SilentPhases::default(),
            after_tools: Vec::new(),
        }
    }

    pub(super) fn hold(&mut self, guard: Option<PluginLockGuard>) {
        self.guards.extend(guard);
    }

    /// The plugins' answers are stored, so the next plugins may be asked.
    fn release(&mut self) {
        self.guards.clear();
    }

    fn set_state(&mut self, state: Arc<[StateRow]>) {
        self.lock.set_state(&state);
        self.state = Some(state);
    }

    /// A commit has stored these values.
    pub(super) fn store_state(&mut self, changed: Vec<StateRow>) {
        if let Some(known) = &self.state
            && !changed.is_empty()
        {
            let mut rows = known.to_vec();
            changed.into_iter().for_each(|row| put(&mut rows, row));
            self.set_state(rows.into());
        }
    }

    pub(super) fn forget_state(&mut self) {
        self.state = None;
    }

    /// The phases of `ask_first` whose hooks have not yet returned nothing for this attempt.
    pub(super) fn phases_to_ask(&mut self, step: u32, attempt: u32, ask_first: &[Phase]) -> Vec<Phase> {
        if (self.silent.step, self.silent.attempt) != (step, attempt) {
            self.silent = SilentPhases { step, attempt, phases: Vec::new() };
        }
        ask_first.iter().copied().filter(|phase| !self.silent.phases.contains(phase)).collect()
    }

    /// The task asks its phases in order and stops at the first one whose hooks return something.
    pub(super) fn note_silent(&mut self, ask_first: &[Phase], answered: Phase) {
        self.silent.phases.extend(ask_first.iter().copied().take_while(|phase| *phase != answered));
    }

    pub(super) fn add_after_tool(&mut self, call: CallId, status: CallStatus, hooks: HookAnswers) {
        self.after_tools.push(AfterToolAnswer { call, status, hooks, fresh: true });
    }

    /// All AfterTool answers that are still wanted, if one of them is fresh or the commit has other events.
    pub(super) fn take_after_tools(
        &mut self,
        has_events: bool,
        wanted: impl FnOnce() -> BTreeSet<Effect>,
    ) -> Vec<(CallId, HookAnswers)> {
        if self.after_tools.is_empty() || !(has_events || self.after_tools.iter().any(|answer| answer.fresh))
        {
            return Vec::new();
        }
        let wanted = wanted();
        let answers: Vec<_> = self
            .after_tools
            .iter()
            .filter(|answer| answer.is_wanted(&wanted))
            .map(|answer| (answer.call.clone(), answer.hooks.clone()))
            .collect();
        if !answers.is_empty() {
            self.after_tools.iter_mut().for_each(|answer| answer.fresh = false);
        }
        answers
    }

    /// The pass that applied them was not stored: they have to be applied again.
    pub(super) fn apply_after_tools_again(&mut self) {
        self.after_tools.iter_mut().for_each(|answer| answer.fresh = true);
    }

    pub(super) fn drop_unwanted_after_tools(&mut self, wanted: &BTreeSet<Effect>) {
        self.after_tools.retain(|answer| answer.is_wanted(wanted));
    }

    pub(super) fn reset(&mut self) {
        self.after_tools.clear();
        self.forget_state();
    }
}

impl Worker {
    /// After a commit: the plugins' answers are stored, so the next plugins may be asked with the new state.
    pub(super) async fn release_plugin_lock(&mut self) -> Result<(), Stop> {
        if !self.plugins.guards.is_empty() && self.run.control().ended().is_none() {
            self.read_state().await?;
            self.plugins.release();
        }
        Ok(())
    }

    async fn read_state(&mut self) -> Result<(), Stop> {
        // Most agents have no plugin: skip the read then.
        if self.plugins.state.is_none() && !self.pinned.plugins.is_empty() {
            let state = self.node.store.plugin_state(&self.lease).await?;
            self.plugins.set_state(state.into());
        }
        Ok(())
    }

    /// What is needed to ask the plugins of this run.
    pub(super) async fn hooks(&mut self) -> Result<Hooks, Stop> {
        self.read_state().await?;
        Ok(self.hooks_with_lock(self.plugins.lock.clone()))
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
        let control = self.run.control();
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
