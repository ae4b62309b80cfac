//! Many calls at once: each starts with its own decision, and none that has finished runs again, whatever crashes when.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::Engine;
use engine::agent::Agent;
use engine::deciding::Decide;
use engine::model::{Model, ModelAnswer, ModelRequest};
use engine::store::{Page, RunFilter, Tenant, ViewStore};
use engine::tool::{FunctionTool, Tool, ToolDefinition, ToolRequest};
use machine::event::{Event, Fact};
use machine::id::{CallId, RunId};
use machine::inbox::Verdict;
use machine::policy::{Execution, Policy};
use machine::suspension::SuspensionKind;
use machine::termination::Termination;
use serde_json::{Value, json};

use crate::faulty_store::{Fate, FaultyStore};
use crate::harness::{
    FunctionModel, Harness, Sent, accepted, ask, asking, call, echo, held, name, next_event,
    remaining_events, to_assistant, transfer_definition,
};

/// A small generator: the same seed tells the same story.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = usize::try_from(self.below(last as u64 + 1)).unwrap();
            items.swap(last, other);
        }
    }
}

/// A tool that takes as long as its arguments say.
fn lasting(definition: ToolDefinition, sent: &Sent) -> impl Tool + use<> {
    let sent = sent.clone();
    FunctionTool::new(definition, move |request: ToolRequest| {
        let ms = request.arguments["ms"].as_u64().unwrap();
        let sent = sent.clone();
        async move {
            sent.keep(request);
            tokio::time::sleep(Duration::from_millis(ms)).await;
            json!("done")
        }
    })
}

/// The number of the commit that each event is stored in.
async fn commits_of(harness: &Harness, run: &RunId) -> Vec<(usize, Event)> {
    let log = harness.store.events(&Tenant::default(), run, 0, 100_000).await.unwrap();
    let mut commit = 0;
    log.iter()
        .map(|committed| {
            let place = (commit, (*committed.readable().unwrap().event).clone());
            commit += usize::from(committed.checkpoint().is_some());
            place
        })
        .collect()
}

async fn decide_64_calls(seed: u64) {
    let (harness, sent, mut chance) = (Harness::new(), Sent::default(), Chance(seed));
    let ids: Vec<String> = (0..64).map(|number| format!("c{number:02}")).collect();
    let calls: Vec<(&str, &str, Value)> = ids
        .iter()
        .zip(0..)
        .map(|(id, number)| {
            let tool = if number % 4 == 3 { "look" } else { "transfer" };
            (&**id, tool, json!({"ms": chance.below(400)}))
        })
        .collect();
    let agent = Agent::new("assistant", asking(&calls))
        .tool(lasting(transfer_definition(), &sent))
        .tool(lasting(ToolDefinition::new("look", "Reads").read(), &sent));
    let engine = harness.start(agent).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    crate::harness::until_named(&mut watched, "tool.execution_started").await;
    let mut held: Vec<CallId> =
        calls.iter().filter(|(_, tool, _)| *tool == "transfer").map(|(id, ..)| call(id)).collect();
    chance.shuffle(&mut held);
    for call in &held {
        tokio::time::sleep(Duration::from_millis(chance.below(30))).await;
        let decision = match chance.below(8) {
            0 => Decide::reject(&posted.run, call, "ann", "no"),
            _ => Decide::approve(&posted.run, call, "ann"),
        };
        let commits = harness.commits();
        assert_eq!(engine.decide(decision).await.unwrap(), Verdict::Accepted);
        assert!(harness.commits() > commits);
    }
    remaining_events(&mut watched).await;
    assert_eq!(harness.ended(&posted.run).await, Some(Termination::NaturalEnd));
    let log = commits_of(&harness, &posted.run).await;
    let place = |wanted: &dyn Fn(&Fact) -> bool| {
        let found: Vec<usize> =
            log.iter().filter(|(_, event)| wanted(&event.fact)).map(|(commit, _)| *commit).collect();
        assert!(found.len() <= 1, "twice: {found:?}");
        found.first().copied()
    };
    let mut approved_count = 0;
    for id in &held {
        let approved = place(&|fact| matches!(fact, Fact::ToolApproved { call_id, .. } if call_id == id));
        let started = place(&|fact| matches!(fact, Fact::ExecutionStarted { call_id, .. } if call_id == id));
        assert_eq!(approved, started, "seed {seed}: {id} did not start with its decision");
        approved_count += usize::from(approved.is_some());
    }
    assert_eq!(sent.count(), approved_count + 16, "seed {seed}");
}

#[tokio::test(start_paused = true)]
async fn of_64_calls_each_starts_in_the_commit_of_its_own_decision_and_runs_once() {
    for seed in 1..=20 {
        decide_64_calls(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn in_sequential_mode_a_call_after_a_held_one_starts_when_that_one_has_settled() {
    let model = asking(&[("a", "echo", json!({})), ("b", "transfer", json!({})), ("c", "echo", json!({}))]);
    let (harness, sent) = (Harness::new(), Sent::default());
    let policy = Policy { execution: Execution::Sequential, ..Policy::default() };
    let agent = Agent::new("assistant", model).tool(echo()).tool(sent.transfer()).policy(policy);
    let engine = harness.start(agent).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    assert_eq!(harness.count(&run, "tool.execution_started").await, 1);
    accepted(engine.decide(Decide::approve(&run, &call("b"), "ann")).await);
    remaining_events(&mut watched).await;
    let order: Vec<String> = harness
        .log(&run)
        .await
        .iter()
        .filter_map(|event| match &event.fact {
            Fact::ExecutionStarted { call_id, .. } => Some(format!("{call_id} starts")),
            Fact::ExecutionSucceeded { call_id, .. } => Some(format!("{call_id} ends")),
            _ => None,
        })
        .collect();
    assert_eq!(order, ["a starts", "a ends", "b starts", "b ends", "c starts", "c ends"]);
}

/// Two reads, a write that is held and an idempotent call, over two steps.
fn crashing_model() -> impl Model {
    FunctionModel(|request: ModelRequest, _| {
        let answer = match request.step {
            1 => ask(&[
                ("a", "look", json!({"ms": 5})),
                ("b", "look", json!({"ms": 50})),
                ("c", "transfer", json!({"ms": 7})),
                ("d", "upsert", json!({"ms": 9})),
            ]),
            2 => ask(&[("e", "look", json!({"ms": 3}))]),
            _ => ModelAnswer::text("Done."),
        };
        std::future::ready(Ok(answer))
    })
}

fn crashing_agent(sent: &Sent) -> Agent {
    Agent::new("assistant", crashing_model())
        .tool(lasting(transfer_definition(), sent))
        .tool(lasting(ToolDefinition::new("look", "Reads").read(), sent))
        .tool(lasting(ToolDefinition::new("upsert", "Writes with a key").idempotent(), sent))
}

/// Says yes to every approval and settles every doubt, until the run is over.
async fn answer_all(engine: Engine, harness: Harness, run: RunId) {
    let mut watched = engine.subscribe(&Tenant::default(), &run, 0);
    while let Some(event) = next_event(&mut watched).await {
        if !matches!(name(&event.fact).as_str(), "run.waiting" | "tool.approval_requested" | "tool.suspended")
        {
            continue;
        }
        for open in harness.pending().await {
            let decision = match open.kind {
                SuspensionKind::InDoubt => open.result("ann", json!("checked")),
                _ => Decide::approve(&run, &open.call, "ann"),
            };
            // It may have been answered for an earlier event already.
            let _ = engine.decide(decision).await;
        }
    }
}

async fn post_and_answer(engine: Engine, harness: Harness) {
    let posted = engine.post(to_assistant().on_thread("t")).await.unwrap();
    answer_all(engine, harness, posted.run).await;
}

fn sent_by_call(sent: &Sent) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in sent.requests() {
        *counts.entry(request.call.to_string()).or_default() += 1;
    }
    counts
}

/// The calls that the log says have succeeded.
fn finished(log: &[Event]) -> Vec<String> {
    let done = log.iter().filter_map(|event| match &event.fact {
        Fact::ExecutionSucceeded { call_id, .. } => Some(call_id.to_string()),
        _ => None,
    });
    done.collect()
}

/// The process dies at this commit, before or after it is stored. False if there are fewer commits.
async fn crash_at(number: u64, fate: Fate) -> bool {
    let (harness, sent) = (Harness::new(), Sent::default());
    let store =
        FaultyStore::new(&harness.store, move |now, _| if now == number { fate } else { Fate::Stored });
    let engine = harness.engine_on(store.clone()).agent(crashing_agent(&sent)).start().await.unwrap();
    let story = tokio::spawn(post_and_answer(engine.clone(), harness.clone()));
    let crashed = tokio::select! {
        () = store.hung.notified() => true,
        () = async { while !story.is_finished() { tokio::time::sleep(Duration::from_millis(1)).await } } => false,
    };
    if !crashed {
        return false;
    }
    engine.abort();
    story.abort();
    let harness = harness.reopen();
    let runs = harness.store.runs(&Tenant::default(), &RunFilter::default(), &Page::default()).await.unwrap();
    let before = match runs.items.first() {
        Some(run) => finished(&harness.log(&run.id).await),
        None => Vec::new(),
    };
    let sent_before = sent_by_call(&sent);
    let engine = harness.start(crashing_agent(&sent)).await;
    let run = match runs.items.first() {
        Some(run) => run.id.clone(),
        None => engine.post(to_assistant().on_thread("t")).await.unwrap().run,
    };
    answer_all(engine, harness.clone(), run.clone()).await;
    let context = format!("commit {number} {fate:?}");
    assert_eq!(harness.ended(&run).await, Some(Termination::NaturalEnd), "{context}");
    let sent_after = sent_by_call(&sent);
    for done in &before {
        assert_eq!(sent_after.get(done), sent_before.get(done), "{context}: {done} ran again");
    }
    assert!(sent_after.get("c").is_none_or(|count| *count <= 1), "{context}: the write ran twice");
    let mut all = finished(&harness.log(&run).await);
    all.sort();
    assert_eq!(all, ["a", "b", "c", "d", "e"], "{context}");
    true
}

#[tokio::test(start_paused = true)]
async fn no_finished_call_runs_again_when_the_process_dies_at_any_commit() {
    for fate in [Fate::HangsBefore, Fate::HangsAfter] {
        let mut number = 1;
        while crash_at(number, fate).await {
            number += 1;
        }
        assert!(number > 8, "only {number} commits");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_runs_at_once_on_many_threads_all_end_and_send_every_call_once() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let agent = Agent::new(
        "assistant",
        asking(&[("a", "look", json!({"ms": 1})), ("b", "transfer", json!({"ms": 0}))]),
    );
    let look = lasting(ToolDefinition::new("look", "Reads").read(), &sent);
    let engine = harness.start(agent.tool(lasting(transfer_definition(), &sent)).tool(look)).await;
    let ended = Arc::new(Mutex::new(0));
    let stories: Vec<_> = (0..100)
        .map(|_| {
            let (engine, ended) = (engine.clone(), ended.clone());
            tokio::spawn(async move {
                let (run, mut watched) = held(&engine, to_assistant()).await;
                let verdict = engine.decide(Decide::approve(&run, &call("b"), "ann")).await.unwrap();
                assert_eq!(verdict, Verdict::Accepted);
                remaining_events(&mut watched).await;
                *ended.lock().unwrap() += 1;
            })
        })
        .collect();
    for story in stories {
        story.await.unwrap();
    }
    assert_eq!((*ended.lock().unwrap(), sent.count()), (100, 200));
}
