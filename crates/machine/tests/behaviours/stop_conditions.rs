//! The seven stop conditions: where each begins to fire, what resets it, and which of several wins.

use machine::Input;
use machine::policy::{Policy, StepEnd};
use machine::revision::{Revision, StopCondition};
use machine::termination::{StopCode, Stopped, Termination};
use serde_json::{Value, json};

use crate::props::{stopping, termination};
use crate::story::{Story, order};

use StopCondition::{
    ConsecutiveErrors, ContentMatch, LoopDetection, MaxRounds, StopOnTool, Timeout, TokenBudget,
};

fn stopped(code: StopCode, detail: &str) -> Termination {
    Termination::Stopped(Stopped { code, detail: Some(detail.into()) })
}

fn begin(stop: Vec<StopCondition>) -> Story {
    Story::begin_with(stopping(stop))
}

/// One round with one call, whose arguments are `value`.
fn round_with(story: &mut Story, tool: &str, value: Value) {
    let id = format!("c{}", story.run.control.step);
    let answered = story.answer("", &[(&id, tool, value)]);
    story.model_answers(answered);
    story.pass_gates();
    story.succeeds(&id);
}

/// One round with a call that no other round has.
fn round(story: &mut Story) {
    let step = story.run.control.step;
    round_with(story, "echo", json!({"step": step}));
}

/// One round with these calls, of which those named in `failing` fail.
fn round_of(story: &mut Story, calls: &[&str], failing: &[&str]) {
    let asked: Vec<(&str, &str)> = calls.iter().map(|id| (*id, "echo")).collect();
    story.asks_for(&asked);
    for id in calls {
        if failing.contains(id) {
            story.fails(id)
        } else {
            story.succeeds(id)
        };
    }
}

fn continues(story: &Story, step: u32) -> bool {
    story.run.control.ended().is_none() && story.run.control.step == step
}

#[test]
fn c24_c32_after_n_rounds_step_n_plus_one_never_starts() {
    let mut story = begin(vec![MaxRounds { rounds: 2 }]);
    round(&mut story);
    assert!(continues(&story, 2));
    round(&mut story);
    assert_eq!(termination(&story), stopped(StopCode::MaxRounds, "2 of 2 rounds"));
    assert_eq!(story.names().iter().filter(|name| *name == "step.started").count(), 2);
}

#[test]
fn c25_c32_time_beyond_the_limit_stops_and_waiting_is_left_out() {
    let mut story = begin(vec![Timeout { seconds: 10 }]);
    story.later(6_000);
    story.asks_for(&[("A", "transfer")]);
    story.later(3_600_000); // no approver is at work
    story.approves("A");
    story.later(4_000);
    story.succeeds("A");
    assert!(continues(&story, 2), "exactly ten seconds do not exceed ten seconds");
    story.later(1);
    round(&mut story);
    assert_eq!(termination(&story), stopped(StopCode::Timeout, "10001 ms of 10 s"));
}

#[test]
fn c25_time_in_the_queue_is_left_out() {
    let revision = stopping(vec![Timeout { seconds: 1 }]);
    let mut story = Story::queued_with(revision, order(Policy::default()));
    story.later(60_000);
    story.ok(Input::Start { after: None });
    story.later(1_000);
    round(&mut story);
    assert!(continues(&story, 2));
}

#[test]
fn c26_c32_no_model_call_once_more_tokens_than_the_budget_were_used() {
    // Each model call uses 15 tokens.
    let mut story = begin(vec![TokenBudget { max_total: 30 }]);
    round(&mut story);
    round(&mut story);
    assert!(continues(&story, 3), "thirty of thirty is not too much");
    round(&mut story);
    assert_eq!(termination(&story), stopped(StopCode::TokenBudget, "45 of 30 tokens"));
}

#[test]
fn c27_c32_tool_errors_without_a_success_stop_at_the_maximum() {
    let mut story = begin(vec![ConsecutiveErrors { max: 3 }]);
    round_of(&mut story, &["a"], &["a"]);
    assert!(continues(&story, 2));
    round_of(&mut story, &["b", "c"], &["b", "c"]);
    let expected = stopped(StopCode::ConsecutiveErrors, "3 tool errors without a success");
    assert_eq!(termination(&story), expected);
}

#[test]
fn c35_a_success_resets_and_a_mixed_round_does_not_count() {
    let mut story = begin(vec![ConsecutiveErrors { max: 2 }]);
    round_of(&mut story, &["a"], &["a"]);
    round_of(&mut story, &["b", "c", "d"], &["b", "c"]); // d succeeds
    assert!(continues(&story, 3));
    round_of(&mut story, &["e"], &["e"]);
    assert!(continues(&story, 4), "the error before the success is forgotten");
    round_of(&mut story, &["f"], &["f"]);
    assert!(story.run.control.ended().is_some());
}

#[test]
fn c27_denied_and_cancelled_calls_are_no_errors() {
    let mut story = begin(vec![ConsecutiveErrors { max: 2 }]);
    round_of(&mut story, &["a"], &["a"]);
    story.asks_for(&[("b", "transfer"), ("c", "pick_file")]);
    story.denies("b", None);
    story.decides("c", crate::story::cancel());
    assert!(continues(&story, 3));
    round_of(&mut story, &["d"], &["d"]);
    assert!(story.run.control.ended().is_some(), "and they reset nothing");
}

#[test]
fn c28_a_named_tool_stops_after_it_ran_whatever_its_outcome() {
    let mut story = begin(vec![StopOnTool { tool_name: "post".into() }]);
    round(&mut story);
    assert!(continues(&story, 2));
    story.asks_for(&[("p", "post"), ("q", "echo")]);
    story.succeeds("q");
    assert!(continues(&story, 2), "the round is finished first");
    story.fails("p");
    assert_eq!(termination(&story), stopped(StopCode::StopOnTool, "post was called"));
}

#[test]
fn c29_text_that_matches_stops_with_and_without_tools() {
    let stop = || vec![MaxRounds { rounds: 9 }, ContentMatch { pattern: "(?i)all done".into() }];
    let expected = stopped(StopCode::ContentMatch, "the answer matches (?i)all done");
    let mut words = begin(stop());
    let mut answered = words.answer("All done.", &[]);
    answered.matched = vec![1];
    words.ok(Input::ModelAnswered(answered));
    assert_eq!(termination(&words), expected);

    let mut tools = begin(stop());
    let mut answered = tools.answer("all done after this", &[("a", "echo", json!({}))]);
    answered.matched = vec![1];
    tools.model_answers(answered);
    tools.pass_gates();
    assert!(continues(&tools, 1));
    tools.succeeds("a");
    assert_eq!(termination(&tools), expected);

    let mut other = begin(stop());
    other.says("not yet");
    assert_eq!(termination(&other), Termination::NaturalEnd);
}

#[test]
fn c29_a_match_at_the_place_of_another_condition_stops_nothing() {
    let mut story = begin(vec![MaxRounds { rounds: 0 }, ContentMatch { pattern: "x".into() }]);
    let mut answered = story.answer("y", &[("a", "echo", json!({}))]);
    answered.matched = vec![0]; // another condition's place
    story.model_answers(answered);
    story.pass_gates();
    story.succeeds("a");
    assert!(continues(&story, 2));
    story.says("z");
    assert_eq!(termination(&story), Termination::NaturalEnd);
}

#[test]
fn c30_c36_the_same_call_with_the_same_arguments_within_the_window_stops() {
    let again = stopped(StopCode::LoopDetection, "the same call with the same arguments again");
    let mut story = begin(vec![LoopDetection { window: 3 }]);
    round_with(&mut story, "echo", json!({"n": 1}));
    round_with(&mut story, "echo", json!({"n": 2}));
    round_with(&mut story, "echo", json!({"n": 3}));
    round_with(&mut story, "echo", json!({"n": 1})); // four calls apart: outside the window
    assert!(continues(&story, 5));
    round_with(&mut story, "upsert", json!({"n": 1})); // another tool
    assert!(continues(&story, 6));
    round_with(&mut story, "echo", json!({"n": 1}));
    assert_eq!(termination(&story), again);
}

#[test]
fn c36_a_window_below_two_counts_as_two() {
    for window in [0, 1, 2] {
        let mut story = begin(vec![LoopDetection { window }]);
        round_with(&mut story, "echo", json!({"n": 1}));
        assert!(continues(&story, 2));
        round_with(&mut story, "echo", json!({"n": 1}));
        assert!(story.run.control.ended().is_some(), "window {window}");
    }
}

#[test]
fn c33_zero_disables_a_limit() {
    let off = vec![
        MaxRounds { rounds: 0 },
        Timeout { seconds: 0 },
        TokenBudget { max_total: 0 },
        ConsecutiveErrors { max: 0 },
    ];
    let mut story = begin(off);
    for step in 2..20 {
        story.later(3_600_000);
        let id = format!("c{step}");
        round_of(&mut story, &[&id], &[&id]);
        assert!(continues(&story, step));
    }
}

/// Each fires after one round with a failing call of `echo` that takes an hour.
fn all_seven() -> Vec<(StopCondition, StopCode)> {
    vec![
        (MaxRounds { rounds: 1 }, StopCode::MaxRounds),
        (Timeout { seconds: 1 }, StopCode::Timeout),
        (TokenBudget { max_total: 1 }, StopCode::TokenBudget),
        (ConsecutiveErrors { max: 1 }, StopCode::ConsecutiveErrors),
        (StopOnTool { tool_name: "echo".into() }, StopCode::StopOnTool),
        (ContentMatch { pattern: "word".into() }, StopCode::ContentMatch),
        (LoopDetection { window: 2 }, StopCode::LoopDetection),
    ]
}

/// One round in which every condition comes true; judged only once the last call has settled.
fn one_round(stop: Vec<StopCondition>, step_end: StepEnd) -> Termination {
    let matched = (0..u16::try_from(stop.len()).unwrap()).collect();
    let policy = Policy { step_end, ..Policy::default() };
    let mut story = Story::begin_with(Revision { stop, policy, ..Revision::default() });
    let mut answered = story.answer("word", &[("a", "echo", json!({})), ("b", "echo", json!({}))]);
    answered.matched = matched;
    story.model_answers(answered);
    story.pass_gates();
    story.later(3_600_000);
    story.fails("a");
    assert!(story.run.control.ended().is_none(), "judged after the tools, not before");
    story.fails("b");
    termination(&story)
}

fn code(termination: &Termination) -> StopCode {
    match termination {
        Termination::Stopped(stopped) => stopped.code,
        other => panic!("not stopped: {other:?}"),
    }
}

#[test]
fn c31_each_of_the_seven_is_judged_after_the_tools_of_a_step() {
    for step_end in [StepEnd::AfterTools, StepEnd::AfterInference] {
        for (condition, expected) in all_seven() {
            assert_eq!(code(&one_round(vec![condition], step_end)), expected);
        }
    }
}

#[test]
fn c34_the_first_in_configured_order_wins() {
    let all = all_seven();
    for first in 0..all.len() {
        let mut order = all.clone();
        order.rotate_left(first);
        let expected = order.first().unwrap().1;
        let stop = order.into_iter().map(|(condition, _)| condition).collect();
        assert_eq!(code(&one_round(stop, StepEnd::AfterTools)), expected);
    }
}

#[test]
fn c31_on_a_step_without_tools_the_natural_end_beats_the_limits() {
    let limits = vec![
        MaxRounds { rounds: 1 },
        Timeout { seconds: 1 },
        TokenBudget { max_total: 1 },
        LoopDetection { window: 2 },
    ];
    let mut story = begin(limits);
    story.later(3_600_000);
    story.says("that is all");
    assert_eq!(termination(&story), Termination::NaturalEnd);
}

#[test]
fn c37_each_condition_has_one_json_form() {
    let forms = [
        (MaxRounds { rounds: 25 }, json!({"type": "max_rounds", "rounds": 25})),
        (Timeout { seconds: 300 }, json!({"type": "timeout", "seconds": 300})),
        (TokenBudget { max_total: 9 }, json!({"type": "token_budget", "max_total": 9})),
        (ConsecutiveErrors { max: 3 }, json!({"type": "consecutive_errors", "max": 3})),
        (StopOnTool { tool_name: "finish".into() }, json!({"type": "stop_on_tool", "tool_name": "finish"})),
        (ContentMatch { pattern: "a+".into() }, json!({"type": "content_match", "pattern": "a+"})),
        (LoopDetection { window: 4 }, json!({"type": "loop_detection", "window": 4})),
    ];
    for (condition, form) in forms {
        assert_eq!(serde_json::to_value(&condition).unwrap(), form);
        assert_eq!(serde_json::from_value::<StopCondition>(form).unwrap(), condition);
    }
}
