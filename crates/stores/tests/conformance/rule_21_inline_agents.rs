//! Rule 21: an inline agent belongs to the thread of its message. It is stored with the run, only runs of this thread
//! find it, and it is deleted with the thread.

use std::sync::Arc;

use engine::Engine;
use engine::agent::Agent;
use engine::live::Deltas;
use engine::model::{Model, ModelAnswer, ModelFailure, ModelRequest};
use engine::posting::Message;
use engine::store::{BoxFuture, Create, Deleted, InlineAgent, PostKey, StoreError};
use engine::tool::{Performer, ToolDefinition};
use machine::id::{Digest, RunId, ThreadId};
use machine::policy::OnBusy;
use tokio::sync::Semaphore;

use crate::fixture::{Fixture, World};
use crate::worker::{Worker, creation, creation_with_inline_agent, order, queued, started};

const WORDS: &str = "the words of \0 acme";

/// Whether a run of this thread would find the inline agent with this text.
async fn finds(world: &World, thread: &str, words: &str) -> bool {
    let digest = Digest::sha256(words.as_bytes());
    let found = world.store.revision(&world.tenant, &ThreadId::from(thread), &digest).await.unwrap();
    assert!(found.as_deref().is_none_or(|found| found == words), "{found:?}");
    found.is_some()
}

/// Creates and starts a run with its inline agent in one commit.
async fn started_with_inline_agent(world: &World, thread: &str, run: &str) -> Worker {
    let create = creation_with_inline_agent(world, order(thread, run), OnBusy::Reject, true, WORDS).await;
    Worker::created(world, create).await
}

async fn end(world: &World, worker: &mut Worker) {
    worker.finish_with("done");
    worker.commit(world).await.unwrap();
}

pub(crate) async fn rule_21_what_came_with_a_message_is_kept_with_its_run<F: Fixture>() {
    let (mut fixture, world) = F::open().await;
    assert!(!finds(&world, "thr", WORDS).await);
    started_with_inline_agent(&world, "thr", "run").await;
    assert_eq!(
        world.store.metrics().commits,
        1,
        "the inline agent is stored in the commit that creates the run"
    );
    // The same inline agent for a queued run, another one, and one of a message with a key.
    for (run, words) in [("same", WORDS), ("other", "other words")] {
        let create =
            creation_with_inline_agent(&world, order("thr", run), OnBusy::Enqueue, false, words).await;
        world.store.create(create).await.unwrap();
    }
    let keyed =
        creation_with_inline_agent(&world, order("thr_2", "keyed"), OnBusy::Reject, false, "keyed words")
            .await;
    let key = Some(PostKey { scope: "k".into(), body: Digest::sha256(b"body") });
    world.store.create(Create { key, ..keyed }).await.unwrap();
    assert_eq!(world.store.metrics().commits, 4);
    let world = fixture.crash(world).await;
    for (thread, words) in [("thr", WORDS), ("thr", "other words"), ("thr_2", "keyed words")] {
        assert!(finds(&world, thread, words).await, "{words} on {thread}");
    }
}

pub(crate) async fn rule_21_it_is_found_for_its_own_thread_alone<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    started_with_inline_agent(&world, "thr", "run").await;
    queued(&world, "thr_2", "run_2").await;
    let stranger = world.for_tenant("thief");
    queued(&stranger, "thr", "run").await;
    assert!(!finds(&world, "thr_2", WORDS).await);
    assert!(!finds(&world, "thr_3", WORDS).await, "the thread does not exist");
    assert!(!finds(&stranger, "thr", WORDS).await);
    assert!(finds(&world, "thr", WORDS).await);
    // A configured revision is visible to every thread.
    world.store.put_revision(&Digest::sha256(b"configured"), "configured").await.unwrap();
    for world in [&world, &stranger] {
        assert!(finds(world, "thr", "configured").await && finds(world, "thr_3", "configured").await);
    }
}

pub(crate) async fn rule_21_it_goes_with_its_thread_and_with_no_other<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let stranger = world.for_tenant("other");
    world.store.put_revision(&Digest::sha256(b"configured"), "configured").await.unwrap();
    let mut worker = started_with_inline_agent(&world, "thr", "run").await;
    started_with_inline_agent(&world, "thr_2", "run_2").await;
    started_with_inline_agent(&stranger, "thr", "run").await;
    let thread = ThreadId::from("thr");
    assert_eq!(
        world.store.delete_thread(&world.tenant, &thread, &"tester".into()).await,
        Err(StoreError::Stale)
    );
    assert!(finds(&world, "thr", WORDS).await);
    end(&world, &mut worker).await;
    assert!(finds(&world, "thr", WORDS).await, "the agent of an ended run can still be read");
    world.store.delete_thread(&world.tenant, &thread, &"tester".into()).await.unwrap();
    assert!(!finds(&world, "thr", WORDS).await);
    assert!(finds(&world, "thr_2", WORDS).await && finds(&stranger, "thr", WORDS).await);
    // A new thread with the same id has no inline agents.
    let mut worker = started(&world, "thr", "second").await;
    assert!(!finds(&world, "thr", WORDS).await);
    end(&world, &mut worker).await;
    let mut worker = started_with_inline_agent(&world, "thr", "again").await;
    assert!(finds(&world, "thr", WORDS).await);
    end(&world, &mut worker).await;
    world.store.delete_thread(&world.tenant, &thread, &"tester".into()).await.unwrap();
    assert!(!finds(&world, "thr", WORDS).await);
    assert!(finds(&world, "thr", "configured").await, "the configured revision is kept");
}

pub(crate) async fn rule_21_a_creation_that_is_refused_leaves_none_of_it<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let thread = ThreadId::from("thr");
    world.store.put_thread(&world.tenant, &thread, &serde_json::Value::Null).await.unwrap();
    // The thread is deleted after the creator has read it and before it creates the run.
    for starts in [true, false] {
        let late =
            creation_with_inline_agent(&world, order("thr", "late"), OnBusy::Reject, starts, WORDS).await;
        world.store.delete_thread(&world.tenant, &thread, &"tester".into()).await.unwrap();
        assert_eq!(world.store.create(late).await, Err(StoreError::NotFound));
        assert_eq!(world.store.thread(&world.tenant, &thread).await.unwrap().created_at, None);
        world.store.put_thread(&world.tenant, &thread, &serde_json::Value::Null).await.unwrap();
        assert!(!finds(&world, "thr", WORDS).await);
    }
    // Another run was created first.
    let stale = creation_with_inline_agent(&world, order("thr", "stale"), OnBusy::Reject, true, WORDS).await;
    started(&world, "thr", "front").await;
    assert_eq!(world.store.create(stale).await, Err(StoreError::Stale));
    // The message id of another run: the rows contradict what is stored.
    let mut taken = order("thr", "taken");
    taken.message.as_mut().unwrap().id = "msg_user_front".into();
    let taken = creation_with_inline_agent(&world, taken, OnBusy::Enqueue, false, WORDS).await;
    assert!(matches!(world.store.create(taken).await, Err(StoreError::Impossible(_))));
    // The run is pinned to another revision.
    for (thread, on_busy, starts) in [("thr", OnBusy::Enqueue, false), ("thr_2", OnBusy::Reject, true)] {
        let other = creation(&world, order(thread, "other"), on_busy, starts).await;
        let other = Create { inline_agent: Some(InlineAgent::new(WORDS)), ..other };
        assert!(matches!(world.store.create(other).await, Err(StoreError::Impossible(_))));
        assert!(!finds(&world, thread, WORDS).await);
    }
    assert_eq!(world.store.thread(&world.tenant, &"thr_2".into()).await.unwrap().created_at, None);
}

pub(crate) async fn rule_21_the_same_comes_to_many_threads_at_once<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let creations: Vec<_> = (0..40)
        .map(|number| {
            let world = world.clone();
            // Every second message has no inline agent.
            tokio::spawn(async move {
                let (thread, run) = (format!("thr_{number}"), format!("run_{number}"));
                let order = order(&thread, &run);
                let create = if number % 2 == 0 {
                    creation_with_inline_agent(&world, order, OnBusy::Reject, true, WORDS).await
                } else {
                    creation(&world, order, OnBusy::Reject, true).await
                };
                world.store.create(create).await.unwrap();
            })
        })
        .collect();
    for creation in creations {
        creation.await.unwrap();
    }
    for number in 0..40 {
        assert_eq!(finds(&world, &format!("thr_{number}"), WORDS).await, number % 2 == 0, "{number}");
    }
}

/// Gives one answer per permit.
struct AnswersOnPermit(Arc<Semaphore>);

impl Model for AnswersOnPermit {
    fn answer<'a>(&'a self, _: ModelRequest, _: Deltas) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        Box::pin(async {
            self.0.acquire().await.unwrap().forget();
            Ok(ModelAnswer::text("done"))
        })
    }
}

pub(crate) async fn rule_21_a_post_races_the_deletion_of_its_thread_and_its_run_has_its_agent<F: Fixture>() {
    let (_fixture, world) = F::open().await;
    let told = Arc::new(Semaphore::new(0));
    let agent = Agent::new("assistant", AnswersOnPermit(told.clone()));
    let engine = Engine::on_shared(world.store.clone()).agent(agent).start().await.unwrap();
    let pick = ToolDefinition::new("pick_file", WORDS).performed_by(Performer::Client);
    let message = Message {
        tools: vec![pick],
        ..Message::to("assistant", "go").on_thread("thr").for_tenant(world.tenant.clone())
    };
    let ended = async |run: &RunId| {
        told.add_permits(1);
        engine.wait_until_ended(&world.tenant, run).await.unwrap();
    };
    for _ in 0..30 {
        ended(&engine.post(message.clone()).await.unwrap().run).await;
        let posting = tokio::spawn({
            let (engine, message) = (engine.clone(), message.clone());
            async move { engine.post(message).await }
        });
        let deleted = world.store.delete_thread(&world.tenant, &"thr".into(), &"tester".into()).await;
        assert!(matches!(deleted, Ok(Deleted::Thread) | Err(StoreError::Stale)), "{deleted:?}");
        let run = posting.await.unwrap().unwrap().run;
        let view = world.run(run.as_str()).await;
        let kept = world
            .store
            .revision(&world.tenant, &view.thread, &view.control.as_ref().unwrap().revision)
            .await
            .unwrap();
        assert!(kept.is_some_and(|text| text.contains("pick_file")), "after {deleted:?}");
        ended(&run).await;
    }
    engine.abort();
}
