//! Parses `RunAgentInput`. Unknown members are left out; a known member of the wrong form refuses the request.

use serde_json::Value;

use super::event::AgUiDialect;
use super::fields::{AgUiObject, AgUiRequestError};

/// A client sends the whole history with every request.
const MESSAGE_COUNT_MAX: usize = 10_000;
const TOOL_COUNT_MAX: usize = 256;
const CONTEXT_COUNT_MAX: usize = 256;
const RESUME_COUNT_MAX: usize = 1_000;
const CALL_COUNT_MAX: usize = 1_000;
const PART_COUNT_MAX: usize = 1_000;

/// A request to run, continue or replay a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct AgUiRequest {
    pub thread_id: String,
    /// The client's id of the protocol run that the response is.
    pub run_id: String,
    pub parent_run_id: Option<String>,
    pub dialect: AgUiDialect,
    pub messages: Vec<AgUiInputMessage>,
    /// The tools that the client runs itself.
    pub tools: Vec<AgUiClientTool>,
    pub context: Vec<AgUiContext>,
    pub state: Option<Value>,
    pub forwarded_props: Option<Value>,
    /// At most one entry per interrupt. The form before it, `forwardedProps.command.resume`, is not read: it names no
    /// interrupt, so an answer that is sent again would decide the next one.
    pub resume: Vec<AgUiResumeEntry>,
}

/// A message of the client's history. Only messages of users and results of client tools are ever taken from it.
#[derive(Clone, Debug, PartialEq)]
pub enum AgUiInputMessage {
    User(AgUiUserMessage),
    Tool(AgUiToolResult),
    /// Of the agent, or without meaning for it.
    Other {
        id: String,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct AgUiUserMessage {
    pub id: String,
    /// A text, or a list of parts in the client's form.
    pub content: Value,
}

/// A tool message: what the client says is the result of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct AgUiToolResult {
    pub message_id: String,
    pub call_id: String,
    /// A text, or a list of parts.
    pub content: Value,
    pub error: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AgUiClientTool {
    pub name: String,
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgUiContext {
    pub description: String,
    pub value: String,
}

/// The answer to one interrupt. [`super::AgUiDecision::from_entry`] says what it decides.
#[derive(Clone, Debug, PartialEq)]
pub struct AgUiResumeEntry {
    pub interrupt_id: String,
    pub status: AgUiResumeStatus,
}

#[derive(Clone, Debug, PartialEq)]
pub enum AgUiResumeStatus {
    /// None: the entry has no payload.
    Resolved(Option<Value>),
    /// The user left without an answer.
    Cancelled,
}

impl AgUiInputMessage {
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::User(message) => &message.id,
            Self::Tool(result) => &result.message_id,
            Self::Other { id } => id,
        }
    }
}

impl AgUiToolResult {
    /// The result as a value: text that is a JSON object or a JSON list is taken as what it says.
    #[must_use]
    pub fn value(&self) -> Value {
        let Some(text) = self.content.as_str() else { return self.content.clone() };
        match serde_json::from_str::<Value>(text) {
            Ok(value) if value.is_object() || value.is_array() => value,
            Ok(_) | Err(_) => self.content.clone(),
        }
    }

    /// The text that the client shows for it: of a list of parts, the text parts.
    #[must_use]
    pub fn text(&self) -> String {
        if let Some(text) = self.content.as_str() {
            return text.to_owned();
        }
        let parts = self.content.as_array().map(Vec::as_slice).unwrap_or_default();
        parts.iter().filter_map(|part| part.get("text")?.as_str()).collect()
    }
}

impl AgUiRequest {
    pub fn parse(body: &Value) -> Result<Self, AgUiRequestError> {
        let input = AgUiObject::new(body, String::new())?;
        let forwarded_props = input.value("forwardedProps").filter(|props| !props.is_null()).cloned();
        input.required("messages")?;
        Ok(Self {
            thread_id: input.id("threadId")?,
            run_id: input.id("runId")?,
            parent_run_id: input.optional_id("parentRunId")?,
            dialect: AgUiDialect::from_version(input.optional_text("protocolVersion")?),
            messages: messages(&input)?,
            tools: tools(&input)?,
            context: context(&input)?,
            state: input.value("state").filter(|state| !state.is_null()).cloned(),
            forwarded_props,
            resume: resume(&input)?,
        })
    }

    /// Every tool message of the history, in order.
    pub fn tool_results(&self) -> impl Iterator<Item = &AgUiToolResult> {
        self.messages.iter().filter_map(|message| match message {
            AgUiInputMessage::Tool(result) => Some(result),
            AgUiInputMessage::User(_) | AgUiInputMessage::Other { .. } => None,
        })
    }
}

fn messages(input: &AgUiObject<'_>) -> Result<Vec<AgUiInputMessage>, AgUiRequestError> {
    let items = input.list("messages", MESSAGE_COUNT_MAX)?;
    let mut messages = Vec::with_capacity(items.len());
    for (value, path) in items {
        messages.extend(message(&AgUiObject::new(value, path)?)?);
    }
    Ok(messages)
}

/// None for a role that was added to the protocol later.
fn message(message: &AgUiObject<'_>) -> Result<Option<AgUiInputMessage>, AgUiRequestError> {
    let id = message.id("id")?;
    match message.text("role")? {
        "user" => {
            let content = content(message)?;
            Ok(Some(AgUiInputMessage::User(AgUiUserMessage { id, content })))
        }
        "tool" => Ok(Some(AgUiInputMessage::Tool(AgUiToolResult {
            message_id: id,
            call_id: message.id("toolCallId")?,
            content: content(message)?,
            error: message.optional_text("error")?.map(str::to_owned),
        }))),
        "assistant" => {
            message.optional_text("content")?;
            for (call, path) in message.list("toolCalls", CALL_COUNT_MAX)? {
                check_call(&AgUiObject::new(call, path)?)?;
            }
            Ok(Some(AgUiInputMessage::Other { id }))
        }
        "developer" | "system" | "reasoning" => {
            message.text("content")?;
            Ok(Some(AgUiInputMessage::Other { id }))
        }
        _ => Ok(None),
    }
}

fn check_call(call: &AgUiObject<'_>) -> Result<(), AgUiRequestError> {
    call.id("id")?;
    let function = AgUiObject::new(call.required("function")?, call.path_of("function"))?;
    function.text("name")?;
    function.text("arguments")?;
    Ok(())
}

fn content(message: &AgUiObject<'_>) -> Result<Value, AgUiRequestError> {
    let content = message.required("content")?;
    if content.is_string() {
        return Ok(content.clone());
    }
    if !content.is_array() {
        return Err(message.wrong("content", "must be a string or a list of parts"));
    }
    for (part, path) in message.list("content", PART_COUNT_MAX)? {
        let part = AgUiObject::new(part, path)?;
        if part.text("type")? == "text" {
            part.text("text")?;
        }
    }
    Ok(content.clone())
}

fn tools(input: &AgUiObject<'_>) -> Result<Vec<AgUiClientTool>, AgUiRequestError> {
    let mut tools: Vec<AgUiClientTool> = Vec::new();
    for (value, path) in input.list("tools", TOOL_COUNT_MAX)? {
        let tool = AgUiObject::new(value, path)?;
        let name = tool.id("name")?;
        if tools.iter().any(|earlier| earlier.name == name) {
            return Err(tool.wrong("name", format!("`{name}` is the name of an earlier tool too")));
        }
        let description = tool.optional_text("description")?.unwrap_or_default().to_owned();
        let parameters = tool.value("parameters").filter(|schema| !schema.is_null()).cloned();
        if parameters.as_ref().is_some_and(|schema| !schema.is_object()) {
            return Err(tool.wrong("parameters", "must be a JSON Schema object"));
        }
        tools.push(AgUiClientTool { name, description, parameters });
    }
    Ok(tools)
}

fn context(input: &AgUiObject<'_>) -> Result<Vec<AgUiContext>, AgUiRequestError> {
    let mut entries = Vec::new();
    for (value, path) in input.list("context", CONTEXT_COUNT_MAX)? {
        let entry = AgUiObject::new(value, path)?;
        let (description, value) = (entry.text("description")?.to_owned(), entry.text("value")?.to_owned());
        entries.push(AgUiContext { description, value });
    }
    Ok(entries)
}

fn resume(input: &AgUiObject<'_>) -> Result<Vec<AgUiResumeEntry>, AgUiRequestError> {
    let mut entries: Vec<AgUiResumeEntry> = Vec::new();
    for (value, path) in input.list("resume", RESUME_COUNT_MAX)? {
        let entry = AgUiObject::new(value, path)?;
        let interrupt_id = entry.id("interruptId")?;
        let status = match entry.text("status")? {
            "resolved" => AgUiResumeStatus::Resolved(entry.value("payload").cloned()),
            "cancelled" => AgUiResumeStatus::Cancelled,
            other => {
                let problem = format!("is `{other}`; use `resolved` or `cancelled`");
                return Err(entry.wrong("status", problem));
            }
        };
        let read = AgUiResumeEntry { interrupt_id, status };
        match entries.iter().find(|earlier| earlier.interrupt_id == read.interrupt_id) {
            None => entries.push(read),
            Some(earlier) if *earlier == read => {}
            // Which of the two the user meant is unknown, and one of them may be an approval.
            Some(_) => return Err(entry.wrong("interruptId", "has two different answers in one request")),
        }
    }
    Ok(entries)
}
