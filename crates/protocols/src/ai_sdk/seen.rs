//! What the client already has of the message that it continues.

use std::collections::BTreeMap;

use serde_json::Value;

use super::message::ToolState;
use super::request::{ChatRequestError, JsonPath, id_field, text_field};

/// The contents of a posted assistant message, as far as a continuation must know them. It decides only which chunks
/// this client is sent: nothing in it is taken for a fact about the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    /// Number of steps that have begun.
    pub(super) steps: u32,
    pub(super) tools: BTreeMap<String, SeenTool>,
    /// Suspensions that are shown, and whether they are shown as open.
    pub(super) suspensions: BTreeMap<String, bool>,
    /// The text of the last step.
    pub(super) text: String,
    pub(super) reasoning: String,
}

/// A tool call as the client shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct SeenTool {
    pub(super) state: ToolState,
    /// The last approval that was requested.
    pub(super) approval_id: Option<String>,
    pub(super) dynamic: bool,
    pub(super) has_input: bool,
    /// The step with the call, counted from 1; 0 before the first.
    pub(super) step: u32,
}

impl Seen {
    /// Forgets an output that the client posted and that was not accepted. The client is then sent the stored one, or
    /// the call again.
    pub fn forget_output(&mut self, call_id: &str) {
        if let Some(tool) = self.tools.get_mut(call_id).filter(|tool| tool.state.is_settled()) {
            tool.state = ToolState::InputAvailable;
        }
    }

    /// Number of steps that the message has begun.
    #[must_use]
    pub const fn steps(&self) -> u32 {
        self.steps
    }

    pub(super) fn tool_in_last_step(&self) -> bool {
        self.tools.values().any(|tool| tool.step == self.steps)
    }

    /// Reads the parts of an assistant message. Types of parts that this server does not send are ignored.
    pub(super) fn from_parts(parts: &[Value], path: &JsonPath<'_>) -> Result<Self, ChatRequestError> {
        let mut seen = Self::default();
        for (index, part) in parts.iter().enumerate() {
            let path = path.index(index);
            match text_field(part, "type", &path)? {
                "step-start" => {
                    seen.steps = seen.steps.saturating_add(1);
                    seen.text.clear();
                    seen.reasoning.clear();
                }
                "text" if !is_discarded(part) => seen.text.push_str(text_field(part, "text", &path)?),
                "reasoning" if !is_discarded(part) => {
                    seen.reasoning.push_str(text_field(part, "text", &path)?);
                }
                "data-suspension" => {
                    let is_open = part.pointer("/data/status").and_then(Value::as_str) == Some("open");
                    if let Some(id) = part.get("id").and_then(Value::as_str) {
                        seen.suspensions.insert(id.into(), is_open);
                    }
                }
                name if is_tool_part(name) => {
                    let tool = SeenTool::from_part(part, name, seen.steps, &path)?;
                    let call_id = id_field(part, "toolCallId", &path)?;
                    if seen.tools.insert(call_id.into(), tool).is_some() {
                        let why = format!("another part of the message has the id `{call_id}` as well");
                        return Err(path.field("toolCallId").error(&why));
                    }
                }
                _ => {}
            }
        }
        Ok(seen)
    }
}

impl SeenTool {
    fn from_part(part: &Value, name: &str, step: u32, path: &JsonPath<'_>) -> Result<Self, ChatRequestError> {
        let state_path = path.field("state");
        let state = ToolState::from_wire(text_field(part, "state", path)?)
            .ok_or_else(|| state_path.error("it is not a state of a tool part"))?;
        let approval_id = match part.get("approval") {
            Some(approval) => Some(id_field(approval, "id", &path.field("approval"))?.into()),
            None => None,
        };
        let (dynamic, has_input) = (name == DYNAMIC_TOOL, part.get("input").is_some());
        Ok(Self { state, approval_id, dynamic, has_input, step })
    }
}

pub(super) const DYNAMIC_TOOL: &str = "dynamic-tool";

/// Whether this is the type of a part of a tool call.
pub(super) fn is_tool_part(name: &str) -> bool {
    name == DYNAMIC_TOOL || name.strip_prefix("tool-").is_some_and(|tool| !tool.is_empty())
}

fn is_discarded(part: &Value) -> bool {
    part.pointer("/providerMetadata/holdpoint/discarded").and_then(Value::as_bool) == Some(true)
}
