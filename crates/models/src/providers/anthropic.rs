//! Anthropic's Messages API: `POST {base_url}/v1/messages`.

use std::collections::BTreeMap;

use engine::model::{ModelFailure, ModelMessage};
use serde_json::{Map, Value, json};

use super::answer_builder::{AnswerBuilder, FinishReason};
use super::content::{ContentPart, Media, Source, parts};
use super::dialect::{RequestContext, StreamDecoder, corrupt, count, nonempty_text, object, required_text};
use super::failure::from_stream_error;
use super::message::arguments_text;
use super::naming::arguments;
use super::sealed::{self, ordered_parts};

/// Version of the protocol, not of a model.
pub(super) const VERSION: &str = "2023-06-01";
/// The parameter that enables thinking.
pub(super) const THINKING: &str = "thinking";
/// The protocol requires a number, and every model that is served today accepts this one.
const MAX_TOKENS_DEFAULT: u64 = 8_192;

/// The only ids that are accepted.
pub(super) fn id_fits(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

pub(super) fn body(context: &RequestContext<'_>) -> Map<String, Value> {
    let mut body = object([("max_tokens", json!(MAX_TOKENS_DEFAULT))]);
    body.extend(context.params());
    // A model that thinks before a call must receive its thinking back with the result. If another model asked for a
    // call, there is none, and the rest of the turn runs without thinking.
    let keeps_thinking = context.seals.cover_all;
    if !keeps_thinking {
        body.remove(THINKING);
    }
    body.extend(object([
        ("model", json!(context.model)),
        ("messages", json!(messages(context, keeps_thinking))),
        ("stream", json!(true)),
    ]));
    if !context.request.instructions.is_empty() {
        body.insert("system".to_owned(), json!(*context.request.instructions));
    }
    if !context.request.tools.is_empty() {
        let tool = |tool: &engine::tool::ToolDefinition| {
            json!({"name": context.names.to_provider(tool.name.as_str()), "description": tool.description,
                "input_schema": *tool.parameters})
        };
        body.insert(
            "tools".to_owned(),
            context.request.tools.iter().map(|definition| tool(definition)).collect(),
        );
    }
    body
}

/// Tool results are sent in the user role, all of one turn in one message, before anything else in it.
fn messages(context: &RequestContext<'_>, with_thinking: bool) -> Vec<Value> {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in context.request.messages.iter() {
        let (role, blocks) = encode_message(context, message, with_thinking);
        match turns.last_mut() {
            Some((before, known)) if *before == role => known.extend(blocks),
            Some(_) | None if blocks.is_empty() => {}
            Some(_) | None => turns.push((role, blocks)),
        }
    }
    turns.into_iter().map(|(role, blocks)| json!({"role": role, "content": blocks})).collect()
}

fn encode_message(
    context: &RequestContext<'_>,
    message: &ModelMessage,
    with_thinking: bool,
) -> (&'static str, Vec<Value>) {
    match message {
        ModelMessage::User { content, .. } => {
            ("user", parts(content).iter().filter_map(user_block).collect())
        }
        ModelMessage::Note { text, .. } | ModelMessage::Notice { text } => {
            ("user", vec![json!({"type": "text", "text": text})])
        }
        ModelMessage::Tool { call, text } => {
            let id = context.ids.to_provider(call.as_str());
            ("user", vec![json!({"type": "tool_result", "tool_use_id": id, "content": text})])
        }
        ModelMessage::Assistant { id, text, calls, .. } => {
            let pieces = if with_thinking { context.seals.pieces(id) } else { &[] };
            (
                "assistant",
                ordered_parts(pieces, text, calls)
                    .into_iter()
                    .filter_map(|part| encode_part(context, part))
                    .collect(),
            )
        }
    }
}

fn encode_part(context: &RequestContext<'_>, part: sealed::AnswerPart<'_>) -> Option<Value> {
    match part {
        sealed::AnswerPart::Sealed(block) => Some(block.clone()),
        sealed::AnswerPart::Text(text) if text.trim().is_empty() => None,
        sealed::AnswerPart::Text(text) => Some(json!({"type": "text", "text": text})),
        sealed::AnswerPart::Call(call) => {
            Some(json!({"type": "tool_use", "id": context.ids.to_provider(call.id.as_str()),
            "name": context.names.to_provider(call.tool.as_str()), "input": arguments(call)}))
        }
    }
}

/// Blank text is refused by the provider.
fn user_block(part: &ContentPart<'_>) -> Option<Value> {
    match part {
        ContentPart::Text(text) if text.trim().is_empty() => None,
        ContentPart::Text(text) => Some(json!({"type": "text", "text": text})),
        ContentPart::Media(media) => Some(media_block(media)),
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

/// Decodes events: a message is a list of blocks, each of which starts, grows and stops.
#[derive(Default)]
pub(super) struct AnthropicDecoder {
    /// The calls by their block index.
    calls: BTreeMap<u64, u16>,
    /// Thinking blocks that have not ended, by their block index.
    thoughts: BTreeMap<u64, ThinkingBlock>,
}

#[derive(Default)]
struct ThinkingBlock {
    text: String,
    signature: String,
}

impl StreamDecoder for AnthropicDecoder {
    fn decode(&mut self, event: &Value, answer: &mut AnswerBuilder) -> Result<(), ModelFailure> {
        match required_text(event, "type")? {
            "message_start" => {
                let usage = event.pointer("/message/usage").unwrap_or(&Value::Null);
                decode_usage(usage, answer);
                Ok(())
            }
            "content_block_start" => self.decode_block(event, answer),
            "content_block_delta" => self.decode_delta(event, answer),
            "content_block_stop" => match self.thoughts.remove(&count(event, "index")) {
                Some(ThinkingBlock { text, signature }) if !signature.is_empty() => {
                    answer.add_sealed(json!({"type": "thinking", "thinking": text, "signature": signature}))
                }
                Some(_) | None => Ok(()),
            },
            "message_delta" => {
                if let Some(usage) = event.get("usage") {
                    decode_usage(usage, answer);
                }
                let delta = event.get("delta").unwrap_or(&Value::Null);
                if let Some(reason) = nonempty_text(delta, "stop_reason") {
                    answer.finish = Some(match reason {
                        "max_tokens" => FinishReason::CutOff,
                        "refusal" => FinishReason::Filtered,
                        "model_context_window_exceeded" => FinishReason::ContextFull,
                        // `end_turn`, `tool_use`, `stop_sequence`.
                        _ => FinishReason::Answered,
                    });
                }
                Ok(())
            }
            "message_stop" => {
                answer.ended = true;
                Ok(())
            }
            "error" => Err(from_stream_error(event)),
            // `ping`, and event types of the future.
            _ => Ok(()),
        }
    }
}

impl AnthropicDecoder {
    fn decode_block(&mut self, event: &Value, answer: &mut AnswerBuilder) -> Result<(), ModelFailure> {
        let block = event.get("content_block").ok_or_else(|| corrupt("a block that is not there"))?;
        match nonempty_text(block, "type") {
            Some("tool_use") => {
                let call_index = answer.call_count();
                self.calls.insert(count(event, "index"), call_index);
                answer.add_call(call_index, required_text(block, "id")?, required_text(block, "name")?)?;
                // Usually empty; the arguments then arrive in deltas.
                let whole = block
                    .get("input")
                    .filter(|input| input.as_object().is_none_or(|input| !input.is_empty()));
                whole
                    .and_then(arguments_text)
                    .map_or(Ok(()), |input| answer.add_arguments(call_index, &input))
            }
            Some("text") => nonempty_text(block, "text").map_or(Ok(()), |text| answer.add_text(text)),
            Some("thinking") => {
                let text = |key: &str| nonempty_text(block, key).unwrap_or_default().to_owned();
                let thought = ThinkingBlock { text: text("thinking"), signature: text("signature") };
                if !thought.text.is_empty() {
                    answer.add_reasoning(&thought.text)?;
                }
                self.thoughts.insert(count(event, "index"), thought);
                Ok(())
            }
            // Only its provider can read it.
            Some("redacted_thinking") => answer.add_sealed(block.clone()),
            Some(_) | None => Ok(()),
        }
    }

    fn decode_delta(&mut self, event: &Value, answer: &mut AnswerBuilder) -> Result<(), ModelFailure> {
        let delta = event.get("delta").ok_or_else(|| corrupt("a piece that is not there"))?;
        match required_text(delta, "type")? {
            "text_delta" => answer.add_text(required_text(delta, "text")?),
            "thinking_delta" => {
                let words = required_text(delta, "thinking")?;
                if let Some(thought) = self.thoughts.get_mut(&count(event, "index")) {
                    thought.text.push_str(words);
                }
                answer.add_reasoning(words)
            }
            "signature_delta" => {
                if let Some(thought) = self.thoughts.get_mut(&count(event, "index")) {
                    thought.signature.push_str(required_text(delta, "signature")?);
                }
                Ok(())
            }
            "input_json_delta" => match self.calls.get(&count(event, "index")) {
                Some(call_index) => answer.add_arguments(*call_index, required_text(delta, "partial_json")?),
                None => Err(corrupt("arguments of a call that was not announced")),
            },
            // Citations.
            _ => Ok(()),
        }
    }
}

/// Tokens read from a cache count as input. Counts are totals, and are sent again when they grow.
fn decode_usage(usage: &Value, answer: &mut AnswerBuilder) {
    let input = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];
    let input: u64 = input.iter().map(|key| count(usage, key)).fold(0, u64::saturating_add);
    answer.usage.input_tokens = answer.usage.input_tokens.max(input);
    answer.usage.output_tokens = answer.usage.output_tokens.max(count(usage, "output_tokens"));
}
