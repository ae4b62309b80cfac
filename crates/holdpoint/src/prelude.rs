//! What nearly every program that embeds an agent needs: `use holdpoint::prelude::*;`.

#[doc(no_inline)]
pub use crate::agent::{Agent, ArgumentTest, Policy, Rule, StopCondition};
#[doc(no_inline)]
pub use crate::decision::{ApprovalFilter, Decide, Page, Refusal, SuspensionKind, SuspensionView, Verdict};
#[doc(no_inline)]
pub use crate::event::{Delta, Event, Fact, FeedItem, LiveItem, Subscription};
#[doc(no_inline)]
pub use crate::id::{CallId, Principal, RunId, Tenant, ThreadId};
#[doc(no_inline)]
pub use crate::model::{Deltas, Model, ModelAnswer, ModelFailure, ModelMessage, ModelRequest};
#[cfg(feature = "scripted")]
#[doc(no_inline)]
pub use crate::model::{Reply, ScriptedModel};
#[doc(no_inline)]
pub use crate::plugin::{
    Action, CallResult, FunctionPlugin, HookContext, Phase, PhaseSet, Plugin, PluginName, Subject,
    SuppliedResult,
};
#[cfg(feature = "sqlite")]
#[doc(no_inline)]
pub use crate::store::SqliteStore;
#[doc(no_inline)]
pub use crate::store::{MemoryStore, Store, StoreError};
#[doc(no_inline)]
pub use crate::tool::{
    Approval, AskKind, DeclaredTool, EffectClass, FunctionTool, OnExpiry, Outcome, Performer, ResumeMode,
    SuspendRequest, Tool, ToolAnswer, ToolDefinition, ToolRequest,
};
#[doc(no_inline)]
pub use crate::{
    BoxFuture, Engine, Message, PostError, Posted, RunOutcome, RunReport, StartError, Termination,
};
#[doc(no_inline)]
pub use serde_json::{Value, json};
