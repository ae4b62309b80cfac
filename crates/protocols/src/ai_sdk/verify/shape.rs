//! The form of chunks: the fields of each type that the strictest clients accept.

use serde_json::{Map, Value};

use super::{ChunkRule, IllegalChunk};
use crate::ai_sdk::chunk::{Chunk, DataChunk, FinishReason, RawOutput, discarded_mark};

pub(super) fn parse(json: &Value) -> Result<Chunk, IllegalChunk> {
    let kind = json.get("type").and_then(Value::as_str).unwrap_or_default();
    let Some(object) = json.as_object() else {
        return Err(IllegalChunk { rule: ChunkRule::WrongType, chunk: kind.into(), subject: String::new() });
    };
    let mut fields = ChunkFields { kind, left: object.clone() };
    fields.left.remove("type");
    let chunk = fields.chunk()?;
    match fields.left.keys().next() {
        Some(field) => Err(fields.broken(ChunkRule::UnknownField, field)),
        None => Ok(chunk),
    }
}

struct ChunkFields<'c> {
    kind: &'c str,
    /// Fields that were not read yet.
    left: Map<String, Value>,
}

impl ChunkFields<'_> {
    fn chunk(&mut self) -> Result<Chunk, IllegalChunk> {
        Ok(match self.kind {
            "start" => Chunk::Start {
                message_id: self.text("messageId")?,
                message_metadata: self.optional("messageMetadata")?,
            },
            "text-start" => Chunk::TextStart { id: self.text("id")? },
            "text-delta" => Chunk::TextDelta { id: self.text("id")?, delta: self.text("delta")? },
            "text-end" => Chunk::TextEnd { id: self.text("id")?, discarded: self.discarded()? },
            "reasoning-start" => Chunk::ReasoningStart { id: self.text("id")? },
            "reasoning-delta" => Chunk::ReasoningDelta { id: self.text("id")?, delta: self.text("delta")? },
            "reasoning-end" => Chunk::ReasoningEnd { id: self.text("id")?, discarded: self.discarded()? },
            "start-step" => Chunk::StartStep,
            "finish-step" => Chunk::FinishStep,
            "message-metadata" => Chunk::MessageMetadata { message_metadata: self.value("messageMetadata")? },
            "error" => Chunk::Error { error_text: self.text("errorText")? },
            "abort" => Chunk::Abort,
            "finish" => Chunk::Finish {
                finish_reason: self.finish_reason()?,
                message_metadata: self.optional("messageMetadata")?,
            },
            kind if kind.starts_with("data-") => Chunk::Data(DataChunk {
                name: kind.into(),
                id: self.optional_text("id")?,
                data: self.value("data")?,
                transient: self.flag("transient")?,
            }),
            _ => self.call_chunk()?,
        })
    }

    fn call_chunk(&mut self) -> Result<Chunk, IllegalChunk> {
        if !self.kind.starts_with("tool-") {
            return Err(self.broken(ChunkRule::UnknownType, ""));
        }
        let tool_call_id = self.text("toolCallId")?;
        Ok(match self.kind {
            "tool-input-start" => Chunk::ToolInputStart {
                tool_call_id,
                tool_name: self.text("toolName")?,
                dynamic: self.flag("dynamic")?,
            },
            "tool-input-delta" => {
                Chunk::ToolInputDelta { tool_call_id, input_text_delta: self.text("inputTextDelta")? }
            }
            "tool-input-available" => Chunk::ToolInputAvailable {
                tool_call_id,
                tool_name: self.text("toolName")?,
                input: self.value("input")?,
                dynamic: self.flag("dynamic")?,
            },
            "tool-approval-request" => {
                Chunk::ToolApprovalRequest { approval_id: self.text("approvalId")?, tool_call_id }
            }
            "tool-output-available" => Chunk::ToolOutputAvailable {
                tool_call_id,
                output: RawOutput::from(&self.value("output")?),
                dynamic: self.flag("dynamic")?,
            },
            "tool-output-error" => Chunk::ToolOutputError {
                tool_call_id,
                error_text: self.text("errorText")?,
                dynamic: self.flag("dynamic")?,
            },
            "tool-output-denied" => Chunk::ToolOutputDenied { tool_call_id },
            _ => return Err(self.broken(ChunkRule::UnknownType, "")),
        })
    }

    /// Any value, null included.
    fn value(&mut self, name: &str) -> Result<Value, IllegalChunk> {
        self.left.remove(name).ok_or_else(|| self.broken(ChunkRule::MissingField, name))
    }

    fn optional(&mut self, name: &str) -> Result<Option<Value>, IllegalChunk> {
        match self.left.remove(name) {
            Some(Value::Null) => Err(self.broken(ChunkRule::NullField, name)),
            value => Ok(value),
        }
    }

    fn text(&mut self, name: &str) -> Result<String, IllegalChunk> {
        self.optional_text(name)?.ok_or_else(|| self.broken(ChunkRule::MissingField, name))
    }

    fn optional_text(&mut self, name: &str) -> Result<Option<String>, IllegalChunk> {
        match self.optional(name)? {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                Err(self.broken(ChunkRule::WrongType, name))
            }
        }
    }

    fn flag(&mut self, name: &str) -> Result<bool, IllegalChunk> {
        match self.optional(name)? {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(Value::Null | Value::String(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                Err(self.broken(ChunkRule::WrongType, name))
            }
        }
    }

    fn discarded(&mut self) -> Result<bool, IllegalChunk> {
        match self.optional("providerMetadata")? {
            None => Ok(false),
            Some(metadata) if metadata == discarded_mark() => Ok(true),
            Some(_) => Err(self.broken(ChunkRule::WrongType, "providerMetadata")),
        }
    }

    fn finish_reason(&mut self) -> Result<FinishReason, IllegalChunk> {
        let name = self.text("finishReason")?;
        FinishReason::from_wire(&name).ok_or_else(|| self.broken(ChunkRule::UnknownFinishReason, &name))
    }

    fn broken(&self, rule: ChunkRule, subject: &str) -> IllegalChunk {
        IllegalChunk { rule, chunk: self.kind.into(), subject: subject.into() }
    }
}
