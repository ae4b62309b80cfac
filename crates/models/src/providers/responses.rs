//! OpenAI's Responses API: `POST {base_url}/responses`. Nothing is stored there: the conversation stays with us.

use std::collections::{BTreeMap, BTreeSet};

use engine::model::{ModelFailure, ModelMessage};
use serde_json::{Map, Value, json};

use super::answer_builder::{AnswerBuilder, FinishReason};
use super::content::{Media, Source, text_or_parts};
use super::dialect::{RequestContext, StreamDecoder, corrupt, count, nonempty_text, object, required_text};
use super::failure::from_stream_error;
use super::naming::arguments;
use super::sealed::{self, ordered_parts};

pub(super) fn body(context: &RequestContext<'_>) -> Map<String, Value> {
    let input: Vec<Value> =
        context.request.messages.iter().flat_map(|message| encode_message(context, message)).collect();
    let mut body = context.params();
    body.extend(object([
        ("model", json!(context.model)),
        ("input", json!(input)),
        ("stream", json!(true)),
        ("store", json!(false)),
    ]));
    if is_reasoning_model(context, &body) {
        let included = body.entry("include").or_insert_with(|| json!([]));
        if let Value::Array(included) = included
            && !included.contains(&json!(ENCRYPTED))
        {
            included.push(json!(ENCRYPTED));
        }
    }
    if !context.request.instructions.is_empty() {
        body.insert("instructions".to_owned(), json!(*context.request.instructions));
    }
    if let Some(schema) = &context.request.output_schema {
        // Strict schemas support only a subset of ours. We check ourselves whether the answer fits.
        let format = json!({"type": "json_schema", "name": "output", "schema": **schema, "strict": false});
        // Keeps other settings for `text`.
        if let Value::Object(text) = body.entry("text").or_insert_with(|| json!({})) {
            text.insert("format".to_owned(), format);
        }
    }
    if !context.request.tools.is_empty() {
        let tool = |tool: &engine::tool::ToolDefinition| {
            // Strict schemas support only a subset of what our tools may use.
            json!({"type": "function", "name": context.names.to_provider(tool.name.as_str()), "strict": false,
                "description": tool.description, "parameters": *tool.parameters})
        };
        body.insert(
            "tools".to_owned(),
            context.request.tools.iter().map(|definition| tool(definition)).collect(),
        );
    }
    body
}

/// Reasoning that can be sent back although the provider stores nothing.
const ENCRYPTED: &str = "reasoning.encrypted_content";

/// Models that do not reason refuse a request for it.
fn is_reasoning_model(context: &RequestContext<'_>, params: &Map<String, Value>) -> bool {
    let known = ["o1", "o3", "o4", "gpt-5"].iter().any(|name| context.model.starts_with(name));
    params.get("reasoning").is_some_and(Value::is_object)
        || (known && !context.model.starts_with("gpt-5-chat"))
}

fn encode_message(context: &RequestContext<'_>, message: &ModelMessage) -> Vec<Value> {
    match message {
        ModelMessage::User { content, .. } => {
            vec![json!({"role": "user", "content": text_or_parts(content, "input_text", media_part)})]
        }
        ModelMessage::Note { text, .. } | ModelMessage::Notice { text } => {
            vec![json!({"role": "user", "content": text})]
        }
        ModelMessage::Tool { call, text } => {
            vec![
                json!({"type": "function_call_output", "call_id": context.ids.to_provider(call.as_str()), "output": text}),
            ]
        }
        ModelMessage::Assistant { id, text, calls, .. } => {
            let mut parts = ordered_parts(context.seals.pieces(id), text, calls);
            // Reasoning with nothing after it is refused.
            while matches!(parts.last(), Some(sealed::AnswerPart::Sealed(_))) {
                parts.pop();
            }
            parts.into_iter().map(|part| encode_part(context, part)).collect()
        }
    }
}

fn encode_part(context: &RequestContext<'_>, part: sealed::AnswerPart<'_>) -> Value {
    match part {
        sealed::AnswerPart::Sealed(item) => item.clone(),
        sealed::AnswerPart::Text(text) => json!({"role": "assistant", "content": text}),
        sealed::AnswerPart::Call(call) => {
            json!({"type": "function_call", "call_id": context.ids.to_provider(call.id.as_str()),
            "name": context.names.to_provider(call.tool.as_str()), "arguments": arguments(call).to_string()})
        }
    }
}

fn media_part(media: &Media<'_>) -> Value {
    if media.is_image() {
        return json!({"type": "input_image", "image_url": media.url(), "detail": "auto"});
    }
    match media.source {
        Source::Url(url) => json!({"type": "input_file", "file_url": url}),
        Source::Base64(_) => {
            json!({"type": "input_file", "filename": media.file_name(), "file_data": media.url()})
        }
    }
}

/// Decodes events. The complete values in the last event override earlier deltas.
#[derive(Default)]
pub(super) struct ResponsesDecoder {
    /// The calls by their output index.
    calls: BTreeMap<u64, u16>,
    /// Output indices of reasoning that is already stored.
    sealed: BTreeSet<u64>,
    /// Summaries are sent in parts.
    summary_part: Option<(u64, u64)>,
}

impl StreamDecoder for ResponsesDecoder {
    fn decode(&mut self, event: &Value, answer: &mut AnswerBuilder) -> Result<(), ModelFailure> {
        match required_text(event, "type")? {
            "response.output_text.delta" | "response.refusal.delta" => {
                answer.add_text(required_text(event, "delta")?)
            }
            "response.reasoning_text.delta" => answer.add_reasoning(required_text(event, "delta")?),
            "response.reasoning_summary_text.delta" => {
                let part = (count(event, "output_index"), count(event, "summary_index"));
                if self.summary_part.replace(part).is_some_and(|before| before != part) {
                    answer.add_reasoning("\n")?;
                }
                answer.add_reasoning(required_text(event, "delta")?)
            }
            "response.output_item.added" | "response.output_item.done" => {
                let item = event.get("item").ok_or_else(|| corrupt("an item that is not there"))?;
                let is_whole = nonempty_text(event, "type") == Some("response.output_item.done");
                self.decode_item(count(event, "output_index"), item, is_whole, answer)
            }
            "response.function_call_arguments.delta" => match self.calls.get(&count(event, "output_index")) {
                Some(call_index) => answer.add_arguments(*call_index, required_text(event, "delta")?),
                None => Err(corrupt("arguments of a call that was not announced")),
            },
            "response.completed" => self.decode_end(event, FinishReason::Answered, answer),
            "response.incomplete" => {
                let details = event.pointer("/response/incomplete_details").unwrap_or(&Value::Null);
                let finish = if nonempty_text(details, "reason") == Some("content_filter") {
                    FinishReason::Filtered
                } else {
                    FinishReason::CutOff
                };
                self.decode_end(event, finish, answer)
            }
            "response.failed" => Err(from_stream_error(event.get("response").unwrap_or(event))),
            "error" => Err(from_stream_error(event)),
            // Starts and ends of parts, provider tools that are not enabled, and event types of the future.
            _ => Ok(()),
        }
    }
}

impl ResponsesDecoder {
    fn decode_item(
        &mut self,
        index: u64,
        item: &Value,
        is_whole: bool,
        answer: &mut AnswerBuilder,
    ) -> Result<(), ModelFailure> {
        match nonempty_text(item, "type") {
            Some("function_call") => {}
            Some("reasoning") if is_whole => return self.decode_reasoning(index, item, answer),
            Some(_) | None => return Ok(()),
        }
        let call_index = *self.calls.entry(index).or_insert_with(|| answer.call_count());
        answer.add_call(call_index, required_text(item, "call_id")?, required_text(item, "name")?)?;
        match nonempty_text(item, "arguments") {
            Some(whole) => answer.set_arguments(call_index, whole),
            None => Ok(()),
        }
    }

    /// Reasoning without its encrypted content could not be sent back.
    fn decode_reasoning(
        &mut self,
        index: u64,
        item: &Value,
        answer: &mut AnswerBuilder,
    ) -> Result<(), ModelFailure> {
        let Some(encrypted) = nonempty_text(item, "encrypted_content") else { return Ok(()) };
        if !self.sealed.insert(index) {
            return Ok(());
        }
        let summary = item.get("summary").cloned().unwrap_or_else(|| json!([]));
        let mut kept = object([
            ("type", json!("reasoning")),
            ("summary", summary),
            ("encrypted_content", json!(encrypted)),
        ]);
        if let Some(id) = nonempty_text(item, "id") {
            kept.insert("id".to_owned(), json!(id));
        }
        answer.add_sealed(Value::Object(kept))
    }

    fn decode_end(
        &mut self,
        event: &Value,
        finish: FinishReason,
        answer: &mut AnswerBuilder,
    ) -> Result<(), ModelFailure> {
        let response = event.get("response").ok_or_else(|| corrupt("an end without a response"))?;
        let mut whole = String::new();
        for (item, index) in response.get("output").and_then(Value::as_array).into_iter().flatten().zip(0..) {
            self.decode_item(index, item, true, answer)?;
            // Reasoning items have content too, so only messages are read.
            let content = Some(item).filter(|item| nonempty_text(item, "type") == Some("message"));
            let content = content.and_then(|item| item.get("content")?.as_array());
            for part in content.into_iter().flatten() {
                whole.push_str(
                    nonempty_text(part, "text")
                        .or_else(|| nonempty_text(part, "refusal"))
                        .unwrap_or_default(),
                );
            }
        }
        if !whole.is_empty() {
            match whole.strip_prefix(answer.text.as_str()) {
                Some(missing) => answer.add_text(missing)?,
                None => answer.text = whole,
            }
        }
        if let Some(usage) = response.get("usage") {
            answer.usage.input_tokens = count(usage, "input_tokens");
            answer.usage.output_tokens = count(usage, "output_tokens");
        }
        answer.finish = Some(finish);
        answer.ended = true;
        Ok(())
    }
}
