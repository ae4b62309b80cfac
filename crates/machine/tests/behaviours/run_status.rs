//! What a run may become: the whole table, and the stories behind its arrows.

use machine::event::{InterruptCause, Usage};
use machine::id::Principal;
use machine::input::ModelFailure;
use machine::policy::{OnReject, Policy};
use machine::status::{RunStatus, WaitingOn};
use machine::termination::{Cancelled, ErrorCode, StopCode, Termination};
use machine::{Event, Fact, Input, InputOutcome, Rejection, Timestamp};
use serde_json::json;

use crate::story::{Story, names, success};

use RunStatus::{Done, Interrupting, Queued, Running, Waiting};

/// Every status, as the table below heads its columns.
fn statuses() -> [(RunStatus, &'static str); 13] {
    [
        (Queued, "Queued"),
        (Running, "Running"),
        (Waiting(WaitingOn::Person), "Waiting on a person"),
        (Waiting(WaitingOn::Tool), "Waiting on a tool"),
        (Interrupting, "Interrupting"),
        (Done(Termination::NaturalEnd), "Done(natural)"),
        (Done(Termination::BehaviorRequested), "Done(behavior_requested)"),
        (Done(Termination::stopped(StopCode::MaxRounds, None)), "Done(stopped:max_rounds)"),
        (Done(Termination::blocked("policy")), "Done(blocked:policy)"),
        (Done(Termination::error(ErrorCode::Model, "overloaded")), "Done(error)"),
        (Done(Termination::Cancelled(Cancelled::Interrupted)), "Done(cancelled)"),
        (Done(Termination::Cancelled(Cancelled::Superseded)), "Done(cancelled)"),
        (Done(Termination::Cancelled(Cancelled::ByParent)), "Done(cancelled)"),
    ]
}

/// One row per status a run leaves, one column per status it would enter; `y` is legal.
const LEGAL: [&str; 13] = [
    // Q R P T I  nat beh sto blo err  int sup par
    ". y . . y   . . . . y   y y y",
    ". . y y y   y y y y y   y y y",
    ". y . y y   . . . . y   y y y",
    ". y y . y   . . . . y   y y y",
    ". . . . .   . . . . .   y y y",
    ". . . . .   . . . . .   . . .",
    ". . . . .   . . . . .   . . .",
    ". . . . .   . . . . .   . . .",
    ". . . . .   . . . . .   . . .",
    ". . . . .   . . . . .   . . .",
    ". . . . .   . . . . .   . . .",
    ". . . . .   . . . . .   . . .",
    ". . . . .   . . . . .   . . .",
];

#[test]
fn a4_a5_a6_a12_every_pair_of_run_statuses_is_legal_or_an_error_that_names_both() {
    for ((from, from_name), row) in statuses().iter().zip(LEGAL) {
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells.len(), statuses().len(), "{from_name}");
        for ((to, to_name), cell) in statuses().iter().zip(cells) {
            let became = from.transition_to(to.clone()).map_err(|illegal| illegal.to_string());
            let expected = match cell {
                "y" => Ok(to.clone()),
                _ => Err(format!("a run that is {from_name} cannot become {to_name}")),
            };
            assert_eq!(became, expected);
        }
    }
}

#[test]
fn a2_new_run_begins_running_and_only_the_queue_comes_before() {
    let mut story = Story::queued_with(machine::Revision::default(), crate::story::order(Policy::default()));
    assert_eq!((story.run_status(), story.run.wanted().len()), (&Queued, 0));
    let events = story.ok(Input::Start { after: None });
    assert_eq!(names(&events), ["run.started", "message.added", "step.started"]);
    assert_eq!(story.run_status(), &Running);
}

/// A story for each way out of Running, and its end.
fn ends() -> Vec<(Story, Termination)> {
    let mut natural = Story::begin();
    natural.says("done");

    let mut stopped = Story::begin_with(machine::Revision {
        stop: vec![machine::revision::StopCondition::MaxRounds { rounds: 1 }],
        ..machine::Revision::default()
    });
    stopped.asks_for(&[("A", "echo")]);
    stopped.succeeds("A");

    let mut requested = Story::begin();
    let mut answered = requested.answer("enough", &[]);
    answered.hooks = crate::order_of_phases::by("guard", vec![machine::phase::Action::End]);
    requested.model_answers(answered);

    let mut cancelled = Story::begin();
    interrupts(&mut cancelled);

    let mut failed = Story::begin();
    fails_permanently(&mut failed, "bad key");

    vec![
        (natural, Termination::NaturalEnd),
        (stopped, Termination::stopped(StopCode::MaxRounds, "1 of 1 rounds".to_owned())),
        (requested, Termination::BehaviorRequested),
        (cancelled, Termination::Cancelled(Cancelled::Interrupted)),
        (failed, Termination::error(ErrorCode::Model, "bad key")),
    ]
}

pub(crate) fn interrupts(story: &mut Story) -> Vec<Event> {
    story.ok(Input::Interrupt { cause: InterruptCause::Person(Principal::from("ana")) })
}

/// The model refuses in a way that another try would not change.
pub(crate) fn fails_permanently(story: &mut Story, message: &str) -> Vec<Event> {
    let failure = ModelFailure { message: message.into(), retryable: false, retry_after_ms: None };
    let (step, attempt) = (story.run.control.step, story.model_attempt());
    story.ok(Input::ModelFailed { step, attempt, failure })
}

#[test]
fn a4_a7_running_ends_with_each_reason_and_nothing_is_wanted_or_accepted_after_it() {
    for (mut story, termination) in ends() {
        assert_eq!(story.run_status(), &Done(termination.clone()));
        let last = story.log.last().unwrap();
        assert!(
            matches!(&last.fact, Fact::RunEnded { termination: stored, .. } if *stored == termination),
            "{last:?}"
        );
        assert_eq!(story.names().iter().filter(|name| *name == "run.ended").count(), 1);
        assert_eq!((story.run.wanted().len(), story.run.next_deadline()), (0, None));

        let ended = Rejection::RunEnded(termination);
        assert_eq!(story.refused(Input::Start { after: None }), ended);
        assert_eq!(story.refused(Input::InboxDrained), ended);
        assert_eq!(story.refused(Input::DeadlineReached), ended);
        let cause = InterruptCause::Person(Principal::from("ana"));
        assert_eq!(story.refused(Input::Interrupt { cause }), ended);
        let too_late = Event {
            seq: story.run.control.seq + 1,
            at: story.now,
            step: None,
            fact: Fact::RunStarted { after: None },
        };
        let impossible = story.run.apply(&too_late).unwrap_err();
        assert_eq!(
            impossible.to_string(),
            format!("event {} is impossible: the run has ended", too_late.seq)
        );
    }
}

#[test]
fn a5_decision_moves_a_waiting_run_to_running() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer")]);
    assert_eq!(story.run_status(), &Waiting(WaitingOn::Person));
    let events = story.approves("A");
    assert_eq!(names(&events), ["tool.approved", "run.resumed", "tool.execution_started"]);
    assert_eq!(story.run_status(), &Running);
}

#[test]
fn a6_waiting_run_is_cancelled_from_where_it_is() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer")]);
    let events = interrupts(&mut story);
    assert_eq!(
        names(&events),
        ["run.interrupting", "tool.cancelled", "message.added", "step.ended", "run.ended"]
    );
    assert_eq!(story.run_status(), &Done(Termination::Cancelled(Cancelled::Interrupted)));
}

#[test]
fn a6_whatever_else_ends_a_waiting_run_wakes_it_first() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "transfer")]);
    let events = story.denies("A", Some(OnReject::EndRun));
    assert_eq!(
        names(&events),
        [
            "tool.denied",
            "run.resumed",
            "tool.cancelled",
            "message.added",
            "message.added",
            "step.ended",
            "run.ended"
        ]
    );
    assert_eq!(story.run_status(), &Done(Termination::stopped(StopCode::Rejected, "no".to_owned())));
}

#[test]
fn a8_reasons_are_these_six_and_suspended_is_none_of_them() {
    let reasons = [
        (Termination::NaturalEnd, json!({"type": "natural_end"})),
        (Termination::BehaviorRequested, json!({"type": "behavior_requested"})),
        (
            Termination::stopped(StopCode::Timeout, None),
            json!({"type": "stopped", "value": {"code": "timeout", "detail": null}}),
        ),
        (
            Termination::Cancelled(Cancelled::Interrupted),
            json!({"type": "cancelled", "value": "interrupted"}),
        ),
        (Termination::blocked("rule 1"), json!({"type": "blocked", "value": "rule 1"})),
        (
            Termination::error(ErrorCode::Model, "overloaded"),
            json!({"type": "error", "value": {"code": "model", "text": "overloaded"}}),
        ),
    ];
    for (reason, stored) in reasons {
        assert_eq!(serde_json::to_value(&reason).unwrap(), stored);
        assert_eq!(serde_json::from_value::<Termination>(stored).unwrap(), reason);
        // A seventh reason breaks the build here.
        match reason {
            Termination::NaturalEnd
            | Termination::BehaviorRequested
            | Termination::Stopped(_)
            | Termination::Cancelled(_)
            | Termination::Blocked(_)
            | Termination::Error(_) => {}
        }
    }
    let first_edition: Termination = serde_json::from_value(json!({"type": "plugin_requested"})).unwrap();
    assert_eq!(first_edition, Termination::BehaviorRequested);
    assert!(serde_json::from_value::<Termination>(json!({"type": "suspended"})).is_err());
}

#[test]
fn a9_pass_that_ends_with_everything_held_leaves_the_run_waiting_not_done() {
    let mut story = Story::begin();
    let events = story.asks_for(&[("A", "transfer"), ("B", "pick_file")]);
    assert_eq!(
        names(&events),
        [
            "message.added",
            "tool.requested",
            "tool.requested",
            "tool.approval_requested",
            "tool.suspended",
            "run.waiting"
        ]
    );
    assert_eq!(story.run_status(), &Waiting(WaitingOn::Person));
    assert_eq!((story.run.control.ended(), story.run.wanted().len()), (None, 0));
    assert!(!story.names().contains(&"run.ended".to_owned()));
}

#[test]
fn the_time_of_a_runs_last_change_is_that_of_its_last_event_and_never_runs_backwards() {
    let mut story = Story::begin();
    story.later(250);
    story.asks_for(&[("A", "transfer")]);
    assert_eq!(story.run.control.at, Timestamp(1_250));
    story.later(50);
    story.approves("A");
    story.returns("A", success(json!("paid")));
    story.now = Timestamp(900); // Another worker's clock is behind.
    story.says("done");
    assert_eq!((story.run.control.at, story.log.last().unwrap().at), (Timestamp(1_300), Timestamp(1_300)));
}

#[test]
fn a11_done_reasons_are_these_strings_and_read_back() {
    let strings = [
        (Termination::NaturalEnd, "natural"),
        (Termination::BehaviorRequested, "behavior_requested"),
        (Termination::Cancelled(Cancelled::Interrupted), "cancelled"),
        (Termination::error(ErrorCode::Unknown, ""), "error"),
        (Termination::stopped(StopCode::MaxRounds, None), "stopped:max_rounds"),
        (Termination::blocked("a:b"), "blocked:a:b"),
    ];
    for (reason, text) in strings {
        assert_eq!(reason.done_reason(), text);
        assert_eq!(Termination::from_done_reason(text), reason);
    }
    for code in StopCode::ALL {
        let reason = Termination::stopped(code, None);
        assert_eq!(reason.done_reason(), format!("stopped:{}", code.as_str()));
        assert_eq!(Termination::from_done_reason(&reason.done_reason()), reason);
    }
    // What the first edition called it.
    assert_eq!(Termination::from_done_reason("plugin_requested"), Termination::BehaviorRequested);
}

#[test]
fn a12_saying_again_what_the_run_is_already_has_an_answer_and_no_event() {
    let mut story = Story::begin();
    assert_eq!(story.refused(Input::Start { after: None }), Rejection::AlreadyStarted);

    story.asks_for(&[("A", "echo"), ("B", "echo")]);
    story.succeeds("A");
    assert_eq!(names(&story.succeeds("A")), [] as [&str; 0]);
    assert_eq!(story.last_outcome, Some(InputOutcome::Duplicate));

    interrupts(&mut story);
    let ended = Rejection::RunEnded(Termination::Cancelled(Cancelled::Interrupted));
    let cause = InterruptCause::Person(Principal::from("bo"));
    assert_eq!(story.refused(Input::Interrupt { cause }), ended);
    assert_eq!(ended.to_string(), "the run has ended (cancelled)");
}

#[test]
fn a7_the_end_carries_its_reason_and_what_the_run_used() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo")]);
    story.succeeds("A");
    story.says("done");
    let last = story.log.last().unwrap();
    let usage = Usage { input_tokens: 20, output_tokens: 10 };
    assert_eq!(last.fact, Fact::RunEnded { termination: Termination::NaturalEnd, usage, output: None });
    assert_eq!(story.run.control.ended(), Some(&Termination::NaturalEnd));
}
