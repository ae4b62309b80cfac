//! Planted faults: each stream breaks one rule, and the verifier names it.

use protocols::ai_sdk::{ChunkRule, ChunkVerifier};
use serde_json::{Value, json};

use crate::chat_client::ChatClient;
use crate::run_script::{MESSAGE, RunScript, call};

/// Checks a stream, and returns the rule that it breaks.
fn broken(mut verifier: ChunkVerifier, chunks: &[Value]) -> Option<ChunkRule> {
    for chunk in chunks {
        if let Err(error) = verifier.check_json(chunk) {
            assert!(!error.to_string().is_empty());
            return Some(error.rule);
        }
    }
    verifier.end().err().map(|error| error.rule)
}

fn fresh(chunks: &[Value]) -> Option<ChunkRule> {
    broken(ChunkVerifier::new(), chunks)
}

fn start() -> Value {
    json!({"type": "start", "messageId": MESSAGE})
}

fn step() -> Value {
    json!({"type": "start-step"})
}

fn text(kind: &str) -> Value {
    json!({"type": kind, "id": "t"})
}

fn delta() -> Value {
    json!({"type": "text-delta", "id": "t", "delta": "x"})
}

fn step_end() -> Value {
    json!({"type": "finish-step"})
}

fn finish() -> Value {
    json!({"type": "finish", "finishReason": "stop"})
}

fn waits() -> Value {
    json!({"type": "finish", "finishReason": "tool-calls"})
}

fn input(call: &str) -> Value {
    json!({"type": "tool-input-available", "toolCallId": call, "toolName": "pay", "input": {}, "dynamic": true})
}

fn output(call: &str) -> Value {
    json!({"type": "tool-output-available", "toolCallId": call, "output": null, "dynamic": true})
}

fn approval(call: &str) -> Value {
    json!({"type": "tool-approval-request", "approvalId": "apr", "toolCallId": call})
}

#[test]
fn a_legal_stream_breaks_no_rule() {
    let chunks = [
        start(),
        json!({"type": "data-run", "data": null, "transient": true}),
        step(),
        text("text-start"),
        delta(),
        text("text-end"),
        input("a"),
        approval("a"),
        step_end(),
        waits(),
    ];
    assert_eq!(fresh(&chunks), None);
}

#[test]
fn faults_of_order_are_found() {
    use ChunkRule as Rule;
    let cases: [(&[Value], Rule); 23] = [
        (&[], Rule::StartIsFirst),
        (&[step()], Rule::StartIsFirst),
        (&[start(), start()], Rule::StartOnlyOnce),
        (&[start(), finish(), start()], Rule::NothingAfterEnd),
        (&[start(), finish(), finish()], Rule::NothingAfterEnd),
        (&[start(), json!({"type": "abort"}), step()], Rule::NothingAfterEnd),
        (&[start(), json!({"type": "error", "errorText": "x"}), step()], Rule::NothingAfterEnd),
        (&[start()], Rule::EndIsRequired),
        (&[start(), step(), delta()], Rule::PartMustBeOpen),
        (&[start(), step(), text("text-start"), text("text-end"), delta()], Rule::PartMustBeOpen),
        (&[start(), step(), text("text-end")], Rule::PartMustBeOpen),
        (
            &[
                start(),
                step(),
                text("text-start"),
                json!({"type": "reasoning-delta", "id": "t", "delta": "x"}),
            ],
            Rule::PartMustBeOpen,
        ),
        (&[start(), step(), text("text-start"), text("text-start")], Rule::PartIdIsFree),
        (&[start(), text("text-start")], Rule::PartNeedsStep),
        (&[start(), step(), text("reasoning-start"), step_end()], Rule::PartClosedAtStepEnd),
        (&[start(), step(), text("text-start"), finish()], Rule::PartClosedAtEnd),
        (&[start(), step(), finish()], Rule::StepClosedAtEnd),
        (&[start(), step(), step()], Rule::StepsDoNotNest),
        (&[start(), step_end()], Rule::StepMustBeOpen),
        (&[start(), step(), approval("a")], Rule::CallIsKnown),
        (&[start(), step(), output("a")], Rule::CallIsKnown),
        (&[start(), step(), json!({"type": "tool-output-denied", "toolCallId": "a"})], Rule::CallIsKnown),
        (&[start(), step(), input("a"), output("a"), output("a")], Rule::CallNotSettled),
    ];
    for (chunks, rule) in cases {
        assert_eq!(fresh(chunks), Some(rule), "{chunks:?}");
    }
}

#[test]
fn faults_of_calls_are_found() {
    use ChunkRule as Rule;
    let begin = json!({"type": "tool-input-start", "toolCallId": "a", "toolName": "pay", "dynamic": true});
    let piece = json!({"type": "tool-input-delta", "toolCallId": "a", "inputTextDelta": "{}"});
    let mut other_tool = input("a");
    other_tool["toolName"] = json!("add");
    let mut other_kind = output("a");
    other_kind.as_object_mut().unwrap().remove("dynamic");
    let cases: [(&[Value], Rule); 8] = [
        (&[start(), step(), piece.clone()], Rule::InputStarted),
        (&[start(), step(), input("a"), piece], Rule::InputStarted),
        (&[start(), step(), begin.clone(), begin.clone()], Rule::CallIsNew),
        (&[start(), begin.clone()], Rule::PartNeedsStep),
        (&[start(), step(), begin, other_tool], Rule::SameTool),
        (&[start(), step(), input("a"), other_kind], Rule::SameTool),
        (&[start(), step(), input("a"), step_end(), step(), input("a")], Rule::InputInLastStep),
        // A client with automatic posts would post the settled step for ever.
        (&[start(), step(), input("a"), output("a"), step_end(), finish()], Rule::AnswersResolved),
    ];
    for (chunks, rule) in cases {
        assert_eq!(fresh(chunks), Some(rule), "{chunks:?}");
    }
}

#[test]
fn faults_of_form_are_found() {
    use ChunkRule as Rule;
    let cases = [
        (json!({"type": "reset-step"}), Rule::UnknownType),
        (
            json!({"type": "tool-approval-response", "approvalId": "a", "approved": true, "toolCallId": "c"}),
            Rule::UnknownType,
        ),
        (json!({}), Rule::UnknownType),
        (json!("start"), Rule::WrongType),
        (json!({"type": "abort", "reason": "stopped"}), Rule::UnknownField),
        (
            json!({"type": "tool-approval-request", "approvalId": "a", "toolCallId": "c", "signature": "s"}),
            Rule::UnknownField,
        ),
        (json!({"type": "text-start", "id": "t", "providerMetadata": null}), Rule::UnknownField),
        (json!({"type": "text-end", "id": "t", "providerMetadata": null}), Rule::NullField),
        (json!({"type": "finish", "finishReason": "stop", "messageMetadata": null}), Rule::NullField),
        (json!({"type": "finish", "finishReason": "interrupted"}), Rule::UnknownFinishReason),
        (json!({"type": "finish", "finishReason": "suspended"}), Rule::UnknownFinishReason),
        (json!({"type": "finish"}), Rule::MissingField),
        (json!({"type": "text-delta", "id": "t"}), Rule::MissingField),
        (json!({"type": "tool-output-available", "toolCallId": "a"}), Rule::MissingField),
        (json!({"type": "text-delta", "id": "t", "delta": 1}), Rule::WrongType),
        (
            json!({"type": "tool-input-start", "toolCallId": "a", "toolName": "x", "dynamic": "yes"}),
            Rule::WrongType,
        ),
    ];
    for (chunk, rule) in cases {
        assert_eq!(fresh(&[start(), step(), chunk.clone()]), Some(rule), "{chunk}");
    }
}

/// A verifier for the continuation of a message with one approval, which the user answered.
fn continuing() -> ChunkVerifier {
    let call = call("a", "pay");
    let mut script = RunScript::begun();
    script.answer("", std::slice::from_ref(&call)).ask(&call, "apr").waits_for_approval();
    let mut client = ChatClient::of(&crate::chat_client::fresh(&script));
    client.respond("apr", true, None);
    ChunkVerifier::continuing(MESSAGE, &client.seen())
}

#[test]
fn faults_of_continuations_are_found() {
    use ChunkRule as Rule;
    let mut other = start();
    other["messageId"] = json!("msg_run_2");
    let begin = json!({"type": "tool-input-start", "toolCallId": "a", "toolName": "pay", "dynamic": true});
    let cases: [(&[Value], Option<Rule>); 8] = [
        (&[other], Some(Rule::ContinuedMessageId)),
        // Neither resolved nor a new step: the client would post its answer again.
        (&[start(), waits()], Some(Rule::AnswersResolved)),
        (&[start(), begin], Some(Rule::CallIsNew)),
        (&[start(), output("b"), waits()], Some(Rule::CallIsKnown)),
        (&[start(), step(), step_end(), input("a")], Some(Rule::InputInLastStep)),
        (&[start(), output("a"), waits()], None),
        (&[start(), step(), step_end(), finish()], None),
        (&[start(), approval("a"), waits()], None),
    ];
    for (chunks, rule) in cases {
        assert_eq!(broken(continuing(), chunks), rule, "{chunks:?}");
    }
}
