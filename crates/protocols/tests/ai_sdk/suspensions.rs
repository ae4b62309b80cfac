//! Holds that this protocol cannot answer: they are data parts, and close when they are answered over REST.

use protocols::ai_sdk::{ToolState, UiPart};
use protocols::feed::{Body, SuspensionKind, WaitingOn};
use serde_json::{Value, json};

use crate::chat_client::{Accepted, ChatClient, fold, fresh, fresh_until, normalized};
use crate::run_script::{RunScript, call};

fn suspension(client: &ChatClient) -> &Value {
    let mut found = client.message.parts.iter().filter_map(|part| match part {
        UiPart::Data { name, data, .. } if name == "data-suspension" => Some(data),
        _ => None,
    });
    let data = found.next().unwrap();
    assert!(found.next().is_none(), "two suspensions");
    data
}

#[test]
fn a_question_is_shown_until_it_is_answered() {
    let a = call("a", "ask_user");
    let mut script = RunScript::begun();
    script.answer("", std::slice::from_ref(&a)).executing(&a);
    script.suspend(&a, "apr_q", SuspensionKind::Question).waits_for_approval();
    script.call_resumed(&a, "apr_q").resumed().executing(&a).succeeded(&a, r#""blue""#).ends_with("Blue.");
    let wait = script.waits[0];

    let mut client = ChatClient::of(&fresh_until(&script, wait));
    let shown = json!({
        "suspension_id": "apr_q", "call_id": "a", "tool": "ask_user", "kind": "question", "status": "open",
        "question": "Which one?", "schema": {"type": "string"},
    });
    assert_eq!(suspension(&client), &shown);
    assert_eq!(client.state("a"), ToolState::InputAvailable);
    client.continue_over(&script, &Accepted::default(), script.items.len(), script.items.len());
    assert_eq!(suspension(&client)["status"], "closed");
    assert_eq!(client.state("a"), ToolState::OutputAvailable);
    assert_eq!(normalized(&client.message), normalized(&fold(&fresh(&script))));
}

#[test]
fn each_kind_is_named_and_a_delegated_run_has_its_id() {
    let kinds = [
        (SuspensionKind::External, "external"),
        (SuspensionKind::InDoubt, "in_doubt"),
        (SuspensionKind::ChildRun { run_id: "run_2".into() }, "child_run"),
    ];
    for (kind, name) in kinds {
        let a = call("a", "research");
        let mut script = RunScript::begun();
        script.answer("", std::slice::from_ref(&a)).executing(&a);
        script.stored(Body::ChildStarted { call_id: "a".into(), run_id: "run_2".into() });
        script.suspend(&a, "sus_1", kind.clone()).waits(WaitingOn::Tool);
        let client = ChatClient::of(&fresh(&script));
        assert_eq!(suspension(&client)["kind"], name);
        let child = matches!(kind, SuspensionKind::ChildRun { .. }).then_some("run_2");
        assert_eq!(suspension(&client).get("run_id").and_then(Value::as_str), child);
    }
}

#[test]
fn a_continuation_repeats_no_suspension_that_the_client_has() {
    let (a, b) = (call("a", "ask_user"), call("b", "transfer"));
    let mut script = RunScript::begun();
    script.answer("", &[a.clone(), b.clone()]).executing(&a).ask(&b, "apr_b");
    script.suspend(&a, "apr_q", SuspensionKind::Question).waits_for_approval();
    script.runs_approved(&b, "apr_b").waits_for_approval();
    let [wait_1, wait_2] = script.waits[..] else { panic!("two waits") };
    let mut client = ChatClient::of(&fresh_until(&script, wait_1));
    client.respond("apr_b", true, None);
    let chunks = client.continue_over(&script, &Accepted::approval("apr_b"), wait_1, wait_2);
    assert!(chunks.iter().all(|chunk| chunk.kind() != "data-suspension"));
    assert_eq!(suspension(&client)["status"], "open");
}

#[test]
fn progress_and_logs_are_reported_and_not_kept() {
    let a = call("a", "slow");
    let mut script = RunScript::begun();
    script.answer("", std::slice::from_ref(&a)).executing(&a);
    script.live(Body::ToolLog { call_id: "a".into(), tool: "slow".into(), text: "half".into() });
    script.live(Body::ToolProgress { call_id: "a".into(), tool: "slow".into(), progress: json!(0.5) });
    script.succeeded_with(&a, "1", Some("slow today")).ends_with("Done.");
    let chunks = fresh(&script);
    let sent = crate::chat_client::lines(&chunks);
    assert!(sent.contains(
        &r#"{"type":"data-log","data":{"call_id":"a","text":"half","tool":"slow"},"transient":true}"#.into()
    ));
    assert!(sent.contains(
        &r#"{"type":"data-progress","data":{"call_id":"a","progress":0.5,"tool":"slow"},"transient":true}"#.into()
    ));
    let kept: Vec<Value> = fold(&chunks)
        .parts
        .iter()
        .filter_map(|part| if let UiPart::Data { data, .. } = part { Some(data.clone()) } else { None })
        .collect();
    assert_eq!(kept, [json!({"call_id": "a", "tool": "slow", "text": "slow today"})]);
}
