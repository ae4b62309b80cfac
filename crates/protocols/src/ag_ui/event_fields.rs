//! The event types that each dialect knows, and the form of their fields.

use super::event::AgUiDialect;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgUiForm {
    Text,
    /// Any value, null included.
    Any,
    Object,
    List,
    /// One of these words.
    Word(&'static [&'static str]),
    Outcome,
    SubagentOutcome,
    Messages,
    Patch,
    /// Text, or a list of parts in the newer dialect.
    Content,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct AgUiField {
    pub(super) name: &'static str,
    pub(super) form: AgUiForm,
    pub(super) is_required: bool,
    /// The older dialect does not know it.
    pub(super) is_new: bool,
}

const fn required(name: &'static str, form: AgUiForm) -> AgUiField {
    AgUiField { name, form, is_required: true, is_new: false }
}

const fn optional(name: &'static str, form: AgUiForm) -> AgUiField {
    AgUiField { name, form, is_required: false, is_new: false }
}

const fn new_field(name: &'static str, form: AgUiForm) -> AgUiField {
    AgUiField { name, form, is_required: false, is_new: true }
}

const fn id(name: &'static str) -> AgUiField {
    required(name, AgUiForm::Text)
}

const TEXT_ROLES: &[&str] = &["developer", "system", "assistant", "user"];
const SUBAGENT: AgUiField = new_field("subagentRunId", AgUiForm::Text);

const RUN_STARTED: &[AgUiField] = &[
    id("threadId"),
    id("runId"),
    new_field("protocolVersion", AgUiForm::Text),
    optional("parentRunId", AgUiForm::Text),
    optional("input", AgUiForm::Object),
];
const RUN_FINISHED: &[AgUiField] = &[
    id("threadId"),
    id("runId"),
    optional("result", AgUiForm::Any),
    optional("outcome", AgUiForm::Outcome),
    new_field("usage", AgUiForm::List),
];
const RUN_ERROR: &[AgUiField] = &[
    required("message", AgUiForm::Text),
    optional("code", AgUiForm::Text),
    new_field("usage", AgUiForm::List),
];
const STEP: &[AgUiField] = &[id("stepName"), SUBAGENT];
const TEXT_MESSAGE_START: &[AgUiField] = &[
    id("messageId"),
    optional("role", AgUiForm::Word(TEXT_ROLES)),
    optional("name", AgUiForm::Text),
    SUBAGENT,
];
const MESSAGE_CONTENT: &[AgUiField] = &[id("messageId"), required("delta", AgUiForm::Text), SUBAGENT];
const MESSAGE: &[AgUiField] = &[id("messageId"), SUBAGENT];
const REASONING_MESSAGE_START: &[AgUiField] =
    &[id("messageId"), required("role", AgUiForm::Word(&["reasoning"])), SUBAGENT];
const TOOL_CALL_START: &[AgUiField] =
    &[id("toolCallId"), id("toolCallName"), optional("parentMessageId", AgUiForm::Text), SUBAGENT];
const TOOL_CALL_ARGS: &[AgUiField] = &[id("toolCallId"), required("delta", AgUiForm::Text), SUBAGENT];
const TOOL_CALL_END: &[AgUiField] = &[id("toolCallId"), SUBAGENT];
const TOOL_CALL_RESULT: &[AgUiField] = &[
    id("messageId"),
    id("toolCallId"),
    required("content", AgUiForm::Content),
    optional("role", AgUiForm::Word(&["tool"])),
    SUBAGENT,
];
const STATE_SNAPSHOT: &[AgUiField] = &[required("snapshot", AgUiForm::Any), SUBAGENT];
const STATE_DELTA: &[AgUiField] = &[required("delta", AgUiForm::Patch), SUBAGENT];
const MESSAGES_SNAPSHOT: &[AgUiField] = &[required("messages", AgUiForm::Messages)];
const CUSTOM: &[AgUiField] = &[id("name"), required("value", AgUiForm::Any), SUBAGENT];
const SUBAGENT_STARTED: &[AgUiField] = &[
    id("subagentRunId"),
    id("name"),
    optional("description", AgUiForm::Text),
    optional("parentSubagentRunId", AgUiForm::Text),
    optional("parentToolCallId", AgUiForm::Text),
    optional("parentMessageId", AgUiForm::Text),
];
const SUBAGENT_FINISHED: &[AgUiField] =
    &[id("subagentRunId"), optional("result", AgUiForm::Any), optional("outcome", AgUiForm::SubagentOutcome)];
const SUBAGENT_ERROR: &[AgUiField] =
    &[id("subagentRunId"), required("message", AgUiForm::Text), optional("code", AgUiForm::Text)];

/// The fields of an event beside `type`, `timestamp` and `metadata`. None for a type that the dialect does not know, and
/// for the forms that Holdpoint never sends: chunks, activities, raw events and encrypted reasoning.
pub(super) fn fields_of(kind: &str, dialect: AgUiDialect) -> Option<&'static [AgUiField]> {
    let known = match kind {
        "RUN_STARTED" => RUN_STARTED,
        "RUN_FINISHED" => RUN_FINISHED,
        "RUN_ERROR" => RUN_ERROR,
        "STEP_STARTED" | "STEP_FINISHED" => STEP,
        "TEXT_MESSAGE_START" => TEXT_MESSAGE_START,
        "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT" => MESSAGE_CONTENT,
        "TEXT_MESSAGE_END" | "REASONING_START" | "REASONING_MESSAGE_END" | "REASONING_END" => MESSAGE,
        "REASONING_MESSAGE_START" => REASONING_MESSAGE_START,
        "TOOL_CALL_START" => TOOL_CALL_START,
        "TOOL_CALL_ARGS" => TOOL_CALL_ARGS,
        "TOOL_CALL_END" => TOOL_CALL_END,
        "TOOL_CALL_RESULT" => TOOL_CALL_RESULT,
        "STATE_SNAPSHOT" => STATE_SNAPSHOT,
        "STATE_DELTA" => STATE_DELTA,
        "MESSAGES_SNAPSHOT" => MESSAGES_SNAPSHOT,
        "CUSTOM" => CUSTOM,
        "SUBAGENT_STARTED" if dialect == AgUiDialect::V1_0 => SUBAGENT_STARTED,
        "SUBAGENT_FINISHED" if dialect == AgUiDialect::V1_0 => SUBAGENT_FINISHED,
        "SUBAGENT_ERROR" if dialect == AgUiDialect::V1_0 => SUBAGENT_ERROR,
        _ => return None,
    };
    Some(known)
}
