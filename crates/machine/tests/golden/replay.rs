//! Replays every story, and drives the machine through three of them.

use std::collections::BTreeSet;

use machine::call::Call;
use machine::control::ControlDecodeError;
use machine::suspension::Held;
use machine::transcript::Transcript;
use machine::{Control, Event, Fact, Input, Timestamp, event_codec, fold};
use serde_json::{Value, json};

use crate::file::{self, Expected, StoryFile};
use crate::plain_transcript::Compared;
use crate::story::{Story, names, resume};
use crate::view;

#[test]
fn every_story_leads_to_the_state_that_was_written_down_for_it() {
    for story in file::all() {
        for section in &story.sections {
            if let Expected::Control(expected) = &section.expected {
                let control = folded(&story, section.after);
                let differences = view::differences(expected, &view::control(&control), "control");
                assert!(
                    differences.is_empty(),
                    "{} after event {}:\n{}",
                    story.name,
                    section.after,
                    differences.join("\n")
                );
            }
        }
    }
}

#[test]
fn every_story_gives_the_model_what_was_written_down_for_it() {
    for story in file::all() {
        for section in &story.sections {
            if let Expected::ModelInput(expected) = &section.expected {
                let mut transcript = Transcript::default();
                story.events.iter().take(section.after).for_each(|event| transcript.push(event));
                let lines = view::model_input(&transcript.model_input());
                assert_eq!(&lines, expected, "{} after event {}", story.name, section.after);
            }
        }
    }
}

#[test]
fn every_prefix_of_a_story_gives_the_model_what_the_plain_transcript_gives_it() {
    for story in file::all() {
        let mut compared = Compared::default();
        story.events.iter().for_each(|event| compared.push(event));
    }
}

#[test]
fn every_story_expects_a_state_and_a_model_input_at_its_end() {
    for story in file::all() {
        let at_the_end = || story.sections.iter().filter(|section| section.after == story.events.len());
        let control = at_the_end().any(|section| matches!(section.expected, Expected::Control(_)));
        let input = at_the_end().any(|section| matches!(section.expected, Expected::ModelInput(_)));
        assert!(control && input, "{}", story.name);
    }
}

#[test]
fn every_prefix_of_a_story_folds_and_survives_being_stored_as_control() {
    for story in file::all() {
        for length in 1..=story.events.len() {
            let control = folded(&story, length);
            assert_eq!(Control::decode(&control.encode().unwrap()).as_ref(), Ok(&control), "{}", story.name);
        }
    }
}

/// Every line has the name of a story, a number of events, and the control that the program of commit 1ae1317, with fold
/// version 1, stored after so many events of that story.
const VERSION_1: &str = include_str!("version_1_controls.txt");

#[test]
fn a_control_of_fold_version_1_is_shown_as_the_fold_of_its_log() {
    let stories = file::all();
    let mut seen = 0;
    for line in VERSION_1.lines() {
        let [name, length, hex] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let story = stories.iter().find(|story| story.name == name).unwrap();
        let stored = bytes_of(hex);
        let folded = folded(story, length.parse().unwrap());
        let shown = Control::decode_read_only(&stored).unwrap();
        // Version 1 counted no child run that had ended.
        let expected = Control { descendants: shown.descendants, ..folded.clone() };
        assert_eq!(shown, expected, "{name} after event {length}");
        let waits =
            |call: &Call| call.suspension().is_some_and(|open| matches!(open.held, Held::ChildRun { .. }));
        assert_eq!(shown.descendants == 1, shown.calls.iter().any(waits), "{name} after event {length}");
        // A worker writes the control back, so it needs that count.
        assert_eq!(Control::decode(&stored), Err(ControlDecodeError::UnsupportedVersion(1)));
        let shorter = &stored[..stored.len() - 1];
        assert!(matches!(Control::decode_read_only(shorter), Err(ControlDecodeError::Corrupt(_))));
        seen += 1;
    }
    // Later stories have no control of that version.
    let has_controls = |name: &str| VERSION_1.lines().any(|line| line.split(' ').next() == Some(name));
    let earlier = stories.iter().filter(|story| has_controls(&story.name));
    assert_eq!(seen, earlier.map(|story| story.events.len()).sum::<usize>());
    assert!(seen > 300, "{seen}");
}

/// The same of fold version 2, by the program before fold version 3.
const VERSION_2: &str = include_str!("version_2_controls.txt");

#[test]
fn a_control_of_fold_version_2_is_shown_as_the_fold_of_its_log() {
    let stories = file::all();
    let mut seen = 0;
    for line in VERSION_2.lines() {
        let [name, length, hex] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let story = stories.iter().find(|story| story.name == name).unwrap();
        let stored = bytes_of(hex);
        let expected = folded(story, length.parse().unwrap());
        assert_eq!(Control::decode_read_only(&stored), Ok(expected), "{name} after event {length}");
        assert_eq!(Control::decode(&stored), Err(ControlDecodeError::UnsupportedVersion(2)));
        seen += 1;
    }
    assert_eq!(seen, 330);
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

#[test]
fn every_stored_event_is_written_back_as_it_was_read() {
    for story in file::all() {
        for (line, event) in story.lines.iter().zip(&story.events) {
            let read: Value = serde_json::from_str(line).unwrap();
            let mut written: Value = serde_json::from_str(&event_codec::encode(event).unwrap()).unwrap();
            remove_added(&mut written, &read);
            assert_eq!(written, read, "{}", story.name);
        }
    }
}

/// Fields that a log may have been written without, and what they are then.
fn added() -> [(&'static str, Value); 4] {
    [
        ("max_result_chars", 100_000.into()),
        ("descendants_max", 100.into()),
        ("grant_descendants", 0.into()),
        ("descendants", 0.into()),
    ]
}

fn remove_added(written: &mut Value, read: &Value) {
    if let (Value::Object(written), Value::Object(read)) = (written, read) {
        written.retain(|name, value| {
            read.contains_key(name) || !added().contains(&(name.as_str(), value.clone()))
        });
        for (name, value) in written {
            read.get(name).into_iter().for_each(|read| remove_added(value, read));
        }
    }
}

#[test]
fn every_type_of_event_occurs_in_a_story() {
    let mut missing: BTreeSet<&str> = TYPES.into();
    for story in file::all() {
        for (line, event) in story.lines.iter().zip(&story.events) {
            let stored: Value = serde_json::from_str(line).unwrap();
            assert_eq!(stored["type"], event.fact.name(), "{}", story.name);
            missing.remove(event.fact.name());
        }
    }
    assert!(missing.is_empty(), "no story has {missing:?}");
}

#[test]
fn every_fact_answers_with_the_ids_and_arguments_that_it_stores() {
    for story in file::all() {
        for (line, event) in story.lines.iter().zip(&story.events) {
            let (stored, fact): (Value, _) = (serde_json::from_str(line).unwrap(), &event.fact);
            let stored_text = |name: &str| stored["payload"][name].as_str();
            let refers_to_a_call = matches!(fact, Fact::MessageAdded(_) | Fact::PhaseAnswered { .. });
            let closed = stored_text("approval_id").or_else(|| stored_text("suspension_id"));

            assert_eq!(
                fact.call_id().map(|id| id.as_str()),
                stored_text("call_id").filter(|_| !refers_to_a_call),
                "{line}"
            );
            assert_eq!(fact.decision_id().map(|id| id.as_str()), stored_text("decision_id"), "{line}");
            assert_eq!(
                fact.closes_suspension().map(|closing| closing.id.as_str()),
                closed.filter(|_| fact.opened_suspension().is_none()),
                "{line}"
            );
            assert_eq!(fact.arguments().is_some(), stored["payload"].get("arguments").is_some(), "{line}");
        }
    }
}

#[test]
fn the_machine_records_the_plain_answer_as_written() {
    let mut story = Story::begin();
    story.says("Paris.");
    assert_eq!(story.names(), types(&file::read("plain_answer")));
}

#[test]
fn the_machine_records_the_held_call_as_written() {
    let mut story = Story::begin();
    story.asks_for(&[("call_1", "transfer")]);
    story.approves("call_1");
    story.succeeds("call_1");
    story.says("Bob has his 5 euros.");
    assert_eq!(story.names(), types(&file::read("one_held_call")));
}

#[test]
fn the_machine_records_the_late_answer_as_written() {
    let mut story = Story::begin();
    story.asks_for(&[("call_1", "post"), ("call_2", "echo"), ("call_3", "post")]);
    let doubt_at = story.now.plus_ms(10_000);
    story.ok(Input::LeaseAcquired { epoch: 2, doubt_at });
    story.ok(Input::InboxDrained);
    story.pass_gates();
    story.succeeds("call_2");
    story.later(10_000);
    story.ok(Input::DeadlineReached);
    story.succeeds("call_1");
    story.decides("call_3", resume());
    story.fails("call_3");
    story.says("One is posted, two may be.");
    assert_eq!(story.names(), types(&file::read("late_answer_after_a_take_over")));
}

#[test]
fn an_event_of_an_unknown_version_is_refused() {
    let refused = |version: Value| {
        let event = json!({
            "v": version, "seq": 2, "ts": 5, "step": null, "type": "run.started", "payload": {"after": null}
        });
        event_codec::decode(&event.to_string()).map_err(|unreadable| unreadable.to_string())
    };
    let event = Event { seq: 2, at: Timestamp(5), step: None, fact: Fact::RunStarted { after: None } };
    assert_eq!(refused(json!(1)), Ok(event));
    let text = "stored event of version 2; this software reads up to 1";
    assert_eq!(refused(json!(2)), Err(text.to_owned()));
    let text = "stored event cannot be read: it has no version";
    assert_eq!(refused(json!("1")), Err(text.to_owned()));
    assert_eq!(refused(Value::Null), Err(text.to_owned()));
}

#[test]
fn an_event_that_cannot_be_read_is_refused() {
    let refused = |text: &str| event_codec::decode(text).map(|event| event.seq).unwrap_err().to_string();
    for text in [
        "",
        "{",
        "[]",
        r#"{"v":1}"#,
        r#"{"v":1,"seq":1,"ts":0,"step":null,"type":"run.vanished","payload":{}}"#,
        r#"{"v":1,"seq":-1,"ts":0,"step":null,"type":"run.resumed","payload":{}}"#,
        r#"{"v":1,"seq":1,"ts":0,"step":null,"type":"step.started","payload":{"step":1}}"#,
    ] {
        let why = refused(text);
        assert!(why.starts_with("stored event cannot be read: "), "{text}: {why}");
    }
}

#[test]
fn a_log_with_a_gap_is_refused() {
    let story = file::read("one_held_call");
    let without = |missing: u64| {
        let rest = story.events.iter().filter(|event| event.seq != missing);
        fold(rest).map(|control| control.seq).map_err(|impossible| impossible.to_string())
    };
    assert_eq!(without(9), Err("event 10 is impossible: the numbers have a gap".to_owned()));
    assert_eq!(without(1), Err("event 2 is impossible: a log begins with run.queued as event 1".to_owned()));
    // Without its last event the log is a prefix, not a log with a gap.
    assert_eq!(without(18), Ok(17));
}

#[test]
fn a_log_that_contradicts_itself_is_refused() {
    let story = file::read("one_held_call");
    let refused = |events: &[Event]| fold(events).map(|control| control.seq).unwrap_err().to_string();
    assert_eq!(refused(&[]), "event 0 is impossible: the log is empty");

    let mut twice = story.events.clone();
    twice.insert(9, story.events[8].clone());
    assert_eq!(refused(&twice), "event 9 is impossible: the numbers have a gap");

    let mut backwards = story.events.clone();
    backwards[9].at = Timestamp(0);
    assert_eq!(refused(&backwards), "event 10 is impossible: time runs backwards");

    let mut after_the_end = story.events.clone();
    after_the_end.push(Event { seq: 19, ..story.events[17].clone() });
    assert_eq!(refused(&after_the_end), "event 19 is impossible: the run has ended");

    let mut unapproved = story.events.clone();
    unapproved[8].fact = story.events[10].fact.clone();
    let why = "event 9 is impossible: call call_1: a call that is Suspended cannot become Running";
    assert_eq!(refused(&unapproved), why);
}

#[test]
fn an_unknown_field_is_a_difference() {
    let state = json!({"step": 1, "calls": [{"id": "call_1", "status": "New"}]});
    let differences = |expected: Value| view::differences(&expected, &state, "control");
    assert_eq!(differences(json!({"calls": [{"status": "New"}]})), <[String; 0]>::default());
    assert_eq!(differences(json!({"stepp": 1})), ["control.stepp: there is no such field"]);
    assert_eq!(differences(json!({"calls": []})).len(), 1);
    assert_eq!(
        differences(json!({"calls": [{"status": "Running"}], "step": 2})),
        [r#"control.calls[0].status: expected "Running", found "New""#, "control.step: expected 2, found 1"]
    );
}

fn folded(story: &StoryFile, length: usize) -> Control {
    fold(story.events.iter().take(length)).unwrap_or_else(|impossible| panic!("{}: {impossible}", story.name))
}

fn types(story: &StoryFile) -> Vec<String> {
    names(&story.events)
}

const TYPES: [&str; 27] = [
    "run.queued",
    "run.started",
    "run.waiting",
    "run.resumed",
    "run.interrupting",
    "run.ending",
    "run.ended",
    "run.recovered",
    "step.started",
    "step.ended",
    "message.added",
    "model.retrying",
    "phase.answered",
    "state.changed",
    "tool.requested",
    "tool.approval_requested",
    "tool.approval_voided",
    "tool.approved",
    "tool.denied",
    "tool.suspended",
    "tool.resumed",
    "tool.execution_started",
    "tool.execution_succeeded",
    "tool.execution_failed",
    "tool.cancelled",
    "child.started",
    "child.ended",
];
