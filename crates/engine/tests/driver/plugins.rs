//! Plugins: asked in every phase in order, and what each of their answers does.

use std::sync::Arc;

use engine::agent::Agent;
use engine::deciding::Decide;
use engine::model::ModelMessage;
use engine::plugin::{Action, CallResult, GateRevisit, Phase, Scope, Subject, SuppliedResult};
use engine::tool::{AskKind, OnExpiry, ResumeMode, SuspendRequest};
use machine::event::{CallErrorCode, Event, Fact};
use machine::id::MessageId;
use machine::inbox::Verdict;
use machine::policy::{OnBlock, Policy};
use machine::suspension::SuspensionKind;
use machine::termination::Termination;
use machine::tool::Arguments;
use serde_json::json;

use crate::function_plugin::FunctionPlugin;
use crate::harness::{
    Harness, Scripted, Sent, accepted, asking, call, echo, held, remaining_events, to_assistant,
    transfer_definition, until_named,
};

fn two_calls() -> Scripted {
    asking(&[("a", "echo", json!({"n": 1})), ("b", "echo", json!({"n": 2}))])
}

const ONE_ROUND: [&str; 14] = [
    "RunStart",
    "StepStart",
    "BeforeInference",
    "AfterInference",
    "BeforeToolExecute a",
    "BeforeToolExecute b",
    "AfterToolExecute a",
    "AfterToolExecute b",
    "StepEnd",
    "StepStart",
    "BeforeInference",
    "AfterInference",
    "StepEnd",
    "RunEnd",
];

#[tokio::test(start_paused = true)]
async fn every_phase_is_asked_once_in_its_place_whether_it_answers_or_not() {
    for answers in [false, true] {
        let harness = Harness::new();
        let asked = std::sync::atomic::AtomicU32::new(0);
        let plugin = FunctionPlugin::new("plugin", Phase::ALL, move |_| {
            let value = Arc::new(json!(asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed)));
            let set = Action::SetState { key: "last".into(), scope: Scope::Run, value };
            Ok(if answers { vec![set] } else { Vec::new() })
        });
        let agent = Agent::new("assistant", two_calls()).tool(echo()).plugin(plugin.clone());
        let engine = harness.start(agent).await;
        let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
        remaining_events(&mut watched).await;
        assert_eq!(plugin.asked(), ONE_ROUND);
        assert_eq!(harness.ended(&posted.run).await, Some(Termination::NaturalEnd));
        let recorded = if answers { ONE_ROUND.len() } else { 0 };
        assert_eq!(harness.count(&posted.run, "phase.answered").await, recorded);
    }
}

#[tokio::test(start_paused = true)]
async fn plugins_are_asked_in_the_order_in_which_they_were_registered() {
    let (harness, model) = (Harness::new(), Scripted::new([Ok(engine::model::ModelAnswer::text("Hi."))]));
    let says = |name: &'static str| {
        let text = Action::AddInstruction { text: name.into() };
        FunctionPlugin::new(name, [Phase::StepStart], move |_| Ok(vec![text.clone()]))
    };
    let agent = Agent::new("assistant", model.clone()).plugin(says("zeta")).plugin(says("alpha"));
    let engine = harness.start(agent.instructions("Be kind.")).await;
    let (_, mut watched) = engine.stream(to_assistant()).await.unwrap();
    remaining_events(&mut watched).await;
    assert_eq!(&*model.requests()[0].instructions, "Be kind.\nzeta\nalpha");
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_for_before_the_model_call_reaches_the_model_from_either_phase() {
    for phase in [Phase::StepStart, Phase::BeforeInference] {
        let (harness, model) = (Harness::new(), Scripted::new([Ok(engine::model::ModelAnswer::text("Hi."))]));
        let plugin = FunctionPlugin::answering(
            phase,
            vec![
                Action::AddInstruction { text: "Be brief.".into() },
                Action::HideTool { tool: "transfer".into() },
                Action::SetParam { name: "temperature".into(), value: Arc::new(json!(0)) },
                Action::ReplaceMessage { message: "m1".into(), text: "[redacted]".into() },
            ],
        );
        let agent = Agent::new("assistant", model.clone());
        let agent = agent.tool(echo()).tool(Sent::default().transfer()).plugin(plugin);
        let engine = harness.start(agent).await;
        let message = engine::posting::Message { message_id: Some("m1".into()), ..to_assistant() };
        let (_, mut watched) = engine.stream(message).await.unwrap();
        remaining_events(&mut watched).await;
        let request = model.requests().remove(0);
        assert_eq!(&*request.instructions, "Be brief.");
        assert_eq!(request.tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["echo"]);
        assert_eq!(request.params, [("temperature".to_owned(), Arc::new(json!(0)))]);
        assert_eq!(model.last_read(), ["user: [redacted]"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_was_hidden_and_is_called_all_the_same_is_out_of_scope() {
    let (harness, model, sent) = (Harness::new(), asking(&[("a", "look", json!({}))]), Sent::default());
    let plugin =
        FunctionPlugin::answering(Phase::BeforeInference, vec![Action::HideTool { tool: "look".into() }]);
    let tool = sent.tool(engine::tool::ToolDefinition::new("look", "Reads").read(), |_| json!("seen"));
    let engine = harness.start(Agent::new("assistant", model).tool(tool).plugin(plugin)).await;
    let (_, mut watched) = engine.stream(to_assistant()).await.unwrap();
    assert_eq!(
        failed_with(&until_named(&mut watched, "tool.execution_failed").await),
        CallErrorCode::OutOfScope
    );
    remaining_events(&mut watched).await;
    assert_eq!(sent.count(), 0);
}

fn failed_with(event: &Event) -> CallErrorCode {
    match &event.fact {
        Fact::ExecutionFailed { error, .. } => error.code,
        _ => panic!("{event:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn skipped_inference_and_an_end_that_a_hook_asks_for_end_the_run() {
    let cases = [
        (Phase::RunStart, Action::End, 0),
        (Phase::StepStart, Action::SkipInference, 0),
        (Phase::BeforeInference, Action::SkipInference, 0),
        (Phase::AfterInference, Action::End, 1),
        (Phase::StepEnd, Action::End, 1),
    ];
    for (phase, action, model_calls) in cases {
        let (harness, model) = (Harness::new(), two_calls());
        let plugin = FunctionPlugin::answering(phase, vec![action]);
        let engine = harness.start(Agent::new("assistant", model.clone()).tool(echo()).plugin(plugin)).await;
        let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
        remaining_events(&mut watched).await;
        let ended = harness.ended(&posted.run).await;
        assert_eq!(
            (ended, model.requests().len()),
            (Some(Termination::BehaviorRequested), model_calls),
            "{phase}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn arguments_that_a_hook_sets_are_what_is_gated_shown_and_sent_and_dropped_calls_never_exist() {
    let model = asking(&[("a", "transfer", json!({"to": "bob"})), ("b", "transfer", json!({"to": "eve"}))]);
    let (harness, sent) = (Harness::new(), Sent::default());
    let value = Arc::new(json!({"to": "carl"}));
    let digest = engine::arguments::digest(&value).unwrap();
    let arguments = Arguments::Valid { value: value.clone(), digest };
    let plugin = FunctionPlugin::new("plugin", [Phase::AfterInference], move |context| {
        Ok(if context.step == 1 {
            vec![
                Action::SetArguments { index: 0, arguments: arguments.clone() },
                Action::DropCall { index: 1 },
            ]
        } else {
            Vec::new()
        })
    });
    let engine =
        harness.start(Agent::new("assistant", model.clone()).tool(sent.transfer()).plugin(plugin)).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    let shown = harness.pending().await;
    assert_eq!(
        (shown.len(), shown[0].opened.as_ref().unwrap().arguments.as_ref().unwrap().digest()),
        (1, digest)
    );
    accepted(engine.decide(Decide::approve(&run, &call("a"), "ann")).await);
    remaining_events(&mut watched).await;
    assert_eq!(sent.arguments(), [(*value).clone()]);
    assert_eq!(model.last_read()[1], "assistant: [\"a\"]");
}

#[tokio::test(start_paused = true)]
async fn arguments_of_a_hook_that_do_not_fit_the_schema_are_bad_arguments() {
    let (harness, model, sent) =
        (Harness::new(), asking(&[("a", "transfer", json!({"to": "bob"}))]), Sent::default());
    let value = Arc::new(json!({}));
    let arguments = Arguments::Valid { digest: engine::arguments::digest(&value).unwrap(), value };
    let plugin = FunctionPlugin::new("plugin", [Phase::AfterInference], move |context| {
        let set = Action::SetArguments { index: 0, arguments: arguments.clone() };
        Ok(if context.step == 1 { vec![set] } else { Vec::new() })
    });
    let schema = json!({"type": "object", "required": ["to"]});
    let tool = sent.tool(transfer_definition().parameters(schema), |_| json!("sent"));
    let engine = harness.start(Agent::new("assistant", model).tool(tool).plugin(plugin)).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    let failed = until_named(&mut watched, "tool.execution_failed").await;
    assert_eq!(failed_with(&failed), CallErrorCode::BadArguments);
    remaining_events(&mut watched).await;
    assert_eq!((sent.count(), harness.count(&posted.run, "tool.approval_requested").await), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_blocked_call_fails_or_ends_the_run_as_the_policy_says_and_is_never_sent() {
    for on_block in [OnBlock::FailCall, OnBlock::EndRun] {
        let (harness, model, sent) =
            (Harness::new(), asking(&[("a", "transfer", json!({}))]), Sent::default());
        let block = Action::Block { reason: "not on sundays".into() };
        let plugin = FunctionPlugin::answering(Phase::BeforeToolExecute, vec![block]);
        let policy = Policy { on_block, ..Policy::default() };
        let agent = Agent::new("assistant", model).tool(sent.transfer()).plugin(plugin).policy(policy);
        let engine = harness.start(agent).await;
        let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
        let failed = until_named(&mut watched, "tool.execution_failed").await;
        assert_eq!(failed_with(&failed), CallErrorCode::BlockedByPlugin);
        remaining_events(&mut watched).await;
        let wanted = match on_block {
            OnBlock::FailCall => Termination::NaturalEnd,
            OnBlock::EndRun => Termination::blocked("blocked by plugin: not on sundays"),
        };
        assert_eq!((sent.count(), harness.ended(&posted.run).await), (0, Some(wanted)));
    }
}

fn request(kind: AskKind, mode: ResumeMode) -> SuspendRequest {
    SuspendRequest {
        kind,
        question: Some("really?".into()),
        schema: None,
        mode,
        resume_state: None,
        expires_in_ms: None,
        on_expiry: OnExpiry::Deny,
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_a_hook_suspends_runs_after_its_approval_and_is_not_asked_about_again() {
    let (harness, model, sent) = (Harness::new(), asking(&[("a", "look", json!({}))]), Sent::default());
    let suspend = Action::Suspend(request(AskKind::Approval, ResumeMode::ReplayToolCall));
    let plugin = FunctionPlugin::answering(Phase::BeforeToolExecute, vec![suspend]);
    let tool = sent.tool(engine::tool::ToolDefinition::new("look", "Reads").read(), |_| json!("seen"));
    let engine = harness.start(Agent::new("assistant", model).tool(tool).plugin(plugin.clone())).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    assert_eq!(harness.pending().await[0].kind, SuspensionKind::Approval);
    assert_eq!(engine.decide(Decide::approve(&run, &call("a"), "ann")).await.unwrap(), Verdict::Accepted);
    remaining_events(&mut watched).await;
    // The call passes the whole gate again.
    assert_eq!((plugin.asked().len(), sent.count()), (2, 1));
    assert_eq!(harness.count(&run, "tool.approval_requested").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_a_hook_supplies_takes_the_place_of_the_tool() {
    let cases = [
        (
            SuppliedResult::Success { value: Arc::new(json!("from cache")), warning: None },
            "tool a: from cache",
        ),
        (SuppliedResult::Error { message: "not today".into() }, "tool a: Error: not today"),
    ];
    for (result, read) in cases {
        let (harness, model, sent) =
            (Harness::new(), asking(&[("a", "transfer", json!({}))]), Sent::default());
        let plugin = FunctionPlugin::answering(Phase::BeforeToolExecute, vec![Action::SetResult(result)]);
        let agent = Agent::new("assistant", model.clone()).tool(sent.transfer()).plugin(plugin);
        let engine = harness.start(agent).await;
        let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
        remaining_events(&mut watched).await;
        assert_eq!((sent.count(), &*model.last_read()[2]), (0, read));
        assert_eq!(harness.count(&posted.run, "tool.approval_requested").await, 0);
    }
}

/// Adds a note with each result that it sees.
fn noting() -> FunctionPlugin {
    FunctionPlugin::new("plugin", [Phase::AfterToolExecute], |context| {
        let Subject::AfterToolExecute { tool, arguments, result, .. } = &context.subject else {
            return Err("another phase".into());
        };
        let said = match result {
            Some(CallResult::Succeeded { value, warning }) => format!("{value} {warning:?}"),
            Some(CallResult::Failed { code, message, .. }) => format!("{code:?}: {message}"),
            Some(CallResult::Denied { by, reason }) => format!("no, says {by}: {reason:?}"),
            Some(CallResult::Cancelled { reason, .. }) => format!("{reason:?}"),
            None => "held".into(),
        };
        Ok(vec![Action::AddNote { text: format!("{tool} {arguments}: {said}") }])
    })
}

#[tokio::test(start_paused = true)]
async fn c16_b42_the_hooks_after_a_result_get_the_arguments_and_the_outcome_of_the_call() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let model = asking(&[
        ("a", "echo", json!({"n": 1})),
        ("b", "fails", json!({"n": 2})),
        ("c", "transfer", json!({"n": 3})),
        ("d", "transfer", json!({"n": 4})),
        ("e", "supplied", json!({"n": 5})),
    ]);
    let supplies = FunctionPlugin::new("supplies", [Phase::BeforeToolExecute], |context| {
        let Subject::BeforeToolExecute { tool, .. } = &context.subject else {
            return Err("another phase".into());
        };
        let (value, warning) = (Arc::new(json!("from a cache")), Some("stale".into()));
        let supplied = Action::SetResult(SuppliedResult::Success { value, warning });
        Ok(if tool.as_str() == "supplied" { vec![supplied] } else { Vec::new() })
    });
    let fails = sent.tool(engine::tool::ToolDefinition::new("fails", "Fails").read(), |_| {
        engine::tool::Outcome::Answered(engine::tool::ToolAnswer::Error { message: "no paper".into() })
    });
    let supplied =
        sent.tool(engine::tool::ToolDefinition::new("supplied", "Never runs").read(), |_| json!(0));
    let agent = Agent::new("assistant", model.clone()).tool(echo()).tool(fails).tool(supplied);
    let agent = agent.tool(sent.transfer()).plugin(supplies).plugin(noting());
    let engine = harness.start(agent).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    accepted(engine.decide(Decide::approve(&run, &call("c"), "ann").with_arguments(json!({"n": 30}))).await);
    accepted(engine.decide(Decide::reject(&run, &call("d"), "ann", "too much")).await);
    remaining_events(&mut watched).await;
    let read = model.last_read();
    let notes: Vec<&str> = read.iter().filter_map(|said| said.strip_prefix("note ")).collect();
    let wanted = [
        "a: echo {\"n\":1}: {\"n\":1} None",
        "b: fails {\"n\":2}: ToolError: no paper",
        "c: transfer {\"n\":30}: \"sent\" None",
        "d: transfer {\"n\":4}: no, says ann: Some(\"too much\")",
        "e: supplied {\"n\":5}: \"from a cache\" Some(\"stale\")",
    ];
    assert_eq!(notes, wanted);
}

#[tokio::test(start_paused = true)]
async fn a85_a_hook_at_the_gate_sees_that_a_call_was_approved_and_is_revisited() {
    let (harness, sent) = (Harness::new(), Sent::default());
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let recorded = seen.clone();
    let plugin = FunctionPlugin::new("plugin", [Phase::BeforeToolExecute], move |context| {
        let Subject::BeforeToolExecute { revisit: again, .. } = &context.subject else {
            return Err("another phase".into());
        };
        recorded.lock().unwrap().push(again.clone());
        Ok(Vec::new())
    });
    let model = asking(&[("a", "transfer", json!({}))]);
    let engine = harness.start(Agent::new("assistant", model).tool(sent.transfer()).plugin(plugin)).await;
    let (run, mut watched) = held(&engine, to_assistant()).await;
    let approval = harness.pending().await.remove(0).opened.as_ref().unwrap().suspension_id.clone();
    accepted(engine.decide(Decide::approve(&run, &call("a"), "ann")).await);
    remaining_events(&mut watched).await;
    let again = GateRevisit { approval: Some(approval), attempts: 0 };
    assert_eq!(*seen.lock().unwrap(), [None, Some(again)]);
}

#[tokio::test(start_paused = true)]
async fn c13_results_and_notes_are_replaced_in_the_request_and_stay_in_the_log() {
    let (harness, model) = (Harness::new(), asking(&[("a", "echo", json!({"iban": "DE1"}))]));
    let redacting = FunctionPlugin::new("redacting", [Phase::BeforeInference], |context| {
        let Subject::BeforeInference { messages } = &context.subject else {
            return Err("another phase".into());
        };
        let hidden = messages.iter().filter_map(|message| match message {
            ModelMessage::Tool { call, .. } => Some(MessageId::from(format!("msg_{call}"))),
            ModelMessage::Note { id, .. } => Some(id.clone()),
            _ => None,
        });
        let text = String::from("[redacted]");
        Ok(hidden.map(|message| Action::ReplaceMessage { message, text: text.clone() }).collect())
    });
    let agent = Agent::new("assistant", model.clone()).tool(echo()).plugin(noting()).plugin(redacting);
    let engine = harness.start(agent).await;
    let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
    remaining_events(&mut watched).await;
    assert_eq!(&model.last_read()[2..], ["tool a: [redacted]", "note a: [redacted]"]);
    let log = serde_json::to_string(&harness.log(&posted.run).await).unwrap();
    assert!(log.contains("DE1"), "{log}");
}

#[tokio::test(start_paused = true)]
async fn c13_a_message_that_is_not_there_cannot_be_replaced_and_the_log_says_so() {
    for phase in [Phase::StepStart, Phase::BeforeInference] {
        let (harness, model) = (Harness::new(), Scripted::new([Ok(engine::model::ModelAnswer::text("Hi."))]));
        let message = "msg_elsewhere".into();
        let plugin =
            FunctionPlugin::answering(phase, vec![Action::ReplaceMessage { message, text: "x".into() }]);
        let engine = harness.start(Agent::new("assistant", model.clone()).plugin(plugin)).await;
        let (posted, mut watched) = engine.stream(to_assistant()).await.unwrap();
        let events = remaining_events(&mut watched).await;
        let why = "replace_message names msg_elsewhere, and the thread has no such message";
        let failed = events.iter().find_map(|event| match &event.fact {
            Fact::PhaseAnswered { failed, .. } => failed.clone(),
            _ => None,
        });
        assert!(failed.as_ref().is_some_and(|failed| failed.contains(why)), "{phase}: {failed:?}");
        let ended = harness.ended(&posted.run).await;
        assert!(matches!(&ended, Some(Termination::Error(error)) if error.text.contains(why)), "{ended:?}");
        assert!(model.requests().is_empty(), "{phase}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_note_after_a_result_is_read_by_the_model() {
    let (harness, model) = (Harness::new(), asking(&[("a", "echo", json!({"n": 1}))]));
    let plugin = FunctionPlugin::new("plugin", [Phase::AfterToolExecute], |context| {
        let Subject::AfterToolExecute { tool, status, .. } = &context.subject else {
            return Err("another phase".into());
        };
        Ok(vec![Action::AddNote { text: format!("{tool} is {status:?}") }])
    });
    let engine = harness.start(Agent::new("assistant", model.clone()).tool(echo()).plugin(plugin)).await;
    let (_, mut watched) = engine.stream(to_assistant()).await.unwrap();
    remaining_events(&mut watched).await;
    assert_eq!(&model.last_read()[2..], ["tool a: {\"n\":1}", "note a: echo is Succeeded"]);
}
