//! How much of one tool result the model reads. The log keeps all of it.

use std::sync::Arc;

use machine::event::Usage;
use machine::input::{ChildEnd, ChildEnded, Outcome, ToolAnswer};
use machine::phase::Phase;
use machine::policy::{Continuation, Policy};
use machine::revision::Revision;
use machine::suspension::Held;
use machine::transcript::ModelMessage;
use machine::{Event, Fact, Input};
use serde_json::{Value, json};

use crate::hooks::{hooked, note, one};
use crate::story::{Story, success};

fn reads_up_to(max_result_chars: u32) -> Policy {
    Policy { max_result_chars, ..Policy::default() }
}

#[test]
fn a_result_that_is_too_long_is_cut_and_says_how_much_is_missing() {
    let mut story = Story::with_policy(reads_up_to(10));
    story.asks_for(&[("A", "echo")]);
    let events = story.returns("A", success(json!("0123456789abc")));
    assert_eq!(story.tool_text("A"), "0123456789\n[3 of 13 characters left out]");
    let Some(Fact::ExecutionSucceeded { result, .. }) = events.first().map(|event: &Event| &event.fact)
    else {
        panic!("{events:?}")
    };
    assert_eq!(result.to_value(), json!("0123456789abc"), "the log keeps all of it");
}

#[test]
fn a_result_of_exactly_the_limit_is_read_whole_and_characters_are_counted_not_bytes() {
    for text in ["0123456789", "\u{e4}\u{f6}\u{fc}\u{df}\u{20ac}\u{1f600}6789"] {
        let mut story = Story::with_policy(reads_up_to(10));
        story.asks_for(&[("A", "echo")]);
        story.returns("A", success(json!(text)));
        assert_eq!(story.tool_text("A"), text);
    }
    let mut story = Story::with_policy(reads_up_to(2));
    story.asks_for(&[("A", "echo")]);
    story.returns("A", success(json!("\u{20ac}\u{1f600}\u{e4}")));
    assert_eq!(story.tool_text("A"), "\u{20ac}\u{1f600}\n[1 of 3 characters left out]");
}

#[test]
fn unless_configured_a_hundred_thousand_characters_are_read() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo"), ("B", "echo")]);
    story.returns("A", success(json!("a".repeat(100_000))));
    story.returns("B", success(json!("b".repeat(100_001))));
    assert_eq!(story.tool_text("A").len(), 100_000);
    assert!(story.tool_text("B").ends_with("b\n[1 of 100001 characters left out]"));
}

#[test]
fn a_warning_and_changed_arguments_are_kept_before_the_result_itself() {
    let mut story = Story::with_policy(reads_up_to(30));
    story.asks_for(&[("A", "echo")]);
    let answer = ToolAnswer::Success { value: Arc::new(json!("x".repeat(50))), warning: Some("half".into()) };
    story.returns("A", Outcome::Answered(answer));
    let kept = "x".repeat(30 - "\nWarning: half".len());
    assert_eq!(story.tool_text("A"), format!("{kept}\nWarning: half\n[34 of 64 characters left out]"));
}

#[test]
fn a_warning_that_is_too_long_by_itself_is_cut() {
    let mut story = Story::with_policy(reads_up_to(12));
    story.asks_for(&[("A", "echo")]);
    let answer = ToolAnswer::Success { value: Arc::new(json!("x")), warning: Some("w".repeat(99)) };
    story.returns("A", Outcome::Answered(answer));
    assert_eq!(story.tool_text("A"), "\nWarning: ww\n[98 of 110 characters left out]");
}

#[test]
fn an_error_is_cut() {
    let mut story = Story::with_policy(reads_up_to(10));
    story.asks_for(&[("A", "echo")]);
    story.returns("A", Outcome::Answered(ToolAnswer::Error { message: "m".repeat(20) }));
    assert_eq!(story.tool_text("A"), "Error: mmm\n[17 of 27 characters left out]");
}

#[test]
fn a_late_result_under_eager_is_cut() {
    let policy = Policy { continuation: Continuation::Eager, ..reads_up_to(3) };
    let mut story = Story::with_policy(policy);
    story.asks_for(&[("A", "echo"), ("B", "transfer")]);
    story.succeeds("A");
    story.says("meanwhile");
    story.approves("B");
    story.pass_gates();
    story.returns("B", success(json!("abcdef")));
    let last = story.transcript().pop();
    let Some(ModelMessage::Note { text, .. }) = last else { panic!("{last:?}") };
    assert_eq!(text, "Result of the earlier call B (transfer): abc\n[3 of 6 characters left out]");
}

#[test]
fn a_plugins_note_is_cut() {
    let revision = Revision { policy: reads_up_to(4), ..hooked(&[Phase::AfterToolExecute]) };
    let mut story = Story::begin_with(revision);
    story.asks_for(&[("A", "echo")]);
    story.returns("A", success(json!("ok")));
    story.ok(Input::AfterTools { heard: vec![("A".into(), one("guard", note("abcdef")))] });
    let last = story.transcript().pop();
    let Some(ModelMessage::Note { text, .. }) = last else { panic!("{last:?}") };
    assert_eq!(text, "abcd\n[2 of 6 characters left out]");
}

#[test]
fn what_a_child_run_answers_is_cut() {
    let mut story = Story::with_policy(reads_up_to(5));
    story.asks_for(&[("A", "researcher")]);
    let Some(Held::ChildRun { run, .. }) = story.call("A").suspension().map(|open| open.held.clone()) else {
        panic!("no child run")
    };
    let end = ChildEnd::Completed { answer: Arc::new(Value::from("a long answer")) };
    story.ok(Input::ChildEnded(ChildEnded {
        call: "A".into(),
        run,
        end,
        usage: Usage::default(),
        descendants: 0,
    }));
    assert_eq!(story.tool_text("A"), "a lon\n[8 of 13 characters left out]");
}

#[test]
fn the_next_run_of_a_thread_reads_what_the_run_that_got_the_result_could_read() {
    let mut story = Story::with_policy(reads_up_to(3));
    story.asks_for(&[("A", "echo")]);
    story.returns("A", success(json!("abcdef")));
    story.says("done");
    let mut transcript = machine::transcript::Transcript::default();
    story.log.iter().for_each(|event| transcript.push(event));
    let next = Story::begin();
    next.log.iter().for_each(|event| transcript.push(event));
    let texts: Vec<ModelMessage> = transcript.model_input().iter().cloned().collect();
    let cut = |message: &ModelMessage| matches!(message, ModelMessage::Tool { text, .. } if text == "abc\n[3 of 6 characters left out]");
    assert!(texts.iter().any(cut), "{texts:?}");
}
