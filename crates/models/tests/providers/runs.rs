//! Runs with a real model: its words on their way, its retries in the log, and its key nowhere.

use engine::Engine;
use std::sync::Arc;

use engine::agent::{Agent, Limits};
use engine::feed::FeedItem;
use engine::live::{Deltas, LiveItem, Part};
use engine::model::{Model, ModelAnswer, ModelFailure};
use engine::posting::Message;
use machine::event::Fact;
use models::fallback::FallbackModel;
use models::providers::{Provider, Timeouts};
use models::scripted::{Reply, ScriptedModel};
use serde_json::json;
use stores::memory::MemoryStore;

use crate::cases::KEY;
use crate::dialects::{ALL, StopReason, StreamEvent, encode};
use crate::fake::{ConnectionScript, Fake, Step};
use crate::table::{model, request, user};

fn script(provider: Provider, stream_events: &[StreamEvent]) -> ConnectionScript {
    let kind = if provider == Provider::Ollama { "application/x-ndjson" } else { "text/event-stream" };
    let said = encode(provider, stream_events).into_iter().map(|message| Step::Body(message.into_bytes()));
    [Step::Head(200, format!("content-type: {kind}\r\n"))].into_iter().chain(said).collect()
}

/// Everything that a watcher of one run sees, and the texts of its deltas by their part.
async fn watched(provider: Provider, scripts: Vec<ConnectionScript>) -> (Vec<Fact>, Vec<LiveItem>) {
    let fake = Fake::serving(scripts).await;
    let limits = Limits { backoff_ms: 1, ..Limits::default() };
    let agent = Agent::new("clerk", model(provider, &fake.url, Timeouts::default())).limits(limits);
    let engine = Engine::on(MemoryStore::new()).agent(agent).start().await.expect("an engine");
    let (_, mut feed) = engine.stream(Message::to("clerk", "Hello")).await.expect("a run");
    let (mut facts, mut live) = (Vec::new(), Vec::new());
    while let Some(item) = feed.next().await {
        match item.expect("a feed without an error") {
            FeedItem::Event(committed) => facts.push(committed.event.fact.clone()),
            FeedItem::Live(item) => live.push(item),
            FeedItem::Unreadable(event) => panic!("event {} cannot be decoded", event.seq),
        }
    }
    (facts, live)
}

fn delta_text(live: &[LiveItem], wanted: &Part) -> String {
    let text = |item: &LiveItem| match item {
        LiveItem::Delta(delta) if delta.part == *wanted => Some(delta.text.clone()),
        LiveItem::Delta(_) | LiveItem::Reset { .. } | LiveItem::Note(_) => None,
    };
    live.iter().filter_map(text).collect()
}

#[tokio::test]
async fn text_reasoning_and_arguments_are_streamed_as_deltas() {
    let stream_events = [
        StreamEvent::Begin,
        StreamEvent::Think("Hm."),
        StreamEvent::Text("Bo"),
        StreamEvent::Text("th."),
        StreamEvent::Call(0, "call_a", "echo"),
        StreamEvent::Arguments(0, "{\"text\":"),
        StreamEvent::Arguments(0, "\"a\"}"),
        StreamEvent::Finish(StopReason::ToolCalls),
        StreamEvent::Usage,
    ];
    for provider in ALL {
        let last = script(
            provider,
            &[
                StreamEvent::Begin,
                StreamEvent::Text("Done."),
                StreamEvent::Finish(StopReason::EndTurn),
                StreamEvent::Usage,
            ],
        );
        let ended = |mut script: ConnectionScript| {
            script.push(Step::End);
            script
        };
        let (_, live) = watched(provider, vec![ended(script(provider, &stream_events)), ended(last)]).await;
        assert_eq!(delta_text(&live, &Part::Text), "Both.Done.", "{provider:?}: {live:?}");
        assert_eq!(delta_text(&live, &Part::Reasoning), "Hm.", "{provider:?}");
        let arguments = Part::Arguments { index: 0, call_id: Some("call_a".to_owned()) };
        assert_eq!(delta_text(&live, &arguments), "{\"text\":\"a\"}", "{provider:?}");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_is_announced_and_begun_again() {
    for provider in ALL {
        let mut whole = script(
            provider,
            &[
                StreamEvent::Begin,
                StreamEvent::Text("Hello"),
                StreamEvent::Finish(StopReason::EndTurn),
                StreamEvent::Usage,
            ],
        );
        whole.push(Step::End);
        let broken = script(provider, &[StreamEvent::Begin, StreamEvent::Text("Hel")]);
        let busy =
            vec![Step::Head(503, "retry-after-ms: 2\r\n".to_owned()), Step::Body(KEY.into()), Step::End];
        let (facts, live) = watched(provider, vec![broken, busy, whole]).await;

        let retried: Vec<&str> = facts
            .iter()
            .filter_map(|fact| {
                if let Fact::ModelRetrying { error, .. } = fact { Some(error.as_str()) } else { None }
            })
            .collect();
        let name = provider.as_str();
        assert_eq!(retried.len(), 2, "{facts:?}");
        assert!(
            retried[0].starts_with(&format!("{name} test-model: the connection was lost")),
            "{retried:?}"
        );
        assert_eq!(retried[1], format!("{name} test-model: it answered 503: [key]"));
        assert!(live.iter().any(|item| matches!(item, LiveItem::Reset { .. })), "{live:?}");
        assert_eq!(facts.last().map(Fact::name), Some("run.ended"));
        assert!(!format!("{facts:?}{live:?}").contains(KEY));
    }
}

fn pair(main: Reply) -> FallbackModel {
    let main = Arc::new(ScriptedModel::replying([main]));
    let backup = Arc::new(ScriptedModel::replying([Reply::text("Good morning.")]));
    FallbackModel::new(2, ("main".to_owned(), main), [("backup".to_owned(), backup as Arc<dyn Model>)])
}

#[tokio::test]
async fn the_next_model_answers_the_same_step_when_the_first_has_spent_its_tries_and_the_log_says_so() {
    for (status, what) in [(503, "trouble that passes"), (400, "what is wrong for good")] {
        let model = pair(Reply::error(status, what));
        let limits = Limits { backoff_ms: 1, model_try_count_max: model.try_count(), ..Limits::default() };
        let agent = Agent::new("clerk", model).limits(limits);
        let engine = Engine::on(MemoryStore::new()).agent(agent).start().await.expect("an engine");
        let (_, mut feed) = engine.stream(Message::to("clerk", "Hello")).await.expect("a run");
        let (mut retried, mut steps) = (Vec::new(), 0);
        while let Some(item) = feed.next().await {
            let FeedItem::Event(committed) = item.expect("a feed without an error") else { continue };
            if let Fact::ModelRetrying { attempt, error, .. } = &committed.event.fact {
                retried.push((*attempt, error.clone()));
            }
            steps += usize::from(committed.event.fact.name() == "step.started");
        }
        let expected = [
            (2, format!("main: {status}: {what}")),
            (3, format!("main: {status}: {what}; backup is asked next")),
        ];
        assert_eq!((retried.as_slice(), steps), (expected.as_slice(), 1));
    }
}

#[tokio::test]
async fn the_failure_of_the_last_model_is_final() {
    let broken = |message: &str| Arc::new(ScriptedModel::replying([Reply::error(400, message)]));
    let model = FallbackModel::new(
        1,
        ("main".to_owned(), broken("no")),
        [("backup".to_owned(), broken("never") as _)],
    );
    let asked = async |attempt: u32| {
        let mut request = request([user(json!("Hello"))]);
        request.attempt = attempt;
        model.answer(request, Deltas::discarding()).await
    };
    let failure = |message: &str, retryable| -> Result<ModelAnswer, ModelFailure> {
        Err(ModelFailure { message: message.to_owned(), retryable, retry_after_ms: None })
    };
    assert_eq!(asked(1).await, failure("main: 400: no; backup is asked next", true));
    assert_eq!(asked(2).await, failure("backup: 400: never", false));
    // A worker that was lost took an attempt with it.
    assert_eq!(asked(9).await, failure("backup: 400: never", false));
}

#[tokio::test]
async fn agents_with_different_models_under_one_name_are_answered_by_their_own() {
    let named = |name: &str, says: &str| {
        let mut agent = Agent::new(name, ScriptedModel::replying([Reply::text(says)]));
        "main".clone_into(&mut agent.model_name);
        agent
    };
    let engine =
        Engine::on(MemoryStore::new()).agent(named("ada", "I am Ada.")).agent(named("bob", "I am Bob."));
    let engine = engine.start().await.expect("an engine");
    for (agent, says) in [("ada", "I am Ada."), ("bob", "I am Bob.")] {
        let finished = engine.run(Message::to(agent, "Who are you?")).await.expect("a run");
        assert_eq!(finished.text, says);
    }
}
