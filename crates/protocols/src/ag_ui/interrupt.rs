//! What the user is asked when a run waits, and the form of the answer.

use serde_json::{Map, Value, json};

use super::calls::{AgUiCall, AgUiHold, AgUiHoldKind};
use super::event::{AgUiDialect, AgUiInterrupt};
use crate::feed::RequestedCall;

/// A reason of our own for approvals. For the reason `tool_call`, CopilotKit writes a tool message of its own into the
/// history and keeps that in place of the real result.
const APPROVAL_REASON: &str = "holdpoint:approval";
const IN_DOUBT_REASON: &str = "holdpoint:in_doubt";

/// What a client can answer in `resume`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgUiAnswerable {
    Approval,
    Question,
    InDoubt,
}

impl AgUiAnswerable {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Approval => "approval",
            Self::Question => "question",
            Self::InDoubt => "in_doubt",
        }
    }

    /// None for what is not the user's to answer in `resume`.
    const fn from_hold(kind: AgUiHoldKind) -> Option<Self> {
        match kind {
            AgUiHoldKind::Approval => Some(Self::Approval),
            AgUiHoldKind::Question => Some(Self::Question),
            AgUiHoldKind::InDoubt => Some(Self::InDoubt),
            AgUiHoldKind::ClientTool | AgUiHoldKind::External | AgUiHoldKind::ChildRun => None,
        }
    }
}

/// A call of a delegated run, at any depth, that waits for the user. The feed of the run that delegated does not show it.
#[derive(Clone, Debug, PartialEq)]
pub struct AgUiDelegatedHold {
    /// Id of the approval.
    pub id: String,
    /// The run that the streamed run delegated to: the held call is in that run or below it.
    pub child_run_id: String,
    pub kind: AgUiAnswerable,
    pub call: RequestedCall,
    pub question: Option<String>,
    /// JSON Schema of the answer.
    pub schema: Option<Value>,
    pub expires_at: Option<String>,
}

/// What the interrupts of one held call and of a delegated one have in common.
struct AgUiHeldCall<'a> {
    id: &'a str,
    kind: AgUiAnswerable,
    tool: &'a str,
    arguments: &'a Value,
    question: Option<&'a str>,
    schema: Option<&'a Value>,
    expires_at: Option<&'a str>,
    /// JSON Schema of the tool's arguments, if the caller knows it.
    arguments_schema: Option<&'a Value>,
}

/// None for a call that the user cannot answer in `resume`.
pub(super) fn interrupt_for_call(
    dialect: AgUiDialect,
    call: &AgUiCall,
    hold: &AgUiHold,
    arguments_schema: Option<&Value>,
) -> Option<AgUiInterrupt> {
    let held = AgUiHeldCall {
        id: &hold.id,
        kind: AgUiAnswerable::from_hold(hold.kind)?,
        tool: &call.requested.tool,
        arguments: &hold.arguments,
        question: hold.question.as_deref(),
        schema: hold.schema.as_ref(),
        expires_at: hold.expires_at.as_deref(),
        arguments_schema,
    };
    // A call that the client has not seen cannot be named: a front end would run a call of its tool.
    let tool_call_id = call.is_announced.then(|| call.requested.call_id.clone());
    Some(held.interrupt(dialect, tool_call_id))
}

pub(super) fn interrupt_for_delegated(
    dialect: AgUiDialect,
    delegated: &AgUiDelegatedHold,
    subagent_is_open: bool,
) -> AgUiInterrupt {
    let held = AgUiHeldCall {
        id: &delegated.id,
        kind: delegated.kind,
        tool: &delegated.call.tool,
        arguments: &delegated.call.arguments,
        question: delegated.question.as_deref(),
        schema: delegated.schema.as_ref(),
        expires_at: delegated.expires_at.as_deref(),
        arguments_schema: None,
    };
    let mut interrupt = held.interrupt(dialect, None);
    interrupt.subagent_run_id = subagent_is_open.then(|| delegated.child_run_id.clone());
    interrupt
}

impl AgUiHeldCall<'_> {
    fn interrupt(&self, dialect: AgUiDialect, tool_call_id: Option<String>) -> AgUiInterrupt {
        let expires_at = match dialect {
            AgUiDialect::V1_0 => self.expires_at.map(str::to_owned),
            // Once expired, an older client refuses every answer, and the thread could not continue.
            AgUiDialect::Before => None,
        };
        AgUiInterrupt {
            id: self.id.to_owned(),
            reason: self.reason(dialect, tool_call_id.is_some()),
            message: self.message(),
            tool_call_id,
            response_schema: self.response_schema(),
            expires_at,
            metadata: self.metadata(),
            subagent_run_id: None,
        }
    }

    const fn reason(&self, dialect: AgUiDialect, names_call: bool) -> &'static str {
        match (self.kind, dialect, names_call) {
            (AgUiAnswerable::Approval, AgUiDialect::V1_0, true) => "tool_call",
            (AgUiAnswerable::Approval, AgUiDialect::V1_0 | AgUiDialect::Before, _) => APPROVAL_REASON,
            (AgUiAnswerable::Question, _, _) => "input_required",
            (AgUiAnswerable::InDoubt, _, _) => IN_DOUBT_REASON,
        }
    }

    fn message(&self) -> String {
        let tool = self.tool;
        match (self.question, self.kind) {
            (Some(question), _) => question.to_owned(),
            (None, AgUiAnswerable::Approval) => format!("The agent wants to call `{tool}`. Approve?"),
            (None, AgUiAnswerable::Question) => format!("`{tool}` needs an answer."),
            (None, AgUiAnswerable::InDoubt) => format!(
                "It is unknown whether `{tool}` took effect. Run it again, give up, or enter its result."
            ),
        }
    }

    fn response_schema(&self) -> Option<Map<String, Value>> {
        let schema = match self.kind {
            AgUiAnswerable::Approval => {
                let arguments = self.arguments_schema.filter(|schema| schema.is_object()).cloned();
                let mut edited = arguments.unwrap_or_else(|| json!({"type": "object"}));
                edited["description"] = json!("Replaces all arguments. Absent: they stay as they are.");
                json!({
                    "type": "object",
                    "properties": {
                        "approved": {"type": "boolean"},
                        "editedArgs": edited,
                        "reason": {"type": "string", "description": "Why the call is denied."},
                    },
                    "required": ["approved"],
                })
            }
            AgUiAnswerable::Question => self.schema?.clone(),
            AgUiAnswerable::InDoubt => json!({
                "type": "object",
                "properties": {
                    "choice": {"enum": ["retry", "give_up"]},
                    "result": {"description": "The call took effect, and this is its result."},
                },
                "minProperties": 1,
                "maxProperties": 1,
            }),
        };
        match schema {
            Value::Object(schema) => Some(schema),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
        }
    }

    fn metadata(&self) -> Map<String, Value> {
        let kind = json!(self.kind.as_str());
        let (tool, arguments) = (json!(self.tool), self.arguments.clone());
        [("kind", kind), ("tool", tool), ("arguments", arguments)]
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}
