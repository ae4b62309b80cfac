//! The doctor of a database: a healthy one has no findings, however long its logs are and while other nodes use it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::agent::Agent;
use engine::live::Deltas;
use engine::model::{Model, ModelAnswer, ModelFailure, ModelRequest};
use engine::posting::Message;
use engine::store::{BoxFuture, Store, Tenant};
use engine::tool::{DeclaredTool, FunctionTool, Performer, ToolDefinition, ToolRequest};
use engine::{Engine, RunOutcome};
use machine::id::{Principal, RunId};
use machine::phase::{Action, HookAnswer, HookAnswers, HookOutcome, Scope};
use machine::policy::OnBusy;
use serde_json::json;
use stores::postgres::doctor::{DoctorProgress, Finding, FindingCode, PostgresReport};
use stores::postgres::upkeep::Upkeep;
use stores::postgres::{PostgresSettings, PostgresStore};

use crate::fixture::{Clock, World};
use crate::nodes::{Cluster, with_timeout};
use crate::sample_data::{freeze_agent, populate, take_over_lost};
use crate::worker::{parked, started};

/// A store under examination.
pub(crate) struct ExaminedStore {
    pub(crate) cluster: Cluster<'static>,
    world: World,
    upkeep: Upkeep,
}

impl ExaminedStore {
    async fn new() -> Self {
        let cluster = Cluster::new();
        let clock = Clock::new();
        let world = open(&cluster, &clock).await;
        let upkeep = Upkeep::open(&cluster.server.address(), cluster.settings()).await.expect("upkeep opens");
        Self { cluster, world, upkeep }
    }

    /// A store with sample data of every kind. Its first node was lost, and a second node has taken over.
    pub(crate) async fn populated() -> Self {
        let mut fixture = Self::new().await;
        populate(&fixture.world).await;
        let client = fixture.cluster.client().await;
        let now = fixture.world.clock.now().0;
        let lost = format!("UPDATE nodes SET expires_at = started_at; SELECT take_over(0, {now})");
        client.batch_execute(&lost).await.unwrap();
        fixture.world = open(&fixture.cluster, &fixture.world.clock.clone()).await;
        take_over_lost(&fixture.world).await;
        fixture
    }

    pub(crate) async fn examined(&self) -> PostgresReport {
        self.upkeep.examine(|_| {}).await.unwrap()
    }

    pub(crate) async fn assert_healthy(&self) -> PostgresReport {
        let report = self.examined().await;
        assert_eq!(report.findings.kept(), &[] as &[Finding]);
        report
    }
}

async fn open(cluster: &Cluster<'_>, clock: &Clock) -> World {
    let at = clock.clone();
    let settings = PostgresSettings { clock: Some(Arc::new(move || at.now())), ..cluster.settings() };
    let store = PostgresStore::open_with(&cluster.server.address(), settings).await.expect("the store opens");
    World::new(Arc::new(store), clock.clone())
}

#[tokio::test]
async fn a_good_database_has_nothing_to_find() {
    let fixture = ExaminedStore::populated().await;
    let mut stages = Vec::new();
    let report = fixture.upkeep.examine(|progress| stages.push(progress)).await.unwrap();
    assert_eq!(report.findings.kept(), &[] as &[Finding]);
    let client = fixture.cluster.client().await;
    let mut counts = Vec::new();
    for of in ["count(*) FROM threads", "count(*) FROM runs", "sum(seq)::bigint FROM runs"] {
        let row = client.query_one(&format!("SELECT {of}"), &[]).await.unwrap();
        counts.push(u64::try_from(row.get::<_, i64>(0)).unwrap());
    }
    assert_eq!([report.threads, report.runs, report.events], counts[..]);
    let size = report.size.expect("the tables are measured");
    assert_eq!((size.runs, size.events), (report.runs, report.events));
    assert_eq!(stages.first(), Some(&DoctorProgress::References));
    assert!(
        stages.contains(&DoctorProgress::Threads { done: report.threads, total: report.threads }),
        "{stages:?}"
    );
    assert_eq!(stages.last(), Some(&DoctorProgress::Size));
}

#[tokio::test]
async fn of_one_code_a_bounded_number_is_kept_and_all_are_counted() {
    let fixture = ExaminedStore::new().await;
    freeze_agent(&fixture.world).await;
    for index in 0..70 {
        parked(&fixture.world, &format!("thr_{index}"), &format!("run_{index}"), "transfer").await;
    }
    assert_eq!(fixture.assert_healthy().await.threads, 70, "more than one batch");
    fixture.cluster.client().await.batch_execute("UPDATE messages SET seq = seq + 1").await.unwrap();
    let report = fixture.examined().await;
    assert_eq!(report.findings.counts()[&FindingCode::MessageDiffers], 140);
    assert_eq!(report.findings.kept().len(), 20);
    let first = &report.findings.kept()[0];
    assert_eq!(first.place, "thread thr_0 of acme");
    assert!(first.next_step().contains("backup"), "{}", first.next_step());
}

#[tokio::test]
async fn a_thread_and_a_log_of_many_pages_are_read_to_their_end() {
    let fixture = ExaminedStore::new().await;
    freeze_agent(&fixture.world).await;
    for index in 0..20 {
        let mut worker = started(&fixture.world, "thr", &format!("run_{index}")).await;
        worker.finish_with("done");
        worker.commit(&fixture.world).await.unwrap();
    }
    let mut long = started(&fixture.world, "thr_long", "long").await;
    for index in 0..300 {
        let call = format!("call_{index}");
        long.asks(&[(call.as_str(), "echo")]);
        long.commit(&fixture.world).await.unwrap();
        long.succeeds(&call);
        long.commit(&fixture.world).await.unwrap();
    }
    let report = fixture.assert_healthy().await;
    assert_eq!((report.threads, report.runs), (2, 21));
    let client = fixture.cluster.client().await;
    let broken =
        "UPDATE commits SET checkpoint = 'run_finished' WHERE last_seq = (SELECT max(last_seq) FROM commits)";
    client.batch_execute(broken).await.unwrap();
    let report = fixture.examined().await;
    assert_eq!(report.findings.counts()[&FindingCode::LogBroken], 1, "{:?}", report.findings);
    client.batch_execute("UPDATE messages SET role = 'note' WHERE id = 'msg_run_19_1'").await.unwrap();
    let report = fixture.examined().await;
    assert_eq!(report.findings.counts()[&FindingCode::MessageDiffers], 1, "{:?}", report.findings);
}

/// A run that stores thread-scoped plugin state, and ends.
async fn keeps(world: &World, run: &str, state: &str) {
    let mut worker = started(world, "thr", run).await;
    let kept = Action::SetState { key: "ours".into(), scope: Scope::Thread, value: Arc::new(json!(state)) };
    let answer = HookAnswer { plugin: "guard".into(), outcome: HookOutcome::Actions(vec![kept]) };
    let hooks = HookAnswers { answers: vec![answer], state_bytes_after: 100 };
    let call = format!("call_{run}");
    worker.asks_knowing(&[(call.as_str(), "echo")], BTreeSet::new(), hooks);
    worker.commit(world).await.unwrap();
    worker.succeeds(&call);
    worker.finish_with("done");
    worker.commit(world).await.unwrap();
}

#[tokio::test]
async fn thread_state_is_the_last_write_of_its_runs() {
    let fixture = ExaminedStore::new().await;
    // All at the same time, and not in the order of their ids.
    for (run, state) in [("run_c", "first"), ("run_b", "second"), ("run_a", "third")] {
        keeps(&fixture.world, run, state).await;
    }
    fixture.assert_healthy().await;
    let earlier = "UPDATE plugin_state SET value = '\"second\"'";
    fixture.cluster.client().await.batch_execute(earlier).await.unwrap();
    let report = fixture.examined().await;
    assert_eq!(report.findings.counts()[&FindingCode::ThreadDiffers], 1, "{:?}", report.findings);
}

/// Answers each message with one call, and then with text.
struct AsksOnce(&'static str);

impl Model for AsksOnce {
    fn answer<'a>(
        &'a self,
        request: ModelRequest,
        _: Deltas,
    ) -> BoxFuture<'a, Result<ModelAnswer, ModelFailure>> {
        let answer = match request.ordinal {
            1 => ModelAnswer::default().calling("call", self.0, json!({"topic": "all"})),
            _ => ModelAnswer::text("done"),
        };
        Box::pin(std::future::ready(Ok(answer)))
    }
}

async fn engine(store: Arc<dyn Store>) -> Engine {
    let transfer =
        FunctionTool::new(ToolDefinition::new("transfer", "Sends money"), |_: ToolRequest| async {
            json!("sent")
        });
    let ask = DeclaredTool::new(
        ToolDefinition::new("ask", "Asks another agent")
            .performed_by(Performer::Agent { agent: "clerk".into(), budget_tokens_max: None }),
    );
    let clerk = Agent::new("clerk", AsksOnce("transfer")).tool(transfer);
    let chief = Agent::new("chief", AsksOnce("ask")).tool(ask);
    Engine::on_shared(store).agent(clerk).agent(chief).start().await.expect("the engine starts")
}

/// Creates runs of all kinds on two nodes, a fixed number of them.
async fn work(engines: [Engine; 2], thread: usize) {
    let tenant = Tenant::default();
    for round in 0..6_usize {
        let (here, there) = (&engines[round % 2], &engines[(round + 1) % 2]);
        let agent = if round % 3 == 0 { "chief" } else { "clerk" };
        let on = format!("thr_{thread}_{round}");
        let first = here
            .post(Message::to(agent, "please").on_thread(on.as_str()))
            .await
            .expect("the message is accepted");
        let mut behind = Message::to("clerk", "and then").on_thread(on.as_str());
        behind.on_busy = Some(OnBusy::Enqueue);
        let behind = there.post(behind).await.expect("the message is queued");
        if round % 2 == 0 {
            let by = Principal::from("bob");
            let verdict =
                there.interrupt(&tenant, &behind.run, &by).await.expect("the interrupt is answered");
            assert!(verdict.is_taken(), "{verdict}");
        }
        let mut changed = here.approvals_changed();
        loop {
            let mine = |run: &RunId| [&first.run, &behind.run].contains(&run);
            for asked in here.pending(&tenant).await.expect("the list is read") {
                let above = asked.path.first().map_or(asked.run.clone(), |entry| entry.run.clone());
                if mine(&asked.run) || mine(&above) {
                    // The list may still show an approval that was decided a moment ago.
                    let _verdict =
                        there.decide(asked.approve("ana")).await.expect("the decision is answered");
                }
            }
            let over = here
                .view(&tenant, &first.run)
                .await
                .unwrap()
                .is_some_and(|run| run.ended_at.is_some())
                && here.view(&tenant, &behind.run).await.unwrap().is_some_and(|run| run.ended_at.is_some());
            if over {
                break;
            }
            let soon = std::time::Duration::from_millis(50);
            let _ = tokio::time::timeout(soon, changed.changed()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_database_is_examined_while_its_nodes_work() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.node().await, cluster.node().await);
    let engines = [engine(one.store.clone()).await, engine(two.store.clone()).await];
    let upkeep = Upkeep::open(&cluster.server.address(), cluster.settings()).await.expect("upkeep opens");
    let over = Arc::new(AtomicBool::new(false));
    let worked = tokio::spawn({
        let (over, engines) = (over.clone(), engines.clone());
        async move {
            let each = (0..4).map(|thread| tokio::spawn(work(engines.clone(), thread)));
            for one in each.collect::<Vec<_>>() {
                one.await.expect("the task ends without a panic");
            }
            over.store(true, Ordering::SeqCst);
        }
    });
    let (mut looks, mut under_way) = (0_u32, 0_u32);
    while !over.load(Ordering::SeqCst) {
        let report = with_timeout("a report", upkeep.examine(|_| {})).await.unwrap();
        assert_eq!(report.findings.kept(), &[] as &[Finding], "examination {looks}");
        looks += 1;
        under_way += u32::from(!over.load(Ordering::SeqCst) && report.runs > 0);
    }
    with_timeout("the work", worked).await.expect("the task ends without a panic");
    assert!(under_way > 1, "{looks} examinations, {under_way} of them while runs were in progress");
    let report = upkeep.examine(|_| {}).await.unwrap();
    assert_eq!(report.findings.kept(), &[] as &[Finding]);
    assert_eq!(report.runs, 4 * (6 * 2 + 2), "two of six runs have a child");
    for engine in engines {
        let held = engine.run(Message::to("clerk", "one more")).await.expect("the run is held");
        assert!(matches!(held.outcome, RunOutcome::Suspended(_)), "{held:?}");
    }
    assert_eq!(upkeep.examine(|_| {}).await.unwrap().findings.kept(), &[] as &[Finding]);
}
