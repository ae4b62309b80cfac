//! Why a run ended: every reason reached by a story, its stored form, and its short form.

use machine::event::InterruptCause;
use machine::id::Principal;
use machine::input::ModelFailure;
use machine::phase::{Action, Phase};
use machine::policy::{OnBlock, Policy};
use machine::revision::StopCondition;
use machine::status::{RunStatus, WaitingOn};
use machine::termination::{Cancelled, ErrorCode, REASON_CHARS_MAX, StopCode, Stopped, Termination};
use machine::{Fact, Input};
use serde_json::{Value, json};

use crate::props::{hook, stopping, subscribing};
use crate::story::Story;

fn ended(story: &Story) -> RunStatus {
    assert!(matches!(story.log.last().unwrap().fact, Fact::RunEnded { .. }));
    story.run_status().clone()
}

#[test]
fn c22_c23_every_reason_ends_the_run_but_a_held_call_only_makes_it_wait() {
    let mut natural = Story::begin();
    natural.says("bye");
    assert_eq!(ended(&natural), RunStatus::Done(Termination::NaturalEnd));

    let mut behaviour = Story::begin_with(subscribing(&[Phase::BeforeInference]));
    let hooks = hook(Action::SkipInference);
    behaviour.ok(Input::PhaseAnswered { phase: Phase::BeforeInference, hooks });
    assert_eq!(ended(&behaviour), RunStatus::Done(Termination::BehaviorRequested));

    let mut stopped = Story::begin_with(stopping(vec![StopCondition::MaxRounds { rounds: 1 }]));
    stopped.asks_for(&[("A", "echo")]);
    stopped.succeeds("A");
    let detail = Some("1 of 1 rounds".into());
    let reason = Termination::Stopped(Stopped { code: StopCode::MaxRounds, detail });
    assert_eq!(ended(&stopped), RunStatus::Done(reason));

    let mut cancelled = Story::begin();
    cancelled.ok(Input::Interrupt { cause: InterruptCause::Person(Principal::from("ana")) });
    assert_eq!(ended(&cancelled), RunStatus::Done(Termination::Cancelled(Cancelled::Interrupted)));

    let mut blocked = Story::with_policy(Policy { on_block: OnBlock::EndRun, ..Policy::default() });
    blocked.asks_for(&[("A", "forbidden")]);
    assert_eq!(ended(&blocked), RunStatus::Done(Termination::Blocked("blocked by policy".into())));

    let mut failed = Story::begin();
    let failure = ModelFailure { message: "no such model".into(), retryable: false, retry_after_ms: None };
    failed.ok(Input::ModelFailed { step: 1, attempt: 1, failure });
    assert_eq!(ended(&failed), RunStatus::Done(Termination::error(ErrorCode::Model, "no such model")));

    let mut held = Story::begin();
    held.asks_for(&[("A", "transfer")]);
    assert_eq!(held.run_status(), &RunStatus::Waiting(WaitingOn::Person));
    assert_eq!(held.run.control.ended(), None);
}

fn forms() -> [(Termination, Value, &'static str); 6] {
    [
        (Termination::NaturalEnd, json!({"type": "natural_end"}), "natural"),
        (Termination::BehaviorRequested, json!({"type": "behavior_requested"}), "behavior_requested"),
        (
            Termination::stopped(StopCode::MaxRounds, "25 of 25 rounds".to_string()),
            json!({"type": "stopped", "value": {"code": "max_rounds", "detail": "25 of 25 rounds"}}),
            "stopped:max_rounds",
        ),
        (
            Termination::Cancelled(Cancelled::Interrupted),
            json!({"type": "cancelled", "value": "interrupted"}),
            "cancelled",
        ),
        (Termination::blocked("a:b"), json!({"type": "blocked", "value": "a:b"}), "blocked:a:b"),
        (
            Termination::error(ErrorCode::Model, "overloaded"),
            json!({"type": "error", "value": {"code": "model", "text": "overloaded"}}),
            "error",
        ),
    ]
}

#[test]
fn c8_a_reason_is_stored_with_its_type_and_value() {
    for (reason, stored, _) in forms() {
        assert_eq!(serde_json::to_value(&reason).unwrap(), stored);
        assert_eq!(serde_json::from_value::<Termination>(stored).unwrap(), reason);
    }
    let alias = json!({"type": "plugin_requested"});
    assert_eq!(serde_json::from_value::<Termination>(alias).unwrap(), Termination::BehaviorRequested);
    assert!(serde_json::from_value::<Termination>(json!({"type": "tired"})).is_err());
}

#[test]
fn c9_the_short_form_round_trips_and_an_unknown_one_is_an_error() {
    for (reason, _, short) in forms() {
        assert_eq!(reason.done_reason(), short);
        assert_eq!(Termination::from_done_reason(short).done_reason(), short);
    }
    for code in StopCode::ALL {
        let reason = Termination::stopped(code, None);
        assert_eq!(Termination::from_done_reason(&reason.done_reason()), reason);
    }
    assert_eq!(Termination::from_done_reason("natural"), Termination::NaturalEnd);
    assert_eq!(Termination::from_done_reason("plugin_requested"), Termination::BehaviorRequested);
    assert_eq!(Termination::from_done_reason("blocked:a:b"), Termination::Blocked("a:b".into()));
    assert_eq!(Termination::from_done_reason("blocked:blocked:a"), Termination::Blocked("blocked:a".into()));
    for text in ["stopped:tired", "finished", ""] {
        assert_eq!(Termination::from_done_reason(text), Termination::error(ErrorCode::Unknown, text));
    }
}

#[test]
fn a_long_reason_is_cut_so_that_the_control_state_stays_small() {
    let long = "ä".repeat(10 * REASON_CHARS_MAX);
    let short = "ä".repeat(REASON_CHARS_MAX);
    assert_eq!(Termination::blocked(&long), Termination::Blocked(short.clone()));
    assert_eq!(Termination::stopped(StopCode::Rejected, long.clone()), {
        Termination::Stopped(Stopped { code: StopCode::Rejected, detail: Some(short.clone()) })
    });
    assert_eq!(Termination::error(ErrorCode::Hook, &long), Termination::error(ErrorCode::Hook, &short));
}

#[test]
fn a_model_that_fails_ends_the_run_at_once_and_closes_what_is_held_beside_it() {
    let policy = Policy { continuation: machine::policy::Continuation::Eager, ..Policy::default() };
    let mut story = Story::with_policy(policy);
    story.asks_for(&[("A", "echo"), ("B", "transfer")]);
    story.succeeds("A");
    let failure = ModelFailure { message: "bad request".into(), retryable: false, retry_after_ms: None };
    let events = story.ok(Input::ModelFailed { step: 2, attempt: 1, failure });
    assert_eq!(crate::story::names(&events), ["tool.cancelled", "message.added", "step.ended", "run.ended"]);
    assert_eq!(
        crate::props::lines(&story).last().unwrap(),
        "note B: Result of the earlier call B (transfer): Cancelled: run_ended"
    );
}
