//! Reads what the client posts: a new, edited or regenerated message, or answers to calls of a held run.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

use super::seen::{DYNAMIC_TOOL, Seen, is_tool_part};

/// Maximum number of messages in a posted history.
pub const MESSAGES_MAX: usize = 10_000;
/// Maximum number of parts in the message that is read.
pub const PARTS_MAX: usize = 10_000;
/// Maximum number of decisions, and of outputs of client tools, in one request.
pub const ANSWERS_MAX: usize = 1_000;

#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest {
    pub chat_id: String,
    pub action: ChatAction,
}

/// What the client wants. Ids of assistant messages are the client's; [`run_id_of`](super::run_id_of) returns the run.
#[derive(Clone, Debug, PartialEq)]
pub enum ChatAction {
    NewMessage {
        message_id: String,
        /// A text, or a list of parts.
        content: Value,
    },
    /// A user message replaces an earlier one with the same id.
    Edit {
        message_id: String,
        content: Value,
        /// The message before it. None if it is the first of the conversation.
        after: Option<String>,
    },
    Regenerate {
        /// The answer to replace. None if the client means the last one.
        message_id: Option<String>,
        /// The message to answer again.
        after: String,
    },
    /// The client posts an assistant message: the last one, or the one that `messageId` names. Without decisions and
    /// outputs it only wants to follow the run.
    Continue { message_id: String, decisions: Vec<AiDecision>, outputs: Vec<ClientToolOutput>, seen: Seen },
    /// The history is empty, or ends with neither a user nor an assistant message.
    Nothing,
}

/// The user's answer to an approval. It must be checked against the stored approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AiDecision {
    pub approval_id: String,
    pub approved: bool,
    pub reason: Option<String>,
}

/// A result that the front end claims for a call. It counts only if the call is held as a client tool: outputs of
/// earlier calls are posted again each time.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientToolOutput {
    pub call_id: String,
    /// The output, or the text of the error.
    pub result: Result<Value, String>,
}

/// A field of the request has the wrong form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatRequestError {
    /// Such as `messages[2].parts[0].approval.approved`. Empty for the body itself.
    pub path: String,
    pub why: String,
}

impl fmt::Display for ChatRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => write!(f, "the body: {}", self.why),
            path => write!(f, "`{path}`: {}", self.why),
        }
    }
}

impl std::error::Error for ChatRequestError {}

/// Reads the body of a chat request. Keys and types of parts that are not known are ignored: a transport may add
/// fields of its own, and newer clients have more types of parts.
pub fn parse_request(body: &Value) -> Result<ChatRequest, ChatRequestError> {
    let root = JsonPath::Root;
    if !body.is_object() {
        return Err(root.error("expected an object"));
    }
    let chat_id = id_field(body, "id", &root)?.to_owned();
    let messages = list_field(body, "messages", &root, MESSAGES_MAX)?;
    let message_id = optional_text(body, "messageId", &root)?;
    let path = root.field("messages");
    let trigger = optional_text(body, "trigger", &root)?.unwrap_or("submit-message");
    let action = match trigger {
        "submit-message" => submitted(messages, message_id, &path)?,
        "regenerate-message" => regenerated(messages, message_id, &path)?,
        _ => return Err(root.field("trigger").error("expected submit-message or regenerate-message")),
    };
    Ok(ChatRequest { chat_id, action })
}

fn submitted(
    messages: &[Value],
    message_id: Option<&str>,
    list_path: &JsonPath<'_>,
) -> Result<ChatAction, ChatRequestError> {
    // Newer clients can answer approvals of an assistant message that is not the last one.
    let is_answered = |message: &Value| {
        let text = |name| message.get(name).and_then(Value::as_str);
        message_id.is_some() && text("id") == message_id && text("role") == Some("assistant")
    };
    if let Some(index) = messages.iter().rposition(is_answered)
        && let Some(message) = messages.get(index)
    {
        return continued(message, &list_path.index(index));
    }
    let Some((last, earlier)) = messages.split_last() else { return Ok(ChatAction::Nothing) };
    let path = list_path.index(earlier.len());
    match text_field(last, "role", &path)? {
        "user" => {
            let id = id_field(last, "id", &path)?.to_owned();
            let content = user_content(last, &path)?;
            if message_id != Some(&id) {
                return Ok(ChatAction::NewMessage { message_id: id, content });
            }
            let after = match earlier.split_last() {
                Some((before, rest)) => {
                    Some(id_field(before, "id", &list_path.index(rest.len()))?.to_owned())
                }
                None => None,
            };
            Ok(ChatAction::Edit { message_id: id, content, after })
        }
        "assistant" => continued(last, &path),
        "system" => Ok(ChatAction::Nothing),
        _ => Err(path.field("role").error("expected user, assistant or system")),
    }
}

fn regenerated(
    messages: &[Value],
    message_id: Option<&str>,
    path: &JsonPath<'_>,
) -> Result<ChatAction, ChatRequestError> {
    let Some((last, earlier)) = messages.split_last() else {
        return Err(path.error("expected the message to answer again"));
    };
    let after = id_field(last, "id", &path.index(earlier.len()))?.to_owned();
    Ok(ChatAction::Regenerate { message_id: message_id.map(str::to_owned), after })
}

fn continued(message: &Value, path: &JsonPath<'_>) -> Result<ChatAction, ChatRequestError> {
    let message_id = id_field(message, "id", path)?.to_owned();
    let parts = list_field(message, "parts", path, PARTS_MAX)?;
    let path = path.field("parts");
    let seen = Seen::from_parts(parts, &path)?;
    let (mut decisions, mut outputs) = (Vec::new(), Vec::new());
    for (index, part) in parts.iter().enumerate() {
        let path = path.index(index);
        let name = text_field(part, "type", &path)?;
        if !is_tool_part(name) {
            continue;
        }
        decisions.extend(decision(part, &path)?);
        // Only tools of the front end are static parts. Outputs of all others come from this server.
        if name != DYNAMIC_TOOL {
            outputs.extend(client_output(part, &path)?);
        }
    }
    if let Some(decision) = contradicted(&decisions) {
        let why = format!("two parts answer the approval `{}` differently", decision.approval_id);
        return Err(path.error(&why));
    }
    if decisions.len() > ANSWERS_MAX || outputs.len() > ANSWERS_MAX {
        return Err(path.error(&format!("more than {ANSWERS_MAX} answers; send fewer at once")));
    }
    Ok(ChatAction::Continue { message_id, decisions, outputs, seen })
}

fn contradicted(decisions: &[AiDecision]) -> Option<&AiDecision> {
    let mut given: BTreeMap<&str, bool> = BTreeMap::new();
    decisions.iter().find(|decision| {
        let first = *given.entry(&decision.approval_id).or_insert(decision.approved);
        first != decision.approved
    })
}

fn decision(part: &Value, path: &JsonPath<'_>) -> Result<Option<AiDecision>, ChatRequestError> {
    if text_field(part, "state", path)? != "approval-responded" {
        return Ok(None);
    }
    let path = path.field("approval");
    let approval = part.get("approval").unwrap_or(&Value::Null);
    let approval_id = id_field(approval, "id", &path)?.to_owned();
    // An answer that is missing or has another type must not execute anything.
    let Some(approved) = approval.get("approved").and_then(Value::as_bool) else {
        return Err(path.field("approved").error("expected true or false"));
    };
    let reason = optional_text(approval, "reason", &path)?.map(str::to_owned);
    Ok(Some(AiDecision { approval_id, approved, reason }))
}

fn client_output(part: &Value, path: &JsonPath<'_>) -> Result<Option<ClientToolOutput>, ChatRequestError> {
    let result = match text_field(part, "state", path)? {
        // More is to follow.
        "output-available" if part.get("preliminary").and_then(Value::as_bool) == Some(true) => {
            return Ok(None);
        }
        // A tool that returns nothing has no output in JSON.
        "output-available" => Ok(part.get("output").cloned().unwrap_or_default()),
        "output-error" => Err(text_field(part, "errorText", path)?.to_owned()),
        _ => return Ok(None),
    };
    Ok(Some(ClientToolOutput { call_id: id_field(part, "toolCallId", path)?.to_owned(), result }))
}

/// The text and files of a user's message: a text if there is nothing else, otherwise a list of parts.
fn user_content(message: &Value, path: &JsonPath<'_>) -> Result<Value, ChatRequestError> {
    let parts = list_field(message, "parts", path, PARTS_MAX)?;
    let path = path.field("parts");
    let mut content = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let path = path.index(index);
        match text_field(part, "type", &path)? {
            "text" => content.push(json!({"type": "text", "text": text_field(part, "text", &path)?})),
            "file" => content.push(file_content(part, &path)?),
            _ => {}
        }
    }
    let has_content = content.iter().any(|part| part.get("text").and_then(Value::as_str) != Some(""));
    match content.as_mut_slice() {
        _ if !has_content => Err(path.error("the message is empty; send text or a file")),
        [only] if only.get("text").is_some() => Ok(only.get_mut("text").map(Value::take).unwrap_or_default()),
        _ => Ok(Value::Array(content)),
    }
}

fn file_content(part: &Value, path: &JsonPath<'_>) -> Result<Value, ChatRequestError> {
    let mut content = json!({
        "type": "file",
        "media_type": text_field(part, "mediaType", path)?,
        "url": text_field(part, "url", path)?,
    });
    if let (Some(name), Some(fields)) = (optional_text(part, "filename", path)?, content.as_object_mut()) {
        fields.insert("filename".into(), name.into());
    }
    Ok(content)
}

/// Where a value is in the body. Written out only for an error.
#[derive(Clone, Copy, Debug)]
pub(super) enum JsonPath<'p> {
    Root,
    Field(&'p JsonPath<'p>, &'static str),
    Index(&'p JsonPath<'p>, usize),
}

impl JsonPath<'_> {
    pub(super) const fn field(&self, name: &'static str) -> JsonPath<'_> {
        JsonPath::Field(self, name)
    }

    pub(super) const fn index(&self, index: usize) -> JsonPath<'_> {
        JsonPath::Index(self, index)
    }

    pub(super) fn error(&self, why: &str) -> ChatRequestError {
        ChatRequestError { path: self.to_string(), why: why.into() }
    }
}

impl fmt::Display for JsonPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(JsonPath::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

pub(super) fn text_field<'v>(
    value: &'v Value,
    name: &'static str,
    path: &JsonPath<'_>,
) -> Result<&'v str, ChatRequestError> {
    value.get(name).and_then(Value::as_str).ok_or_else(|| path.field(name).error("expected a text"))
}

pub(super) fn id_field<'v>(
    value: &'v Value,
    name: &'static str,
    path: &JsonPath<'_>,
) -> Result<&'v str, ChatRequestError> {
    match text_field(value, name, path)? {
        "" => Err(path.field(name).error("it is empty")),
        id => Ok(id),
    }
}

/// A text that may be absent. It must not be null.
fn optional_text<'v>(
    value: &'v Value,
    name: &'static str,
    path: &JsonPath<'_>,
) -> Result<Option<&'v str>, ChatRequestError> {
    match value.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Err(path.field(name).error("expected a text; leave it out if there is none"))
        }
    }
}

fn list_field<'v>(
    value: &'v Value,
    name: &'static str,
    path: &JsonPath<'_>,
    count_max: usize,
) -> Result<&'v [Value], ChatRequestError> {
    match value.get(name).and_then(Value::as_array) {
        Some(list) if list.len() <= count_max => Ok(list),
        Some(list) => Err(path.field(name).error(&format!("{} entries, at most {count_max}", list.len()))),
        None => Err(path.field(name).error("expected a list")),
    }
}
