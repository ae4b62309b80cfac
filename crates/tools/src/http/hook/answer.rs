//! What a hook answers, and the actions that it means. Unknown actions, unknown fields and missing fields are failures.
//! Whether an action belongs to its phase is decided by the machine.

use std::sync::Arc;

use engine::arguments::{self, Schema};
use engine::plugin::{Action, Scope, SuppliedResult};
use engine::tool::{AskKind, OnExpiry, ResumeMode, SuspendRequest};
use machine::id::{MessageId, ToolName};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerBody {
    actions: Vec<ActionBody>,
}

/// Actions without fields have braces, because a unit variant would accept any field.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum ActionBody {
    SetState {
        key: String,
        #[serde(default = "run_scope")]
        scope: Scope,
        value: Value,
    },
    End {},
    AddInstruction {
        text: String,
    },
    HideTool {
        tool: String,
    },
    SetParam {
        name: String,
        value: Value,
    },
    ReplaceMessage {
        message_id: String,
        text: String,
    },
    SkipInference {},
    DropCall {
        index: u16,
    },
    SetArguments {
        index: u16,
        arguments: Value,
    },
    Block {
        reason: String,
    },
    Suspend {
        kind: Option<AskKind>,
        question: Option<String>,
        schema: Option<Value>,
        resume_mode: Option<ResumeMode>,
    },
    SetResult {
        #[serde(default, deserialize_with = "present")]
        result: Option<Value>,
        error: Option<String>,
        warning: Option<String>,
    },
    AddNote {
        text: String,
    },
}

const fn run_scope() -> Scope {
    Scope::Run
}

/// An absent field is `None`. A null is a result like any other.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// `call_count` is the number of calls that an index may refer to.
pub(super) fn actions(answer: Value, call_count: usize) -> Result<Vec<Action>, String> {
    let answer: AnswerBody =
        serde_json::from_value(answer).map_err(|error| format!("its answer is invalid: {error}"))?;
    answer.actions.into_iter().map(|received| action(received, call_count)).collect()
}

fn action(received: ActionBody, call_count: usize) -> Result<Action, String> {
    Ok(match received {
        ActionBody::SetState { key, scope, value } => Action::SetState { key, scope, value: Arc::new(value) },
        ActionBody::End {} => Action::End,
        ActionBody::AddInstruction { text } => Action::AddInstruction { text },
        ActionBody::HideTool { tool } => Action::HideTool { tool: ToolName::from(tool) },
        ActionBody::SetParam { name, value } => Action::SetParam { name, value: Arc::new(value) },
        ActionBody::ReplaceMessage { message_id, text } => {
            Action::ReplaceMessage { message: MessageId::from(message_id), text }
        }
        ActionBody::SkipInference {} => Action::SkipInference,
        ActionBody::DropCall { index } => Action::DropCall { index: known(index, call_count)? },
        ActionBody::SetArguments { index, arguments } => Action::SetArguments {
            index: known(index, call_count)?,
            arguments: arguments::from_value(Arc::new(arguments), None),
        },
        ActionBody::Block { reason } => Action::Block { reason },
        ActionBody::Suspend { kind, question, schema, resume_mode } => {
            Action::Suspend(suspension(kind, question, schema, resume_mode)?)
        }
        ActionBody::SetResult { result, error, warning } => {
            Action::SetResult(supplied(result, error, warning)?)
        }
        ActionBody::AddNote { text } => Action::AddNote { text },
    })
}

/// An action on a call that does not exist would be ignored, and the hook must not believe that it succeeded.
fn known(index: u16, call_count: usize) -> Result<u16, String> {
    if usize::from(index) < call_count {
        return Ok(index);
    }
    Err(format!("its answer names the call at index {index}, and there are {call_count} calls here"))
}

/// Without a kind, a schema makes it a question; otherwise it is an approval.
fn suspension(
    kind: Option<AskKind>,
    question: Option<String>,
    schema: Option<Value>,
    resume_mode: Option<ResumeMode>,
) -> Result<SuspendRequest, String> {
    let kind = kind.unwrap_or(if schema.is_some() { AskKind::Question } else { AskKind::Approval });
    if let Some(schema) = &schema {
        if kind == AskKind::Approval {
            return Err("its answer asks for an approval with a schema; only other kinds have one".into());
        }
        Schema::compile_sent(schema)
            .map_err(|why| format!("its answer has a schema that cannot be used: {why}"))?;
    }
    let default_mode = match kind {
        AskKind::Approval => ResumeMode::ReplayToolCall,
        AskKind::ClientTool | AskKind::External | AskKind::Question => ResumeMode::UseDecisionAsToolResult,
    };
    Ok(SuspendRequest {
        kind,
        question,
        schema: schema.map(Arc::new),
        mode: resume_mode.unwrap_or(default_mode),
        resume_state: None,
        expires_in_ms: None,
        on_expiry: OnExpiry::Deny,
    })
}

fn supplied(
    result: Option<Value>,
    error: Option<String>,
    warning: Option<String>,
) -> Result<SuppliedResult, String> {
    match (result, error) {
        (Some(value), None) => Ok(SuppliedResult::Success { value: Arc::new(value), warning }),
        (None, Some(message)) if warning.is_none() => Ok(SuppliedResult::Error { message }),
        (None, Some(_)) => Err("its set_result has an error and a warning; keep one of them".into()),
        (Some(_), Some(_)) => Err("its set_result has a result and an error; keep one of them".into()),
        (None, None) => Err("its set_result has no result and no error".into()),
    }
}
