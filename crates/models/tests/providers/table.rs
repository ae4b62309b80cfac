//! Every case for every provider, and the table of outcomes.

use std::sync::Arc;

use engine::live::Deltas;
use engine::model::{Model, ModelAnswer, ModelFailure, ModelMessage, ModelRequest};
use engine::store::Tenant;
use engine::tool::ToolDefinition;
use models::providers::{ApiKey, Provider, ProviderSettings, RemoteModel, Timeouts};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::cases::{self, Case, KEY};
use crate::dialects::ALL;
use crate::fake::{Fake, closed_address};

pub(crate) fn model(provider: Provider, url: &str, timeouts: Timeouts) -> RemoteModel {
    let settings =
        ProviderSettings::new(provider, "test-model").base_url(url).key(ApiKey::new(KEY)).timeouts(timeouts);
    RemoteModel::new(settings).expect("an address")
}

pub(crate) fn request(messages: impl IntoIterator<Item = ModelMessage>) -> ModelRequest {
    let tool =
        |name: &str| Arc::new(ToolDefinition::new(name, "A tool").parameters(json!({"type": "object"})));
    ModelRequest {
        tenant: Tenant::default(),
        thread: "thr_1".into(),
        run: "run_1".into(),
        step: 1,
        attempt: 1,
        ordinal: 1,
        message_id: "msg_1".into(),
        instructions: Arc::from("Be careful."),
        messages: messages.into_iter().collect(),
        tools: vec![tool("echo"), tool("files.read")],
        output_schema: None,
        params: Vec::new(),
    }
}

pub(crate) fn user(content: Value) -> ModelMessage {
    ModelMessage::User { id: "msg_0".into(), content: Arc::new(content), by: None }
}

async fn outcome(provider: Provider, case: &Case) -> Result<ModelAnswer, ModelFailure> {
    let mut fake = None;
    let url = match &case.script {
        Some(script) => fake.insert(Fake::serving(vec![script.clone()]).await).url.clone(),
        None => closed_address().await,
    };
    let model = model(provider, &url, case.timeouts);
    model.answer(request([user(json!("Hello"))]), Deltas::discarding()).await
}

async fn check(provider: Provider, cases_min: usize) {
    let cases = cases::all(provider);
    assert!(cases.len() >= cases_min, "{} cases of {provider:?}", cases.len());
    let mut running = JoinSet::new();
    for case in cases {
        running.spawn(async move {
            let found = outcome(provider, &case).await;
            let shown = format!("{found:?}");
            let leaked = shown.contains("sk-test-01").then(|| format!("the key is in {shown}"));
            let wrong = leaked.or_else(|| case.expected.differs(&found));
            wrong.map(|why| format!("{provider:?}, {}: {why}", case.name))
        });
    }
    let wrong: Vec<String> = running.join_all().await.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openai_responses_have_the_outcomes_of_the_table() {
    check(Provider::OpenAi, 45).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openai_chat_has_the_outcomes_of_the_table() {
    check(Provider::OpenAiCompatible, 45).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anthropic_has_the_outcomes_of_the_table() {
    check(Provider::Anthropic, 45).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gemini_has_the_outcomes_of_the_table() {
    check(Provider::Gemini, 45).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ollama_has_the_outcomes_of_the_table() {
    check(Provider::Ollama, 45).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_without_an_end_is_given_up_before_it_fills_the_memory() {
    let piece = "x".repeat(64 * 1024);
    for provider in ALL {
        let event = match provider {
            Provider::Ollama => format!("{}\n", json!({"message": {"content": piece}, "done": false})),
            Provider::Gemini => {
                format!("data: {}\n\n", json!({"candidates": [{"content": {"parts": [{"text": piece}]}}]}))
            }
            Provider::OpenAiCompatible => {
                format!("data: {}\n\n", json!({"choices": [{"delta": {"content": piece}}]}))
            }
            Provider::OpenAi => {
                format!("data: {}\n\n", json!({"type": "response.output_text.delta", "delta": piece}))
            }
            Provider::Anthropic => {
                let delta = json!({"type": "text_delta", "text": piece});
                format!("data: {}\n\n", json!({"type": "content_block_delta", "index": 0, "delta": delta}))
            }
        };
        let mut script = vec![crate::fake::Step::Head(200, String::new())];
        script.extend((0..80).map(|_| crate::fake::Step::Body(event.clone().into_bytes())));
        let fake = Fake::serving(vec![script]).await;
        let found = model(provider, &fake.url, Timeouts::default())
            .answer(request([user(json!("Hello"))]), Deltas::discarding())
            .await;
        let failure = found.expect_err("no answer");
        assert!(!failure.retryable && failure.message.contains("longer than 4194304 bytes"), "{failure:?}");
    }
}
