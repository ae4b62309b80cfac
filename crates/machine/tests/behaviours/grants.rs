//! What a grant lifts: the reasons that its giver was asked about, for that agent and that tool, and nothing else.

use machine::decision::{DecisionAction, Resume};
use machine::event::{Fact, RunRequest};
use machine::grant::{Grant, GrantCoverage, HoldReason};
use machine::id::Principal;
use machine::inbox::{Item, Refusal, SubmitContext, Verdict, judge_item};
use machine::phase::{Action, AskKind, SuspendRequest};
use machine::policy::{ApprovalScope, Policy};
use machine::projection_rows::{InboxPosition, ProjectionRows};
use machine::revision::Revision;
use machine::rules::{ArgumentTest, Rule};
use machine::status::CallStatus;
use machine::suspension::ResumeMode;
use machine::tool::{Approval, ApprovalTerms, EffectClass, OnExpiry, Tool};
use machine::{Input, Rejection};
use serde_json::json;

use crate::hooks::one;
use crate::story::{Story, auto_approval, names, order, question, tool};

fn scope(approval: ApprovalScope) -> Policy {
    Policy { approval, ..Policy::default() }
}

fn agent_with(rules: Vec<Rule>, approval: ApprovalScope) -> Revision {
    Revision { rules, policy: scope(approval), ..Revision::default() }
}

/// A run of this agent under the policy that its message asked for.
fn begin(revision: Revision, run: ApprovalScope) -> Story {
    let order = order(scope(run));
    started(revision, order)
}

fn started(revision: Revision, order: RunRequest) -> Story {
    let mut story = Story::queued_with(revision, order);
    story.ok(Input::Start { after: None });
    story
}

/// The model asks for a transfer of this amount, and the gate judges it.
fn transfer(story: &mut Story, call: &str, amount: u64) -> CallStatus {
    let answered = story.answer("", &[(call, "transfer", json!({"amount": amount}))]);
    story.model_answers(answered);
    story.pass_gates();
    story.status(call)
}

fn for_later_calls() -> DecisionAction {
    DecisionAction::Resume(Resume { apply_to_future: true, ..Resume::default() })
}

/// What an approval of call A with `apply_to_future` grants.
fn granted(mut story: Story, amount: u64) -> Vec<Grant> {
    assert_eq!(transfer(&mut story, "A", amount), Suspended);
    let before = story.run.control.clone();
    let events = story.decides("A", for_later_calls());
    let mut rows = ProjectionRows::default();
    rows.add_events(Some(&before), &events, InboxPosition::default());
    assert_eq!(rows.grants.len(), 1);
    rows.grants.into_iter().map(|row| row.grant).collect()
}

/// How a later transfer of this amount fares in another run of the same thread.
fn later(revision: Revision, run: ApprovalScope, grants: &[Grant], amount: u64) -> CallStatus {
    let mut story = begin(revision, run);
    story.grants = grants.to_vec();
    transfer(&mut story, "B", amount)
}

use ApprovalScope::{AllTools, Never, Policy as Usual, WriteTools};
use CallStatus::{Running, Suspended};

fn large() -> Rule {
    Rule::ask("transfer").when("amount", ArgumentTest::Gt(100.0))
}

#[test]
fn what_is_granted_after_a_loosening_ended_covers_the_agents_policy_that_held_the_call() {
    let mut loose = order(scope(Usual));
    loose.loosened_by = Some(Principal::from("bo"));
    let mut story = started(agent_with(Vec::new(), AllTools), loose.clone());
    story.tools.insert("transfer".into(), tool(EffectClass::Write, Approval::Never));
    story.loosening_ended = true;
    let grants = granted(story, 5);
    assert!(
        matches!(&grants[0].covers, GrantCoverage::Tool(granted) if granted.reasons == [HoldReason::Agent(AllTools)]),
        "{grants:?}"
    );
    let mut story = started(agent_with(Vec::new(), AllTools), loose);
    story.tools.insert("transfer".into(), tool(EffectClass::Write, Approval::Never));
    story.loosening_ended = true;
    story.grants = grants;
    assert_eq!(transfer(&mut story, "B", 5), Running);
}

#[test]
fn a_grant_for_the_tools_own_ask_lifts_no_rule() {
    let grants = granted(begin(agent_with(vec![large()], Usual), Usual), 5);
    let later = |amount| later(agent_with(vec![large()], Usual), Usual, &grants, amount);
    assert_eq!(later(6), Running);
    assert_eq!(later(1_000_000), Suspended);
}

#[test]
fn a_grant_for_a_rule_lifts_this_rule_at_any_position_and_no_other() {
    let grants = granted(begin(agent_with(vec![large()], Usual), Usual), 500);
    let huge = Rule::ask("transfer").when("amount", ArgumentTest::Gt(10_000.0));
    let moved = agent_with(vec![Rule::ask("refund"), large(), huge.clone()], Usual);
    assert_eq!(later(moved.clone(), Usual, &grants, 700), Running);
    // Another rule asks as well.
    assert_eq!(later(moved, Usual, &grants, 20_000), Suspended);
    // The same place in the file has another rule now.
    assert_eq!(later(agent_with(vec![huge], Usual), Usual, &grants, 20_000), Suspended);
    // No rule matches, so the tool's own `ask` counts: no person was asked about that.
    assert_eq!(later(agent_with(vec![large()], Usual), Usual, &grants, 5), Suspended);
}

#[test]
fn a_stricter_agent_still_asks_and_a_looser_one_does_not() {
    let grants = granted(begin(agent_with(Vec::new(), WriteTools), WriteTools), 5);
    let later = |agent| later(agent_with(Vec::new(), agent), agent, &grants, 5);
    assert_eq!((later(WriteTools), later(AllTools)), (Running, Suspended));
    assert_eq!(later(Usual), Running, "what a looser policy asks about was asked about");
}

#[test]
fn a_grant_is_for_the_agent_whose_call_was_approved() {
    let grants = granted(begin(agent_with(Vec::new(), Usual), Usual), 5);
    let mut other = order(scope(Usual));
    other.agent = "porter".into();
    let mut story = started(agent_with(Vec::new(), Usual), other);
    story.grants = grants.clone();
    assert_eq!(transfer(&mut story, "B", 5), Suspended);
    // One that was stored before grants named their agent counts for each of them.
    let unnamed = grants.into_iter().map(|grant| match grant.covers {
        GrantCoverage::Tool(covered) => Grant {
            covers: GrantCoverage::Tool(machine::grant::ToolGrant { agent: None, ..covered }),
            ..grant
        },
        GrantCoverage::Thread => panic!("it is for one tool"),
    });
    let mut other = order(scope(Usual));
    other.agent = "porter".into();
    let mut story = started(agent_with(Vec::new(), Usual), other);
    story.grants = unnamed.collect();
    assert_eq!(transfer(&mut story, "B", 5), Running);
}

#[test]
fn a_message_that_tightens_asks_despite_every_grant_of_earlier_runs() {
    let usual = || agent_with(Vec::new(), Usual);
    let of_the_tool = granted(begin(usual(), Usual), 5);
    // Given in a run that was as strict: that run's own strictness was lifted, not the next message's.
    let of_a_strict_run = granted(begin(usual(), AllTools), 5);
    for grants in [&of_the_tool, &of_a_strict_run, &vec![auto_approval()]] {
        assert_eq!(later(usual(), Usual, grants, 5), Running, "{grants:?}");
        for stricter in [WriteTools, AllTools] {
            let mut order = order(scope(stricter));
            order.run_id = "run_later".into();
            let mut story = started(usual(), order);
            story.grants.clone_from(grants);
            assert_eq!(transfer(&mut story, "B", 5), Suspended, "{stricter:?} {grants:?}");
        }
    }
    // Where the agent never asks, a message that turns asking on is as strict.
    let mut story = begin(agent_with(Vec::new(), Never), Usual);
    story.grants = of_the_tool;
    assert_eq!(transfer(&mut story, "B", 5), Suspended);
}

#[test]
fn in_a_tightened_run_a_grant_lifts_the_ask_of_that_very_run() {
    let grants = granted(begin(agent_with(Vec::new(), Usual), AllTools), 5);
    assert_eq!(later(agent_with(Vec::new(), Usual), AllTools, &grants, 6), Running);
}

#[test]
fn every_reason_needs_a_grant_and_the_first_giver_is_named() {
    let mut both = granted(begin(agent_with(vec![large()], Usual), Usual), 500);
    let revision = || agent_with(vec![large()], WriteTools);
    assert_eq!(later(revision(), WriteTools, &both, 500), Suspended, "the policy asks beside the rule");
    let mut policy = granted(begin(agent_with(Vec::new(), WriteTools), WriteTools), 5);
    policy.iter_mut().for_each(|grant| grant.by = Principal::from("bo"));
    both.extend(policy);
    let mut story = begin(revision(), WriteTools);
    story.grants = both;
    assert_eq!(transfer(&mut story, "B", 500), Running);
    let named = story.log.iter().find_map(|event| match &event.fact {
        Fact::ExecutionStarted { let_through_by, .. } => let_through_by.clone(),
        _ => None,
    });
    assert_eq!(named, Some(Principal::from("ana")));
}

#[test]
fn one_answer_of_a_person_is_for_every_policy_that_asks_about_the_call() {
    let mut story = begin(agent_with(Vec::new(), Usual), WriteTools);
    story.tools.insert("transfer".into(), tool(EffectClass::Write, Approval::Never));
    assert_eq!(transfer(&mut story, "A", 5), Suspended);
    // The file says `ask` now. The person has said yes to this very call.
    story.tools.insert("transfer".into(), tool(EffectClass::Write, Approval::Ask));
    story.approves("A");
    assert_eq!(story.status("A"), Running);
}

#[test]
fn a_plugin_that_asked_will_ask_again_so_nothing_can_be_granted() {
    let mut story = Story::begin();
    let asks = SuspendRequest { kind: AskKind::Approval, ..question(ResumeMode::ReplayToolCall) };
    story.gate_hooks.insert("A".into(), one("four_eyes", Action::Suspend(asks)));
    story.asks_for(&[("A", "echo")]);
    assert_eq!(story.status("A"), Suspended);
    let decision = story.decision("A", for_later_calls());
    let judged = judge_item(
        &Item::Decision(decision.clone()),
        &SubmitContext { control: &story.run.control, inbox: &[], earlier: None },
    );
    let Verdict::Refused(Refusal::Invalid(why)) = judged else { panic!("{judged:?}") };
    assert!(why.contains("apply_to_future"), "{why}");
    assert!(matches!(story.refused(Input::Decide(decision)), Rejection::Invalid { .. }));
    story.approves("A");
    assert_eq!(story.status("A"), Running);
}

#[test]
fn an_approval_from_an_older_log_covers_only_the_tools_own_ask() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer")]);
    for call in &mut story.run.control.calls {
        call.asked = vec![machine::rules::Asker::Policy];
    }
    let before = story.run.control.clone();
    let approved = story.decision("A", for_later_calls());
    let decided = story.run.decide(&Input::Decide(approved), story.now).unwrap();
    let mut rows = ProjectionRows::default();
    rows.add_events(Some(&before), &decided.events, InboxPosition::default());
    let GrantCoverage::Tool(covered) = &rows.grants[0].grant.covers else { panic!("it is for one tool") };
    assert_eq!(covered.reasons, [HoldReason::Tool]);
}

#[test]
fn a_looser_policy_ends_when_its_giver_may_approve_no_longer() {
    let mut loose = order(scope(Never));
    loose.loosened_by = Some(Principal::from("bo"));
    let mut story = started(agent_with(Vec::new(), Usual), loose.clone());
    story.asks_for(&[("A", "transfer")]);
    assert_eq!(story.status("A"), Running);
    let mut story = started(agent_with(Vec::new(), Usual), loose);
    story.loosening_ended = true;
    assert_eq!(transfer(&mut story, "A", 5), Suspended);
}

#[test]
fn a_pinned_run_has_the_stricter_of_the_frozen_and_the_current_terms() {
    use Approval::{Ask, Block, Never};
    let strictest = [(Never, Ask, Ask), (Ask, Never, Ask), (Block, Ask, Block), (Never, Block, Block)];
    let live = |approval, expires_in_ms, on_expiry| Tool {
        expires_in_ms,
        on_expiry,
        ..tool(EffectClass::Write, approval)
    };
    for (now, frozen, expected) in strictest {
        let terms = ApprovalTerms { approval: frozen, expires_in_ms: None, on_expiry: OnExpiry::Deny };
        let tightened = live(now, None, OnExpiry::Deny).tightened_by(&terms);
        assert_eq!(tightened, live(expected, None, OnExpiry::Deny));
    }
    for (now, frozen, expected) in [
        (None, Some(5), Some(5)),
        (Some(5), None, Some(5)),
        (Some(9), Some(5), Some(5)),
        (Some(5), Some(9), Some(5)),
    ] {
        let terms = ApprovalTerms { approval: Ask, expires_in_ms: frozen, on_expiry: OnExpiry::Deny };
        assert_eq!(live(Ask, now, OnExpiry::Deny).tightened_by(&terms).expires_in_ms, expected);
    }
    for (now, frozen) in [(OnExpiry::EndRun, OnExpiry::Deny), (OnExpiry::Deny, OnExpiry::EndRun)] {
        let terms = ApprovalTerms { approval: Ask, expires_in_ms: None, on_expiry: frozen };
        assert_eq!(live(Ask, Some(5), now).tightened_by(&terms).on_expiry, OnExpiry::EndRun);
    }
}

#[test]
fn the_log_says_what_a_grant_covers() {
    let mut story = begin(agent_with(Vec::new(), WriteTools), WriteTools);
    transfer(&mut story, "A", 5);
    let events = story.decides("A", for_later_calls());
    assert_eq!(names(&events)[0], "tool.approved");
    let stored = machine::event_codec::encode(&events[0]).unwrap();
    assert!(stored.contains(r#""covers":["tool",{"agent":"write_tools"}]"#), "{stored}");
}
