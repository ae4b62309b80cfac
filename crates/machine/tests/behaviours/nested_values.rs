//! A value that is nested too deeply could be stored and never read back: it is refused wherever it comes in.

use std::sync::Arc;

use machine::decision::{DecisionAction, Payload, Resume};
use machine::event::{CallErrorCode, Fact, Usage};
use machine::id::CallId;
use machine::inbox::Item;
use machine::input::{ChildEnd, ChildEnded, Outcome, ToolAnswer};
use machine::json_value::{self, VALUE_DEPTH_MAX, ValueFault};
use machine::phase::{Action, Phase, Scope, SuppliedResult, SuspendRequest};
use machine::status::CallStatus;
use machine::suspension::{Held, ResumeMode};
use machine::tool::Arguments;
use machine::{Event, Input, Rejection};
use serde_json::{Value, json};

use crate::hooks::{hooked, one};
use crate::props::termination;
use crate::story::{Story, question, resume, resume_with, success, unknown, valid};

/// Arrays in arrays, `levels` deep with the number inside.
fn nested(levels: usize) -> Value {
    (1..levels).fold(json!(7), |inner, _| Value::Array(vec![inner]))
}

fn too_deep(value: &Value) -> bool {
    json_value::fault(value) == Some(ValueFault::TooDeep)
}

fn deepest() -> Value {
    nested(VALUE_DEPTH_MAX)
}

fn beyond() -> Value {
    nested(VALUE_DEPTH_MAX + 1)
}

fn running(tool: &str) -> Story {
    let mut story = Story::begin();
    story.asks_for(&[("A", tool)]);
    story
}

fn failure(events: &[Event]) -> Option<(CallErrorCode, &str)> {
    events.iter().find_map(|event| match &event.fact {
        Fact::ExecutionFailed { error, .. } => Some((error.code, error.message.as_str())),
        _ => None,
    })
}

#[test]
fn the_limit_counts_the_levels_of_arrays_and_objects() {
    assert!(!too_deep(&json!(1)) && !too_deep(&deepest()) && too_deep(&beyond()));
    let objects = |levels| (1..levels).fold(json!(7), |inner, _| json!({"in": inner, "beside": []}));
    assert!(!too_deep(&objects(VALUE_DEPTH_MAX)) && too_deep(&objects(VALUE_DEPTH_MAX + 1)));
}

#[test]
fn a_hostile_depth_is_found_out_without_recursion() {
    let mut value = nested(200_000);
    assert!(too_deep(&value));
    // Dropping such a value recurses, so that it is taken apart level by level.
    while let Value::Array(mut items) = value {
        value = items.pop().unwrap();
    }
}

#[test]
fn arguments_at_the_limit_run_and_deeper_ones_are_bad_arguments() {
    let asked = |value: Value| {
        let mut story = Story::begin();
        let answered = story.answer("", &[("A", "echo", json!({"deep": value}))]);
        story.model_answers(answered);
        story.pass_gates();
        story
    };
    assert_eq!(asked(nested(VALUE_DEPTH_MAX - 1)).status("A"), CallStatus::Running);
    let story = asked(deepest());
    assert!(matches!(
        story.arguments.get(&CallId::from("A")),
        Some(Arguments::Invalid { why, .. }) if why == "the arguments cannot be stored: nested too deeply"
    ));
    assert_eq!(failure(&story.log).map(|(code, _)| code), Some(CallErrorCode::BadArguments));
}

#[test]
fn a_result_at_the_limit_is_the_result_and_a_deeper_one_fails_the_call() {
    let mut story = running("echo");
    story.returns("A", success(deepest()));
    assert_eq!(story.tool_text("A"), deepest().to_string());
    let mut story = running("echo");
    let events = story.returns("A", success(beyond()));
    assert_eq!(
        failure(&events),
        Some((
            CallErrorCode::StateFull,
            "the call succeeded, but its result cannot be stored: nested too deeply"
        ))
    );
}

#[test]
fn a_question_whose_schema_or_state_is_too_deep_fails_the_call() {
    let deep = Some(Arc::new(beyond()));
    for asks in [
        SuspendRequest { schema: deep.clone(), ..question(ResumeMode::ReplayToolCall) },
        SuspendRequest { resume_state: deep, ..question(ResumeMode::ReplayToolCall) },
    ] {
        let mut story = running("echo");
        let events = story.returns("A", Outcome::Answered(ToolAnswer::Pending(asks)));
        let why = "the question's schema or state cannot be stored: nested too deeply";
        assert_eq!(failure(&events), Some((CallErrorCode::StateFull, why)));
    }
}

#[test]
fn a_decision_with_a_result_or_arguments_too_deep_is_invalid_and_changes_nothing() {
    let arguments = Some(valid(json!({"deep": deepest()})));
    let edit = DecisionAction::Resume(Resume { arguments: arguments.clone(), ..Resume::default() });
    let payload = Payload::Result(Arc::new(json!({"deep": deepest()})));
    let pass = DecisionAction::Resume(Resume { payload, payload_arguments: arguments, ..Resume::default() });
    let held = running("transfer");
    let mut in_doubt = running("post");
    in_doubt.returns("A", unknown());
    let mut asking = running("echo");
    asking.returns("A", crate::story::pending(ResumeMode::PassDecisionToTool));
    for (mut story, action) in [
        (held, edit),
        (running("pick_file"), resume_with(beyond())),
        (in_doubt, resume_with(beyond())),
        (asking, pass),
    ] {
        let decision = story.decision("A", action);
        let why = "the result or the arguments cannot be stored: nested too deeply".into();
        let invalid = Rejection::Invalid { call: CallId::from("A"), why };
        assert_eq!(story.refused(Input::Decide(decision)), invalid);
        assert_eq!(story.status("A"), CallStatus::Suspended);
    }
}

#[test]
fn a_hook_of_the_gate_that_answers_with_a_value_too_deep_fails_the_gate() {
    let deep = Arc::new(beyond());
    let value = || deep.clone();
    let state = Action::SetState { key: "k".into(), scope: Scope::Run, value: value() };
    let supplied = Action::SetResult(SuppliedResult::Success { value: value(), warning: None });
    let asks = SuspendRequest { schema: Some(value()), ..question(ResumeMode::ReplayToolCall) };
    let pending = Action::SetResult(SuppliedResult::Pending(asks.clone()));
    for action in [state, supplied, Action::Suspend(asks), pending] {
        let name = action.name();
        let mut story = Story::begin();
        story.gate_hooks.insert("A".into(), one("guard", action));
        let events = story.asks_for(&[("A", "echo")]);
        let why = format!("guard answered {name} with a value that cannot be stored: nested too deeply");
        assert_eq!(failure(&events), Some((CallErrorCode::GateFailed, why.as_str())));
    }
}

#[test]
fn a_hook_of_another_phase_that_answers_with_a_value_too_deep_is_at_fault_as_if_it_had_failed() {
    let deep = || Arc::new(beyond());
    let state = || Action::SetState { key: "k".into(), scope: Scope::Thread, value: deep() };
    let param = Action::SetParam { name: "p".into(), value: deep() };
    for (phase, action) in
        [(Phase::RunStart, state()), (Phase::StepStart, state()), (Phase::BeforeInference, param)]
    {
        let mut story = Story::begin_with(hooked(&[phase]));
        let name = action.name();
        story.ok(Input::PhaseAnswered { phase, hooks: one("guard", action) });
        let end = format!("{:?}", termination(&story));
        assert!(
            end.contains(&format!(
                "guard answered {name} with a value that cannot be stored: nested too deeply"
            )),
            "{end}"
        );
    }
    // Where a failing hook does not stop the run, it continues without what the hook said.
    let mut story = Story::begin_with(hooked(&[Phase::StepEnd]));
    story.says("done");
    story.ok(Input::PhaseAnswered { phase: Phase::StepEnd, hooks: one("guard", state()) });
    assert!(!story.names().contains(&"state.changed".into()));
    assert_eq!(story.names().last().unwrap(), "run.ended");
}

#[test]
fn arguments_too_deep_that_a_hook_sets_are_a_fault_of_the_hook() {
    let mut story = Story::begin_with(hooked(&[Phase::AfterInference]));
    let mut answered = story.answer("", &[("A", "echo", json!({}))]);
    answered.hooks = one("guard", Action::SetArguments { index: 0, arguments: valid(beyond()) });
    story.ok(Input::ModelAnswered(answered));
    let end = format!("{:?}", termination(&story));
    assert!(
        end.contains("guard answered set_arguments with a value that cannot be stored: nested too deeply"),
        "{end}"
    );
}

#[test]
fn a_late_result_too_deep_does_not_end_the_doubt_about_another_attempt() {
    let mut story = running("post");
    story.returns("A", unknown());
    story.decides("A", resume());
    story.returns("A", success(beyond()));
    assert_eq!(story.call("A").doubted, [1]);
    assert_eq!(story.status("A"), CallStatus::Suspended);
}

#[test]
fn a_childs_answer_too_deep_fails_the_call() {
    let mut story = running("researcher");
    let Held::ChildRun { run, .. } = story.call("A").suspension().unwrap().held.clone() else {
        panic!("no child works on it")
    };
    let end = ChildEnd::Completed { answer: Arc::new(beyond()) };
    let ended = ChildEnded { call: CallId::from("A"), run, end, usage: Usage::default(), descendants: 0 };
    let events = story.ok(Input::ChildEnded(ended));
    assert_eq!(
        failure(&events),
        Some((
            CallErrorCode::StateFull,
            "the call succeeded, but its result cannot be stored: nested too deeply"
        ))
    );
}

#[test]
fn a_decision_that_could_not_be_read_back_is_not_put_into_the_inbox() {
    let story = running("transfer");
    let why = "the result or the arguments cannot be stored: nested too deeply";
    let early = |decision| Item::Early { digest: story.call("A").arguments, decision };
    let decision = story.decision("A", resume_with(beyond()));
    assert_eq!(Item::Decision(decision.clone()).storable(), Err(why.into()));
    assert_eq!(early(decision).storable(), Err(why.into()));
    for action in [resume_with(deepest()), DecisionAction::Cancel { reason: None, then: None }] {
        let item = Item::Decision(story.decision("A", action));
        assert_eq!(item.clone().storable(), Ok(item));
    }
}

#[test]
fn of_a_late_answer_that_could_not_be_read_back_an_error_is_kept() {
    let late = |outcome| Item::LateAnswer { step: 1, call: CallId::from("A"), attempt: 1, outcome };
    let answered = |answer| late(Outcome::Answered(answer));
    let error = |message: &str| answered(ToolAnswer::Error { message: message.into() });
    let lost = "the call succeeded, but its result cannot be stored: nested too deeply";
    assert_eq!(late(success(beyond())).storable(), Ok(error(lost)));
    let asks = |state| SuspendRequest {
        resume_state: Some(Arc::new(state)),
        ..question(ResumeMode::ReplayToolCall)
    };
    let lost = "the question's schema or state cannot be stored: nested too deeply";
    assert_eq!(answered(ToolAnswer::Pending(asks(beyond()))).storable(), Ok(error(lost)));
    for item in [
        late(success(deepest())),
        answered(ToolAnswer::Pending(asks(deepest()))),
        error("boom"),
        late(unknown()),
    ] {
        assert_eq!(item.clone().storable(), Ok(item));
    }
}
