//! Whole streams, byte for byte, and the streams that the reference server was observed to send.

use protocols::ai_sdk::Chunk;
use protocols::feed::RequestedCall;
use serde_json::json;

use crate::chat_client::{Accepted, ChatClient, fresh_until, lines};
use crate::run_script::{RunScript, call};

/// `sendEmail` is held for approval, approved, and the run ends.
fn email_run() -> RunScript {
    let call = RequestedCall {
        call_id: "call_1".into(),
        tool: "sendEmail".into(),
        arguments: json!({"to": "a@b.c"}),
    };
    let mut script = RunScript::begun();
    script.delta("I will send it.").answer("I will send it.", std::slice::from_ref(&call));
    script.ask(&call, "apr_1").waits_for_approval();
    script.runs_approved(&call, "apr_1").ends_with("Done.");
    script
}

#[test]
fn c91_c96_the_first_stream_ends_when_the_run_waits() {
    let chunks = fresh_until(&email_run(), email_run().waits[0]);
    let expected = [
        r#"{"type":"start","messageId":"msg_run_1","messageMetadata":{"run_id":"run_1","status":"running"}}"#,
        r#"{"type":"start-step"}"#,
        r#"{"type":"text-start","id":"txt-1.1"}"#,
        r#"{"type":"text-delta","id":"txt-1.1","delta":"I will send it."}"#,
        r#"{"type":"text-end","id":"txt-1.1"}"#,
        r#"{"type":"tool-input-start","toolCallId":"call_1","toolName":"sendEmail","dynamic":true}"#,
        r#"{"type":"tool-input-delta","toolCallId":"call_1","inputTextDelta":"{\"to\":\"a@b.c\"}"}"#,
        concat!(
            r#"{"type":"tool-input-available","toolCallId":"call_1","toolName":"sendEmail","#,
            r#""input":{"to":"a@b.c"},"dynamic":true}"#
        ),
        r#"{"type":"tool-approval-request","approvalId":"apr_1","toolCallId":"call_1"}"#,
        r#"{"type":"data-run","data":{"run_id":"run_1","status":"waiting_approval"},"transient":true}"#,
        r#"{"type":"finish-step"}"#,
        r#"{"type":"finish","finishReason":"tool-calls","messageMetadata":{"status":"waiting_approval"}}"#,
    ];
    assert_eq!(lines(&chunks), expected);
}

#[test]
fn the_continuation_resolves_the_call_before_its_first_step() {
    let script = email_run();
    let mut client = ChatClient::of(&fresh_until(&script, script.waits[0]));
    client.respond("apr_1", true, Some("fine"));
    let accepted = Accepted::approval("apr_1");
    let chunks = client.continue_over(&script, &accepted, script.waits[0], script.items.len());
    let expected = [
        r#"{"type":"start","messageId":"msg_run_1","messageMetadata":{"run_id":"run_1","status":"running"}}"#,
        r#"{"type":"data-run","data":{"run_id":"run_1","status":"waiting_approval"},"transient":true}"#,
        r#"{"type":"data-run","data":{"run_id":"run_1","status":"running"},"transient":true}"#,
        concat!(
            r#"{"type":"tool-output-available","toolCallId":"call_1","#,
            r#""output":{"sent":true},"dynamic":true}"#
        ),
        r#"{"type":"start-step"}"#,
        r#"{"type":"text-start","id":"txt-2.1"}"#,
        r#"{"type":"text-delta","id":"txt-2.1","delta":"Done."}"#,
        r#"{"type":"text-end","id":"txt-2.1"}"#,
        r#"{"type":"finish-step"}"#,
        r#"{"type":"data-run","data":{"run_id":"run_1","status":"completed"},"transient":true}"#,
        concat!(
            r#"{"type":"finish","finishReason":"stop","messageMetadata":{"status":"completed","#,
            r#""termination":{"reason":"natural_end"},"usage":{"input_tokens":10,"output_tokens":5}}}"#
        ),
    ];
    assert_eq!(lines(&chunks), expected);
}

/// The stream with the reference server's ids, and without what is ours: metadata, data parts and the mark of tools
/// that the front end does not know.
fn as_the_reference(chunks: &[Chunk]) -> Vec<String> {
    let mut shown = Vec::new();
    for chunk in chunks {
        let mut json = serde_json::to_value(chunk).unwrap();
        let fields = json.as_object_mut().unwrap();
        if chunk.kind().starts_with("data-") {
            continue;
        }
        fields.remove("messageMetadata");
        fields.remove("dynamic");
        if let Some(id) = fields.get_mut("id") {
            *id = json!("txt-0");
        }
        if let Some(id) = fields.get_mut("messageId") {
            *id = json!("srv-msg-1");
        }
        shown.push(json.to_string());
    }
    shown
}

fn sorted(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap().to_string()).collect()
}

#[test]
fn both_streams_are_those_of_the_reference_server() {
    let script = email_run();
    let first = fresh_until(&script, script.waits[0]);
    let reference = [
        r#"{"type":"start","messageId":"srv-msg-1"}"#,
        r#"{"type":"start-step"}"#,
        r#"{"type":"text-start","id":"txt-0"}"#,
        r#"{"type":"text-delta","id":"txt-0","delta":"I will send it."}"#,
        r#"{"type":"text-end","id":"txt-0"}"#,
        r#"{"type":"tool-input-start","toolCallId":"call_1","toolName":"sendEmail"}"#,
        r#"{"type":"tool-input-delta","toolCallId":"call_1","inputTextDelta":"{\"to\":\"a@b.c\"}"}"#,
        r#"{"type":"tool-input-available","toolCallId":"call_1","toolName":"sendEmail","input":{"to":"a@b.c"}}"#,
        r#"{"type":"tool-approval-request","approvalId":"apr_1","toolCallId":"call_1"}"#,
        r#"{"type":"finish-step"}"#,
        r#"{"type":"finish","finishReason":"tool-calls"}"#,
    ];
    assert_eq!(as_the_reference(&first), sorted(&reference));

    let mut client = ChatClient::of(&first);
    client.respond("apr_1", true, None);
    let accepted = Accepted::approval("apr_1");
    let second = client.continue_over(&script, &accepted, script.waits[0], script.items.len());
    let reference = [
        r#"{"type":"start","messageId":"srv-msg-1"}"#,
        r#"{"type":"tool-output-available","toolCallId":"call_1","output":{"sent":true}}"#,
        r#"{"type":"start-step"}"#,
        r#"{"type":"text-start","id":"txt-0"}"#,
        r#"{"type":"text-delta","id":"txt-0","delta":"Done."}"#,
        r#"{"type":"text-end","id":"txt-0"}"#,
        r#"{"type":"finish-step"}"#,
        r#"{"type":"finish","finishReason":"stop"}"#,
    ];
    assert_eq!(as_the_reference(&second), sorted(&reference));
}

#[test]
fn a_sibling_that_needs_no_approval_has_its_output_in_the_first_stream() {
    let (held, free) = (call("call_1", "transfer"), call("call_2", "add"));
    let mut script = RunScript::begun();
    script.answer("", &[held.clone(), free.clone()]).ask(&held, "apr_1");
    script.executing(&free).succeeded(&free, "3").waits_for_approval();
    let kinds: Vec<String> =
        fresh_until(&script, script.waits[0]).iter().map(|chunk| chunk.kind().to_owned()).collect();
    assert_eq!(
        kinds,
        [
            "start",
            "start-step",
            "tool-input-start",
            "tool-input-delta",
            "tool-input-available",
            "tool-input-start",
            "tool-input-delta",
            "tool-input-available",
            "tool-approval-request",
            "tool-output-available",
            "data-run",
            "finish-step",
            "finish"
        ]
    );
}
