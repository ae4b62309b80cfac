//! An interrupted run of which something cannot be decoded ends by what the plain columns of its store say.

use machine::Timestamp;
use machine::decision::Decision;
use machine::event::{Fact, InterruptCause};
use machine::inbox::{Item, Refusal, Verdict, judge_after_the_end};
use machine::input::ChildEnd;
use machine::rows::ApprovalStatus;
use machine::suspension::SuspensionKind;
use machine::termination::{Cancelled, Termination};
use machine::tool::{Approval, EffectClass};
use machine::undecoded::{HeldCall, ParentCall, Plain, end, judge_undecoded};

use crate::story::{Story, resume, tool};

fn plain() -> Plain {
    let held =
        |call: &str, kind| HeldCall { call: call.into(), suspension: format!("sus_{call}").into(), kind };
    Plain {
        run: "run".into(),
        seq: 7,
        now: Timestamp(1_000),
        held: vec![held("a", SuspensionKind::Approval), held("b", SuspensionKind::InDoubt)],
        parent: Some(ParentCall { run: "parent".into(), call: "delegate".into() }),
        children: vec!["child".into()],
        inbox_count: 3,
    }
}

#[test]
fn without_its_state_a_run_ends_by_its_columns() {
    let last = end(&plain(), None, &InterruptCause::Person("ann".into()));
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
    assert!(last.rows.closed.iter().all(|row| !row.heard.overtakes(5, &[3, 4, 5])));
    assert_eq!(last.deliver.len(), 2);
    assert_eq!(last.deliver[0].to, "child".into());
    assert_eq!(last.deliver[0].item, Item::Interrupt { cause: InterruptCause::Parent("run".into()) });
    let Item::ChildEnded(ended) = &last.deliver[1].item else { panic!("{:?}", last.deliver) };
    assert_eq!((last.deliver[1].to.as_str(), ended.call.as_str()), ("parent", "delegate"));
    assert_eq!(ended.end, ChildEnd::Interrupted);
    assert_eq!(ended.descendants, u32::MAX, "no column counts them, so nothing of the grant is given back");
}

#[test]
fn an_interrupt_is_judged_by_plain_columns_and_a_decision_is_not() {
    let interrupt = Item::Interrupt { cause: InterruptCause::Person("ann".into()) };
    let over = Some(Verdict::Refused(Refusal::RunOver));
    assert_eq!(judge_undecoded(&interrupt, false, false), Some(Verdict::Accepted));
    assert_eq!(judge_undecoded(&interrupt, false, true), Some(Verdict::AlreadyApplied));
    assert_eq!(judge_undecoded(&interrupt, true, false), over);
}

#[test]
fn of_a_run_that_has_ended_only_a_repeated_decision_is_answered_with_anything_but_the_end() {
    let mut story = Story::begin();
    story.tools.insert("write".into(), tool(EffectClass::Write, Approval::Ask));
    story.asks_for(&[("A", "write")]);
    let decision = Decision { id: Some("d1".into()), ..story.decision("A", resume()) };
    let item = Item::Decision(decision.clone());
    let over = Verdict::Refused(Refusal::RunOver);
    assert_eq!(judge_after_the_end(&item, None), over);
    assert_eq!(judge_after_the_end(&item, Some(&decision)), Verdict::AlreadyApplied);
    let other = Decision { call: "B".into(), ..decision };
    assert_eq!(judge_after_the_end(&item, Some(&other)), Verdict::Refused(Refusal::IdUsed));
    let interrupt = Item::Interrupt { cause: InterruptCause::Person("ann".into()) };
    assert_eq!(judge_after_the_end(&interrupt, None), over);
}
