//! The contents of Gemini: `POST {base_url}/models/{model}:streamGenerateContent?alt=sse`.

use std::collections::BTreeMap;

use engine::model::{ModelFailure, ModelMessage};
use serde_json::{Map, Value, json};

use super::content::{Media, Part, Source, parts};
use super::dialect::{Ask, Hearing, corrupt, count, object, said, text};
use super::failure::{filtered, for_good, told_in_stream};
use super::growing::{Finish, Growing};
use super::message::arguments_text;
use super::naming::arguments;
use super::sealed::{self, Piece, woven};

/// What stands where a signature of the model's thoughts would, where there is none: the provider names this for that.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

pub(super) fn body(ask: &Ask<'_>) -> Map<String, Value> {
    let mut body = object([("contents", json!(contents(ask)))]);
    let mut params = ask.params();
    // Beside functions a schema is refused by some models; the instructions ask for it as well.
    if let Some(schema) = ask.request.output_schema.as_ref().filter(|_| ask.request.tools.is_empty()) {
        params.insert("responseMimeType".to_owned(), json!("application/json"));
        params.insert("responseJsonSchema".to_owned(), json!(**schema));
    }
    if !params.is_empty() {
        body.insert("generationConfig".to_owned(), Value::Object(params));
    }
    if !ask.request.instructions.is_empty() {
        let system = json!({"parts": [{"text": *ask.request.instructions}]});
        body.insert("systemInstruction".to_owned(), system);
    }
    if !ask.request.tools.is_empty() {
        let tool = |tool: &engine::tool::ToolDefinition| {
            json!({"name": ask.names.sent(tool.name.as_str()), "description": tool.description,
                "parametersJsonSchema": *tool.parameters})
        };
        let tools: Value = ask.request.tools.iter().map(|definition| tool(definition)).collect();
        body.insert("tools".to_owned(), json!([{"functionDeclarations": tools}]));
    }
    body
}

/// Roles take turns: what one says in several messages is one content of several parts.
fn contents(ask: &Ask<'_>) -> Vec<Value> {
    // A result names its tool; the transcript names the call alone.
    let mut tools: BTreeMap<&str, &str> = BTreeMap::new();
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in ask.request.messages.iter() {
        if let ModelMessage::Assistant { calls, .. } = message {
            tools.extend(calls.iter().map(|call| (call.id.as_str(), call.tool.as_str())));
        }
        let (role, parts) = sent(ask, &tools, message);
        match turns.last_mut() {
            Some((before, known)) if *before == role => known.extend(parts),
            Some(_) | None if parts.is_empty() => {}
            Some(_) | None => turns.push((role, parts)),
        }
    }
    turns.into_iter().map(|(role, parts)| json!({"role": role, "parts": parts})).collect()
}

fn sent(ask: &Ask<'_>, tools: &BTreeMap<&str, &str>, message: &ModelMessage) -> (&'static str, Vec<Value>) {
    match message {
        ModelMessage::User { content, .. } => ("user", parts(content).iter().map(user_part).collect()),
        ModelMessage::Note { text, .. } | ModelMessage::Notice { text } => {
            ("user", vec![json!({"text": text})])
        }
        ModelMessage::Tool { call, text } => {
            let tool = tools.get(call.as_str()).copied().unwrap_or_default();
            let response = json!({"name": ask.names.sent(tool), "response": {"result": text}});
            ("user", vec![json!({"functionResponse": response})])
        }
        ModelMessage::Assistant { id, text, calls, .. } => {
            ("model", answer(ask, woven(ask.seals.pieces(id), text, calls), ask.seals.pieces(id)))
        }
    }
}

/// A signature belongs to the call behind it. Of calls that were asked for together only the first has one.
fn answer(ask: &Ask<'_>, parts: Vec<sealed::Part<'_>>, pieces: &[Piece]) -> Vec<Value> {
    let none_kept = pieces.is_empty() && wants_signatures(ask.model);
    let mut signature = None;
    let mut sent = Vec::new();
    for part in parts {
        match part {
            sealed::Part::Sealed(value) => signature = Some(value.clone()),
            sealed::Part::Text(text) => sent.push(json!({"text": text})),
            sealed::Part::Call(call) => {
                let function = json!({"name": ask.names.sent(call.tool.as_str()), "args": arguments(call)});
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

/// Models before the third generation take calls without any.
fn wants_signatures(model: &str) -> bool {
    !["gemini-1", "gemini-2", "gemma"].iter().any(|old| model.starts_with(old))
}

fn user_part(part: &Part<'_>) -> Value {
    match part {
        Part::Text(text) => json!({"text": text}),
        Part::Media(media) => media_part(media),
    }
}

fn media_part(media: &Media<'_>) -> Value {
    match media.source {
        Source::Url(url) => json!({"fileData": {"mimeType": media.media_type, "fileUri": url}}),
        Source::Base64(data) => json!({"inlineData": {"mimeType": media.media_type, "data": data}}),
    }
}

/// Hears chunks. There is no word for the end: the reason for it is.
pub(super) struct GeminiHearing;

impl Hearing for GeminiHearing {
    fn hear(&mut self, chunk: &Value, answer: &mut Growing) -> Result<(), ModelFailure> {
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(told_in_stream(chunk));
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
            return Err(for_good(filtered(&format!("it did not answer: {reason}"))));
        }
        let Some(candidate) = chunk.get("candidates").and_then(|candidates| candidates.get(0)) else {
            return Ok(());
        };
        let parts = candidate.pointer("/content/parts").and_then(Value::as_array);
        for part in parts.into_iter().flatten() {
            hear_part(part, answer)?;
        }
        if let Some(reason) = said(candidate, "finishReason") {
            answer.finish = Some(match reason {
                "MAX_TOKENS" => Finish::CutOff,
                "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII"
                | "IMAGE_SAFETY" => Finish::Filtered,
                "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" => Finish::Garbled,
                _ => Finish::Answered,
            });
        }
        Ok(())
    }
}

fn hear_part(part: &Value, answer: &mut Growing) -> Result<(), ModelFailure> {
    if let Some(call) = part.get("functionCall") {
        if let Some(signature) = said(part, "thoughtSignature") {
            answer.seal(json!(signature))?;
        }
        let place = answer.call_count();
        answer.ask(place, said(call, "id").unwrap_or_default(), text(call, "name")?)?;
        let whole = call.get("args").and_then(arguments_text);
        return whole.map_or(Ok(()), |args| answer.add_arguments(place, &args));
    }
    let Some(words) = said(part, "text") else { return Ok(()) };
    if part.get("thought").and_then(Value::as_bool) == Some(true) {
        answer.think(words)
    } else {
        answer.say(words)
    }
}
