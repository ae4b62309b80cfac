//! A client that shows pending approvals, or what the model reads, gets every change and the current state.

use engine::agent::Agent;
use engine::deciding::Decide;
use engine::model::ModelAnswer;
use engine::posting::Message;
use engine::store::{StoreError, Tenant};
use engine::{ApprovalChange, ApprovalFeed, Engine};
use serde_json::json;

use crate::faulty_store::{Fate, FaultyStore};
use crate::harness::{
    Harness, Scripted, Sent, accepted, ask, asking, call, echo, held, remaining_events, to_assistant,
};

fn news_of(run: &machine::id::RunId) -> Option<ApprovalChange> {
    Some(ApprovalChange::Run { run: run.clone() })
}

fn feed_of(engine: &Engine, tenant: &Tenant) -> ApprovalFeed {
    engine.approval_feed(tenant).expect("few tenants are watched")
}

#[tokio::test(start_paused = true)]
async fn each_change_of_what_is_held_is_reported_to_its_tenant_only() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let model = asking(&[("a", "transfer", json!({"to": "bob"}))]);
    let engine = harness.start(Agent::new("assistant", model).tool(sent.transfer())).await;
    let acme = Tenant::from("acme");
    let (mut feed, mut theirs) = (feed_of(&engine, &Tenant::default()), feed_of(&engine, &acme));
    let mut changed = engine.approvals_changed();
    let (their_run, _) = held(&engine, to_assistant().for_tenant(acme)).await;
    assert_eq!(theirs.next().await, news_of(&their_run));
    assert!(changed.has_changed().unwrap());
    changed.mark_unchanged();
    let (ours, mut watched) = held(&engine, to_assistant()).await;
    assert_eq!(feed.next().await, news_of(&ours));
    accepted(engine.decide(Decide::approve(&ours, &call("a"), "ann")).await);
    assert_eq!(feed.next().await, news_of(&ours), "it is held no longer");
    remaining_events(&mut watched).await;
    let mut late = feed_of(&engine, &Tenant::default());
    engine.abort();
    drop(engine);
    let nothing_more = tokio::time::timeout(std::time::Duration::from_secs(60), late.next()).await;
    assert_eq!(nothing_more.unwrap_or(None), None, "earlier changes are not sent again");
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_answer_is_lost_is_reported_too() {
    let (harness, sent) = (Harness::new(), Sent::default());
    // The second commit holds the call.
    let store = FaultyStore::new(
        &harness.store,
        |number, _| if number == 2 { Fate::FailsAfter } else { Fate::Stored },
    );
    let model = asking(&[("a", "transfer", json!({"to": "bob"}))]);
    let agent = Agent::new("assistant", model).tool(sent.transfer());
    let engine = harness.engine_on(store).agent(agent).start().await.unwrap();
    let mut feed = feed_of(&engine, &Tenant::default());
    let (run, _watched) = held(&engine, to_assistant()).await;
    let news = tokio::time::timeout(std::time::Duration::from_secs(3600), feed.next()).await;
    assert_eq!(news.expect("the feed reports it"), news_of(&run));
    assert_eq!(harness.pending().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_transcript_is_what_the_model_would_read_at_this_moment() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let first = ask(&[("e", "echo", json!({"n": 1})), ("a", "transfer", json!({"to": "bob"}))]);
    let model = Scripted::new([Ok(first), Ok(ModelAnswer::text("Done."))]);
    let agent = Agent::new("assistant", model.clone()).tool(sent.transfer()).tool(echo());
    let engine = harness.start(agent).await;
    let tenant = Tenant::default();
    let message = |text: &str| Message::to("assistant", text).on_thread("t");
    let (run, mut watched) = held(&engine, message("one")).await;
    let read = async |run| {
        let messages = engine.transcript(&tenant, run).await.unwrap();
        crate::harness::texts_of(&messages)
    };
    let asked = ["user: one", "assistant: [\"e\", \"a\"]", "tool e: {\"n\":1}"];
    let placeholder = "tool a: Not executed yet: awaiting approval";
    assert_eq!(read(&run).await, [&asked[..], &[placeholder]].concat());
    accepted(engine.decide(Decide::reject(&run, &call("a"), "ann", "no")).await);
    remaining_events(&mut watched).await;
    let whole = [&asked[..], &["tool a: Denied by ann: no", "assistant: Done.[]"]].concat();
    assert_eq!(read(&run).await, whole);
    assert_eq!(model.last_read(), whole[..4], "as it was asked");
    let (second, _watched) = held(&engine, message("two")).await;
    assert_eq!(read(&second).await[..6], [&whole[..], &["user: two"]].concat(), "with what came before");
    let thief = engine.transcript(&Tenant::from("thief"), &run).await;
    assert_eq!(thief, Err(StoreError::NotFound));
}
