//! Whole engines on one database: any node can answer a request, the run continues, and each approval has one effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use engine::agent::Agent;
use engine::feed::{FeedItem, Subscription};
use engine::live::Deltas;
use engine::model::{Model, ModelAnswer, ModelFailure, ModelRequest};
use engine::posting::{Message, OnBusy, PostError};
use engine::store::{BoxFuture, SuspensionView, Tenant, ViewStore, decoded};
use engine::tool::{FunctionTool, Tool, ToolDefinition, ToolRequest};
use engine::{ApprovalChange, ApprovalFeed, Engine, RunOutcome};
use machine::event::Fact;
use machine::id::RunId;
use machine::inbox::Verdict;
use machine::suspension::SuspensionKind;
use machine::termination::{Cancelled, Termination};
use serde_json::json;
use stores::postgres::PostgresSettings;
use tokio::sync::Notify;

use crate::nodes::{Cluster, Node, until, with_timeout};

/// Asks for one call, and then gives its final answer.
struct AsksOnce(&'static str);

impl Model for AsksOnce {
    fn answer<'a>(
        &'a self,
        request: ModelRequest,
        _: Deltas,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        let answer = match request.ordinal {
            1 => ModelAnswer::default().calling("call", self.0, json!({})),
            _ => ModelAnswer::text("done"),
        };
        Box::pin(std::future::ready(Ok(answer)))
    }
}

/// Counts the effects of the tool on all nodes.
#[derive(Clone, Default)]
struct Effects {
    begun: Arc<AtomicU32>,
    bell: Arc<Notify>,
}

impl Effects {
    fn count(&self) -> u32 {
        self.begun.load(Ordering::SeqCst)
    }

    /// A tool that counts its calls and returns at once. With `hangs_first` the first call never returns.
    fn tool(&self, definition: ToolDefinition, hangs_first: bool) -> impl Tool {
        let effects = self.clone();
        FunctionTool::new(definition, move |_: ToolRequest| {
            let effects = effects.clone();
            async move {
                let earlier = effects.begun.fetch_add(1, Ordering::SeqCst);
                effects.bell.notify_one();
                if hangs_first && earlier == 0 {
                    std::future::pending::<()>().await;
                }
                json!("ok")
            }
        })
    }
}

fn transfer() -> ToolDefinition {
    ToolDefinition::new("transfer", "Sends money")
}

async fn engine(node: &Node, tool: impl Tool, name: &'static str) -> Engine {
    let agent = Agent::new("assistant", AsksOnce(name)).tool(tool);
    Engine::on_shared(node.store.clone()).agent(agent).start().await.expect("the engine starts")
}

async fn post(engine: &Engine) -> RunId {
    engine.post(Message::to("assistant", "please")).await.expect("the message is accepted").run
}

/// Waits for the next suspension of this kind.
async fn held(engine: &Engine, run: &RunId, kind: SuspensionKind) -> SuspensionView {
    let mut watched = engine.subscribe(&Tenant::default(), run, 0);
    with_timeout("a held call", async {
        loop {
            let pending = engine.pending(&Tenant::default()).await.unwrap();
            if let Some(found) = pending.into_iter().find(|view| view.run == *run && view.kind == kind) {
                return found;
            }
            event(&mut watched).await;
        }
    })
    .await
}

async fn event(watched: &mut Subscription) {
    while !matches!(watched.next().await.expect("more events").unwrap(), FeedItem::Event(_)) {}
}

async fn ended(engine: &Engine, run: &RunId) -> RunOutcome {
    with_timeout("the end", engine.wait_until_ended(&Tenant::default(), run)).await.unwrap().outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn any_node_takes_a_decision_and_every_node_sees_what_follows() {
    let cluster = Cluster::new();
    let (one, two, three) = (cluster.node().await, cluster.node().await, cluster.node().await);
    let effects = Effects::default();
    let first = engine(&one, effects.tool(transfer(), false), "transfer").await;
    let second = engine(&two, effects.tool(transfer(), false), "transfer").await;
    let third = engine(&three, effects.tool(transfer(), false), "transfer").await;
    let run = post(&first).await;
    let asked = held(&first, &run, SuspensionKind::Approval).await;
    let elsewhere = tokio::spawn({
        let (third, run) = (third.clone(), run.clone());
        async move { ended(&third, &run).await }
    });
    assert_eq!(second.decide(asked.approve("ana")).await, Ok(Verdict::Accepted));
    assert_eq!(ended(&first, &run).await, RunOutcome::Ended(Termination::NaturalEnd));
    assert_eq!(elsewhere.await.unwrap(), RunOutcome::Ended(Termination::NaturalEnd));
    assert_eq!(effects.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn approval_watchers_on_another_node_are_notified_of_the_changed_run() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node().await, cluster.node().await);
    let effects = Effects::default();
    let first = engine(&one, effects.tool(transfer(), false), "transfer").await;
    let second = engine(&two, effects.tool(transfer(), false), "transfer").await;
    let mut elsewhere = second.approval_feed(&Tenant::default()).expect("few tenants have a feed");
    let run = post(&first).await;
    let asked = held(&first, &run, SuspensionKind::Approval).await;
    let told = async |feed: &mut ApprovalFeed| {
        while let Some(news) = feed.next().await {
            if news == (ApprovalChange::Run { run: run.clone() }) {
                return;
            }
        }
        panic!("the engine is gone");
    };
    with_timeout("a notification of the held call", told(&mut elsewhere)).await;
    assert_eq!(second.decide(asked.approve("ana")).await, Ok(Verdict::Accepted));
    ended(&first, &run).await;
    with_timeout("a notification of the decision", told(&mut elsewhere)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_decisions_on_every_node_at_once_one_counts() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node().await, cluster.node().await);
    let effects = Effects::default();
    let first = engine(&one, effects.tool(transfer(), false), "transfer").await;
    let second = engine(&two, effects.tool(transfer(), false), "transfer").await;
    for _ in 0..10 {
        let before = effects.count();
        let run = post(&first).await;
        let asked = held(&second, &run, SuspensionKind::Approval).await;
        let (yes, no) = (asked.approve("ana"), asked.reject("bob", "no"));
        let verdicts = tokio::join!(first.decide(yes), second.decide(no));
        let verdicts = [verdicts.0.unwrap(), verdicts.1.unwrap()];
        let accepted: Vec<bool> = verdicts.iter().map(|verdict| *verdict == Verdict::Accepted).collect();
        assert_eq!(accepted.iter().filter(|accepted| **accepted).count(), 1, "{verdicts:?}");
        ended(&second, &run).await;
        assert_eq!(effects.count() - before, u32::from(accepted[0]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_interrupt_on_another_node_stops_what_executes() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node().await, cluster.node().await);
    let effects = Effects::default();
    let look = || ToolDefinition::new("look", "Looks").read();
    let first = engine(&one, effects.tool(look(), true), "look").await;
    let second = engine(&two, effects.tool(look(), true), "look").await;
    let run = post(&first).await;
    with_timeout("the tool", effects.bell.notified()).await;
    assert_eq!(second.interrupt(&Tenant::default(), &run, &"bob".into()).await, Ok(Verdict::Accepted));
    assert!(matches!(ended(&first, &run).await, RunOutcome::Ended(Termination::Cancelled(_))));
    assert_eq!(effects.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_draining_node_receives_an_interrupt_from_another_one() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node().await, cluster.node().await);
    let effects = Effects::default();
    let look = || ToolDefinition::new("look", "Looks").read();
    let first = engine(&one, effects.tool(look(), true), "look").await;
    let second = engine(&two, effects.tool(look(), true), "look").await;
    let run = post(&first).await;
    with_timeout("the tool", effects.bell.notified()).await;
    let stopping = first.clone();
    let drained = tokio::spawn(async move { stopping.drain(Duration::from_secs(3600)).await });
    // Wait until the engine refuses new messages.
    with_timeout("the drain", async {
        while first.post(Message::to("missing", "go")).await != Err(PostError::Draining) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(second.interrupt(&Tenant::default(), &run, &"bob".into()).await, Ok(Verdict::Accepted));
    with_timeout("the end of the drain", drained).await.expect("the drain ends without a panic");
    assert!(matches!(ended(&second, &run).await, RunOutcome::Ended(Termination::Cancelled(_))));
    assert_eq!(effects.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_engine_that_drains_hands_its_runs_over_at_once() {
    let cluster = Cluster::new();
    // With this lease no other node would take the runs over within an hour.
    let (one, two) = (cluster.node().await, cluster.node().await);
    let effects = Effects::default();
    let look = || ToolDefinition::new("look", "Looks").read();
    let first = engine(&one, effects.tool(look(), true), "look").await;
    let run = post(&first).await;
    with_timeout("the tool", effects.bell.notified()).await;
    let second = engine(&two, effects.tool(look(), true), "look").await;
    first.drain(Duration::ZERO).await;
    assert_eq!(ended(&second, &run).await, RunOutcome::Ended(Termination::NaturalEnd));
    assert_eq!(effects.count(), 2, "a read-only call is repeated");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_write_of_a_dead_node_is_in_doubt_and_not_repeated() {
    let cluster = Cluster::new();
    let lease = Duration::from_secs(3);
    let settings = || PostgresSettings { lease, renew_every: lease / 4, ..cluster.settings() };
    let (one, two) = (cluster.node_with(settings()).await, cluster.node_with(settings()).await);
    let effects = Effects::default();
    let first = engine(&one, effects.tool(transfer(), true), "transfer").await;
    let second = engine(&two, effects.tool(transfer(), true), "transfer").await;
    let run = post(&first).await;
    let asked = held(&first, &run, SuspensionKind::Approval).await;
    assert_eq!(first.decide(asked.approve("ana")).await, Ok(Verdict::Accepted));
    with_timeout("the tool", effects.bell.notified()).await;
    first.abort();
    drop((first, one));
    let doubted = held(&second, &run, SuspensionKind::InDoubt).await;
    assert_eq!(effects.count(), 1);
    let log = two.store.events(&Tenant::default(), &run, 0, 1_000).await.unwrap();
    let recovered =
        log.iter().find(|one| matches!(one.readable().unwrap().event.fact, Fact::RunRecovered { .. }));
    let recovered_at = recovered.expect("another node took the run over").readable().unwrap().event.at;
    let waited = doubted.created_at.ms_since(recovered_at);
    assert!(
        waited + 1_500 > 3_000,
        "a person was asked {waited} ms after the take-over, within the lease time"
    );
    assert_eq!(
        second.decide(doubted.approve("ana")).await,
        Ok(Verdict::Accepted),
        "the approval repeats the call"
    );
    assert_eq!(ended(&second, &run).await, RunOutcome::Ended(Termination::NaturalEnd));
    assert_eq!(effects.count(), 2, "the call is repeated because a person approved it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_several_messages_that_supersede_a_run_of_a_dead_node_the_last_one_runs() {
    let cluster = Cluster::new();
    let lease = Duration::from_secs(3);
    let settings = || PostgresSettings { lease, renew_every: lease / 4, ..cluster.settings() };
    let (one, two) = (cluster.node_with(settings()).await, cluster.node_with(settings()).await);
    let effects = Effects::default();
    let first = engine(&one, effects.tool(transfer(), true), "transfer").await;
    let second = engine(&two, effects.tool(transfer(), true), "transfer").await;
    let says = || Message::to("assistant", "please").on_thread("t").if_busy(OnBusy::Interrupt);
    let front = first.post(says()).await.unwrap().run;
    let asked = held(&first, &front, SuspensionKind::Approval).await;
    assert_eq!(first.decide(asked.approve("ana")).await, Ok(Verdict::Accepted));
    with_timeout("the tool", effects.bell.notified()).await;
    first.abort();
    drop((first, one));
    let mut superseded = vec![front.clone()];
    for _ in 0..2 {
        superseded.push(second.post(says()).await.unwrap().run);
    }
    let last = second.post(says()).await.unwrap().run;
    held(&second, &last, SuspensionKind::Approval).await;
    for run in superseded {
        let end = RunOutcome::Ended(Termination::Cancelled(Cancelled::Superseded));
        assert_eq!(ended(&second, &run).await, end, "{run}");
        let log = decoded(two.store.events(&Tenant::default(), &run, 0, 1_000).await.unwrap()).unwrap();
        let started = log.iter().any(|one| matches!(one.event.fact, Fact::RunStarted { .. }));
        assert_eq!(started, run == front, "queued runs never start");
    }
    assert_eq!(effects.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_tool_round_is_four_commits() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let look = ToolDefinition::new("look", "Looks").read();
    let engine = engine(&node, Effects::default().tool(look, false), "look").await;
    let before = node.store.metrics();
    let run = post(&engine).await;
    ended(&engine, &run).await;
    assert_eq!(node.store.metrics().commits - before.commits, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn from_a_decision_to_the_start_of_its_tool_it_is_two_transactions() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    let effects = Effects::default();
    let engine = engine(&node, effects.tool(transfer(), true), "transfer").await;
    let run = post(&engine).await;
    let asked = held(&engine, &run, SuspensionKind::Approval).await;
    until("the run's removal from memory", || async { engine.runs_in_memory() == 0 }).await;
    let before = node.store.metrics();
    assert_eq!(engine.decide(asked.approve("ana")).await, Ok(Verdict::Accepted));
    with_timeout("the tool", effects.bell.notified()).await;
    let counts = node.store.metrics();
    assert_eq!(
        (counts.commits - before.commits, counts.syncs - before.syncs),
        (1, 2),
        "one commit, and a claim"
    );
}
