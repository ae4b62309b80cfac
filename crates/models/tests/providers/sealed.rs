//! Reasoning that a provider signed or encrypted: it goes back to that provider, as long as a turn lasts, and to no
//! other one.

use std::sync::Arc;

use engine::live::Deltas;
use engine::model::{AssistantCall, Model, ModelAnswer, ModelMessage, ModelRequest};
use machine::id::Digest;
use machine::tool::Arguments;
use models::providers::{Provider, ProviderSettings, RemoteModel};
use serde_json::{Value, json};

use crate::dialects::ALL;
use crate::fake::{ConnectionScript, Fake, Step};
use crate::table::{request, user};

/// Part of everything that only its provider can read.
const SECRET: &str = "c2VhbGVk";
const SEALING: [Provider; 3] = [Provider::Anthropic, Provider::OpenAi, Provider::Gemini];

fn script(messages: &[Value]) -> ConnectionScript {
    let said = messages.iter().map(|message| Step::Body(format!("data: {message}\n\n").into_bytes()));
    let head = Step::Head(200, "content-type: text/event-stream\r\n".to_owned());
    [head].into_iter().chain(said).chain([Step::End]).collect()
}

/// A thought, a word, a call, and a call after another thought, as far as the provider seals them.
fn thoughtful(provider: Provider) -> ConnectionScript {
    match provider {
        Provider::Anthropic => {
            let start = |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
            let delta = |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
            let stop = |index: u64| json!({"type": "content_block_stop", "index": index});
            let call = |index: u64, id: &str| {
                start(index, json!({"type": "tool_use", "id": id, "name": "echo", "input": {}}))
            };
            script(&[
                start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
                delta(0, json!({"type": "thinking_delta", "thinking": "H"})),
                delta(0, json!({"type": "thinking_delta", "thinking": "m."})),
                delta(0, json!({"type": "signature_delta", "signature": SECRET})),
                stop(0),
                start(1, json!({"type": "redacted_thinking", "data": format!("{SECRET}2")})),
                stop(1),
                start(2, json!({"type": "text", "text": ""})),
                delta(2, json!({"type": "text_delta", "text": "Both."})),
                stop(2),
                call(3, "call_a"),
                stop(3),
                call(4, "call_b"),
                stop(4),
                json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}}),
                json!({"type": "message_stop"}),
            ])
        }
        Provider::OpenAi => {
            let reasoning = |encrypted: &str| {
                json!({"type": "reasoning", "id": "rs_1", "status": "completed",
                    "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": encrypted})
            };
            let call =
                |id: &str| json!({"type": "function_call", "call_id": id, "name": "echo", "arguments": "{}"});
            let item = |kind: &str, index: u64, item: Value| json!({"type": format!("response.output_item.{kind}"), "output_index": index, "item": item});
            let output = json!([reasoning(SECRET), call("call_a"), reasoning("again"), call("call_b")]);
            script(&[
                // Not whole yet, so nothing that can be given back.
                item("added", 0, reasoning("half")),
                json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "Hm."}),
                item("done", 0, reasoning(SECRET)),
                item("added", 1, call("call_a")),
                item("done", 1, call("call_a")),
                item("done", 2, reasoning("again")),
                item("done", 3, call("call_b")),
                json!({"type": "response.completed", "response": {"output": output}}),
            ])
        }
        Provider::Gemini => {
            let part = |part: Value| json!({"candidates": [{"content": {"role": "model", "parts": [part]}}]});
            script(&[
                part(json!({"text": "Hm.", "thought": true})),
                part(json!({"text": "Both."})),
                part(
                    json!({"functionCall": {"id": "call_a", "name": "echo", "args": {}}, "thoughtSignature": SECRET}),
                ),
                part(json!({"functionCall": {"id": "call_b", "name": "echo", "args": {}}})),
                json!({"candidates": [{"finishReason": "STOP"}]}),
            ])
        }
        Provider::OpenAiCompatible | Provider::Ollama => panic!("{provider:?} seals nothing"),
    }
}

fn thinking(provider: Provider, name: &str, url: &str) -> RemoteModel {
    let settings = ProviderSettings::new(provider, name).base_url(url);
    let settings = match provider {
        Provider::Anthropic => settings.param("thinking", json!({"type": "enabled", "budget_tokens": 1024})),
        Provider::OpenAi => settings.param("reasoning", json!({"effort": "low"})),
        Provider::OpenAiCompatible | Provider::Gemini | Provider::Ollama => settings,
    };
    RemoteModel::new(settings).expect("an address")
}

fn refusing() -> ConnectionScript {
    vec![Step::Head(400, String::new()), Step::End]
}

/// An answer with its results, as the transcript has them.
fn answer_messages(id: &str, answer: &ModelAnswer) -> Vec<ModelMessage> {
    let call = |call: &engine::model::ModelCall| AssistantCall {
        id: call.id.as_str().into(),
        tool: call.tool.as_str().into(),
        arguments: Arguments::Valid { value: Arc::new(json!({})), digest: Digest::sha256(b"") },
    };
    let asked = ModelMessage::Assistant {
        id: id.into(),
        text: answer.text.clone(),
        reasoning: answer.reasoning.clone(),
        calls: answer.calls.iter().map(call).collect(),
        sealed: answer.origin.sealed.clone(),
    };
    let result = |call: &engine::model::ModelCall| ModelMessage::Tool {
        call: call.id.as_str().into(),
        text: "done".to_owned(),
    };
    [asked].into_iter().chain(answer.calls.iter().map(result)).collect()
}

fn continued_request(answer: &ModelAnswer) -> ModelRequest {
    request([user(json!("Go"))].into_iter().chain(answer_messages("msg_1", answer)))
}

/// A thoughtful answer of a fake that refuses everything after it.
async fn answered(provider: Provider) -> (Fake, ModelAnswer) {
    let fake = Fake::serving(vec![thoughtful(provider), refusing()]).await;
    let model = thinking(provider, "m-1", &fake.url);
    let answer = model.answer(request([user(json!("Go"))]), Deltas::discarding()).await.expect("an answer");
    assert_eq!(answer.calls.len(), 2, "{answer:?}");
    assert_eq!(answer.reasoning.as_deref(), Some("Hm."), "{provider:?}");
    (fake, answer)
}

/// What this model sends to this address.
async fn sent(fake: &Fake, model: &RemoteModel, request: ModelRequest) -> Value {
    model.answer(request, Deltas::discarding()).await.expect_err("the fake refuses everything");
    fake.received().pop().expect("a request").body
}

#[tokio::test]
async fn anthropic_gets_its_blocks_back_unchanged_and_continues_thinking() {
    let (fake, answer) = answered(Provider::Anthropic).await;
    let body =
        sent(&fake, &thinking(Provider::Anthropic, "m-1", &fake.url), continued_request(&answer)).await;
    assert_eq!(body["thinking"]["budget_tokens"], json!(1024));
    assert_eq!(
        body["messages"][1]["content"],
        json!([
            {"type": "thinking", "thinking": "Hm.", "signature": SECRET},
            {"type": "redacted_thinking", "data": format!("{SECRET}2")},
            {"type": "text", "text": "Both."},
            {"type": "tool_use", "id": "call_a", "name": "echo", "input": {}},
            {"type": "tool_use", "id": "call_b", "name": "echo", "input": {}}])
    );
}

#[tokio::test]
async fn openai_gets_its_reasoning_back_before_what_followed_it() {
    let (fake, answer) = answered(Provider::OpenAi).await;
    assert_eq!(fake.received()[0].body["include"], json!(["reasoning.encrypted_content"]));
    let body = sent(&fake, &thinking(Provider::OpenAi, "m-1", &fake.url), continued_request(&answer)).await;
    let reasoning = |encrypted: &str| {
        json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}],
            "encrypted_content": encrypted})
    };
    let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "echo", "arguments": "{}"});
    let result = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "done"});
    assert_eq!(
        body["input"],
        json!([
            {"role": "user", "content": "Go"},
            reasoning(SECRET), call("call_a"), reasoning("again"), call("call_b"),
            result("call_a"), result("call_b")])
    );
}

#[tokio::test]
async fn openai_is_asked_for_encrypted_reasoning_only_if_it_reasons() {
    for (name, asked) in
        [("gpt-5-mini", true), ("o3", true), ("gpt-5-chat-latest", false), ("gpt-4.1", false)]
    {
        let fake = Fake::serving(vec![refusing()]).await;
        let settings = ProviderSettings::new(Provider::OpenAi, name).base_url(fake.url.as_str());
        let settings = settings.param("include", json!(["message.output_text.logprobs"]));
        let model = RemoteModel::new(settings).expect("an address");
        let body = sent(&fake, &model, request([user(json!("Go"))])).await;
        let include = body["include"].as_array().expect("a list").len();
        assert_eq!(include, 1 + usize::from(asked), "{name}");
    }
}

#[tokio::test]
async fn gemini_gets_its_signature_back_with_its_call() {
    let (fake, answer) = answered(Provider::Gemini).await;
    let body = sent(&fake, &thinking(Provider::Gemini, "m-1", &fake.url), continued_request(&answer)).await;
    assert_eq!(
        body["contents"][1]["parts"],
        json!([
            {"text": "Both."},
            {"functionCall": {"name": "echo", "args": {}}, "thoughtSignature": SECRET},
            {"functionCall": {"name": "echo", "args": {}}}])
    );
}

#[tokio::test]
async fn sealed_reasoning_is_sent_only_to_its_provider() {
    for maker in SEALING {
        let (fake, answer) = answered(maker).await;
        let sealed = answer.origin.sealed.clone().expect("something is sealed");
        assert!(sealed.content.contains(SECRET) && !sealed.by.contains(SECRET), "{sealed:?}");
        for other in ALL {
            // Another provider at the same address, another model of the same, and the same at another address.
            let elsewhere = Fake::serving(vec![refusing()]).await;
            let (at, name) = if other == maker { (&fake, "m-2") } else { (&fake, "m-1") };
            let body = sent(at, &thinking(other, name, &at.url), continued_request(&answer)).await;
            assert!(!body.to_string().contains(SECRET), "{maker:?} to {other:?}: {body}");
            let body =
                sent(&elsewhere, &thinking(other, "m-1", &elsewhere.url), continued_request(&answer)).await;
            assert!(!body.to_string().contains(SECRET), "{maker:?} to {other:?}: {body}");
            assert_eq!(body.get("thinking"), None, "a turn of another provider ends without thinking");
        }
    }
}

#[tokio::test]
async fn a_finished_turn_sends_no_sealed_reasoning() {
    for maker in SEALING {
        let (fake, answer) = answered(maker).await;
        let last = ModelAnswer::text("Done.");
        let messages = [user(json!("Go"))]
            .into_iter()
            .chain(answer_messages("msg_1", &answer))
            .chain(answer_messages("msg_2", &last));
        let body =
            sent(&fake, &thinking(maker, "m-1", &fake.url), request(messages.chain([user(json!("More"))])))
                .await;
        assert!(!body.to_string().contains(SECRET), "{maker:?}: {body}");
        assert_eq!(
            body.get("thinking").is_some(),
            maker == Provider::Anthropic,
            "the next turn thinks again"
        );
        // Words of the user beside the results do not end a turn: they go out in the same message.
        let messages = [user(json!("Go"))].into_iter().chain(answer_messages("msg_1", &answer));
        let body =
            sent(&fake, &thinking(maker, "m-1", &fake.url), request(messages.chain([user(json!("More"))])))
                .await;
        assert!(body.to_string().contains(SECRET), "{maker:?}: {body}");
    }
}

#[tokio::test]
async fn anthropic_answers_without_thinking_are_recognised_within_a_turn() {
    let quiet = script(&[
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "call_c", "name": "echo", "input": {}}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}}),
        json!({"type": "message_stop"}),
    ]);
    let fake = Fake::serving(vec![thoughtful(Provider::Anthropic), quiet, refusing()]).await;
    let model = thinking(Provider::Anthropic, "m-1", &fake.url);
    let first = model.answer(request([user(json!("Go"))]), Deltas::discarding()).await.expect("an answer");
    let second = model.answer(continued_request(&first), Deltas::discarding()).await.expect("an answer");
    let messages = |second: &ModelAnswer| {
        let said = [user(json!("Go"))]
            .into_iter()
            .chain(answer_messages("msg_1", &first))
            .chain(answer_messages("msg_2", second));
        request(said.collect::<Vec<_>>())
    };
    let body = sent(&fake, &model, messages(&second)).await;
    assert!(body["thinking"].is_object() && body.to_string().contains(SECRET), "{body}");
    // The same call, but of an unknown origin.
    let foreign = ModelAnswer { origin: engine::model::Origin::default(), ..second };
    let body = sent(&fake, &model, messages(&foreign)).await;
    assert!(body.get("thinking").is_none() && !body.to_string().contains(SECRET), "{body}");
}
