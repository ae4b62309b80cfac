//! The chat of Ollama: `POST {base_url}/api/chat`, a JSON text in each line.

use std::collections::BTreeMap;

use engine::model::{ModelFailure, ModelMessage};
use serde_json::{Map, Value, json};

use super::chat;
use super::content::{Part, Source, parts};
use super::dialect::{Ask, Hearing, corrupt, count, object, said, text};
use super::failure::told_in_stream;
use super::growing::{Finish, Growing};
use super::message::arguments_text;
use super::naming::arguments;

/// What stands beside the options of a model and not among them.
const OUTER_PARAMS: [&str; 3] = ["format", "keep_alive", "think"];

pub(super) fn body(ask: &Ask<'_>) -> Map<String, Value> {
    let (mut body, options): (Map<String, Value>, Map<String, Value>) =
        ask.params().into_iter().partition(|(name, _)| OUTER_PARAMS.contains(&name.as_str()));
    let mut tools: BTreeMap<&str, &str> = BTreeMap::new();
    let mut messages = Vec::new();
    if !ask.request.instructions.is_empty() {
        messages.push(json!({"role": "system", "content": *ask.request.instructions}));
    }
    for message in ask.request.messages.iter() {
        if let ModelMessage::Assistant { calls, .. } = message {
            tools.extend(calls.iter().map(|call| (call.id.as_str(), call.tool.as_str())));
        }
        messages.push(sent(ask, &tools, message));
    }
    // Beside tools it would keep the model from asking for one; the instructions ask for it as well.
    if let Some(schema) = ask.request.output_schema.as_ref().filter(|_| ask.request.tools.is_empty()) {
        body.insert("format".to_owned(), json!(**schema));
    }
    body.extend(object([
        ("model", json!(ask.model)),
        ("messages", json!(messages)),
        ("stream", json!(true)),
    ]));
    if !options.is_empty() {
        body.insert("options".to_owned(), Value::Object(options));
    }
    if !ask.request.tools.is_empty() {
        body.insert("tools".to_owned(), chat::tools(ask));
    }
    body
}

fn sent(ask: &Ask<'_>, tools: &BTreeMap<&str, &str>, message: &ModelMessage) -> Value {
    match message {
        ModelMessage::User { content, .. } => user(content),
        ModelMessage::Note { text, .. } | ModelMessage::Notice { text } => {
            json!({"role": "user", "content": text})
        }
        ModelMessage::Tool { call, text } => {
            let tool = tools.get(call.as_str()).copied().unwrap_or_default();
            json!({"role": "tool", "tool_name": ask.names.sent(tool), "content": text})
        }
        ModelMessage::Assistant { text, calls, .. } if calls.is_empty() => {
            json!({"role": "assistant", "content": text})
        }
        ModelMessage::Assistant { text, calls, .. } => {
            let asked = calls.iter().map(|call| {
                json!({"function": {"name": ask.names.sent(call.tool.as_str()), "arguments": arguments(call)}})
            });
            json!({"role": "assistant", "content": text, "tool_calls": asked.collect::<Vec<Value>>()})
        }
    }
}

/// Images stand beside the text, and nothing else does.
fn user(content: &Value) -> Value {
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    for part in parts(content) {
        match part {
            Part::Text(text) => texts.push(text.into_owned()),
            Part::Media(media) => match media.source {
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

/// Hears lines, the last of which says that it is.
pub(super) struct OllamaHearing;

impl Hearing for OllamaHearing {
    fn hear(&mut self, line: &Value, answer: &mut Growing) -> Result<(), ModelFailure> {
        if line.get("error").is_some_and(|error| !error.is_null()) {
            return Err(told_in_stream(line));
        }
        if !line.is_object() {
            return Err(corrupt("a line that is no object"));
        }
        let message = line.get("message").unwrap_or(&Value::Null);
        if let Some(thought) = said(message, "thinking") {
            answer.think(thought)?;
        }
        if let Some(words) = said(message, "content") {
            answer.say(words)?;
        }
        for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            let function = call.get("function").ok_or_else(|| corrupt("a call without a function"))?;
            let place = answer.call_count();
            answer.ask(place, said(call, "id").unwrap_or_default(), text(function, "name")?)?;
            if let Some(whole) = function.get("arguments").and_then(arguments_text) {
                answer.add_arguments(place, &whole)?;
            }
        }
        if line.get("done").and_then(Value::as_bool) == Some(true) {
            answer.usage.input_tokens = count(line, "prompt_eval_count");
            answer.usage.output_tokens = count(line, "eval_count");
            let cut_off = said(line, "done_reason") == Some("length");
            answer.finish = Some(if cut_off { Finish::CutOff } else { Finish::Answered });
            answer.over = true;
        }
        Ok(())
    }
}
