//! Ollama's chat API: `POST {base_url}/api/chat`, one JSON text per line.

use std::collections::BTreeMap;

use engine::model::{ModelFailure, ModelMessage};
use serde_json::{Map, Value, json};

use super::answer_builder::{AnswerBuilder, FinishReason};
use super::chat;
use super::content::{ContentPart, Source, parts};
use super::dialect::{RequestContext, StreamDecoder, corrupt, count, nonempty_text, object, required_text};
use super::failure::from_stream_error;
use super::message::arguments_text;
use super::naming::arguments;

/// Parameters that are top-level fields and not model options.
const OUTER_PARAMS: [&str; 3] = ["format", "keep_alive", "think"];

pub(super) fn body(context: &RequestContext<'_>) -> Map<String, Value> {
    let (mut body, options): (Map<String, Value>, Map<String, Value>) =
        context.params().into_iter().partition(|(name, _)| OUTER_PARAMS.contains(&name.as_str()));
    let mut tools: BTreeMap<&str, &str> = BTreeMap::new();
    let mut messages = Vec::new();
    if !context.request.instructions.is_empty() {
        messages.push(json!({"role": "system", "content": *context.request.instructions}));
    }
    for message in context.request.messages.iter() {
        if let ModelMessage::Assistant { calls, .. } = message {
            tools.extend(calls.iter().map(|call| (call.id.as_str(), call.tool.as_str())));
        }
        messages.push(encode_message(context, &tools, message));
    }
    // Together with tools it would keep the model from calling one; the instructions ask for the format as well.
    if let Some(schema) = context.request.output_schema.as_ref().filter(|_| context.request.tools.is_empty())
    {
        body.insert("format".to_owned(), json!(**schema));
    }
    body.extend(object([
        ("model", json!(context.model)),
        ("messages", json!(messages)),
        ("stream", json!(true)),
    ]));
    if !options.is_empty() {
        body.insert("options".to_owned(), Value::Object(options));
    }
    if !context.request.tools.is_empty() {
        body.insert("tools".to_owned(), chat::tools(context));
    }
    body
}

fn encode_message(
    context: &RequestContext<'_>,
    tools: &BTreeMap<&str, &str>,
    message: &ModelMessage,
) -> Value {
    match message {
        ModelMessage::User { content, .. } => user(content),
        ModelMessage::Note { text, .. } | ModelMessage::Notice { text } => {
            json!({"role": "user", "content": text})
        }
        ModelMessage::Tool { call, text } => {
            let tool = tools.get(call.as_str()).copied().unwrap_or_default();
            json!({"role": "tool", "tool_name": context.names.to_provider(tool), "content": text})
        }
        ModelMessage::Assistant { text, calls, .. } if calls.is_empty() => {
            json!({"role": "assistant", "content": text})
        }
        ModelMessage::Assistant { text, calls, .. } => {
            let asked = calls.iter().map(|call| {
                json!({"function": {"name": context.names.to_provider(call.tool.as_str()), "arguments": arguments(call)}})
            });
            json!({"role": "assistant", "content": text, "tool_calls": asked.collect::<Vec<Value>>()})
        }
    }
}

/// Images are sent in a field beside the text; nothing else is.
fn user(content: &Value) -> Value {
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    for part in parts(content) {
        match part {
            ContentPart::Text(text) => texts.push(text.into_owned()),
            ContentPart::Media(media) => match media.source {
                Source::Base64(data) if media.is_image() => images.push(data),
                Source::Base64(_) | Source::Url(_) => texts.push(media.placeholder()),
            },
        }
    }
    let mut message = json!({"role": "user", "content": texts.join("\n")});
    if !images.is_empty() {
        message["images"] = json!(images);
    }
    message
}

/// Decodes lines. The last one is marked as such.
pub(super) struct OllamaDecoder;

impl StreamDecoder for OllamaDecoder {
    fn decode(&mut self, line: &Value, answer: &mut AnswerBuilder) -> Result<(), ModelFailure> {
        if line.get("error").is_some_and(|error| !error.is_null()) {
            return Err(from_stream_error(line));
        }
        if !line.is_object() {
            return Err(corrupt("a line that is no object"));
        }
        let message = line.get("message").unwrap_or(&Value::Null);
        if let Some(thought) = nonempty_text(message, "thinking") {
            answer.add_reasoning(thought)?;
        }
        if let Some(words) = nonempty_text(message, "content") {
            answer.add_text(words)?;
        }
        for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            let function = call.get("function").ok_or_else(|| corrupt("a call without a function"))?;
            let call_index = answer.call_count();
            answer.add_call(
                call_index,
                nonempty_text(call, "id").unwrap_or_default(),
                required_text(function, "name")?,
            )?;
            if let Some(whole) = function.get("arguments").and_then(arguments_text) {
                answer.add_arguments(call_index, &whole)?;
            }
        }
        if line.get("done").and_then(Value::as_bool) == Some(true) {
            answer.usage.input_tokens = count(line, "prompt_eval_count");
            answer.usage.output_tokens = count(line, "eval_count");
            let cut_off = nonempty_text(line, "done_reason") == Some("length");
            answer.finish = Some(if cut_off { FinishReason::CutOff } else { FinishReason::Answered });
            answer.ended = true;
        }
        Ok(())
    }
}
