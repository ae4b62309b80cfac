//! What a provider says, in the words of each dialect, as their public documentation writes them.

use models::providers::Provider;
use serde_json::{Value, json};

/// What a provider says, whatever its dialect.
#[derive(Clone, Debug)]
pub(crate) enum StreamEvent {
    Begin,
    Text(&'static str),
    Think(&'static str),
    /// A call at this place, of this id and this tool.
    Call(u64, &'static str, &'static str),
    /// A piece of the arguments of the call at this place.
    Arguments(u64, &'static str),
    /// An event of a type that the client does not know.
    Unknown,
    Finish(StopReason),
    /// 11 tokens in, 7 out, and that there is no more.
    Usage,
    ProviderFailure(ProviderFailure),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    EndTurn,
    ToolCalls,
    CutOff,
    Filtered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProviderFailure {
    Busy,
    Wrong,
    ContextFull,
}

pub(crate) const ALL: [Provider; 5] =
    [Provider::OpenAi, Provider::OpenAiCompatible, Provider::Anthropic, Provider::Gemini, Provider::Ollama];

/// The messages of a stream, each with its framing.
pub(crate) fn encode(provider: Provider, stream_events: &[StreamEvent]) -> Vec<String> {
    let mut state = EncoderState::default();
    stream_events.iter().flat_map(|stream_event| state.encode(provider, stream_event)).collect()
}

/// What a dialect repeats at the end.
#[derive(Default)]
struct EncoderState {
    text: String,
    /// Place, id, name, arguments.
    calls: Vec<(u64, String, String, String)>,
    finish: Option<StopReason>,
    /// Blocks of Anthropic and items of OpenAI that have begun: None is text.
    open: Vec<Option<u64>>,
}

impl EncoderState {
    fn encode(&mut self, provider: Provider, stream_event: &StreamEvent) -> Vec<String> {
        match stream_event {
            StreamEvent::Text(text) => self.text.push_str(text),
            StreamEvent::Call(place, id, name) => {
                self.calls.push((*place, (*id).to_owned(), (*name).to_owned(), String::new()))
            }
            StreamEvent::Arguments(place, piece) => {
                if let Some(call) = self.calls.iter_mut().find(|call| call.0 == *place) {
                    call.3.push_str(piece);
                }
            }
            StreamEvent::Finish(why) => self.finish = Some(*why),
            StreamEvent::Begin
            | StreamEvent::Think(_)
            | StreamEvent::Unknown
            | StreamEvent::Usage
            | StreamEvent::ProviderFailure(_) => {}
        }
        let event = |message: &Value| format!("data: {message}\n\n");
        let named = |message: &Value| {
            format!("event: {}\ndata: {message}\n\n", message["type"].as_str().unwrap_or_default())
        };
        match provider {
            Provider::OpenAiCompatible => {
                let mut messages: Vec<String> = chat(stream_event).iter().map(event).collect();
                if matches!(stream_event, StreamEvent::Usage) {
                    messages.push("data: [DONE]\n\n".to_owned());
                }
                messages
            }
            Provider::OpenAi => self.responses(stream_event).iter().map(named).collect(),
            Provider::Anthropic => self.anthropic(stream_event).iter().map(named).collect(),
            Provider::Gemini => self.gemini(stream_event).iter().map(event).collect(),
            Provider::Ollama => {
                self.ollama(stream_event).iter().map(|message| format!("{message}\n")).collect()
            }
        }
    }

    /// The place of a block, and whether it begins here.
    fn block(&mut self, of: Option<u64>) -> (usize, bool) {
        match self.open.iter().position(|known| *known == of) {
            Some(place) => (place, false),
            None => {
                self.open.push(of);
                (self.open.len() - 1, true)
            }
        }
    }

    fn responses(&mut self, stream_event: &StreamEvent) -> Vec<Value> {
        match stream_event {
            StreamEvent::Begin => {
                vec![json!({"type": "response.created", "response": {"id": "resp_1", "output": []}})]
            }
            StreamEvent::Text(text) => {
                let (index, begins) = self.block(None);
                let item = json!({"type": "message", "id": "msg_1", "role": "assistant", "content": []});
                let added =
                    json!({"type": "response.output_item.added", "output_index": index, "item": item});
                let delta = json!({"type": "response.output_text.delta", "item_id": "msg_1",
                    "output_index": index, "content_index": 0, "delta": text});
                if begins { vec![added, delta] } else { vec![delta] }
            }
            StreamEvent::Think(text) => {
                vec![json!({"type": "response.reasoning_summary_text.delta", "item_id": "rs_1",
                "output_index": 0, "summary_index": 0, "delta": text})]
            }
            StreamEvent::Call(place, id, name) => {
                let (index, _) = self.block(Some(*place));
                let item = json!({"type": "function_call", "id": format!("fc_{index}"), "call_id": id,
                    "name": name, "arguments": ""});
                vec![json!({"type": "response.output_item.added", "output_index": index, "item": item})]
            }
            StreamEvent::Arguments(place, piece) => {
                let (index, _) = self.block(Some(*place));
                vec![
                    json!({"type": "response.function_call_arguments.delta", "item_id": format!("fc_{index}"),
                    "output_index": index, "delta": piece}),
                ]
            }
            StreamEvent::Unknown => vec![json!({"type": "response.hologram.delta", "delta": {"x": 1}})],
            StreamEvent::Finish(_) => Vec::new(),
            StreamEvent::Usage => vec![self.response_end()],
            StreamEvent::ProviderFailure(trouble) => {
                let (code, message) = match trouble {
                    ProviderFailure::Busy => ("server_error", "overloaded"),
                    ProviderFailure::Wrong => ("invalid_prompt", "bad input"),
                    ProviderFailure::ContextFull => ("context_length_exceeded", "too long"),
                };
                vec![json!({"type": "response.failed",
                    "response": {"status": "failed", "error": {"code": code, "message": message}}})]
            }
        }
    }

    fn response_end(&self) -> Value {
        let usage = json!({"input_tokens": 11, "output_tokens": 7, "total_tokens": 18});
        let item = |open: &Option<u64>| match open {
            None => json!({"type": "message", "content": [{"type": "output_text", "text": self.text}]}),
            Some(place) => {
                let (_, id, name, arguments) =
                    self.calls.iter().find(|call| call.0 == *place).expect("a call that was asked for");
                json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
            }
        };
        let output: Vec<Value> = self.open.iter().map(item).collect();
        let incomplete = |reason: &str| {
            json!({"type": "response.incomplete", "response": {"status": "incomplete", "output": output,
                "incomplete_details": {"reason": reason}, "usage": usage}})
        };
        match self.finish {
            Some(StopReason::CutOff) => incomplete("max_output_tokens"),
            Some(StopReason::Filtered) => incomplete("content_filter"),
            Some(StopReason::EndTurn | StopReason::ToolCalls) | None => json!({"type": "response.completed",
                "response": {"status": "completed", "output": output, "usage": usage}}),
        }
    }

    fn anthropic(&mut self, stream_event: &StreamEvent) -> Vec<Value> {
        let start = |index: usize, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
        let delta = |index: usize, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
        match stream_event {
            StreamEvent::Begin => {
                vec![json!({"type": "message_start", "message": {"id": "msg_1", "role": "assistant",
                "usage": {"input_tokens": 4, "cache_read_input_tokens": 7, "output_tokens": 1}}})]
            }
            StreamEvent::Text(text) => {
                let (index, begins) = self.block(None);
                let began = begins.then(|| start(index, json!({"type": "text", "text": ""})));
                began.into_iter().chain([delta(index, json!({"type": "text_delta", "text": text}))]).collect()
            }
            StreamEvent::Think(text) => {
                let (index, _) = self.block(Some(u64::MAX));
                vec![
                    start(index, json!({"type": "thinking", "thinking": "", "signature": ""})),
                    delta(index, json!({"type": "thinking_delta", "thinking": text})),
                    delta(index, json!({"type": "signature_delta", "signature": "c2ln"})),
                    json!({"type": "content_block_stop", "index": index}),
                ]
            }
            StreamEvent::Call(place, id, name) => {
                let (index, _) = self.block(Some(*place));
                vec![start(index, json!({"type": "tool_use", "id": id, "name": name, "input": {}}))]
            }
            StreamEvent::Arguments(place, piece) => {
                let (index, _) = self.block(Some(*place));
                vec![delta(index, json!({"type": "input_json_delta", "partial_json": piece}))]
            }
            StreamEvent::Unknown => vec![json!({"type": "ping"}), json!({"type": "hologram", "x": 1})],
            StreamEvent::Finish(why) => {
                let reason = match why {
                    StopReason::EndTurn => "end_turn",
                    StopReason::ToolCalls => "tool_use",
                    StopReason::CutOff => "max_tokens",
                    StopReason::Filtered => "refusal",
                };
                vec![
                    json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 7}}),
                ]
            }
            StreamEvent::Usage => vec![json!({"type": "message_stop"})],
            StreamEvent::ProviderFailure(trouble) => {
                let (kind, message) = match trouble {
                    ProviderFailure::Busy => ("overloaded_error", "overloaded"),
                    ProviderFailure::Wrong => ("invalid_request_error", "bad input"),
                    ProviderFailure::ContextFull => ("invalid_request_error", "prompt is too long: 9 > 8"),
                };
                vec![json!({"type": "error", "error": {"type": kind, "message": message}})]
            }
        }
    }

    /// Calls are said as a whole, so they wait for the end.
    fn gemini(&self, stream_event: &StreamEvent) -> Vec<Value> {
        let part = |part: Value| json!({"candidates": [{"content": {"role": "model", "parts": [part]}}]});
        match stream_event {
            StreamEvent::Begin | StreamEvent::Call(..) | StreamEvent::Arguments(..) => Vec::new(),
            StreamEvent::Text(text) => vec![part(json!({"text": text}))],
            StreamEvent::Think(text) => vec![part(json!({"text": text, "thought": true}))],
            StreamEvent::Unknown => vec![json!({"hologram": 1}), part(json!({"hologram": {"x": 1}}))],
            StreamEvent::Finish(why) => {
                let reason = match why {
                    StopReason::EndTurn | StopReason::ToolCalls => "STOP",
                    StopReason::CutOff => "MAX_TOKENS",
                    StopReason::Filtered => "SAFETY",
                };
                let calls = self.calls.iter().map(|(_, id, name, arguments)| {
                    let args: Value = serde_json::from_str(arguments).unwrap_or_default();
                    part(json!({"functionCall": {"id": id, "name": name, "args": args}}))
                });
                let end = json!({"candidates": [{"finishReason": reason}],
                    "usageMetadata": {"promptTokenCount": 11, "candidatesTokenCount": 5, "thoughtsTokenCount": 2}});
                calls.chain([end]).collect()
            }
            StreamEvent::Usage => Vec::new(),
            StreamEvent::ProviderFailure(trouble) => {
                let (code, message) = error_code(*trouble);
                vec![json!({"error": {"code": code, "message": message, "status": "SOMETHING"}})]
            }
        }
    }

    fn ollama(&self, stream_event: &StreamEvent) -> Vec<Value> {
        let line = |message: Value| json!({"model": "m", "message": message, "done": false});
        match stream_event {
            StreamEvent::Begin
            | StreamEvent::Call(..)
            | StreamEvent::Arguments(..)
            | StreamEvent::Finish(_) => Vec::new(),
            StreamEvent::Text(text) => vec![line(json!({"role": "assistant", "content": text}))],
            StreamEvent::Think(text) => {
                vec![line(json!({"role": "assistant", "content": "", "thinking": text}))]
            }
            StreamEvent::Unknown => vec![json!({"hologram": 1})],
            StreamEvent::Usage => {
                let calls: Vec<Value> = self
                    .calls
                    .iter()
                    .map(|(_, id, name, arguments)| {
                        let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
                        json!({"id": id, "function": {"name": name, "arguments": arguments}})
                    })
                    .collect();
                let reason = if self.finish == Some(StopReason::CutOff) { "length" } else { "stop" };
                vec![
                    line(json!({"role": "assistant", "content": "", "tool_calls": calls})),
                    json!({"model": "m", "message": {"role": "assistant", "content": ""}, "done": true,
                        "done_reason": reason, "prompt_eval_count": 11, "eval_count": 7}),
                ]
            }
            StreamEvent::ProviderFailure(trouble) => {
                let (code, message) = error_code(*trouble);
                vec![json!({"error": {"code": code, "message": message}})]
            }
        }
    }
}

fn error_code(trouble: ProviderFailure) -> (u16, &'static str) {
    match trouble {
        ProviderFailure::Busy => (503, "overloaded"),
        ProviderFailure::Wrong => (400, "bad input"),
        ProviderFailure::ContextFull => (400, "the input token count (9) exceeds the maximum (8)"),
    }
}

fn chat(stream_event: &StreamEvent) -> Vec<Value> {
    let chunk = |delta: Value, reason: Value| {
        json!({"id": "c", "object": "chat.completion.chunk", "usage": null,
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
    };
    let one = |delta: Value| vec![chunk(delta, Value::Null)];
    match stream_event {
        StreamEvent::Begin => one(json!({"role": "assistant", "content": ""})),
        StreamEvent::Text(text) => one(json!({"content": text})),
        StreamEvent::Think(text) => one(json!({"reasoning_content": text})),
        StreamEvent::Call(place, id, name) => {
            one(json!({"tool_calls": [{"index": place, "id": id, "type": "function",
            "function": {"name": name, "arguments": ""}}]}))
        }
        StreamEvent::Arguments(place, piece) => {
            one(json!({"tool_calls": [{"index": place, "function": {"arguments": piece}}]}))
        }
        StreamEvent::Unknown => {
            vec![json!({"object": "hologram"}), chunk(json!({"hologram": 1}), Value::Null)]
        }
        StreamEvent::Finish(why) => {
            let reason = match why {
                StopReason::EndTurn => "stop",
                StopReason::ToolCalls => "tool_calls",
                StopReason::CutOff => "length",
                StopReason::Filtered => "content_filter",
            };
            vec![chunk(json!({}), json!(reason))]
        }
        StreamEvent::Usage => {
            vec![
                json!({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}}),
            ]
        }
        StreamEvent::ProviderFailure(trouble) => {
            let (code, message) = match trouble {
                ProviderFailure::Busy => (json!(503), "overloaded"),
                ProviderFailure::Wrong => (json!("invalid_request_error"), "bad input"),
                ProviderFailure::ContextFull => (json!("context_length_exceeded"), "too long"),
            };
            vec![json!({"error": {"code": code, "message": message}})]
        }
    }
}
