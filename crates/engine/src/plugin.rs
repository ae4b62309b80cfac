//! Plugins: the embedder's code between the phases of a run. A plugin receives the run's state and answers with data.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

pub use machine::event::{CallErrorCode, CancelReason};
use machine::event::{Fact, Usage};
use machine::id::{AgentName, CallId, PluginName, Principal, RunId, SuspensionId, ThreadId, ToolName};
pub use machine::phase::{Action, Phase, PhaseSet, Scope, SuppliedResult};
use machine::projection_rows::StateRow;
use machine::status::CallStatus;
use machine::termination::Termination;
use serde_json::Value;

use crate::model::{Messages, ModelAnswer};
use crate::store::{BoxFuture, Tenant};

/// How long a plugin may take to answer, unless the engine's settings set another limit.
pub const HOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// Asked in the phases of a run that it subscribes to. Implement it, or create one from a function
/// ([`FunctionPlugin`]).
pub trait Plugin: Send + Sync + 'static {
    fn name(&self) -> &PluginName;

    /// The phases in which it is asked. Frozen with the agent.
    fn phases(&self) -> PhaseSet;

    /// The actions to take. An error, a panic or a late answer is a failure; its consequence depends on the phase.
    fn hook(&self, context: HookContext) -> BoxFuture<'_, Result<Vec<Action>, String>>;
}

/// A plugin created from a function.
pub struct FunctionPlugin<F> {
    name: PluginName,
    phases: PhaseSet,
    function: F,
}

impl<F, A> FunctionPlugin<F>
where
    F: Fn(HookContext) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Vec<Action>, String>> + Send + 'static,
{
    pub fn new(name: &str, phases: impl IntoIterator<Item = Phase>, function: F) -> Self {
        Self { name: PluginName::from(name), phases: phases.into_iter().collect(), function }
    }
}

impl<F, A> Plugin for FunctionPlugin<F>
where
    F: Fn(HookContext) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Vec<Action>, String>> + Send + 'static,
{
    fn name(&self) -> &PluginName {
        &self.name
    }

    fn phases(&self) -> PhaseSet {
        self.phases
    }

    fn hook(&self, context: HookContext) -> BoxFuture<'_, Result<Vec<Action>, String>> {
        Box::pin((self.function)(context))
    }
}

/// The state of a run when a plugin is asked.
#[derive(Clone, Debug)]
pub struct HookContext {
    pub tenant: Tenant,
    pub thread: ThreadId,
    pub run: RunId,
    pub agent: AgentName,
    pub step: u32,
    /// Tokens that the run and its children have used.
    pub usage: Usage,
    /// The state of all plugins for the run and for its thread.
    pub state: Arc<[StateRow]>,
    pub subject: Subject,
}

impl HookContext {
    /// The state of `plugin` under a key, if any.
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
    BeforeInference {
        messages: Messages,
    },
    AfterInference {
        answer: Arc<ModelAnswer>,
    },
    BeforeToolExecute {
        call: CallId,
        tool: ToolName,
        /// The arguments that will run.
        arguments: Arc<Value>,
        /// None if the call reaches the gate for the first time.
        revisit: Option<GateRevisit>,
    },
    AfterToolExecute {
        call: CallId,
        tool: ToolName,
        /// The arguments that ran, or would have run.
        arguments: Arc<Value>,
        status: CallStatus,
        /// None while the call is held.
        result: Option<CallResult>,
    },
    StepEnd,
    RunEnd {
        termination: Option<Termination>,
    },
}

/// A call that was at the gate before: it was held and has been answered, or its worker was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateRevisit {
    /// The approval that was given for exactly these arguments.
    pub approval: Option<SuspensionId>,
    /// Attempts that were made before.
    pub attempts: u32,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallResult {
    Succeeded {
        value: Arc<Value>,
        warning: Option<String>,
    },
    Failed {
        code: CallErrorCode,
        message: String,
        /// An attempt may have taken effect anyway.
        outcome_unknown: bool,
    },
    /// An approver denied it, or the approval expired.
    Denied {
        by: Principal,
        reason: Option<String>,
    },
    Cancelled {
        reason: CancelReason,
        /// The reason that was given.
        text: Option<String>,
        outcome_unknown: bool,
    },
}

impl CallResult {
    /// None for a fact that settles no call.
    pub(crate) fn from_fact(fact: &Fact) -> Option<Self> {
        if let Fact::ExecutionSucceeded { result, warning, .. } = fact {
            return Some(Self::Succeeded { value: Arc::new(result.to_value()), warning: warning.clone() });
        }
        if let Fact::ExecutionFailed { error, outcome_unknown, .. } = fact {
            let (code, message) = (error.code, error.message.clone());
            return Some(Self::Failed { code, message, outcome_unknown: *outcome_unknown });
        }
        if let Fact::ToolDenied { by, reason, .. } = fact {
            return Some(Self::Denied { by: by.clone(), reason: reason.clone() });
        }
        if let Fact::ToolCancelled { reason, text, outcome_unknown, .. } = fact {
            let (reason, outcome_unknown) = (*reason, *outcome_unknown);
            return Some(Self::Cancelled { reason, text: text.clone(), outcome_unknown });
        }
        None
    }
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
