//! A long thread: the model is shown its newest turns, and a transcript shows what the model sees.

use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::Settings;
use engine::agent::{Agent, Trim};
use engine::deciding::Decide;
use engine::model::{ModelAnswer, ModelRequest};
use engine::plugin::{Action, Phase};
use engine::posting::Message;
use engine::store::Tenant;
use machine::termination::Termination;
use serde_json::json;

use crate::faulty_store::{Fate, FaultyStore};
use crate::function_plugin::FunctionPlugin;
use crate::harness::{
    FunctionModel, Harness, Scripted, Sent, accepted, ask, asking, call, echo, held, texts_of, texts_read_by,
    wait_until_released,
};

#[tokio::test]
async fn the_model_is_shown_the_newest_turns_and_a_transcript_shows_the_same() {
    let harness = Harness::new();
    let model = Scripted::new([
        Ok(ask(&[("a", "echo", json!({"n": 1}))])),
        Ok(ask(&[("b", "echo", json!({"n": 2}))])),
        Ok(ModelAnswer::text("Done.")),
    ]);
    let trim = Trim { messages_max: Some(4), chars_max: None };
    let agent = Agent::new("assistant", model.clone()).instructions("Be brief.").tool(echo()).trim(trim);
    let engine = harness.start(agent).await;
    let said = |text: &str| Message::to("assistant", text).on_thread("t");
    engine.run(said("one")).await.expect("it runs");
    let first = texts_read_by(&model.requests()[2]);
    assert_eq!(first[0], "user: one");
    assert_eq!(first[1], "notice: [2 earlier messages left out]", "{first:?}");
    assert_eq!(first[2], "assistant: [\"b\"]");

    let second = engine.run(said("two")).await.expect("it runs");
    let request = model.requests()[3].clone();
    assert_eq!(
        texts_read_by(&request),
        [
            "notice: [3 earlier messages left out]",
            "assistant: [\"b\"]",
            "tool b: {\"n\":2}",
            "assistant: Done.[]",
            "user: two",
        ]
    );
    assert_eq!(&*request.instructions, "Be brief.", "instructions are never left out");
    let seen = engine.transcript(&Tenant::default(), &second.run).await.expect("it is there");
    let lines = texts_of(&seen);
    assert_eq!(lines[0], "user: two", "{lines:?}");
    assert!(lines[1].starts_with("notice: [") && lines.len() <= 5, "{lines:?}");
    // The log has all of it.
    let names = harness.names(&second.run).await;
    assert_eq!(names.iter().filter(|name| *name == "message.added").count(), 6);
}

/// What the walk back from a run reads at most.
const RUNS_MAX: usize = 10_000;

#[tokio::test]
async fn a_run_after_more_runs_than_are_read_is_shown_the_newest() {
    let harness = Harness::new();
    let model = Scripted::new([Ok(ModelAnswer::text("Done."))]);
    let ends = FunctionPlugin::answering(Phase::RunStart, vec![Action::End]);
    let engine = harness
        .engine()
        .agent(Agent::new("quick", asking(&[])).plugin(ends))
        .agent(Agent::new("assistant", model.clone()))
        .start()
        .await
        .expect("it starts");
    for number in 0..=RUNS_MAX {
        let said = Message::to("quick", number.to_string()).on_thread("t");
        engine.run(said).await.expect("it ends");
    }
    let last = engine.run(Message::to("assistant", "last").on_thread("t")).await.expect("it runs");
    assert_eq!(harness.ended(&last.run).await, Some(Termination::NaturalEnd));
    let read = model.last_read();
    assert_eq!(read[0], "notice: [messages before the last 10000 runs left out]");
    // The first of them is left out.
    assert_eq!(read[1], "user: 1");
    assert_eq!((read.len(), read.last().map(String::as_str)), (RUNS_MAX + 2, Some("user: last")));
}

/// A thread with `count` runs of four messages each, and some of them long.
async fn long_thread(engine: &engine::Engine, count: usize) {
    for number in 0..count {
        let text = format!("{number} {}", "x".repeat(8 * 1024));
        let finished = engine.run(Message::to("assistant", text).on_thread("t")).await.expect("it runs");
        assert_eq!(finished.text, "Done.");
    }
}

/// Calls `echo` first and then answers; where the message says "pay" it asks for a transfer in place of that.
fn agent(sent: &Sent, trim: Trim) -> (Agent, std::sync::Arc<std::sync::Mutex<Vec<ModelRequest>>>) {
    let seen = std::sync::Arc::<std::sync::Mutex<Vec<ModelRequest>>>::default();
    let requests = seen.clone();
    let model = FunctionModel(move |request: ModelRequest, _| {
        seen.lock().unwrap().push(request.clone());
        async move {
            let pays = request.last_user_text() == Some("pay");
            Ok(match (request.step, pays) {
                (1, false) => ask(&[("e", "echo", json!({"n": 1}))]),
                (1, true) => ask(&[("a", "transfer", json!({}))]),
                _ => ModelAnswer::text("Done."),
            })
        }
    });
    (Agent::new("assistant", model).tool(echo()).tool(sent.transfer()).trim(trim), requests)
}

#[tokio::test(start_paused = true)]
async fn of_a_long_thread_no_more_is_kept_than_the_model_is_shown_and_the_rest_is_counted() {
    for trim in [
        Trim { messages_max: Some(6), chars_max: None },
        Trim { messages_max: None, chars_max: Some(9 * 1024) },
    ] {
        let (harness, sent) = (Harness::new(), Sent::default());
        let store = FaultyStore::new(&harness.store, |_, _| Fate::Stored);
        let (agent, requests) = agent(&sent, trim);
        // Room for a few of the runs, and by no means for all.
        let settings = Settings { transcript_cache_bytes: 64 * 1024, ..Settings::default() };
        let engine = harness.engine_on(store.clone()).agent(agent).settings(settings).start().await.unwrap();
        long_thread(&engine, 20).await;
        let (run, watched) = held(&engine, Message::to("assistant", "pay").on_thread("t")).await;
        drop(watched);
        wait_until_released(&engine).await;
        let read = texts_read_by(requests.lock().unwrap().last().unwrap());
        let notice = format!("notice: [{} earlier messages left out]", 20 * 4 + 1 - (read.len() - 1));
        assert!(read.contains(&notice), "{notice} is not in {read:?}");
        assert_eq!(read.last().map(String::as_str), Some("user: pay"));
        // What is kept has room on the shelf: the log need not be read again.
        store.unreadable.store(true, Ordering::Release);
        accepted(engine.decide(Decide::approve(&run, &call("a"), "ann")).await);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(harness.ended(&run).await.is_some(), "it continues with the cached transcript");
    }
}

#[tokio::test]
async fn a_thread_that_no_model_can_be_shown_fails_its_run_and_not_the_server() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let (agent, requests) = agent(&sent, Trim::default());
    let settings = Settings { thread_bytes_max: 256 * 1024, ..Settings::default() };
    let engine = harness.engine().agent(agent).settings(settings).start().await.unwrap();
    long_thread(&engine, 5).await;
    let mut asked = requests.lock().unwrap().len();
    let mut text = String::new();
    // Somewhere on the way it is too much, and stays so.
    for _ in 0..25 {
        let said = Message::to("assistant", format!("more {}", "x".repeat(8 * 1024))).on_thread("t");
        let finished = engine.run(said).await.expect("it runs");
        let now = requests.lock().unwrap().len();
        if now == asked {
            text = format!("{:?}", finished.outcome);
        }
        asked = now;
    }
    assert!(text.contains("more than 262144 bytes"), "{text}");
    let elsewhere = engine.run(Message::to("assistant", "hello").on_thread("other")).await.expect("it runs");
    assert_eq!(elsewhere.text, "Done.");
}
