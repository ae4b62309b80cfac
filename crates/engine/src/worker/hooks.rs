//! Asking plugins: in registration order, with a timeout, and safe from their failures and panics.

use std::sync::Arc;
use std::time::Duration;

use machine::event::Usage;
use machine::id::{AgentName, PluginName, RunId, ThreadId};
use machine::phase::{Action, HookAnswer, HookAnswers, HookOutcome, Phase, PhaseSet};
use machine::projection_rows::StateRow;

use super::panics::catch_panic;
use super::plugin_lock::{PluginLock, PluginLockGuard};
use crate::plugin::{HookContext, Plugin, Subject};
use crate::store::Tenant;

/// Everything needed to ask the plugins of a run.
#[derive(Clone)]
pub(crate) struct Hooks {
    /// The plugins that the run is pinned to.
    pub(crate) plugins: Vec<Subscriber>,
    pub(crate) tenant: Tenant,
    pub(crate) thread: ThreadId,
    pub(crate) run: RunId,
    pub(crate) agent: AgentName,
    pub(crate) step: u32,
    pub(crate) usage: Usage,
    pub(crate) plugin_lock: PluginLock,
    pub(crate) timeout: Duration,
}

#[derive(Clone)]
pub(crate) struct Subscriber {
    pub(crate) name: PluginName,
    pub(crate) phases: PhaseSet,
    /// None if the plugin is no longer configured.
    pub(crate) plugin: Option<Arc<dyn Plugin>>,
}

impl Hooks {
    /// The answers of all plugins that subscribe to the subject's phase, including empty ones. No other plugins of the
    /// run are asked until the guard is dropped.
    pub(crate) async fn ask(&self, subject: Subject) -> (HookAnswers, PluginLockGuard) {
        let (guard, state) = self.plugin_lock.acquire().await;
        let phase = subject.phase();
        let mut answers = Vec::new();
        for subscriber in self.plugins.iter().filter(|one| one.phases.has(phase)) {
            let outcome = match &subscriber.plugin {
                Some(plugin) => self.ask_one(plugin.clone(), &state, subject.clone()).await,
                None => HookOutcome::Failed("the plugin is not there any more".into()),
            };
            answers.push(HookAnswer { plugin: subscriber.name.clone(), outcome });
        }
        let state_bytes_after = keep_changes(&state, &mut answers);
        (HookAnswers { answers, state_bytes_after }, guard)
    }

    pub(crate) fn subscribed(&self, phase: Phase) -> bool {
        self.plugins.iter().any(|one| one.phases.has(phase))
    }

    async fn ask_one(
        &self,
        plugin: Arc<dyn Plugin>,
        state: &Arc<[StateRow]>,
        subject: Subject,
    ) -> HookOutcome {
        let context = HookContext {
            tenant: self.tenant.clone(),
            thread: self.thread.clone(),
            run: self.run.clone(),
            agent: self.agent.clone(),
            step: self.step,
            usage: self.usage,
            state: state.clone(),
            subject,
        };
        let answer = catch_panic(async move { plugin.hook(context).await });
        match tokio::time::timeout(self.timeout, answer).await {
            Ok(Ok(Ok(actions))) => HookOutcome::Actions(actions),
            Ok(Ok(Err(why))) => HookOutcome::Failed(why),
            Ok(Err(panic)) => HookOutcome::Failed(format!("it panicked: {panic}")),
            Err(_) => HookOutcome::Failed(format!("no answer within {:?}", self.timeout)),
        }
    }
}

/// No plugin returned an action and none failed: there is nothing to record.
pub(crate) fn is_silent(hooks: &HookAnswers) -> bool {
    hooks.answers.iter().all(|answer| match &answer.outcome {
        HookOutcome::Actions(actions) => actions.is_empty(),
        HookOutcome::Failed(_) => false,
    })
}

/// Removes actions that set a key to the value it already has. Returns the size in bytes of all plugin state once the
/// rest is stored.
fn keep_changes(state: &[StateRow], answers: &mut [HookAnswer]) -> u32 {
    let mut rows: Vec<StateRow> = state.to_vec();
    for HookAnswer { plugin, outcome } in answers {
        let HookOutcome::Actions(actions) = outcome else { continue };
        actions.retain(|action| {
            let Action::SetState { key, scope, value } = action else { return true };
            let row =
                StateRow { plugin: plugin.clone(), scope: *scope, key: key.clone(), value: value.clone() };
            let is_change = !rows.contains(&row);
            put(&mut rows, row);
            is_change
        });
    }
    let bytes: usize = rows.iter().map(|row| row.key.len() + row.value.to_string().len()).sum();
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// The last value of a key wins.
pub(crate) fn put(rows: &mut Vec<StateRow>, row: StateRow) {
    let known = rows
        .iter_mut()
        .find(|known| known.plugin == row.plugin && known.scope == row.scope && known.key == row.key);
    match known {
        Some(known) => known.value = row.value,
        None => rows.push(row),
    }
}
