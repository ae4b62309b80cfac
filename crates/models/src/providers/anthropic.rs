//! The messages of Anthropic: `POST {base_url}/v1/messages`.

use std::collections::BTreeMap;

use engine::model::{ModelFailure, ModelMessage};
use serde_json::{Map, Value, json};

use super::content::{Media, Part, Source, parts};
use super::dialect::{Ask, Hearing, corrupt, count, object, said, text};
use super::failure::told_in_stream;
use super::growing::{Finish, Growing};
use super::message::arguments_text;
use super::naming::arguments;
use super::sealed::{self, woven};

/// Of the protocol, not of a model.
pub(super) const VERSION: &str = "2023-06-01";
/// The parameter with which a model thinks.
pub(super) const THINKING: &str = "thinking";
/// The protocol wants a number, and every model that is served today takes this one.
const MAX_TOKENS_DEFAULT: u64 = 8_192;

/// The only ids that are taken.
pub(super) fn id_fits(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

pub(super) fn body(ask: &Ask<'_>) -> Map<String, Value> {
    let mut body = object([("max_tokens", json!(MAX_TOKENS_DEFAULT))]);
    body.extend(ask.params());
    // Whoever thinks before a call has to be given its thoughts back with the result. Where another model asked for a call
    // there are none, and the turn ends without thinking.
    let goes_on = ask.seals.cover_all;
    if !goes_on {
        body.remove(THINKING);
    }
    body.extend(object([
        ("model", json!(ask.model)),
        ("messages", json!(messages(ask, goes_on))),
        ("stream", json!(true)),
    ]));
    if !ask.request.instructions.is_empty() {
        body.insert("system".to_owned(), json!(*ask.request.instructions));
    }
    if !ask.request.tools.is_empty() {
        let tool = |tool: &engine::tool::ToolDefinition| {
            json!({"name": ask.names.sent(tool.name.as_str()), "description": tool.description,
                "input_schema": *tool.parameters})
        };
        body.insert(
            "tools".to_owned(),
            ask.request.tools.iter().map(|definition| tool(definition)).collect(),
        );
    }
    body
}

/// Results of tools are said by the user, all of one turn in one message, and before anything else in it.
fn messages(ask: &Ask<'_>, with_thoughts: bool) -> Vec<Value> {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in ask.request.messages.iter() {
        let (role, blocks) = sent(ask, message, with_thoughts);
        match turns.last_mut() {
            Some((before, known)) if *before == role => known.extend(blocks),
            Some(_) | None if blocks.is_empty() => {}
            Some(_) | None => turns.push((role, blocks)),
        }
    }
    turns.into_iter().map(|(role, blocks)| json!({"role": role, "content": blocks})).collect()
}

fn sent(ask: &Ask<'_>, message: &ModelMessage, with_thoughts: bool) -> (&'static str, Vec<Value>) {
    match message {
        ModelMessage::User { content, .. } => {
            ("user", parts(content).iter().filter_map(user_block).collect())
        }
        ModelMessage::Note { text, .. } | ModelMessage::Notice { text } => {
            ("user", vec![json!({"type": "text", "text": text})])
        }
        ModelMessage::Tool { call, text } => {
            let id = ask.ids.sent(call.as_str());
            ("user", vec![json!({"type": "tool_result", "tool_use_id": id, "content": text})])
        }
        ModelMessage::Assistant { id, text, calls, .. } => {
            let pieces = if with_thoughts { ask.seals.pieces(id) } else { &[] };
            (
                "assistant",
                woven(pieces, text, calls).into_iter().filter_map(|part| given_back(ask, part)).collect(),
            )
        }
    }
}

fn given_back(ask: &Ask<'_>, part: sealed::Part<'_>) -> Option<Value> {
    match part {
        sealed::Part::Sealed(block) => Some(block.clone()),
        sealed::Part::Text(text) if text.trim().is_empty() => None,
        sealed::Part::Text(text) => Some(json!({"type": "text", "text": text})),
        sealed::Part::Call(call) => Some(json!({"type": "tool_use", "id": ask.ids.sent(call.id.as_str()),
            "name": ask.names.sent(call.tool.as_str()), "input": arguments(call)})),
    }
}

/// A text without a word in it is refused.
fn user_block(part: &Part<'_>) -> Option<Value> {
    match part {
        Part::Text(text) if text.trim().is_empty() => None,
        Part::Text(text) => Some(json!({"type": "text", "text": text})),
        Part::Media(media) => Some(media_block(media)),
    }
}

fn media_block(media: &Media<'_>) -> Value {
    let kind = if media.is_image() {
        "image"
    } else if media.is_pdf() {
        "document"
    } else {
        return json!({"type": "text", "text": media.placeholder()});
    };
    let source = match media.source {
        Source::Url(url) => json!({"type": "url", "url": url}),
        Source::Base64(data) => json!({"type": "base64", "media_type": media.media_type, "data": data}),
    };
    json!({"type": kind, "source": source})
}

/// Hears events: a message is a list of blocks, each of which begins, grows and ends.
#[derive(Default)]
pub(super) struct AnthropicHearing {
    /// The calls by their place among the blocks.
    calls: BTreeMap<u64, u16>,
    /// The same of thoughts that are not over.
    thoughts: BTreeMap<u64, Thought>,
}

#[derive(Default)]
struct Thought {
    text: String,
    signature: String,
}

impl Hearing for AnthropicHearing {
    fn hear(&mut self, event: &Value, answer: &mut Growing) -> Result<(), ModelFailure> {
        match text(event, "type")? {
            "message_start" => {
                let usage = event.pointer("/message/usage").unwrap_or(&Value::Null);
                hear_usage(usage, answer);
                Ok(())
            }
            "content_block_start" => self.hear_block(event, answer),
            "content_block_delta" => self.hear_delta(event, answer),
            "content_block_stop" => match self.thoughts.remove(&count(event, "index")) {
                Some(Thought { text, signature }) if !signature.is_empty() => {
                    answer.seal(json!({"type": "thinking", "thinking": text, "signature": signature}))
                }
                Some(_) | None => Ok(()),
            },
            "message_delta" => {
                if let Some(usage) = event.get("usage") {
                    hear_usage(usage, answer);
                }
                let delta = event.get("delta").unwrap_or(&Value::Null);
                if let Some(reason) = said(delta, "stop_reason") {
                    answer.finish = Some(match reason {
                        "max_tokens" => Finish::CutOff,
                        "refusal" => Finish::Filtered,
                        "model_context_window_exceeded" => Finish::ContextFull,
                        // `end_turn`, `tool_use`, `stop_sequence`.
                        _ => Finish::Answered,
                    });
                }
                Ok(())
            }
            "message_stop" => {
                answer.over = true;
                Ok(())
            }
            "error" => Err(told_in_stream(event)),
            // `ping`, and what is yet to be invented.
            _ => Ok(()),
        }
    }
}

impl AnthropicHearing {
    fn hear_block(&mut self, event: &Value, answer: &mut Growing) -> Result<(), ModelFailure> {
        let block = event.get("content_block").ok_or_else(|| corrupt("a block that is not there"))?;
        match said(block, "type") {
            Some("tool_use") => {
                let place = answer.call_count();
                self.calls.insert(count(event, "index"), place);
                answer.ask(place, text(block, "id")?, text(block, "name")?)?;
                // Usually empty, and then it comes in pieces.
                let whole = block
                    .get("input")
                    .filter(|input| input.as_object().is_none_or(|input| !input.is_empty()));
                whole.and_then(arguments_text).map_or(Ok(()), |input| answer.add_arguments(place, &input))
            }
            Some("text") => said(block, "text").map_or(Ok(()), |text| answer.say(text)),
            Some("thinking") => {
                let text = |key: &str| said(block, key).unwrap_or_default().to_owned();
                let thought = Thought { text: text("thinking"), signature: text("signature") };
                if !thought.text.is_empty() {
                    answer.think(&thought.text)?;
                }
                self.thoughts.insert(count(event, "index"), thought);
                Ok(())
            }
            // Nobody but its provider can read it.
            Some("redacted_thinking") => answer.seal(block.clone()),
            Some(_) | None => Ok(()),
        }
    }

    fn hear_delta(&mut self, event: &Value, answer: &mut Growing) -> Result<(), ModelFailure> {
        let delta = event.get("delta").ok_or_else(|| corrupt("a piece that is not there"))?;
        match text(delta, "type")? {
            "text_delta" => answer.say(text(delta, "text")?),
            "thinking_delta" => {
                let words = text(delta, "thinking")?;
                if let Some(thought) = self.thoughts.get_mut(&count(event, "index")) {
                    thought.text.push_str(words);
                }
                answer.think(words)
            }
            "signature_delta" => {
                if let Some(thought) = self.thoughts.get_mut(&count(event, "index")) {
                    thought.signature.push_str(text(delta, "signature")?);
                }
                Ok(())
            }
            "input_json_delta" => match self.calls.get(&count(event, "index")) {
                Some(place) => answer.add_arguments(*place, text(delta, "partial_json")?),
                None => Err(corrupt("arguments of a call that nobody asked for")),
            },
            // Citations.
            _ => Ok(()),
        }
    }
}

/// What is read from a cache is read by the model all the same. Counts are totals, and come again with more.
fn hear_usage(usage: &Value, answer: &mut Growing) {
    let input = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];
    let input: u64 = input.iter().map(|key| count(usage, key)).fold(0, u64::saturating_add);
    answer.usage.input_tokens = answer.usage.input_tokens.max(input);
    answer.usage.output_tokens = answer.usage.output_tokens.max(count(usage, "output_tokens"));
}
