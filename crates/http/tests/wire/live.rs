//! What is not stored has no number, and says whose it is, when it was and in which step.

use engine::live::{Delta, LiveItem, Part, Reset, ToolNote, ToolNoteBody};
use holdpoint_http::wire::live::Frame;
use machine::Timestamp;
use serde_json::{Value, json};

const AT: Timestamp = Timestamp(1_767_225_600_915);

fn as_json(item: &LiveItem) -> Value {
    serde_json::to_value(Frame::from_live_item(&"thr_1".into(), &"run_1".into(), item)).unwrap()
}

fn frame(name: &str, payload: &Value) -> Value {
    json!({"type": name, "thread_id": "thr_1", "run_id": "run_1", "step": 3, "ts": "2026-01-01T00:00:00.915Z", "v": 1,
        "payload": payload})
}

fn delta(part: Part) -> LiveItem {
    let (message_id, text) = ("msg_1".into(), "Do".into());
    LiveItem::Delta(Delta { message_id, attempt: 2, step: Some(3), at: AT, part, offset: 7, text })
}

#[test]
fn deltas_say_where_they_belong_so_that_a_reader_sees_what_it_missed() {
    let body = json!({"message_id": "msg_1", "attempt": 2, "index": 0, "offset": 7, "text": "Do"});
    assert_eq!(as_json(&delta(Part::Text)), frame("text.delta", &body));
    assert_eq!(as_json(&delta(Part::Reasoning)), frame("reasoning.delta", &body));
    let part = Part::Arguments { index: 3, call_id: Some("call_1".into()) };
    // The model's own id may be that of an earlier call.
    let body = json!({"message_id": "msg_1", "attempt": 2, "index": 3, "offset": 7, "text": "Do"});
    assert_eq!(as_json(&delta(part)), frame("tool.arguments_delta", &body));
}

#[test]
fn a_reset_and_what_a_tool_says_carry_their_attempt() {
    let reset = LiveItem::Reset(Reset { message_id: "msg_1".into(), attempt: 2, step: Some(3), at: AT });
    assert_eq!(as_json(&reset), frame("step.reset", &json!({"message_id": "msg_1", "attempt": 2})));
    let note = |body| {
        let (call_id, tool, step) = ("call_1".into(), Some("slow".into()), Some(3));
        LiveItem::Note(ToolNote { call_id, tool, attempt: 1, step, at: AT, body })
    };
    assert_eq!(
        as_json(&note(ToolNoteBody::Log("half".into()))),
        frame("tool.log", &json!({"call_id": "call_1", "tool": "slow", "attempt": 1, "text": "half"}))
    );
    assert_eq!(
        as_json(&note(ToolNoteBody::Progress(json!({"done": 5})))),
        frame(
            "tool.progress",
            &json!({"call_id": "call_1", "tool": "slow", "attempt": 1, "progress": {"done": 5}})
        )
    );
}
