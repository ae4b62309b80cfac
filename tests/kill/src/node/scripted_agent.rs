//! The one agent of every story: a model that does what its message says, and tools that record their acts in the
//! ledger.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use ::tools::http::EndpointError;
use engine::agent::Agent;
use engine::live::Deltas;
use engine::model::{Model, ModelAnswer, ModelFailure, ModelMessage, ModelRequest};
use engine::store::BoxFuture;
use engine::tool::{
    AskKind, DeclaredTool, OnExpiry, Outcome, Performer, ResumeMode, SuspendRequest, Tool, ToolAnswer,
    ToolDefinition, ToolRequest,
};
use machine::id::CallId;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::hook_plugin::HookPlugin;
use super::payment_tool::{PaymentClient, PaymentTool};
use super::print_line;
use super::stops::Stops;
use crate::ledger::{self, Act};
use crate::stories::{AGENT, EXPIRES_IN, HANGS, Script, tools};
use crate::wire::{Line, Operation, Side};

/// Where tools record their acts, and which calls may return.
#[derive(Clone)]
pub(super) struct ToolContext {
    pub(super) socket: PathBuf,
    pub(super) acts: PathBuf,
    /// The number of the acting process.
    pub(super) process: u32,
    pub(super) stops: Stops,
    /// Calls whose tool may stop hanging.
    pub(super) released_calls: watch::Sender<BTreeSet<CallId>>,
}

pub(super) fn scripted_agent(
    context: &ToolContext,
    payment_client: &PaymentClient,
    hook: Option<HookPlugin>,
) -> Result<Agent, EndpointError> {
    let write = |name: &str| ToolDefinition::new(name, "Moves money");
    let tool = |definition: ToolDefinition| ActingTool {
        definition: Arc::new(definition),
        context: context.clone(),
    };
    let agent = Agent::new(AGENT, ScriptedModel)
        .tool(tool(ToolDefinition::new(tools::LOOK, "Looks something up").read()))
        .tool(tool(ToolDefinition::new(tools::FILE, "Files something under its key").idempotent()))
        .tool(tool(write(tools::TRANSFER)))
        .tool(tool(write(tools::TRANSFER_SOON).expires_in(EXPIRES_IN, OnExpiry::Deny)))
        .tool(tool(write(tools::TRANSFER_OR_END).expires_in(EXPIRES_IN, OnExpiry::EndRun)))
        .tool(tool(write(tools::SURVEY)))
        .tool(DeclaredTool::new(
            ToolDefinition::new(tools::ERRAND, "A courier runs an errand").performed_by(Performer::External),
        ))
        .tool(DeclaredTool::new(
            ToolDefinition::new(tools::SCREEN, "The front end shows something")
                .performed_by(Performer::Client),
        ))
        .tool(DeclaredTool::agent(AGENT, "Hands work on to a colleague"))
        .tool(PaymentTool::new(payment_client)?);
    Ok(match hook {
        Some(hook) => agent.plugin(hook),
        None => agent,
    })
}

/// A model that requests the calls named in the user's last message, and answers that it is done after anything else.
struct ScriptedModel;

impl Model for ScriptedModel {
    fn answer<'a>(
        &'a self,
        request: ModelRequest,
        _: Deltas,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        let answer = match request.messages.last().map(|message| &**message) {
            Some(ModelMessage::User { content, .. }) => scripted_answer(content),
            Some(
                ModelMessage::Assistant { .. }
                | ModelMessage::Tool { .. }
                | ModelMessage::Note { .. }
                | ModelMessage::Notice { .. },
            )
            | None => Ok(ModelAnswer::text("done")),
        };
        Box::pin(std::future::ready(answer))
    }
}

fn scripted_answer(content: &Value) -> Result<ModelAnswer, ModelFailure> {
    // A child agent receives its script as text.
    let script = match content {
        Value::String(text) => serde_json::from_str::<Script>(text),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            serde_json::from_value(content.clone())
        }
    };
    match script {
        Ok(script) => Ok(script.calls.iter().fold(ModelAnswer::text("I will"), |answer, call| {
            answer.calling(&call.id, &call.tool, &call.arguments)
        })),
        Err(error) => {
            Err(ModelFailure { message: error.to_string(), retryable: false, retry_after_ms: None })
        }
    }
}

struct ActingTool {
    definition: Arc<ToolDefinition>,
    context: ToolContext,
}

impl Tool for ActingTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    fn call(&self, request: ToolRequest) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            let answer = self.work(&request).await;
            print_line(&Line::Answered { call: request.call, attempt: request.attempt });
            answer
        })
    }
}

impl ActingTool {
    async fn work(&self, request: &ToolRequest) -> Outcome {
        if self.definition.name.as_str() == tools::SURVEY {
            match &request.resume {
                None => return Outcome::Answered(ToolAnswer::Pending(question(&request.call))),
                Some(resumed) if resumed.state.as_deref() != Some(&state(&request.call)) => {
                    let message = format!("it gets back {:?}, which it never left", resumed.state);
                    return Outcome::Answered(ToolAnswer::Error { message });
                }
                Some(_) => {}
            }
        }
        self.context.stops.cross(Side::Before, Operation::Act).await;
        if let Err(why) = self.act(request).await {
            return Outcome::Unknown { why, retry_after_ms: None };
        }
        self.context.stops.cross(Side::After, Operation::Act).await;
        if request.arguments.get(HANGS) == Some(&Value::Bool(true)) {
            let mut released_calls = self.context.released_calls.subscribe();
            tokio::select! {
                _ = released_calls.wait_for(|released_calls| released_calls.contains(&request.call)) => {}
                () = request.cancelled.cancelled() => {
                    return Outcome::Unknown { why: "the call was cancelled".into(), retry_after_ms: None };
                }
            }
        }
        let value = Arc::new(json!({"done": request.call}));
        Outcome::Answered(ToolAnswer::Success { value, warning: None })
    }

    async fn act(&self, request: &ToolRequest) -> Result<(), String> {
        let act = Act {
            process: self.context.process,
            run: request.run.clone(),
            call: request.call.clone(),
            tool: request.tool.clone(),
            effect: self.definition.effect,
            attempt: request.attempt,
            key: request.idempotency_key.clone(),
            arguments: (*request.arguments).clone(),
            charge_record: None,
        };
        let (socket, acts) = (self.context.socket.clone(), self.context.acts.clone());
        let _acting = self.context.stops.acting();
        let released_calls = tokio::task::spawn_blocking(move || ledger::record(&socket, &acts, act)).await;
        match released_calls {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The state that the survey tool stores when it asks, and expects back with the answer.
fn state(call: &CallId) -> Value {
    json!({"asked_for": call})
}

fn question(call: &CallId) -> SuspendRequest {
    SuspendRequest {
        kind: AskKind::Question,
        question: Some("Which account?".into()),
        schema: Some(Arc::new(json!({"type": "string"}))),
        mode: ResumeMode::ReplayToolCall,
        resume_state: Some(Arc::new(state(call))),
        expires_in_ms: None,
        on_expiry: OnExpiry::Deny,
    }
}
