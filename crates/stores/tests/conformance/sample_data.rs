//! Sample data of every kind in one store: runs that wait, are queued, have ended, delegate and are in doubt.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::store::{Create, PostKey, StoredResponse};
use machine::Input;
use machine::decision::{Decision, DecisionAction, Resume};
use machine::id::{Digest, RunId};
use machine::inbox::Item;
use machine::phase::{Action, HookAnswer, HookAnswers, HookOutcome, Scope};
use machine::policy::OnBusy;
use machine::policy::OnReject;
use machine::suspension::Held;
use serde_json::json;

use crate::fixture::World;
use crate::worker::{
    Worker, approve, arguments_of, claim, creation, creation_with_inline_agent, enqueued, next_workers,
    order, parked, reject, started, tool,
};

/// The frozen agent that every run of these tests is pinned to.
pub(crate) async fn freeze_agent(world: &World) {
    world.store.put_revision(&Digest::sha256(b"revision"), "revision").await.unwrap();
}

/// Runs of two tenants that wait, are queued, have ended, delegate, and have inbox items. One run is in progress; the
/// test has to crash its process, see [`take_over_lost`].
pub(crate) async fn populate(world: &World) {
    freeze_agent(world).await;
    parked(world, "thr", "waits", "transfer").await;
    enqueued(world, "thr", "behind").await;
    finished(world).await;
    later(world).await;
    delegated(world).await;
    let decided = parked(world, "thr_decided", "decided", "transfer").await;
    let decision = decided.decision("call_decided", Some("d2"), approve());
    world.submit_accepted("decided", Item::Decision(decision)).await;
    let denied = parked(world, "thr_denied", "denied", "transfer").await;
    let denial = DecisionAction::Cancel { reason: None, then: Some(OnReject::EndRun) };
    let denial = denied.decision("call_denied", None, denial);
    world.submit_accepted("denied", Item::Decision(denial)).await;
    early(world).await;
    keyed(world).await;
    brought(world).await;
    parked(&world.for_tenant("other"), "thr", "waits", "urgent").await;
    let mut lost = started(world, "thr_lost", "lost").await;
    lost.asks(&[("post", "post"), ("file", "pick_file")]);
    lost.commit(world).await.unwrap();
    world.store.seal_audit().await.unwrap();
}

/// Claims the runs of the lost process. One of their calls is in doubt.
pub(crate) async fn take_over_lost(world: &World) {
    let mut found = next_workers(world, 20).await;
    let lost = found.iter_mut().find(|worker| worker.lease.run.as_str() == "lost").unwrap();
    lost.take_over();
    lost.commit(world).await.unwrap();
}

/// An ended run with plugin state. One of its calls was denied, and one was approved together with all later ones.
async fn finished(world: &World) {
    let mut worker = started(world, "thr_ended", "ended").await;
    let keeps =
        |key: &str, scope| Action::SetState { key: key.into(), scope, value: Arc::new(json!({"of": key})) };
    let actions = vec![keeps("mine", Scope::Run), keeps("ours", Scope::Thread)];
    let answer = HookAnswer { plugin: "guard".into(), outcome: HookOutcome::Actions(actions) };
    let hooks = HookAnswers { answers: vec![answer], state_bytes_after: 100 };
    worker.asks_knowing(&[("no", "transfer"), ("yes", "transfer")], BTreeSet::new(), hooks);
    worker.commit(world).await.unwrap();
    world.clock.advance(7);
    worker.accept(Item::Decision(worker.decision("no", Some("d1"), reject())));
    worker.commit(world).await.unwrap();
    let for_ever = DecisionAction::Resume(Resume { apply_to_future: true, ..Resume::default() });
    worker.accept(Item::Decision(worker.decision("yes", None, for_ever)));
    worker.commit(world).await.unwrap();
    worker.succeeds("yes");
    worker.finish_with("done");
    worker.commit(world).await.unwrap();
}

/// Another run of the same thread, which is in progress.
async fn later(world: &World) {
    let mut worker = started(world, "thr_ended", "later").await;
    worker.asks(&[("look", "echo")]);
    worker.commit(world).await.unwrap();
}

/// A run that waits for its child, which waits for a person.
async fn delegated(world: &World) {
    let mut parent = started(world, "thr_parent", "parent").await;
    parent.asks(&[("delegate", "researcher")]);
    parent.commit(world).await.unwrap();
    assert!(world.store.release(&parent.lease).await.unwrap());
    let mut child = child(world, &parent, "delegate").await;
    child.asks(&[("ask", "transfer")]);
    child.commit(world).await.unwrap();
}

/// The child that works on a call, started.
pub(crate) async fn child(world: &World, parent: &Worker, call: &str) -> Worker {
    let child = child_id(parent, call);
    let mut child = claim(world, child.as_str()).await.expect("the child can be claimed");
    child.take_over();
    child.apply_input(&Input::Start { after: None });
    child.commit(world).await.unwrap();
    child
}

pub(crate) fn child_id(parent: &Worker, call: &str) -> RunId {
    match &parent.call(call).suspension().unwrap().held {
        Held::ChildRun { run, .. } => run.clone(),
        other => panic!("held by {other:?}"),
    }
}

/// A run whose message has an idempotency key, and a stored response.
async fn keyed(world: &World) {
    let create = creation(world, order("thr_keyed", "keyed"), OnBusy::Reject, false).await;
    let body = Digest::sha256(b"body");
    let key = Some(PostKey { scope: "ana k".into(), body });
    world.store.create(Create { key, ..create }).await.unwrap();
    let answer = StoredResponse { body, status: 200, answer: "{}".into() };
    world.store.store_response(&world.tenant, &"keyed".into(), "ana k POST", answer).await.unwrap();
}

/// A run whose message has an inline tool, and that waits for this tool.
async fn brought(world: &World) {
    let order = order("thr_brought", "brought");
    let create = creation_with_inline_agent(world, order, OnBusy::Reject, true, "what came along").await;
    let mut worker = Worker::created(world, create).await;
    worker.asks(&[("pick", "pick_file")]);
    worker.commit(world).await.unwrap();
    assert!(world.store.release(&worker.lease).await.unwrap());
}

/// A decision that came before its call was held.
async fn early(world: &World) {
    let mut worker = started(world, "thr_early", "early").await;
    worker.asks_without_gates(&[("b", "transfer")]);
    worker.commit(world).await.unwrap();
    let decision = Decision {
        id: Some("d3".into()),
        call: "b".into(),
        suspension: "sus_none".into(),
        by: "ana".into(),
        accepted_at: worker.now(),
        definition_now: Some(tool("transfer").definition),
        action: approve(),
    };
    world.submit_accepted("early", Item::Early { decision, digest: arguments_of("b").digest() }).await;
}
