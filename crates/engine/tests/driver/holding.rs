//! Held calls: decided while others run, continued by another worker, interrupted, delegated.

use std::sync::Arc;

use engine::RunOutcome;
use engine::agent::Agent;
use engine::deciding::Decide;
use engine::model::ModelAnswer;
use engine::posting::Message;
use engine::store::{ApprovalFilter, Page, Tenant, ViewStore};
use engine::tool::{DeclaredTool, FunctionTool, Performer, Tool, ToolDefinition, ToolRequest};
use machine::id::{CallId, Principal};
use machine::inbox::Verdict;
use machine::termination::{Cancelled, Termination};
use serde_json::json;
use stores::memory::MemoryStore;
use tokio::sync::Notify;

use crate::harness::{Scripted, accepted, asking, echo, gated, on, until_named};

fn transfer() -> impl Tool {
    let definition = ToolDefinition::new("transfer", "Moves money");
    FunctionTool::new(definition, |_: ToolRequest| async move { json!("sent") })
}

#[tokio::test]
async fn an_approved_call_starts_while_its_sibling_runs_and_another_stays_held() {
    let store = MemoryStore::new();
    let gate = Arc::new(Notify::new());
    let model = asking(&[
        ("a", "transfer", json!({"to": "a"})),
        ("b", "transfer", json!({"to": "b"})),
        ("c", "slow", json!({})),
    ]);
    let agent = Agent::new("assistant", model).tool(transfer()).tool(gated("slow", &gate));
    let engine = on(&store, agent).start().await.unwrap();
    let (posted, mut watched) = engine.stream(Message::to("assistant", "go")).await.unwrap();
    let tenant = Tenant::default();
    let mut seen = Vec::new();
    let mut decided = false;
    while let Some(item) = watched.next().await {
        let engine::feed::FeedItem::Event(committed) = item.unwrap() else { continue };
        let name = serde_json::to_value(&committed.event.fact).unwrap()["type"].as_str().unwrap().to_owned();
        seen.push(name.clone());
        if name == "tool.execution_started" && !decided {
            decided = true;
            let before = store.metrics().commits;
            let verdict =
                engine.decide(Decide::approve(&posted.run, &CallId::from("a"), "ann")).await.unwrap();
            assert_eq!(verdict, Verdict::Accepted);
            // The verdict comes with the commit that also has the start of the call.
            assert_eq!(store.metrics().commits, before + 1);
        }
        if name == "tool.execution_succeeded" && seen.iter().filter(|n| **n == name).count() == 1 {
            gate.notify_one();
            accepted(engine.decide(Decide::reject(&posted.run, &CallId::from("b"), "ann", "no")).await);
        }
    }
    assert_eq!(seen.last().unwrap(), "run.ended");
    assert!(seen.contains(&"tool.denied".to_owned()), "{seen:?}");
    let view = engine.view(&tenant, &posted.run).await.unwrap().unwrap();
    assert_eq!(view.control.as_ref().unwrap().ended(), Some(&Termination::NaturalEnd));
}

#[tokio::test]
async fn a_held_run_leaves_memory_and_continues_in_another_process() {
    let store = MemoryStore::new();
    let agent = || Agent::new("assistant", asking(&[("a", "transfer", json!({"to": "a"}))])).tool(transfer());
    let engine = on(&store, agent()).start().await.unwrap();
    let finished = engine.run(Message::to("assistant", "go")).await.unwrap();
    let RunOutcome::Suspended(pending) = &finished.outcome else { panic!("{finished:?}") };
    assert_eq!(pending.len(), 1);
    while engine.runs_in_memory() > 0 {
        tokio::task::yield_now().await;
    }
    engine.abort();
    let reopened = store.reopen();
    let engine = on(&reopened, agent()).start().await.unwrap();
    let tenant = Tenant::default();
    let waiting = engine.approvals(&tenant, &ApprovalFilter::default(), &Page::default()).await.unwrap();
    assert_eq!(waiting.items.len(), 1);
    let last = engine.view(&tenant, &finished.run).await.unwrap().unwrap().control.as_ref().unwrap().seq;
    let before = reopened.metrics().commits;
    let decision = Decide::approve(&finished.run, &CallId::from("a"), "ann").with_id("d1");
    assert_eq!(engine.decide(decision.clone()).await.unwrap(), Verdict::Accepted);
    assert_eq!(reopened.metrics().commits, before + 1);
    let end = engine.follow(&tenant, &finished.run, last).await.unwrap();
    assert_eq!(end.outcome, RunOutcome::Ended(Termination::NaturalEnd));
    assert_eq!(engine.decide(decision).await.unwrap(), Verdict::AlreadyApplied);
}

#[tokio::test]
async fn an_interrupt_does_not_wait_for_a_tool_that_ignores_it() {
    let store = MemoryStore::new();
    let never = Arc::new(Notify::new());
    let agent = Agent::new("assistant", asking(&[("a", "slow", json!({}))])).tool(gated("slow", &never));
    let engine = on(&store, agent).start().await.unwrap();
    let (posted, mut watched) = engine.stream(Message::to("assistant", "go")).await.unwrap();
    until_named(&mut watched, "tool.execution_started").await;
    let tenant = Tenant::default();
    let verdict = engine.interrupt(&tenant, &posted.run, &Principal::from("ann")).await.unwrap();
    assert_eq!(verdict, Verdict::Accepted);
    let end = engine.follow(&tenant, &posted.run, 0).await.unwrap();
    assert_eq!(end.outcome, RunOutcome::Ended(Termination::Cancelled(Cancelled::Interrupted)));
}

#[tokio::test]
async fn a_child_run_holds_a_call_and_the_parent_continues_with_its_answer() {
    let store = MemoryStore::new();
    let desk =
        Agent::new("desk", asking(&[("d", "clerk", json!({"message": "pay bob"}))])).tool(DeclaredTool::new(
            ToolDefinition::new("clerk", "Does the paperwork")
                .performed_by(Performer::Agent { agent: "clerk".into(), budget_tokens_max: None })
                .approval(engine::tool::Approval::Never),
        ));
    let model = Scripted::new([
        Ok(ModelAnswer::text("").calling("t", "transfer", json!({"to": "bob"}))),
        Ok(ModelAnswer::text("bob is paid")),
    ]);
    let clerk = Agent::new("clerk", model).tool(transfer()).tool(echo());
    let engine = on(&store, desk).agent(clerk).start().await.unwrap();
    let finished = engine.run(Message::to("desk", "go")).await.unwrap();
    assert!(matches!(finished.outcome, RunOutcome::Suspended(_)));
    let tenant = Tenant::default();
    let approval = loop {
        let listed = engine.approvals(&tenant, &ApprovalFilter::default(), &Page::default()).await.unwrap();
        if let Some(one) = listed.items.into_iter().next() {
            break one;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(approval.path.len(), 2);
    assert_eq!(approval.path[0].run, finished.run);
    accepted(engine.decide(Decide::approve(&approval.run, &approval.call, "ann")).await);
    let last = engine.view(&tenant, &finished.run).await.unwrap().unwrap().control.as_ref().unwrap().seq;
    let end = engine.follow(&tenant, &finished.run, last).await.unwrap();
    assert_eq!(end.outcome, RunOutcome::Ended(Termination::NaturalEnd));
}
