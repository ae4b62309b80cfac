//! Compares the answers and states that people received with what is stored.

use std::collections::BTreeSet;
use std::sync::Arc;

use machine::event::{CancelReason, Event, Fact};
use machine::id::{CallId, DecisionId, Principal, SuspensionId};
use machine::termination::{Cancelled, Termination};

use super::{Moment, Objections, Rule};
use crate::evidence::{Evidence, RunEvidence};
use crate::people::{Decided, People, is_accepted};
use crate::stories::Ending;

pub(super) fn judge(evidence: &Evidence, people: &People, moment: Moment, objections: &mut Objections) {
    objections.0.extend(people.objections.iter().cloned());
    for posted in people.messages.iter().filter(|posted| posted.accepted()) {
        let there = |run: &RunEvidence| run.control.user_message.as_ref() == Some(&posted.id);
        let count = evidence.runs.iter().filter(|run| there(run)).count();
        objections.ensure(count == 1, Rule::AcceptedIsKept, || {
            format!("{} was accepted, and {count} runs have it", posted.id)
        });
    }
    for decided in people.decisions.values() {
        judge_decision(evidence, decided, moment, objections);
    }
    judge_made_up(evidence, people, objections);
    judge_unnamed(evidence, people, moment, objections);
    judge_interrupts(evidence, people, moment, objections);
    if moment == Moment::End {
        judge_late_answers(evidence, people, objections);
        judge_endings(evidence, people, objections);
    }
    judge_suspensions(evidence, people, objections);
    judge_settled(evidence, people, objections);
}

fn judge_decision(evidence: &Evidence, decided: &Decided, moment: Moment, objections: &mut Objections) {
    let id = &decided.given.id;
    let stored = evidence.runs.iter().flat_map(|run| &run.log).filter(|event| decision_of(event) == Some(id));
    let count = stored.count();
    let remembered = evidence.remembered.get(id) == Some(&true);
    if decided.accepted() {
        objections.ensure(remembered, Rule::AcceptedIsKept, || {
            format!("{id} was accepted ({:?}), and nothing of it is stored", decided.responses)
        });
        let expected = match moment {
            // It may still wait in the inbox.
            Moment::Between => count <= 1,
            Moment::End => count == 1,
        };
        objections.ensure(expected, Rule::AcceptedIsKept, || {
            format!("{id} was accepted ({:?}), and is in the log {count} times", decided.responses)
        });
    } else if moment == Moment::End {
        objections.ensure(!remembered && count == 0, Rule::NothingIsMadeUp, || {
            format!("{id} was never accepted ({:?}), and is in the log {count} times", decided.responses)
        });
        let closed = evidence
            .runs
            .iter()
            .flat_map(|run| &run.log)
            .any(|event| closes_without(event, &decided.given.suspension));
        objections.ensure(closed, Rule::AcceptedIsKept, || {
            format!("{id} was refused ({:?}), and nothing else closed its question", decided.responses)
        });
    }
}

pub(crate) fn decision_of(event: &Event) -> Option<&DecisionId> {
    if let Fact::ToolApproved { decision_id, .. }
    | Fact::ToolDenied { decision_id, .. }
    | Fact::ToolResumed { decision_id, .. }
    | Fact::ToolCancelled { decision_id, .. } = &event.fact
    {
        return decision_id.as_ref();
    }
    None
}

/// An expiry, an interrupt or the end of the run closed the suspension first.
fn closes_without(event: &Event, suspension: &SuspensionId) -> bool {
    if let Fact::ToolDenied { approval_id, expired: true, .. } = &event.fact {
        return approval_id == suspension;
    }
    if let Fact::ToolCancelled { suspension_id, decision_id: None, .. } = &event.fact {
        return suspension_id.as_ref() == Some(suspension);
    }
    false
}

/// Every decision in the log was given by a person.
fn judge_made_up(evidence: &Evidence, people: &People, objections: &mut Objections) {
    let given: BTreeSet<&DecisionId> = people.decisions.values().map(|decided| &decided.given.id).collect();
    for event in evidence.runs.iter().flat_map(|run| &run.log) {
        if let Some(id) = decision_of(event) {
            objections.ensure(given.contains(id), Rule::NothingIsMadeUp, || format!("no person gave {id}"));
        }
    }
}

/// A call approved without ids is approved once, however often that was sent, and this settles nothing in doubt.
fn judge_unnamed(evidence: &Evidence, people: &People, moment: Moment, objections: &mut Objections) {
    let log = || evidence.runs.iter().flat_map(|run| &run.log);
    for (call, responses) in &people.unnamed {
        let accepted = responses.iter().filter(|response| is_accepted(response)).count();
        let is_approval = |event: &&Arc<Event>| {
            if let Fact::ToolApproved { call_id, decision_id: None, .. } = &event.fact {
                call_id == call
            } else {
                false
            }
        };
        let approved = log().filter(is_approval).count();
        let kept = match moment {
            // It may still wait in the inbox.
            Moment::Between => approved <= 1,
            Moment::End => approved == 1,
        };
        objections.ensure(kept && accepted <= 1, Rule::AcceptedIsKept, || {
            format!(
                "{call} was approved without ids ({responses:?}), and that is in the log {approved} times"
            )
        });
    }
    for event in log() {
        if let Fact::ToolResumed { call_id, decision_id: None, late_attempt: None, by, .. }
        | Fact::ToolCancelled { call_id, decision_id: None, reason: CancelReason::GivenUp, by, .. } =
            &event.fact
        {
            objections.ensure(*by == Principal::system(), Rule::DoubtIsSettledByRight, || {
                format!("a decision that names nothing has settled the doubt about {call_id}")
            });
        }
    }
}

fn judge_interrupts(evidence: &Evidence, people: &People, moment: Moment, objections: &mut Objections) {
    for (run, responses) in
        people.interrupts.iter().filter(|(_, responses)| responses.iter().any(is_accepted))
    {
        let found = evidence.runs.iter().find(|known| known.view.id == *run);
        let kept = found.is_some_and(|found| match found.control.ended() {
            Some(how) => *how == Termination::Cancelled(Cancelled::Interrupted),
            None => moment == Moment::Between && found.view.interrupt_accepted,
        });
        objections.ensure(kept, Rule::AcceptedIsKept, || {
            format!("the interrupt of {run} was accepted ({responses:?}), and it ended otherwise")
        });
    }
}

/// An attempt that was reported to have answered late settles its doubt, once.
fn judge_late_answers(evidence: &Evidence, people: &People, objections: &mut Objections) {
    for (id, responses) in
        people.late_answers.iter().filter(|(_, responses)| responses.iter().any(is_accepted))
    {
        let settles = |event: &Event| {
            if let Fact::ToolResumed { suspension_id, late_attempt: Some(_), .. } = &event.fact {
                suspension_id == id
            } else {
                false
            }
        };
        let count = evidence.runs.iter().flat_map(|run| &run.log).filter(|event| settles(event)).count();
        objections.ensure(count == 1, Rule::AcceptedIsKept, || {
            format!("the late answer to {id} was accepted ({responses:?}), and is in the log {count} times")
        });
    }
}

fn judge_endings(evidence: &Evidence, people: &People, objections: &mut Objections) {
    for run in &evidence.runs {
        let message = run.control.user_message.as_ref();
        let number = message.map(|id| people.messages.iter().position(|posted| posted.id == *id));
        let number = match (number, &run.control.parent) {
            (Some(Some(index)), None) => Some(index + 1),
            (_, Some(_)) => None,
            (Some(None) | None, None) => {
                let id = &run.view.id;
                objections.ensure(false, Rule::NothingIsMadeUp, || format!("no message started {id}"));
                continue;
            }
        };
        let expected = people.story.ending_of(number);
        let how = run.control.ended();
        objections.ensure(
            how.and_then(Ending::from_termination) == Some(expected),
            Rule::EndsAsItsStory,
            || format!("{} ended as {how:?}, and its story ends as {expected:?}", run.view.id),
        );
    }
}

/// A suspension keeps its id, and a person is asked only once for one approval.
fn judge_suspensions(evidence: &Evidence, people: &People, objections: &mut Objections) {
    for (id, seen) in &people.seen {
        let shown = evidence.suspensions.get(id).and_then(Option::as_ref);
        let stays = shown.is_some_and(|shown| {
            shown.run == seen.run && shown.call == seen.open.call_id && shown.kind == seen.open.kind
        });
        objections
            .ensure(stays, Rule::ApprovalsStay, || format!("{id} was seen as {seen:?}, and is {shown:?}"));
    }
    let mut asked: BTreeSet<&CallId> = BTreeSet::new();
    let mut open: BTreeSet<&SuspensionId> = BTreeSet::new();
    for run in &evidence.runs {
        for event in &run.log {
            if let Fact::ApprovalRequested(opened) = &event.fact {
                objections.ensure(asked.insert(&opened.call_id), Rule::ApprovalsStay, || {
                    format!("{} is asked about again, as {}", opened.call_id, opened.suspension_id)
                });
            }
        }
        let pending = run.control.calls.iter().filter_map(|call| call.suspension());
        // An answered suspension is not asked again, whether its run has processed the answer or not.
        let answered = |id: &SuspensionId| {
            evidence.suspensions.get(id).and_then(Option::as_ref).is_some_and(|shown| shown.answered)
        };
        let asked_for = pending.filter(|open| open.held.kind().needs_person() && !answered(&open.id));
        open.extend(asked_for.map(|open| &open.id));
    }
    let listed: BTreeSet<&SuspensionId> = evidence.listed.iter().collect();
    objections.ensure(listed == open, Rule::ApprovalsStay, || {
        format!("the list of approvals has {listed:?}, and held are {open:?}")
    });
}

fn judge_settled(evidence: &Evidence, people: &People, objections: &mut Objections) {
    for (id, shown) in &people.settled {
        let starts = evidence.runs.iter().flat_map(|run| &run.log).filter(|event| {
            if let Fact::ExecutionStarted { call_id, .. } = &event.fact { call_id == id } else { false }
        });
        let attempts = starts.count();
        let stays = attempts == shown.attempts as usize && settled(evidence, id);
        objections.ensure(stays, Rule::SettledStays, || {
            format!("{shown:?} was shown, and {attempts} attempts are stored")
        });
    }
}

fn settled(evidence: &Evidence, call: &CallId) -> bool {
    evidence.runs.iter().flat_map(|run| &run.log).any(|event| {
        if let Fact::ExecutionSucceeded { call_id, .. }
        | Fact::ExecutionFailed { call_id, .. }
        | Fact::ToolDenied { call_id, .. }
        | Fact::ToolCancelled { call_id, .. } = &event.fact
        {
            call_id == call
        } else {
            false
        }
    })
}
