//! The rules of a legal stream, as the real clients enforce them, and a few that only a producer can keep.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use super::event::{AgUiDialect, AgUiEvent};
use super::event_fields::fields_of;
use super::verify_forms as forms;

/// A rule that a stream can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AgUiRule {
    /// The event is not an object with a type.
    NotAnEvent,
    UnknownType,
    UnknownField,
    /// A field is missing or has a value of the wrong form.
    Malformed,
    /// An optional field is null instead of absent.
    NullField,
    /// A timestamp is not a whole number.
    Timestamp,
    /// The stream does not begin with `RUN_STARTED` or `RUN_ERROR`.
    FirstEvent,
    NestedRun,
    /// After `RUN_FINISHED` only `RUN_STARTED` and `RUN_ERROR` may follow.
    AfterFinish,
    /// After `RUN_ERROR` only `RUN_STARTED` may follow.
    AfterError,
    /// `RUN_FINISHED` names another thread or run than its `RUN_STARTED`.
    WrongRun,
    AlreadyOpen,
    NotOpen,
    OpenAtFinish,
    /// A continuation names another subagent than what it continues.
    Attribution,
    SubagentReused,
    SubagentParent,
    /// An outcome that the dialect does not know, or with fields that it does not know.
    Outcome,
    InterruptsEmpty,
    InterruptRepeated,
    MessageRepeated,
    /// A text message or call that the client has is streamed again, which would append to it.
    Restreamed,
    /// A second result for a call would be a second message.
    ResultRepeated,
    PatchPath,
    /// The stream ends while a run is active.
    MissingTerminal,
}

impl AgUiRule {
    /// A short word for logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotAnEvent => "not_an_event",
            Self::UnknownType => "unknown_type",
            Self::UnknownField => "unknown_field",
            Self::Malformed => "malformed",
            Self::NullField => "null_field",
            Self::Timestamp => "timestamp",
            Self::FirstEvent => "first_event",
            Self::NestedRun => "nested_run",
            Self::AfterFinish => "after_finish",
            Self::AfterError => "after_error",
            Self::WrongRun => "wrong_run",
            Self::AlreadyOpen => "already_open",
            Self::NotOpen => "not_open",
            Self::OpenAtFinish => "open_at_finish",
            Self::Attribution => "attribution",
            Self::SubagentReused => "subagent_reused",
            Self::SubagentParent => "subagent_parent",
            Self::Outcome => "outcome",
            Self::InterruptsEmpty => "interrupts_empty",
            Self::InterruptRepeated => "interrupt_repeated",
            Self::MessageRepeated => "message_repeated",
            Self::Restreamed => "restreamed",
            Self::ResultRepeated => "result_repeated",
            Self::PatchPath => "patch_path",
            Self::MissingTerminal => "missing_terminal",
        }
    }
}

/// An event that must not be sent, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgUiFault {
    pub rule: AgUiRule,
    /// The event's type. Empty if it has none, or if an event is missing.
    pub event: String,
    pub detail: String,
}

impl AgUiFault {
    pub(super) fn new(rule: AgUiRule, event: &str, detail: impl Into<String>) -> Self {
        Self { rule, event: event.to_owned(), detail: detail.into() }
    }
}

impl fmt::Display for AgUiFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = if self.event.is_empty() { "the end of the stream" } else { &self.event };
        write!(f, "{event} breaks the rule {}: {}", self.rule.as_str(), self.detail)
    }
}

impl std::error::Error for AgUiFault {}

/// What is bracketed by a start and an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AgUiBracket {
    Text,
    Reasoning,
    ReasoningMessage,
    ToolCall,
    Step,
    Subagent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum AgUiPosition {
    Empty,
    Active { thread_id: String, run_id: String },
    Finished,
    Failed,
}

/// Checks a stream event by event. After a fault the stream cannot be continued legally, except with `RUN_ERROR`.
#[derive(Clone, Debug)]
pub struct AgUiVerifier {
    dialect: AgUiDialect,
    position: AgUiPosition,
    /// What is open, with the subagent that opened it.
    open: BTreeMap<(AgUiBracket, String), Option<String>>,
    subagents: BTreeSet<String>,
    /// Text messages and calls that the client has.
    shown: BTreeSet<(AgUiBracket, String)>,
    /// Calls whose result the client has.
    answered: BTreeSet<String>,
}

/// An event that has the right form.
struct AgUiChecked<'e> {
    kind: &'e str,
    value: &'e Value,
}

impl AgUiVerifier {
    #[must_use]
    pub fn new(dialect: AgUiDialect) -> Self {
        Self {
            dialect,
            position: AgUiPosition::Empty,
            open: BTreeMap::new(),
            subagents: BTreeSet::new(),
            shown: BTreeSet::new(),
            answered: BTreeSet::new(),
        }
    }

    pub fn check_event(&mut self, event: &AgUiEvent) -> Result<(), AgUiFault> {
        self.check(&event.to_value())
    }

    /// Checks an event in its wire form.
    pub fn check(&mut self, event: &Value) -> Result<(), AgUiFault> {
        let Some(kind) = event.get("type").and_then(Value::as_str) else {
            return Err(AgUiFault::new(AgUiRule::NotAnEvent, "", "it is not an object with a `type`"));
        };
        let Some(fields) = fields_of(kind, self.dialect) else {
            return Err(AgUiFault::new(AgUiRule::UnknownType, kind, "the client does not know this type"));
        };
        forms::check_fields(kind, event, fields, self.dialect)?;
        let event = AgUiChecked { kind, value: event };
        self.check_position(&event)?;
        self.apply(&event)
    }

    /// The stream is closed. The real clients read a stream that breaks off as a complete one.
    pub fn finish(&self) -> Result<(), AgUiFault> {
        match &self.position {
            AgUiPosition::Finished | AgUiPosition::Failed => Ok(()),
            AgUiPosition::Empty | AgUiPosition::Active { .. } => Err(AgUiFault::new(
                AgUiRule::MissingTerminal,
                "",
                "there is no RUN_FINISHED and no RUN_ERROR",
            )),
        }
    }

    fn check_position(&self, event: &AgUiChecked<'_>) -> Result<(), AgUiFault> {
        let (begins, fails) = (event.kind == "RUN_STARTED", event.kind == "RUN_ERROR");
        let broken = match &self.position {
            AgUiPosition::Empty => (!begins && !fails).then_some(AgUiRule::FirstEvent),
            AgUiPosition::Active { .. } => begins.then_some(AgUiRule::NestedRun),
            AgUiPosition::Finished => (!begins && !fails).then_some(AgUiRule::AfterFinish),
            AgUiPosition::Failed => (!begins).then_some(AgUiRule::AfterError),
        };
        broken.map_or(Ok(()), |rule| Err(event.fault(rule, "it is not allowed at this place of the stream")))
    }

    fn apply(&mut self, event: &AgUiChecked<'_>) -> Result<(), AgUiFault> {
        use AgUiBracket::{Reasoning, ReasoningMessage, Step, Subagent, Text, ToolCall};
        match event.kind {
            "RUN_STARTED" => {
                self.begin_run(event);
                Ok(())
            }
            "RUN_FINISHED" => self.finish_run(event),
            "RUN_ERROR" => {
                self.position = AgUiPosition::Failed;
                Ok(())
            }
            "STEP_STARTED" => self.open(event, Step, "stepName"),
            "STEP_FINISHED" => self.close(event, Step, "stepName"),
            "TEXT_MESSAGE_START" => self.open(event, Text, "messageId"),
            "TEXT_MESSAGE_CONTENT" => self.continue_open(event, Text, "messageId"),
            "TEXT_MESSAGE_END" => self.close(event, Text, "messageId"),
            "REASONING_START" => self.open(event, Reasoning, "messageId"),
            "REASONING_END" => self.close(event, Reasoning, "messageId"),
            "REASONING_MESSAGE_START" => self.open(event, ReasoningMessage, "messageId"),
            "REASONING_MESSAGE_CONTENT" => self.continue_open(event, ReasoningMessage, "messageId"),
            "REASONING_MESSAGE_END" => self.close(event, ReasoningMessage, "messageId"),
            "TOOL_CALL_START" => self.open(event, ToolCall, "toolCallId"),
            "TOOL_CALL_ARGS" => self.continue_open(event, ToolCall, "toolCallId"),
            "TOOL_CALL_END" => self.close(event, ToolCall, "toolCallId"),
            "TOOL_CALL_RESULT" => self.record_result(event),
            "MESSAGES_SNAPSHOT" => self.read_snapshot(event),
            "SUBAGENT_STARTED" => self.start_subagent(event),
            "SUBAGENT_FINISHED" | "SUBAGENT_ERROR" => self.close(event, Subagent, "subagentRunId"),
            _ => Ok(()),
        }
    }

    /// What was open belongs to the run before, and so do the ids of its subagents. Messages stay.
    fn begin_run(&mut self, event: &AgUiChecked<'_>) {
        let (thread_id, run_id) = (event.text("threadId").to_owned(), event.text("runId").to_owned());
        self.position = AgUiPosition::Active { thread_id, run_id };
        self.open.clear();
        self.subagents.clear();
    }

    fn finish_run(&mut self, event: &AgUiChecked<'_>) -> Result<(), AgUiFault> {
        if let Some((bracket, id)) = self.open.keys().next() {
            return Err(event.fault(AgUiRule::OpenAtFinish, format!("{bracket:?} `{id}` is open")));
        }
        if let AgUiPosition::Active { thread_id, run_id } = &self.position
            && (event.text("threadId") != thread_id || event.text("runId") != run_id)
        {
            let detail = format!("the run that began is `{run_id}` on thread `{thread_id}`");
            return Err(event.fault(AgUiRule::WrongRun, detail));
        }
        self.position = AgUiPosition::Finished;
        Ok(())
    }

    /// A parent and a subagent may have steps of the same name. Any other id is the same for all.
    fn key(event: &AgUiChecked<'_>, bracket: AgUiBracket, field: &str) -> (AgUiBracket, String) {
        let id = event.text(field);
        let owner = event.owner().filter(|_| bracket == AgUiBracket::Step);
        (bracket, owner.map_or_else(|| id.to_owned(), |owner| format!("{owner}/{id}")))
    }

    fn open(&mut self, event: &AgUiChecked<'_>, bracket: AgUiBracket, field: &str) -> Result<(), AgUiFault> {
        let key = Self::key(event, bracket, field);
        if self.open.contains_key(&key) {
            return Err(event.fault(AgUiRule::AlreadyOpen, format!("`{}` is open", key.1)));
        }
        let is_streamed_once = matches!(bracket, AgUiBracket::Text | AgUiBracket::ToolCall);
        if is_streamed_once && !self.shown.insert(key.clone()) {
            return Err(event.fault(AgUiRule::Restreamed, format!("the client has `{}`", key.1)));
        }
        self.open.insert(key, event.owner().map(str::to_owned));
        Ok(())
    }

    fn continue_open(
        &self,
        event: &AgUiChecked<'_>,
        bracket: AgUiBracket,
        field: &str,
    ) -> Result<(), AgUiFault> {
        let key = Self::key(event, bracket, field);
        let Some(owner) = self.open.get(&key) else {
            return Err(event.fault(AgUiRule::NotOpen, format!("`{}` is not open", key.1)));
        };
        match event.owner() {
            Some(named) if bracket != AgUiBracket::Subagent && owner.as_deref() != Some(named) => {
                Err(event.fault(AgUiRule::Attribution, format!("`{}` is not of subagent `{named}`", key.1)))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn close(&mut self, event: &AgUiChecked<'_>, bracket: AgUiBracket, field: &str) -> Result<(), AgUiFault> {
        self.continue_open(event, bracket, field)?;
        self.open.remove(&Self::key(event, bracket, field));
        Ok(())
    }

    /// A result may answer a call of an earlier run, so the call need not be known.
    fn record_result(&mut self, event: &AgUiChecked<'_>) -> Result<(), AgUiFault> {
        let call_id = event.text("toolCallId");
        if self.open.contains_key(&(AgUiBracket::ToolCall, call_id.to_owned())) {
            return Err(event.fault(AgUiRule::AlreadyOpen, format!("the arguments of `{call_id}` are open")));
        }
        if !self.answered.insert(call_id.to_owned()) {
            return Err(event.fault(AgUiRule::ResultRepeated, format!("`{call_id}` has a result")));
        }
        Ok(())
    }

    /// A snapshot says what the client has.
    fn read_snapshot(&mut self, event: &AgUiChecked<'_>) -> Result<(), AgUiFault> {
        if let Some((bracket, id)) = self.open.keys().find(|(bracket, _)| *bracket == AgUiBracket::Text) {
            return Err(event.fault(AgUiRule::AlreadyOpen, format!("{bracket:?} `{id}` is open")));
        }
        self.shown.clear();
        self.answered.clear();
        let mut ids = BTreeSet::new();
        for message in forms::list(event.value, "messages") {
            let id = forms::text(message, "id");
            if !ids.insert(id) {
                return Err(event.fault(AgUiRule::MessageRepeated, format!("two messages are `{id}`")));
            }
            match forms::text(message, "role") {
                "tool" => {
                    self.answered.insert(forms::text(message, "toolCallId").to_owned());
                }
                "assistant" => {
                    if message.get("content").is_some() {
                        self.shown.insert((AgUiBracket::Text, id.to_owned()));
                    }
                    for call in forms::list(message, "toolCalls") {
                        self.shown.insert((AgUiBracket::ToolCall, forms::text(call, "id").to_owned()));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn start_subagent(&mut self, event: &AgUiChecked<'_>) -> Result<(), AgUiFault> {
        let parent = event.value.get("parentSubagentRunId").and_then(Value::as_str);
        if let Some(parent) = parent.filter(|parent| !self.subagents.contains(*parent)) {
            return Err(event.fault(AgUiRule::SubagentParent, format!("`{parent}` has not started")));
        }
        let id = event.text("subagentRunId");
        let is_open = self.open.contains_key(&(AgUiBracket::Subagent, id.to_owned()));
        if !is_open && !self.subagents.insert(id.to_owned()) {
            return Err(event.fault(AgUiRule::SubagentReused, format!("`{id}` has ended in this run")));
        }
        self.open(event, AgUiBracket::Subagent, "subagentRunId")
    }
}

impl AgUiChecked<'_> {
    fn text(&self, field: &str) -> &str {
        forms::text(self.value, field)
    }

    /// The subagent that the event is attributed to.
    fn owner(&self) -> Option<&str> {
        self.value.get("subagentRunId").and_then(Value::as_str)
    }

    fn fault(&self, rule: AgUiRule, detail: impl Into<String>) -> AgUiFault {
        AgUiFault::new(rule, self.kind, detail)
    }
}
