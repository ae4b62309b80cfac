//! Plugins made of functions, for the tests that need one.

use std::sync::{Arc, Mutex};

use engine::plugin::{Action, HookContext, Phase, PhaseSet, Plugin, Subject};
use engine::store::BoxFuture;
use machine::id::PluginName;

type Hook = dyn Fn(&HookContext) -> Result<Vec<Action>, String> + Send + Sync;

/// Answers with a function and keeps what it was asked, in words.
#[derive(Clone)]
pub(crate) struct FunctionPlugin {
    name: PluginName,
    phases: PhaseSet,
    hook: Arc<Hook>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl FunctionPlugin {
    pub(crate) fn new(
        name: &str,
        phases: impl IntoIterator<Item = Phase>,
        hook: impl Fn(&HookContext) -> Result<Vec<Action>, String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            phases: phases.into_iter().collect(),
            hook: Arc::new(hook),
            asked: Arc::default(),
        }
    }

    /// Answers with these actions in one phase.
    pub(crate) fn answering(phase: Phase, actions: Vec<Action>) -> Self {
        Self::new("plugin", [phase], move |_| Ok(actions.clone()))
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn words(subject: &Subject) -> String {
    match subject {
        Subject::BeforeToolExecute { call, .. } | Subject::AfterToolExecute { call, .. } => {
            format!("{} {call}", subject.phase())
        }
        _ => subject.phase().to_string(),
    }
}

impl Plugin for FunctionPlugin {
    fn name(&self) -> &PluginName {
        &self.name
    }

    fn phases(&self) -> PhaseSet {
        self.phases
    }

    fn hook(&self, context: HookContext) -> BoxFuture<'_, Result<Vec<Action>, String>> {
        self.asked.lock().unwrap().push(words(&context.subject));
        Box::pin(async move { (self.hook)(&context) })
    }
}
