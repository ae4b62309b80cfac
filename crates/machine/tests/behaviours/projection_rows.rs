//! Rows beside the log, and the verdict on an item as a store asks for it: tables against stories.

use std::sync::Arc;

use machine::control::Control;
use machine::decision::{Decision, DecisionAction, Resume};
use machine::event::{Event, Fact, InterruptCause};
use machine::grant::{Grant, HoldReason};
use machine::id::{CallId, DecisionId, Digest, GrantId, Principal, SuspensionId};
use machine::inbox::{Item, Refusal, RunLifecycle, SubmitContext, Verdict, judge_item};
use machine::input::{ChildEnd, ChildEnded};
use machine::phase::{Action, HookAnswer, HookAnswers, HookOutcome, Phase, PhaseSet, Scope};
use machine::policy::OnReject;
use machine::projection_rows::{
    ApprovalStatus, GrantRow, InboxPosition, ProjectionRows, PublicRunStatus, Role, RunSummary,
};
use machine::revision::Revision;
use machine::status::{RunStatus, WaitingOn};
use machine::suspension::{ResumeMode, SuspensionKind};
use machine::termination::{Cancelled, ErrorCode, StopCode, Termination};
use machine::thread::FrontState;
use machine::tool::{EffectClass, OnExpiry, Tool};
use machine::{Input, Timestamp};
use serde_json::json;

use crate::story::{
    Story, cancel, not_sent, pending, resume, resume_with, success, tool, tool_grant, unknown,
};

/// What the events that the story adds write, as one input of one commit.
fn rows_of(story: &mut Story, act: impl FnOnce(&mut Story) -> Vec<Event>) -> ProjectionRows {
    let before = story.run.control.clone();
    let events = act(story);
    let mut rows = ProjectionRows::default();
    rows.add_events(Some(&before), &events, InboxPosition::default());
    rows
}

fn held() -> Story {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("C", "echo")]);
    story
}

fn closed(rows: &ProjectionRows) -> Vec<(ApprovalStatus, String, Option<String>)> {
    let line =
        |row: &machine::projection_rows::ClosedRow| (row.status, row.by.to_string(), row.reason.clone());
    rows.closed.iter().map(line).collect()
}

fn interrupt(cause: InterruptCause) -> Input {
    Input::Interrupt { cause }
}

fn by_a_person() -> InterruptCause {
    InterruptCause::Person(Principal::from("ana"))
}

#[test]
fn every_message_becomes_a_row_with_its_role_and_the_event_that_has_it() {
    let mut story = Story::begin();
    let mut rows = ProjectionRows::default();
    rows.add_events(None, &story.log, InboxPosition::default());
    assert_eq!(rows.messages.iter().map(|row| row.role).collect::<Vec<_>>(), [Role::User]);
    let asked = rows_of(&mut story, |story| story.asks_for(&[("A", "echo"), ("B", "echo")]));
    assert_eq!(asked.messages.iter().map(|row| row.role).collect::<Vec<_>>(), [Role::Assistant]);
    assert_eq!(asked.calls, [CallId::from("A"), CallId::from("B")]);
    let first = rows_of(&mut story, |story| story.succeeds("A"));
    let last = rows_of(&mut story, |story| story.succeeds("B"));
    let rows: Vec<_> = first.messages.iter().chain(&last.messages).collect();
    assert_eq!(rows.iter().map(|row| row.role).collect::<Vec<_>>(), [Role::Tool, Role::Tool]);
    for row in rows {
        let event = story.log.iter().find(|event| event.seq == row.seq).unwrap();
        let Fact::MessageAdded(message) = &event.fact else { panic!("{event:?}") };
        assert_eq!((message.id(), event.at), (&row.id, row.at));
    }
}

#[test]
fn a_held_call_opens_a_row_with_what_it_is_held_for() {
    let mut story = Story::begin();
    let expiring =
        Tool { expires_in_ms: Some(500), ..tool(EffectClass::Write, machine::tool::Approval::Ask) };
    story.tools.insert("transfer".into(), expiring);
    let calls = [("A", "transfer"), ("B", "pick_file"), ("C", "webhook"), ("D", "researcher")];
    let rows = rows_of(&mut story, |story| story.asks_for(&calls));
    let kinds: Vec<SuspensionKind> = rows.opened.iter().map(|row| row.kind).collect();
    use SuspensionKind::{Approval, ChildRun, ClientTool, External};
    assert_eq!(kinds, [Approval, ClientTool, External, ChildRun]);
    let approval = &rows.opened[0];
    assert_eq!(approval.id, story.call("A").suspension().unwrap().id);
    assert_eq!((approval.expires_at, approval.at), (Some(Timestamp(1_500)), Timestamp(1_000)));
    // A decision that came early is for these arguments alone.
    assert_eq!(approval.arguments, Some(story.call("A").arguments));
    assert_eq!(rows.closed, []);
}

#[test]
fn each_answer_closes_its_row_in_its_own_way() {
    use ApprovalStatus::{Answered, Approved, Rejected};
    let approved = rows_of(&mut held(), |story| story.approves("A"));
    assert_eq!(closed(&approved), [(Approved, "ana".into(), None)]);
    let denied = rows_of(&mut held(), |story| story.denies("A", None));
    assert_eq!(closed(&denied), [(Rejected, "ana".into(), Some("no".into()))]);
    let asks = |mode| {
        let mut story = Story::begin();
        story.asks_for(&[("A", "echo")]);
        story.returns("A", pending(mode));
        story
    };
    let answered = rows_of(&mut asks(ResumeMode::ReplayToolCall), |story| story.answers("A", json!("blue")));
    assert_eq!(closed(&answered), [(Answered, "ana".into(), None)]);
    let cancelled = rows_of(&mut asks(ResumeMode::ReplayToolCall), |story| story.decides("A", cancel()));
    assert_eq!(closed(&cancelled), [(Rejected, "ana".into(), None)]);
    let with_words = DecisionAction::Cancel { reason: Some("not now".into()), then: None };
    let cancelled = rows_of(&mut asks(ResumeMode::ReplayToolCall), |story| story.decides("A", with_words));
    assert_eq!(closed(&cancelled), [(Rejected, "ana".into(), Some("not now".into()))]);
    let mut doubt = Story::begin();
    doubt.asks_for(&[("A", "post")]);
    doubt.returns("A", unknown());
    let given_up = rows_of(&mut doubt, |story| story.decides("A", cancel()));
    assert_eq!(closed(&given_up), [(Answered, "ana".into(), None)]);
}

#[test]
fn d8_an_approval_that_is_not_given_is_rejected_even_where_an_attempt_is_in_doubt() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer")]);
    story.approves("A");
    story.returns("A", unknown());
    story.tools.get_mut("transfer").unwrap().definition = Digest::sha256(b"definition 2");
    // A person asks for a retry, but that is another tool now: it is approved, or it is not.
    story.decides("A", resume());
    let rows = rows_of(&mut story, |story| story.denies("A", None));
    assert_eq!(closed(&rows), [(ApprovalStatus::Rejected, "ana".into(), Some("no".into()))]);
    assert_eq!(story.tool_text("A"), "Cancelled; it may have taken effect");
}

#[test]
fn what_the_clock_a_change_or_an_end_closes_says_so() {
    use ApprovalStatus::{Expired, Rejected};
    let expiring = |then| {
        let mut story = Story::begin();
        let transfer = tool(EffectClass::Write, machine::tool::Approval::Ask);
        story.tools.insert("transfer".into(), Tool { expires_in_ms: Some(500), on_expiry: then, ..transfer });
        story.asks_for(&[("A", "transfer")]);
        story.later(500);
        story
    };
    let system = Principal::system().to_string();
    for then in [OnExpiry::Deny, OnExpiry::EndRun] {
        let rows = rows_of(&mut expiring(then), |story| story.ok(Input::DeadlineReached));
        assert_eq!((rows.closed[0].status, rows.closed[0].by.to_string()), (Expired, system.clone()));
    }
    let mut changed = held();
    let other = Tool {
        definition: Digest::sha256(b"definition 2"),
        ..tool(EffectClass::Write, machine::tool::Approval::Ask)
    };
    changed.tools.insert("transfer".into(), other);
    let rows = rows_of(&mut changed, |story| story.approves("A"));
    // The approver did not decide that the approval is void.
    assert_eq!(closed(&rows), [(Expired, system.clone(), Some("tool_changed".into()))]);
    // The call is held again, under another id.
    assert_eq!(rows.opened.len(), 1);
    assert_ne!(rows.opened[0].id, rows.closed[0].id);
    let causes = [
        (by_a_person(), "ana", "interrupted"),
        (InterruptCause::Superseded("run_2".into()), &*system, "superseded"),
    ];
    for (cause, _, reason) in causes {
        let rows = rows_of(&mut held(), |story| story.ok(interrupt(cause)));
        assert_eq!((rows.closed[0].status, rows.closed[0].reason.as_deref()), (Rejected, Some(reason)));
    }
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "transfer")]);
    let rows = rows_of(&mut story, |story| story.denies("A", Some(OnReject::EndRun)));
    let reasons: Vec<_> = rows.closed.iter().map(|row| row.reason.as_deref()).collect();
    assert_eq!(reasons, [Some("no"), Some("run_ended")]);
}

#[test]
fn a_grant_is_written_only_for_an_approval_that_says_so_and_for_what_was_shown() {
    for apply_to_future in [false, true] {
        let action = DecisionAction::Resume(Resume { apply_to_future, ..Resume::default() });
        let rows = rows_of(&mut held(), |story| story.decides("A", action));
        let approval = rows.closed[0].id.clone();
        let id = GrantId::from(approval.as_str().replace("apr_", "grt_"));
        let grant =
            || Grant { id, ..tool_grant("transfer", Digest::sha256(b"definition 1"), &[HoldReason::Tool]) };
        let wanted = apply_to_future.then(|| GrantRow { grant: grant(), since: rows.closed[0].at });
        assert_eq!(rows.grants, Vec::from_iter(wanted));
    }
    // Without the state before it, what the approver was shown is unknown.
    let mut story = held();
    let action = DecisionAction::Resume(Resume { apply_to_future: true, ..Resume::default() });
    let events = story.decides("A", action);
    let mut rows = ProjectionRows::default();
    rows.add_events(None, &events, InboxPosition::default());
    assert_eq!(rows.grants, []);
}

#[test]
fn a_grant_is_written_too_where_one_commit_opens_the_approval_and_gives_it() {
    let action = DecisionAction::Resume(Resume { apply_to_future: true, ..Resume::default() });
    let rows = rows_of(&mut Story::begin(), |story| {
        let mut events = story.asks_for(&[("A", "transfer")]);
        events.extend(story.decides("A", action));
        events
    });
    let approval = rows.closed[0].id.clone();
    let id = GrantId::from(approval.as_str().replace("apr_", "grt_"));
    let grant = Grant { id, ..tool_grant("transfer", Digest::sha256(b"definition 1"), &[HoldReason::Tool]) };
    assert_eq!(rows.grants, [GrantRow { grant, since: rows.closed[0].at }]);
}

#[test]
fn what_a_plugin_keeps_becomes_a_row() {
    let revision = Revision { phases: PhaseSet::default().with(Phase::RunStart), ..Revision::default() };
    let mut story = Story::begin_with(revision);
    let set = Action::SetState { key: "k".into(), scope: Scope::Thread, value: Arc::new(json!(1)) };
    let answer = HookAnswer { plugin: "p".into(), outcome: HookOutcome::Actions(vec![set]) };
    let hooks = HookAnswers { answers: vec![answer], state_bytes_after: 2 };
    let rows = rows_of(&mut story, |story| story.ok(Input::PhaseAnswered { phase: Phase::RunStart, hooks }));
    assert_eq!(rows.state.len(), 1);
    let row = &rows.state[0];
    assert_eq!(
        (row.plugin.as_str(), row.scope, &*row.key, &*row.value),
        ("p", Scope::Thread, "k", &json!(1))
    );
}

#[test]
fn an_answer_is_overridden_by_a_later_item_that_closes_its_suspension_first() {
    // (number of rows processed, the row that closed it, consumed rows) → overrides answer 5?
    let table: [(usize, Option<u64>, &[u64], bool); 9] = [
        // Not closed by a row: a clock, a direct interrupt. An unprocessed answer is overridden.
        (0, None, &[], true),
        (0, None, &[5], true),
        (1, None, &[5], false),
        (1, None, &[4, 5], true),
        (2, None, &[4, 5], false),
        // Closed by a row: an earlier one may, a later one may not.
        (0, Some(4), &[4], false),
        (0, Some(6), &[6], true),
        (1, Some(5), &[5], false),
        (1, Some(6), &[5, 6], false),
    ];
    for (count, ticket, consumed, wanted) in table {
        let position = InboxPosition { count, ticket };
        assert_eq!(position.overrides_answer(5, consumed), wanted, "{position:?} {consumed:?}");
    }
    // The row itself closes it.
    assert!(!InboxPosition { count: 0, ticket: Some(5) }.overrides_answer(5, &[5]));
}

#[test]
fn a_status_is_shown_as_one_of_eight() {
    let table = [
        (RunStatus::Queued, PublicRunStatus::Queued, "queued", FrontState::Queued),
        (RunStatus::Running, PublicRunStatus::Running, "running", FrontState::Executing),
        (
            RunStatus::Waiting(WaitingOn::Person),
            PublicRunStatus::WaitingApproval,
            "waiting_approval",
            FrontState::Waiting,
        ),
        (
            RunStatus::Waiting(WaitingOn::Tool),
            PublicRunStatus::WaitingTool,
            "waiting_tool",
            FrontState::Waiting,
        ),
        (RunStatus::Interrupting, PublicRunStatus::Interrupting, "interrupting", FrontState::Executing),
    ];
    for (status, shown, name, front) in table {
        assert_eq!(PublicRunStatus::from_status(&status), shown);
        assert_eq!((shown.as_str(), shown.front_state(), shown.ended()), (name, front, false));
    }
    let ends = [
        (Termination::NaturalEnd, PublicRunStatus::Completed, "completed"),
        (Termination::BehaviorRequested, PublicRunStatus::Completed, "completed"),
        (Termination::stopped(StopCode::MaxRounds, None), PublicRunStatus::Completed, "completed"),
        (Termination::blocked("no"), PublicRunStatus::Failed, "failed"),
        (Termination::error(ErrorCode::Model, "no"), PublicRunStatus::Failed, "failed"),
        (Termination::Cancelled(Cancelled::Interrupted), PublicRunStatus::Interrupted, "interrupted"),
        (Termination::Cancelled(Cancelled::Superseded), PublicRunStatus::Interrupted, "interrupted"),
        (Termination::Cancelled(Cancelled::ByParent), PublicRunStatus::Interrupted, "interrupted"),
    ];
    for (how, shown, name) in ends {
        assert_eq!(PublicRunStatus::from_status(&RunStatus::Done(how)), shown);
        assert_eq!((shown.as_str(), shown.ended()), (name, true));
    }
    for status in PublicRunStatus::ALL {
        assert_eq!(serde_json::to_value(status).unwrap(), json!(status.as_str()));
    }
    for status in ApprovalStatus::ALL {
        assert_eq!(serde_json::to_value(status).unwrap(), json!(status.as_str()));
    }
}

#[test]
fn the_columns_of_a_run_follow_from_its_state() {
    let mut story = Story::begin();
    let nothing =
        RunSummary { status: PublicRunStatus::Running, wake_at: None, in_doubt: false, ending: false };
    assert_eq!(RunSummary::from_control(&story.run.control), nothing);
    story.asks_for(&[("A", "post"), ("B", "echo")]);
    story.returns("A", unknown());
    assert!(RunSummary::from_control(&story.run.control).in_doubt);
    story.answers("A", json!("done"));
    assert!(!RunSummary::from_control(&story.run.control).in_doubt);
    let mut story = Story::begin();
    let transfer = tool(EffectClass::Write, machine::tool::Approval::Ask);
    story.tools.insert("transfer".into(), Tool { expires_in_ms: Some(500), ..transfer });
    story.asks_for(&[("A", "transfer")]);
    let wanted =
        RunSummary { status: PublicRunStatus::WaitingApproval, wake_at: Some(Timestamp(1_500)), ..nothing };
    assert_eq!(RunSummary::from_control(&story.run.control), wanted);
    let mut story = held();
    story.denies("A", Some(OnReject::EndRun));
    // C still runs and is waited for.
    assert_eq!(RunSummary::from_control(&story.run.control), RunSummary { ending: true, ..nothing });
}

#[test]
fn a_submitted_item_meets_a_run_that_is_open_ending_or_ended() {
    let open = RunSummary { status: PublicRunStatus::Running, wake_at: None, in_doubt: false, ending: false };
    assert_eq!((open.lifecycle(false), open.lifecycle(true)), (RunLifecycle::Open, RunLifecycle::Ending));
    let ending = RunSummary { ending: true, ..open };
    assert_eq!(
        (ending.lifecycle(false), ending.lifecycle(true)),
        (RunLifecycle::Ending, RunLifecycle::Ending)
    );
    for status in PublicRunStatus::ALL.into_iter().filter(|status| status.ended()) {
        let ended = RunSummary { status, ..open };
        assert_eq!(
            (ended.lifecycle(false), ended.lifecycle(true)),
            (RunLifecycle::Ended, RunLifecycle::Ended)
        );
    }
}

fn shown(control: &Control) -> SubmitContext<'_> {
    SubmitContext { control, inbox: &[], earlier: None }
}

/// Held: A. Running: C. On its way out: the same after a denial that ends the run. Ended: after an interrupt.
fn three_runs() -> [Story; 3] {
    let (mut leaving, mut ended) = (held(), held());
    leaving.denies("A", Some(OnReject::EndRun));
    ended.ok(interrupt(by_a_person()));
    [held(), leaving, ended]
}

#[test]
fn the_verdict_on_each_kind_of_item_depends_on_the_lifecycle_of_the_run() {
    let [open, leaving, ended] = three_runs();
    let over = Verdict::Refused(Refusal::RunOver);
    let decision = open.decision("A", resume());
    let early = |call: &str| Item::Early {
        decision: Decision {
            call: CallId::from(call),
            suspension: SuspensionId::from(""),
            ..decision.clone()
        },
        digest: Digest::sha256(b"any"),
    };
    let child = Item::ChildEnded(ChildEnded {
        call: CallId::from("A"),
        run: "run_child".into(),
        end: ChildEnd::Interrupted,
        usage: machine::event::Usage::default(),
        descendants: 0,
    });
    let late =
        |attempt| Item::LateAnswer { step: 1, call: CallId::from("C"), attempt, outcome: success(json!(1)) };
    let interrupt = Item::Interrupt { cause: by_a_person() };
    let not_held = Verdict::Refused(Refusal::NotHeld);
    let taken = Verdict::Accepted;
    let table = [
        (Item::Decision(decision.clone()), [taken.clone(), over.clone(), over.clone()]),
        // A is held already, C runs and may still be held.
        (early("A"), [not_held.clone(), over.clone(), over.clone()]),
        (early("C"), [taken.clone(), over.clone(), over.clone()]),
        (early("missing"), [not_held.clone(), over.clone(), over.clone()]),
        (interrupt, [taken.clone(), taken.clone(), over.clone()]),
        (child, [taken.clone(), taken.clone(), over.clone()]),
        (late(1), [taken, over.clone(), over.clone()]),
        (late(2), [not_held, over.clone(), over]),
    ];
    for (item, wanted) in table {
        let judged = [&open, &leaving, &ended].map(|story| judge_item(&item, &shown(&story.run.control)));
        assert_eq!(judged, wanted, "{item:?}");
    }
}

#[test]
fn the_verdict_depends_on_what_was_accepted_before_too() {
    let story = held();
    let control = &story.run.control;
    let decision = Decision { id: Some(DecisionId::from("d1")), ..story.decision("A", resume()) };
    let item = Item::Decision(decision.clone());
    let by_another_person = Decision { by: Principal::from("bea"), ..decision.clone() };
    let other = Decision { action: cancel(), ..decision.clone() };
    let judged = |shown: SubmitContext<'_>| judge_item(&item, &shown);
    let fresh = shown(control);
    assert_eq!(judged(fresh), Verdict::Accepted);
    let answer = [Item::Decision(other.clone())];
    assert_eq!(judged(SubmitContext { inbox: &answer, ..fresh }), Verdict::Refused(Refusal::Answered));
    let of_an_earlier_opening = Decision { suspension: SuspensionId::from("apr_old"), ..other.clone() };
    assert_eq!(
        judged(SubmitContext { inbox: &[Item::Decision(of_an_earlier_opening)], ..fresh }),
        Verdict::Accepted
    );
    let interrupt = Item::Interrupt { cause: by_a_person() };
    let interrupted = std::slice::from_ref(&interrupt);
    assert_eq!(judged(SubmitContext { inbox: interrupted, ..fresh }), Verdict::Refused(Refusal::RunOver));
    let end = DecisionAction::Cancel { reason: None, then: Some(OnReject::EndRun) };
    let end = [Item::Decision(Decision { action: end, ..decision.clone() })];
    assert_eq!(judged(SubmitContext { inbox: &end, ..fresh }), Verdict::Refused(Refusal::RunOver));
    assert_eq!(judged(SubmitContext { earlier: Some(&decision), ..fresh }), Verdict::AlreadyApplied);
    assert_eq!(judged(SubmitContext { earlier: Some(&by_another_person), ..fresh }), Verdict::AlreadyApplied);
    assert_eq!(judged(SubmitContext { earlier: Some(&other), ..fresh }), Verdict::Refused(Refusal::IdUsed));
    // A repeat is recognised before anything else is looked at.
    let waiting = [item.clone(), interrupt.clone()];
    let repeated = SubmitContext { earlier: Some(&decision), inbox: &waiting, ..fresh };
    assert_eq!(judged(repeated), Verdict::AlreadyApplied);
    assert_eq!(
        judge_item(&interrupt, &SubmitContext { inbox: interrupted, ..fresh }),
        Verdict::AlreadyApplied
    );
    assert_eq!(judge_item(&interrupt, &SubmitContext { inbox: &end, ..fresh }), Verdict::Accepted);
    let call = CallId::from("C");
    let early =
        Item::Early { decision: Decision { call, ..decision.clone() }, digest: Digest::sha256(b"any") };
    let kept = std::slice::from_ref(&early);
    assert_eq!(
        judge_item(&early, &SubmitContext { inbox: kept, ..fresh }),
        Verdict::Refused(Refusal::NotHeld)
    );
    let twice = SubmitContext { earlier: Some(&other), ..fresh };
    assert_eq!(judge_item(&early, &twice), Verdict::Refused(Refusal::IdUsed));
    let Item::Early { decision: kept, .. } = &early else { panic!("{early:?}") };
    assert_eq!(judge_item(&early, &SubmitContext { earlier: Some(kept), ..fresh }), Verdict::AlreadyApplied);
    // One that came early answers the approval that has opened for its arguments.
    let digest = story.call("A").arguments;
    let answered = |digest| [Item::Early { decision: other.clone(), digest }];
    assert_eq!(
        judged(SubmitContext { inbox: &answered(digest), ..fresh }),
        Verdict::Refused(Refusal::Answered)
    );
    assert_eq!(
        judged(SubmitContext { inbox: &answered(Digest::sha256(b"others")), ..fresh }),
        Verdict::Accepted
    );
}

#[test]
fn a_decision_with_a_mistake_is_refused_with_the_reason() {
    let story = held();
    let judged = |decision| judge_item(&Item::Decision(decision), &shown(&story.run.control));
    let invalid = judged(story.decision("A", resume_with(json!(false))));
    assert!(matches!(invalid, Verdict::Refused(Refusal::Invalid(_))), "{invalid:?}");
    let expect_digest = Some(Digest::sha256(b"others"));
    let unseen = DecisionAction::Resume(Resume { expect_digest, ..Resume::default() });
    assert_eq!(judged(story.decision("A", unseen)), Verdict::Refused(Refusal::DigestMismatch));
    let stale = Decision { suspension: SuspensionId::from("apr_other"), ..story.decision("A", resume()) };
    assert_eq!(judged(stale), Verdict::Refused(Refusal::NotHeld));
    let changed = Decision { definition_now: Some(Digest::sha256(b"2")), ..story.decision("A", resume()) };
    let verdict = judged(changed);
    assert_eq!((verdict.clone(), verdict.is_taken()), (Verdict::ToolChanged, true));
}

#[test]
fn an_attempt_that_is_not_sent_writes_no_suspension() {
    let mut story = Story::begin();
    story.asks_for(&[("A", "post")]);
    let rows = rows_of(&mut story, |story| story.returns("A", not_sent()));
    assert_eq!((rows.opened, rows.closed), (vec![], vec![]));
}

#[test]
fn a_commit_changes_what_is_held_where_it_opens_closes_or_voids_a_suspension() {
    let mut story = Story::begin();
    let opened = rows_of(&mut story, |story| story.asks_for(&[("A", "transfer"), ("C", "echo")]));
    let closed = rows_of(&mut story, |story| story.ok(Input::Decide(story.decision("A", resume()))));
    let changed = Tool { definition: Digest::sha256(b"definition 2"), ..story.tools["transfer"].clone() };
    story.tools.insert("transfer".into(), changed);
    let held_again = rows_of(&mut story, Story::pass_gates);
    let voided = ProjectionRows { voided: held_again.voided, ..ProjectionRows::default() };
    let neither = rows_of(&mut story, |story| story.succeeds("C"));
    let counts = [&opened, &closed, &voided, &neither]
        .map(|rows| (rows.opened.len(), rows.closed.len(), rows.voided.len(), rows.changes_suspensions()));
    assert_eq!(counts, [(1, 0, 0, true), (0, 1, 0, true), (0, 0, 1, true), (0, 0, 0, false)]);
}

#[test]
fn an_accepted_interrupt_shows_on_a_run_that_has_not_ended_before_the_run_processes_it() {
    use PublicRunStatus::{
        Completed, Failed, Interrupted, Interrupting, Queued, Running, WaitingApproval, WaitingTool,
    };
    for status in [Queued, Running, WaitingApproval, WaitingTool, Interrupting] {
        assert_eq!((status.with_interrupt(true), status.with_interrupt(false)), (Interrupting, status));
    }
    for status in [Completed, Failed, Interrupted] {
        assert_eq!((status.with_interrupt(true), status.with_interrupt(false)), (status, status));
    }
}
