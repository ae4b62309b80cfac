//! Code of the embedder between the phases of a run: it is told where the run stands, and answers with data.

use std::future::Future;
use std::sync::Arc;

use machine::event::Usage;
use machine::id::{AgentName, CallId, PluginName, RunId, ThreadId, ToolName};
pub use machine::phase::{Action, Phase, PhaseSet, Scope, SuppliedResult};
use machine::rows::StateRow;
use machine::status::CallStatus;
use machine::termination::Termination;
use serde_json::Value;

use crate::model::{Messages, ModelAnswer};
use crate::store::{Task, Tenant};

/// Is asked in the phases of a run that it subscribes to. Implement it, or make one of a function ([`FunctionPlugin`]).
pub trait Plugin: Send + Sync + 'static {
    fn name(&self) -> &PluginName;

    /// The phases it wants to be asked in. Frozen with the agent.
    fn phases(&self) -> PhaseSet;

    /// What should follow. An error, a panic or a late answer is a failure; what that means depends on the phase.
    fn hook(&self, moment: Moment) -> Task<'_, Result<Vec<Action>, String>>;
}

/// A plugin made of a function.
pub struct FunctionPlugin<F> {
    name: PluginName,
    phases: PhaseSet,
    function: F,
}

impl<F, A> FunctionPlugin<F>
where
    F: Fn(Moment) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Vec<Action>, String>> + Send + 'static,
{
    pub fn new(name: &str, phases: impl IntoIterator<Item = Phase>, function: F) -> Self {
        Self { name: PluginName::from(name), phases: phases.into_iter().collect(), function }
    }
}

impl<F, A> Plugin for FunctionPlugin<F>
where
    F: Fn(Moment) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Vec<Action>, String>> + Send + 'static,
{
    fn name(&self) -> &PluginName {
        &self.name
    }

    fn phases(&self) -> PhaseSet {
        self.phases
    }

    fn hook(&self, moment: Moment) -> Task<'_, Result<Vec<Action>, String>> {
        Box::pin((self.function)(moment))
    }
}

/// Where a run stands when a plugin is asked.
#[derive(Clone, Debug)]
pub struct Moment {
    pub tenant: Tenant,
    pub thread: ThreadId,
    pub run: RunId,
    pub agent: AgentName,
    pub step: u32,
    /// Tokens that the run and its children have used.
    pub usage: Usage,
    /// What all plugins keep for the run and for its thread.
    pub state: Arc<[StateRow]>,
    pub subject: Subject,
}

impl Moment {
    /// What `plugin` keeps under a key, if it keeps anything.
    #[must_use]
    pub fn state_of(&self, plugin: &PluginName, scope: Scope, key: &str) -> Option<&Value> {
        let row = self.state.iter().find(|row| row.plugin == *plugin && row.scope == scope && row.key == key);
        row.map(|row| &*row.value)
    }
}

/// What a plugin is asked about.
#[derive(Clone, Debug)]
pub enum Subject {
    RunStart,
    StepStart,
    BeforeInference { messages: Messages },
    AfterInference { answer: Arc<ModelAnswer> },
    BeforeToolExecute { call: CallId, tool: ToolName, arguments: Arc<Value> },
    AfterToolExecute { call: CallId, tool: ToolName, status: CallStatus },
    StepEnd,
    RunEnd { termination: Option<Termination> },
}

impl Subject {
    #[must_use]
    pub const fn phase(&self) -> Phase {
        match self {
            Self::RunStart => Phase::RunStart,
            Self::StepStart => Phase::StepStart,
            Self::BeforeInference { .. } => Phase::BeforeInference,
            Self::AfterInference { .. } => Phase::AfterInference,
            Self::BeforeToolExecute { .. } => Phase::BeforeToolExecute,
            Self::AfterToolExecute { .. } => Phase::AfterToolExecute,
            Self::StepEnd => Phase::StepEnd,
            Self::RunEnd { .. } => Phase::RunEnd,
        }
    }
}
