//! RunEnd hooks of a cancelled run: an interrupt waits for no plugin, so they are asked after the end.

use machine::phase::{HookOutcome, Phase};
use machine::termination::Termination;

use super::Worker;
use super::plugin_lock::PluginLock;
use crate::plugin::Subject;
use crate::store::StateView;

impl Worker {
    /// Asks once, with the usual hook timeout. Nothing is stored after the terminal event, so their answers are
    /// dropped.
    pub(super) fn ask_run_end_hooks(&self) {
        let Some(termination @ Termination::Cancelled(_)) = self.run.control().ended() else { return };
        if !self.phases().has(Phase::RunEnd) {
            return;
        }
        // The lease ended with the run, and so did the hooks that were asked under it.
        let (plugin_lock, store) = (PluginLock::new(), self.node.store.clone());
        let hooks = self.hooks_with_lock(plugin_lock.clone());
        let subject = Subject::RunEnd { termination: Some(termination.clone()) };
        self.node.tasks.spawn(async move {
            let state = store.state(&hooks.tenant, &hooks.run).await;
            match state.and_then(|rows| rows.into_iter().map(StateView::decoded).collect()) {
                Ok(state) => plugin_lock.set_state(&state),
                Err(refused) => {
                    tracing::warn!(run = %hooks.run, %refused, "the state of plugins cannot be read; RunEnd hooks run without it");
                }
            }
            let (heard, _guard) = hooks.ask(subject).await;
            for answer in heard.answers {
                if let HookOutcome::Failed(why) = answer.outcome {
                    tracing::warn!(run = %hooks.run, plugin = %answer.plugin, why, "RunEnd hooks failed after the run had ended");
                }
            }
        });
    }
}
