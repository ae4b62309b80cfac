//! What the store has accepted from outside, in order, and whether each item was processed.

use engine::deciding::Decide;
use machine::Timestamp;
use machine::decision::DecisionAction;
use machine::event::{Event, Fact};
use machine::id::{CallId, Principal, RunId};
use machine::inbox::{Item, Refusal, Verdict};

use super::book::{Book, RunBook};
use crate::judge::invariant::{Checked, Invariant, ensure};
use crate::play::names;

/// An item that the store accepted, through any path.
#[derive(Clone, Debug)]
pub(crate) struct Accepted {
    pub(crate) run: usize,
    pub(crate) item: Item,
}

impl Book {
    pub(crate) fn accept(&mut self, run: &RunId, item: &Item) {
        if let Some(run) = self.find(run) {
            self.accepted.push(Accepted { run, item: item.clone() });
        }
    }

    pub(crate) fn submitted(&mut self, run: &RunId, item: &Item, verdict: &Verdict, now: Timestamp) {
        let name = self.name(run);
        self.tell(now, || format!("{name}: the store says {} to {item:?}", names::verdict(verdict)));
        if verdict.is_taken() {
            self.tally.count("store", "accepted into the inbox");
            self.accept(run, item);
        }
    }

    /// A decision that was reported as accepted is stored. A refused decision is not.
    pub(crate) fn check_told(&self, decide: &Decide, verdict: &Verdict) -> Checked {
        let by = &decide.by;
        let is_stored = self.has_accepted_of(decide);
        ensure(!verdict.is_taken() || is_stored, Invariant::AcceptedDecisionIsHeard, || {
            format!("{by} received {verdict:?}, and the decision is not stored")
        })?;
        let refused = matches!(verdict, Verdict::Refused(_));
        // Of two copies the second may arrive first and answer a later suspension. The other then gets `IdUsed`.
        let outrun = *verdict == Verdict::Refused(Refusal::IdUsed) && self.was_held_again(decide);
        ensure(!refused || !is_stored || outrun, Invariant::VerdictIsRight, || {
            format!("{by} received {verdict:?}, and the decision is stored")
        })
    }

    pub(crate) fn has_accepted_interrupt(&self, run: usize) -> bool {
        self.accepted.iter().any(|accepted| accepted.run == run && accepted.item.interrupts())
    }

    /// Whether any decision of this person on the run was accepted.
    fn has_accepted_of(&self, decide: &Decide) -> bool {
        let index = self.find(&decide.run);
        self.accepted.iter().any(|accepted| {
            let decision = accepted.item.decision();
            Some(accepted.run) == index && decision.is_some_and(|decision| decision.by == decide.by)
        })
    }

    /// Whether the decision names no suspension although the call had several.
    fn was_held_again(&self, decide: &Decide) -> bool {
        let log = self.find(&decide.run).map_or(&[][..], |run| &self.runs[run].log);
        let opens =
            |fact: &Fact| matches!(fact, Fact::ToolSuspended(opened) if opened.call_id == decide.call);
        let openings = log.iter().filter(|event| opens(&event.fact)).count();
        decide.suspension.is_none() && openings > 1
    }

    /// Whether this very decision was accepted.
    pub(crate) fn is_remembered(&self, decide: &Decide) -> bool {
        let index = self.find(&decide.run);
        self.accepted.iter().any(|accepted| {
            let decision = accepted.item.decision();
            Some(accepted.run) == index
                && decision.is_some_and(|decision| decision.id == decide.id && decision.by == decide.by)
        })
    }

    /// Every accepted decision is in the log under its author's name, because nothing is accepted after an item that
    /// ends the run. The exception is an early denial, which was accepted before its call was held and ends the run
    /// first.
    pub(crate) fn check_heard(&self) -> Checked {
        for (place, accepted) in self.accepted.iter().enumerate() {
            let Item::Decision(decision) = &accepted.item else { continue };
            let run = &self.runs[accepted.run];
            let heard = run.log.iter().any(|event| names_decider(event, &decision.call, &decision.by));
            let ended_early = self.accepted[..place]
                .iter()
                .any(|earlier| earlier.run == accepted.run && has_ended_early(run, &earlier.item));
            ensure(heard || ended_early, Invariant::AcceptedDecisionIsHeard, || {
                format!(
                    "the decision of {} on call {} of run {} was accepted and never processed",
                    decision.by,
                    decision.call,
                    accepted.run + 1
                )
            })?;
        }
        Ok(())
    }
}

/// Whether the event shows that this person's decision on this call was processed.
fn names_decider(event: &Event, call: &CallId, decider: &Principal) -> bool {
    if let Fact::ToolApproved { call_id, by, .. }
    | Fact::ToolDenied { call_id, by, .. }
    | Fact::ToolResumed { call_id, by, .. }
    | Fact::ToolCancelled { call_id, by, .. }
    | Fact::ApprovalVoided { call_id, by: Some(by), .. } = &event.fact
    {
        return call_id == call && by == decider;
    }
    false
}

/// Whether the run ended because of this denial, which was given before its call was held.
fn has_ended_early(run: &RunBook, item: &Item) -> bool {
    let Item::Early { decision, .. } = item else { return false };
    match &decision.action {
        DecisionAction::Cancel { .. } => {
            let denied = run.log.iter().position(|event| names_decider(event, &decision.call, &decision.by));
            let ending = run
                .log
                .iter()
                .position(|event| matches!(event.fact, Fact::RunEnding { .. } | Fact::RunEnded { .. }));
            denied.zip(ending).is_some_and(|(denied, ending)| denied < ending)
        }
        DecisionAction::Resume(_) => false,
    }
}
