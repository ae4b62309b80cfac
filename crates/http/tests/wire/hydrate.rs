//! A message is sent with its text and its arguments, wherever in the log these are.

use engine::store::{CommittedEvent, LogEntry, UnreadableEvent};
use holdpoint_http::wire::hydrate::EventHydrator;
use machine::event::{Fact, Message};
use machine::json::Json;
use machine::phase::Action;
use machine::tool::Arguments;
use serde_json::{Value, json};

use crate::stories;

fn messages(name: &str) -> Vec<Value> {
    let sent = stories::named(name).envelopes_as_json();
    sent.into_iter()
        .filter(|envelope| envelope["type"] == "message.added")
        .map(|envelope| envelope["payload"]["message"].clone())
        .collect()
}

#[test]
fn a_held_call_is_shown_with_the_text_of_every_message() {
    let sent = messages("one_held_call");
    let shown: Vec<(&Value, &Value)> =
        sent.iter().map(|message| (&message["role"], &message["content"])).collect();
    assert_eq!(shown[0], (&json!("user"), &json!("Send Bob 5 euros.")));
    assert_eq!(shown[1], (&json!("assistant"), &json!("I will transfer it.")));
    assert_eq!(
        sent[1]["tool_calls"],
        json!([{"call_id": "call_1", "tool": "transfer", "arguments": {"to": "bob", "amount": 5}}])
    );
    assert_eq!(shown[2].0, &json!("tool"));
    assert_eq!((&sent[2]["call_id"], &sent[2]["status"]), (&json!("call_1"), &json!("succeeded")));
    assert!(shown[2].1.as_str().unwrap().contains("receipt"), "{}", shown[2].1);
}

#[test]
fn edited_arguments_are_shown_with_the_result_and_the_message_keeps_the_models_own() {
    let sent = messages("edited_arguments");
    let asked = sent.iter().find(|message| message.get("tool_calls").is_some()).unwrap();
    let result = sent.iter().find(|message| message["role"] == "tool").unwrap();
    let text = result["content"].as_str().unwrap();
    assert!(text.starts_with("Arguments were changed by the approver to: {"), "{text}");
    let own = asked["tool_calls"][0]["arguments"].to_string();
    assert!(!text.contains(&own), "the model's own arguments {own} stand in {text}");
}

/// A run whose plugin notes this, text by text.
fn noting(texts: &[&str]) -> stories::Story {
    let mut story = stories::named("hooks");
    let notes = story.events.iter_mut().find_map(|event| match &mut event.fact {
        Fact::PhaseAnswered { actions, .. } => {
            actions.iter().any(|action| matches!(action, Action::AddNote { .. })).then_some(actions)
        }
        _ => None,
    });
    *notes.expect("a plugin adds a note") =
        texts.iter().map(|text| Action::AddNote { text: (*text).to_owned() }).collect();
    story
}

/// The same words that the model reads: two readers of one log must not see different texts.
#[test]
fn results_and_notes_are_shown_as_the_model_reads_them() {
    let notes = [&["", "x"][..], &["x", "", "y"], &["x", ""], &[""]];
    for story in stories::all().into_iter().chain(notes.map(noting)) {
        let mut transcript = machine::transcript::Transcript::default();
        story.events.iter().for_each(|event| transcript.push(event));
        let read: Vec<Value> = transcript
            .model_input()
            .iter()
            .filter_map(|message| match message {
                machine::transcript::ModelMessage::Tool { call, text } => Some(json!([call.as_str(), text])),
                machine::transcript::ModelMessage::Note { call, text, .. } => {
                    Some(json!([call.as_str(), text]))
                }
                machine::transcript::ModelMessage::Notice { text } => Some(json!([null, text])),
                _ => None,
            })
            .collect();
        let mut sent: Vec<Value> = story
            .envelopes_as_json()
            .iter()
            .filter(|envelope| envelope["type"] == "message.added")
            .map(|envelope| &envelope["payload"]["message"])
            .filter(|message| message["role"] == "tool" || message["role"] == "note")
            .map(|message| json!([message["call_id"], message["content"]]))
            .collect();
        // The model gets a result directly behind the message that asked for it; the log has it when it came.
        let mut read_sorted = read;
        sent.sort_by_key(Value::to_string);
        read_sorted.sort_by_key(Value::to_string);
        assert_eq!(sent, read_sorted, "{}", story.name);
    }
}

#[test]
fn a_message_waits_for_its_calls_and_then_everything_comes_in_order() {
    let story = stories::named("one_held_call");
    let (thread, run) = story.ids();
    let mut hydrator = EventHydrator::new(thread, run);
    // As it would come over a store that gives no hint of where a commit ends.
    let bare =
        story.committed().into_iter().map(|committed| CommittedEvent { checkpoint: None, ..committed });
    let counts: Vec<usize> = bare.map(|committed| hydrator.hydrate(&committed).len()).collect();
    assert_eq!(counts[..7], [1, 1, 1, 1, 0, 2, 1]);
    assert_eq!(counts.iter().sum::<usize>(), story.events.len());
}

#[test]
fn a_large_result_that_was_dropped_is_read_again_and_shown_alike() {
    let mut story = stories::named("one_held_call");
    for event in &mut story.events {
        if let Fact::ExecutionSucceeded { result, .. } = &mut event.fact {
            *result = Json::from(Value::String("x".repeat(20 * 1024)));
        }
    }
    let (thread, run) = story.ids();
    let mut hydrator = EventHydrator::new(thread, run).dropping_large_events();
    let committed = story.committed();
    let (mut sent, mut read) = (Vec::new(), Vec::new());
    for committed_event in &committed {
        if let Some(seq) = hydrator.missing_event(committed_event) {
            let found = committed.iter().find(|found| found.event.seq == seq).expect("it is in the log");
            hydrator.supply_event(found);
            read.push(found.event.fact.name());
        }
        sent.extend(
            hydrator.hydrate(committed_event).iter().map(|envelope| serde_json::to_value(envelope).unwrap()),
        );
    }
    assert_eq!(sent, story.envelopes_as_json());
    assert_eq!(read, ["tool.execution_succeeded"]);
}

/// The arguments of a call that its tool holds are those of its request, which the event does not repeat.
#[test]
fn large_arguments_that_were_dropped_are_read_again_for_the_suspension() {
    let mut story = stories::named("question_and_expiry");
    let long = json!({"note": "x".repeat(20 * 1024)});
    for event in &mut story.events {
        if let Fact::ToolRequested { arguments, .. } = &mut event.fact {
            *arguments = Arguments::Valid { value: long.clone().into(), digest: arguments.digest() };
        }
    }
    let (thread, run) = story.ids();
    let mut hydrator = EventHydrator::new(thread, run).dropping_large_events();
    let committed = story.committed();
    let (mut sent, mut read) = (Vec::new(), Vec::new());
    for committed_event in &committed {
        if let Some(seq) = hydrator.missing_event(committed_event) {
            let found = committed.iter().find(|found| found.event.seq == seq).expect("it is in the log");
            hydrator.supply_event(found);
            read.push(found.event.fact.name());
        }
        sent.extend(
            hydrator.hydrate(committed_event).iter().map(|envelope| serde_json::to_value(envelope).unwrap()),
        );
    }
    assert_eq!(sent, story.envelopes_as_json());
    assert_eq!(read, ["tool.requested"]);
    let suspended = sent.iter().find(|event| event["type"] == "tool.suspended").unwrap();
    assert_eq!(suspended["payload"]["arguments"], long);
}

/// A stored message that cannot be decoded hides its text, and not the tools of its calls.
#[test]
fn a_call_whose_message_cannot_be_decoded_still_names_its_tool() {
    let story = stories::named("one_held_call");
    let (thread, run) = story.ids();
    let mut hydrator = EventHydrator::new(thread, run);
    let mut tools = Vec::new();
    for committed in story.committed() {
        let is_message = matches!(committed.event.fact, Fact::MessageAdded(Message::Assistant { .. }));
        let entry = if is_message {
            LogEntry::Unreadable(UnreadableEvent {
                seq: committed.event.seq,
                checkpoint: committed.checkpoint,
            })
        } else {
            LogEntry::Event(committed)
        };
        for envelope in hydrator.hydrate_entry(&entry) {
            let sent = serde_json::to_value(&envelope).unwrap();
            if envelope.name.starts_with("tool.") {
                tools.push(sent["payload"]["tool"].clone());
            }
        }
    }
    assert!(tools.len() >= 5 && tools.iter().all(|tool| tool == "transfer"), "{tools:?}");
}
