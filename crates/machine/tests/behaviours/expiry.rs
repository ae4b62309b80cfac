//! `expires` of a tool counts for every kind of suspension of its calls, except a child run.

use machine::Input;
use machine::event::{CancelReason, Fact};
use machine::input::{Outcome, ToolAnswer};
use machine::phase::{Action, AskKind, SuppliedResult, SuspendRequest};
use machine::suspension::{Expiry, ResumeMode, SuspensionKind};
use machine::tool::{ExpiryTerms, OnExpiry};

use crate::props::hook;
use crate::story::{Story, names, question, unknown};

const EXPIRES_MS: u64 = 1_000;

/// Every tool of this story expires.
fn expiring(then: OnExpiry) -> Story {
    let mut story = Story::begin();
    for tool in story.tools.values_mut() {
        tool.expires_in_ms = Some(EXPIRES_MS);
        tool.on_expiry = then;
    }
    story
}

fn asks(kind: AskKind) -> SuspendRequest {
    SuspendRequest { kind, ..question(ResumeMode::UseDecisionAsToolResult) }
}

/// A story in which A is held like this, and the tool that holds it.
fn held(kind: SuspensionKind, then: OnExpiry) -> Story {
    let mut story = expiring(then);
    match kind {
        SuspensionKind::Approval => drop(story.asks_for(&[("A", "transfer")])),
        SuspensionKind::ClientTool => drop(story.asks_for(&[("A", "pick_file")])),
        SuspensionKind::External => drop(story.asks_for(&[("A", "webhook")])),
        SuspensionKind::Question => {
            story.asks_for(&[("A", "upsert")]);
            story.returns("A", Outcome::Answered(ToolAnswer::Pending(asks(AskKind::Question))));
        }
        SuspensionKind::InDoubt => {
            story.asks_for(&[("A", "post")]);
            story.returns("A", unknown());
        }
        SuspensionKind::ChildRun => drop(story.asks_for(&[("A", "researcher")])),
    }
    assert_eq!(story.call("A").suspension().map(|open| open.held.kind()), Some(kind));
    story
}

fn expiry(story: &Story) -> Option<Expiry> {
    story.call("A").suspension().unwrap().expiry
}

#[test]
fn every_kind_of_suspension_but_a_child_run_expires() {
    for kind in SuspensionKind::ALL {
        for then in [OnExpiry::Deny, OnExpiry::EndRun] {
            let mut story = held(kind, then);
            if kind == SuspensionKind::ChildRun {
                assert_eq!(expiry(&story), None);
                continue;
            }
            let at = story.now.plus_ms(EXPIRES_MS);
            assert_eq!(expiry(&story), Some(Expiry { at, then }), "{kind}");
            assert_eq!(story.run.next_deadline().map(|deadline| deadline.at), Some(at), "{kind}");
            story.later(EXPIRES_MS);
            let events = story.ok(Input::DeadlineReached);
            let ends = if kind == SuspensionKind::Approval { "tool.denied" } else { "tool.cancelled" };
            assert_eq!(names(&events)[0], ends, "{kind}");
            let reason = if kind == SuspensionKind::InDoubt {
                "Cancelled; it may have taken effect"
            } else if kind == SuspensionKind::Approval {
                "Denied by system: expired"
            } else {
                "Cancelled: expired"
            };
            assert_eq!(story.tool_text("A"), reason, "{kind}");
            let ended = story.run.control.ended().map(|ended| ended.done_reason());
            let expected = (then == OnExpiry::EndRun).then(|| "stopped:expired".to_owned());
            assert_eq!(ended, expected, "{kind}");
        }
    }
}

#[test]
fn an_expired_doubt_is_cancelled_with_an_unknown_outcome() {
    let mut story = held(SuspensionKind::InDoubt, OnExpiry::Deny);
    story.later(EXPIRES_MS);
    let events = story.ok(Input::DeadlineReached);
    let Fact::ToolCancelled { reason, by, outcome_unknown, .. } = &events[0].fact else {
        panic!("{events:?}");
    };
    assert_eq!((*reason, by.as_str(), *outcome_unknown), (CancelReason::Expired, "system", true));
}

#[test]
fn a_doubt_expires_by_the_terms_of_its_attempt_after_a_takeover() {
    let mut story = expiring(OnExpiry::Deny);
    story.asks_for(&[("A", "post")]);
    let started = story.log.iter().find_map(|event| match &event.fact {
        Fact::ExecutionStarted { expires, .. } => Some(*expires),
        _ => None,
    });
    assert_eq!(started, Some(Some(ExpiryTerms { after_ms: EXPIRES_MS, then: OnExpiry::Deny })));
    // The configuration that a later worker reads no longer expires anything.
    story.tools.get_mut("post").unwrap().expires_in_ms = None;
    story.later(50);
    let doubt_at = story.now;
    story.ok(Input::LeaseAcquired { epoch: 2, doubt_at });
    story.ok(Input::InboxDrained);
    assert_eq!(expiry(&story).map(|expiry| expiry.at), Some(story.now.plus_ms(EXPIRES_MS)));
}

#[test]
fn the_earlier_of_the_tools_expiry_and_the_requests_own_counts() {
    for (own, expected) in [(None, EXPIRES_MS), (Some(400), 400), (Some(5_000), EXPIRES_MS)] {
        let mut story = expiring(OnExpiry::EndRun);
        story.asks_for(&[("A", "upsert")]);
        let request = SuspendRequest { expires_in_ms: own, ..asks(AskKind::External) };
        story.returns("A", Outcome::Answered(ToolAnswer::Pending(request)));
        let at = story.now.plus_ms(expected);
        assert_eq!(expiry(&story), Some(Expiry { at, then: OnExpiry::EndRun }), "{own:?}");
    }
}

#[test]
fn what_a_hook_holds_expires_too() {
    let actions = [
        Action::Suspend(asks(AskKind::Question)),
        Action::SetResult(SuppliedResult::Pending(asks(AskKind::External))),
    ];
    for action in actions {
        let mut story = expiring(OnExpiry::Deny);
        story.gate_hooks.insert("A".into(), hook(action));
        story.asks_for(&[("A", "echo")]);
        assert_eq!(expiry(&story).map(|expiry| expiry.at), Some(story.now.plus_ms(EXPIRES_MS)));
    }
}
