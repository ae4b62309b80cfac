//! What a hook is sent.

use std::collections::BTreeMap;

use engine::model::{ModelAnswer, ModelMessage};
use engine::plugin::{CallErrorCode, CallResult, GateRevisit, HookContext, Phase, Scope, Subject};
use machine::event::Usage;
use machine::id::{CallId, PluginName, ToolName, tool_message_id};
use machine::json_text::{self, Bounds};
use machine::projection_rows::StateRow;
use machine::status::CallStatus;
use machine::termination::Termination;
use machine::tool::Arguments;
use serde::Serialize;
use serde_json::Value;

/// Fields that a phase does not have are absent.
#[derive(Serialize)]
pub(super) struct Question<'a> {
    phase: Phase,
    plugin: &'a str,
    /// Ids of threads, runs and calls are unique only within a tenant.
    tenant: &'a str,
    agent: &'a str,
    thread_id: &'a str,
    run_id: &'a str,
    step: u32,
    usage: Usage,
    state: PluginState<'a>,
    #[serde(flatten)]
    subject: SubjectFields<'a>,
}

/// The values that this hook has stored, by key.
#[derive(Serialize)]
struct PluginState<'a> {
    run: BTreeMap<&'a str, &'a Value>,
    thread: BTreeMap<&'a str, &'a Value>,
}

#[derive(Default, Serialize)]
struct SubjectFields<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<Vec<MessageSent<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<AnswerSent<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<CallSent<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revisit: Option<RevisitSent<'a>>,
    #[serde(flatten)]
    outcome: OutcomeFields<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    termination: Option<TerminationSent<'a>>,
}

#[derive(Serialize)]
struct CallSent<'a> {
    call_id: &'a str,
    tool: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<CallStatus>,
}

#[derive(Serialize)]
struct RevisitSent<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    approval_id: Option<&'a str>,
    attempts: u32,
}

/// One of the first four, unless the call is held.
#[derive(Default, Serialize)]
struct OutcomeFields<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorSent<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    denied: Option<DeniedSent<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cancelled: Option<CancelledSent<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    outcome_unknown: bool,
}

#[derive(Serialize)]
struct ErrorSent<'a> {
    code: CallErrorCode,
    message: &'a str,
}

#[derive(Serialize)]
struct DeniedSent<'a> {
    by: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    via: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

#[derive(Serialize)]
struct CancelledSent<'a> {
    reason: &'a str,
}

#[derive(Serialize)]
struct AnswerSent<'a> {
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<&'a str>,
    calls: Vec<RequestedCallSent<'a>>,
}

#[derive(Serialize)]
struct RequestedCallSent<'a> {
    /// With which actions name the call.
    index: usize,
    tool: &'a str,
    /// Text if the model wrote no JSON.
    arguments: Value,
}

#[derive(Serialize)]
struct TerminationSent<'a> {
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
}

/// A message of the model's input.
#[derive(Default, Serialize)]
struct MessageSent<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    role: &'static str,
    content: ContentSent<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ToolCallSent<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ContentSent<'a> {
    Text(&'a str),
    Value(&'a Value),
}

impl Default for ContentSent<'_> {
    fn default() -> Self {
        Self::Text("")
    }
}

#[derive(Serialize)]
struct ToolCallSent<'a> {
    call_id: &'a str,
    tool: &'a str,
    arguments: ArgumentsSent<'a>,
}

/// Arguments that are not valid JSON are sent as the model wrote them.
#[derive(Serialize)]
#[serde(untagged)]
enum ArgumentsSent<'a> {
    Valid(&'a Value),
    Invalid(&'a str),
}

impl<'a> Question<'a> {
    pub(super) fn new(plugin: &'a PluginName, context: &'a HookContext) -> Self {
        let HookContext { tenant, thread, run, agent, step, usage, state, subject } = context;
        let own = |scope| {
            let rows = state.iter().filter(move |row| row.plugin == *plugin && row.scope == scope);
            rows.map(|StateRow { key, value, .. }| (key.as_str(), &**value)).collect()
        };
        Self {
            phase: subject.phase(),
            plugin: plugin.as_str(),
            tenant: tenant.as_str(),
            agent: agent.as_str(),
            thread_id: thread.as_str(),
            run_id: run.as_str(),
            step: *step,
            usage: *usage,
            state: PluginState { run: own(Scope::Run), thread: own(Scope::Thread) },
            subject: SubjectFields::new(subject),
        }
    }

    pub(super) fn to_json(&self) -> Result<Vec<u8>, String> {
        serde_json::to_vec(self).map_err(|error| format!("the request could not be written: {error}"))
    }
}

impl<'a> SubjectFields<'a> {
    fn new(subject: &'a Subject) -> Self {
        match subject {
            Subject::RunStart | Subject::StepStart | Subject::StepEnd => Self::default(),
            Subject::BeforeInference { messages } => {
                Self { messages: Some(messages.iter().map(MessageSent::new).collect()), ..Self::default() }
            }
            Subject::AfterInference { answer } => {
                Self { answer: Some(AnswerSent::new(answer)), ..Self::default() }
            }
            Subject::BeforeToolExecute { call, tool, arguments, revisit } => Self {
                call: Some(CallSent::new(call, tool, None)),
                arguments: Some(arguments),
                revisit: revisit.as_ref().map(RevisitSent::new),
                ..Self::default()
            },
            Subject::AfterToolExecute { call, tool, arguments, status, result } => Self {
                call: Some(CallSent::new(call, tool, Some(*status))),
                arguments: Some(arguments),
                outcome: result.as_ref().map(OutcomeFields::new).unwrap_or_default(),
                ..Self::default()
            },
            Subject::RunEnd { termination } => {
                Self { termination: termination.as_ref().map(TerminationSent::new), ..Self::default() }
            }
        }
    }
}

impl<'a> CallSent<'a> {
    fn new(call: &'a CallId, tool: &'a ToolName, status: Option<CallStatus>) -> Self {
        Self { call_id: call.as_str(), tool: tool.as_str(), status }
    }
}

impl<'a> RevisitSent<'a> {
    fn new(revisit: &'a GateRevisit) -> Self {
        let approval_id = revisit.approval.as_ref().map(|approval| approval.as_str());
        Self { approval_id, attempts: revisit.attempts }
    }
}

impl<'a> OutcomeFields<'a> {
    fn new(result: &'a CallResult) -> Self {
        match result {
            CallResult::Succeeded { value, warning } => {
                Self { result: Some(value), warning: warning.as_deref(), ..Self::default() }
            }
            CallResult::Failed { code, message, outcome_unknown } => Self {
                error: Some(ErrorSent { code: *code, message }),
                outcome_unknown: *outcome_unknown,
                ..Self::default()
            },
            CallResult::Denied { by, reason } => Self {
                denied: Some(DeniedSent { by: by.name(), via: by.via(), reason: reason.as_deref() }),
                ..Self::default()
            },
            CallResult::Cancelled { reason, text, outcome_unknown } => Self {
                cancelled: Some(CancelledSent { reason: text.as_deref().unwrap_or(reason.as_str()) }),
                outcome_unknown: *outcome_unknown,
                ..Self::default()
            },
        }
    }
}

impl<'a> AnswerSent<'a> {
    fn new(answer: &'a ModelAnswer) -> Self {
        let calls = answer.calls.iter().enumerate().map(|(index, call)| RequestedCallSent {
            index,
            tool: &call.tool,
            arguments: json_text::parse(&call.arguments, &Bounds::VALUE)
                .unwrap_or_else(|_| Value::from(call.arguments.as_str())),
        });
        Self { text: &answer.text, reasoning: answer.reasoning.as_deref(), calls: calls.collect() }
    }
}

impl<'a> TerminationSent<'a> {
    fn new(ended: &'a Termination) -> Self {
        Self { reason: ended.reason(), code: ended.code(), detail: ended.detail() }
    }
}

impl<'a> MessageSent<'a> {
    fn new(message: &'a ModelMessage) -> Self {
        match message {
            ModelMessage::User { id, content, .. } => Self {
                id: Some(id.to_string()),
                role: "user",
                content: ContentSent::Value(content),
                ..Self::default()
            },
            ModelMessage::Assistant { id, text, calls, .. } => Self {
                id: Some(id.to_string()),
                role: "assistant",
                content: ContentSent::Text(text),
                tool_calls: calls
                    .iter()
                    .map(|call| ToolCallSent {
                        call_id: call.id.as_str(),
                        tool: call.tool.as_str(),
                        arguments: match &call.arguments {
                            Arguments::Valid { value, .. } => ArgumentsSent::Valid(value),
                            Arguments::Invalid { raw, .. } => ArgumentsSent::Invalid(raw),
                        },
                    })
                    .collect(),
                ..Self::default()
            },
            ModelMessage::Tool { call, text } => Self {
                id: Some(tool_message_id(call).to_string()),
                role: "tool",
                content: ContentSent::Text(text),
                call_id: Some(call.as_str()),
                ..Self::default()
            },
            ModelMessage::Note { id, call, text } => Self {
                id: Some(id.to_string()),
                role: "note",
                content: ContentSent::Text(text),
                call_id: Some(call.as_str()),
                ..Self::default()
            },
            ModelMessage::Notice { text } => {
                Self { role: "notice", content: ContentSent::Text(text), ..Self::default() }
            }
        }
    }
}
