//! Another process takes over: what was lost is tried again or asked about, and what was said stays said.

use std::sync::{Arc, Mutex};

use engine::agent::Agent;
use engine::deciding::Decide;
use engine::model::{ModelAnswer, ModelRequest};
use engine::store::Tenant;
use engine::tool::{Approval, FunctionTool, Tool, ToolDefinition, ToolRequest};
use machine::event::Fact;
use machine::inbox::{Refusal, Verdict};
use machine::suspension::SuspensionKind;
use machine::termination::Termination;
use serde_json::json;
use tokio::sync::Notify;

use crate::harness::{
    FunctionModel, Harness, Sent, accepted, ask, asking, call, echo, remaining_events, to_assistant,
    until_named,
};

/// A tool whose first attempt never comes back.
fn hanging_once(definition: ToolDefinition, sent: &Sent, begun: &Arc<Notify>) -> impl Tool + use<> {
    let (sent, begun) = (sent.clone(), begun.clone());
    FunctionTool::new(definition, move |request: ToolRequest| {
        let (first, begun) = (sent.count() == 0, begun.clone());
        sent.keep(request);
        async move {
            begun.notify_one();
            if first {
                std::future::pending::<()>().await;
            }
            json!("there")
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_read_that_went_with_its_worker_is_tried_again_under_the_same_key() {
    let (harness, sent, begun) = (Harness::new(), Sent::default(), Arc::new(Notify::new()));
    let model = asking(&[("a", "look", json!({}))]);
    let look = || ToolDefinition::new("look", "Reads").read();
    let agent = || Agent::new("assistant", model.clone()).tool(hanging_once(look(), &sent, &begun));
    let engine = harness.start(agent()).await;
    let posted = engine.post(to_assistant()).await.unwrap();
    begun.notified().await;
    engine.abort();
    let harness = harness.reopen();
    let engine = harness.start(agent()).await;
    remaining_events(&mut engine.subscribe(&Tenant::default(), &posted.run, 0)).await;
    let requests = sent.requests();
    let attempts: Vec<u32> = requests.iter().map(|request| request.attempt).collect();
    assert_eq!(attempts, [1, 2]);
    assert_eq!(requests[0].idempotency_key, requests[1].idempotency_key);
    assert_eq!(model.last_read()[2], "tool a: there");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_went_with_its_worker_is_in_doubt_and_not_repeated() {
    let (harness, sent, begun) = (Harness::new(), Sent::default(), Arc::new(Notify::new()));
    let model = asking(&[("a", "post", json!({}))]);
    let post = || ToolDefinition::new("post", "Writes").approval(Approval::Never);
    let agent = || Agent::new("assistant", model.clone()).tool(hanging_once(post(), &sent, &begun));
    let engine = harness.start(agent()).await;
    let posted = engine.post(to_assistant()).await.unwrap();
    begun.notified().await;
    engine.abort();
    let harness = harness.reopen();
    let engine = harness.start(agent()).await;
    let mut watched = engine.subscribe(&Tenant::default(), &posted.run, 0);
    until_named(&mut watched, "run.waiting").await;
    let shown = harness.pending().await.remove(0);
    assert_eq!((shown.kind, sent.count()), (SuspensionKind::InDoubt, 1));
    // A decision from before the crash that arrives again answers nothing, whatever it was meant to say.
    let resent = [
        Decide::approve(&posted.run, &call("a"), "ann"),
        Decide::result(&posted.run, &call("a"), "ann", json!(true)),
        Decide::reject(&posted.run, &call("a"), "ann", "no"),
    ];
    for decide in resent {
        assert_eq!(engine.decide(decide).await.unwrap(), Verdict::Refused(Refusal::SuspensionNotNamed));
    }
    // A person has looked: it was not written, so it is tried once more.
    accepted(engine.decide(shown.approve("ann")).await);
    remaining_events(&mut watched).await;
    assert_eq!((sent.count(), &*model.last_read()[2]), (2, "tool a: there"));
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_is_started_by_the_next_process() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let model = asking(&[("a", "look", json!({}))]);
    let look = || sent.tool(ToolDefinition::new("look", "Reads").read(), |_| json!("seen"));
    let agent = || Agent::new("assistant", model.clone()).tool(look());
    let settings = engine::Settings { running_runs_max: 0, ..engine::Settings::default() };
    let engine = harness.engine().settings(settings).agent(agent()).start().await.unwrap();
    let posted = engine.post(to_assistant()).await.unwrap();
    engine.abort();
    let harness = harness.reopen();
    let engine = harness.start(agent()).await;
    remaining_events(&mut engine.subscribe(&Tenant::default(), &posted.run, 0)).await;
    assert_eq!((sent.count(), harness.ended(&posted.run).await), (1, Some(Termination::NaturalEnd)));
}

#[tokio::test(start_paused = true)]
async fn a_run_stays_pinned_to_the_instructions_and_tools_that_it_began_with() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let model = asking(&[("a", "transfer", json!({}))]);
    let agent = |text: &str| Agent::new("assistant", model.clone()).instructions(text).tool(sent.transfer());
    let engine = harness.start(agent("Be kind.")).await;
    let (run, _) = crate::harness::held(&engine, to_assistant()).await;
    crate::harness::wait_until_released(&engine).await;
    engine.abort();
    let harness = harness.reopen();
    let engine = harness.start(agent("Be rude.").tool(echo())).await;
    accepted(engine.decide(Decide::approve(&run, &call("a"), "ann")).await);
    remaining_events(&mut engine.subscribe(&Tenant::default(), &run, 0)).await;
    let request = model.requests().pop().unwrap();
    let tools: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!((&*request.instructions, tools), ("Be kind.", vec!["transfer"]));
}

#[tokio::test(start_paused = true)]
async fn a_run_continues_with_its_model_though_no_agent_uses_it_any_more() {
    for is_there in [true, false] {
        let (harness, sent) = (Harness::new(), Sent::default());
        let (main, other) = (asking(&[("a", "transfer", json!({}))]), asking(&[]));
        let mut agent = Agent::new("assistant", main.clone()).tool(sent.transfer());
        "main".clone_into(&mut agent.model_name);
        let engine = harness.start(agent).await;
        let (run, _) = crate::harness::held(&engine, to_assistant()).await;
        crate::harness::wait_until_released(&engine).await;
        engine.abort();
        let harness = harness.reopen();
        let mut agent = Agent::new("assistant", other.clone()).tool(sent.transfer());
        "other".clone_into(&mut agent.model_name);
        if is_there {
            agent.other_models.insert("main".into(), Arc::new(main.clone()));
        }
        let engine = harness.start(agent).await;
        accepted(engine.decide(Decide::approve(&run, &call("a"), "ann")).await);
        remaining_events(&mut engine.subscribe(&Tenant::default(), &run, 0)).await;
        assert_eq!(harness.ended(&run).await == Some(Termination::NaturalEnd), is_there);
        assert_eq!((main.requests().len() == 2, other.requests().len()), (is_there, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_call_that_went_with_its_worker_is_made_again_and_announced() {
    let (harness, begun) = (Harness::new(), Arc::new(Notify::new()));
    let agent = || {
        let begun = begun.clone();
        Agent::new(
            "assistant",
            FunctionModel(move |request: ModelRequest, _| {
                let begun = begun.clone();
                async move {
                    begun.notify_one();
                    if request.attempt == 1 {
                        std::future::pending::<()>().await;
                    }
                    Ok(ModelAnswer::text("at last"))
                }
            }),
        )
    };
    let engine = harness.start(agent()).await;
    let posted = engine.post(to_assistant()).await.unwrap();
    begun.notified().await;
    engine.abort();
    let harness = harness.reopen();
    let engine = harness.start(agent()).await;
    let events = remaining_events(&mut engine.subscribe(&Tenant::default(), &posted.run, 0)).await;
    let lost = events
        .iter()
        .any(|event| matches!(event.fact, Fact::RunRecovered { lost_model_attempt: Some(1), .. }));
    assert!(lost);
    assert_eq!(harness.count(&posted.run, "model.retrying").await, 1);
    assert_eq!(harness.ended(&posted.run).await, Some(Termination::NaturalEnd));
}

#[tokio::test(start_paused = true)]
async fn a_model_call_that_went_with_a_lost_worker_does_not_count() {
    let (harness, asked) = (Harness::new(), Arc::new(Mutex::new(Vec::new())));
    let (begun, seen) = (Arc::new(Notify::new()), asked.clone());
    let agent = || {
        let (begun, seen) = (begun.clone(), seen.clone());
        Agent::new(
            "assistant",
            FunctionModel(move |request: ModelRequest, _| {
                let (begun, place) = (begun.clone(), (request.step, request.attempt, request.ordinal));
                seen.lock().unwrap().push(place);
                async move {
                    begun.notify_one();
                    match place {
                        (_, 1, _) => std::future::pending().await,
                        (1, ..) => Ok(ask(&[("a", "echo", json!({}))])),
                        _ => Ok(ModelAnswer::text("Done.")),
                    }
                }
            }),
        )
        .tool(echo())
    };
    let mut harness = harness;
    let engine = harness.start(agent()).await;
    let posted = engine.post(to_assistant()).await.unwrap();
    begun.notified().await;
    engine.abort();
    harness = harness.reopen();
    let engine = harness.start(agent()).await;
    begun.notified().await;
    // Its second attempt answers; the first attempt of the next step is lost too.
    begun.notified().await;
    engine.abort();
    harness = harness.reopen();
    let engine = harness.start(agent()).await;
    remaining_events(&mut engine.subscribe(&Tenant::default(), &posted.run, 0)).await;
    assert_eq!(*asked.lock().unwrap(), [(1, 1, 1), (1, 2, 1), (2, 1, 2), (2, 2, 2)]);
}
