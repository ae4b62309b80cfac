//! Approvals: one and several, given here and elsewhere, denied, edited, voided and refused.

use protocols::ai_sdk::{ChatAction, Chunk, ToolState, UiPart};
use protocols::feed::{Body, CompletedReason, SuspensionKind, WaitingOn};
use serde_json::json;

use crate::chat_client::{Accepted, ChatClient, fold, fresh, fresh_until, normalized};
use crate::run_script::{RunScript, call};

fn kinds(chunks: &[Chunk]) -> Vec<&str> {
    chunks.iter().map(Chunk::kind).filter(|kind| *kind != "data-run").collect()
}

/// Two calls of one answer are held.
fn two_held() -> RunScript {
    let (a, b) = (call("a", "transfer"), call("b", "transfer"));
    let mut script = RunScript::begun();
    script.answer("Two.", &[a.clone(), b.clone()]).ask(&a, "apr_a").ask(&b, "apr_b").waits_for_approval();
    script
}

#[test]
fn two_approvals_are_answered_in_one_request() {
    let (a, b) = (call("a", "transfer"), call("b", "transfer"));
    for first in ["a", "b"] {
        let mut script = two_held();
        let wait = script.waits[0];
        script.approved(&a, "apr_a").resumed().approved(&b, "apr_b").executing(&a).executing(&b);
        let (one, other) = if first == "a" { (&a, &b) } else { (&b, &a) };
        script.succeeded(one, "1").succeeded(other, "2").ends_with("Done.");

        let mut client = ChatClient::of(&fresh_until(&script, wait));
        client.respond("apr_a", true, None);
        assert!(!client.posts_by_itself());
        client.respond("apr_b", true, None);
        assert!(client.posts_by_itself());
        let accepted = Accepted { approvals: vec!["apr_a".into(), "apr_b".into()], outputs: Vec::new() };
        let chunks = client.continue_over(&script, &accepted, wait, script.items.len());
        let expected = [
            "start",
            "tool-output-available",
            "tool-output-available",
            "start-step",
            "text-start",
            "text-delta",
            "text-end",
            "finish-step",
            "finish",
        ];
        assert_eq!(kinds(&chunks), expected);
        assert!(!client.posts_by_itself());
        assert_eq!(normalized(&client.message), normalized(&fold(&fresh(&script))));
    }
}

#[test]
fn approvals_are_answered_one_at_a_time_in_either_order() {
    let (a, b) = (call("a", "transfer"), call("b", "transfer"));
    for (first, second) in [(&a, &b), (&b, &a)] {
        let mut script = two_held();
        let (id_1, id_2) = (format!("apr_{}", first.call_id), format!("apr_{}", second.call_id));
        script.runs_approved(first, &id_1).waits_for_approval();
        script.runs_approved(second, &id_2).ends_with("Done.");
        let [wait_1, wait_2] = script.waits[..] else { panic!("two waits") };

        let mut client = ChatClient::of(&fresh_until(&script, wait_1));
        client.respond(&id_1, true, None);
        let chunks = client.continue_over(&script, &Accepted::approval(&id_1), wait_1, wait_2);
        assert_eq!(kinds(&chunks), ["start", "tool-output-available", "finish"]);
        assert_eq!(client.state(&second.call_id), ToolState::ApprovalRequested);

        client.respond(&id_2, true, None);
        client.continue_over(&script, &Accepted::approval(&id_2), wait_2, script.items.len());
        assert_eq!(normalized(&client.message), normalized(&fold(&fresh(&script))));
    }
}

#[test]
fn a_partial_denial_ends_the_stream_without_a_new_step() {
    let mut script = two_held();
    script.denied(&call("a", "transfer"), "apr_a");
    let wait = script.waits[0];
    let mut client = ChatClient::of(&fresh_until(&script, wait));
    client.respond("apr_a", false, Some("not today"));
    let chunks = client.continue_over(&script, &Accepted::approval("apr_a"), wait, script.items.len());
    assert_eq!(kinds(&chunks), ["start", "tool-output-denied", "finish"]);
    assert_eq!(client.state("b"), ToolState::ApprovalRequested);
}

#[test]
fn a_stream_does_not_end_before_an_accepted_decision_is_processed() {
    let mut script = two_held();
    let wait = script.waits[0];
    let (a, b) = (call("a", "transfer"), call("b", "transfer"));
    script.approved(&a, "apr_a").resumed().executing(&a);
    let while_executing = script.items.len();
    script.succeeded(&a, "1").waits_for_approval();

    let client = ChatClient::of(&fresh_until(&script, wait)).respond("apr_a", true, None).clone();
    // The decision is in the inbox only: the log still ends with the wait.
    for count in [wait, wait + 1, wait + 2, while_executing] {
        let seen = client.seen();
        let tools = crate::chat_client::client_tools();
        let mut encoder = protocols::ai_sdk::ChunkEncoder::continuing(tools, seen);
        encoder.await_approval("apr_a");
        let mut chunks = Vec::new();
        for item in &script.items[..count] {
            encoder.push(item, &mut chunks);
        }
        encoder.idle(&mut chunks);
        assert!(!encoder.may_end() && !encoder.is_done(), "after {count} items");
    }
    let mut client = client;
    let chunks = client.continue_over(&script, &Accepted::approval("apr_a"), wait, script.items.len());
    assert_eq!(kinds(&chunks), ["start", "tool-output-available", "finish"]);
    assert_eq!(client.state(&b.call_id), ToolState::ApprovalRequested);
}

#[test]
fn a_denial_with_a_reason_reaches_the_run_and_the_model_answers() {
    let a = call("a", "transfer");
    let mut script = RunScript::begun();
    script.answer("", std::slice::from_ref(&a)).ask(&a, "apr_a").waits_for_approval();
    script.denied(&a, "apr_a").resumed().ends_with("I did not send it.");
    let wait = script.waits[0];
    let mut client = ChatClient::of(&fresh_until(&script, wait));
    client.respond("apr_a", false, Some("not today"));
    match client.post() {
        ChatAction::Continue { decisions, outputs, .. } => {
            assert_eq!(decisions.len(), 1);
            assert_eq!(decisions[0].approval_id, "apr_a");
            assert!(!decisions[0].approved);
            assert_eq!(decisions[0].reason.as_deref(), Some("not today"));
            assert!(outputs.is_empty());
        }
        other => panic!("{other:?}"),
    }
    let chunks = client.continue_over(&script, &Accepted::approval("apr_a"), wait, script.items.len());
    let expected = [
        "start",
        "tool-output-denied",
        "start-step",
        "text-start",
        "text-delta",
        "text-end",
        "finish-step",
        "finish",
    ];
    assert_eq!(kinds(&chunks), expected);
    assert_eq!(client.state("a"), ToolState::OutputDenied);
    assert!(!client.posts_by_itself());
}

#[test]
fn a_rejection_that_ends_the_run_leaves_nothing_to_post() {
    let (a, b) = (call("a", "transfer"), call("b", "transfer"));
    let mut script = two_held();
    let wait = script.waits[0];
    script.denied(&a, "apr_a").cancelled(&b, "run_ended").step_ended();
    script.completed(CompletedReason::Stopped);
    let mut client = ChatClient::of(&fresh_until(&script, wait));
    client.respond("apr_a", false, None).respond("apr_b", true, None);
    client.continue_over(&script, &Accepted::approval("apr_a"), wait, script.items.len());
    assert_eq!(client.tool("b").error_text.as_deref(), Some("Cancelled: run_ended"));
    assert!(!client.posts_by_itself());
    assert_eq!(normalized(&client.message), normalized(&fold(&fresh(&script))));
}

#[test]
fn a_later_step_is_held_again() {
    let (a, b) = (call("a", "transfer"), call("b", "transfer"));
    let mut script = RunScript::begun();
    script.answer("", std::slice::from_ref(&a)).ask(&a, "apr_a").waits_for_approval();
    script.runs_approved(&a, "apr_a").step_ended();
    script.step().answer("Once more.", std::slice::from_ref(&b)).ask(&b, "apr_b").waits_for_approval();
    script.runs_approved(&b, "apr_b").ends_with("Done.");
    let [wait_1, wait_2] = script.waits[..] else { panic!("two waits") };

    let mut client = ChatClient::of(&fresh_until(&script, wait_1));
    client.respond("apr_a", true, None);
    client.continue_over(&script, &Accepted::approval("apr_a"), wait_1, wait_2);
    assert_eq!(client.state("b"), ToolState::ApprovalRequested);
    client.respond("apr_b", true, None);
    client.continue_over(&script, &Accepted::approval("apr_b"), wait_2, script.items.len());
    assert_eq!(normalized(&client.message), normalized(&fold(&fresh(&script))));
}

#[test]
fn an_approval_given_over_rest_is_no_longer_asked_for() {
    let (a, c) = (call("a", "transfer"), call("c", "slow"));
    let mut script = RunScript::begun();
    script.answer("", &[a.clone(), c.clone()]).ask(&a, "apr_a").executing(&c);
    script.approved(&a, "apr_a").executing(&a);
    // The stream is open because another call executes.
    let client = ChatClient::of(&stream_while_executing(&script));
    assert_eq!(client.state("a"), ToolState::InputAvailable);
}

fn stream_while_executing(script: &RunScript) -> Vec<Chunk> {
    let encoder = protocols::ai_sdk::ChunkEncoder::new(crate::chat_client::client_tools());
    crate::chat_client::stream(encoder, &script.items, script.items.len())
}

#[test]
fn a_page_catches_up_with_a_run_that_was_continued_elsewhere() {
    let (a, b) = (call("a", "transfer"), call("b", "transfer"));
    let mut script = RunScript::begun();
    script.answer("First.", std::slice::from_ref(&a)).ask(&a, "apr_a").waits_for_approval();
    script.runs_approved(&a, "apr_a").step_ended();
    script.step().answer("Second.", std::slice::from_ref(&b)).ask(&b, "apr_b").waits_for_approval();
    let [wait_1, wait_2] = script.waits[..] else { panic!("two waits") };
    // The page still shows the first approval, and posts without an answer.
    let mut client = ChatClient::of(&fresh_until(&script, wait_1));
    client.continue_over(&script, &Accepted::default(), wait_2, wait_2);
    assert_eq!(normalized(&client.message), normalized(&fold(&fresh_until(&script, wait_2))));
}

#[test]
fn edited_arguments_are_shown_as_the_input() {
    let a = call("a", "transfer");
    let mut script = RunScript::begun();
    script.answer("", std::slice::from_ref(&a)).ask(&a, "apr_a").waits_for_approval();
    script.approved_with(&a, "apr_a", Some(json!({"amount": 1}))).resumed().executing(&a);
    script.succeeded(&a, "true").ends_with("Done.");
    let wait = script.waits[0];
    let mut client = ChatClient::of(&fresh_until(&script, wait));
    // The approver edited them over REST.
    client.continue_over(&script, &Accepted::default(), script.items.len(), script.items.len());
    assert_eq!(client.tool("a").input, Some(json!({"amount": 1})));
    assert_eq!(client.state("a"), ToolState::OutputAvailable);
    assert_eq!(normalized(&client.message), normalized(&fold(&fresh(&script))));
}

#[test]
fn a_voided_approval_is_replaced_by_the_new_one() {
    let a = call("a", "transfer");
    let mut script = RunScript::begun();
    script.answer("", std::slice::from_ref(&a)).ask(&a, "apr_1").waits_for_approval();
    script.stored(Body::ApprovalVoided { call_id: "a".into(), approval_id: "apr_1".into() });
    script.resumed().ask(&a, "apr_2").waits_for_approval();
    script.runs_approved(&a, "apr_2").ends_with("Done.");
    let [wait_1, wait_2] = script.waits[..] else { panic!("two waits") };

    let mut client = ChatClient::of(&fresh_until(&script, wait_1));
    client.respond("apr_1", true, None);
    let chunks = client.continue_over(&script, &Accepted::approval("apr_1"), wait_1, wait_2);
    assert_eq!(kinds(&chunks), ["start", "tool-approval-request", "finish"]);
    assert_eq!(client.tool("a").approval.as_ref().unwrap().id, "apr_2");
    assert!(!client.posts_by_itself());
    client.respond("apr_2", true, None);
    let chunks = client.continue_over(&script, &Accepted::approval("apr_2"), wait_2, script.items.len());
    assert_eq!(kinds(&chunks)[..2], ["start", "tool-output-available"]);
}

#[test]
fn a_refused_decision_is_asked_for_again() {
    let a = call("a", "transfer");
    let mut script = RunScript::begun();
    script.answer("", std::slice::from_ref(&a)).ask(&a, "apr_a").waits_for_approval();
    let wait = script.waits[0];
    let mut client = ChatClient::of(&fresh_until(&script, wait));
    client.respond("apr_a", true, None);
    assert!(client.posts_by_itself());
    // The server accepted nothing, so the run still waits.
    let chunks = client.continue_over(&script, &Accepted::default(), wait, wait);
    assert_eq!(kinds(&chunks), ["start", "tool-approval-request", "finish"]);
    assert!(!client.posts_by_itself());
}

#[test]
fn an_approved_call_that_becomes_pending_leaves_nothing_to_post() {
    let a = call("a", "transfer");
    let mut script = RunScript::begun();
    script.answer("", std::slice::from_ref(&a)).ask(&a, "apr_a").waits_for_approval();
    script.approved(&a, "apr_a").resumed().executing(&a);
    script.suspend(&a, "sus_1", SuspensionKind::External).waits(WaitingOn::Tool);
    script.call_resumed(&a, "sus_1").resumed().succeeded(&a, "1").ends_with("Done.");
    let [wait_1, wait_2] = script.waits[..] else { panic!("two waits") };

    let mut client = ChatClient::of(&fresh_until(&script, wait_1));
    client.respond("apr_a", true, None);
    let chunks = client.continue_over(&script, &Accepted::approval("apr_a"), wait_1, wait_2);
    assert_eq!(kinds(&chunks), ["start", "tool-input-available", "data-suspension", "finish"]);
    assert!(!client.posts_by_itself());
    client.continue_over(&script, &Accepted::default(), script.items.len(), script.items.len());
    assert_eq!(normalized(&client.message), normalized(&fold(&fresh(&script))));
}

#[test]
fn a_late_result_under_eager_settles_a_call_of_an_earlier_step() {
    let (a, b) = (call("a", "transfer"), call("b", "echo"));
    let mut script = RunScript::begun();
    script.answer("", &[a.clone(), b.clone()]).ask(&a, "apr_a").executing(&b).succeeded(&b, "1");
    script.step_ended().step().answer("The transfer waits for you.", &[]).step_ended().waits_for_approval();
    script.runs_approved(&a, "apr_a");
    let text = "Result of the earlier call a (transfer): {}".to_owned();
    script.stored(Body::Note { id: "late_a".into(), call_id: Some("a".into()), text });
    script.step().answer("Done.", &[]).step_ended().completed(CompletedReason::NaturalEnd);
    let wait = script.waits[0];

    let mut client = ChatClient::of(&fresh_until(&script, wait));
    client.respond("apr_a", true, None);
    let chunks = client.continue_over(&script, &Accepted::approval("apr_a"), wait, script.items.len());
    let expected = [
        "start",
        "tool-output-available",
        "start-step",
        "text-start",
        "text-delta",
        "text-end",
        "finish-step",
        "finish",
    ];
    assert_eq!(kinds(&chunks), expected);
    assert_eq!(normalized(&client.message), normalized(&fold(&fresh(&script))));
}

#[test]
fn a_client_does_not_post_for_ever_while_a_call_of_an_earlier_step_is_held() {
    let (a, b, c) = (call("a", "transfer"), call("b", "echo"), call("c", "echo"));
    let mut script = RunScript::begun();
    script.answer("", &[a.clone(), b.clone()]).ask(&a, "apr_a").executing(&b).succeeded(&b, "1");
    script.step_ended().step().answer("", std::slice::from_ref(&c)).executing(&c).succeeded(&c, "2");
    script.step_ended().waits_for_approval();
    script.runs_approved(&a, "apr_a").step().answer("Done.", &[]).step_ended();
    script.completed(CompletedReason::NaturalEnd);
    let wait = script.waits[0];

    let mut client = ChatClient::of(&fresh_until(&script, wait));
    assert!(!client.posts_by_itself(), "all calls of the last step have results");
    client.continue_over(&script, &Accepted::default(), wait, wait);
    assert!(!client.posts_by_itself(), "nor after a stream that shows nothing new");
    client.respond("apr_a", true, None);
    client.continue_over(&script, &Accepted::approval("apr_a"), wait, script.items.len());
    assert_eq!(normalized(&client.message), normalized(&fold(&fresh(&script))));
    let steps = client.message.parts.iter().filter(|part| **part == UiPart::StepStart).count();
    assert_eq!(steps, 3, "the run's next step has filled the empty one");
}

#[test]
fn a_call_that_sequential_execution_has_not_reached_is_gated_in_the_continuation() {
    let (a, b) = (call("a", "transfer"), call("b", "transfer"));
    let mut script = RunScript::begun();
    script.answer("", &[a.clone(), b.clone()]).ask(&a, "apr_a").waits_for_approval();
    script.denied(&a, "apr_a").resumed().ask(&b, "apr_b").waits_for_approval();
    let [wait_1, wait_2] = script.waits[..] else { panic!("two waits") };
    let mut client = ChatClient::of(&fresh_until(&script, wait_1));
    assert_eq!(client.state("b"), ToolState::InputAvailable);
    client.respond("apr_a", false, None);
    let chunks = client.continue_over(&script, &Accepted::approval("apr_a"), wait_1, wait_2);
    assert_eq!(kinds(&chunks), ["start", "tool-output-denied", "tool-approval-request", "finish"]);
}

#[test]
fn an_answer_that_changes_the_arguments_is_shown_before_they_are_approved() {
    let a = call("a", "transfer");
    let mut changed = a.clone();
    changed.arguments = json!({"to": "carl"});
    let mut script = RunScript::begun();
    script.answer("", std::slice::from_ref(&a));
    script.suspend(&a, "apr_q", SuspensionKind::Question).waits_for_approval();
    script.call_resumed(&a, "apr_q").resumed().ask(&changed, "apr_a").waits_for_approval();
    let client = ChatClient::of(&fresh(&script));
    assert_eq!(client.tool("a").input, Some(json!({"to": "carl"})));
    assert_eq!(client.state("a"), ToolState::ApprovalRequested);
}

#[test]
fn a_wait_ends_the_stream_even_if_the_outcome_of_a_call_cannot_be_decoded() {
    let a = call("a", "transfer");
    let mut script = two_held();
    let wait = script.waits[0];
    script.approved(&a, "apr_a").resumed().executing(&a).stored(Body::Unreadable).waits_for_approval();
    let mut client = ChatClient::of(&fresh_until(&script, wait));
    client.respond("apr_a", true, None);
    let chunks = client.continue_over(&script, &Accepted::approval("apr_a"), wait, script.items.len());
    assert_eq!(kinds(&chunks), ["start", "finish"]);
}

#[test]
fn a_message_that_claims_another_approval_is_corrected() {
    let mut script = RunScript::begun();
    let a = call("a", "transfer");
    script.answer("", std::slice::from_ref(&a)).ask(&a, "apr_a").waits_for_approval();
    let mut forged = RunScript::begun();
    forged.answer("", std::slice::from_ref(&a)).ask(&a, "apr_x").waits_for_approval();
    let mut client = ChatClient::of(&fresh(&forged));
    let wait = script.waits[0];
    let chunks = client.continue_over(&script, &Accepted::default(), wait, wait);
    assert_eq!(kinds(&chunks), ["start", "tool-approval-request", "finish"]);
    assert_eq!(client.tool("a").approval.as_ref().unwrap().id, "apr_a");
}

#[test]
fn a_second_approval_is_requested_while_the_run_executes() {
    let (a, b) = (call("a", "transfer"), call("b", "slow"));
    let mut script = RunScript::begun();
    script.answer("", &[a.clone(), b.clone()]).ask(&a, "apr_1").executing(&b).approved(&a, "apr_1");
    // The client loses its connection here, and the tool changes before the call is dispatched.
    let mut client = ChatClient::of(&stream_while_executing(&script));
    script.ask(&a, "apr_2");
    let stored = script.items.len();
    script.succeeded(&b, "1").waits_for_approval();
    let chunks = client.continue_over(&script, &Accepted::default(), stored, script.items.len());
    assert_eq!(kinds(&chunks), ["start", "tool-approval-request", "tool-output-available", "finish"]);
}
