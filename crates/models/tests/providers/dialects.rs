//! What a provider says, in the words of each dialect, as their public documentation writes them.

use models::providers::Provider;
use serde_json::{Value, json};

/// What a provider says, whatever its dialect.
#[derive(Clone, Debug)]
pub(crate) enum Say {
    Begin,
    Text(&'static str),
    Think(&'static str),
    /// A call at this place, of this id and this tool.
    Call(u64, &'static str, &'static str),
    /// A piece of the arguments of the call at this place.
    Arguments(u64, &'static str),
    /// Something that nobody has heard of yet.
    Unknown,
    Finish(Why),
    /// 11 tokens in, 7 out, and that there is no more.
    Usage,
    Trouble(Trouble),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Said,
    Asked,
    CutOff,
    Filtered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    Busy,
    Wrong,
    ContextFull,
}

pub(crate) const ALL: [Provider; 5] =
    [Provider::OpenAi, Provider::OpenAiCompatible, Provider::Anthropic, Provider::Gemini, Provider::Ollama];

/// The messages of a stream, each with its framing.
pub(crate) fn spoken(provider: Provider, says: &[Say]) -> Vec<String> {
    let mut memory = Memory::default();
    says.iter().flat_map(|say| memory.spoken(provider, say)).collect()
}

/// What a dialect repeats at the end.
#[derive(Default)]
struct Memory {
    text: String,
    /// Place, id, name, arguments.
    calls: Vec<(u64, String, String, String)>,
    finish: Option<Why>,
    /// Blocks of Anthropic and items of OpenAI that have begun: None is text.
    open: Vec<Option<u64>>,
}

impl Memory {
    fn spoken(&mut self, provider: Provider, say: &Say) -> Vec<String> {
        match say {
            Say::Text(text) => self.text.push_str(text),
            Say::Call(place, id, name) => {
                self.calls.push((*place, (*id).to_owned(), (*name).to_owned(), String::new()))
            }
            Say::Arguments(place, piece) => {
                if let Some(call) = self.calls.iter_mut().find(|call| call.0 == *place) {
                    call.3.push_str(piece);
                }
            }
            Say::Finish(why) => self.finish = Some(*why),
            Say::Begin | Say::Think(_) | Say::Unknown | Say::Usage | Say::Trouble(_) => {}
        }
        let event = |message: &Value| format!("data: {message}\n\n");
        let named = |message: &Value| {
            format!("event: {}\ndata: {message}\n\n", message["type"].as_str().unwrap_or_default())
        };
        match provider {
            Provider::OpenAiCompatible => {
                let mut messages: Vec<String> = chat(say).iter().map(event).collect();
                if matches!(say, Say::Usage) {
                    messages.push("data: [DONE]\n\n".to_owned());
                }
                messages
            }
            Provider::OpenAi => self.responses(say).iter().map(named).collect(),
            Provider::Anthropic => self.anthropic(say).iter().map(named).collect(),
            Provider::Gemini => self.gemini(say).iter().map(event).collect(),
            Provider::Ollama => self.ollama(say).iter().map(|message| format!("{message}\n")).collect(),
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

    fn responses(&mut self, say: &Say) -> Vec<Value> {
        match say {
            Say::Begin => {
                vec![json!({"type": "response.created", "response": {"id": "resp_1", "output": []}})]
            }
            Say::Text(text) => {
                let (index, begins) = self.block(None);
                let item = json!({"type": "message", "id": "msg_1", "role": "assistant", "content": []});
                let added =
                    json!({"type": "response.output_item.added", "output_index": index, "item": item});
                let delta = json!({"type": "response.output_text.delta", "item_id": "msg_1",
                    "output_index": index, "content_index": 0, "delta": text});
                if begins { vec![added, delta] } else { vec![delta] }
            }
            Say::Think(text) => {
                vec![json!({"type": "response.reasoning_summary_text.delta", "item_id": "rs_1",
                "output_index": 0, "summary_index": 0, "delta": text})]
            }
            Say::Call(place, id, name) => {
                let (index, _) = self.block(Some(*place));
                let item = json!({"type": "function_call", "id": format!("fc_{index}"), "call_id": id,
                    "name": name, "arguments": ""});
                vec![json!({"type": "response.output_item.added", "output_index": index, "item": item})]
            }
            Say::Arguments(place, piece) => {
                let (index, _) = self.block(Some(*place));
                vec![
                    json!({"type": "response.function_call_arguments.delta", "item_id": format!("fc_{index}"),
                    "output_index": index, "delta": piece}),
                ]
            }
            Say::Unknown => vec![json!({"type": "response.hologram.delta", "delta": {"x": 1}})],
            Say::Finish(_) => Vec::new(),
            Say::Usage => vec![self.response_end()],
            Say::Trouble(trouble) => {
                let (code, message) = match trouble {
                    Trouble::Busy => ("server_error", "overloaded"),
                    Trouble::Wrong => ("invalid_prompt", "bad input"),
                    Trouble::ContextFull => ("context_length_exceeded", "too long"),
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
            Some(Why::CutOff) => incomplete("max_output_tokens"),
            Some(Why::Filtered) => incomplete("content_filter"),
            Some(Why::Said | Why::Asked) | None => json!({"type": "response.completed",
                "response": {"status": "completed", "output": output, "usage": usage}}),
        }
    }

    fn anthropic(&mut self, say: &Say) -> Vec<Value> {
        let start = |index: usize, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
        let delta = |index: usize, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
        match say {
            Say::Begin => {
                vec![json!({"type": "message_start", "message": {"id": "msg_1", "role": "assistant",
                "usage": {"input_tokens": 4, "cache_read_input_tokens": 7, "output_tokens": 1}}})]
            }
            Say::Text(text) => {
                let (index, begins) = self.block(None);
                let began = begins.then(|| start(index, json!({"type": "text", "text": ""})));
                began.into_iter().chain([delta(index, json!({"type": "text_delta", "text": text}))]).collect()
            }
            Say::Think(text) => {
                let (index, _) = self.block(Some(u64::MAX));
                vec![
                    start(index, json!({"type": "thinking", "thinking": "", "signature": ""})),
                    delta(index, json!({"type": "thinking_delta", "thinking": text})),
                    delta(index, json!({"type": "signature_delta", "signature": "c2ln"})),
                    json!({"type": "content_block_stop", "index": index}),
                ]
            }
            Say::Call(place, id, name) => {
                let (index, _) = self.block(Some(*place));
                vec![start(index, json!({"type": "tool_use", "id": id, "name": name, "input": {}}))]
            }
            Say::Arguments(place, piece) => {
                let (index, _) = self.block(Some(*place));
                vec![delta(index, json!({"type": "input_json_delta", "partial_json": piece}))]
            }
            Say::Unknown => vec![json!({"type": "ping"}), json!({"type": "hologram", "x": 1})],
            Say::Finish(why) => {
                let reason = match why {
                    Why::Said => "end_turn",
                    Why::Asked => "tool_use",
                    Why::CutOff => "max_tokens",
                    Why::Filtered => "refusal",
                };
                vec![
                    json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 7}}),
                ]
            }
            Say::Usage => vec![json!({"type": "message_stop"})],
            Say::Trouble(trouble) => {
                let (kind, message) = match trouble {
                    Trouble::Busy => ("overloaded_error", "overloaded"),
                    Trouble::Wrong => ("invalid_request_error", "bad input"),
                    Trouble::ContextFull => ("invalid_request_error", "prompt is too long: 9 > 8"),
                };
                vec![json!({"type": "error", "error": {"type": kind, "message": message}})]
            }
        }
    }

    /// Calls are said as a whole, so they wait for the end.
    fn gemini(&self, say: &Say) -> Vec<Value> {
        let part = |part: Value| json!({"candidates": [{"content": {"role": "model", "parts": [part]}}]});
        match say {
            Say::Begin | Say::Call(..) | Say::Arguments(..) => Vec::new(),
            Say::Text(text) => vec![part(json!({"text": text}))],
            Say::Think(text) => vec![part(json!({"text": text, "thought": true}))],
            Say::Unknown => vec![json!({"hologram": 1}), part(json!({"hologram": {"x": 1}}))],
            Say::Finish(why) => {
                let reason = match why {
                    Why::Said | Why::Asked => "STOP",
                    Why::CutOff => "MAX_TOKENS",
                    Why::Filtered => "SAFETY",
                };
                let calls = self.calls.iter().map(|(_, id, name, arguments)| {
                    let args: Value = serde_json::from_str(arguments).unwrap_or_default();
                    part(json!({"functionCall": {"id": id, "name": name, "args": args}}))
                });
                let end = json!({"candidates": [{"finishReason": reason}],
                    "usageMetadata": {"promptTokenCount": 11, "candidatesTokenCount": 5, "thoughtsTokenCount": 2}});
                calls.chain([end]).collect()
            }
            Say::Usage => Vec::new(),
            Say::Trouble(trouble) => {
                let (code, message) = numbered(*trouble);
                vec![json!({"error": {"code": code, "message": message, "status": "SOMETHING"}})]
            }
        }
    }

    fn ollama(&self, say: &Say) -> Vec<Value> {
        let line = |message: Value| json!({"model": "m", "message": message, "done": false});
        match say {
            Say::Begin | Say::Call(..) | Say::Arguments(..) | Say::Finish(_) => Vec::new(),
            Say::Text(text) => vec![line(json!({"role": "assistant", "content": text}))],
            Say::Think(text) => vec![line(json!({"role": "assistant", "content": "", "thinking": text}))],
            Say::Unknown => vec![json!({"hologram": 1})],
            Say::Usage => {
                let calls: Vec<Value> = self
                    .calls
                    .iter()
                    .map(|(_, id, name, arguments)| {
                        let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
                        json!({"id": id, "function": {"name": name, "arguments": arguments}})
                    })
                    .collect();
                let reason = if self.finish == Some(Why::CutOff) { "length" } else { "stop" };
                vec![
                    line(json!({"role": "assistant", "content": "", "tool_calls": calls})),
                    json!({"model": "m", "message": {"role": "assistant", "content": ""}, "done": true,
                        "done_reason": reason, "prompt_eval_count": 11, "eval_count": 7}),
                ]
            }
            Say::Trouble(trouble) => {
                let (code, message) = numbered(*trouble);
                vec![json!({"error": {"code": code, "message": message}})]
            }
        }
    }
}

fn numbered(trouble: Trouble) -> (u16, &'static str) {
    match trouble {
        Trouble::Busy => (503, "overloaded"),
        Trouble::Wrong => (400, "bad input"),
        Trouble::ContextFull => (400, "the input token count (9) exceeds the maximum (8)"),
    }
}

fn chat(say: &Say) -> Vec<Value> {
    let chunk = |delta: Value, reason: Value| {
        json!({"id": "c", "object": "chat.completion.chunk", "usage": null,
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
    };
    let one = |delta: Value| vec![chunk(delta, Value::Null)];
    match say {
        Say::Begin => one(json!({"role": "assistant", "content": ""})),
        Say::Text(text) => one(json!({"content": text})),
        Say::Think(text) => one(json!({"reasoning_content": text})),
        Say::Call(place, id, name) => {
            one(json!({"tool_calls": [{"index": place, "id": id, "type": "function",
            "function": {"name": name, "arguments": ""}}]}))
        }
        Say::Arguments(place, piece) => {
            one(json!({"tool_calls": [{"index": place, "function": {"arguments": piece}}]}))
        }
        Say::Unknown => vec![json!({"object": "hologram"}), chunk(json!({"hologram": 1}), Value::Null)],
        Say::Finish(why) => {
            let reason = match why {
                Why::Said => "stop",
                Why::Asked => "tool_calls",
                Why::CutOff => "length",
                Why::Filtered => "content_filter",
            };
            vec![chunk(json!({}), json!(reason))]
        }
        Say::Usage => {
            vec![
                json!({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}}),
            ]
        }
        Say::Trouble(trouble) => {
            let (code, message) = match trouble {
                Trouble::Busy => (json!(503), "overloaded"),
                Trouble::Wrong => (json!("invalid_request_error"), "bad input"),
                Trouble::ContextFull => (json!("context_length_exceeded"), "too long"),
            };
            vec![json!({"error": {"code": code, "message": message}})]
        }
    }
}
