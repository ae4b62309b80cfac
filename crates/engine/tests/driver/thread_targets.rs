//! Which thread a message goes to, and what happens to it when the thread is deleted meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use engine::Engine;
use engine::agent::Agent;
use engine::model::ModelAnswer;
use engine::posting::{Message, OnBusy, PostError, ThreadTarget};
use engine::store::{
    BoxFuture, Create, Created, PostKey, RunStore, Store, StoreError, Tenant, ThreadView, ViewStore, Wrapper,
};
use machine::id::{Digest, ThreadId};
use machine::projection_rows::PublicRunStatus;
use machine::termination::{Cancelled, Termination};
use serde_json::{Value, json};
use stores::memory::MemoryStore;

use crate::harness::{Harness, Scripted, Sent, asking, held, remaining_events, until_named};

/// What happens to the thread right before a run is created on it.
#[derive(Clone, Copy)]
enum Before {
    Deleted,
    DeletedAndCreated,
}

/// The thread changes under the first creations.
struct Changing {
    inner: MemoryStore,
    before: Before,
    times: AtomicU32,
}

impl Wrapper for Changing {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn create(&self, create: Create) -> BoxFuture<'_, Result<Created, StoreError>> {
        Box::pin(async move {
            let left =
                self.times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |times| times.checked_sub(1));
            if left.is_ok() {
                let id = create.seen.id.clone();
                self.inner.delete_thread(&create.tenant, &id, &"tester".into()).await?;
                match self.before {
                    Before::Deleted => {}
                    Before::DeletedAndCreated => {
                        self.inner.put_thread(&create.tenant, &id, &json!({"is": "new"})).await?;
                    }
                }
            }
            self.inner.create(create).await
        })
    }
}

fn answers() -> Agent {
    Agent::new("assistant", Scripted::new([Ok(ModelAnswer::text("Yes."))]))
}

async fn thread(harness: &Harness) -> ThreadView {
    harness.store.thread(&Tenant::default(), &ThreadId::from("t")).await.unwrap()
}

async fn changing(harness: &Harness, before: Before) -> Engine {
    harness.store.put_thread(&Tenant::default(), &"t".into(), &json!({"is": "seen"})).await.unwrap();
    let store = Changing { inner: harness.store.clone(), before, times: AtomicU32::new(1) };
    Engine::on_shared(Arc::new(store)).agent(answers()).start().await.unwrap()
}

fn to_existing() -> Message {
    Message::to("assistant", "hello").on_existing_thread("t")
}

#[tokio::test(start_paused = true)]
async fn a_message_for_an_existing_thread_creates_none() {
    let harness = Harness::new();
    let engine = harness.start(answers()).await;
    let refused = engine.post(to_existing()).await.unwrap_err();
    assert_eq!(refused, PostError::NoSuchThread("t".into()));
    let key = PostKey { scope: "ana k".into(), body: Digest::sha256(b"hello") };
    let refused = engine.post(to_existing().with_key(key)).await.unwrap_err();
    assert_eq!(refused, PostError::NoSuchThread("t".into()));
    assert_eq!(thread(&harness).await.created_at, None);
    let named = Message { thread: ThreadTarget::Named("t".into()), ..Message::to("assistant", "hello") };
    engine.run(named).await.unwrap();
    assert!(thread(&harness).await.created_at.is_some());
    engine.run(to_existing()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_never_brings_a_deleted_thread_back_unless_it_may_create_one() {
    let harness = Harness::new();
    let engine = changing(&harness, Before::Deleted).await;
    let refused = engine.post(to_existing()).await.unwrap_err();
    assert_eq!(refused, PostError::NoSuchThread("t".into()));
    assert_eq!(thread(&harness).await.created_at, None);

    let harness = Harness::new();
    let engine = changing(&harness, Before::Deleted).await;
    engine.run(Message::to("assistant", "hello").on_thread("t")).await.unwrap();
    let created = thread(&harness).await;
    assert_eq!(created.metadata, Some(Value::Null), "it is a new one");
}

#[tokio::test(start_paused = true)]
async fn a_thread_created_again_is_judged_again() {
    let harness = Harness::new();
    let engine = changing(&harness, Before::DeletedAndCreated).await;
    let first = Message { after: None, ..to_existing() };
    engine.run(first).await.unwrap();
    assert_eq!(thread(&harness).await.metadata, Some(json!({"is": "new"})));
}

#[tokio::test(start_paused = true)]
async fn each_superseding_message_takes_the_place_of_all_before_it() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let agent = Agent::new("assistant", asking(&[("a", "transfer", json!({}))])).tool(sent.transfer());
    let engine = harness.start(agent).await;
    let says = |on_busy| Message::to("assistant", "go").on_thread("t").if_busy(on_busy);
    let (first, mut watched) = held(&engine, says(OnBusy::Reject)).await;
    let mut superseded = vec![first];
    for on_busy in [OnBusy::Enqueue, OnBusy::Interrupt, OnBusy::Enqueue, OnBusy::Interrupt] {
        superseded.push(engine.post(says(on_busy)).await.unwrap().run);
    }
    let last = engine.post(says(OnBusy::Interrupt)).await.unwrap();
    assert_eq!(last.status, PublicRunStatus::Queued);
    remaining_events(&mut watched).await;
    until_named(&mut engine.subscribe(&Tenant::default(), &last.run, 0), "run.waiting").await;
    for run in superseded {
        remaining_events(&mut engine.subscribe(&Tenant::default(), &run, 0)).await;
        let ended = harness.ended(&run).await;
        assert_eq!(ended, Some(Termination::Cancelled(Cancelled::Superseded)), "{run}");
    }
}
