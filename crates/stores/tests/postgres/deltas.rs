//! Deltas of a model on one node reach the watchers on another node. Without remote watchers no delta is sent.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};

use engine::Engine;
use engine::agent::Agent;
use engine::callback::ReportedAttempt;
use engine::feed::{FeedItem, Subscription};
use engine::live::{Deltas, LiveItem, ToolNote, ToolNoteBody};
use engine::model::{Model, ModelAnswer, ModelFailure, ModelRequest};
use engine::posting::Message;
use engine::store::{BoxFuture, Tenant};
use machine::Timestamp;
use machine::event::{Fact, Message as Said};
use machine::id::{CallId, RunId};
use tokio::sync::Semaphore;
use tokio_postgres::{AsyncMessage, NoTls};

use crate::nodes::{Cluster, Node, until, with_timeout};

const WORDS: [&str; 4] = ["one ", "two ", "three ", "four"];

/// Streams one word per permit, and then answers with all of them.
#[derive(Clone)]
struct WordByWordModel(Arc<Semaphore>);

impl Model for WordByWordModel {
    fn answer<'a>(
        &'a self,
        _: ModelRequest,
        deltas: Deltas,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        Box::pin(async move {
            for word in WORDS {
                self.0.acquire().await.expect("the semaphore is open").forget();
                deltas.text(word);
            }
            self.0.acquire().await.expect("the semaphore is open").forget();
            Ok(ModelAnswer::text(WORDS.concat()))
        })
    }
}

/// An engine on each of two nodes. The first one executes the runs.
struct TwoEngines {
    permits: Arc<Semaphore>,
    first: Engine,
    second: Engine,
    _nodes: [Node; 2],
}

async fn engines(cluster: &Cluster<'static>) -> TwoEngines {
    let permits = Arc::new(Semaphore::new(0));
    let nodes = [cluster.node().await, cluster.node().await];
    let engine = |node: &Node| {
        let agent = Agent::new("assistant", WordByWordModel(permits.clone()));
        Engine::on_shared(node.store.clone()).agent(agent).start()
    };
    let first = engine(&nodes[0]).await.expect("the engine starts");
    let second = engine(&nodes[1]).await.expect("the engine starts");
    TwoEngines { permits, first, second, _nodes: nodes }
}

impl TwoEngines {
    async fn post(&self) -> RunId {
        self.first.post(Message::to("assistant", "please")).await.expect("the message is accepted").run
    }

    fn watch(&self, run: &RunId) -> Watcher {
        Watcher { feed: self.second.subscribe(&Tenant::default(), run, 0), text: String::new(), answer: None }
    }

    fn allow_words(&self, words: usize) {
        self.permits.add_permits(words);
    }
}

struct Watcher {
    feed: Subscription,
    /// The text of all deltas received so far.
    text: String,
    /// The text of the committed message.
    answer: Option<String>,
}

impl Watcher {
    /// Reads until the deltas add up to `text`. No delta may be missing, and none may come after the message's event.
    async fn read_until(&mut self, text: &str) {
        with_timeout("the deltas", async {
            while self.text != text {
                self.next().await;
                assert!(text.starts_with(&self.text), "{:?}", self.text);
            }
        })
        .await;
    }

    async fn next(&mut self) -> bool {
        let Some(item) = self.feed.next().await else { return false };
        match item.expect("the feed can be read") {
            FeedItem::Live(LiveItem::Delta(delta)) => {
                assert_eq!(self.answer, None, "a delta came after the committed message");
                assert_eq!(
                    delta.offset,
                    self.text.chars().count() as u64,
                    "there is no gap and no repeated text"
                );
                assert_eq!(delta.step, Some(1), "the step arrives with the text");
                assert_ne!(delta.at, Timestamp::ZERO, "and the time");
                self.text.push_str(&delta.text);
            }
            FeedItem::Event(committed) => {
                if let Fact::MessageAdded(Said::Assistant { text, .. }) = &committed.event.fact {
                    self.answer = Some(text.clone());
                }
            }
            FeedItem::Unreadable(event) => panic!("event {} cannot be decoded", event.seq),
            FeedItem::Live(other) => panic!("unexpected live item: {other:?}"),
        }
        true
    }

    async fn read_to_end(&mut self) {
        with_timeout("the end", async { while self.next().await {} }).await;
        assert_eq!(self.answer.as_deref(), Some(&*WORDS.concat()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn deltas_reach_watchers_on_another_node() {
    let engines = engines(&Cluster::new()).await;
    let run = engines.post().await;
    let mut watcher = engines.watch(&run);
    engines.allow_words(1);
    watcher.read_until("one ").await;
    engines.allow_words(2);
    watcher.read_until("one two three ").await;
    let mut late = engines.watch(&run);
    late.read_until("one two three ").await;
    engines.allow_words(1);
    late.read_until(&WORDS.concat()).await;
    watcher.read_until(&WORDS.concat()).await;
    engines.allow_words(1);
    watcher.read_to_end().await;
    late.read_to_end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn missed_deltas_are_requested_again() {
    let cluster = Cluster::new();
    let engines = engines(&cluster).await;
    let run = engines.post().await;
    let mut watcher = engines.watch(&run);
    engines.allow_words(1);
    watcher.read_until("one ").await;
    let client = cluster.client().await;
    // A delta whose predecessors are missing.
    let channel = format!("holdpoint_{}", cluster.schema);
    let message = format!("msg_{}_1", run.as_str());
    let delta = serde_json::json!({
        "run": run.as_str(), "after": 0,
        "delta": { "message": message, "attempt": 1, "part": "text", "offset": 40, "text": "late" },
    });
    client.execute("SELECT pg_notify($1, $2)", &[&channel, &format!("~0:{delta}")]).await.unwrap();
    // Close every listener's connection, so that notifications are lost for a while.
    let deafen = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'LISTEN {channel}' AND state = 'idle'"
    );
    until("closed listener connections", || async { client.execute(&deafen, &[]).await.unwrap() > 0 }).await;
    engines.allow_words(2);
    watcher.read_until("one two three ").await;
    engines.allow_words(2);
    watcher.read_to_end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn deltas_without_remote_watchers_are_not_sent() {
    let cluster = Cluster::new();
    let engines = engines(&cluster).await;
    let notes = captured_notifications(&cluster).await;
    let tenant = Tenant::default();
    let said = |sign: char| {
        let notes = notes.lock().expect("the lock is not poisoned").clone();
        notes.into_iter().filter(|note| note.starts_with(sign)).collect::<Vec<_>>()
    };
    // After a while the nodes know each other, and notify each other of their commits.
    until("a notification of its commits", || async {
        engines.allow_words(WORDS.len() + 1);
        let run = engines.post().await;
        with_timeout("the end", engines.first.wait_until_ended(&tenant, &run))
            .await
            .expect("the run's end can be awaited");
        !said('+').is_empty()
    })
    .await;
    assert_eq!((said('~'), said('?')), (Vec::new(), Vec::new()));
    let watched = engines.post().await;
    let mut watcher = engines.watch(&watched);
    engines.allow_words(1);
    watcher.read_until("one ").await;
    assert!(said('~').iter().all(|note| note.contains(watched.as_str())), "{:?}", said('~'));
    assert!(said('?').iter().all(|note| note.contains(watched.as_str())), "{:?}", said('?'));
}

/// The texts of the next three notes.
async fn three_notes(feed: &mut Subscription) -> Vec<String> {
    let mut notes = Vec::new();
    with_timeout("three notes", async {
        while notes.len() < 3 {
            let item = feed.next().await.expect("the run continues").expect("the feed can be read");
            if let FeedItem::Live(LiveItem::Note(ToolNote { body: ToolNoteBody::Log(text), .. })) = item {
                notes.push(text);
            }
        }
    })
    .await;
    notes
}

/// A tool may report to any node. The node that holds the run does not relay what every node has received.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_note_that_a_tool_sends_to_one_node_reaches_the_watchers_on_every_node_once() {
    let engines = engines(&Cluster::new()).await;
    let run = engines.post().await;
    let mut watcher = engines.watch(&run);
    engines.allow_words(1);
    // The nodes know each other now.
    watcher.read_until("one ").await;
    let mut on_holder = engines.first.subscribe(&Tenant::default(), &run, 0);
    let about = ReportedAttempt {
        tenant: Tenant::default(),
        run: run.clone(),
        call: CallId::from("call_0"),
        attempt: 1,
    };
    let note = |engine: &Engine, text: &str| {
        engine.show_tool_note(&about, &"echo".into(), 1, 0, ToolNoteBody::Log(text.into()));
    };
    note(&engines.second, "a");
    note(&engines.second, "b");
    // The holder has received both before it relays a note of its own.
    let mut before = engines.first.subscribe(&Tenant::default(), &run, 0);
    let mut received = 0;
    with_timeout("both notes", async {
        while received < 2 {
            let item = before.next().await.expect("the run continues").expect("the feed can be read");
            received += usize::from(matches!(item, FeedItem::Live(LiveItem::Note(_))));
        }
    })
    .await;
    note(&engines.first, "c");
    assert_eq!(three_notes(&mut on_holder).await, ["a", "b", "c"]);
    assert_eq!(three_notes(&mut watcher.feed).await, ["a", "b", "c"]);
}

/// Collects all notifications between the nodes from now on.
async fn captured_notifications(cluster: &Cluster<'_>) -> Arc<Mutex<Vec<String>>> {
    let (client, mut connection) =
        tokio_postgres::connect(&cluster.server.address(), NoTls).await.expect("a connection");
    let heard = Arc::new(Mutex::new(Vec::new()));
    let into = heard.clone();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(note) = message {
                into.lock().expect("the lock is not poisoned").push(note.payload().to_owned());
            }
        }
    });
    client.batch_execute(&format!("LISTEN holdpoint_{}", cluster.schema)).await.expect("LISTEN succeeds");
    // The connection ends when its client is dropped.
    std::mem::forget(client);
    heard
}
