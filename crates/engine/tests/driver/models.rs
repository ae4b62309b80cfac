//! Models: retries, deltas on the way, watchers that join late; and answers that ask for what is impossible.

use std::sync::{Arc, Mutex};

use engine::agent::Agent;
use engine::clock::Clock;
use engine::feed::{FeedItem, Subscription};
use engine::live::{Delta, Deltas, LiveItem, Part, Reset};
use engine::model::{ModelAnswer, ModelCall, ModelFailure, ModelRequest};
use engine::store::Tenant;
use machine::Timestamp;
use machine::event::{CallErrorCode, Fact, Usage};
use machine::id::{RunId, assistant_message_id};
use machine::termination::{ErrorCode, Termination};
use serde_json::json;
use tokio::sync::Notify;

use crate::harness::{
    BEGIN, FunctionModel, Harness, Scripted, Sent, ask, echo, gated, name, next_item, remaining_events,
    to_assistant, transfer_definition, until_named,
};

fn failure(retryable: bool, retry_after_ms: Option<u64>) -> ModelFailure {
    ModelFailure { message: "overloaded".into(), retryable, retry_after_ms }
}

/// Answers from the given attempt on; what it fails with before, and when it was called.
fn failing_until(first: u32, failure: &ModelFailure, harness: &Harness) -> (Agent, Arc<Mutex<Vec<u64>>>) {
    let (times, clock, failure): (Arc<Mutex<Vec<u64>>>, _, _) =
        (Arc::default(), harness.clock, failure.clone());
    let seen = times.clone();
    let model = FunctionModel(move |request: ModelRequest, _| {
        seen.lock().unwrap().push(clock.now().0 - BEGIN.0);
        let answer =
            if request.attempt < first { Err(failure.clone()) } else { Ok(ModelAnswer::text("at last")) };
        async move { answer }
    });
    (Agent::new("assistant", model), times)
}

#[tokio::test(start_paused = true)]
async fn a_model_that_fails_for_now_is_asked_again_after_growing_pauses_and_each_is_announced() {
    let harness = Harness::new();
    let (agent, times) = failing_until(3, &failure(true, None), &harness);
    let engine = harness.start(agent).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    let events = remaining_events(&mut watched).await;
    let announced: Vec<(u32, Timestamp)> = events
        .iter()
        .filter_map(|event| match &event.fact {
            Fact::ModelRetrying { attempt, at, .. } => Some((*attempt, *at)),
            _ => None,
        })
        .collect();
    assert_eq!(announced, [(2, Timestamp(BEGIN.0 + 500)), (3, Timestamp(BEGIN.0 + 1_500))]);
    assert_eq!(*times.lock().unwrap(), [0, 500, 1_500]);
    assert_eq!(harness.ended(&posted.run).await, Some(Termination::NaturalEnd));
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_the_provider_asks_for_is_kept_up_to_the_limit() {
    for (asked, kept) in [(7_000, 7_000), (600_000, 30_000)] {
        let harness = Harness::new();
        let (agent, times) = failing_until(2, &failure(true, Some(asked)), &harness);
        let engine = harness.start(agent).await;
        let (_, mut watched) = engine.stream(to_assistant()).await.unwrap();
        remaining_events(&mut watched).await;
        assert_eq!(*times.lock().unwrap(), [0, kept]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_fails_permanently_or_too_often_fails_the_run() {
    for (retryable, tries) in [(false, 1), (true, 3)] {
        let harness = Harness::new();
        let (agent, times) = failing_until(99, &failure(retryable, None), &harness);
        let engine = harness.start(agent).await;
        let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
        remaining_events(&mut watched).await;
        let wanted = Termination::error(ErrorCode::Model, "overloaded");
        let ended = harness.ended(&posted.run).await;
        assert_eq!((times.lock().unwrap().len(), ended), (tries, Some(wanted)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_panics_fails_its_run_and_no_other() {
    let harness = Harness::new();
    let model = FunctionModel(|request: ModelRequest, _| async move {
        assert_ne!(request.last_user_text(), Some("boom"), "a mistake");
        Ok(ModelAnswer::text("fine"))
    });
    let engine = harness.start(Agent::new("assistant", model)).await;
    let (bad, mut watched) = engine.stream(engine::posting::Message::to("assistant", "boom")).await.unwrap();
    remaining_events(&mut watched).await;
    let Some(Termination::Error(error)) = harness.ended(&bad.run).await else { panic!("it did not fail") };
    assert_eq!(error.code, ErrorCode::Model);
    assert!(error.text.contains("the model panicked") && error.text.contains("a mistake"), "{}", error.text);
    let (good, mut watched) = engine.stream(to_assistant()).await.unwrap();
    remaining_events(&mut watched).await;
    assert_eq!(harness.ended(&good.run).await, Some(Termination::NaturalEnd));
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_is_no_answer_and_is_asked_for_again() {
    let (harness, model) =
        (Harness::new(), Scripted::new([Ok(ModelAnswer::default()), Ok(ModelAnswer::text("Hm."))]));
    let engine = harness.start(Agent::new("assistant", model)).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    remaining_events(&mut watched).await;
    assert_eq!(harness.count(&posted.run, "model.retrying").await, 1);
    assert_eq!(harness.ended(&posted.run).await, Some(Termination::NaturalEnd));
}

/// A model that says one piece each time its gate rings, and then ends as it should.
fn streaming(pieces: &'static [&'static str], gate: &Arc<Notify>, fails_first: bool) -> Agent {
    let gate = gate.clone();
    Agent::new(
        "assistant",
        FunctionModel(move |request: ModelRequest, deltas: Deltas| {
            let gate = gate.clone();
            async move {
                for piece in pieces {
                    deltas.text(piece);
                    gate.notified().await;
                }
                if fails_first && request.attempt == 1 {
                    return Err(failure(true, None));
                }
                Ok(ModelAnswer::text(pieces.concat()))
            }
        }),
    )
}

/// A delta of the first step that is sent now.
fn delta(harness: &Harness, run: &RunId, attempt: u32, offset: u64, text: &str) -> FeedItem {
    let (message_id, text) = (assistant_message_id(run, 1), text.to_owned());
    let (step, at, part) = (Some(1), harness.clock.now(), Part::Text);
    FeedItem::Live(LiveItem::Delta(Delta { message_id, attempt, step, at, part, offset, text }))
}

async fn next_live(watched: &mut Subscription) -> FeedItem {
    loop {
        let item = next_item(watched).await.unwrap();
        if matches!(item, FeedItem::Live(_)) {
            return item;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_read_text_of_a_failed_attempt_gets_a_reset() {
    let (harness, gate) = (Harness::new(), Arc::new(Notify::new()));
    let engine = harness.start(streaming(&["Hel", "lo"], &gate, true)).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    assert_eq!(next_live(&mut watched).await, delta(&harness, &posted.run, 1, 0, "Hel"));
    gate.notify_one();
    assert_eq!(next_live(&mut watched).await, delta(&harness, &posted.run, 1, 3, "lo"));
    gate.notify_one();
    let retrying = until_named(&mut watched, "model.retrying").await;
    let (message_id, step, at) = (assistant_message_id(&posted.run, 1), Some(1), retrying.at);
    let reset = LiveItem::Reset(Reset { message_id, attempt: 2, step, at });
    assert_eq!(next_live(&mut watched).await, FeedItem::Live(reset));
    assert_eq!(next_live(&mut watched).await, delta(&harness, &posted.run, 2, 0, "Hel"));
    gate.notify_one();
    assert_eq!(next_live(&mut watched).await, delta(&harness, &posted.run, 2, 3, "lo"));
    gate.notify_one();
    // From here on there are only events.
    while let Some(item) = next_item(&mut watched).await {
        assert!(matches!(item, FeedItem::Event(_)), "{item:?}");
    }
}

/// The first attempt says something and is cut, the second is refused without a word.
#[tokio::test(start_paused = true)]
async fn text_of_a_failed_attempt_is_reset_although_no_later_one_has_text() {
    let (harness, gate) = (Harness::new(), Arc::new(Notify::new()));
    let ring = gate.clone();
    let model = FunctionModel(move |request: ModelRequest, deltas: Deltas| {
        let ring = ring.clone();
        async move {
            if request.attempt == 1 {
                deltas.text("Hel");
                ring.notified().await;
                return Err(failure(true, None));
            }
            Err(failure(false, None))
        }
    });
    let engine = harness.start(Agent::new("assistant", model)).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    assert_eq!(next_live(&mut watched).await, delta(&harness, &posted.run, 1, 0, "Hel"));
    gate.notify_one();
    let retrying = until_named(&mut watched, "model.retrying").await;
    let (message_id, step, at) = (assistant_message_id(&posted.run, 1), Some(1), retrying.at);
    let reset = FeedItem::Live(LiveItem::Reset(Reset { message_id, attempt: 2, step, at }));
    assert_eq!(next_item(&mut watched).await, Some(reset));
    // A watcher that joins between the attempts gets no delta of the failed one, and no reset for it.
    let mut late = engine.subscribe(&Tenant::default(), &posted.run, retrying.seq);
    for watched in [&mut late, &mut watched] {
        while let Some(item) = next_item(watched).await {
            assert!(matches!(item, FeedItem::Event(_)), "{item:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_watcher_gets_the_text_so_far_as_one_delta_and_then_the_rest() {
    let (harness, gate) = (Harness::new(), Arc::new(Notify::new()));
    let engine = harness.start(streaming(&["é", "bc", "d"], &gate, false)).await;
    let (posted, mut first) = engine.stream(to_assistant()).await.unwrap();
    assert_eq!(next_live(&mut first).await, delta(&harness, &posted.run, 1, 0, "é"));
    gate.notify_one();
    // Offsets are in characters, not in bytes.
    assert_eq!(next_live(&mut first).await, delta(&harness, &posted.run, 1, 1, "bc"));
    let last = harness.log(&posted.run).await.len() as u64;
    let mut late = engine.subscribe(&Tenant::default(), &posted.run, last);
    assert_eq!(next_item(&mut late).await.unwrap(), delta(&harness, &posted.run, 1, 0, "ébc"));
    gate.notify_one();
    assert_eq!(next_item(&mut late).await.unwrap(), delta(&harness, &posted.run, 1, 3, "d"));
    gate.notify_one();
    let rest: Vec<String> = remaining_events(&mut late).await.iter().map(|event| name(&event.fact)).collect();
    assert_eq!(rest, ["message.added", "step.ended", "run.ended"]);
}

#[tokio::test(start_paused = true)]
async fn a_delta_that_comes_after_its_answer_is_dropped() {
    let (harness, gate) = (Harness::new(), Arc::new(Notify::new()));
    let kept: Arc<Mutex<Option<Deltas>>> = Arc::default();
    let keep = kept.clone();
    let model = FunctionModel(move |request: ModelRequest, deltas: Deltas| {
        deltas.text("Let me see.");
        let first = request.step == 1;
        if first {
            *keep.lock().unwrap() = Some(deltas);
        }
        let answer = ModelAnswer { text: "Let me see.".into(), ..ask(&[("a", "slow", json!({}))]) };
        std::future::ready(Ok(if first { answer } else { ModelAnswer::text("Let me see.") }))
    });
    let engine = harness.start(Agent::new("assistant", model).tool(gated("slow", &gate))).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    until_named(&mut watched, "tool.execution_started").await;
    kept.lock().unwrap().as_ref().unwrap().text(" One more thing");
    gate.notify_one();
    let stale = assistant_message_id(&posted.run, 1);
    while let Some(item) = next_item(&mut watched).await {
        let is_stale = matches!(&item, FeedItem::Live(LiveItem::Delta(delta)) if delta.message_id == stale);
        assert!(!is_stale, "{item:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn arguments_that_cannot_be_used_fail_the_call_and_never_create_an_approval() {
    let schema = json!({"type": "object", "required": ["to"]});
    let bad = ["{\"to\":", "[1]", "{}", "{\"to\": 9007199254740993}", "nonsense"];
    let calls = bad.iter().enumerate().map(|(index, arguments)| ModelCall {
        id: format!("c{index}"),
        tool: "transfer".into(),
        arguments: (*arguments).into(),
    });
    let asked = ModelAnswer { calls: calls.collect(), ..ModelAnswer::default() };
    let (harness, model) = (Harness::new(), Scripted::new([Ok(asked), Ok(ModelAnswer::text("Sorry."))]));
    let sent = Sent::default();
    let tool = sent.tool(transfer_definition().parameters(schema), |_| json!("sent"));
    let engine = harness.start(Agent::new("assistant", model.clone()).tool(tool)).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    let events = remaining_events(&mut watched).await;
    let codes: Vec<CallErrorCode> = events
        .iter()
        .filter_map(|event| match &event.fact {
            Fact::ExecutionFailed { error, .. } => Some(error.code),
            _ => None,
        })
        .collect();
    assert_eq!(codes, [CallErrorCode::BadArguments; 5]);
    assert_eq!((harness.count(&posted.run, "tool.approval_requested").await, sent.count()), (0, 0));
    assert_eq!(harness.ended(&posted.run).await, Some(Termination::NaturalEnd));
}

#[tokio::test(start_paused = true)]
async fn call_ids_that_are_empty_or_used_before_are_made_unique_in_the_thread() {
    let echoes = ["x", "x", ""].map(|id| (id, "echo", json!({})));
    let model = Scripted::new([Ok(ask(&echoes)), Ok(ModelAnswer::text("Done."))]);
    let harness = Harness::new();
    let engine = harness.start(Agent::new("assistant", model.clone()).tool(echo())).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let (_, mut watched) = engine.stream(to_assistant().on_thread("t")).await.unwrap();
        ids.extend(remaining_events(&mut watched).await.iter().filter_map(|event| match &event.fact {
            Fact::ToolRequested { call_id, .. } => Some(call_id.to_string()),
            _ => None,
        }));
    }
    assert_eq!((&*ids[0], &*ids[1], &*ids[3], &*ids[4]), ("x", "x~2", "x~3", "x~4"));
    let unique: std::collections::BTreeSet<&String> = ids.iter().collect();
    assert_eq!(unique.len(), 6, "{ids:?}");
    // Every call has its own result, directly behind the message that asked.
    let results: Vec<String> = ids[3..].iter().map(|id| format!("tool {id}: {{}}")).collect();
    assert_eq!(&model.last_read()[8..], results);
}

#[tokio::test(start_paused = true)]
async fn the_request_has_the_instructions_the_tools_and_every_message_of_the_thread() {
    let usage = Usage { input_tokens: 10, output_tokens: 2 };
    let answer = ModelAnswer { usage, ..ModelAnswer::text("Hello.") };
    let (harness, model) = (Harness::new(), Scripted::new([Ok(answer)]));
    let engine =
        harness.start(Agent::new("assistant", model.clone()).instructions("Be kind.").tool(echo())).await;
    for _ in 0..2 {
        let (posted, mut watched) = engine.stream(to_assistant().on_thread("t")).await.unwrap();
        let ended = remaining_events(&mut watched).await.pop().unwrap();
        assert!(matches!(&ended.fact, Fact::RunEnded { usage: total, .. } if *total == usage), "{ended:?}");
        let request = model.requests().pop().unwrap();
        assert_eq!((&request.run, request.step, request.attempt, request.ordinal), (&posted.run, 1, 1, 1));
    }
    let request = model.requests().pop().unwrap();
    assert_eq!(&*request.instructions, "Be kind.");
    assert_eq!(request.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["echo"]);
    assert_eq!(model.last_read(), ["user: go", "assistant: Hello.[]", "user: go"]);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_never_answers_has_failed_and_is_asked_again() {
    let harness = Harness::new();
    let model = FunctionModel(|request: ModelRequest, _| async move {
        if request.attempt == 1 {
            std::future::pending::<()>().await;
        }
        Ok(ModelAnswer::text("at last"))
    });
    let engine = harness.start(Agent::new("assistant", model)).await;
    let finished = engine.run(to_assistant()).await.unwrap();
    assert_eq!(finished.text, "at last");
    assert_eq!(harness.count(&finished.run, "model.retrying").await, 1);
}
