//! Quotas of a tenant: over one of them nothing new is taken, and runs that exist continue.

use engine::Settings;
use engine::agent::Agent;
use engine::deciding::Decide;
use engine::posting::{Message, PostError};
use engine::quota::{QuotaReached, Quotas};
use engine::store::{Countable, Tenant};
use serde_json::json;

use crate::harness::{Harness, Sent, accepted, asking, call, held, remaining_events};

fn reached(what: Countable, max: u64) -> PostError {
    PostError::Quota(QuotaReached { what, max })
}

#[tokio::test(start_paused = true)]
async fn a_tenant_with_all_its_threads_posts_to_them_and_to_no_new_one() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let agent = Agent::new("assistant", asking(&[("a", "transfer", json!({}))])).tool(sent.transfer());
    let quotas = Quotas { threads_max: Some(1), ..Quotas::default() };
    let settings = Settings { quotas, ..Settings::default() };
    let engine = harness.engine().settings(settings).agent(agent).start().await.unwrap();
    let says = |thread: &str| Message::to("assistant", "please").on_thread(thread);
    let (run, mut watched) = held(&engine, says("one")).await;
    assert_eq!(engine.post(says("two")).await, Err(reached(Countable::Threads, 1)));
    assert_eq!(
        engine.thread_quota_reached(&Tenant::default()).await,
        Ok(Some(QuotaReached { what: Countable::Threads, max: 1 }))
    );
    assert_eq!(engine.thread_quota_reached(&Tenant::from("other")).await, Ok(None));
    engine.post(says("two").for_tenant(Tenant::from("other"))).await.unwrap();
    // What runs is not stopped, and its thread takes another message.
    accepted(engine.decide(Decide::approve(&run, &call("a"), "ann")).await);
    remaining_events(&mut watched).await;
    assert_eq!(sent.count(), 1);
    engine.post(says("one")).await.unwrap();
    engine.set_quotas(Quotas::default());
    engine.post(says("two")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_tenant_with_all_its_pending_approvals_starts_no_run_until_one_is_decided() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let agent = Agent::new("assistant", asking(&[("a", "transfer", json!({}))])).tool(sent.transfer());
    let quotas = Quotas { pending_approvals_max: Some(1), ..Quotas::default() };
    let settings = Settings { quotas, ..Settings::default() };
    let engine = harness.engine().settings(settings).agent(agent).start().await.unwrap();
    let (run, mut watched) = held(&engine, Message::to("assistant", "please")).await;
    let refused = engine.post(Message::to("assistant", "more")).await;
    assert_eq!(refused, Err(reached(Countable::PendingApprovals, 1)));
    accepted(engine.decide(Decide::approve(&run, &call("a"), "ann")).await);
    remaining_events(&mut watched).await;
    engine.post(Message::to("assistant", "more")).await.unwrap();
}
