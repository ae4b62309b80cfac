//! Plugins judge the calls of one answer one after the other, in the model's order, each with what was kept before.

use std::sync::Arc;

use engine::agent::Agent;
use engine::deciding::Decide;
use engine::model::ModelAnswer;
use engine::plugin::{Action, HookContext, Phase, Scope, Subject};
use engine::tool::{Approval, ToolDefinition};
use machine::event::{CallErrorCode, Event, Fact};
use machine::policy::{Continuation, Policy};
use serde_json::{Value, json};
use tokio::sync::{Barrier, Notify};

use crate::function_plugin::FunctionPlugin;
use crate::harness::{
    FunctionModel, Harness, Sent, accepted, ask, asking, call, echo, held, remaining_events, to_assistant,
    transfer_definition, until_named,
};

fn spent(context: &HookContext) -> u64 {
    let kept = context.state_of(&"budget".into(), Scope::Run, "spent");
    kept.and_then(Value::as_u64).unwrap_or(0)
}

fn keep(key: &str, value: Value) -> Action {
    Action::SetState { key: key.into(), scope: Scope::Run, value: Arc::new(value) }
}

/// Lets 100 euros a run go out.
fn budget() -> FunctionPlugin {
    FunctionPlugin::new("budget", [Phase::BeforeToolExecute], |context| {
        let Subject::BeforeToolExecute { arguments, .. } = &context.subject else {
            return Err("another phase".into());
        };
        let after = spent(context) + arguments["euros"].as_u64().unwrap_or(0);
        Ok(if after > 100 {
            vec![Action::Block { reason: "the budget is spent".into() }]
        } else {
            vec![keep("spent", json!(after))]
        })
    })
}

fn codes(events: &[Event]) -> Vec<(String, CallErrorCode)> {
    let failed = events.iter().filter_map(|event| match &event.fact {
        Fact::ExecutionFailed { call_id, error, .. } => Some((call_id.to_string(), error.code)),
        _ => None,
    });
    failed.collect()
}

#[tokio::test(start_paused = true)]
async fn a115_c54_each_gate_of_one_answer_sees_state_kept_by_earlier_gates() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let model = asking(&["c", "b", "a"].map(|id| (id, "transfer", json!({"euros": 60}))));
    let tool = sent.tool(transfer_definition().approval(Approval::Never), |_| json!("sent"));
    let agent = Agent::new("assistant", model).tool(tool).plugin(budget());
    let engine = harness.start(agent).await;
    let (_, mut watched) = engine.stream(to_assistant()).await.unwrap();
    let events = remaining_events(&mut watched).await;
    let sent: Vec<String> = sent.requests().iter().map(|request| request.call.to_string()).collect();
    assert_eq!(sent, ["c"]);
    let blocked = ["b", "a"].map(|id| (id.to_owned(), CallErrorCode::BlockedByPlugin));
    assert_eq!(codes(&events), blocked);
}

#[tokio::test(start_paused = true)]
async fn a115_after_tool_hooks_see_state_kept_by_earlier_hooks() {
    let harness = Harness::new();
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let recorded = seen.clone();
    let plugin = FunctionPlugin::new("budget", [Phase::AfterToolExecute], move |context| {
        recorded.lock().unwrap().push(spent(context));
        Ok(vec![keep("spent", json!(spent(context) + 1))])
    });
    let model = asking(&["c", "b", "a"].map(|id| (id, "echo", json!({}))));
    let agent = Agent::new("assistant", model).tool(echo()).plugin(plugin.clone());
    let engine = harness.start(agent).await;
    let (_, mut watched) = engine.stream(to_assistant()).await.unwrap();
    remaining_events(&mut watched).await;
    assert_eq!(*seen.lock().unwrap(), [0, 1, 2]);
    assert_eq!(plugin.asked(), ["c", "b", "a"].map(|id| format!("AfterToolExecute {id}")));
}

#[tokio::test(start_paused = true)]
async fn what_the_gates_of_one_answer_keep_stays_within_the_bound_together() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let plugin = FunctionPlugin::new("budget", [Phase::BeforeToolExecute], |context| {
        let Subject::BeforeToolExecute { call, .. } = &context.subject else {
            return Err("another phase".into());
        };
        Ok(vec![keep(call.as_str(), json!("x".repeat(30 * 1024)))])
    });
    let model = asking(&["c", "b", "a"].map(|id| (id, "transfer", json!({}))));
    let tool = sent.tool(transfer_definition().approval(Approval::Never), |_| json!("sent"));
    let engine = harness.start(Agent::new("assistant", model).tool(tool).plugin(plugin)).await;
    let (_, mut watched) = engine.stream(to_assistant()).await.unwrap();
    let events = remaining_events(&mut watched).await;
    assert_eq!((sent.count(), codes(&events)), (2, vec![("a".into(), CallErrorCode::GateFailed)]));
}

#[tokio::test(start_paused = true)]
async fn judging_one_after_the_other_leaves_the_calls_themselves_beside_each_other() {
    let harness = Harness::new();
    let (all, judged) =
        (Arc::new(Barrier::new(3)), FunctionPlugin::answering(Phase::BeforeToolExecute, vec![]));
    let met = engine::tool::FunctionTool::new(ToolDefinition::new("meet", "Waits").read(), move |_| {
        let all = all.clone();
        async move {
            all.wait().await;
            json!("met")
        }
    });
    let model = asking(&["c", "b", "a"].map(|id| (id, "meet", json!({}))));
    let agent = Agent::new("assistant", model.clone()).tool(met).plugin(judged.clone());
    let engine = harness.start(agent).await;
    let (_, mut watched) = engine.stream(to_assistant()).await.unwrap();
    remaining_events(&mut watched).await;
    assert_eq!(&model.last_read()[2..], ["tool c: met", "tool b: met", "tool a: met"]);
    assert_eq!(judged.asked(), ["c", "b", "a"].map(|id| format!("BeforeToolExecute {id}")));
}

#[tokio::test(start_paused = true)]
async fn c54_calls_pass_the_gate_in_the_models_order_with_and_without_a_plugin() {
    for judged in [false, true] {
        let (harness, sent) = (Harness::new(), Sent::default());
        let ids = ["call_10", "call_2", "b", "a"];
        let model = asking(&ids.map(|id| (id, "transfer", json!({}))));
        let mut agent = Agent::new("assistant", model).tool(sent.transfer());
        if judged {
            agent = agent.plugin(FunctionPlugin::answering(Phase::BeforeToolExecute, vec![]));
        }
        let engine = harness.start(agent).await;
        let (run, _watched) = held(&engine, to_assistant()).await;
        let asked: Vec<String> = harness
            .log(&run)
            .await
            .iter()
            .filter_map(|event| match &event.fact {
                Fact::ApprovalRequested(opened) => Some(opened.call_id.to_string()),
                _ => None,
            })
            .collect();
        assert_eq!(asked, ids, "with a plugin: {judged}");
    }
}

/// Its second answer comes when it is let go on.
fn slow_second_answer(resume: &Arc<Notify>) -> impl engine::model::Model + use<> {
    let resume = resume.clone();
    FunctionModel(move |request: engine::model::ModelRequest, _| {
        let resume = resume.clone();
        async move {
            match request.ordinal {
                1 => Ok(ask(&[("held", "transfer", json!({})), ("free", "echo", json!({}))])),
                2 => {
                    resume.notified().await;
                    Ok(ModelAnswer::text("Still waiting."))
                }
                _ => Ok(ModelAnswer::text("Done.")),
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a115_a_model_call_in_flight_does_not_hide_from_its_hooks_what_a_gate_keeps_meanwhile() {
    let (harness, sent, resume) = (Harness::new(), Sent::default(), Arc::new(Notify::new()));
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let recorded = seen.clone();
    let plugin =
        FunctionPlugin::new("budget", [Phase::BeforeToolExecute, Phase::AfterInference], move |context| {
            recorded.lock().unwrap().push((context.subject.phase(), spent(context)));
            Ok(vec![keep("spent", json!(spent(context) + 1))])
        });
    let policy = Policy { continuation: Continuation::Eager, ..Policy::default() };
    let agent = Agent::new("assistant", slow_second_answer(&resume)).policy(policy);
    let agent = agent.tool(sent.transfer()).tool(echo()).plugin(plugin);
    let engine = harness.start(agent).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    until_named(&mut watched, "step.started").await;
    until_named(&mut watched, "step.started").await;
    accepted(engine.decide(Decide::approve(&posted.run, &call("held"), "ann")).await);
    // The other call had its result before the second model call.
    let done = until_named(&mut watched, "tool.execution_succeeded").await;
    assert!(matches!(&done.fact, Fact::ExecutionSucceeded { call_id, .. } if call_id.as_str() == "held"));
    resume.notify_one();
    remaining_events(&mut watched).await;
    let counted: Vec<u64> = seen.lock().unwrap().iter().map(|(_, spent)| *spent).collect();
    assert_eq!(counted, (0..counted.len() as u64).collect::<Vec<_>>(), "{:?}", seen.lock().unwrap());
    assert!(counted.len() >= 6, "{:?}", seen.lock().unwrap());
}
