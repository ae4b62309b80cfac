//! A reload and a resumed stream show what was streamed.

use protocols::ai_sdk::{ToolState, UiRole, message_id, run_id_of, run_messages};
use protocols::feed::{Body, Item, SuspensionKind};
use serde_json::json;

use crate::chat_client::{ChatClient, client_tools, fold, fresh, fresh_until, normalized};
use crate::run_script::{RunScript, call};

fn stored(items: &[Item]) -> Vec<Item> {
    items.iter().filter(|item| item.seq.is_some()).cloned().collect()
}

#[test]
fn a_reload_shows_the_pending_approval_and_its_answer_is_accepted() {
    let a = call("a", "transfer");
    let mut script = RunScript::begun();
    script.delta("I will ").delta("send it.").answer("I will send it.", std::slice::from_ref(&a));
    script.ask(&a, "apr_a").waits_for_approval();
    script.runs_approved(&a, "apr_a").ends_with("Done.");
    let wait = script.waits[0];

    let messages = run_messages(&stored(&script.items[..wait]), client_tools());
    let [user, assistant] = &messages[..] else { panic!("two messages") };
    assert_eq!(
        serde_json::to_value(user).unwrap(),
        json!({"id": "user_1", "role": "user", "parts": [{"type": "text", "text": "hi"}]})
    );
    assert_eq!(*assistant, fold(&fresh_until(&script, wait)));

    let mut client = ChatClient { message: assistant.clone() };
    client.respond("apr_a", true, None);
    let accepted = crate::chat_client::Accepted::approval("apr_a");
    client.continue_over(&script, &accepted, wait, script.items.len());
    assert_eq!(client.state("a"), ToolState::OutputAvailable);
    assert_eq!(normalized(&client.message), normalized(&fold(&fresh(&script))));
}

#[test]
fn the_hydrated_message_is_written_as_the_client_writes_it() {
    let (a, b) = (call("a", "transfer"), call("b", "pick_file"));
    let mut script = RunScript::begun();
    script.answer("Now.", &[a.clone(), b.clone()]).ask(&a, "apr_a");
    script.suspend(&b, "sus_b", SuspensionKind::ClientTool).waits_for_approval();
    let messages = run_messages(&script.items, client_tools());
    let expected = json!({
        "id": "msg_run_1",
        "role": "assistant",
        "metadata": {"run_id": "run_1", "status": "waiting_approval"},
        "parts": [
            {"type": "step-start"},
            {"type": "text", "text": "Now.", "state": "done"},
            {"type": "dynamic-tool", "toolName": "transfer", "toolCallId": "a", "state": "approval-requested",
             "input": {"of": "a"}, "approval": {"id": "apr_a"}},
            {"type": "tool-pick_file", "toolCallId": "b", "state": "input-available", "input": {"of": "b"}},
        ],
    });
    assert_eq!(serde_json::to_value(&messages[1]).unwrap(), expected);
}

#[test]
fn a_resumed_stream_replays_the_response_from_its_start() {
    let (a, b) = (call("a", "transfer"), call("b", "slow"));
    let mut script = RunScript::begun();
    script.answer("First.", std::slice::from_ref(&a)).ask(&a, "apr_a").waits_for_approval();
    script.runs_approved(&a, "apr_a").step_ended();
    script.step().answer("Second.", std::slice::from_ref(&b)).executing(&b);
    let running = script.items.len();
    script.succeeded(&b, "1").ends_with("Done.");
    // Everything up to the running call is read at once; the earlier wait does not end the stream.
    let encoder = protocols::ai_sdk::ChunkEncoder::new(client_tools());
    let chunks = crate::chat_client::stream(encoder, &script.items, running);
    crate::chat_client::verify(protocols::ai_sdk::ChunkVerifier::new(), &chunks);
    assert_eq!(normalized(&fold(&chunks)), normalized(&fold(&fresh(&script))));
    assert_eq!(run_messages(&stored(&script.items), client_tools())[1], fold(&chunks));
}

#[test]
fn a_run_without_an_answer_has_only_its_user_message() {
    let mut script = RunScript::default();
    script.stored(Body::RunQueued);
    let content = json!([
        {"type": "text", "text": "Look:"},
        {"type": "file", "media_type": "application/pdf", "url": "data:application/pdf;base64,aGk=", "filename": "a.pdf"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "aGk="}},
        {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}},
        {"type": "cursor", "at": 1},
    ]);
    script.stored(Body::UserMessage { id: "user_1".into(), content });
    let messages = run_messages(&script.items, client_tools());
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].role, UiRole::User);
    let expected = json!([
        {"type": "text", "text": "Look:"},
        {"type": "file", "mediaType": "application/pdf", "filename": "a.pdf", "url": "data:application/pdf;base64,aGk="},
        {"type": "file", "mediaType": "image/jpeg", "url": "data:image/jpeg;base64,aGk="},
        {"type": "file", "mediaType": "image/png", "url": "https://a.example/b.png"},
    ]);
    assert_eq!(serde_json::to_value(&messages[0].parts).unwrap(), expected);
}

#[test]
fn the_message_id_names_the_run() {
    assert_eq!(message_id("run_7"), "msg_run_7");
    assert_eq!(run_id_of("msg_run_7"), Some("run_7"));
    assert_eq!(run_id_of("msg_"), None);
    assert_eq!(run_id_of("x9Kq"), None);
}
