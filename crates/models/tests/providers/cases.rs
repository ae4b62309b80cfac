//! The cases: what a provider does, and what has to come of it. The same for every dialect, where it can say it.

use std::time::Duration;

use models::providers::{Provider, Timeouts};
use serde_json::json;

use crate::dialects::{ProviderFailure, StopReason, StreamEvent, encode};
use crate::expected::{Expected, calls, text, thought, uncounted};
use crate::fake::{ConnectionScript, Step};

#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// None: no server listens.
    pub(crate) script: Option<ConnectionScript>,
    pub(crate) expected: Expected,
    pub(crate) timeouts: Timeouts,
}

/// Longer than any machine takes for a case that is not about waiting.
const PATIENT: Timeouts = Timeouts {
    connect: Duration::from_secs(30),
    first_byte: Duration::from_secs(30),
    idle: Duration::from_secs(30),
};
const SHORT: Duration = Duration::from_millis(250);
pub(crate) const KEY: &str = "sk-test-0123456789abcdef";

fn case(name: &'static str, script: ConnectionScript, expected: Expected) -> Case {
    Case { name, script: Some(script), expected, timeouts: PATIENT }
}

fn head(provider: Provider) -> Step {
    let kind = if provider == Provider::Ollama { "application/x-ndjson" } else { "text/event-stream" };
    Step::Head(200, format!("content-type: {kind}\r\n"))
}

/// Each message in a piece of its own.
fn stream(provider: Provider, stream_events: &[StreamEvent]) -> ConnectionScript {
    let said = encode(provider, stream_events).into_iter().map(|message| Step::Body(message.into_bytes()));
    [head(provider)].into_iter().chain(said).collect()
}

fn whole(provider: Provider, stream_events: &[StreamEvent]) -> ConnectionScript {
    let mut script = stream(provider, stream_events);
    script.push(Step::End);
    script
}

/// The same bytes in pieces of this many, with this much time between them.
fn in_pieces(
    provider: Provider,
    stream_events: &[StreamEvent],
    size: usize,
    pause: Duration,
) -> ConnectionScript {
    let bytes = encode(provider, stream_events).concat().into_bytes();
    let pieces = bytes.chunks(size).flat_map(|piece| [Step::Body(piece.to_vec()), Step::Pause(pause)]);
    [head(provider)].into_iter().chain(pieces).chain([Step::End]).collect()
}

fn refused(status: u16, headers: &str, body: &str) -> ConnectionScript {
    let head = Step::Head(status, format!("content-type: application/json\r\n{headers}"));
    vec![head, Step::Body(body.as_bytes().to_vec()), Step::End]
}

const HELLO: [StreamEvent; 5] = [
    StreamEvent::Begin,
    StreamEvent::Text("Hel"),
    StreamEvent::Text("lo, 世界"),
    StreamEvent::Finish(StopReason::EndTurn),
    StreamEvent::Usage,
];
const ASKED: [StreamEvent; 6] = [
    StreamEvent::Begin,
    StreamEvent::Call(0, "call_a", "echo"),
    StreamEvent::Arguments(0, "{\"text\":"),
    StreamEvent::Arguments(0, "\"a\"}"),
    StreamEvent::Finish(StopReason::ToolCalls),
    StreamEvent::Usage,
];

pub(crate) fn all(provider: Provider) -> Vec<Case> {
    let groups = [answers(provider), waits(provider), broken(provider), refusals(), endings(provider)];
    groups.into_iter().flatten().chain(own(provider)).collect()
}

fn answers(provider: Provider) -> Vec<Case> {
    let two = [
        StreamEvent::Begin,
        StreamEvent::Text("Both."),
        StreamEvent::Call(0, "call_a", "echo"),
        StreamEvent::Arguments(0, "{\"text\":\"a\"}"),
        StreamEvent::Call(1, "call_b", "files_read"),
        StreamEvent::Arguments(1, "{\"path\":\"b\"}"),
        StreamEvent::Finish(StopReason::ToolCalls),
        StreamEvent::Usage,
    ];
    let bare = [
        StreamEvent::Begin,
        StreamEvent::Call(0, "call_a", "echo"),
        StreamEvent::Finish(StopReason::ToolCalls),
        StreamEvent::Usage,
    ];
    let thinking = [
        StreamEvent::Begin,
        StreamEvent::Think("Hm."),
        StreamEvent::Text("Yes."),
        StreamEvent::Finish(StopReason::EndTurn),
        StreamEvent::Usage,
    ];
    let odd = [
        StreamEvent::Begin,
        StreamEvent::Unknown,
        StreamEvent::Text("Yes."),
        StreamEvent::Unknown,
        StreamEvent::Finish(StopReason::EndTurn),
        StreamEvent::Usage,
    ];
    let hello = text("Hello, 世界");
    let all_at_once = Step::Body(encode(provider, &HELLO).concat().into_bytes());
    let crlf = Step::Body(encode(provider, &HELLO).concat().replace('\n', "\r\n").into_bytes());
    let comments = if provider == Provider::Ollama { "\n\n" } else { ": still here\n\nretry: 5\n\n" };
    let mut commented = stream(provider, &HELLO);
    commented.insert(1, Step::Body(comments.as_bytes().to_vec()));
    commented.insert(3, Step::Body(comments.as_bytes().to_vec()));
    commented.push(Step::End);
    let mut unended = encode(provider, &HELLO).concat();
    unended.truncate(unended.trim_end().len());
    vec![
        case("a text in pieces", whole(provider, &HELLO), hello.clone()),
        case("everything in one piece", vec![head(provider), all_at_once, Step::End], hello.clone()),
        case("every byte alone", in_pieces(provider, &HELLO, 1, Duration::ZERO), hello.clone()),
        case(
            "three bytes at a time, slowly",
            in_pieces(provider, &HELLO, 3, Duration::from_millis(1)),
            hello.clone(),
        ),
        case("other ends of lines", vec![head(provider), crlf, Step::End], hello.clone()),
        case("comments and empty lines", commented, hello.clone()),
        case(
            "no end of the last line",
            vec![head(provider), Step::Body(unended.into_bytes()), Step::End],
            hello,
        ),
        case("unknown event types", whole(provider, &odd), text("Yes.")),
        case("thinking first", whole(provider, &thinking), thought("Hm.", "Yes.")),
        case("a call", whole(provider, &ASKED), calls("", &[("call_a", "echo", "{\"text\":\"a\"}")])),
        case("a call without arguments", whole(provider, &bare), calls("", &[("call_a", "echo", "{}")])),
        case(
            "a text and two calls, one under another name",
            whole(provider, &two),
            calls(
                "Both.",
                &[("call_a", "echo", "{\"text\":\"a\"}"), ("call_b", "files.read", "{\"path\":\"b\"}")],
            ),
        ),
    ]
}

fn waits(provider: Provider) -> Vec<Case> {
    let mut silent_in_the_middle = stream(provider, &HELLO[..2]);
    silent_in_the_middle.push(Step::Hang);
    let slow = in_pieces(provider, &HELLO, 40, Duration::from_millis(20));
    let first = Timeouts { first_byte: SHORT, ..PATIENT };
    let idle = Timeouts { idle: SHORT, ..PATIENT };
    let silence = "nothing was received for 250ms";
    let late = |name, script, expected, timeouts| Case { timeouts, ..case(name, script, expected) };
    vec![
        late("no answer at all", vec![Step::Hang], Expected::Again("no answer within 250ms", None), first),
        late("a head and no word", vec![head(provider), Step::Hang], Expected::Again(silence, None), first),
        late("silence in the middle", silent_in_the_middle, Expected::Again(silence, None), idle),
        late(
            "slow, but never silent",
            slow,
            text("Hello, 世界"),
            Timeouts { idle: Duration::from_secs(5), ..PATIENT },
        ),
        Case { script: None, ..case("refused", Vec::new(), Expected::Again("no connection: ", None)) },
    ]
}

fn broken(provider: Provider) -> Vec<Case> {
    let cut = stream(provider, &HELLO[..3]);
    let mut ended_early = cut.clone();
    ended_early.push(Step::End);
    let half = |script: &[Step], bytes: &[u8]| {
        let mut script = script.to_vec();
        script.push(Step::Body(bytes.to_vec()));
        script
    };
    let begin: &[u8] = if provider == Provider::Ollama { b"" } else { b"data: " };
    let said = |bytes: &[u8]| [begin, bytes, b"\n\n"].concat();
    let mut half_a_message = half(&cut, &[begin, b"{\"choi"].concat());
    half_a_message.push(Step::End);
    let mut after_no_json = half(&cut, &said(b"{\"oops\": ]"));
    after_no_json.extend(stream(provider, &HELLO[3..]).split_off(1));
    after_no_json.push(Step::End);
    let again = |words| Expected::Again(words, None);
    let early = "the stream ended before the answer did";
    vec![
        case("hung up before the answer", Vec::new(), again("the connection was lost: ")),
        case("hung up in the middle", cut.clone(), again("the connection was lost: ")),
        case(
            "hung up in the middle of a call",
            stream(provider, &ASKED[..3]),
            again("the connection was lost: "),
        ),
        case("an end in order without a reason", ended_early, again(early)),
        case("an end in order within a message", half_a_message, again(early)),
        case("nothing but a head", vec![head(provider), Step::End], again(early)),
        case("no JSON", after_no_json, again("its stream is corrupt: a message is no JSON")),
        case(
            "no UTF-8",
            half(&cut, &said(b"\"\xff\xfe\"")),
            again("its stream is corrupt: the stream is no UTF-8"),
        ),
        case("JSON of another shape", half(&cut, &said(b"[1, 2]")), again("its stream is corrupt: ")),
    ]
}

fn refusals() -> Vec<Case> {
    let error = |message: &str| json!({"error": {"message": message, "type": "x", "code": null}}).to_string();
    let again = |words, wait| Expected::Again(words, wait);
    let echo = format!("Incorrect API key provided: {KEY}. Yours begins with sk-test-01****");
    let long = "x".repeat(200_000);
    let page = Step::Head(200, "content-type: text/html; charset=utf-8\r\n".to_owned());
    let page = vec![page, Step::Body(b"<html>Welcome</html>".to_vec()), Step::End];
    let busy = json!({"error": {"code": 503, "message": "overloaded"}}).to_string();
    vec![
        case(
            "429 and when to come back",
            refused(429, "retry-after: 7\r\n", &error("slow down")),
            again("it answered 429: slow down", Some(7_000)),
        ),
        case("429 in milliseconds", refused(429, "retry-after-ms: 20\r\n", ""), again("429", Some(20))),
        case("429 without a time", refused(429, "", &error("slow down")), again("429: slow down", None)),
        case("500", refused(500, "", &error("oops")), again("it answered 500: oops", None)),
        case("502 with a page", refused(502, "", "<html>Bad Gateway</html>"), again("it answered 502", None)),
        case("503 and when to come back", refused(503, "retry-after: 1\r\n", ""), again("503", Some(1_000))),
        case("529", refused(529, "", &error("overloaded")), again("it answered 529: overloaded", None)),
        case("500 and no end of words", refused(500, "", &long), again("it answered 500: xxx", None)),
        case("400", refused(400, "", &error("bad input")), Expected::ForGood("it answered 400: bad input")),
        case(
            "401 that echoes the key",
            refused(401, "", &error(&echo)),
            Expected::ForGood("it answered 401: Incorrect API key provided: [key]. Yours begins with [key]"),
        ),
        case("403", refused(403, "", &error("no")), Expected::ForGood("it answered 403: no")),
        case("404", refused(404, "", &error("no such model")), Expected::ForGood("404: no such model")),
        case(
            "a redirect",
            refused(307, "location: http://127.0.0.1:1/\r\n", ""),
            Expected::ForGood("redirects are not followed"),
        ),
        case(
            "the context is full",
            refused(400, "", &error("This model's maximum context length is 8 tokens")),
            Expected::ForGood("does not fit into the model's context"),
        ),
        case("a web page", page, Expected::ForGood("it answered with text/html and not with a stream")),
        case("no stream", refused(200, "", "{\"ok\": true}"), Expected::ForGood("not with a stream")),
        case("an error in place of a stream", refused(200, "", &busy), again("overloaded", None)),
    ]
}

fn endings(provider: Provider) -> Vec<Case> {
    let said = |last: StreamEvent| {
        whole(provider, &[StreamEvent::Begin, StreamEvent::Text("Hel"), last, StreamEvent::Usage])
    };
    let trouble = |trouble| {
        stream(
            provider,
            &[StreamEvent::Begin, StreamEvent::Text("Hel"), StreamEvent::ProviderFailure(trouble)],
        )
    };
    let mut found = vec![
        case("cut off at the limit of tokens", said(StreamEvent::Finish(StopReason::CutOff)), text("Hel")),
        case(
            "cut off before the first word",
            whole(
                provider,
                &[
                    StreamEvent::Begin,
                    StreamEvent::Think("Hm."),
                    StreamEvent::Finish(StopReason::CutOff),
                    StreamEvent::Usage,
                ],
            ),
            Expected::ForGood("was cut off at its limit of tokens before its first word"),
        ),
        case(
            "trouble that passes",
            trouble(ProviderFailure::Busy),
            Expected::Again("it broke off: overloaded", None),
        ),
        case(
            "a wrong request, reported late",
            trouble(ProviderFailure::Wrong),
            Expected::ForGood("it broke off: bad input"),
        ),
        case(
            "the context is full, reported late",
            trouble(ProviderFailure::ContextFull),
            Expected::ForGood("does not fit into the model's context"),
        ),
    ];
    // Ollama has no filter.
    if provider != Provider::Ollama {
        let filtered = said(StreamEvent::Finish(StopReason::Filtered));
        found.push(case("a filter", filtered, Expected::ForGood("stopped by the provider's content filter")));
    }
    // In the others the end and its reason are one message.
    let hello = match provider {
        Provider::OpenAiCompatible => Some(uncounted(text("Hello, 世界"))),
        Provider::Anthropic | Provider::Gemini => Some(text("Hello, 世界")),
        Provider::OpenAi | Provider::Ollama => None,
    };
    if let Some(hello) = hello {
        let mut hanging = stream(provider, &HELLO[..4]);
        let hung_up = hanging.clone();
        hanging.push(Step::Hang);
        let mut garbage = hung_up.clone();
        garbage.push(Step::Body(b"data: {\"oops\": ]\n\n".to_vec()));
        found.push(case("hung up after the reason for the end", hung_up, hello.clone()));
        found.push(case("garbage after the reason for the end", garbage, hello.clone()));
        let idle = Timeouts { idle: SHORT, ..PATIENT };
        found.push(Case { timeouts: idle, ..case("silence after the reason for the end", hanging, hello) });
    }
    found
}

/// What one dialect alone can say.
fn own(provider: Provider) -> Vec<Case> {
    match provider {
        Provider::OpenAiCompatible => [own_chat(), vec![cut_within_a_call(provider)]].concat(),
        Provider::OpenAi => {
            let lost = [StreamEvent::Begin, StreamEvent::Arguments(3, "{}")];
            let mut hole = encode(provider, &HELLO);
            hole.remove(2);
            let hole: ConnectionScript =
                hole.into_iter().map(|message| Step::Body(message.into_bytes())).collect();
            let hole = [head(provider)].into_iter().chain(hole).chain([Step::End]).collect();
            vec![
                case("arguments of no call", whole(provider, &lost), Expected::Again("is corrupt", None)),
                case("a piece is lost, the end has all of it", hole, text("Hello, 世界")),
                cut_within_a_call(provider),
            ]
        }
        Provider::Anthropic => {
            let lost = [StreamEvent::Begin, StreamEvent::Arguments(3, "{}")];
            vec![
                case("arguments of no call", whole(provider, &lost), Expected::Again("is corrupt", None)),
                cut_within_a_call(provider),
            ]
        }
        Provider::Gemini | Provider::Ollama => Vec::new(),
    }
}

fn cut_within_a_call(provider: Provider) -> Case {
    let cut = [
        ASKED[..3].to_vec(),
        vec![StreamEvent::Text("Hel"), StreamEvent::Finish(StopReason::CutOff), StreamEvent::Usage],
    ]
    .concat();
    let what = "was cut off at its limit of tokens within a call";
    case("cut off within a call", whole(provider, &cut), Expected::ForGood(what))
}

fn own_chat() -> Vec<Case> {
    let provider = Provider::OpenAiCompatible;
    let raw = |chunks: &[serde_json::Value]| -> ConnectionScript {
        let said = |delta: &serde_json::Value| {
            let chunk = json!({"choices": [{"index": 0, "delta": delta}]});
            Step::Body(format!("data: {chunk}\n\n").into_bytes())
        };
        let end =
            encode(provider, &[StreamEvent::Finish(StopReason::ToolCalls), StreamEvent::Usage]).concat();
        let end = [Step::Body(end.into_bytes()), Step::End];
        [head(provider)].into_iter().chain(chunks.iter().map(said)).chain(end).collect()
    };
    let call = |index: Option<u64>, id: &str, name: &str, arguments: &str| {
        let mut call = json!({"function": {"arguments": arguments}});
        if let Some(index) = index {
            call["index"] = json!(index);
        }
        if !id.is_empty() {
            call["id"] = json!(id);
        }
        if !name.is_empty() {
            call["function"]["name"] = json!(name);
        }
        json!({"tool_calls": [call]})
    };
    let both = calls("", &[("a", "echo", "{\"n\":1}"), ("b", "echo", "{\"n\":2}")]);
    let reordered = raw(&[
        call(Some(1), "b", "echo", "{\"n\""),
        call(Some(0), "a", "echo", "{\"n\":1"),
        call(Some(1), "", "", ":2}"),
        call(Some(0), "", "", "}"),
    ]);
    let without_index = raw(&[
        call(None, "a", "echo", "{\"n\":"),
        call(None, "", "", "1}"),
        call(None, "b", "echo", "{\"n\":2}"),
    ]);
    let same_index = raw(&[call(Some(0), "a", "echo", "{\"n\":1}"), call(Some(0), "b", "echo", "{\"n\":2}")]);
    let garbled = raw(&[call(Some(0), "a", "echo", "{\"n\": oops")]);
    let done_without_reason = vec![head(provider), Step::Body(b"data: [DONE]\n\n".to_vec()), Step::End];
    let refusal = raw(&[json!({"refusal": "I would rather not."})]);
    vec![
        case("two calls, interleaved and out of order", reordered, both.clone()),
        case("two calls without an index", without_index, both.clone()),
        case("two calls under one index", same_index, both),
        case("arguments that are no JSON", garbled, calls("", &[("a", "echo", "{\"n\": oops")])),
        case("done without a reason", done_without_reason, Expected::Again("the stream ended before", None)),
        case("a refusal in words", refusal, text("I would rather not.")),
    ]
}
