//! What a request asks for, by what the thread has.

use protocols::ag_ui::{AgUiAsk, AgUiRequest, AgUiThreadView};
use serde_json::{Value, json};

fn user(id: &str) -> Value {
    json!({"id": id, "role": "user", "content": id})
}

fn tool(id: &str, call_id: &str) -> Value {
    json!({"id": id, "role": "tool", "toolCallId": call_id, "content": id})
}

fn assistant(id: &str) -> Value {
    json!({"id": id, "role": "assistant", "content": id})
}

fn request(messages: &[Value], resume: Value, forwarded_props: Value) -> AgUiRequest {
    let body = json!({
        "threadId": "t", "runId": "r", "messages": messages, "resume": resume, "forwardedProps": forwarded_props,
    });
    AgUiRequest::parse(&body).unwrap()
}

fn posted(messages: &[Value]) -> AgUiRequest {
    request(messages, json!([]), json!({}))
}

fn thread(messages: &[&str], client_calls: &[&str], interrupts: &[(&str, &str)]) -> AgUiThreadView {
    let owned = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
    AgUiThreadView {
        message_ids: owned(messages),
        open_client_calls: owned(client_calls),
        open_interrupts: interrupts.iter().map(|(id, call)| ((*id).to_owned(), (*call).to_owned())).collect(),
    }
}

fn ids(ask: &AgUiAsk) -> (Vec<&str>, Vec<&str>, Vec<&str>) {
    match ask {
        AgUiAsk::NewMessage { messages } => {
            (Vec::new(), Vec::new(), messages.iter().map(|message| message.id.as_str()).collect())
        }
        AgUiAsk::ToolResults { tool_results, messages } => (
            Vec::new(),
            tool_results.iter().map(|result| result.message_id.as_str()).collect(),
            messages.iter().map(|message| message.id.as_str()).collect(),
        ),
        AgUiAsk::Resume { entries, tool_results, messages } => (
            entries.iter().map(|entry| entry.interrupt_id.as_str()).collect(),
            tool_results.iter().map(|result| result.message_id.as_str()).collect(),
            messages.iter().map(|message| message.id.as_str()).collect(),
        ),
        AgUiAsk::Regenerate { message } => (Vec::new(), Vec::new(), vec![&message.id]),
        AgUiAsk::Nothing => (Vec::new(), Vec::new(), Vec::new()),
    }
}

#[test]
fn message_that_the_thread_does_not_have_is_new() {
    let ask = posted(&[user("u1"), assistant("a1"), user("u2")]).ask(&thread(&["u1", "a1"], &[], &[]));
    assert!(matches!(ask, AgUiAsk::NewMessage { .. }));
    assert_eq!(ids(&ask).2, ["u2"]);
}

#[test]
fn all_new_messages_at_the_end_are_listed_oldest_first() {
    let history = [user("u1"), assistant("a1"), user("u2"), user("u3")];
    assert_eq!(ids(&posted(&history).ask(&thread(&["u1"], &[], &[]))).2, ["u2", "u3"]);
    assert_eq!(ids(&posted(&history).ask(&thread(&["u1", "u2"], &[], &[]))).2, ["u3"]);
}

#[test]
fn edited_history_adds_no_message_before_the_answer() {
    let forged = [user("never-sent"), assistant("a1")];
    assert_eq!(posted(&forged).ask(&thread(&["u1"], &[], &[])), AgUiAsk::Nothing);
}

#[test]
fn history_that_ends_with_a_known_message_asks_for_another_answer() {
    let ask = posted(&[user("u1")]).ask(&thread(&["u1", "a1"], &[], &[]));
    assert!(matches!(&ask, AgUiAsk::Regenerate { message } if message.id == "u1"));
}

#[test]
fn only_results_of_calls_that_wait_for_the_client_are_taken() {
    let history = [user("u1"), tool("forged", "c9"), tool("old", "c1"), tool("new", "c1")];
    let ask = posted(&history).ask(&thread(&["u1"], &["c1", "c2"], &[]));
    assert!(matches!(ask, AgUiAsk::ToolResults { .. }));
    assert_eq!(ids(&ask).1, ["new"]);
    assert_eq!(posted(&history).ask(&thread(&["u1"], &[], &[])), AgUiAsk::Nothing);
}

#[test]
fn new_message_beside_a_result_is_carried_along() {
    let ask = posted(&[user("u1"), tool("x1", "c1"), user("u2")]).ask(&thread(&["u1"], &["c1"], &[]));
    assert_eq!(ids(&ask), (Vec::new(), vec!["x1"], vec!["u2"]));
}

#[test]
fn resume_comes_first_and_tool_messages_under_an_interrupt_are_ignored() {
    let history = [user("u1"), tool("synthetic", "c1"), tool("x2", "c2")];
    let answers = json!([{"interruptId": "i1", "status": "resolved", "payload": {"approved": true}}]);
    let thread = thread(&["u1"], &["c1", "c2"], &[("i1", "c1")]);
    let ask = request(&history, answers, json!({})).ask(&thread);
    assert!(matches!(ask, AgUiAsk::Resume { .. }));
    assert_eq!(ids(&ask), (vec!["i1"], vec!["x2"], Vec::new()));
}

#[test]
fn stale_answers_are_carried_with_the_new_message_that_needed_them() {
    let answers = json!([{"interruptId": "gone", "status": "cancelled"}]);
    let ask = request(&[user("u1"), user("u2")], answers, json!({})).ask(&thread(&["u1"], &[], &[]));
    assert_eq!(ids(&ask), (vec!["gone"], Vec::new(), vec!["u2"]));
}

/// It names no interrupt: the same request sent again would decide the next one.
#[test]
fn an_answer_in_the_form_that_names_no_interrupt_decides_nothing() {
    for answer in [json!("{\"approved\":true}"), json!({"approved": true}), json!({"choice": "retry"})] {
        let legacy = json!({"command": {"resume": answer}});
        for open in [&[("i1", "c1")][..], &[]] {
            let ask = request(&[user("u1"), assistant("a1")], json!([]), legacy.clone());
            assert_eq!(ask.ask(&thread(&["u1"], &[], open)), AgUiAsk::Nothing);
        }
    }
}
