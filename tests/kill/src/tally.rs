//! What the worlds with a kill have covered. A matrix that never sees a situation proves nothing about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use machine::event::{CancelReason, Event, Fact};
use machine::policy::OnBusy;
use machine::suspension::{Held, SuspensionKind};
use machine::termination::{Cancelled, StopCode, Termination};
use machine::tool::EffectClass;

use crate::evidence::{Evidence, RunEvidence};
use crate::judge::{Moment, decision_of};
use crate::people::{Decided, People};
use crate::stories::Doubt;
use crate::wire::{Reply, Response};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Observation {
    InDoubt,
    DoubtRetried,
    DoubtGivenUp,
    DoubtAnswered,
    DoubtSettledLate,
    CancelledUnknowing,
    ReadRepeated,
    IdempotentRepeated,
    ModelRepeated,
    Expired,
    ExpiredEnding,
    Rejected,
    RejectedEnding,
    QuestionAnswered,
    PerformedElsewhere,
    HeldTwoLevelsDown,
    Interrupted,
    InterruptedAbove,
    Superseded,
    QueuedAndPromoted,
    /// A decision whose answer was lost turned out to be stored.
    LostAnswerFound,
    /// A decision whose answer was lost was not stored, and was accepted when it was resent.
    LostDecisionAccepted,
    AcceptedRepeated,
    ResentInDoubt,
    /// A process was killed while an accepted decision was in the inbox.
    UnheardInTheInbox,
    KilledAgain,
    KilledBeforeTheAnswer,
    ChargeFound,
    ChargeKnown,
    HookAskedAgain,
    LetThrough,
    ThreadDeleted,
}

impl Observation {
    pub const ALL: [Self; 32] = [
        Self::InDoubt,
        Self::DoubtRetried,
        Self::DoubtGivenUp,
        Self::DoubtAnswered,
        Self::DoubtSettledLate,
        Self::CancelledUnknowing,
        Self::ReadRepeated,
        Self::IdempotentRepeated,
        Self::ModelRepeated,
        Self::Expired,
        Self::ExpiredEnding,
        Self::Rejected,
        Self::RejectedEnding,
        Self::QuestionAnswered,
        Self::PerformedElsewhere,
        Self::HeldTwoLevelsDown,
        Self::Interrupted,
        Self::InterruptedAbove,
        Self::Superseded,
        Self::QueuedAndPromoted,
        Self::LostAnswerFound,
        Self::LostDecisionAccepted,
        Self::AcceptedRepeated,
        Self::ResentInDoubt,
        Self::UnheardInTheInbox,
        Self::KilledAgain,
        Self::KilledBeforeTheAnswer,
        Self::ChargeFound,
        Self::ChargeKnown,
        Self::HookAskedAgain,
        Self::LetThrough,
        Self::ThreadDeleted,
    ];

    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::InDoubt => "a write is in doubt",
            Self::DoubtRetried => "a call in doubt is tried again",
            Self::DoubtGivenUp => "a call in doubt is given up",
            Self::DoubtAnswered => "a call in doubt gets its result from a person",
            Self::DoubtSettledLate => "a call in doubt is settled by its late answer",
            Self::CancelledUnknowing => "a write is cancelled, its outcome unknown",
            Self::ReadRepeated => "a lost read is repeated",
            Self::IdempotentRepeated => "a lost idempotent call is repeated with its key",
            Self::ModelRepeated => "a lost model call is repeated",
            Self::Expired => "an approval expires",
            Self::ExpiredEnding => "an approval expires and ends the run",
            Self::Rejected => "a call is rejected",
            Self::RejectedEnding => "a call is rejected and the run ends",
            Self::QuestionAnswered => "a tool's question is answered",
            Self::PerformedElsewhere => "a result is posted from elsewhere",
            Self::HeldTwoLevelsDown => "a call is held in a child of a child",
            Self::Interrupted => "a run is interrupted",
            Self::InterruptedAbove => "a child is interrupted with its parent",
            Self::Superseded => "a run is superseded",
            Self::QueuedAndPromoted => "a queued message gets its turn",
            Self::LostAnswerFound => "a decision's answer is lost, the decision is not",
            Self::LostDecisionAccepted => "a decision is lost unanswered, and accepted when repeated",
            Self::ResentInDoubt => "an approval without ids is sent again while its call is in doubt",
            Self::AcceptedRepeated => "an accepted decision is repeated and recognised",
            Self::UnheardInTheInbox => "an accepted decision lies unheard in the inbox",
            Self::KilledAgain => "a process that recovers is killed",
            Self::KilledBeforeTheAnswer => "a process is killed between a charge and its answer",
            Self::ChargeFound => "a charge in doubt is found in the payment service's ledger",
            Self::ChargeKnown => "a charge that is asked for again is known by its key",
            Self::HookAskedAgain => "a hook is asked again for an answer that was not recorded",
            Self::LetThrough => "a call is let through by what a person permitted earlier",
            Self::ThreadDeleted => "a thread is deleted",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<Observation, u64>);

impl Tally {
    #[must_use]
    pub fn count(&self, observation: Observation) -> u64 {
        self.0.get(&observation).copied().unwrap_or(0)
    }

    pub fn add(&mut self, other: &Self) {
        for (observation, count) in &other.0 {
            *self.0.entry(*observation).or_default() += count;
        }
    }

    fn record_observation(&mut self, observation: Observation) {
        *self.0.entry(observation).or_default() += 1;
    }

    pub(crate) fn note(&mut self, evidence: &Evidence, people: &People, moment: Moment, kills: usize) {
        if moment == Moment::Between {
            let heard = |decided: &Decided| {
                let id = Some(&decided.given.id);
                evidence.runs.iter().flat_map(|run| &run.log).any(|event| decision_of(event) == id)
            };
            let unheard = |decided: &&Decided| {
                evidence.remembered.get(&decided.given.id) == Some(&true) && !heard(decided)
            };
            people
                .decisions
                .values()
                .filter(unheard)
                .for_each(|_| self.record_observation(Observation::UnheardInTheInbox));
            return;
        }
        if kills > 1 {
            self.record_observation(Observation::KilledAgain);
        }
        for run in &evidence.runs {
            let child = run.control.parent.as_ref();
            if child.is_some_and(|parent| parent.depth == 2)
                && run.log.iter().any(|event| matches!(event.fact, Fact::ApprovalRequested(_)))
            {
                self.record_observation(Observation::HeldTwoLevelsDown);
            }
            let started = run.log.iter().find(|event| matches!(event.fact, Fact::RunStarted { .. }));
            let waited = started.zip(run.log.first()).is_some_and(|(started, queued)| started.at > queued.at);
            if waited && run.control.policy.on_busy == OnBusy::Enqueue {
                self.record_observation(Observation::QueuedAndPromoted);
            }
            run.log.iter().for_each(|event| self.note_event(event));
            self.note_charges(evidence, run);
        }
        let mut asked = BTreeSet::new();
        for question in evidence.questions.iter().filter(|question| question.has_actions) {
            if !asked.insert((&question.run, &question.key)) {
                self.record_observation(Observation::HookAskedAgain);
            }
        }
        if people.has_deleted() {
            self.record_observation(Observation::ThreadDeleted);
        }
        people.resent.values().for_each(|_| self.record_observation(Observation::ResentInDoubt));
        let checks = people.story.doubt == Doubt::Checked;
        for decided in people.decisions.values() {
            self.note_decision(decided);
            let found =
                decided.kind == SuspensionKind::InDoubt && matches!(decided.given.reply, Reply::Result(_));
            if checks && found && decided.accepted() {
                self.record_observation(Observation::ChargeFound);
            }
        }
    }

    fn note_charges(&mut self, evidence: &Evidence, run: &RunEvidence) {
        for act in evidence.acts.iter().filter(|act| act.run == run.view.id) {
            let Some(charge_record) = act.charge_record else { continue };
            let lost_it = |event: &Arc<Event>| {
                let Fact::RunRecovered { lost, .. } = &event.fact else { return false };
                lost.iter().any(|lost| lost.call_id == act.call && lost.attempt == act.attempt)
            };
            if charge_record.charged && run.log.iter().any(lost_it) {
                self.record_observation(Observation::KilledBeforeTheAnswer);
            }
            if charge_record.manner.charges() && !charge_record.charged {
                self.record_observation(Observation::ChargeKnown);
            }
        }
    }

    fn note_event(&mut self, event: &Event) {
        if let Fact::ToolSuspended(opened) = &event.fact
            && matches!(opened.held, Held::InDoubt { .. })
        {
            self.record_observation(Observation::InDoubt);
        }
        if let Fact::ToolResumed { late_attempt: Some(_), .. } = &event.fact {
            self.record_observation(Observation::DoubtSettledLate);
        }
        if let Fact::ToolCancelled { outcome_unknown: true, reason, .. } = &event.fact
            && *reason != CancelReason::GivenUp
        {
            self.record_observation(Observation::CancelledUnknowing);
        }
        if let Fact::ExecutionStarted { class, attempt: 2.., .. } = &event.fact {
            match class {
                EffectClass::Read => self.record_observation(Observation::ReadRepeated),
                EffectClass::Idempotent => self.record_observation(Observation::IdempotentRepeated),
                EffectClass::Write => {}
            }
        }
        if let Fact::ExecutionStarted { let_through_by: Some(_), .. } = &event.fact {
            self.record_observation(Observation::LetThrough);
        }
        if let Fact::ModelRetrying { .. } = &event.fact {
            self.record_observation(Observation::ModelRepeated);
        }
        if let Fact::ToolDenied { expired, .. } = &event.fact {
            self.record_observation(if *expired { Observation::Expired } else { Observation::Rejected });
        }
        if let Fact::RunEnded { termination, .. } = &event.fact {
            self.note_termination(termination);
        }
    }

    fn note_termination(&mut self, how: &Termination) {
        match how {
            Termination::Stopped(stopped) if stopped.code == StopCode::Expired => {
                self.record_observation(Observation::ExpiredEnding)
            }
            Termination::Stopped(stopped) if stopped.code == StopCode::Rejected => {
                self.record_observation(Observation::RejectedEnding);
            }
            Termination::Cancelled(Cancelled::Interrupted) => {
                self.record_observation(Observation::Interrupted)
            }
            Termination::Cancelled(Cancelled::Superseded) => self.record_observation(Observation::Superseded),
            Termination::Cancelled(Cancelled::ByParent) => {
                self.record_observation(Observation::InterruptedAbove)
            }
            Termination::Stopped(_)
            | Termination::NaturalEnd
            | Termination::BehaviorRequested
            | Termination::Blocked(_)
            | Termination::Error(_) => {}
        }
    }

    fn note_decision(&mut self, decided: &Decided) {
        if !decided.accepted() {
            return;
        }
        match (decided.kind, &decided.given.reply) {
            (SuspensionKind::InDoubt, Reply::Retry) => self.record_observation(Observation::DoubtRetried),
            (SuspensionKind::InDoubt, Reply::GiveUp) => self.record_observation(Observation::DoubtGivenUp),
            (SuspensionKind::InDoubt, Reply::Result(_)) => {
                self.record_observation(Observation::DoubtAnswered)
            }
            (SuspensionKind::Question, _) => self.record_observation(Observation::QuestionAnswered),
            (SuspensionKind::External | SuspensionKind::ClientTool, _) => {
                self.record_observation(Observation::PerformedElsewhere)
            }
            (SuspensionKind::InDoubt | SuspensionKind::Approval | SuspensionKind::ChildRun, _) => {}
        }
        let answers = decided.responses.len() as u32;
        match decided.responses.first() {
            Some(Response::AlreadyApplied) => self.record_observation(Observation::LostAnswerFound),
            Some(Response::Accepted) if answers < decided.sent_count => {
                self.record_observation(Observation::LostDecisionAccepted)
            }
            Some(Response::Accepted) if answers > 1 => self.record_observation(Observation::AcceptedRepeated),
            Some(_) | None => {}
        }
    }
}
