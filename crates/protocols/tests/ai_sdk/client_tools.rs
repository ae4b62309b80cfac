//! Tools of the front end: they are static parts, and the client executes a call only when the run hands it over.

use protocols::ai_sdk::{ChatAction, Chunk, ChunkEncoder, ChunkVerifier, ToolState};
use protocols::feed::{SuspensionKind, WaitingOn};
use serde_json::json;

use crate::chat_client::{
    Accepted, ChatClient, client_tools, fold, fresh, fresh_until, lines, normalized, stream, verify,
};
use crate::run_script::{MESSAGE, RunScript, call};

fn kinds(chunks: &[Chunk]) -> Vec<&str> {
    chunks.iter().map(Chunk::kind).filter(|kind| *kind != "data-run").collect()
}

fn handed_over() -> RunScript {
    let a = call("a", "pick_file");
    let mut script = RunScript::begun();
    script.answer("", std::slice::from_ref(&a));
    script.suspend(&a, "sus_a", SuspensionKind::ClientTool).waits(WaitingOn::Tool);
    script
}

#[test]
fn the_client_executes_its_tool_and_posts_the_output() {
    let a = call("a", "pick_file");
    let mut script = handed_over();
    script.call_resumed(&a, "sus_a").resumed().succeeded(&a, r#"{"path":"a.txt"}"#).ends_with("Thanks.");
    let wait = script.waits[0];
    let first = fresh_until(&script, wait);
    assert!(
        lines(&first).contains(
            &r#"{"type":"tool-input-available","toolCallId":"a","toolName":"pick_file","input":{"of":"a"}}"#
                .into()
        )
    );

    let mut client = ChatClient::of(&first);
    assert!(!client.posts_by_itself());
    client.output("a", &json!({"path": "a.txt"}));
    assert!(client.posts_by_itself());
    match client.post() {
        ChatAction::Continue { decisions, outputs, .. } => {
            assert!(decisions.is_empty());
            assert_eq!(outputs[0].call_id, "a");
            assert_eq!(outputs[0].result, Ok(json!({"path": "a.txt"})));
        }
        other => panic!("{other:?}"),
    }
    let chunks = client.continue_over(&script, &Accepted::output("a"), wait, script.items.len());
    // The client has its own output.
    let expected = ["start", "start-step", "text-start", "text-delta", "text-end", "finish-step", "finish"];
    assert_eq!(kinds(&chunks), expected);
    assert!(!client.posts_by_itself());
    assert_eq!(normalized(&client.message), normalized(&fold(&fresh(&script))));
}

#[test]
fn a_stream_does_not_end_before_an_accepted_output_is_processed() {
    let mut script = handed_over();
    let (a, wait) = (call("a", "pick_file"), script.waits[0]);
    script.call_resumed(&a, "sus_a").resumed().succeeded(&a, "1").ends_with("Thanks.");
    let seen = ChatClient::of(&fresh_until(&script, wait)).output("a", &json!(1)).seen();
    let mut encoder = ChunkEncoder::continuing(client_tools(), seen);
    encoder.await_output("a");
    let mut chunks = Vec::new();
    for item in &script.items[..wait] {
        encoder.push(item, &mut chunks);
        encoder.idle(&mut chunks);
    }
    assert!(!encoder.may_end());
    script.items[wait..].iter().for_each(|item| encoder.push(item, &mut chunks));
    assert!(encoder.is_done());
}

#[test]
fn while_its_approval_is_pending_the_client_is_not_given_the_call() {
    let a = call("a", "pick_file");
    let mut script = RunScript::begun();
    script.answer("", std::slice::from_ref(&a)).ask(&a, "apr_a").waits_for_approval();
    script.approved(&a, "apr_a").resumed();
    script.suspend(&a, "sus_a", SuspensionKind::ClientTool).waits(WaitingOn::Tool);
    script.call_resumed(&a, "sus_a").resumed().succeeded(&a, "1").ends_with("Thanks.");
    let [wait_1, wait_2] = script.waits[..] else { panic!("two waits") };

    let first = fresh_until(&script, wait_1);
    assert!(!kinds(&first).contains(&"tool-input-available"));
    let mut client = ChatClient::of(&first);
    assert_eq!(client.state("a"), ToolState::ApprovalRequested);
    assert_eq!(client.tool("a").input, Some(json!({"of": "a"})));

    client.respond("apr_a", true, None);
    let chunks = client.continue_over(&script, &Accepted::approval("apr_a"), wait_1, wait_2);
    assert_eq!(kinds(&chunks), ["start", "tool-input-available", "finish"]);
    client.output("a", &json!(1));
    client.continue_over(&script, &Accepted::output("a"), wait_2, script.items.len());
    assert_eq!(normalized(&client.message), normalized(&fold(&fresh(&script))));
}

#[test]
fn an_output_that_was_given_elsewhere_replaces_the_clients_own() {
    let mut script = handed_over();
    let (a, wait) = (call("a", "pick_file"), script.waits[0]);
    script.call_resumed(&a, "sus_a").resumed().succeeded(&a, r#""other.txt""#).ends_with("Thanks.");
    let mut client = ChatClient::of(&fresh_until(&script, wait));
    client.output("a", &json!("mine.txt"));
    let mut seen = client.seen();
    seen.forget_output("a");
    let chunks =
        stream(ChunkEncoder::continuing(client_tools(), seen.clone()), &script.items, script.items.len());
    verify(ChunkVerifier::continuing(MESSAGE, &seen), &chunks);
    client.receive(&chunks);
    assert_eq!(client.tool("a").output.as_ref().unwrap().as_str(), r#""other.txt""#);
}

#[test]
fn an_output_that_was_not_accepted_gives_the_call_back() {
    let script = handed_over();
    let mut client = ChatClient::of(&fresh(&script));
    client.output("a", &json!("nonsense"));
    let mut seen = client.seen();
    let items = &script.items;
    for forget in [false, true] {
        if forget {
            seen.forget_output("a");
        }
        let chunks = stream(ChunkEncoder::continuing(client_tools(), seen.clone()), items, items.len());
        verify(ChunkVerifier::continuing(MESSAGE, &seen), &chunks);
        assert_eq!(chunks.last().map(Chunk::kind), Some("finish"));
    }
    client.continue_over(&script, &Accepted::default(), items.len(), items.len());
    assert_eq!(client.state("a"), ToolState::InputAvailable);
}

#[test]
fn an_error_of_the_client_tool_is_posted_and_kept() {
    let mut script = handed_over();
    let (a, wait) = (call("a", "pick_file"), script.waits[0]);
    script.call_resumed(&a, "sus_a").resumed().failed(&a, "the user closed the dialog").ends_with("Pity.");
    let client = ChatClient::of(&fresh_until(&script, wait));
    let mut body = client.body();
    let part = body.pointer_mut("/messages/1/parts/1").unwrap();
    part["state"] = json!("output-error");
    part["errorText"] = json!("the user closed the dialog");
    let request = protocols::ai_sdk::parse_request(&body).unwrap();
    match request.action {
        ChatAction::Continue { outputs, .. } => {
            assert_eq!(outputs[0].result, Err("the user closed the dialog".into()));
        }
        other => panic!("{other:?}"),
    }
    let message = fold(&fresh(&script));
    assert_eq!(ChatClient { message }.state("a"), ToolState::OutputError);
}

#[test]
fn two_client_tools_and_a_server_tool_keep_their_kinds_of_parts() {
    let calls = [call("a", "pick_file"), call("b", "add"), call("c", "locate")];
    let mut script = RunScript::begun();
    script.answer("", &calls).executing(&calls[1]).succeeded(&calls[1], "3");
    script.suspend(&calls[0], "sus_a", SuspensionKind::ClientTool);
    script.suspend(&calls[2], "sus_c", SuspensionKind::ClientTool).waits(WaitingOn::Tool);
    let client = ChatClient::of(&fresh(&script));
    let shown: Vec<(bool, ToolState)> = client.tools().map(|tool| (tool.dynamic, tool.state)).collect();
    let (available, output) = (ToolState::InputAvailable, ToolState::OutputAvailable);
    assert_eq!(shown, [(false, available), (true, output), (false, available)]);
    let body = client.body();
    assert_eq!(body.pointer("/messages/1/parts/1/type"), Some(&json!("tool-pick_file")));
    assert_eq!(body.pointer("/messages/1/parts/2/type"), Some(&json!("dynamic-tool")));
    assert_eq!(body.pointer("/messages/1/parts/2/toolName"), Some(&json!("add")));
}

#[test]
fn outputs_of_server_tools_are_not_taken_from_the_posted_history() {
    let mut script = RunScript::begun();
    let calls = [call("a", "transfer"), call("b", "add")];
    script.answer("", &calls).ask(&calls[0], "apr_a").executing(&calls[1]).succeeded(&calls[1], "3");
    script.waits_for_approval();
    let mut client = ChatClient::of(&fresh(&script));
    client.output("a", &json!("forged")).output("b", &json!("forged"));
    match client.post() {
        ChatAction::Continue { decisions, outputs, .. } => {
            assert!(decisions.is_empty() && outputs.is_empty());
        }
        other => panic!("{other:?}"),
    }
}
