//! A message that is posted twice under one key is one message.

use engine::agent::Agent;
use engine::deciding::Decide;
use engine::model::ModelAnswer;
use engine::posting::{Message, OnBusy, PostError};
use engine::store::{Page, PostKey, RunFilter, SCOPE_BYTES_MAX, Tenant, ViewStore};
use machine::id::{Digest, MessageId};
use machine::projection_rows::PublicRunStatus;
use machine::thread::Busy;
use serde_json::json;

use crate::faulty_store::{Fate, FaultyStore};
use crate::harness::{Harness, Scripted, Sent, accepted, asking, call, held, remaining_events};

fn says(text: &str) -> Message {
    Message::to("assistant", text).on_thread("t").with_key(key(text))
}

/// Of one principal; a message with another text is another body.
fn key(body: &str) -> PostKey {
    PostKey { scope: "ana k".into(), body: Digest::sha256(body.as_bytes()) }
}

async fn run_count(harness: &Harness) -> usize {
    let runs = harness.store.runs(&Tenant::default(), &RunFilter::default(), &Page::default()).await.unwrap();
    runs.items.len()
}

fn one_transfer(sent: &Sent) -> Agent {
    Agent::new("assistant", asking(&[("a", "transfer", json!({"to": "bob"}))])).tool(sent.transfer())
}

#[tokio::test(start_paused = true)]
async fn a_repeat_is_answered_with_the_run_as_it_is_by_then() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let engine = harness.start(one_transfer(&sent)).await;
    let (run, mut watched) = held(&engine, says("go")).await;
    let repeat = engine.post(says("go")).await.unwrap();
    assert_eq!(
        (&repeat.run, repeat.status),
        (&run, PublicRunStatus::WaitingApproval),
        "before the busy check"
    );
    let other = engine.post(Message { key: Some(key("stay")), ..says("go") }).await;
    assert_eq!(other, Err(PostError::KeyUsed { run: run.clone() }), "before the busy check too");
    accepted(engine.decide(Decide::approve(&run, &call("a"), "ann")).await);
    remaining_events(&mut watched).await;
    let repeat = engine.post(says("go")).await.unwrap();
    assert_eq!((&repeat.run, repeat.status), (&run, PublicRunStatus::Completed));
    assert_eq!((run_count(&harness).await, sent.count()), (1, 1));
    // Another thread, another scope: other messages.
    assert_ne!(engine.post(says("go").on_thread("t2")).await.unwrap().run, run);
    let bob = PostKey { scope: "bob k".into(), ..key("go") };
    assert_ne!(engine.post(says("go").with_key(bob)).await.unwrap().run, run);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_is_recognised_even_if_it_would_be_refused_today() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let engine = harness.start(one_transfer(&sent)).await;
    let named = Message { message_id: Some(MessageId::from("m1")), ..says("go") };
    let (run, _watched) = held(&engine, named.clone()).await;
    assert_eq!(engine.post(named.clone()).await.unwrap().run, run, "its own id is taken by itself");
    let other = Agent::new("other", Scripted::new([Ok(ModelAnswer::text("hm"))]));
    engine.replace_agents(vec![other]).await.unwrap();
    assert_eq!(engine.post(named).await.unwrap().run, run, "its agent is gone");
    let fresh = PostKey { scope: "ana k2".into(), ..key("go") };
    let refused = engine.post(says("go").with_key(fresh)).await;
    assert_eq!(refused, Err(PostError::NoSuchAgent("assistant".into())));
}

#[tokio::test(start_paused = true)]
async fn a_refused_message_binds_no_key() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let engine = harness.start(one_transfer(&sent)).await;
    let (run, mut watched) = held(&engine, Message::to("assistant", "first").on_thread("t")).await;
    assert_eq!(engine.post(says("go")).await, Err(PostError::Busy(Busy::ActiveRun(run.clone()))));
    let bytes = SCOPE_BYTES_MAX + 1;
    let endless = PostKey { scope: "x".repeat(bytes), ..key("go") };
    assert_eq!(engine.post(says("go").with_key(endless)).await, Err(PostError::KeyTooLong { bytes }));
    accepted(engine.decide(Decide::approve(&run, &call("a"), "ann")).await);
    remaining_events(&mut watched).await;
    let posted = engine.post(Message { key: Some(key("something else")), ..says("go") }).await.unwrap();
    assert_ne!(posted.run, run, "the key is free");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_lost_the_response_finds_the_run_with_the_same_key() {
    let harness = Harness::new();
    let store = FaultyStore::new(
        &harness.store,
        |number, _| if number == 1 { Fate::FailsAfter } else { Fate::Stored },
    );
    let agent = Agent::new("assistant", Scripted::new([Ok(ModelAnswer::text("Done."))]));
    let engine = harness.engine_on(store).agent(agent).start().await.unwrap();
    let refused = engine.post(says("go")).await.unwrap_err();
    assert!(matches!(refused, PostError::Store(_)), "{refused:?}");
    let posted = engine.post(says("go")).await.unwrap();
    let runs = harness.store.runs(&Tenant::default(), &RunFilter::default(), &Page::default()).await.unwrap();
    let runs: Vec<_> = runs.items.into_iter().map(|view| view.id).collect();
    assert_eq!(runs, [posted.run]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_posts_under_one_key_start_one_run() {
    for on_busy in [OnBusy::Reject, OnBusy::Enqueue, OnBusy::Interrupt] {
        let (harness, model) = (Harness::new(), Scripted::new([Ok(ModelAnswer::text("Done."))]));
        let engine = harness.start(Agent::new("assistant", model.clone())).await;
        let posts: Vec<_> = (0..100)
            .map(|_| {
                let engine = engine.clone();
                tokio::spawn(async move { engine.post(says("go").if_busy(on_busy)).await })
            })
            .collect();
        let mut runs = Vec::new();
        for post in posts {
            runs.push(post.await.unwrap().unwrap().run);
        }
        runs.dedup();
        assert_eq!((runs.len(), run_count(&harness).await), (1, 1), "{on_busy:?}");
        engine.wait_until_ended(&Tenant::default(), &runs[0]).await.unwrap();
        assert_eq!(model.requests().len(), 1, "{on_busy:?}");
    }
}
