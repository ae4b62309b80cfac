//! Gemini's content API: `POST {base_url}/models/{model}:streamGenerateContent?alt=sse`.

use std::collections::BTreeMap;

use engine::model::{ModelFailure, ModelMessage};
use serde_json::{Map, Value, json};

use super::answer_builder::{AnswerBuilder, FinishReason};
use super::content::{ContentPart, Media, Source, parts};
use super::dialect::{RequestContext, StreamDecoder, corrupt, count, nonempty_text, object, required_text};
use super::failure::{filtered, from_stream_error, permanent};
use super::message::arguments_text;
use super::naming::arguments;
use super::sealed::{self, Piece, ordered_parts};

/// Replaces a missing thought signature. The provider documents this value for that purpose.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

pub(super) fn body(context: &RequestContext<'_>) -> Map<String, Value> {
    let mut body = object([("contents", json!(contents(context)))]);
    let mut params = context.params();
    // Some models refuse a schema together with functions; the instructions ask for the format as well.
    if let Some(schema) = context.request.output_schema.as_ref().filter(|_| context.request.tools.is_empty())
    {
        params.insert("responseMimeType".to_owned(), json!("application/json"));
        params.insert("responseJsonSchema".to_owned(), json!(**schema));
    }
    if !params.is_empty() {
        body.insert("generationConfig".to_owned(), Value::Object(params));
    }
    if !context.request.instructions.is_empty() {
        let system = json!({"parts": [{"text": *context.request.instructions}]});
        body.insert("systemInstruction".to_owned(), system);
    }
    if !context.request.tools.is_empty() {
        let tool = |tool: &engine::tool::ToolDefinition| {
            json!({"name": context.names.to_provider(tool.name.as_str()), "description": tool.description,
                "parametersJsonSchema": *tool.parameters})
        };
        let tools: Value = context.request.tools.iter().map(|definition| tool(definition)).collect();
        body.insert("tools".to_owned(), json!([{"functionDeclarations": tools}]));
    }
    body
}

/// Roles must alternate: consecutive messages of one role become one content with several parts.
fn contents(context: &RequestContext<'_>) -> Vec<Value> {
    // A result must name its tool, but the transcript only names the call.
    let mut tools: BTreeMap<&str, &str> = BTreeMap::new();
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in context.request.messages.iter() {
        if let ModelMessage::Assistant { calls, .. } = message {
            tools.extend(calls.iter().map(|call| (call.id.as_str(), call.tool.as_str())));
        }
        let (role, parts) = encode_message(context, &tools, message);
        match turns.last_mut() {
            Some((before, known)) if *before == role => known.extend(parts),
            Some(_) | None if parts.is_empty() => {}
            Some(_) | None => turns.push((role, parts)),
        }
    }
    turns.into_iter().map(|(role, parts)| json!({"role": role, "parts": parts})).collect()
}

fn encode_message(
    context: &RequestContext<'_>,
    tools: &BTreeMap<&str, &str>,
    message: &ModelMessage,
) -> (&'static str, Vec<Value>) {
    match message {
        ModelMessage::User { content, .. } => ("user", parts(content).iter().map(user_part).collect()),
        ModelMessage::Note { text, .. } | ModelMessage::Notice { text } => {
            ("user", vec![json!({"text": text})])
        }
        ModelMessage::Tool { call, text } => {
            let tool = tools.get(call.as_str()).copied().unwrap_or_default();
            let response = json!({"name": context.names.to_provider(tool), "response": {"result": text}});
            ("user", vec![json!({"functionResponse": response})])
        }
        ModelMessage::Assistant { id, text, calls, .. } => (
            "model",
            encode_answer(
                context,
                ordered_parts(context.seals.pieces(id), text, calls),
                context.seals.pieces(id),
            ),
        ),
    }
}

/// A signature belongs to the call after it. Of calls that were requested together, only the first has one.
fn encode_answer(
    context: &RequestContext<'_>,
    parts: Vec<sealed::AnswerPart<'_>>,
    pieces: &[Piece],
) -> Vec<Value> {
    let none_kept = pieces.is_empty() && wants_signatures(context.model);
    let mut signature = None;
    let mut sent = Vec::new();
    for part in parts {
        match part {
            sealed::AnswerPart::Sealed(value) => signature = Some(value.clone()),
            sealed::AnswerPart::Text(text) => sent.push(json!({"text": text})),
            sealed::AnswerPart::Call(call) => {
                let function =
                    json!({"name": context.names.to_provider(call.tool.as_str()), "args": arguments(call)});
                let signature = signature.take().or_else(|| none_kept.then(|| json!(NO_SIGNATURE)));
                sent.push(match signature {
                    Some(signature) => json!({"functionCall": function, "thoughtSignature": signature}),
                    None => json!({"functionCall": function}),
                });
            }
        }
    }
    sent
}

/// Models before the third generation accept calls without signatures.
fn wants_signatures(model: &str) -> bool {
    !["gemini-1", "gemini-2", "gemma"].iter().any(|old| model.starts_with(old))
}

fn user_part(part: &ContentPart<'_>) -> Value {
    match part {
        ContentPart::Text(text) => json!({"text": text}),
        ContentPart::Media(media) => media_part(media),
    }
}

fn media_part(media: &Media<'_>) -> Value {
    match media.source {
        Source::Url(url) => json!({"fileData": {"mimeType": media.media_type, "fileUri": url}}),
        Source::Base64(data) => json!({"inlineData": {"mimeType": media.media_type, "data": data}}),
    }
}

/// Decodes chunks. There is no end marker: the finish reason marks the end.
pub(super) struct GeminiDecoder;

impl StreamDecoder for GeminiDecoder {
    fn decode(&mut self, chunk: &Value, answer: &mut AnswerBuilder) -> Result<(), ModelFailure> {
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(from_stream_error(chunk));
        }
        if !chunk.is_object() {
            return Err(corrupt("a message that is no object"));
        }
        if let Some(usage) = chunk.get("usageMetadata") {
            answer.usage.input_tokens = count(usage, "promptTokenCount");
            answer.usage.output_tokens =
                count(usage, "candidatesTokenCount") + count(usage, "thoughtsTokenCount");
        }
        if let Some(reason) = chunk.pointer("/promptFeedback/blockReason").and_then(Value::as_str) {
            return Err(permanent(filtered(&format!("it did not answer: {reason}"))));
        }
        let Some(candidate) = chunk.get("candidates").and_then(|candidates| candidates.get(0)) else {
            return Ok(());
        };
        let parts = candidate.pointer("/content/parts").and_then(Value::as_array);
        for part in parts.into_iter().flatten() {
            decode_part(part, answer)?;
        }
        if let Some(reason) = nonempty_text(candidate, "finishReason") {
            answer.finish = Some(match reason {
                "MAX_TOKENS" => FinishReason::CutOff,
                "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII"
                | "IMAGE_SAFETY" => FinishReason::Filtered,
                "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" => FinishReason::Garbled,
                _ => FinishReason::Answered,
            });
        }
        Ok(())
    }
}

fn decode_part(part: &Value, answer: &mut AnswerBuilder) -> Result<(), ModelFailure> {
    if let Some(call) = part.get("functionCall") {
        if let Some(signature) = nonempty_text(part, "thoughtSignature") {
            answer.add_sealed(json!(signature))?;
        }
        let call_index = answer.call_count();
        answer.add_call(
            call_index,
            nonempty_text(call, "id").unwrap_or_default(),
            required_text(call, "name")?,
        )?;
        let whole = call.get("args").and_then(arguments_text);
        return whole.map_or(Ok(()), |args| answer.add_arguments(call_index, &args));
    }
    let Some(words) = nonempty_text(part, "text") else { return Ok(()) };
    if part.get("thought").and_then(Value::as_bool) == Some(true) {
        answer.add_reasoning(words)
    } else {
        answer.add_text(words)
    }
}
