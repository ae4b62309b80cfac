//! Child runs: budgets, held calls far down, failures, depth, and interrupts that reach every one of them.

use std::sync::{Arc, OnceLock};

use engine::agent::{Agent, Limits, StopCondition};
use engine::deciding::{Answer, Cancellation, Decide};
use engine::model::{ModelAnswer, ModelRequest};
use engine::plugin::{Action, HookContext, Phase};
use engine::store::{
    BoxFuture, Lease, RunFilter, RunStore, RunView, Store, StoreError, Tenant, ViewStore, Wrapper,
};
use engine::tool::{Approval, DeclaredTool, Performer, Tool, ToolDefinition};
use machine::event::{CallErrorCode, Fact, Usage};
use machine::grant::Grant;
use machine::id::{RunId, ToolName};
use machine::policy::{OnBlock, OnReject, Policy};
use machine::termination::{Cancelled, StopCode, Termination};
use serde_json::json;
use stores::memory::MemoryStore;

use crate::function_plugin::FunctionPlugin;
use crate::harness::{
    FunctionModel, Harness, Scripted, Sent, accepted, ask, asking, call, echo, remaining_events, until_named,
    wait_until_released,
};

fn agent_tool(name: &str, agent: &str, budget_tokens_max: Option<u64>) -> impl Tool {
    let performer = Performer::Agent { agent: agent.into(), budget_tokens_max };
    let definition = ToolDefinition::new(name, "Delegates").performed_by(performer);
    DeclaredTool::new(definition.approval(Approval::Never))
}

fn message(to: &str) -> engine::posting::Message {
    engine::posting::Message::to(to, "go")
}

/// All runs, the ones that a person started first.
async fn runs(harness: &Harness) -> Vec<RunView> {
    let page = engine::store::Page::default();
    let mut runs = harness.store.runs(&Tenant::default(), &RunFilter::default(), &page).await.unwrap().items;
    runs.sort_by_key(|run| run.control.as_ref().unwrap().parent.as_ref().map_or(0, |parent| parent.depth));
    runs
}

/// A desk with a clerk with a junior, who wants to transfer money.
async fn three_levels(harness: &Harness, sent: &Sent) -> (engine::Engine, Scripted) {
    let desk = asking(&[("d", "clerk", json!({"message": "pay bob"}))]);
    let clerk = Scripted::new([
        Ok(ask(&[("k", "junior", json!({"message": "send it"}))])),
        Ok(ModelAnswer::text("the clerk is done")),
    ]);
    let junior = Scripted::new([
        Ok(ask(&[("t", "transfer", json!({"to": "bob"}))])),
        Ok(ModelAnswer::text("the junior is done")),
    ]);
    let engine = harness
        .engine()
        .agent(Agent::new("desk", desk.clone()).tool(agent_tool("clerk", "clerk", None)))
        .agent(Agent::new("clerk", clerk).tool(agent_tool("junior", "junior", None)))
        .agent(Agent::new("junior", junior).tool(sent.transfer()))
        .start()
        .await
        .unwrap();
    (engine, desk)
}

#[tokio::test(start_paused = true)]
async fn a_held_call_of_a_grandchild_is_listed_with_its_path_and_decided() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let (engine, desk) = three_levels(&harness, &sent).await;
    let (posted, mut watched) = engine.stream(message("desk")).await.unwrap();
    let_go_all(&engine, &harness, 1).await;
    let shown = harness.pending().await.remove(0);
    let way: Vec<(&str, &str)> =
        shown.path.iter().map(|entry| (entry.agent.as_str(), entry.call.as_str())).collect();
    assert_eq!(way, [("desk", "d"), ("clerk", "k"), ("junior", "t")]);
    assert_eq!((&shown.path[0].run, &shown.path[2].run), (&posted.run, &shown.run));
    accepted(engine.decide(Decide::approve(&shown.run, &shown.call, "ann")).await);
    remaining_events(&mut watched).await;
    assert_eq!(sent.arguments(), [json!({"to": "bob"})]);
    assert_eq!(desk.last_read()[2], "tool d: the clerk is done");
    assert!(
        runs(&harness)
            .await
            .iter()
            .all(|run| run.control.as_ref().unwrap().ended() == Some(&Termination::NaturalEnd))
    );
}

/// What the child of a delegation that an approver has decided on is asked to do.
async fn task_of_the_child(decided: impl FnOnce(Decide) -> Decide) -> String {
    let harness = Harness::new();
    let performer = Performer::Agent { agent: "clerk".into(), budget_tokens_max: None };
    let held = DeclaredTool::new(ToolDefinition::new("clerk", "Delegates").performed_by(performer));
    let clerk = Scripted::new([Ok(ModelAnswer::text("the clerk is done"))]);
    let engine = harness
        .engine()
        .agent(Agent::new("desk", asking(&[("d", "clerk", json!({"message": "pay bob"}))])).tool(held))
        .agent(Agent::new("clerk", clerk.clone()))
        .start()
        .await
        .unwrap();
    let (posted, mut watched) = engine.stream(message("desk")).await.unwrap();
    let_go_all(&engine, &harness, 1).await;
    accepted(engine.decide(decided(Decide::approve(&posted.run, &call("d"), "ann"))).await);
    remaining_events(&mut watched).await;
    assert_eq!(harness.ended(&posted.run).await, Some(Termination::NaturalEnd));
    clerk.last_read().remove(0)
}

#[tokio::test(start_paused = true)]
async fn a_child_is_asked_what_the_approver_has_edited() {
    let edited = |decide: Decide| decide.with_arguments(json!({"message": "pay carol"}));
    assert_eq!(task_of_the_child(edited).await, "user: pay carol");
}

#[tokio::test(start_paused = true)]
async fn a_child_of_an_approved_delegation_is_asked_what_was_shown() {
    assert_eq!(task_of_the_child(|decide| decide).await, "user: pay bob");
}

/// Until this many approvals are open and nothing executes.
async fn let_go_all(engine: &engine::Engine, harness: &Harness, approvals: usize) {
    while harness.pending().await.len() < approvals {
        tokio::task::yield_now().await;
    }
    wait_until_released(engine).await;
}

#[tokio::test(start_paused = true)]
async fn a_tree_of_held_runs_survives_the_process() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let (engine, _) = three_levels(&harness, &sent).await;
    let posted = engine.post(message("desk")).await.unwrap();
    let_go_all(&engine, &harness, 1).await;
    engine.abort();
    let harness = harness.reopen();
    let (engine, desk) = three_levels(&harness, &sent).await;
    let shown = harness.pending().await.remove(0);
    accepted(engine.decide(Decide::approve(&shown.run, &shown.call, "ann")).await);
    remaining_events(&mut engine.subscribe(&Tenant::default(), &posted.run, 0)).await;
    assert_eq!((sent.count(), &*desk.last_read()[2]), (1, "tool d: the clerk is done"));
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_goes_down_the_whole_tree() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let (engine, _) = three_levels(&harness, &sent).await;
    let posted = engine.post(message("desk")).await.unwrap();
    let_go_all(&engine, &harness, 1).await;
    accepted(engine.interrupt(&Tenant::default(), &posted.run, &"ann".into()).await);
    let ids: Vec<RunId> = runs(&harness).await.into_iter().map(|run| run.id).collect();
    for run in &ids {
        remaining_events(&mut engine.subscribe(&Tenant::default(), run, 0)).await;
    }
    let ended: Vec<_> =
        runs(&harness).await.iter().map(|run| run.control.as_ref().unwrap().ended().cloned()).collect();
    let by_parent = Some(Termination::Cancelled(Cancelled::ByParent));
    let wanted = [Some(Termination::Cancelled(Cancelled::Interrupted)), by_parent.clone(), by_parent];
    assert_eq!(ended, wanted);
    assert_eq!((harness.pending().await, sent.count()), (vec![], 0));
}

#[tokio::test(start_paused = true)]
async fn a_child_spends_at_most_its_grant_and_what_it_used_counts_for_its_parent() {
    let harness = Harness::new();
    let usage = Usage { input_tokens: 40, output_tokens: 20 };
    let desk = Scripted::new([
        Ok(ModelAnswer { usage, ..ask(&[("d", "clerk", json!({}))]) }),
        Ok(ModelAnswer { usage, ..ModelAnswer::text("Done.") }),
    ]);
    // It would go on for ever.
    let clerk = FunctionModel(move |request: ModelRequest, _| {
        let id = format!("e{}", request.step);
        std::future::ready(Ok(ModelAnswer { usage, ..ask(&[(&id, "echo", json!({}))]) }))
    });
    let agent = Agent::new("clerk", clerk).tool(echo()).stop_when([StopCondition::MaxRounds { rounds: 0 }]);
    let engine = harness
        .engine()
        .agent(Agent::new("desk", desk).tool(agent_tool("clerk", "clerk", Some(100))))
        .agent(agent)
        .start()
        .await
        .unwrap();
    let (_, mut watched) = engine.stream(message("desk")).await.unwrap();
    let born = until_named(&mut watched, "child.started").await;
    assert!(matches!(born.fact, Fact::ChildStarted { grant_tokens: Some(100), .. }), "{born:?}");
    let ended = remaining_events(&mut watched).await.pop().unwrap();
    // Two answers of its own, and two of the child: after the second one its grant was spent.
    let total = Usage { input_tokens: 160, output_tokens: 80 };
    assert!(matches!(&ended.fact, Fact::RunEnded { usage, .. } if *usage == total), "{ended:?}");
    let child = runs(&harness).await.remove(1);
    let Some(Termination::Stopped(stopped)) = child.control.as_ref().unwrap().ended() else {
        panic!("{child:?}")
    };
    assert_eq!((stopped.code, child.control.as_ref().unwrap().usage.total()), (StopCode::TokenBudget, 120));
}

#[tokio::test(start_paused = true)]
async fn a_child_that_fails_fails_the_call_and_its_parent_continues() {
    let (harness, desk) = (Harness::new(), asking(&[("d", "clerk", json!({})), ("e", "echo", json!({}))]));
    let failure =
        engine::model::ModelFailure { message: "no credit".into(), retryable: false, retry_after_ms: None };
    let engine = harness
        .engine()
        .agent(Agent::new("desk", desk.clone()).tool(agent_tool("clerk", "clerk", None)).tool(echo()))
        .agent(Agent::new("clerk", Scripted::new([Err(failure)])))
        .start()
        .await
        .unwrap();
    let (posted, mut watched) = engine.stream(message("desk")).await.unwrap();
    let failed = until_named(&mut watched, "tool.execution_failed").await;
    let Fact::ExecutionFailed { error, .. } = &failed.fact else { panic!("{failed:?}") };
    assert_eq!(error.code, CallErrorCode::ChildFailed);
    assert!(error.message.contains("no credit"), "{}", error.message);
    remaining_events(&mut watched).await;
    assert_eq!(harness.ended(&posted.run).await, Some(Termination::NaturalEnd));
    assert_eq!(desk.last_read()[3], "tool e: {}");
}

/// The parent of a run that a plugin ends early reads what the run said last, and nothing where it said nothing.
#[tokio::test(start_paused = true)]
async fn a44_a_run_that_a_plugin_ends_early_answers_with_its_last_text() {
    for (said, read) in [("let me look", "tool d: let me look"), ("", "tool d: ")] {
        let (harness, desk) = (Harness::new(), asking(&[("d", "clerk", json!({}))]));
        let clerk = Scripted::new([Ok(ModelAnswer::text(said).calling("e", "echo", json!({})))]);
        let guard = FunctionPlugin::new("guard", [Phase::BeforeInference], |context: &HookContext| {
            Ok(if context.step > 1 { vec![Action::SkipInference] } else { Vec::new() })
        });
        let engine = harness
            .engine()
            .agent(Agent::new("desk", desk.clone()).tool(agent_tool("clerk", "clerk", None)))
            .agent(Agent::new("clerk", clerk.clone()).tool(echo()).plugin(guard))
            .start()
            .await
            .unwrap();
        let (_, mut watched) = engine.stream(message("desk")).await.unwrap();
        remaining_events(&mut watched).await;
        assert_eq!(desk.last_read()[2], read);
        let child = runs(&harness).await.remove(1);
        assert_eq!(child.decoded().unwrap().ended(), Some(&Termination::BehaviorRequested));
        assert_eq!(clerk.requests().len(), 1, "the model was not asked again");
    }
}

#[tokio::test(start_paused = true)]
async fn b7_a_call_whose_child_was_refused_is_read_as_refused_all_the_way_up() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let (engine, desk) = three_levels(&harness, &sent).await;
    let (posted, mut watched) = engine.stream(message("desk")).await.unwrap();
    let_go_all(&engine, &harness, 1).await;
    let shown = harness.pending().await.remove(0);
    let answer = Answer::Cancel(Cancellation {
        reason: Some("not Bob".into()),
        then: Some(OnReject::EndRun),
        ..Cancellation::default()
    });
    accepted(engine.decide(Decide { answer, ..shown.approve("ann") }).await);
    remaining_events(&mut watched).await;
    let all = runs(&harness).await;
    let clerk = harness.log(&all[1].id).await;
    let failed = clerk.iter().find_map(|event| match &event.fact {
        Fact::ExecutionFailed { error, .. } => Some((error.code, error.message.clone())),
        _ => None,
    });
    let why = "the delegated run was stopped before it was done: rejected: not Bob";
    assert_eq!(failed, Some((CallErrorCode::ChildFailed, why.into())));
    // The clerk read the failure, and its own final answer is a result again.
    assert_eq!((sent.count(), &*desk.last_read()[2]), (0, "tool d: the clerk is done"));
    assert_eq!(harness.ended(&posted.run).await, Some(Termination::NaturalEnd));
}

#[tokio::test(start_paused = true)]
async fn agents_that_delegate_to_themselves_end_at_the_depth_limit() {
    let harness = Harness::new();
    let model = FunctionModel(|request: ModelRequest, _| {
        let answer = match request.step {
            1 => ask(&[("again", "me", json!({}))]),
            _ => ModelAnswer::text("Enough."),
        };
        std::future::ready(Ok(answer))
    });
    let limits = Limits { depth_max: 2, ..Limits::default() };
    let agent = Agent::new("assistant", model).tool(agent_tool("me", "assistant", None)).limits(limits);
    let engine = harness.start(agent).await;
    let (_, mut watched) = engine.stream(message("assistant")).await.unwrap();
    remaining_events(&mut watched).await;
    let all = runs(&harness).await;
    assert_eq!(all.len(), 3);
    assert!(all.iter().all(|run| run.control.as_ref().unwrap().ended() == Some(&Termination::NaturalEnd)));
    let refused: Vec<CallErrorCode> = harness
        .log(&all[2].id)
        .await
        .iter()
        .filter_map(|event| match &event.fact {
            Fact::ExecutionFailed { error, .. } => Some(error.code),
            _ => None,
        })
        .collect();
    assert_eq!(refused, [CallErrorCode::TooDeep]);
}

#[tokio::test(start_paused = true)]
async fn no_outside_caller_can_answer_for_a_child_run() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let (engine, _) = three_levels(&harness, &sent).await;
    let posted = engine.post(message("desk")).await.unwrap();
    let_go_all(&engine, &harness, 1).await;
    let verdict = engine.decide(Decide::result(&posted.run, &call("d"), "eve", json!("done"))).await.unwrap();
    let invalid = matches!(verdict, machine::inbox::Verdict::Refused(machine::inbox::Refusal::Invalid(_)));
    assert!(invalid, "{verdict:?}");
    assert_eq!((harness.ended(&posted.run).await, harness.pending().await.len()), (None, 1));
}

#[tokio::test(start_paused = true)]
async fn b49_a_child_whose_call_is_cancelled_in_the_commit_that_creates_it_is_cancelled() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let desk = asking(&[("a", "clerk", json!({})), ("b", "shred", json!({}))]);
    let shred = ToolDefinition::new("shred", "Is never allowed").approval(Approval::Block);
    let post = ToolDefinition::new("post", "Writes").approval(Approval::Never);
    let policy = Policy { on_block: OnBlock::EndRun, ..Policy::default() };
    let engine = harness
        .engine()
        .agent(
            Agent::new("desk", desk)
                .tool(agent_tool("clerk", "clerk", None))
                .tool(sent.tool(shred, |_| json!("shredded")))
                .policy(policy),
        )
        .agent(
            Agent::new("clerk", asking(&[("p", "post", json!({}))])).tool(sent.tool(post, |_| json!("sent"))),
        )
        .start()
        .await
        .unwrap();
    let (posted, mut watched) = engine.stream(message("desk")).await.unwrap();
    remaining_events(&mut watched).await;
    assert!(matches!(harness.ended(&posted.run).await, Some(Termination::Blocked(_))));
    let child = runs(&harness).await.remove(1);
    remaining_events(&mut engine.subscribe(&Tenant::default(), &child.id, 0)).await;
    let by_parent = Some(Termination::Cancelled(Cancelled::ByParent));
    assert_eq!((harness.ended(&child.id).await, sent.count()), (by_parent, 0));
}

/// Before it says which grants there are for a call, the agents are replaced.
struct ReconfiguringStore {
    inner: MemoryStore,
    replaced: OnceLock<(engine::Engine, Agent)>,
}

impl Wrapper for ReconfiguringStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn grants_for(&self, lease: &Lease, tool: &ToolName) -> BoxFuture<'_, Result<Vec<Grant>, StoreError>> {
        let (lease, tool) = (lease.clone(), tool.clone());
        Box::pin(async move {
            if let Some((engine, agent)) = self.replaced.get() {
                engine.replace_agents(vec![agent.clone()]).await.unwrap();
            }
            self.inner.grants_for(&lease, &tool).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_removed_between_the_gate_and_the_commit_fails_the_call_and_not_the_run() {
    let (harness, desk) = (Harness::new(), asking(&[("d", "clerk", json!({}))]));
    let store = Arc::new(ReconfiguringStore { inner: harness.store.clone(), replaced: OnceLock::new() });
    let performer = Performer::Agent { agent: "clerk".into(), budget_tokens_max: None };
    let clerk = DeclaredTool::new(ToolDefinition::new("clerk", "Delegates").performed_by(performer));
    let engine = harness
        .engine_on(store.clone())
        .agent(Agent::new("desk", desk.clone()).tool(clerk))
        .agent(Agent::new("clerk", asking(&[])))
        .start()
        .await
        .unwrap();
    assert!(store.replaced.set((engine.clone(), Agent::new("desk", desk.clone()))).is_ok());
    let (tenant, thread) = (Tenant::default(), "t".into());
    harness.store.put_thread(&tenant, &thread, &json!({})).await.unwrap();
    engine.auto_approve(&tenant, &thread, true, &"ann".into()).await.unwrap();
    let (posted, mut watched) = engine.stream(message("desk").on_thread("t")).await.unwrap();
    let failed = until_named(&mut watched, "tool.execution_failed").await;
    let Fact::ExecutionFailed { error, .. } = &failed.fact else { panic!("{failed:?}") };
    assert_eq!(error.code, CallErrorCode::UnknownTool);
    remaining_events(&mut watched).await;
    assert_eq!(harness.ended(&posted.run).await, Some(Termination::NaturalEnd));
    assert_eq!(runs(&harness).await.len(), 1, "the delegation started no child run");
}
