//! The streams that front ends get of the golden logs, frame by frame, against files that were read by a person. A client
//! answers whatever the log says was answered, and gets one stream after the other until the run has ended.
//!
//! `GOLDEN_WRITE=1` rewrites the files; read what changed in them before you commit it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use holdpoint_http::wire::feed::event_item;
use protocols::ag_ui::{AgUiEncoder, AgUiRequest, AgUiSegment, AgUiVerifier};
use protocols::ai_sdk::{ChatAction, ChunkEncoder, ChunkVerifier, MessageReducer, UiMessage, parse_request};
use protocols::feed::{Body, Item};
use serde_json::{Value, json};

use crate::snapshots::compare_with_files;
use crate::stories::{self, Story};

/// One front end that executes no tools.
struct Feed {
    items: Vec<Item>,
    /// For each item, the number of items up to the end of its commit.
    commit_ends: Vec<usize>,
}

impl Feed {
    fn of(story: &Story) -> Self {
        let (mut items, mut commit_ends) = (Vec::new(), Vec::new());
        for envelope in story.envelopes() {
            let ends_commit = envelope.checkpoint.is_some();
            items.push(event_item(envelope));
            if ends_commit {
                commit_ends.resize(items.len(), items.len());
            }
        }
        commit_ends.resize(items.len(), items.len());
        Self { items, commit_ends }
    }

    fn ends_commit(&self, index: usize) -> bool {
        self.commit_ends[index] == index + 1
    }

    /// What is answered in the commit that begins with this item.
    fn answered_from(&self, index: usize) -> BTreeSet<String> {
        let end = self.commit_ends.get(index).copied().unwrap_or(index);
        let answered = self.items[index..end].iter().filter_map(|item| match &item.body {
            Body::Approved { approval_id: id, .. }
            | Body::Denied { approval_id: id, .. }
            | Body::CallResumed { suspension_id: id, .. } => Some(id.clone()),
            _ => None,
        });
        answered.collect()
    }
}

/// The chunks of each stream of the AI SDK.
fn ai_sdk_streams(feed: &Feed) -> Vec<Vec<String>> {
    let (mut streams, mut message, mut stored) = (Vec::new(), None, 0);
    while stored < feed.items.len() {
        let (mut encoder, mut verifier) = continued(message.as_ref());
        let mut chunks = Vec::new();
        let mut read = 0;
        while read < feed.items.len() && !encoder.is_done() {
            encoder.push(&feed.items[read], &mut chunks);
            if read >= stored && feed.ends_commit(read) {
                encoder.idle(&mut chunks);
            }
            read += 1;
        }
        let mut reducer = message.map_or_else(MessageReducer::default, MessageReducer::continuing);
        for chunk in &chunks {
            verifier.check(chunk).unwrap();
            reducer.apply(chunk);
        }
        verifier.end().unwrap();
        streams.push(chunks.iter().map(|chunk| serde_json::to_string(chunk).unwrap()).collect());
        message = Some(reducer.into_message());
        stored = read;
    }
    streams
}

fn continued(message: Option<&UiMessage>) -> (ChunkEncoder, ChunkVerifier) {
    let Some(message) = message else { return (ChunkEncoder::new(BTreeSet::new()), ChunkVerifier::new()) };
    let body = json!({"id": "thr_1", "messages": [message], "trigger": "submit-message"});
    match parse_request(&body).unwrap().action {
        ChatAction::Continue { message_id, seen, .. } => (
            ChunkEncoder::continuing(BTreeSet::new(), seen.clone()),
            ChunkVerifier::continuing(&message_id, &seen),
        ),
        other => panic!("{other:?}"),
    }
}

/// The events of each stream of AG-UI.
fn ag_ui_streams(feed: &Feed, version: Option<&str>) -> Vec<Vec<String>> {
    let (mut streams, mut read) = (Vec::new(), 0);
    while read < feed.items.len() {
        let segment = segment(feed, read, streams.len() + 1, version);
        let mut verifier = AgUiVerifier::new(segment.dialect);
        let mut encoder = AgUiEncoder::new(segment);
        let mut events = encoder.start();
        let past = &feed.items[..read];
        past.iter().for_each(|item| events.extend(encoder.push(item)));
        let begin = read;
        while read < feed.items.len() && !encoder.is_done() {
            events.extend(encoder.push(&feed.items[read]));
            read += 1;
        }
        // Nothing was answered, so the run continues without this client.
        if read == begin {
            read = feed.commit_ends[begin];
        }
        for event in &events {
            verifier.check(&event.to_value()).unwrap();
        }
        streams.push(events.iter().map(|event| event.to_json()).collect());
    }
    streams
}

fn segment(feed: &Feed, read: usize, number: usize, version: Option<&str>) -> AgUiSegment {
    let mut input = json!({"threadId": "thr_1", "runId": format!("segment-{number}"), "state": {}, "messages": [],
        "tools": [], "context": [], "forwardedProps": {}});
    if let Some(version) = version {
        input["protocolVersion"] = Value::from(version);
    }
    let request = AgUiRequest::parse(&input).unwrap();
    let new_after = feed.items[..read].iter().filter_map(|item| item.seq).max().unwrap_or(0);
    AgUiSegment { new_after, decided: feed.answered_from(read), ..AgUiSegment::for_request(&request) }
}

fn text(feed: &Feed) -> String {
    let mut text = String::new();
    for (protocol, streams) in [
        ("the AI SDK", ai_sdk_streams(feed)),
        ("AG-UI 1.0", ag_ui_streams(feed, Some("1.0"))),
        ("AG-UI before 1.0", ag_ui_streams(feed, None)),
    ] {
        for (index, frames) in streams.iter().enumerate() {
            writeln!(text, "== {protocol}, stream {}\n{}", index + 1, frames.join("\n")).unwrap();
        }
    }
    text
}

#[test]
fn every_front_end_is_sent_what_it_always_was() {
    let streams: BTreeMap<String, String> =
        stories::all().iter().map(|story| (format!("{}.txt", story.name), text(&Feed::of(story)))).collect();
    compare_with_files("golden_streams", &streams);
}
