//! What acts: a tool behind one trait, and what it is told about the call it performs.

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

/// Acts on behalf of a model. Implement it, or make one of a function ([`FunctionTool`]).
pub trait Tool: Send + Sync + 'static {
    fn definition(&self) -> &Arc<ToolDefinition>;

    /// Makes one attempt. It is called only after the intent is stored, and at most once per attempt number. Three
    /// outcomes: answered, not sent, unknown. Not asked for where somebody else performs the call.
    fn call(&self, request: ToolRequest) -> BoxFuture<'_, Outcome>;

    /// Whether [`ToolRequest::approval`] is looked up for it, which costs a read of the store for each approved call.
    fn wants_approval(&self) -> bool {
        false
    }
}

/// What everybody may know of a tool: the model, the gate, and whoever approves.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDefinition {
    pub name: ToolName,
    pub description: String,
    /// A JSON Schema of the arguments.
    pub parameters: Arc<Value>,
    /// What an attempt of unknown outcome may lead to.
    pub effect: EffectClass,
    pub approval: Approval,
    pub performer: Performer,
    /// Of its approval.
    pub expires_in: Option<Duration>,
    pub on_expiry: OnExpiry,
    /// How long one attempt may take. Whether one that took longer had an effect is unknown.
    pub timeout: Duration,
}

pub const TOOL_TIMEOUT: Duration = Duration::from_secs(30);

impl ToolDefinition {
    /// A tool with an effect, whose calls are held for approval: what is not declared harmless is not harmless.
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

    /// Changes nothing in the world: never held unless somebody asks for it, and repeated freely.
    #[must_use]
    pub const fn read(mut self) -> Self {
        self.effect = EffectClass::Read;
        self.approval = Approval::Never;
        self
    }

    /// Repeating it with the same key is safe: never held unless somebody asks for it.
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

    /// Somebody else than this process performs the calls. Where that is a front end or whoever posts the result, they
    /// need no approval: nothing happens until they act.
    #[must_use]
    pub fn performed_by(mut self, performer: Performer) -> Self {
        if matches!(performer, Performer::Client | Performer::External) {
            self.approval = Approval::Never;
        }
        self.performer = performer;
        self
    }

    /// Of everything that a person agrees to when they approve: what is shown of the tool, and who performs it. Not of
    /// where it is reached, how long it may take and what it may cost: those are the current ones whoever agreed to what.
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

/// One attempt, as the tool gets it.
#[derive(Clone, Debug)]
pub struct ToolRequest {
    pub tenant: Tenant,
    pub thread: ThreadId,
    pub run: RunId,
    pub call: CallId,
    pub tool: ToolName,
    pub step: u32,
    /// From 1.
    pub attempt: u32,
    pub arguments: Arc<Value>,
    /// The same over retries, take-overs and in-doubt repeats: a tool that honours it acts once.
    pub idempotency_key: String,
    /// The approval that let this call through, where an approver was asked and the tool wants to know
    /// ([`Tool::wants_approval`]).
    pub approval: Option<ApprovedBy>,
    /// Set where the tool had answered "pending" and somebody has answered it since.
    pub resume: Option<Resumed>,
    /// With which the tool may report later what became of this attempt; none where nobody could hear it.
    pub callback: Option<Callback>,
    /// Nobody waits for the answer any more. The run does not wait for a tool that ignores it.
    pub cancelled: CancellationToken,
    /// Progress and logs for whoever watches. They change no status.
    pub notes: ToolNotes,
}

impl ToolRequest {
    /// The arguments as a type of the tool's own. They fit the schema; whether they fit the type is said in words
    /// that the model can use.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, String> {
        T::deserialize(&*self.arguments).map_err(|error| format!("the arguments do not fit: {error}"))
    }
}

/// The approval of a call, so that its tool can verify and record it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovedBy {
    pub approval: SuspensionId,
    pub by: Principal,
    /// Of the arguments that were approved, which are the ones in the request.
    pub arguments: Digest,
}

/// What a tool that suspended itself gets back.
#[derive(Clone, Debug, PartialEq)]
pub struct Resumed {
    /// What it had left for itself.
    pub state: Option<Arc<Value>>,
    pub answer: Option<Arc<Value>>,
    pub by: Principal,
}

/// A tool made of a function.
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

/// A tool that is only declared: somebody else performs its calls.
pub struct DeclaredTool {
    definition: Arc<ToolDefinition>,
}

impl DeclaredTool {
    #[must_use]
    pub fn new(definition: ToolDefinition) -> Self {
        Self { definition: Arc::new(definition) }
    }

    /// A tool whose calls are runs of another agent, which reads the argument `message`. What that agent does is held
    /// by its own rules, so delegating is not held besides.
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
        let why = "nobody here performs this tool".to_owned();
        Box::pin(std::future::ready(Outcome::NotSent { why, retry_after_ms: None }))
    }
}

/// What a tool's function may come back with.
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

/// An error is what the tool says: the model reads it and the call has failed.
impl<T: IntoOutcome, E: fmt::Display> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(answer) => answer.into_outcome(),
            Err(error) => Outcome::Answered(ToolAnswer::Error { message: error.to_string() }),
        }
    }
}
