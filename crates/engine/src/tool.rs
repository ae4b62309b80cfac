//! Tools: the trait that acts on behalf of a model, and what a tool learns about the call it performs.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use machine::id::{CallId, Digest, Principal, RunId, SuspensionId, ThreadId, ToolName};
pub use machine::input::{Outcome, ToolAnswer};
pub use machine::phase::{AskKind, SuspendRequest};
pub use machine::suspension::ResumeMode;
pub use machine::tool::{Approval, EffectClass, OnExpiry, Performer};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
pub use tokio_util::sync::CancellationToken;

use crate::arguments;
pub use crate::callback::{Callback, CallbackToken};
use crate::live::ToolNotes;
use crate::store::{BoxFuture, Tenant};

/// Acts on behalf of a model. Implement it, or create one from a function ([`FunctionTool`]).
pub trait Tool: Send + Sync + 'static {
    fn definition(&self) -> &Arc<ToolDefinition>;

    /// Makes one attempt. It is called only after the intent is stored, and at most once per attempt number. Three
    /// outcomes: answered, not sent, unknown. Not called if the call is performed outside this process.
    fn call(&self, request: ToolRequest) -> BoxFuture<'_, Outcome>;

    /// Whether to look up [`ToolRequest::approval`] for it, which costs a store read for each approved call.
    fn wants_approval(&self) -> bool {
        false
    }
}

/// The public description of a tool: for the model, the gate and approvers.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDefinition {
    pub name: ToolName,
    pub description: String,
    /// A JSON Schema of the arguments.
    pub parameters: Arc<Value>,
    /// What an attempt with unknown outcome may have done.
    pub effect: EffectClass,
    pub approval: Approval,
    pub performer: Performer,
    /// Lifetime of its approval request.
    pub expires_in: Option<Duration>,
    pub on_expiry: OnExpiry,
    /// Time limit of one attempt. If an attempt exceeds it, it is unknown whether it took effect.
    pub timeout: Duration,
}

pub const TOOL_TIMEOUT: Duration = Duration::from_secs(30);

impl ToolDefinition {
    /// A tool with side effects, whose calls wait for approval: unless declared otherwise, a tool is not assumed
    /// harmless.
    pub fn new(name: &str, description: impl Into<String>) -> Self {
        Self {
            name: ToolName::from(name),
            description: description.into(),
            parameters: Arc::new(json!({"type": "object"})),
            effect: EffectClass::Write,
            approval: Approval::Ask,
            performer: Performer::Server,
            expires_in: None,
            on_expiry: OnExpiry::Deny,
            timeout: TOOL_TIMEOUT,
        }
    }

    #[must_use]
    pub fn parameters(mut self, schema: Value) -> Self {
        self.parameters = Arc::new(schema);
        self
    }

    /// Has no side effects: its calls wait only if a rule, policy or plugin asks for it, and can be repeated freely.
    #[must_use]
    pub const fn read(mut self) -> Self {
        self.effect = EffectClass::Read;
        self.approval = Approval::Never;
        self
    }

    /// Repeating it with the same key is safe: its calls wait only if a rule, policy or plugin asks for it.
    #[must_use]
    pub const fn idempotent(mut self) -> Self {
        self.effect = EffectClass::Idempotent;
        self.approval = Approval::Never;
        self
    }

    #[must_use]
    pub const fn approval(mut self, approval: Approval) -> Self {
        self.approval = approval;
        self
    }

    #[must_use]
    pub const fn expires_in(mut self, after: Duration, then: OnExpiry) -> Self {
        self.expires_in = Some(after);
        self.on_expiry = then;
        self
    }

    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The calls are not performed by this process. If a client or an external party performs them, they need no
    /// approval: nothing happens until that party acts.
    #[must_use]
    pub fn performed_by(mut self, performer: Performer) -> Self {
        if matches!(performer, Performer::Client | Performer::External) {
            self.approval = Approval::Never;
        }
        self.performer = performer;
        self
    }

    /// Digest of everything an approver agrees to: what is shown of the tool, and who performs it. It does not cover
    /// the tool's address, timeout and cost limits: their current values always apply.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let performer = match &self.performer {
            Performer::Server => json!("server"),
            Performer::Client => json!("client"),
            Performer::External => json!("external"),
            Performer::Agent { agent, .. } => json!({"agent": agent}),
        };
        let shown = json!({
            "description": self.description,
            "parameters": *self.parameters,
            "effect": self.effect,
            "performer": performer,
        });
        arguments::digest(&shown).unwrap_or_else(|_| Digest::sha256(shown.to_string().as_bytes()))
    }
}

/// One attempt, as the tool receives it.
#[derive(Clone, Debug)]
pub struct ToolRequest {
    pub tenant: Tenant,
    pub thread: ThreadId,
    pub run: RunId,
    pub call: CallId,
    pub tool: ToolName,
    pub step: u32,
    /// Starts at 1.
    pub attempt: u32,
    pub arguments: Arc<Value>,
    /// The same across retries, takeovers and in-doubt repeats: a tool that honours it acts once.
    pub idempotency_key: String,
    /// The approval that let this call through, if an approver was asked and the tool wants to know
    /// ([`Tool::wants_approval`]).
    pub approval: Option<ApprovedBy>,
    /// Set if the tool had answered "pending" and has received an answer since.
    pub resume: Option<Resumed>,
    /// With this the tool may report the result of this attempt later; None if this engine accepts no callbacks.
    pub callback: Option<Callback>,
    /// Cancelled when the answer is no longer needed. The run does not wait for a tool that ignores it.
    pub cancelled: CancellationToken,
    /// Progress and logs for watchers. They change no status.
    pub notes: ToolNotes,
}

impl ToolRequest {
    /// Deserializes the arguments. They already match the schema; if they do not match the type, the error is worded
    /// for the model.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, String> {
        T::deserialize(&*self.arguments).map_err(|error| format!("the arguments do not fit: {error}"))
    }
}

/// The approval of a call, so that its tool can verify and record it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovedBy {
    pub approval: SuspensionId,
    pub by: Principal,
    /// Digest of the approved arguments, which are the ones in the request.
    pub arguments: Digest,
}

/// What a tool that suspended itself receives when it is resumed.
#[derive(Clone, Debug, PartialEq)]
pub struct Resumed {
    /// The state it had saved for itself.
    pub state: Option<Arc<Value>>,
    pub answer: Option<Arc<Value>>,
    pub by: Principal,
}

/// A tool created from a function.
pub struct FunctionTool<F> {
    definition: Arc<ToolDefinition>,
    function: F,
}

impl<F, A, R> FunctionTool<F>
where
    F: Fn(ToolRequest) -> A + Send + Sync + 'static,
    A: Future<Output = R> + Send + 'static,
    R: IntoOutcome,
{
    pub fn new(definition: ToolDefinition, function: F) -> Self {
        Self { definition: Arc::new(definition), function }
    }
}

impl<F, A, R> Tool for FunctionTool<F>
where
    F: Fn(ToolRequest) -> A + Send + Sync + 'static,
    A: Future<Output = R> + Send + 'static,
    R: IntoOutcome,
{
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    fn call(&self, request: ToolRequest) -> BoxFuture<'_, Outcome> {
        let answer = (self.function)(request);
        Box::pin(async move { answer.await.into_outcome() })
    }
}

/// A tool that is only declared: this process does not perform its calls.
pub struct DeclaredTool {
    definition: Arc<ToolDefinition>,
}

impl DeclaredTool {
    #[must_use]
    pub fn new(definition: ToolDefinition) -> Self {
        Self { definition: Arc::new(definition) }
    }

    /// A tool whose calls are runs of another agent, which reads the argument `message`. That agent's own rules decide
    /// which of its calls wait, so delegating does not wait as well.
    #[must_use]
    pub fn agent(agent: &str, description: &str) -> Self {
        let definition = ToolDefinition::new(agent, description)
            .parameters(json!({
                "type": "object",
                "required": ["message"],
                "properties": {"message": {"type": "string", "description": "What is to be done"}},
            }))
            .performed_by(Performer::Agent { agent: agent.into(), budget_tokens_max: None })
            .approval(Approval::Never);
        Self::new(definition)
    }
}

impl Tool for DeclaredTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    fn call(&self, _: ToolRequest) -> BoxFuture<'_, Outcome> {
        let why = "this engine has no implementation of the tool".to_owned();
        Box::pin(std::future::ready(Outcome::NotSent { why, retry_after_ms: None }))
    }
}

/// What a tool's function may return.
pub trait IntoOutcome {
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

impl IntoOutcome for ToolAnswer {
    fn into_outcome(self) -> Outcome {
        Outcome::Answered(self)
    }
}

impl IntoOutcome for Value {
    fn into_outcome(self) -> Outcome {
        Outcome::Answered(ToolAnswer::Success { value: Arc::new(self), warning: None })
    }
}

/// An error is the tool's answer: the model reads it, and the call has failed.
impl<T: IntoOutcome, E: fmt::Display> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(answer) => answer.into_outcome(),
            Err(error) => Outcome::Answered(ToolAnswer::Error { message: error.to_string() }),
        }
    }
}
