//! The inbox: the verdict on what is submitted, and the order in which a run processes it.

use machine::decision::{Decision, DecisionAction, Resume};
use machine::event::{InterruptCause, Usage};
use machine::id::{CallId, Digest, Principal, RunId, SuspensionId};
use machine::inbox::{
    EarlierDecision, Item, Refusal, RunLifecycle, SubmitContext, SuspensionRow, Target, Verdict, drain,
    judge_decision, judge_item, judge_late_answer, may_keep_early, suspension_row, target_suspension,
    to_input,
};
use machine::input::{ChildEnd, ChildEnded};
use machine::policy::{Continuation, DecisionTiming, OnReject, Policy};
use machine::status::{CallStatus, RunStatus, WaitingOn};
use machine::suspension::{ResumeMode, SuspensionKind};
use machine::{Control, Effect, Input, Rejection, Timestamp};
use serde_json::json;

use crate::story::{Story, cancel, invalid, names, resume, resume_with, success, unknown};

fn at_boundary() -> Policy {
    Policy { decisions: DecisionTiming::AtBoundary, ..Policy::default() }
}

fn decision_on(call: &str, action: DecisionAction) -> Decision {
    Decision {
        id: None,
        call: CallId::from(call),
        suspension: SuspensionId::from(format!("apr_{call}")),
        by: Principal::from("ana"),
        accepted_at: Timestamp(1_000),
        definition_now: None,
        action,
    }
}

fn decided(call: &str) -> Item {
    Item::Decision(decision_on(call, resume()))
}

fn late(call: &str) -> Item {
    Item::LateAnswer { step: 1, call: CallId::from(call), attempt: 1, outcome: success(json!("late")) }
}

fn child_end(call: &str) -> Item {
    Item::ChildEnded(ChildEnded {
        call: CallId::from(call),
        run: RunId::from("run_child"),
        end: ChildEnd::Interrupted,
        usage: Usage::default(),
        descendants: 0,
    })
}

fn interrupt() -> Item {
    Item::Interrupt { cause: InterruptCause::Person(Principal::from("ana")) }
}

/// A is held for approval, C runs.
fn held_beside_running(policy: Policy) -> Story {
    let mut story = Story::with_policy(policy);
    story.asks_for(&[("A", "transfer"), ("C", "echo")]);
    assert_eq!((story.status("A"), story.status("C")), (CallStatus::Suspended, CallStatus::Running));
    story
}

/// The order in which a run processes its inbox: results, then people and parents. A message of a user or of another
/// agent is no inbox item; it starts a run.
const fn class(item: &Item) -> u8 {
    match item {
        Item::LateAnswer { .. } | Item::ChildEnded(_) => 0,
        Item::Decision(_) | Item::Early { .. } | Item::Interrupt { .. } => 1,
    }
}

#[test]
fn b48_of_any_two_items_the_result_is_processed_first() {
    let story = held_beside_running(Policy::default());
    let early = || {
        let Item::Decision(decision) = decided("A") else { panic!("it is one") };
        Item::Early { digest: story.call("A").arguments, decision }
    };
    let all = || [late("C"), child_end("D"), decided("B"), early(), interrupt()];
    for (place, first) in all().iter().enumerate() {
        for (other, second) in all().iter().enumerate().filter(|(other, _)| *other != place) {
            let expected = if class(second) < class(first) { [1, 0] } else { [0, 1] };
            let inbox = [first.clone(), second.clone()];
            assert_eq!(drain(&story.run.control, &inbox, false), expected, "{place} before {other}");
        }
    }
}

#[test]
fn b45_b46_b47_b48_results_come_first_and_both_kinds_keep_their_order() {
    let story = held_beside_running(Policy::default());
    let inbox = [decided("A"), late("C"), decided("B"), interrupt(), child_end("D"), late("E"), decided("F")];
    // Results as they came: 1, 4, 5. Then the rest as it came: an early request never beats a later result.
    assert_eq!(drain(&story.run.control, &inbox, false), [1, 4, 5, 0, 2, 3, 6]);
    assert_eq!(drain(&story.run.control, &[], false), Vec::<usize>::new());
}

#[test]
fn b45_a_result_never_overtakes_an_earlier_decision_about_the_same_call() {
    let story = held_beside_running(Policy::default());
    let inbox = [decided("A"), late("A"), late("C"), child_end("A")];
    assert_eq!(drain(&story.run.control, &inbox, false), [2, 0, 1, 3]);
    // A result before it may go first.
    assert_eq!(drain(&story.run.control, &[late("A"), decided("A")], false), [0, 1]);
}

#[test]
fn b45_a_result_does_not_overtake_a_deferred_decision() {
    let story = held_beside_running(at_boundary());
    assert_eq!(drain(&story.run.control, &[decided("A"), late("A")], false), Vec::<usize>::new());
}

#[test]
fn a109_a110_at_boundary_a_decision_waits_for_the_tools_and_is_processed_right_after() {
    let mut story = held_beside_running(at_boundary());
    let inbox = [Item::Decision(story.decision("A", resume()))];
    assert_eq!(drain(&story.run.control, &inbox, false), Vec::<usize>::new());
    story.succeeds("C");
    assert_eq!(drain(&story.run.control, &inbox, false), [0]);
    let input = to_input(&story.run.control, &inbox[0]).unwrap();
    assert_eq!(names(&story.ok(input)), ["tool.approved", "run.resumed"]);
}

#[test]
fn a111_a112_processed_at_once_a_decision_starts_its_call_beside_the_running_one() {
    let mut story = held_beside_running(Policy::default());
    let inbox = [Item::Decision(story.decision("A", resume()))];
    assert_eq!(drain(&story.run.control, &inbox, false), [0]);
    let input = to_input(&story.run.control, &inbox[0]).unwrap();
    assert_eq!(names(&story.ok(input)), ["tool.approved"]);
    story.pass_gates();
    assert_eq!((story.status("A"), story.status("C")), (CallStatus::Running, CallStatus::Running));
}

#[test]
fn a109_an_interrupt_or_an_outdated_store_ends_the_deferral() {
    let story = held_beside_running(at_boundary());
    // The interrupt would close what the decision answers: the decision is processed first.
    assert_eq!(drain(&story.run.control, &[decided("A"), interrupt()], false), [0, 1]);
    assert_eq!(drain(&story.run.control, &[decided("A")], true), [0]);
    // Results are never put off.
    assert_eq!(drain(&story.run.control, &[decided("A"), late("C")], false), [1]);
}

#[test]
fn a114_a_decision_is_processed_while_the_model_is_called() {
    for decisions in [DecisionTiming::Immediate, DecisionTiming::AtBoundary] {
        let mut story =
            held_beside_running(Policy { continuation: Continuation::Eager, decisions, ..Policy::default() });
        story.succeeds("C");
        assert!(matches!(story.run.wanted().first(), Some(Effect::CallModel { step: 2, .. })));
        let inbox = [Item::Decision(story.decision("A", resume()))];
        assert_eq!(drain(&story.run.control, &inbox, false), [0]);
        let input = to_input(&story.run.control, &inbox[0]).unwrap();
        story.ok(input);
        story.pass_gates();
        assert_eq!(story.status("A"), CallStatus::Running);
        // The model's answer is still wanted: its attempt continues.
        assert_eq!(story.run.wanted().len(), 2);
        assert!(matches!(story.run.wanted().first(), Some(Effect::CallModel { step: 2, attempt: 1, .. })));
    }
}

#[test]
fn a79_an_early_decision_is_kept_and_applied_once_the_call_is_held() {
    let mut story = Story::begin();
    let answered = story.answer("", &[("A", "transfer", json!({"of": "A"}))]);
    story.model_answers(answered);
    let call = CallId::from("A");
    assert!(may_keep_early(&story.run.control, &call));
    assert!(!may_keep_early(&story.run.control, &CallId::from("missing")));
    let digest = story.call("A").arguments;
    let early = Item::Early { decision: decision_on("A", resume()), digest };
    let other =
        Item::Early { decision: decision_on("A", resume()), digest: Digest::sha256(b"other arguments") };
    // New: it stays in the inbox.
    assert_eq!(drain(&story.run.control, &[early.clone(), other.clone()], false), Vec::<usize>::new());
    assert_eq!(to_input(&story.run.control, &early), None);
    story.pass_gates();
    assert!(!may_keep_early(&story.run.control, &call));
    // Held: the decision for these arguments is processed; the other is taken out and means nothing.
    assert_eq!(drain(&story.run.control, &[early.clone(), other.clone()], false), [0, 1]);
    assert_eq!(to_input(&story.run.control, &other), None);
    let input = to_input(&story.run.control, &early).unwrap();
    let Input::Decide(decision) = &input else { panic!("an early decision is a decision") };
    assert_eq!(decision.suspension, story.call("A").suspension().unwrap().id);
    assert_eq!(names(&story.ok(input)), ["tool.approved", "run.resumed"]);
    // Settled, or an unknown call: pointless, and gone from the inbox.
    story.pass_gates();
    story.succeeds("A");
    assert_eq!(drain(&story.run.control, std::slice::from_ref(&early), false), [0]);
    assert_eq!(to_input(&story.run.control, &early), None);
}

#[test]
fn a79_an_early_decision_approves_and_does_not_answer_another_question() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "pick_file")]);
    let early = Item::Early {
        decision: decision_on("A", resume_with(json!(true))),
        digest: story.call("A").arguments,
    };
    assert_eq!(to_input(&story.run.control, &early), None);
    assert_eq!(story.run_status(), &RunStatus::Waiting(WaitingOn::Tool));
}

#[test]
fn a109_an_early_decision_that_is_due_is_put_off_like_any_other() {
    let story = held_beside_running(at_boundary());
    let early = Item::Early { decision: decision_on("A", resume()), digest: story.call("A").arguments };
    assert_eq!(drain(&story.run.control, std::slice::from_ref(&early), false), Vec::<usize>::new());
    assert_eq!(drain(&story.run.control, &[early], true), [0]);
}

fn approval_row() -> SuspensionRow {
    SuspensionRow {
        id: SuspensionId::from("apr_A"),
        kind: SuspensionKind::Approval,
        mode: ResumeMode::ReplayToolCall,
        arguments: Digest::sha256(b"arguments"),
        definition: Some(Digest::sha256(b"definition")),
        expires_at: None,
        answered: false,
        doubted_attempt: None,
        is_grantable: true,
    }
}

fn seen(digest: &[u8]) -> Decision {
    let expect_digest = Some(Digest::sha256(digest));
    decision_on("A", DecisionAction::Resume(Resume { expect_digest, ..Resume::default() }))
}

#[test]
fn b32_the_verdict_on_a_decision_in_every_situation() {
    let row = approval_row();
    let expires = |ms| SuspensionRow { expires_at: Some(Timestamp(ms)), ..approval_row() };
    let no = |refusal| Verdict::Refused(refusal);
    let yes = decision_on("A", resume());
    let bare = decision_on("A", resume_with(json!(null)));
    let words = "an approval needs a plain yes: leave `result` out or set it to true";
    let cases = [
        ("held", &yes, RunLifecycle::Open, Some(row.clone()), Verdict::Accepted),
        ("denied", &decision_on("A", cancel()), RunLifecycle::Open, Some(row.clone()), Verdict::Accepted),
        ("not held", &yes, RunLifecycle::Open, None, no(Refusal::NotHeld)),
        (
            "held by a later question",
            &yes,
            RunLifecycle::Open,
            Some(SuspensionRow { id: SuspensionId::from("apr_A2"), ..row.clone() }),
            no(Refusal::NotHeld),
        ),
        (
            "another person was faster",
            &yes,
            RunLifecycle::Open,
            Some(SuspensionRow { answered: true, ..row.clone() }),
            no(Refusal::Answered),
        ),
        ("in time", &yes, RunLifecycle::Open, Some(expires(1_001)), Verdict::Accepted),
        ("at its end", &yes, RunLifecycle::Open, Some(expires(1_000)), no(Refusal::Expired)),
        ("interrupting", &yes, RunLifecycle::Ending, Some(row.clone()), no(Refusal::RunOver)),
        ("ended", &yes, RunLifecycle::Ended, Some(row.clone()), no(Refusal::RunOver)),
        ("null", &bare, RunLifecycle::Open, Some(row.clone()), no(Refusal::Invalid(words.into()))),
        ("what was seen", &seen(b"arguments"), RunLifecycle::Open, Some(row.clone()), Verdict::Accepted),
        ("something else", &seen(b"others"), RunLifecycle::Open, Some(row), no(Refusal::DigestMismatch)),
    ];
    for (situation, decision, run, row, wanted) in cases {
        assert_eq!(judge_decision(decision, run, row.as_ref(), None), wanted, "{situation}");
    }
}

#[test]
fn b5_digest_and_definition_are_judged_before_an_edit() {
    let judged = |action, definition_now| {
        let decision = Decision { definition_now, ..decision_on("A", action) };
        judge_decision(&decision, RunLifecycle::Open, Some(&approval_row()), None)
    };
    let edit = |expect_digest| {
        let arguments = Some(invalid("`to` is missing"));
        DecisionAction::Resume(Resume { arguments, expect_digest, ..Resume::default() })
    };
    let other = Some(Digest::sha256(b"definition 2"));
    assert_eq!(judged(edit(None), other), Verdict::ToolChanged, "the edit is for what was shown");
    let seen_other = Some(Digest::sha256(b"others"));
    assert_eq!(judged(edit(seen_other), other), Verdict::Refused(Refusal::DigestMismatch));
    let why = "the edited arguments are bad: `to` is missing";
    assert_eq!(judged(edit(None), None), Verdict::Refused(Refusal::Invalid(why.into())));
    // What is no plain yes approves nothing, whatever the tool is by now.
    let words = "an approval needs a plain yes: leave `result` out or set it to true";
    assert_eq!(judged(resume_with(json!(null)), other), Verdict::Refused(Refusal::Invalid(words.into())));
}

/// Nothing but an interrupt is accepted behind the item: the run will end.
fn ends_run(control: &Control, item: &Item) -> bool {
    let inbox = std::slice::from_ref(item);
    judge_item(&late("C"), &SubmitContext { control, inbox, earlier: None })
        == Verdict::Refused(Refusal::RunOver)
}

#[test]
fn d38_a_denial_ends_the_run_where_it_or_the_policy_says_so_and_nothing_else_does() {
    let no = |then| DecisionAction::Cancel { reason: None, then };
    let (continue_run, end) = (Some(OnReject::Continue), Some(OnReject::EndRun));
    let table = [
        (None, None, false),
        (None, continue_run, false),
        (None, end, true),
        (continue_run, None, false),
        (continue_run, end, true),
        (end, None, true),
        (end, continue_run, false),
        (end, end, true),
    ];
    for (on_reject, then, ends) in table {
        let mut story = held_beside_running(Policy { on_reject, ..Policy::default() });
        let decision = story.decision("A", no(then));
        let early = Item::Early { decision: decision.clone(), digest: story.call("A").arguments };
        let item = Item::Decision(decision);
        let control = &story.run.control;
        assert_eq!(ends_run(control, &item), ends, "{on_reject:?}, then {then:?}");
        assert_eq!(ends_run(control, &early), ends, "{on_reject:?}, then {then:?}");
        let others =
            Item::Early { decision: story.decision("A", no(then)), digest: Digest::sha256(b"others") };
        assert!(!ends_run(control, &others), "it is for other arguments");
        // And it is so once the run has processed it: the outcome cannot differ from the preview.
        let input = to_input(control, &item).unwrap();
        let ending = names(&story.ok(input)).iter().any(|name| name == "run.ending");
        assert_eq!(ending, ends, "{on_reject:?}, then {then:?}");
    }
    let mut in_doubt = Story::with_policy(Policy { on_reject: end, ..Policy::default() });
    in_doubt.asks_for(&[("A", "post"), ("C", "echo")]);
    in_doubt.returns("A", unknown());
    let given_up = Item::Decision(in_doubt.decision("A", no(end)));
    assert!(!ends_run(&in_doubt.run.control, &given_up), "a call that is given up is no denial");
    let story = held_beside_running(Policy { on_reject: end, ..Policy::default() });
    for item in [decided("A"), late("C"), child_end("A")] {
        assert!(!ends_run(&story.run.control, &item), "{item:?}");
    }
}

#[test]
fn b32_a_repeated_decision_has_its_answer_even_after_the_end() {
    let yes = decision_on("A", resume());
    for run in [RunLifecycle::Open, RunLifecycle::Ending, RunLifecycle::Ended] {
        for row in [None, Some(approval_row())] {
            let judged = |same_content| {
                judge_decision(&yes, run, row.as_ref(), Some(EarlierDecision { same_content }))
            };
            assert_eq!(judged(true), Verdict::AlreadyApplied);
            assert_eq!(judged(false), Verdict::Refused(Refusal::IdUsed));
        }
    }
}

#[test]
fn b51_only_the_late_answer_of_the_attempt_that_is_lost_or_in_doubt_is_taken() {
    let doubt = SuspensionRow { kind: SuspensionKind::InDoubt, doubted_attempt: Some(2), ..approval_row() };
    let judged = |run, row: &SuspensionRow, attempt| judge_late_answer(run, None, Some(row), attempt);
    assert_eq!(judged(RunLifecycle::Open, &doubt, 2), Verdict::Accepted);
    assert_eq!(judged(RunLifecycle::Open, &doubt, 1), Verdict::Refused(Refusal::NotHeld));
    assert_eq!(judged(RunLifecycle::Open, &approval_row(), 1), Verdict::Refused(Refusal::NotHeld));
    assert_eq!(judge_late_answer(RunLifecycle::Open, None, None, 2), Verdict::Refused(Refusal::NotHeld));
    let decided = SuspensionRow { answered: true, ..doubt.clone() };
    assert_eq!(judged(RunLifecycle::Open, &decided, 2), Verdict::Refused(Refusal::Answered));
    assert_eq!(judged(RunLifecycle::Ending, &doubt, 2), Verdict::Refused(Refusal::RunOver));
    assert_eq!(judged(RunLifecycle::Ended, &doubt, 2), Verdict::Refused(Refusal::RunOver));
}

#[test]
fn b51_between_the_take_over_and_the_doubt_the_late_answer_of_the_lost_attempt_is_taken() {
    // The call is still Running, so that no suspension is open that could be in doubt.
    let judged = |run, attempt| judge_late_answer(run, Some(2), None, attempt);
    assert_eq!(judged(RunLifecycle::Open, 2), Verdict::Accepted);
    assert_eq!(judged(RunLifecycle::Open, 1), Verdict::Refused(Refusal::NotHeld));
    assert_eq!(judged(RunLifecycle::Ending, 2), Verdict::Refused(Refusal::RunOver));
    assert_eq!(judged(RunLifecycle::Ended, 2), Verdict::Refused(Refusal::RunOver));
}

#[test]
fn b5_the_approval_of_a_changed_tool_is_reported_at_once_and_still_processed() {
    let now = |definition: &[u8], action| {
        let definition_now = Some(Digest::sha256(definition));
        Decision { definition_now, ..decision_on("A", action) }
    };
    let judged =
        |decision: &Decision| judge_decision(decision, RunLifecycle::Open, Some(&approval_row()), None);
    assert_eq!(judged(&now(b"definition", resume())), Verdict::Accepted);
    assert_eq!(judged(&now(b"another", resume())), Verdict::ToolChanged);
    // A denial is a denial, whatever became of the tool; and one that is gone is found out by the gate.
    assert_eq!(judged(&now(b"another", cancel())), Verdict::Accepted);
    assert_eq!(judged(&decision_on("A", resume())), Verdict::Accepted);
    // What is wrong with the decision itself comes first.
    let other = Decision { definition_now: Some(Digest::sha256(b"another")), ..seen(b"others") };
    assert_eq!(judged(&other), Verdict::Refused(Refusal::DigestMismatch));
    // Only an approval is bound to a definition.
    let question = SuspensionRow { kind: SuspensionKind::Question, definition: None, ..approval_row() };
    let answer = now(b"another", resume());
    assert_eq!(judge_decision(&answer, RunLifecycle::Open, Some(&question), None), Verdict::Accepted);
}

#[test]
fn b46_every_item_becomes_its_input() {
    let story = held_beside_running(Policy::default());
    let control = &story.run.control;
    assert_eq!(to_input(control, &decided("A")), Some(Input::Decide(decision_on("A", resume()))));
    let cause = InterruptCause::Person(Principal::from("ana"));
    assert_eq!(to_input(control, &interrupt()), Some(Input::Interrupt { cause }));
    let Item::ChildEnded(ended) = child_end("D") else { panic!("a child's end") };
    assert_eq!(to_input(control, &child_end("D")), Some(Input::ChildEnded(ended)));
    let call = CallId::from("C");
    let wanted = Input::ToolReturned { step: 1, call, attempt: 1, outcome: success(json!("late")) };
    assert_eq!(to_input(control, &late("C")), Some(wanted));
}

#[test]
fn a81_b32_a_decision_for_an_unknown_call_leaves_the_held_ones_held() {
    let mut story = held_beside_running(Policy::default());
    let before = story.run.clone();
    let refused = story.refused(Input::Decide(decision_on("missing", resume())));
    assert_eq!(refused, Rejection::UnknownCall(CallId::from("missing")));
    assert_eq!(story.run, before);
    assert!(story.run.control.call(&CallId::from("missing")).is_none());
}

#[test]
fn a79_an_early_decision_for_a_call_that_has_settled_is_taken_out_and_leads_to_nothing() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "echo"), ("B", "transfer")]);
    let decision = Decision { call: CallId::from("A"), ..story.decision("B", resume()) };
    let early = [Item::Early { decision, digest: story.call("A").arguments }];
    assert_eq!(drain(&story.run.control, &early, false), Vec::<usize>::new(), "A may still be held");
    story.succeeds("A");
    assert_eq!(drain(&story.run.control, &early, false), [0]);
    assert_eq!(to_input(&story.run.control, &early[0]), None);
}

#[test]
fn a_decision_without_a_suspension_answers_the_open_one_but_never_a_doubt() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "post"), ("C", "echo")]);
    story.returns("B", unknown());
    let open = |call: &str| story.call(call).suspension().unwrap().id.clone();
    let other = SuspensionId::from("apr_other");
    let control = &story.run.control;
    let at = |call: &str, named: Option<&SuspensionId>| {
        target_suspension(control, &CallId::from(call), &Target { named, ..Target::default() })
    };
    assert_eq!(at("A", None), Ok(open("A")));
    assert_eq!(at("B", None), Err(Refusal::SuspensionNotNamed));
    assert_eq!(at("C", None), Err(Refusal::NotHeld));
    assert_eq!(at("missing", None), Err(Refusal::NotHeld));
    assert_eq!(at("A", Some(&open("A"))), Ok(open("A")));
    assert_eq!(at("B", Some(&open("B"))), Ok(open("B")));
    for call in ["A", "B", "C", "missing"] {
        assert_eq!(at(call, Some(&other)), Err(Refusal::NotHeld));
    }
    let mut ended = Story::begin();
    ended.says("done");
    for named in [None, Some(&other)] {
        let target = Target { named, ..Target::default() };
        let found = target_suspension(&ended.run.control, &CallId::from("A"), &target);
        assert_eq!(found, Err(Refusal::RunOver));
    }
}

#[test]
fn a_decision_answers_only_the_kinds_that_its_principal_may_answer() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "pick_file")]);
    let open = |call: &str| story.call(call).suspension().unwrap().id.clone();
    let at = |call: &str, kinds: &[SuspensionKind], named: Option<&SuspensionId>| {
        let target = Target { named, kinds: Some(kinds), ..Target::default() };
        target_suspension(&story.run.control, &CallId::from(call), &target)
    };
    let (approval, client) = (SuspensionKind::Approval, SuspensionKind::ClientTool);
    assert_eq!(at("A", &[approval], None), Ok(open("A")));
    assert_eq!(at("A", &[client], None), Err(Refusal::Forbidden(approval)));
    assert_eq!(at("A", &[], Some(&open("A"))), Err(Refusal::Forbidden(approval)));
    assert_eq!(at("B", &[client], None), Ok(open("B")));
    assert_eq!(at("B", &[approval], None), Err(Refusal::Forbidden(client)));
}

#[test]
fn a_cancel_for_other_arguments_than_those_that_were_seen_answers_nothing() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer")]);
    let (call, shown) = (story.call("A"), story.call("A").arguments);
    let at = |seen| {
        let target = Target { cancels: Some(seen), ..Target::default() };
        target_suspension(&story.run.control, &CallId::from("A"), &target)
    };
    assert_eq!(at(shown), Ok(call.suspension().unwrap().id.clone()));
    assert_eq!(at(Digest::sha256(b"other arguments")), Err(Refusal::DigestMismatch));
}

#[test]
fn a_repeated_decision_addresses_what_it_addressed_first_and_nothing_else() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "transfer")]);
    let earlier = story.decision("A", resume());
    let held = |call: &str| story.call(call).suspension().unwrap().id.clone();
    let at = |call: &str, named: Option<&SuspensionId>| {
        let target = Target { named, earlier: Some(&earlier), kinds: Some(&[]), ..Target::default() };
        target_suspension(&story.run.control, &CallId::from(call), &target)
    };
    assert_eq!(at("A", None), Ok(held("A")));
    assert_eq!(at("A", Some(&held("A"))), Ok(held("A")));
    assert_eq!(at("A", Some(&held("B"))), Err(Refusal::IdUsed));
    assert_eq!(
        at("B", None),
        Ok(held("A")),
        "the verdict then says that the id was used for another decision"
    );
}

#[test]
fn an_open_suspension_is_shown_with_what_a_decision_is_judged_by() {
    let mut story = Story::begin();
    story.tools.get_mut("transfer").unwrap().expires_in_ms = Some(500);
    story.asks_for(&[("A", "transfer"), ("B", "post"), ("C", "pick_file"), ("D", "echo")]);
    story.returns("B", unknown());
    let shown = |call: &str, answered| suspension_row(&story.run.control, &CallId::from(call), answered);
    let expected = |call: &str, kind, mode| SuspensionRow {
        id: story.call(call).suspension().unwrap().id.clone(),
        kind,
        mode,
        arguments: story.call(call).arguments,
        definition: None,
        expires_at: None,
        answered: false,
        doubted_attempt: None,
        is_grantable: false,
    };
    let approval = SuspensionRow {
        definition: Some(story.tools["transfer"].definition),
        expires_at: Some(Timestamp(1_500)),
        is_grantable: true,
        ..expected("A", SuspensionKind::Approval, ResumeMode::ReplayToolCall)
    };
    assert_eq!(shown("A", false), Some(approval.clone()));
    assert_eq!(shown("A", true), Some(SuspensionRow { answered: true, ..approval }));
    let in_doubt = SuspensionRow {
        doubted_attempt: Some(1),
        ..expected("B", SuspensionKind::InDoubt, ResumeMode::ReplayToolCall)
    };
    assert_eq!(shown("B", false), Some(in_doubt));
    let by_the_front_end = expected("C", SuspensionKind::ClientTool, ResumeMode::UseDecisionAsToolResult);
    assert_eq!(shown("C", false), Some(by_the_front_end));
    assert_eq!((shown("D", false), shown("missing", false)), (None, None));
}

#[test]
fn a_verdict_is_written_in_words_for_the_person_who_decided() {
    let refused = |refusal| Verdict::Refused(refusal).to_string();
    assert_eq!(Verdict::Accepted.to_string(), "accepted");
    assert_eq!(Verdict::AlreadyApplied.to_string(), "accepted before");
    let changed = "the tool has changed since; the call is held again";
    assert_eq!(Verdict::ToolChanged.to_string(), changed);
    assert_eq!(refused(Refusal::Expired), "refused: the time to decide is over");
    assert_eq!(refused(Refusal::Invalid("no".into())), "refused: no; the call is still held");
}
