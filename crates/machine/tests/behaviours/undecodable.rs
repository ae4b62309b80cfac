//! An interrupted run of which something cannot be decoded ends by what the plain columns of its store say.

use machine::decision::{Decision, DecisionAction, Resume};
use machine::event::{CancelReason, Fact, InterruptCause, Usage};
use machine::inbox::{Item, Refusal, Verdict, judge_after_end};
use machine::input::{ChildEnd, ChildEnded};
use machine::projection_rows::ApprovalStatus;
use machine::suspension::SuspensionKind;
use machine::termination::{Cancelled, Termination};
use machine::tool::{Approval, EffectClass};
use machine::undecodable::{
    FinalCommit, HeldCall, ParentCall, UndecodedRun, final_commit, judge_without_control,
};
use machine::{Control, Event, Input, Timestamp};

use crate::story::{Story, names, resume, tool};

fn plain() -> UndecodedRun {
    let held =
        |call: &str, kind| HeldCall { call: call.into(), suspension: format!("sus_{call}").into(), kind };
    UndecodedRun {
        run: "run".into(),
        seq: 7,
        now: Timestamp(1_000),
        held: vec![held("a", SuspensionKind::Approval), held("b", SuspensionKind::InDoubt)],
        parent: Some(ParentCall { run: "parent".into(), call: "delegate".into() }),
        children: vec!["child".into()],
        inbox_count: 3,
        unprocessed: Vec::new(),
    }
}

#[test]
fn without_its_state_a_run_ends_by_its_columns() {
    let last = final_commit(&plain(), None, &InterruptCause::Person("ann".into()));
    assert_eq!(last.control, None);
    let seqs: Vec<u64> = last.events.iter().map(|event| event.seq).collect();
    assert_eq!(seqs, [8, 9, 10, 11]);
    assert!(last.events.iter().all(|event| event.at == Timestamp(1_000)));
    let in_doubt: Vec<bool> = last
        .events
        .iter()
        .filter_map(|event| match &event.fact {
            Fact::ToolCancelled { outcome_unknown, .. } => Some(*outcome_unknown),
            _ => None,
        })
        .collect();
    assert_eq!(in_doubt, [false, true], "what was in doubt may have taken effect");
    let Some(Fact::RunEnded { termination, .. }) = last.events.last().map(|event| &event.fact) else {
        panic!("{:?}", last.events)
    };
    assert_eq!(*termination, Termination::Cancelled(Cancelled::Interrupted));
    let closed: Vec<(&str, ApprovalStatus)> =
        last.rows.closed.iter().map(|row| (row.id.as_str(), row.status)).collect();
    assert_eq!(closed, [("sus_a", ApprovalStatus::Rejected), ("sus_b", ApprovalStatus::Rejected)]);
    // Whatever answers one of them is consumed by the same commit.
    assert!(last.rows.closed.iter().all(|row| !row.inbox_position.overrides_answer(5, &[3, 4, 5])));
    assert_eq!(last.deliver.len(), 2);
    assert_eq!(last.deliver[0].to, "child".into());
    assert_eq!(last.deliver[0].item, Item::Interrupt { cause: InterruptCause::Parent("run".into()) });
    let Item::ChildEnded(ended) = &last.deliver[1].item else { panic!("{:?}", last.deliver) };
    assert_eq!((last.deliver[1].to.as_str(), ended.call.as_str()), ("parent", "delegate"));
    assert_eq!(ended.end, ChildEnd::Interrupted);
    assert_eq!(ended.descendants, u32::MAX, "no column counts them, so nothing of the grant is given back");
}

/// What the record says of suspensions: action, id and principal.
fn recorded(last: &FinalCommit) -> Vec<(&'static str, &str, &str)> {
    let entries = last.rows.audit.iter();
    let of_suspensions = entries.filter_map(|entry| Some((entry, entry.suspension_id.as_ref()?)));
    of_suspensions.map(|(entry, id)| (entry.action.as_str(), id.as_str(), entry.actor.by.as_str())).collect()
}

#[test]
fn what_ends_by_columns_is_recorded_by_its_kind() {
    let mut plain = plain();
    let child = HeldCall { call: "c".into(), suspension: "sus_c".into(), kind: SuspensionKind::ChildRun };
    plain.held.push(child);
    let last = final_commit(&plain, None, &InterruptCause::Person("ann".into()));
    let expected = [("approval.rejected", "sus_a", "system"), ("suspension.cancelled", "sus_b", "system")];
    assert_eq!(recorded(&last), expected, "no person decides the end of a child");
}

#[test]
fn a_decision_that_was_acknowledged_is_recorded_though_its_run_never_applied_it() {
    let decision = |call: &str, action| Decision {
        id: None,
        call: call.into(),
        suspension: format!("sus_{call}").into(),
        by: "bo".into(),
        accepted_at: Timestamp(900),
        definition_now: None,
        action,
    };
    let approve = decision("a", DecisionAction::Resume(Resume::default()));
    let give_up = decision("b", DecisionAction::Cancel { reason: Some("no".into()), then: None });
    let cause = InterruptCause::Person("ann".into());
    let unprocessed =
        vec![Item::Decision(approve), Item::Interrupt { cause: cause.clone() }, Item::Decision(give_up)];
    let last = final_commit(&UndecodedRun { unprocessed, ..plain() }, None, &cause);
    let accepted = [("approval.approved", "sus_a", "bo"), ("suspension.cancelled", "sus_b", "bo")];
    assert_eq!(recorded(&last)[..2], accepted);
    assert!(last.rows.audit[..2].iter().all(|entry| entry.detail["applied"] == false), "{last:?}");
    assert_eq!(recorded(&last).len(), 4, "both also end with the run");
    let (story, plain) = held();
    let bo = Decision {
        suspension: plain.held[0].suspension.clone(),
        ..decision("A", DecisionAction::Resume(Resume::default()))
    };
    let last =
        ended(&UndecodedRun { unprocessed: vec![Item::Decision(bo)], ..plain.clone() }, &story.run.control);
    assert_eq!(recorded(&last)[0], ("approval.approved", plain.held[0].suspension.as_str(), "bo"));
    assert!(last.rows.audit[0].arguments_digest.is_some());
}

#[test]
fn an_interrupt_is_judged_by_plain_columns_and_a_decision_is_not() {
    let interrupt = Item::Interrupt { cause: InterruptCause::Person("ann".into()) };
    let over = Some(Verdict::Refused(Refusal::RunOver));
    assert_eq!(judge_without_control(&interrupt, false, false), Some(Verdict::Accepted));
    assert_eq!(judge_without_control(&interrupt, false, true), Some(Verdict::AlreadyApplied));
    assert_eq!(judge_without_control(&interrupt, true, false), over);
}

#[test]
fn the_end_of_a_child_is_accepted_until_the_run_has_ended() {
    let ended = Item::ChildEnded(ChildEnded {
        call: "delegate".into(),
        run: "child".into(),
        end: ChildEnd::Interrupted,
        usage: Usage::default(),
        descendants: 0,
    });
    for interrupt_accepted in [false, true] {
        assert_eq!(judge_without_control(&ended, false, interrupt_accepted), Some(Verdict::Accepted));
        let over = Some(Verdict::Refused(Refusal::RunOver));
        assert_eq!(judge_without_control(&ended, true, interrupt_accepted), over);
    }
}

#[test]
fn calls_of_a_run_that_is_superseded_are_cancelled_as_superseded() {
    let reasons = |cause| -> Vec<CancelReason> {
        let cancelled = |event: &Event| match &event.fact {
            Fact::ToolCancelled { reason, .. } => Some(*reason),
            _ => None,
        };
        final_commit(&plain(), None, &cause).events.iter().filter_map(cancelled).collect()
    };
    assert_eq!(reasons(InterruptCause::Superseded("run_2".into())), [CancelReason::Superseded; 2]);
    assert_eq!(reasons(InterruptCause::Parent("parent".into())), [CancelReason::Interrupted; 2]);
}

/// A and B are held. What the plain columns say agrees with the state.
fn held() -> (Story, UndecodedRun) {
    let mut story = Story::begin();
    story.asks_for(&[("A", "transfer"), ("B", "pick_file")]);
    let control = &story.run.control;
    let held = control.pending().into_iter().map(|open| HeldCall {
        call: open.call_id,
        suspension: open.suspension_id,
        kind: open.kind,
    });
    let plain = UndecodedRun {
        run: control.run.clone(),
        seq: control.seq,
        now: Timestamp(5_000),
        held: held.collect(),
        parent: None,
        children: Vec::new(),
        inbox_count: 1,
        unprocessed: Vec::new(),
    };
    (story, plain)
}

fn ended(plain: &UndecodedRun, control: &Control) -> FinalCommit {
    final_commit(plain, Some(control.clone()), &InterruptCause::Person("ann".into()))
}

#[test]
fn with_a_state_that_agrees_a_run_ends_as_it_would_by_itself() {
    let (mut story, plain) = held();
    let last = ended(&plain, &story.run.control);
    story.now = plain.now;
    let events = story.ok(Input::Interrupt { cause: InterruptCause::Person("ann".into()) });
    assert_eq!(last.events, events);
    assert_eq!(last.control.as_ref(), Some(&story.run.control));
    assert_eq!(last.rows.closed.len(), 2);
    assert!(last.rows.closed.iter().all(|row| row.inbox_position.count == 1));
    // It never goes back in time.
    let (story, plain) = held();
    let last = ended(&UndecodedRun { now: Timestamp(1), ..plain }, &story.run.control);
    assert!(last.events.iter().all(|event| event.at == story.now), "{:?}", names(&last.events));
}

#[test]
fn a_state_that_disagrees_with_the_columns_is_not_used() {
    let (story, plain) = held();
    let control = &story.run.control;
    let one = plain.held[..1].to_vec();
    let mut other = plain.held.clone();
    other[1].suspension = "sus_other".into();
    for disagreeing in [
        UndecodedRun { run: "run_2".into(), ..plain.clone() },
        UndecodedRun { seq: plain.seq + 1, ..plain.clone() },
        UndecodedRun { held: one, ..plain.clone() },
        UndecodedRun { held: other, ..plain },
    ] {
        let last = ended(&disagreeing, control);
        assert_eq!(last.control, None, "{disagreeing:?}");
        assert_eq!(last.events.len(), 2 + disagreeing.held.len());
        assert_eq!(last.events[0].seq, disagreeing.seq + 1);
    }
}

#[test]
fn of_a_run_that_has_ended_only_a_repeated_decision_is_answered_with_anything_but_the_end() {
    let mut story = Story::begin();
    story.tools.insert("write".into(), tool(EffectClass::Write, Approval::Ask));
    story.asks_for(&[("A", "write")]);
    let decision = Decision { id: Some("d1".into()), ..story.decision("A", resume()) };
    let item = Item::Decision(decision.clone());
    let over = Verdict::Refused(Refusal::RunOver);
    assert_eq!(judge_after_end(&item, None), over);
    assert_eq!(judge_after_end(&item, Some(&decision)), Verdict::AlreadyApplied);
    let other = Decision { call: "B".into(), ..decision };
    assert_eq!(judge_after_end(&item, Some(&other)), Verdict::Refused(Refusal::IdUsed));
    let interrupt = Item::Interrupt { cause: InterruptCause::Person("ann".into()) };
    assert_eq!(judge_after_end(&interrupt, None), over);
}
