//! OpenAI's Chat Completions API, which many servers implement: `POST {base_url}/chat/completions`.

use engine::model::{AssistantCall, ModelFailure, ModelMessage};
use serde_json::{Map, Value, json};

use super::answer_builder::{AnswerBuilder, FinishReason};
use super::content::{Media, Source, text_or_parts};
use super::dialect::{RequestContext, StreamDecoder, corrupt, count, nonempty_text, object};
use super::failure::from_stream_error;
use super::naming::arguments;

pub(super) fn body(context: &RequestContext<'_>) -> Map<String, Value> {
    let instructions = Some(&context.request.instructions).filter(|text| !text.is_empty());
    let system = instructions.map(|text| json!({"role": "system", "content": **text}));
    let messages: Vec<Value> = system
        .into_iter()
        .chain(context.request.messages.iter().filter_map(|message| encode_message(context, message)))
        .collect();
    let mut body = context.params();
    body.extend(object([
        ("model", json!(context.model)),
        ("messages", json!(messages)),
        ("stream", json!(true)),
        ("stream_options", json!({"include_usage": true})),
    ]));
    if !context.request.tools.is_empty() {
        body.insert("tools".to_owned(), tools(context));
    }
    body
}

pub(super) fn tools(context: &RequestContext<'_>) -> Value {
    let tool = |tool: &engine::tool::ToolDefinition| {
        json!({"type": "function", "function": {
            "name": context.names.to_provider(tool.name.as_str()),
            "description": tool.description,
            "parameters": *tool.parameters,
        }})
    };
    context.request.tools.iter().map(|definition| tool(definition)).collect()
}

fn encode_message(context: &RequestContext<'_>, message: &ModelMessage) -> Option<Value> {
    Some(match message {
        ModelMessage::User { content, .. } => {
            json!({"role": "user", "content": text_or_parts(content, "text", media_part)})
        }
        ModelMessage::Note { text, .. } | ModelMessage::Notice { text } => {
            json!({"role": "user", "content": text})
        }
        ModelMessage::Tool { call, text } => {
            json!({"role": "tool", "tool_call_id": context.ids.to_provider(call.as_str()), "content": text})
        }
        ModelMessage::Assistant { text, calls, .. } if calls.is_empty() => {
            // A hook dropped everything in this answer. Some servers refuse an empty message.
            if text.is_empty() {
                return None;
            }
            json!({"role": "assistant", "content": text})
        }
        ModelMessage::Assistant { text, calls, .. } => {
            let content = if text.is_empty() { Value::Null } else { json!(text) };
            let calls: Vec<Value> = calls.iter().map(|call| encode_call(context, call)).collect();
            json!({"role": "assistant", "content": content, "tool_calls": calls})
        }
    })
}

fn encode_call(context: &RequestContext<'_>, call: &AssistantCall) -> Value {
    json!({"id": context.ids.to_provider(call.id.as_str()), "type": "function", "function": {
        "name": context.names.to_provider(call.tool.as_str()),
        "arguments": arguments(call).to_string(),
    }})
}

fn media_part(media: &Media<'_>) -> Value {
    let audio = media.media_type.strip_prefix("audio/");
    match (media.source, audio) {
        (Source::Url(_) | Source::Base64(_), None) if media.is_image() => {
            json!({"type": "image_url", "image_url": {"url": media.url()}})
        }
        (Source::Base64(data), Some(format)) => {
            let format = if format == "mpeg" { "mp3" } else { format };
            json!({"type": "input_audio", "input_audio": {"data": data, "format": format}})
        }
        (Source::Base64(_), None) => {
            json!({"type": "file", "file": {"filename": media.file_name(), "file_data": media.url()}})
        }
        (Source::Url(_), None | Some(_)) => json!({"type": "text", "text": media.placeholder()}),
    }
}

/// Decodes chunks. Each adds to the single choice that was requested.
#[derive(Default)]
pub(super) struct ChatDecoder {
    /// The call of the previous delta.
    last: Option<u16>,
}

impl StreamDecoder for ChatDecoder {
    fn decode(&mut self, chunk: &Value, answer: &mut AnswerBuilder) -> Result<(), ModelFailure> {
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(from_stream_error(chunk));
        }
        if !chunk.is_object() {
            return Err(corrupt("a message that is no object"));
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            answer.usage.input_tokens = count(usage, "prompt_tokens");
            answer.usage.output_tokens = count(usage, "completion_tokens");
        }
        // The chunk with the usage has no choice.
        let Some(choice) = chunk.get("choices").and_then(|choices| choices.get(0)) else { return Ok(()) };
        if let Some(delta) = choice.get("delta").or_else(|| choice.get("message")) {
            self.decode_delta(delta, answer)?;
        }
        if let Some(reason) = nonempty_text(choice, "finish_reason") {
            answer.finish = Some(match reason {
                "length" => FinishReason::CutOff,
                "content_filter" => FinishReason::Filtered,
                "error" => return Err(from_stream_error(choice)),
                // `stop`, `tool_calls`, and other servers' names for these.
                _ => FinishReason::Answered,
            });
        }
        Ok(())
    }
}

impl ChatDecoder {
    fn decode_delta(&mut self, delta: &Value, answer: &mut AnswerBuilder) -> Result<(), ModelFailure> {
        // Two names for the same field. Some servers send both.
        if let Some(thought) =
            nonempty_text(delta, "reasoning_content").or_else(|| nonempty_text(delta, "reasoning"))
        {
            answer.add_reasoning(thought)?;
        }
        for text in [nonempty_text(delta, "content"), nonempty_text(delta, "refusal")].into_iter().flatten() {
            answer.add_text(text)?;
        }
        for part in delta.get("content").and_then(Value::as_array).into_iter().flatten() {
            if let Some(text) = nonempty_text(part, "text") {
                answer.add_text(text)?;
            }
        }
        for piece in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.decode_call(piece, answer)?;
        }
        Ok(())
    }

    fn decode_call(&mut self, piece: &Value, answer: &mut AnswerBuilder) -> Result<(), ModelFailure> {
        let function = piece.get("function").unwrap_or(&Value::Null);
        let (id, name) = (
            nonempty_text(piece, "id").unwrap_or_default(),
            nonempty_text(function, "name").unwrap_or_default(),
        );
        let call_index = self.call_index(piece, id, name, answer)?;
        self.last = Some(call_index);
        answer.add_call(call_index, id, name)?;
        match function.get("arguments") {
            Some(Value::String(text)) => answer.add_arguments(call_index, text),
            Some(whole @ Value::Object(_)) => answer.add_arguments(call_index, &whole.to_string()),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_)) | None => Ok(()),
        }
    }

    /// By `index`. Some servers omit it, and some give every call the same one; then a different id starts a different
    /// call.
    fn call_index(
        &self,
        piece: &Value,
        id: &str,
        name: &str,
        answer: &AnswerBuilder,
    ) -> Result<u16, ModelFailure> {
        let index = match piece.get("index").and_then(Value::as_u64) {
            Some(index) => {
                Some(u16::try_from(index).map_err(|_| corrupt("a call far away from the others"))?)
            }
            None => None,
        };
        let other = |place: u16| {
            let known = answer.call(place).map_or("", |call| call.id.as_str());
            !id.is_empty() && !known.is_empty() && known != id
        };
        match (index, self.last) {
            (Some(index), _) if !other(index) => Ok(index),
            (None, Some(last)) if (id.is_empty() && name.is_empty()) || (!id.is_empty() && !other(last)) => {
                Ok(last)
            }
            (Some(_) | None, _) => {
                let known = (0..answer.call_count())
                    .find(|place| !id.is_empty() && answer.call(*place).is_some_and(|call| call.id == id));
                Ok(known.unwrap_or_else(|| answer.call_count()))
            }
        }
    }
}
