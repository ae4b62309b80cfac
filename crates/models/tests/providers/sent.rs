//! What is sent: the conversation, in the words of each dialect, and nothing else.

use std::sync::Arc;

use engine::live::Deltas;
use engine::model::{AssistantCall, Model, ModelMessage, ModelRequest};
use machine::id::Digest;
use machine::tool::Arguments;
use models::providers::{ApiKey, BadSettings, Provider, ProviderSettings, RemoteModel, Timeouts};
use serde_json::{Value, json};

use crate::cases::KEY;
use crate::dialects::ALL;
use crate::fake::{Fake, Received, Step};
use crate::table::{model, request, user};

async fn received_by(settings: ProviderSettings, request: ModelRequest) -> Received {
    let fake = Fake::serving(vec![vec![Step::Head(400, String::new()), Step::End]]).await;
    let model = RemoteModel::new(settings.base_url(fake.url.as_str())).expect("an address");
    model.answer(request, Deltas::discarding()).await.expect_err("the fake refuses everything");
    fake.received().pop().expect("a request")
}

async fn body(provider: Provider, request: ModelRequest) -> Value {
    received_by(ProviderSettings::new(provider, "m-1"), request).await.body
}

fn call(id: &str, tool: &str, arguments: Value) -> AssistantCall {
    let arguments = Arguments::Valid { value: Arc::new(arguments), digest: Digest::sha256(b"") };
    AssistantCall { id: id.into(), tool: tool.into(), arguments }
}

/// A user, an answer with two calls, their results, a note, and the user again.
fn conversation() -> ModelRequest {
    let garbled = Arguments::Invalid { raw: "{oops".to_owned(), why: "no JSON".to_owned() };
    request([
        user(json!("Read b")),
        ModelMessage::Assistant {
            id: "msg_1".into(),
            text: "Both.".to_owned(),
            reasoning: Some("Hm.".to_owned()),
            calls: vec![
                call("call_a~2", "files.read", json!({"path": "b"})),
                AssistantCall { id: "call_b".into(), tool: "echo".into(), arguments: garbled },
            ],
            sealed: None,
        },
        ModelMessage::Tool { call: "call_a~2".into(), text: "B".to_owned() },
        ModelMessage::Tool { call: "call_b".into(), text: "Error: no JSON".to_owned() },
        ModelMessage::Note { id: "late_call_c".into(), call: "call_c".into(), text: "Late.".to_owned() },
        user(json!("Go on")),
    ])
}

#[tokio::test]
async fn chat_completions_get_the_conversation_with_its_own_ids() {
    let tool = |name: &str| {
        json!({"type": "function",
            "function": {"name": name, "description": "A tool", "parameters": {"type": "object"}}})
    };
    assert_eq!(
        body(Provider::OpenAiCompatible, conversation()).await,
        json!({"model": "m-1", "stream": true, "stream_options": {"include_usage": true},
            "tools": [tool("echo"), tool("files_read")],
            "messages": [
                {"role": "system", "content": "Be careful."},
                {"role": "user", "content": "Read b"},
                {"role": "assistant", "content": "Both.", "tool_calls": [
                    {"id": "call_a~2", "type": "function",
                        "function": {"name": "files_read", "arguments": "{\"path\":\"b\"}"}},
                    {"id": "call_b", "type": "function",
                        "function": {"name": "echo", "arguments": "{\"unparsed\":\"{oops\"}"}}]},
                {"role": "tool", "tool_call_id": "call_a~2", "content": "B"},
                {"role": "tool", "tool_call_id": "call_b", "content": "Error: no JSON"},
                {"role": "user", "content": "Late."},
                {"role": "user", "content": "Go on"}]})
    );
}

#[tokio::test]
async fn responses_get_the_conversation_and_keep_none_of_it() {
    let body = body(Provider::OpenAi, conversation()).await;
    assert_eq!(body["store"], json!(false));
    assert_eq!(body["instructions"], json!("Be careful."));
    assert_eq!(
        body["tools"][1],
        json!({"type": "function", "name": "files_read", "strict": false, "description": "A tool",
            "parameters": {"type": "object"}})
    );
    assert_eq!(
        body["input"],
        json!([
            {"role": "user", "content": "Read b"},
            {"role": "assistant", "content": "Both."},
            {"type": "function_call", "call_id": "call_a~2", "name": "files_read", "arguments": "{\"path\":\"b\"}"},
            {"type": "function_call", "call_id": "call_b", "name": "echo", "arguments": "{\"unparsed\":\"{oops\"}"},
            {"type": "function_call_output", "call_id": "call_a~2", "output": "B"},
            {"type": "function_call_output", "call_id": "call_b", "output": "Error: no JSON"},
            {"role": "user", "content": "Late."},
            {"role": "user", "content": "Go on"}])
    );
}

#[tokio::test]
async fn anthropic_gets_all_results_of_a_turn_in_one_message_and_ids_that_it_takes() {
    let body = body(Provider::Anthropic, conversation()).await;
    assert_eq!(body["system"], json!("Be careful."));
    assert_eq!(body["max_tokens"], json!(8192));
    assert_eq!(
        body["tools"][1],
        json!({"name": "files_read", "description": "A tool", "input_schema": {"type": "object"}})
    );
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": [{"type": "text", "text": "Read b"}]},
            {"role": "assistant", "content": [
                {"type": "text", "text": "Both."},
                {"type": "tool_use", "id": "call_1", "name": "files_read", "input": {"path": "b"}},
                {"type": "tool_use", "id": "call_b", "name": "echo", "input": {"unparsed": "{oops"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "call_1", "content": "B"},
                {"type": "tool_result", "tool_use_id": "call_b", "content": "Error: no JSON"},
                {"type": "text", "text": "Late."},
                {"type": "text", "text": "Go on"}]}])
    );
}

#[tokio::test]
async fn gemini_gets_turns_and_results_with_the_names_of_their_tools() {
    let body = body(Provider::Gemini, conversation()).await;
    assert_eq!(body["systemInstruction"], json!({"parts": [{"text": "Be careful."}]}));
    assert_eq!(
        body["tools"][0]["functionDeclarations"][1],
        json!({"name": "files_read", "description": "A tool", "parametersJsonSchema": {"type": "object"}})
    );
    let signature = "skip_thought_signature_validator";
    assert_eq!(
        body["contents"],
        json!([
            {"role": "user", "parts": [{"text": "Read b"}]},
            {"role": "model", "parts": [
                {"text": "Both."},
                {"functionCall": {"name": "files_read", "args": {"path": "b"}}, "thoughtSignature": signature},
                {"functionCall": {"name": "echo", "args": {"unparsed": "{oops"}}, "thoughtSignature": signature}]},
            {"role": "user", "parts": [
                {"functionResponse": {"name": "files_read", "response": {"result": "B"}}},
                {"functionResponse": {"name": "echo", "response": {"result": "Error: no JSON"}}},
                {"text": "Late."},
                {"text": "Go on"}]}])
    );
}

#[tokio::test]
async fn ollama_gets_arguments_as_objects() {
    let body = body(Provider::Ollama, conversation()).await;
    assert_eq!(
        body["messages"],
        json!([
            {"role": "system", "content": "Be careful."},
            {"role": "user", "content": "Read b"},
            {"role": "assistant", "content": "Both.", "tool_calls": [
                {"function": {"name": "files_read", "arguments": {"path": "b"}}},
                {"function": {"name": "echo", "arguments": {"unparsed": "{oops"}}}]},
            {"role": "tool", "tool_name": "files_read", "content": "B"},
            {"role": "tool", "tool_name": "echo", "content": "Error: no JSON"},
            {"role": "user", "content": "Late."},
            {"role": "user", "content": "Go on"}])
    );
}

#[tokio::test]
async fn images_and_files_go_where_the_provider_takes_them() {
    let content = json!([
        {"type": "text", "text": "Look."},
        {"type": "image", "media_type": "image/png", "data": "aGk="},
        {"type": "file", "mediaType": "application/pdf", "filename": "a.pdf", "url": "data:application/pdf;base64,aGk="}]);
    let said = |provider| body(provider, request([user(content.clone())]));
    assert_eq!(
        said(Provider::OpenAiCompatible).await["messages"][1]["content"],
        json!([{"type": "text", "text": "Look."},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="}}])
    );
    assert_eq!(
        said(Provider::OpenAi).await["input"][0]["content"],
        json!([{"type": "input_text", "text": "Look."},
            {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"},
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="}])
    );
    assert_eq!(
        said(Provider::Anthropic).await["messages"][0]["content"],
        json!([{"type": "text", "text": "Look."},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}}])
    );
    assert_eq!(
        said(Provider::Gemini).await["contents"][0]["parts"],
        json!([{"text": "Look."},
            {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
            {"inlineData": {"mimeType": "application/pdf", "data": "aGk="}}])
    );
    assert_eq!(
        said(Provider::Ollama).await["messages"][1],
        json!({"role": "user", "images": ["aGk="],
            "content": "Look.\n[a.pdf (application/pdf) is left out: this model does not take it]"})
    );
}

#[tokio::test]
async fn params_are_sent_where_the_provider_has_them_and_plugins_win() {
    for provider in ALL {
        let settings = ProviderSettings::new(provider, "m-1")
            .param("temperature", 0.5)
            .param("seed", 1)
            // A setting cannot turn off the streaming that the client relies on.
            .param("stream", false);
        let mut request = request([user(json!("Hello"))]);
        request.params = vec![("temperature".to_owned(), Arc::new(json!(0.1)))];
        let body = received_by(settings, request).await.body;
        let params = match provider {
            Provider::Gemini => &body["generationConfig"],
            Provider::Ollama => &body["options"],
            Provider::OpenAi | Provider::OpenAiCompatible | Provider::Anthropic => &body,
        };
        assert_eq!((&params["temperature"], &params["seed"]), (&json!(0.1), &json!(1)), "{provider:?}");
        if provider != Provider::Gemini {
            assert_eq!(body["stream"], json!(true), "{provider:?}");
        }
    }
}

#[tokio::test]
async fn anthropic_continues_without_thinking_if_its_thinking_blocks_are_missing() {
    let thinking = || {
        let budget = json!({"type": "enabled", "budget_tokens": 1024});
        ProviderSettings::new(Provider::Anthropic, "m-1").param("thinking", budget)
    };
    let begins = received_by(thinking(), request([user(json!("Hello"))])).await.body;
    assert_eq!(begins["thinking"]["budget_tokens"], json!(1024));
    let continued = received_by(thinking(), conversation()).await.body;
    assert_eq!(continued.get("thinking"), None);
}

#[tokio::test]
async fn a_key_is_sent_in_the_header_of_its_provider_and_nowhere_else() {
    for provider in ALL {
        let with_key = ProviderSettings::new(provider, "m-1").key(ApiKey::new(KEY));
        assert!(!format!("{with_key:?}").contains(KEY));
        let received = received_by(with_key, request([user(json!("Hello"))])).await;
        let header = match provider {
            Provider::OpenAi | Provider::OpenAiCompatible | Provider::Ollama => {
                format!("authorization: bearer {KEY}")
            }
            Provider::Anthropic => format!("x-api-key: {KEY}"),
            Provider::Gemini => format!("x-goog-api-key: {KEY}"),
        };
        let lines: Vec<&str> = received.head.lines().filter(|line| line.contains(KEY)).collect();
        assert_eq!(lines, [header], "{provider:?}");

        let without = ProviderSettings::new(provider, "m-1");
        let received = received_by(without, request([user(json!("Hello"))])).await;
        assert!(
            !received.head.contains("authorization") && !received.head.contains("-key"),
            "{}",
            received.head
        );
    }
}

#[tokio::test]
async fn requests_go_to_the_address_of_the_protocol() {
    let cases = [
        (Provider::OpenAi, "/v1", "/v1/responses"),
        (Provider::OpenAiCompatible, "/v1", "/v1/chat/completions"),
        (Provider::OpenAiCompatible, "/v1/", "/v1/chat/completions"),
        (Provider::OpenAiCompatible, "", "/chat/completions"),
        (Provider::Anthropic, "", "/v1/messages"),
        (Provider::Anthropic, "/v1", "/v1/messages"),
        (Provider::Gemini, "", "/v1beta/models/test-model:streamgeneratecontent?alt=sse"),
        (Provider::Gemini, "/v1/", "/v1/models/test-model:streamgeneratecontent?alt=sse"),
        (Provider::Ollama, "/", "/api/chat"),
    ];
    for (provider, base, path) in cases {
        let fake = Fake::serving(vec![vec![Step::Head(400, String::new()), Step::End]]).await;
        let model = model(provider, &format!("{}{base}", fake.url), Timeouts::default());
        let refused = model.answer(request([user(json!("Hello"))]), Deltas::discarding()).await;
        refused.expect_err("the fake refuses everything");
        let first = fake.received()[0].head.lines().next().expect("a line").to_owned();
        assert_eq!(first, format!("post {path} http/1.1"), "{provider:?} at {base}");
    }
}

#[test]
fn settings_that_make_no_address_are_refused() {
    let bad = |settings: ProviderSettings| RemoteModel::new(settings).expect_err("no address");
    let compatible = || ProviderSettings::new(Provider::OpenAiCompatible, "m");
    assert_eq!(bad(compatible()), BadSettings::NoBaseUrl);
    for url in ["ftp://a.example", "127.0.0.1:80", "http://a b"] {
        assert_eq!(bad(compatible().base_url(url)), BadSettings::BadAddress, "{url}");
    }
    let spaces = ProviderSettings::new(Provider::Gemini, "no such name").base_url("http://127.0.0.1:1");
    assert_eq!(bad(spaces), BadSettings::BadAddress);
}

#[tokio::test]
async fn the_output_schema_is_sent_in_the_providers_field() {
    let schema = json!({"type": "object", "required": ["total"]});
    let wanting = |with_tools: bool| {
        let mut request = request([user(json!("How much?"))]);
        request.output_schema = Some(Arc::new(schema.clone()));
        if !with_tools {
            request.tools.clear();
        }
        request
    };
    let format = json!({"type": "json_schema", "name": "output", "schema": schema, "strict": false});
    for with_tools in [true, false] {
        let openai = body(Provider::OpenAi, wanting(with_tools)).await;
        assert_eq!(openai["text"], json!({"format": format}), "{openai}");
        // Not every server takes one: there the instructions alone ask for it.
        let chat = body(Provider::OpenAiCompatible, wanting(with_tools)).await;
        assert_eq!(chat.get("response_format"), None, "{chat}");
    }
    let gemini = body(Provider::Gemini, wanting(false)).await;
    let config = json!({"responseMimeType": "application/json", "responseJsonSchema": schema});
    assert_eq!(gemini["generationConfig"], config);
    assert_eq!(body(Provider::Gemini, wanting(true)).await.get("generationConfig"), None);
    assert_eq!(body(Provider::Ollama, wanting(false)).await["format"], schema);
    assert_eq!(body(Provider::Ollama, wanting(true)).await.get("format"), None);
    let nothing = body(Provider::OpenAi, request([user(json!("Hello"))])).await;
    assert_eq!(nothing.get("text"), None, "{nothing}");
}
