//! What is stored: events with their version, a control that stays small, and deadlines that say why.

use machine::control::{CONTROL_BYTES_MAX, ControlDecodeError, FOLD_VERSION};
use machine::decision::{Decision, DecisionAction, Resume};
use machine::event::Message;
use machine::event_codec::{EventDecodeError, decode, encode};
use machine::input::{Outcome, RequestedCall, ToolAnswer};
use machine::phase::{AskKind, SuspendRequest};
use machine::policy::{ApprovalScope, Policy, PolicyRequest};
use machine::revision::{CALLS_OPEN_MAX, TOOL_NAME_BYTES_MAX};
use machine::rules::{ArgumentTest, Condition, Rule, RuleAction};
use machine::status::CallStatus;
use machine::suspension::{ResumeMode, SuspensionKind};
use machine::tool::{Approval, EffectClass};
use machine::{Control, Deadline, DeadlineReason, Event, Fact, Input, Rejection, Revision, Timestamp};
use serde_json::json;

use crate::props::stored_json;
use crate::story::{Story, names, order, question, tool, valid};

#[test]
fn a_stored_event_has_its_version_and_an_unknown_one_is_refused() {
    let story = Story::begin();
    let stored = stored_json(story.log.get(1).unwrap());
    assert_eq!(
        stored,
        json!({"v": 1, "seq": 2, "ts": 1_000, "step": null, "type": "run.started", "payload": {}})
    );
    let mut later = stored.clone();
    later["v"] = json!(2);
    let refused = decode(&later.to_string()).unwrap_err();
    assert_eq!(refused, EventDecodeError::Version(2));
    assert_eq!(refused.to_string(), "stored event of version 2; this software reads up to 1");
    let mut zero = stored;
    zero["v"] = json!(0);
    assert_eq!(decode(&zero.to_string()), Err(EventDecodeError::Version(0)));
}

#[test]
fn what_is_no_event_is_malformed_and_never_a_panic() {
    let event = encode(Story::begin().log.first().unwrap()).unwrap();
    for text in [
        "",
        "{",
        "null",
        "[]",
        "{}",
        r#"{"v":"1"}"#,
        r#"{"v":1}"#,
        r#"{"v":1,"seq":1,"ts":1,"step":null,"type":"run.invented","payload":{}}"#,
        r#"{"v":1,"seq":-1,"ts":1,"step":null,"type":"run.resumed","payload":{}}"#,
        &event[..event.len() - 1],
    ] {
        assert!(matches!(decode(text), Err(EventDecodeError::Malformed(_))), "{text}");
    }
    assert_eq!(decode("{}").unwrap_err().to_string(), "stored event cannot be read: it has no version");
}

#[test]
fn a_control_of_another_fold_version_is_distinguished_from_a_corrupt_one() {
    let story = Story::begin();
    let bytes = story.run.control.encode().unwrap();
    assert_eq!(Control::decode(&bytes).as_ref(), Ok(&story.run.control));
    let mut other = bytes.clone();
    *other.first_mut().unwrap() = u8::try_from(FOLD_VERSION).unwrap() + 1;
    assert_eq!(Control::decode(&other), Err(ControlDecodeError::UnsupportedVersion(FOLD_VERSION + 1)));
    for broken in [&bytes[..0], &bytes[..1], &bytes[..bytes.len() - 1]] {
        assert!(matches!(Control::decode(broken), Err(ControlDecodeError::Corrupt(_))));
    }
    // A longer layout under the same version is no control that can be trusted.
    let mut longer = bytes;
    longer.push(0);
    assert_eq!(Control::decode(&longer), Err(ControlDecodeError::Corrupt("bytes are left over".into())));
}

#[test]
fn the_control_knows_the_message_that_the_runs_input_begins_after() {
    let mut story = Story::queued_with(Revision::default(), order(Policy::default()));
    assert_eq!(story.run.control.after, None);
    story.ok(Input::Start { after: Some("msg_before".into()) });
    assert_eq!(story.run.control.after, Some("msg_before".into()));
}

#[test]
fn a_policy_of_an_older_or_newer_log_is_read_and_a_clients_with_a_strange_field_is_not() {
    let story = Story::with_policy(Policy { approval: ApprovalScope::AllTools, ..Policy::default() });
    let stored = stored_json(story.log.first().unwrap());
    let with = |policy: serde_json::Value| {
        let mut stored = stored.clone();
        stored["payload"]["policy"] = policy;
        match decode(&stored.to_string()).map(|event| event.fact) {
            Ok(Fact::RunQueued(order)) => order.policy,
            other => panic!("{other:?}"),
        }
    };
    let strict = Policy { approval: ApprovalScope::AllTools, ..Policy::default() };
    assert_eq!(with(json!({"approval": "all_tools"})), strict);
    assert_eq!(with(json!({"approval": "all_tools", "quorum": 2})), strict);
    assert_eq!(with(json!({})), Policy::default());
    assert!(serde_json::from_value::<PolicyRequest>(json!({"quorum": 2})).is_err());
}

/// As many calls of one tool as the run takes on at once, at most 64, with names and ids of these lengths.
fn many(name_bytes: usize, id_bytes: usize, revision: &Revision) -> (Story, Vec<String>) {
    let name = "n".repeat(name_bytes);
    for count in (1..=CALLS_OPEN_MAX).rev() {
        let mut story = Story::begin_with(revision.clone());
        let mut held = tool(EffectClass::Write, Approval::Ask);
        held.expires_in_ms = Some(86_400_000);
        story.tools.insert(name.clone(), held);
        story.now = Timestamp(1_800_000_000_000);
        let ids: Vec<String> = (0..count).map(|n| format!("{n:0id_bytes$}")).collect();
        let mut answered = story.answer("", &[]);
        answered.calls = ids
            .iter()
            .map(|id| RequestedCall {
                id: id.clone(),
                tool: name.as_str().into(),
                arguments: valid(json!({})),
            })
            .collect();
        story.model_answers(answered);
        let dropped = |event: &Event| matches!(event.fact, Fact::MessageAdded(Message::CallsDropped { .. }));
        if !story.log.iter().any(dropped) {
            return (story, ids);
        }
    }
    panic!("not even one call fits");
}

#[track_caller]
fn small(story: &Story) {
    let bytes = story.run.control.encode().unwrap().len();
    assert!(bytes <= CONTROL_BYTES_MAX, "{} calls take {bytes} bytes", story.run.control.calls.len());
}

#[test]
fn an_answer_that_asks_for_a_nameless_or_overlong_tool_is_asked_for_again() {
    for name in ["", &"n".repeat(TOOL_NAME_BYTES_MAX + 1)] {
        let mut story = Story::begin();
        let answered = story.answer("", &[("A", name, json!({}))]);
        assert_eq!(names(&story.ok(Input::ModelAnswered(answered))), ["model.retrying"]);
    }
}

#[test]
fn sixty_four_ordinary_calls_are_taken_on_and_held() {
    let (mut story, ids) = many(16, 29, &Revision::default());
    story.pass_gates();
    assert_eq!(ids.len(), 64);
    assert!(ids.iter().all(|id| story.status(id) == CallStatus::Suspended));
}

#[test]
fn the_stored_control_stays_small_through_hold_and_approval_whatever_the_names() {
    for (name_bytes, id_bytes) in [(1, 2), (8, 96), (9, 96), (64, 32), (128, 2), (128, 50), (128, 96)] {
        let (mut story, ids) = many(name_bytes, id_bytes, &Revision::default());
        small(&story);
        story.pass_gates();
        small(&story);
        for id in &ids {
            // The last of them may have found no room to be held, and said so.
            if story.status(id) == CallStatus::Failed {
                let full = "Error: the run's state has no room to hold the call";
                assert_eq!(story.tool_text(id), full);
                continue;
            }
            let decision = story.decision(id, DecisionAction::Resume(Resume::default()));
            story.ok(Input::Decide(decision));
            small(&story);
        }
        story.pass_gates();
        small(&story);
    }
}

#[test]
fn calls_that_are_approved_and_asked_about_again_stay_small_too() {
    let above = |limit| Rule {
        tool: "n".repeat(100).as_str().into(),
        when: vec![Condition { path: vec!["amount".into()], test: ArgumentTest::Gt(limit) }],
        then: RuleAction::Ask,
    };
    let rules = vec![above(1.0), above(2.0)];
    let (mut story, ids) = many(100, 32, &Revision { rules, ..Revision::default() });
    story.pass_gates();
    small(&story);
    for amount in [2, 3] {
        for id in &ids {
            if story.call(id).suspension().is_none() {
                continue;
            }
            let arguments = Some(valid(json!({"amount": amount})));
            story.decides(id, DecisionAction::Resume(Resume { arguments, ..Resume::default() }));
            small(&story);
        }
    }
    assert!(ids.iter().all(|id| story.status(id) != CallStatus::New));
}

/// A with this expiry, held.
fn held(tool: &str, expires_in_ms: u64) -> Story {
    let mut story = Story::begin();
    story.tools.get_mut(tool).unwrap().expires_in_ms = Some(expires_in_ms);
    story.asks_for(&[("A", tool)]);
    story
}

/// The tool asks the user, and the question has this expiry.
fn asking(kind: AskKind, expires_in_ms: u64) -> Story {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo")]);
    let asks = question(ResumeMode::UseDecisionAsToolResult);
    let asks = SuspendRequest { kind, expires_in_ms: Some(expires_in_ms), ..asks };
    story.returns("A", Outcome::Answered(ToolAnswer::Pending(asks)));
    story
}

#[test]
fn a_deadline_says_when_whose_and_why() {
    for (story, kind, text) in [
        (held("transfer", 5_000), SuspensionKind::Approval, "approval expires"),
        (asking(AskKind::Question, 5_000), SuspensionKind::Question, "question expires"),
        (asking(AskKind::ClientTool, 5_000), SuspensionKind::ClientTool, "client_tool expires"),
        (asking(AskKind::External, 5_000), SuspensionKind::External, "external expires"),
    ] {
        let reason = DeadlineReason::Expires(kind);
        assert_eq!(reason.to_string(), text);
        let deadline = Deadline { at: Timestamp(6_000), reason, call: "A".into() };
        assert_eq!(story.run.next_deadline(), Some(deadline));
    }
    assert_eq!(Story::begin().run.next_deadline(), None);
}

#[test]
fn what_a_child_works_on_outlives_the_expiry_of_its_tool() {
    let story = held("researcher", 5_000);
    assert_eq!(story.run.control.pending()[0].kind, SuspensionKind::ChildRun);
    assert_eq!(story.run.next_deadline(), None);
}

#[test]
fn the_earliest_deadline_is_the_next_and_a_due_one_takes_all_that_are_due() {
    let mut story = Story::begin();
    story.tools.get_mut("transfer").unwrap().expires_in_ms = Some(5_000);
    story.asks_for(&[("A", "transfer"), ("B", "echo"), ("C", "webhook")]);
    let asks = SuspendRequest { expires_in_ms: Some(3_000), ..question(ResumeMode::ReplayToolCall) };
    story.returns("B", Outcome::Answered(ToolAnswer::Pending(asks)));
    assert_eq!(story.run.next_deadline().unwrap().call.as_str(), "B");
    story.later(2_999);
    assert_eq!(story.refused(Input::DeadlineReached), Rejection::NothingDue);
    story.later(1);
    assert_eq!(names(&story.ok(Input::DeadlineReached)), ["tool.cancelled"]);
    assert_eq!(story.run.next_deadline().unwrap().call.as_str(), "A");

    let mut both = held("transfer", 5_000);
    both.later(60_000); // the server was down
    both.ok(Input::DeadlineReached);
    assert_eq!(both.tool_text("A"), "Denied by system: expired");
}

#[test]
fn a_decision_counts_by_when_it_was_accepted_and_not_by_when_it_is_processed() {
    let mut story = held("transfer", 5_000);
    story.later(4_999);
    let in_time = story.decision("A", crate::story::resume());
    story.later(1);
    let late = story.decision("A", crate::story::resume());
    let refused = story.refused(Input::Decide(late));
    assert_eq!(refused, Rejection::Expired { call: "A".into(), at: Timestamp(6_000) });
    story.later(9_000);
    story.ok(Input::Decide(in_time));
    assert_eq!(story.status("A"), CallStatus::Resuming);
}

#[test]
fn a_lost_write_is_offered_as_in_doubt_no_earlier_than_its_time() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "post")]);
    let doubt_at = story.now.plus_ms(10_000);
    story.ok(Input::LeaseAcquired { epoch: 2, doubt_at });
    assert_eq!(story.ok(Input::InboxDrained), []);
    assert_eq!(story.status("A"), CallStatus::Running);
    assert!(story.run.wanted().is_empty(), "no worker continues an attempt that it did not start");
    let reason = DeadlineReason::InDoubtDue;
    assert_eq!(reason.to_string(), "a lost write may be offered as in doubt");
    assert_eq!(story.run.next_deadline(), Some(Deadline { at: doubt_at, reason, call: "A".into() }));
    story.later(10_000);
    assert_eq!(names(&story.ok(Input::DeadlineReached)), ["tool.suspended", "run.waiting"]);
    let kind = story.call("A").suspension().unwrap().held.kind();
    assert_eq!((kind, story.run.next_deadline()), (SuspensionKind::InDoubt, None));
}

#[test]
fn what_a_tool_leaves_for_itself_may_take_sixteen_kibibytes() {
    let asks = |bytes: usize| {
        // Two of them are the quotes.
        let resume_state = Some(json!("x".repeat(bytes - 2)).into());
        let asks = SuspendRequest { resume_state, ..question(ResumeMode::ReplayToolCall) };
        let mut story = Story::begin();
        story.asks_for(&[("A", "echo")]);
        story.returns("A", Outcome::Answered(ToolAnswer::Pending(asks)));
        story
    };
    assert_eq!(asks(16_384).status("A"), CallStatus::Suspended);
    assert_eq!(asks(16_385).tool_text("A"), "Error: resume_state has 16385 bytes; at most 16384");
}

#[test]
fn only_a_decision_that_contradicts_the_log_is_an_internal_error() {
    let mut story = held("transfer", 5_000);
    let decision = story.decision("A", crate::story::resume());
    story.later(5_000);
    let late = Decision { accepted_at: story.now, ..decision };
    let refused = story.refused(Input::Decide(late));
    assert_eq!(refused.to_string(), "the time to decide on call A ended at 6000 ms");
    assert!(!refused.is_internal_error());
    // The same event a second time does not continue the log.
    let again = story.log.last().unwrap().clone();
    let broken = Rejection::from(story.run.apply(&again).unwrap_err());
    assert!(broken.is_internal_error(), "{broken}");
}

#[test]
fn a_lost_read_has_no_deadline_because_it_is_never_in_doubt() {
    for tool in ["echo", "upsert"] {
        let mut story = Story::begin();
        story.asks_for(&[("A", tool)]);
        story.ok(Input::LeaseAcquired { epoch: 2, doubt_at: story.now.plus_ms(10_000) });
        assert_eq!(story.run.next_deadline(), None, "{tool}");
    }
}
