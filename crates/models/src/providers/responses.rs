//! The responses of OpenAI: `POST {base_url}/responses`. Nothing is kept there: the conversation is ours.

use std::collections::{BTreeMap, BTreeSet};

use engine::model::{ModelFailure, ModelMessage};
use serde_json::{Map, Value, json};

use super::content::{Media, Part, Source, parts, plain_text};
use super::dialect::{Ask, Hearing, corrupt, count, object, said, text};
use super::failure::told_in_stream;
use super::growing::{Finish, Growing};
use super::naming::arguments;
use super::sealed::{self, woven};

pub(super) fn body(ask: &Ask<'_>) -> Map<String, Value> {
    let input: Vec<Value> = ask.request.messages.iter().flat_map(|message| sent(ask, message)).collect();
    let mut body = ask.params();
    body.extend(object([
        ("model", json!(ask.model)),
        ("input", json!(input)),
        ("stream", json!(true)),
        ("store", json!(false)),
    ]));
    if reasons(ask, &body) {
        let included = body.entry("include").or_insert_with(|| json!([]));
        if let Value::Array(included) = included
            && !included.contains(&json!(ENCRYPTED))
        {
            included.push(json!(ENCRYPTED));
        }
    }
    if !ask.request.instructions.is_empty() {
        body.insert("instructions".to_owned(), json!(*ask.request.instructions));
    }
    if let Some(schema) = &ask.request.output_schema {
        // Strict schemas are a subset of what ours may say; whether the answer fits is judged by us.
        let format = json!({"type": "json_schema", "name": "output", "schema": **schema, "strict": false});
        // Beside what else was set for the text.
        if let Value::Object(text) = body.entry("text").or_insert_with(|| json!({})) {
            text.insert("format".to_owned(), format);
        }
    }
    if !ask.request.tools.is_empty() {
        let tool = |tool: &engine::tool::ToolDefinition| {
            // Strict schemas are a subset of what our tools may say.
            json!({"type": "function", "name": ask.names.sent(tool.name.as_str()), "strict": false,
                "description": tool.description, "parameters": *tool.parameters})
        };
        body.insert(
            "tools".to_owned(),
            ask.request.tools.iter().map(|definition| tool(definition)).collect(),
        );
    }
    body
}

/// Reasoning that can be given back where nothing is kept.
const ENCRYPTED: &str = "reasoning.encrypted_content";

/// Models that do not reason refuse to be asked for it.
fn reasons(ask: &Ask<'_>, params: &Map<String, Value>) -> bool {
    let known = ["o1", "o3", "o4", "gpt-5"].iter().any(|name| ask.model.starts_with(name));
    params.get("reasoning").is_some_and(Value::is_object) || (known && !ask.model.starts_with("gpt-5-chat"))
}

fn sent(ask: &Ask<'_>, message: &ModelMessage) -> Vec<Value> {
    match message {
        ModelMessage::User { content, .. } => vec![json!({"role": "user", "content": user_content(content)})],
        ModelMessage::Note { text, .. } | ModelMessage::Notice { text } => {
            vec![json!({"role": "user", "content": text})]
        }
        ModelMessage::Tool { call, text } => {
            vec![
                json!({"type": "function_call_output", "call_id": ask.ids.sent(call.as_str()), "output": text}),
            ]
        }
        ModelMessage::Assistant { id, text, calls, .. } => {
            let mut parts = woven(ask.seals.pieces(id), text, calls);
            // Reasoning that nothing follows is refused.
            while matches!(parts.last(), Some(sealed::Part::Sealed(_))) {
                parts.pop();
            }
            parts.into_iter().map(|part| given_back(ask, part)).collect()
        }
    }
}

fn given_back(ask: &Ask<'_>, part: sealed::Part<'_>) -> Value {
    match part {
        sealed::Part::Sealed(item) => item.clone(),
        sealed::Part::Text(text) => json!({"role": "assistant", "content": text}),
        sealed::Part::Call(call) => {
            json!({"type": "function_call", "call_id": ask.ids.sent(call.id.as_str()),
            "name": ask.names.sent(call.tool.as_str()), "arguments": arguments(call).to_string()})
        }
    }
}

fn user_content(content: &Value) -> Value {
    let parts = parts(content);
    if let Some(text) = plain_text(&parts) {
        return json!(text);
    }
    parts
        .iter()
        .map(|part| match part {
            Part::Text(text) => json!({"type": "input_text", "text": text}),
            Part::Media(media) => media_part(media),
        })
        .collect()
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

/// Hears events. What the last one carries as a whole wins over the pieces before it.
#[derive(Default)]
pub(super) struct ResponsesHearing {
    /// The calls by their place among everything that is put out.
    calls: BTreeMap<u64, u16>,
    /// The same of reasoning that is kept already.
    sealed: BTreeSet<u64>,
    /// Summaries come in parts.
    thought: Option<(u64, u64)>,
}

impl Hearing for ResponsesHearing {
    fn hear(&mut self, event: &Value, answer: &mut Growing) -> Result<(), ModelFailure> {
        match text(event, "type")? {
            "response.output_text.delta" | "response.refusal.delta" => answer.say(text(event, "delta")?),
            "response.reasoning_text.delta" => answer.think(text(event, "delta")?),
            "response.reasoning_summary_text.delta" => {
                let part = (count(event, "output_index"), count(event, "summary_index"));
                if self.thought.replace(part).is_some_and(|before| before != part) {
                    answer.think("\n")?;
                }
                answer.think(text(event, "delta")?)
            }
            "response.output_item.added" | "response.output_item.done" => {
                let item = event.get("item").ok_or_else(|| corrupt("an item that is not there"))?;
                let is_whole = said(event, "type") == Some("response.output_item.done");
                self.hear_item(count(event, "output_index"), item, is_whole, answer)
            }
            "response.function_call_arguments.delta" => match self.calls.get(&count(event, "output_index")) {
                Some(place) => answer.add_arguments(*place, text(event, "delta")?),
                None => Err(corrupt("arguments of a call that nobody asked for")),
            },
            "response.completed" => self.hear_end(event, Finish::Answered, answer),
            "response.incomplete" => {
                let details = event.pointer("/response/incomplete_details").unwrap_or(&Value::Null);
                let finish = if said(details, "reason") == Some("content_filter") {
                    Finish::Filtered
                } else {
                    Finish::CutOff
                };
                self.hear_end(event, finish, answer)
            }
            "response.failed" => Err(told_in_stream(event.get("response").unwrap_or(event))),
            "error" => Err(told_in_stream(event)),
            // Parts that begin and end, tools of the provider that nobody switched on, and what is yet to be invented.
            _ => Ok(()),
        }
    }
}

impl ResponsesHearing {
    fn hear_item(
        &mut self,
        index: u64,
        item: &Value,
        is_whole: bool,
        answer: &mut Growing,
    ) -> Result<(), ModelFailure> {
        match said(item, "type") {
            Some("function_call") => {}
            Some("reasoning") if is_whole => return self.hear_reasoning(index, item, answer),
            Some(_) | None => return Ok(()),
        }
        let place = *self.calls.entry(index).or_insert_with(|| answer.call_count());
        answer.ask(place, text(item, "call_id")?, text(item, "name")?)?;
        match said(item, "arguments") {
            Some(whole) => answer.set_arguments(place, whole),
            None => Ok(()),
        }
    }

    /// Without what it is encrypted in it could not be given back.
    fn hear_reasoning(&mut self, index: u64, item: &Value, answer: &mut Growing) -> Result<(), ModelFailure> {
        let Some(encrypted) = said(item, "encrypted_content") else { return Ok(()) };
        if !self.sealed.insert(index) {
            return Ok(());
        }
        let summary = item.get("summary").cloned().unwrap_or_else(|| json!([]));
        let mut kept = object([
            ("type", json!("reasoning")),
            ("summary", summary),
            ("encrypted_content", json!(encrypted)),
        ]);
        if let Some(id) = said(item, "id") {
            kept.insert("id".to_owned(), json!(id));
        }
        answer.seal(Value::Object(kept))
    }

    fn hear_end(&mut self, event: &Value, finish: Finish, answer: &mut Growing) -> Result<(), ModelFailure> {
        let response = event.get("response").ok_or_else(|| corrupt("an end without a response"))?;
        let mut whole = String::new();
        for (item, index) in response.get("output").and_then(Value::as_array).into_iter().flatten().zip(0..) {
            self.hear_item(index, item, true, answer)?;
            // What it thought has content too.
            let content = Some(item).filter(|item| said(item, "type") == Some("message"));
            let content = content.and_then(|item| item.get("content")?.as_array());
            for part in content.into_iter().flatten() {
                whole.push_str(said(part, "text").or_else(|| said(part, "refusal")).unwrap_or_default());
            }
        }
        if !whole.is_empty() {
            match whole.strip_prefix(answer.text.as_str()) {
                Some(missing) => answer.say(missing)?,
                None => answer.text = whole,
            }
        }
        if let Some(usage) = response.get("usage") {
            answer.usage.input_tokens = count(usage, "input_tokens");
            answer.usage.output_tokens = count(usage, "output_tokens");
        }
        answer.finish = Some(finish);
        answer.over = true;
        Ok(())
    }
}
