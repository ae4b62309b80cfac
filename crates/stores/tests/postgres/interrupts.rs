//! A client interrupts a run, at another node if there are two, while the run is about to continue or to end: an
//! accepted interrupt wins. HOLDPOINT_INTERRUPT_ROUNDS sets the number of rounds.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use engine::agent::Agent;
use engine::live::Deltas;
use engine::model::{Model, ModelAnswer, ModelFailure, ModelRequest};
use engine::posting::Message;
use engine::store::{BoxFuture, Store, Tenant, decoded};
use engine::tool::{FunctionTool, ToolDefinition, ToolRequest};
use engine::{Engine, RunOutcome};
use machine::event::Fact;
use machine::id::{Principal, RunId};
use machine::inbox::{Refusal, Verdict};
use machine::termination::{Cancelled, Termination};
use machine::tool::Approval;
use serde_json::json;
use stores::memory::MemoryStore;
use tokio::sync::Barrier;

use crate::nodes::{Cluster, with_timeout};

/// A round takes about 20 ms.
const ROUNDS: u32 = 100;

/// The client interrupts when the model gives the answer with this ordinal.
struct Race {
    ordinal: AtomicU32,
    start: Barrier,
}

/// Asks for two writes, and then gives its final answer.
struct Racing(Arc<Race>);

impl Model for Racing {
    fn answer<'a>(
        &'a self,
        request: ModelRequest,
        _: Deltas,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        Box::pin(async move {
            if request.ordinal == self.0.ordinal.load(Ordering::SeqCst) {
                self.0.start.wait().await;
            }
            Ok(match request.ordinal {
                1 => ModelAnswer::default().calling("a", "note", json!({})).calling("b", "note", json!({})),
                _ => ModelAnswer::text("done"),
            })
        })
    }
}

async fn engine(store: Arc<dyn Store>, race: &Arc<Race>) -> Engine {
    let note = ToolDefinition::new("note", "Writes something down").approval(Approval::Never);
    let note = FunctionTool::new(note, |_: ToolRequest| async { json!("written") });
    let agent = Agent::new("assistant", Racing(race.clone())).tool(note);
    Engine::on_shared(store).agent(agent).start().await.expect("the engine starts")
}

/// The sequence numbers of the last event, and of every event that started a call.
async fn starts(engine: &Engine, run: &RunId) -> (u64, Vec<u64>) {
    let log = decoded(engine.store().events(&Tenant::default(), run, 0, 1_000).await.unwrap()).unwrap();
    let starts = log.iter().filter(|one| matches!(one.event.fact, Fact::ExecutionStarted { .. }));
    let starts = starts.map(|one| one.event.seq).collect();
    (log.last().map_or(0, |last| last.event.seq), starts)
}

/// The run is posted to one engine and interrupted at the other.
async fn race(stores: [Arc<dyn Store>; 2]) {
    let race = Arc::new(Race { ordinal: AtomicU32::new(0), start: Barrier::new(2) });
    let [here, there] = stores;
    let is_one = Arc::ptr_eq(&here, &there);
    let here = engine(here, &race).await;
    let there = if is_one { here.clone() } else { engine(there, &race).await };
    let (tenant, ana) = (Tenant::default(), Principal::from("ana"));
    let rounds =
        env::var("HOLDPOINT_INTERRUPT_ROUNDS").map_or(ROUNDS, |text| text.parse().expect("a number"));
    let mut accepted = 0;
    for round in 0..rounds {
        race.ordinal.store(1 + round % 2, Ordering::SeqCst);
        let run = here.post(Message::to("assistant", "please")).await.expect("the message is accepted").run;
        with_timeout("the model", race.start.wait()).await;
        for _ in 0..round % 16 {
            tokio::task::yield_now().await;
        }
        let verdict = there.interrupt(&tenant, &run, &ana).await.expect("an answer");
        let (seen, _) = starts(&there, &run).await;
        let RunOutcome::Ended(termination) =
            with_timeout("the end", here.wait_until_ended(&tenant, &run)).await.unwrap().outcome
        else {
            panic!("round {round}: {run} has not ended");
        };
        let (_, started) = starts(&there, &run).await;
        let later: Vec<u64> = started.into_iter().filter(|seq| *seq > seen).collect();
        match verdict {
            Verdict::Accepted => {
                accepted += 1;
                let interrupted = Termination::Cancelled(Cancelled::Interrupted);
                assert_eq!(termination, interrupted, "round {round}: the interrupt of {run} was accepted");
                assert_eq!(later, Vec::<u64>::new(), "round {round}: {run} started calls after event {seen}");
            }
            Verdict::Refused(Refusal::RunOver) => {
                assert_eq!(termination, Termination::NaturalEnd, "round {round}: {run} had ended");
            }
            verdict => panic!("round {round}: {verdict:?}"),
        }
    }
    assert!(accepted > 0, "none of {rounds} interrupts was accepted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_interrupt_that_another_node_accepted_wins_against_whatever_the_run_is_about_to_do() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node().await, cluster.node().await);
    race([one.store.clone(), two.store.clone()]).await;
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_interrupt_that_the_only_node_accepted_wins_on_sqlite() {
    let folder = crate::sqlite_fixture::Folder::new();
    let store: Arc<dyn Store> = Arc::new(stores::sqlite::SqliteStore::open(folder.file()).unwrap());
    race([store.clone(), store]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_interrupt_that_the_only_node_accepted_wins_in_memory() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    race([store.clone(), store]).await;
}
