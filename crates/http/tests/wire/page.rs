//! The page about the interface has a line for every route, every type of event and every code of a failure, and for
//! nothing else.

use std::collections::BTreeSet;

use engine::live::{Delta, LiveItem, Part, Reset, ToolNote, ToolNoteBody};
use engine::store::UnreadableEvent;
use holdpoint_http::openapi;
use holdpoint_http::wire::event::Envelope;
use holdpoint_http::wire::live::Frame;
use machine::Timestamp;
use machine::event::CallErrorCode;
use serde_json::{Value, json};

use crate::keys::PAYLOADS;

/// What the tables below this heading have in their first column.
fn described(heading: &str) -> BTreeSet<String> {
    let page = include_str!("../../../../docs/http.md");
    let (_, below) = page.split_once(&format!("\n## {heading}\n")).expect("the page has this heading");
    let section = below.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let mut names = BTreeSet::new();
    for (name, meaning) in rows {
        assert!(meaning.len() > 10, "{name} has no meaning");
        assert!(names.insert(name.to_owned()), "{name} is listed twice");
    }
    names
}

fn document() -> Value {
    serde_json::to_value(openapi()).expect("it is JSON")
}

#[test]
fn every_route_has_a_line() {
    let mut routes = BTreeSet::new();
    for (path, item) in document()["paths"].as_object().expect("paths") {
        let methods = item.as_object().expect("operations").keys();
        routes.extend(methods.map(|method| format!("{} {path}", method.to_uppercase())));
    }
    assert_eq!(described("Every route"), routes);
}

#[test]
fn every_type_of_event_has_a_line() {
    let stored = PAYLOADS.iter().map(|(name, ..)| (*name).to_owned());
    let live = live_items()
        .into_iter()
        .map(|item| Frame::from_live_item(&"thr_1".into(), &"run_1".into(), &item).name.to_owned());
    let unreadable = UnreadableEvent { seq: 1, checkpoint: None };
    let unreadable = Envelope::unreadable(&"thr_1".into(), &"run_1".into(), &unreadable).name.to_owned();
    assert_eq!(described("Every type of event"), stored.chain(live).chain([unreadable]).collect());
}

/// One of each kind.
pub(crate) fn live_items() -> Vec<LiveItem> {
    let (attempt, step, at) = (1, Some(1), Timestamp(0));
    let delta = |part| {
        let (message_id, text) = ("msg_1".into(), "a".into());
        Delta { message_id, attempt, step, at, part, offset: 0, text }
    };
    let note = |body| {
        let (call_id, tool) = ("call_1".into(), Some("slow".into()));
        ToolNote { call_id, tool, attempt, step, at, body }
    };
    let parts = [Part::Text, Part::Reasoning, Part::Arguments { index: 0, call_id: None }];
    let notes = [ToolNoteBody::Log("half".into()), ToolNoteBody::Progress(json!(1))];
    let mut items = vec![LiveItem::Reset(Reset { message_id: "msg_1".into(), attempt, step, at })];
    items.extend(parts.into_iter().map(|part| LiveItem::Delta(delta(part))));
    items.extend(notes.into_iter().map(|body| LiveItem::Note(note(body))));
    items.iter().for_each(is_one_of_these);
    items
}

/// Without a wildcard: a further kind has to be added above.
#[deny(clippy::wildcard_enum_match_arm, reason = "the others have to be listed")]
fn is_one_of_these(item: &LiveItem) {
    match item {
        LiveItem::Reset { .. } => {}
        LiveItem::Delta(delta) => match delta.part {
            Part::Text | Part::Reasoning | Part::Arguments { .. } => {}
        },
        LiveItem::Note(note) => match note.body {
            ToolNoteBody::Log(_) | ToolNoteBody::Progress(_) => {}
        },
    }
}

#[test]
fn every_code_of_a_failed_call_has_a_line() {
    let mut codes = BTreeSet::new();
    let mut next = Some(CallErrorCode::ToolError);
    while let Some(code) = next {
        let name = serde_json::to_value(code).expect("a word");
        codes.insert(name.as_str().expect("a word").to_owned());
        next = after(code);
    }
    assert_eq!(described("Why a call failed"), codes);
}

/// Each leads to the next: a further one breaks the chain, and has to be put into it.
#[deny(clippy::wildcard_enum_match_arm, reason = "the others have to be listed")]
const fn after(code: CallErrorCode) -> Option<CallErrorCode> {
    use CallErrorCode as Code;
    Some(match code {
        Code::ToolError => Code::PluginError,
        Code::PluginError => Code::BlockedByPlugin,
        Code::BlockedByPlugin => Code::BlockedByPolicy,
        Code::BlockedByPolicy => Code::DeniedByRule,
        Code::DeniedByRule => Code::UnknownTool,
        Code::UnknownTool => Code::OutOfScope,
        Code::OutOfScope => Code::ToolRemoved,
        Code::ToolRemoved => Code::BadArguments,
        Code::BadArguments => Code::ArgumentsChanged,
        Code::ArgumentsChanged => Code::GateFailed,
        Code::GateFailed => Code::AskedTooOften,
        Code::AskedTooOften => Code::StateFull,
        Code::StateFull => Code::NotSent,
        Code::NotSent => Code::NoAnswer,
        Code::NoAnswer => Code::TooDeep,
        Code::TooDeep => Code::TooManyChildren,
        Code::TooManyChildren => Code::TooManyDescendants,
        Code::TooManyDescendants => Code::BudgetSpent,
        Code::BudgetSpent => Code::ChildFailed,
        Code::ChildFailed => return None,
    })
}

#[test]
fn every_code_of_a_failed_run_has_a_line() {
    let document = document();
    let codes = document["components"]["schemas"]["RunErrorCode"]["enum"].as_array().expect("the codes");
    let codes: BTreeSet<String> =
        codes.iter().map(|code| code.as_str().expect("a word").to_owned()).collect();
    assert_eq!(described("Why a run failed"), codes);
}
