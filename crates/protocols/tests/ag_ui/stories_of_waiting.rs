//! Runs that wait: approvals, questions, doubts, client tools, external results and delegated calls, over several
//! segments.

use std::collections::BTreeMap;

use protocols::ag_ui::{
    AgUiAnswerable, AgUiConversation, AgUiDelegatedHold, AgUiDialect, AgUiEncoder, AgUiMessage, AgUiSegment,
};
use protocols::feed::{Body, RequestedCall, RunEnd, Suspension, SuspensionKind, WaitingOn};
use serde_json::{Value, json};

use crate::client::Client;
use crate::feed_story::{DIALECTS, Story, Stream, call, play, segment, transfer, version};

fn asked() -> Client {
    Client::with_user_message("u1", "Pay")
}

fn play_first(client: &mut Client, dialect: AgUiDialect, story: &Story) -> Stream {
    let segment = segment(client, dialect, "r1", 0);
    play(client, segment, &story.items)
}

/// The segment of a request that answers these approvals and suspensions.
fn answering(client: &Client, dialect: AgUiDialect, new_after: u64, decided: &[&str]) -> AgUiSegment {
    let decided = decided.iter().map(|id| (*id).to_owned()).collect();
    AgUiSegment { decided, ..segment(client, dialect, "r2", new_after) }
}

fn ids(interrupts: &[Value]) -> Vec<&str> {
    interrupts.iter().map(|interrupt| interrupt["id"].as_str().unwrap()).collect()
}

/// One call that waits for `apr_1`.
fn held(to: &str) -> (Story, RequestedCall) {
    let pay = transfer("call_1", to);
    let mut story = Story::begin("Pay");
    story.start_step().answer("I will.", std::slice::from_ref(&pay)).ask_approval(&pay, "apr_1");
    story.wait(WaitingOn::Approval);
    (story, pay)
}

#[test]
fn x31_held_call_ends_the_segment_with_snapshots_and_an_interrupt() {
    for dialect in DIALECTS {
        let (story, _) = held("bob");
        let mut client = asked();
        let stream = play_first(&mut client, dialect, &story);
        let types = [
            "TOOL_CALL_START",
            "TOOL_CALL_ARGS",
            "TOOL_CALL_END",
            "STEP_FINISHED",
            "MESSAGES_SNAPSHOT",
            "STATE_SNAPSHOT",
            "RUN_FINISHED",
        ];
        assert_eq!(stream.types()[stream.events.len() - 7..], types);
        let reason = match dialect {
            AgUiDialect::V1_0 => "tool_call",
            AgUiDialect::Before => "holdpoint:approval",
        };
        let edited = json!({"type": "object", "description": "Replaces all arguments. Absent: they stay as they are."});
        let interrupt = json!({
            "id": "apr_1", "reason": reason, "message": "The agent wants to call `transfer`. Approve?",
            "toolCallId": "call_1",
            "responseSchema": {
                "type": "object",
                "properties": {
                    "approved": {"type": "boolean"}, "editedArgs": edited,
                    "reason": {"type": "string", "description": "Why the call is denied."},
                },
                "required": ["approved"],
            },
            "metadata": {"kind": "approval", "tool": "transfer", "arguments": {"amount": 5, "to": "bob"}},
        });
        assert_eq!(client.interrupts, [interrupt]);
    }
}

#[test]
fn approved_call_continues_with_its_result_and_is_not_streamed_again() {
    for dialect in DIALECTS {
        let (mut story, pay) = held("bob");
        let mut client = asked();
        play_first(&mut client, dialect, &story);
        let segment = answering(&client, dialect, story.last_seq(), &["apr_1"]);
        story.approve(&pay, "apr_1", None).resume().execute(&pay).succeed(&pay, r#"{"receipt":"r-77"}"#);
        story.tool_message(&pay, r#"{"receipt":"r-77"}"#).end_step().final_answer("Paid.");
        let stream = play(&mut client, segment, &story.items);
        let types = [
            "RUN_STARTED",
            "CUSTOM",
            "MESSAGES_SNAPSHOT",
            "STATE_SNAPSHOT",
            "TOOL_CALL_RESULT",
            "STEP_STARTED",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "STEP_FINISHED",
            "MESSAGES_SNAPSHOT",
            "RUN_FINISHED",
        ];
        assert_eq!(stream.types(), types);
        assert_eq!(stream.all("TOOL_CALL_RESULT")[0]["toolCallId"], "call_1");
        assert_eq!(stream.last().get("usage"), None, "the counts are those of both segments");
        assert_eq!(client.messages.len(), 4);
        assert_eq!(client.messages[2]["content"], r#"{"receipt":"r-77"}"#);
        assert!(client.interrupts.is_empty());
    }
}

#[test]
fn snapshot_at_the_end_restores_a_result_that_copilotkit_replaced() {
    let (mut story, pay) = held("bob");
    let mut client = asked();
    play_first(&mut client, AgUiDialect::Before, &story);
    let synthetic = json!({
        "id": "synthetic", "role": "tool", "toolCallId": "call_1", "content": "{\"approved\":true}",
    });
    client.messages.push(synthetic);
    let segment = answering(&client, AgUiDialect::Before, story.last_seq(), &["apr_1"]);
    story.approve(&pay, "apr_1", None).resume().succeed(&pay, r#""paid""#).tool_message(&pay, "paid");
    story.end_step().final_answer("Paid.");
    let stream = play(&mut client, segment, &story.items);
    assert!(stream.all("TOOL_CALL_RESULT")[0]["messageId"] == "msg_call_1");
    let results: Vec<_> = client.messages.iter().filter(|message| message["role"] == "tool").collect();
    assert_eq!(results.len(), 1);
    assert_eq!(results[0]["content"], "paid");
}

#[test]
fn denied_call_has_the_denial_as_its_result() {
    for dialect in DIALECTS {
        let (mut story, pay) = held("bob");
        let mut client = asked();
        play_first(&mut client, dialect, &story);
        let segment = answering(&client, dialect, story.last_seq(), &["apr_1"]);
        story.deny(&pay, "apr_1", "ana", "not today").resume();
        story.tool_message(&pay, "Denied by ana: not today").end_step().final_answer("No transfer.");
        play(&mut client, segment, &story.items);
        assert_eq!(client.messages[2]["content"], "Denied by ana: not today");
        assert_eq!(client.messages[3]["content"], "No transfer.");
    }
}

#[test]
fn expired_approval_is_a_denial_and_its_expiry_is_shown_to_newer_clients_alone() {
    for dialect in DIALECTS {
        let pay = transfer("call_1", "bob");
        let mut story = Story::begin("Pay");
        let expires_at = Some("2026-01-01T00:01:00.000Z".to_owned());
        story.start_step().answer("", std::slice::from_ref(&pay));
        story.event(Body::ApprovalRequested { call: pay.clone(), approval_id: "apr_1".into(), expires_at });
        story.wait(WaitingOn::Approval);
        let mut client = asked();
        play_first(&mut client, dialect, &story);
        let expiry = client.interrupts[0].get("expiresAt").cloned();
        assert_eq!(expiry.is_some(), dialect == AgUiDialect::V1_0);
        story.deny(&pay, "apr_1", "system", "expired").resume();
        story.tool_message(&pay, "Denied by system: expired").end_step().final_answer("Too late.");
        // The client comes back when everything is over.
        let segment = answering(&client, dialect, story.last_seq(), &[]);
        let stream = play(&mut client, segment, &story.items);
        let types = ["RUN_STARTED", "CUSTOM", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "RUN_FINISHED"];
        assert_eq!(stream.types(), types);
        assert_eq!(client.messages[2]["content"], "Denied by system: expired");
        assert!(client.interrupts.is_empty(), "a thread that cannot be answered any more must not wedge");
    }
}

#[test]
fn edited_arguments_are_named_in_the_result_and_the_call_keeps_the_models_own() {
    for dialect in DIALECTS {
        let (mut story, pay) = held("bob");
        let mut client = asked();
        let mut first = segment(&client, dialect, "r1", 0);
        let schema = json!({"type": "object", "required": ["to"], "properties": {"to": {"type": "string"}}});
        first.tool_schemas = BTreeMap::from([("transfer".to_owned(), schema)]);
        play(&mut client, first, &story.items);
        let edited = &client.interrupts[0]["responseSchema"]["properties"]["editedArgs"];
        assert_eq!(edited["required"], json!(["to"]));
        let segment = answering(&client, dialect, story.last_seq(), &["apr_1"]);
        story
            .approve(&pay, "apr_1", Some(json!({"amount": 1, "to": "bob"})))
            .resume()
            .succeed(&pay, r#""paid""#);
        let text = "Arguments were changed by the approver to: {\"amount\":1,\"to\":\"bob\"}\npaid";
        story.tool_message(&pay, text).end_step().final_answer("Paid 1.");
        let stream = play(&mut client, segment, &story.items);
        assert_eq!(stream.all("TOOL_CALL_RESULT")[0]["content"], text);
        let arguments = &client.messages[1]["toolCalls"][0]["function"]["arguments"];
        assert_eq!(arguments, r#"{"amount":5,"to":"bob"}"#);
    }
}

#[test]
fn a_denial_beside_a_held_call_ends_the_segment_with_an_interrupt_for_the_rest() {
    for dialect in DIALECTS {
        let (mut story, first, _) = two_held();
        let mut client = asked();
        play_first(&mut client, dialect, &story);
        let segment = answering(&client, dialect, story.last_seq(), &["apr_1"]);
        story.deny(&first, "apr_1", "ana", "no");
        let mut stream = Stream::open(segment);
        stream.push_all(&story.items);
        assert!(!stream.encoder.is_done(), "more of the commit may follow");
        stream.end_commit();
        client.apply_all(&stream.events);
        assert!(stream.encoder.is_done());
        assert_eq!(ids(&client.interrupts), ["apr_2"]);
    }
}

#[test]
fn a_call_that_is_held_again_after_an_edit_keeps_the_edit() {
    for dialect in DIALECTS {
        let (mut story, pay) = held("bob");
        let edited = json!({"amount": 1, "to": "bob"});
        story.approve(&pay, "apr_1", Some(edited)).ask_approval(&pay, "apr_2").wait(WaitingOn::Approval);
        story.approve(&pay, "apr_2", None).resume().execute(&pay).succeed(&pay, r#""paid""#);
        story.end_step().final_answer("Paid 1.");
        let mut client = asked();
        let first = answering(&client, dialect, 0, &["apr_1", "apr_2"]);
        let stream = play(&mut client, first, &story.items);
        let text = "Arguments were changed by the approver to: {\"amount\":1,\"to\":\"bob\"}\npaid";
        assert_eq!(stream.all("TOOL_CALL_RESULT")[0]["content"], text);
    }
}

/// Two transfers that wait for `apr_1` and `apr_2`, and an echo that ran.
fn two_held() -> (Story, RequestedCall, RequestedCall) {
    let (first, second) = (transfer("call_1", "bob"), transfer("call_2", "eve"));
    let echo = call("call_3", "echo", json!({}));
    let mut story = Story::begin("Pay");
    story.start_step().answer("", &[first.clone(), second.clone(), echo.clone()]);
    story.ask_approval(&first, "apr_1").ask_approval(&second, "apr_2").execute(&echo);
    story.succeed(&echo, r#""ping""#).wait(WaitingOn::Approval);
    (story, first, second)
}

#[test]
fn parallel_approvals_are_one_interrupt_each_and_are_answered_together() {
    for dialect in DIALECTS {
        let (mut story, first, second) = two_held();
        let mut client = asked();
        play_first(&mut client, dialect, &story);
        assert_eq!(ids(&client.interrupts), ["apr_1", "apr_2"]);
        assert_eq!(client.messages[2]["toolCallId"], "call_3", "the finished sibling has its result");
        let segment = answering(&client, dialect, story.last_seq(), &["apr_1", "apr_2"]);
        // The run processes the answers one after the other, and waits in between.
        story.approve(&first, "apr_1", None).resume().succeed(&first, r#""one""#).wait(WaitingOn::Approval);
        story.deny(&second, "apr_2", "ana", "no").resume();
        story.tool_message(&first, "one").tool_message(&second, "Denied by ana: no");
        story.end_step().final_answer("Done.");
        play(&mut client, segment, &story.items);
        let results: Vec<_> = client.messages.iter().filter(|message| message["role"] == "tool").collect();
        assert_eq!(results.len(), 3);
        assert_eq!(client.messages.last().unwrap()["content"], "Done.");
    }
}

#[test]
fn partial_answer_over_rest_ends_the_next_segment_with_the_rest() {
    for dialect in DIALECTS {
        let (mut story, first, second) = two_held();
        let mut client = asked();
        play_first(&mut client, dialect, &story);
        // Somewhere else apr_1 is approved, while no stream is open.
        story.approve(&first, "apr_1", None).resume().succeed(&first, r#""one""#).wait(WaitingOn::Approval);
        let replay = answering(&client, dialect, story.last_seq(), &[]);
        let stream = play(&mut client, replay, &story.items);
        assert_eq!(ids(&client.interrupts), ["apr_2"]);
        let types = ["RUN_STARTED", "CUSTOM", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "RUN_FINISHED"];
        assert_eq!(stream.types(), types);
        // The client answers both, because it was asked both. The first answer is too late.
        let segment = answering(&client, dialect, story.last_seq(), &["apr_1", "apr_2"]);
        story.approve(&second, "apr_2", None).resume().succeed(&second, r#""two""#);
        story.tool_message(&first, "one").tool_message(&second, "two").end_step().final_answer("Done.");
        play(&mut client, segment, &story.items);
        assert_eq!(client.messages.len(), 6);
    }
}

#[test]
fn partial_answer_of_the_client_ends_its_segment_with_the_rest() {
    for dialect in DIALECTS {
        let (mut story, first, _) = two_held();
        let mut client = asked();
        play_first(&mut client, dialect, &story);
        let segment = answering(&client, dialect, story.last_seq(), &["apr_1"]);
        story.approve(&first, "apr_1", None).resume().succeed(&first, r#""one""#).wait(WaitingOn::Approval);
        let stream = play(&mut client, segment, &story.items);
        assert_eq!(ids(&client.interrupts), ["apr_2"]);
        assert_eq!(stream.all("TOOL_CALL_RESULT").len(), 1);
        assert_eq!(stream.all("MESSAGES_SNAPSHOT").len(), 2);
    }
}

#[test]
fn answers_that_were_all_refused_end_the_segment_at_once() {
    for dialect in DIALECTS {
        let (story, _) = held("bob");
        let mut client = asked();
        play_first(&mut client, dialect, &story);
        let segment = answering(&client, dialect, story.last_seq(), &[]);
        play(&mut client, segment, &story.items);
        assert_eq!(ids(&client.interrupts), ["apr_1"]);
    }
}

#[test]
fn changed_tool_is_asked_again_under_another_id() {
    for dialect in DIALECTS {
        let (mut story, pay) = held("bob");
        let mut client = asked();
        play_first(&mut client, dialect, &story);
        let segment = answering(&client, dialect, story.last_seq(), &["apr_1"]);
        let (call_id, approval_id) = ("call_1".into(), "apr_1".into());
        story.event(Body::ApprovalVoided { call_id, approval_id }).resume();
        story.ask_approval(&pay, "apr_2").wait(WaitingOn::Approval);
        play(&mut client, segment, &story.items);
        assert_eq!(ids(&client.interrupts), ["apr_2"]);
    }
}

#[test]
fn run_that_is_interrupted_while_it_is_held_ends_the_open_continuation() {
    for dialect in DIALECTS {
        let (mut story, pay) = held("bob");
        let mut client = asked();
        play_first(&mut client, dialect, &story);
        let segment = answering(&client, dialect, story.last_seq(), &["apr_1"]);
        story
            .event(Body::RunInterrupting)
            .cancel(&pay, "superseded")
            .tool_message(&pay, "Cancelled: superseded");
        story.end_step().end(RunEnd::Interrupted { code: Some("superseded".into()), by: None });
        let stream = play(&mut client, segment, &story.items);
        assert_eq!(client.messages[2]["content"], "Cancelled: superseded");
        let is_error = stream.last()["type"] == "RUN_ERROR";
        assert_eq!(is_error, dialect == AgUiDialect::Before);
    }
}

#[test]
fn questions_and_doubts_say_what_answers_them() {
    for dialect in DIALECTS {
        let (ask, write) =
            (call("call_1", "ask_user", json!({})), call("call_2", "post", json!({"text": "x"})));
        let mut story = Story::begin("Pay");
        let schema = json!({"type": "string", "minLength": 1});
        let asked_for = Suspension {
            id: "apr_1".into(),
            kind: SuspensionKind::Question,
            question: Some("Which account?".into()),
            schema: Some(schema.clone()),
            expires_at: None,
        };
        story.start_step().answer("", &[ask.clone(), write.clone()]).execute(&ask).execute(&write);
        story.event(Body::Suspended { call: ask, suspension: asked_for });
        story.suspend(&write, "apr_2", SuspensionKind::InDoubt).wait(WaitingOn::Approval);
        let mut client = asked();
        play_first(&mut client, dialect, &story);
        let (question, doubt) = (&client.interrupts[0], &client.interrupts[1]);
        assert_eq!(
            (&question["reason"], &question["message"]),
            (&json!("input_required"), &json!("Which account?"))
        );
        assert_eq!(question["responseSchema"], schema);
        assert_eq!(doubt["reason"], "holdpoint:in_doubt");
        assert_eq!(doubt["responseSchema"]["properties"]["choice"]["enum"], json!(["retry", "give_up"]));
        assert_eq!(doubt["metadata"]["kind"], "in_doubt");
    }
}

/// The client offers `pick_file`.
fn with_client_tool(client: &Client, dialect: AgUiDialect, run_id: &str, new_after: u64) -> AgUiSegment {
    let mut input = client.input(run_id, version(dialect));
    input["tools"] = json!([{"name": "pick_file", "description": "Pick", "parameters": {"type": "object"}}]);
    let request = protocols::ag_ui::AgUiRequest::parse(&input).unwrap();
    AgUiSegment { new_after, ..AgUiSegment::for_request(&request) }
}

fn picking() -> (Story, RequestedCall) {
    let pick = call("call_1", "pick_file", json!({"kind": "image"}));
    let mut story = Story::begin("Pick");
    story.start_step().answer("Pick one.", std::slice::from_ref(&pick));
    story.suspend(&pick, "sus_1", SuspensionKind::ClientTool).wait(WaitingOn::Tool);
    (story, pick)
}

#[test]
fn client_tool_is_an_open_call_of_a_finished_run() {
    for dialect in DIALECTS {
        let (mut story, pick) = picking();
        let mut client = Client::with_user_message("u1", "Pick");
        let first = with_client_tool(&client, dialect, "r1", 0);
        let stream = play(&mut client, first, &story.items);
        match dialect {
            AgUiDialect::V1_0 => {
                let outcome = json!({"type": "success", "pendingToolCallIds": ["call_1"]});
                assert_eq!(stream.last()["outcome"], outcome);
            }
            AgUiDialect::Before => assert_eq!(stream.last().get("outcome"), None),
        }
        // The client runs it and sends the result as a message of its own.
        client.messages.push(json!({
            "id": "tool-uuid", "role": "tool", "toolCallId": "call_1", "content": "cat.png",
        }));
        let mut segment = with_client_tool(&client, dialect, "r2", story.last_seq());
        segment.decided.insert("sus_1".into());
        story
            .resume_call(&pick, "sus_1")
            .resume()
            .succeed(&pick, r#""cat.png""#)
            .tool_message(&pick, "cat.png");
        story.end_step().final_answer("A cat.");
        let stream = play(&mut client, segment, &story.items);
        assert!(stream.all("TOOL_CALL_RESULT").is_empty(), "the result is the application's");
        let of: Vec<_> = client.messages.iter().map(|message| message["id"].clone()).collect();
        assert_eq!(of, ["u1", "msg_run_1_1", "tool-uuid", "msg_run_1_2"]);
        assert_eq!(client.messages[2]["content"], "cat.png");
    }
}

#[test]
fn result_of_a_client_tool_that_came_from_elsewhere_is_sent() {
    for dialect in DIALECTS {
        let (mut story, pick) = picking();
        let mut client = Client::with_user_message("u1", "Pick");
        let first = with_client_tool(&client, dialect, "r1", 0);
        play(&mut client, first, &story.items);
        let segment = with_client_tool(&client, dialect, "r2", story.last_seq() - 1);
        story.items.pop();
        story.resume_call(&pick, "sus_1").resume().succeed(&pick, r#""dog.png""#);
        story.tool_message(&pick, "dog.png").end_step().final_answer("A dog.");
        let stream = play(&mut client, segment, &story.items);
        assert_eq!(stream.all("TOOL_CALL_RESULT").len(), 1);
        assert_eq!(client.messages[2]["content"], "dog.png");
    }
}

#[test]
fn refused_result_of_a_client_tool_leaves_its_call_open() {
    let (story, _) = picking();
    let mut client = Client::with_user_message("u1", "Pick");
    let first = with_client_tool(&client, AgUiDialect::V1_0, "r1", 0);
    play(&mut client, first, &story.items);
    client.messages.push(json!({"id": "x", "role": "tool", "toolCallId": "call_1", "content": "nonsense"}));
    let segment = with_client_tool(&client, AgUiDialect::V1_0, "r2", story.last_seq());
    let stream = play(&mut client, segment, &story.items);
    assert_eq!(stream.last()["outcome"]["pendingToolCallIds"], json!(["call_1"]));
    assert!(client.messages.iter().all(|message| message["role"] != "tool"));
}

#[test]
fn client_tool_beside_an_approval_waits_for_the_interrupt() {
    for dialect in DIALECTS {
        let (pay, pick) = (transfer("call_1", "bob"), call("call_2", "pick_file", json!({})));
        let mut story = Story::begin("Pay");
        story.start_step().answer("", &[pay.clone(), pick.clone()]).ask_approval(&pay, "apr_1");
        story.suspend(&pick, "sus_1", SuspensionKind::ClientTool).wait(WaitingOn::Approval);
        let mut client = asked();
        let first = with_client_tool(&client, dialect, "r1", 0);
        let stream = play(&mut client, first, &story.items);
        assert_eq!(ids(&client.interrupts), ["apr_1"]);
        assert_eq!(stream.last()["metadata"]["holdpoint"]["pendingToolCallIds"], json!(["call_2"]));
        let mut segment = with_client_tool(&client, dialect, "r2", story.last_seq());
        segment.decided.insert("apr_1".into());
        story.approve(&pay, "apr_1", None).resume().succeed(&pay, r#""paid""#).wait(WaitingOn::Tool);
        let stream = play(&mut client, segment, &story.items);
        assert!(client.interrupts.is_empty());
        if dialect == AgUiDialect::V1_0 {
            assert_eq!(stream.last()["outcome"]["pendingToolCallIds"], json!(["call_2"]));
        }
        client.messages.push(json!({"id": "mine", "role": "tool", "toolCallId": "call_2", "content": "a"}));
        let mut segment = with_client_tool(&client, dialect, "r3", story.last_seq());
        segment.decided.insert("sus_1".into());
        story.resume_call(&pick, "sus_1").resume().succeed(&pick, r#""a""#);
        story.tool_message(&pay, "paid").tool_message(&pick, "a").end_step().final_answer("Done.");
        play(&mut client, segment, &story.items);
        assert_eq!(client.messages.len(), 5);
    }
}

#[test]
fn client_tool_that_needs_an_approval_is_invisible_until_it_is_approved() {
    for approved in [true, false] {
        for dialect in DIALECTS {
            let pick = call("call_1", "pick_file", json!({}));
            let mut story = Story::begin("Pay");
            story.start_step().answer("", std::slice::from_ref(&pick)).ask_approval(&pick, "apr_1");
            story.wait(WaitingOn::Approval);
            let mut client = asked();
            let first = with_client_tool(&client, dialect, "r1", 0);
            let stream = play(&mut client, first, &story.items);
            assert!(stream.all("TOOL_CALL_START").is_empty(), "a front end runs each call that it sees");
            assert_eq!(client.messages.len(), 1);
            assert_eq!(client.interrupts[0].get("toolCallId"), None);
            assert_eq!(client.interrupts[0]["metadata"]["tool"], "pick_file");
            let mut segment = with_client_tool(&client, dialect, "r2", story.last_seq());
            segment.decided.insert("apr_1".into());
            if approved {
                story.approve(&pick, "apr_1", None).resume();
                story.suspend(&pick, "sus_1", SuspensionKind::ClientTool).wait(WaitingOn::Tool);
            } else {
                story.deny(&pick, "apr_1", "ana", "no").resume().tool_message(&pick, "Denied by ana: no");
                story.end_step().final_answer("No.");
            }
            let stream = play(&mut client, segment, &story.items);
            assert_eq!(stream.all("TOOL_CALL_START").len(), 1);
            assert_eq!(stream.all("TOOL_CALL_RESULT").len(), usize::from(!approved));
        }
    }
}

#[test]
fn stream_stays_open_while_only_an_external_service_works() {
    for dialect in DIALECTS {
        let book = call("call_1", "book", json!({}));
        let mut story = Story::begin("Book");
        story.start_step().answer("", std::slice::from_ref(&book)).execute(&book);
        story.suspend(&book, "sus_1", SuspensionKind::External).wait(WaitingOn::Tool);
        let mut stream = Stream::open(segment(&asked(), dialect, "r1", 0));
        stream.push_all(&story.items);
        assert!(!stream.encoder.is_done());
        story.resume_call(&book, "sus_1").resume().succeed(&book, r#""booked""#);
        story.tool_message(&book, "booked").end_step().final_answer("Booked.");
        stream.push_all(&story.items).assert_done();
        assert_eq!(stream.all("TOOL_CALL_RESULT").len(), 1);
    }
}

fn delegated(id: &str) -> AgUiDelegatedHold {
    AgUiDelegatedHold {
        id: id.into(),
        child_run_id: "run_child".into(),
        kind: AgUiAnswerable::Approval,
        call: transfer("child_call", "bob"),
        question: None,
        schema: None,
        expires_at: None,
    }
}

#[test]
fn approval_below_a_subagent_suspends_it_and_interrupts_the_run() {
    for dialect in DIALECTS {
        let ask = call("call_1", "payer", json!({}));
        let mut story = Story::begin("Pay");
        let child = || "run_child".to_owned();
        story.start_step().answer("", std::slice::from_ref(&ask)).execute(&ask);
        story.event(Body::ChildStarted { call_id: "call_1".into(), run_id: child() });
        story.suspend(&ask, "sus_1", SuspensionKind::ChildRun { run_id: child() }).wait(WaitingOn::Tool);
        let mut client = asked();
        let mut stream = Stream::open(segment(&client, dialect, "r1", 0));
        stream.push_all(&story.items);
        let events = stream.encoder.set_delegated(vec![delegated("apr_child")]);
        stream.receive(events);
        stream.assert_done();
        client.apply_all(&stream.events);
        assert_eq!(ids(&client.interrupts), ["apr_child"]);
        assert_eq!(client.interrupts[0].get("toolCallId"), None);
        let segment = answering(&client, dialect, story.last_seq(), &["apr_child"]);
        story.resume_call(&ask, "sus_1").resume().succeed(&ask, r#""paid""#).tool_message(&ask, "paid");
        story.end_step().final_answer("Paid.");
        let continued = play(&mut client, segment, &story.items);
        if dialect == AgUiDialect::V1_0 {
            let suspended = json!({"type": "suspended", "interruptIds": ["apr_child"]});
            assert_eq!(stream.all("SUBAGENT_FINISHED")[0]["outcome"], suspended);
            assert_eq!(client.messages[2]["content"], "paid");
            assert_eq!(continued.all("SUBAGENT_STARTED").len(), 1, "it continues under the same id");
            assert_eq!(continued.all("SUBAGENT_FINISHED").len(), 1);
        }
    }
}

#[test]
fn reload_restores_pending_approvals() {
    for dialect in DIALECTS {
        let (story, ..) = two_held();
        let mut client = Client::new();
        let connect = segment(&client, dialect, "fresh", story.last_seq());
        let stream = play(&mut client, connect, &story.items);
        let types = ["RUN_STARTED", "CUSTOM", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "RUN_FINISHED"];
        assert_eq!(stream.types(), types);
        assert_eq!(ids(&client.interrupts), ["apr_1", "apr_2"]);
        assert_eq!(client.messages[0]["content"], "Pay");
        assert_eq!(client.messages[1]["toolCalls"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn reload_of_an_idle_thread_is_its_history() {
    for dialect in DIALECTS {
        let mut story = Story::begin("Pay");
        story.final_answer("Paid.");
        let mut conversation = AgUiConversation::default();
        conversation.read_all(&story.items);
        let mut client = Client::new();
        let mut connect = segment(&client, dialect, "fresh", 0);
        connect.earlier = conversation.into_messages();
        let mut verifier = protocols::ag_ui::AgUiVerifier::new(dialect);
        for event in AgUiEncoder::replay_idle(connect) {
            verifier.check_event(&event).unwrap();
            client.apply(&event.to_value());
        }
        verifier.finish().unwrap();
        assert_eq!(client.messages.len(), 2);
        assert_eq!(client.messages[1]["content"], "Paid.");
    }
}

#[test]
fn reload_while_the_model_writes_follows_the_answer() {
    for dialect in DIALECTS {
        let mut story = Story::begin("Pay");
        story.start_step();
        let new_after = story.last_seq();
        story.reasoning_delta(1, 0, "Thinking").text_delta(1, 0, "I am wri").text_delta(1, 8, "ting");
        story.answer_with_reasoning("I am writing.", Some("Thinking"), &[]).end_step().complete();
        // What is left of a stream that broke off in the middle.
        let mut client = asked();
        let reasoning = json!({"id": "msg_run_1_1_reasoning", "role": "reasoning", "content": "Thin"});
        client.messages.push(reasoning);
        client.messages.push(json!({"id": "msg_run_1_1", "role": "assistant", "content": "I am"}));
        let connect = segment(&client, dialect, "fresh", new_after);
        let stream = play(&mut client, connect, &story.items);
        let restated = stream.events[2]["messages"].as_array().unwrap();
        let blank = json!({"id": "msg_run_1_1_reasoning", "role": "reasoning", "content": ""});
        assert_eq!(restated[1], blank, "a client keeps reasoning that a snapshot does not have");
        assert_eq!(client.messages[1]["content"], "Thinking");
        assert_eq!(client.messages[2]["content"], "I am writing.");
        assert_eq!(client.messages.len(), 3);
    }
}

#[test]
fn late_result_under_eager_is_the_result_of_its_call_and_the_placeholder_is_not() {
    for dialect in DIALECTS {
        let (pay, echo) = (transfer("call_1", "bob"), call("call_2", "echo", json!({})));
        let mut story = Story::begin("Pay");
        story.start_step().answer("", &[pay.clone(), echo.clone()]).ask_approval(&pay, "apr_1");
        story.succeed(&echo, r#""ping""#).tool_message(&pay, "Not executed yet: awaiting approval");
        story.tool_message(&echo, "ping").end_step().start_step().answer("It waits for you.", &[]).end_step();
        story.wait(WaitingOn::Approval);
        let mut client = asked();
        play_first(&mut client, dialect, &story);
        assert_eq!(client.messages.iter().filter(|message| message["role"] == "tool").count(), 1);
        let segment = answering(&client, dialect, story.last_seq(), &["apr_1"]);
        story.approve(&pay, "apr_1", None).resume().succeed(&pay, r#""paid""#);
        let text = "Result of the earlier call call_1 (transfer): paid".to_owned();
        story.event(Body::Note { id: "late_call_1".into(), call_id: Some("call_1".into()), text });
        story.final_answer("The transfer is done.");
        play(&mut client, segment, &story.items);
        let result = client.messages.iter().find(|message| message["toolCallId"] == "call_1").unwrap();
        assert_eq!(result["content"], "paid");
        assert_eq!(client.messages.len(), 6);
    }
}

#[test]
fn reload_while_the_run_is_queued_keeps_the_message_that_it_will_answer() {
    for dialect in DIALECTS {
        let mut story = Story::begin("Pay");
        story.final_answer("Paid.");
        let answer =
            AgUiMessage::Assistant { id: "a1".into(), content: Some("Hi.".into()), tool_calls: Vec::new() };
        for client_has_all in [true, false] {
            let mut client = Client::new();
            if client_has_all {
                client.messages.push(json!({"id": "a1", "role": "assistant", "content": "Hi."}));
            }
            client.messages.push(json!({"id": "u1", "role": "user", "content": "Pay"}));
            let mut connect = segment(&client, dialect, "fresh", 1);
            connect.earlier = vec![answer.clone()];
            let stream = play(&mut client, connect, &story.items);
            // The last snapshot is that of every continuation.
            let restated = stream.all("MESSAGES_SNAPSHOT").len();
            assert_eq!(restated, if client_has_all { 1 } else { 3 });
            let of: Vec<_> = client.messages.iter().map(|message| message["id"].clone()).collect();
            assert_eq!(of, ["a1", "u1", "msg_run_1_1"]);
        }
    }
}

#[test]
fn result_that_the_client_sent_is_replaced_by_what_the_log_has() {
    let (mut story, pick) = picking();
    let mut client = Client::with_user_message("u1", "Pick");
    let first = with_client_tool(&client, AgUiDialect::V1_0, "r1", 0);
    play(&mut client, first, &story.items);
    client
        .messages
        .push(json!({"id": "x", "role": "tool", "toolCallId": "call_1", "content": "{ \"a\": 1 }"}));
    let mut segment = with_client_tool(&client, AgUiDialect::V1_0, "r2", story.last_seq());
    segment.decided.insert("sus_1".into());
    story.resume_call(&pick, "sus_1").resume().succeed(&pick, r#"{"a":1}"#).tool_message(&pick, r#"{"a":1}"#);
    story.end_step().final_answer("Done.");
    play(&mut client, segment, &story.items);
    let result = json!({"id": "x", "role": "tool", "toolCallId": "call_1", "content": r#"{"a":1}"#});
    assert_eq!(client.messages[2], result);
}

#[test]
fn approvals_of_a_subagent_that_returned_are_not_asked_again() {
    let (ask, pay) = (call("call_1", "payer", json!({})), transfer("call_2", "bob"));
    let mut story = Story::begin("Pay");
    story.start_step().answer("", &[ask.clone(), pay.clone()]).ask_approval(&pay, "apr_1");
    story.event(Body::ChildStarted { call_id: "call_1".into(), run_id: "run_child".into() });
    story.succeed(&ask, r#""paid""#).wait(WaitingOn::Approval);
    let mut client = asked();
    let mut stream = Stream::open(segment(&client, AgUiDialect::V1_0, "r1", 0));
    stream.push_all(&story.items[..story.items.len() - 2]);
    let events = stream.encoder.set_delegated(vec![delegated("apr_child")]);
    stream.receive(events);
    stream.push_all(&story.items).assert_done();
    client.apply_all(&stream.events);
    assert_eq!(ids(&client.interrupts), ["apr_1"]);
}
