//! How often each thing happened: what a world counts while it is played.

use std::collections::BTreeMap;

use machine::decision::{Decision, DecisionAction};
use machine::event::{Event, Fact};
use machine::inbox::Verdict;
use machine::input::Outcome;
use machine::phase::{HookAnswers, HookOutcome, Phase};
use machine::revision::Revision;
use machine::status::CallStatus;
use machine::{Input, InputOutcome, Rejection, checkpoint};

use crate::judge::ledger::RunLedger;
use crate::play::names;
use crate::world::script::outcome_name;
use crate::world::store::Append;
use crate::world::thread_rows::Met;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    Event,
    CallTransition,
    RunTransition,
    Rejection,
    Answer,
    Decision,
    LateAnswer,
    EarlyDecision,
    Suspension,
    Policy,
    StopCondition,
    Termination,
    PhaseAction,
    ResumeMode,
    Outcome,
    CallError,
    CancelReason,
    Checkpoint,
    Message,
    Store,
}

/// A cell of a table: its row, and its column if it has one.
pub type Cell = (Table, &'static str, &'static str);

#[derive(Clone, Debug, Default)]
pub struct Coverage(BTreeMap<Cell, u64>);

impl Coverage {
    #[must_use]
    pub fn of(&self, cell: Cell) -> u64 {
        self.0.get(&cell).copied().unwrap_or(0)
    }

    pub fn merge(&mut self, other: &Self) {
        for (cell, count) in &other.0 {
            *self.0.entry(*cell).or_default() += count;
        }
    }

    /// Cells that were counted but are in no table, which means that a table is incomplete.
    pub fn unlisted(&self, listed: &[Cell]) -> Vec<Cell> {
        self.0.keys().filter(|cell| !listed.contains(cell)).copied().collect()
    }

    fn count(&mut self, table: Table, row: &'static str, column: &'static str) {
        *self.0.entry((table, row, column)).or_default() += 1;
    }

    pub fn store(&mut self, what: &'static str) {
        self.count(Table::Store, what, "");
    }

    pub fn answer(&mut self, answer: &InputOutcome) {
        self.count(Table::Answer, names::answer(answer), "");
    }

    pub fn rejection(&mut self, rejection: &Rejection) {
        self.count(Table::Rejection, names::rejection(rejection), "");
    }

    pub fn verdict(&mut self, verdict: &Verdict) {
        self.count(Table::Decision, names::verdict(verdict), "");
    }

    pub fn late_verdict(&mut self, verdict: &Verdict) {
        self.count(Table::LateAnswer, names::verdict(verdict), "");
    }

    pub fn early_verdict(&mut self, verdict: &Verdict) {
        self.count(Table::EarlyDecision, names::verdict(verdict), "");
    }

    pub fn met(&mut self, met: &Met) {
        let name = match met {
            Met::LooseningRefused => "LooseningRefused",
            Met::Admitted(admission) => names::admission(admission),
        };
        self.count(Table::Message, name, "");
    }

    pub fn agent(&mut self, revision: &Revision) {
        for condition in &revision.stop {
            self.count(Table::StopCondition, names::stop_condition(condition), "");
        }
    }

    /// A run exists. Its first event is written with it and is not caused by an input.
    pub fn created(&mut self, ledger: &RunLedger) {
        self.count(Table::Event, "run.queued", "");
        for (field, value) in names::policy(&ledger.policy) {
            self.count(Table::Policy, field, value);
        }
    }

    pub fn outcome(&mut self, outcome: &Outcome) {
        self.count(Table::Outcome, outcome_name(outcome), "");
    }

    pub fn hooks(&mut self, phase: Phase, hooks: &HookAnswers) {
        for answer in &hooks.answers {
            match &answer.outcome {
                HookOutcome::Failed(_) => self.count(Table::PhaseAction, names::phase(phase), "failed"),
                HookOutcome::Actions(actions) => {
                    for action in actions {
                        self.count(Table::PhaseAction, names::phase(phase), action.name());
                    }
                }
            }
        }
    }

    pub fn hooks_of(&mut self, input: &Input) {
        if let Input::ModelAnswered(answered) = input {
            self.hooks(Phase::AfterInference, &answered.hooks);
        }
    }

    /// Something happens to a run while suspensions are open.
    pub fn pairs(&mut self, ledger: &RunLedger, what: &'static str) {
        for (_, open) in ledger.open_suspensions() {
            self.count(Table::Suspension, open.kind.as_str(), what);
        }
    }

    pub fn decision_pair(&mut self, ledger: &RunLedger, decision: &Decision) {
        if let Some(open) = ledger.call(&decision.call).and_then(|call| call.open.as_ref()) {
            self.count(Table::Suspension, open.kind.as_str(), "decision");
        }
    }

    pub fn decision(&mut self, decision: &Decision) {
        if let DecisionAction::Resume(resume) = &decision.action
            && let Some(mode) = resume.mode
        {
            self.count(Table::ResumeMode, names::resume_mode(mode), "chosen by the decision");
        }
    }

    pub fn commit(&mut self, append: &Append) {
        let events: Vec<Event> = append.said.iter().flat_map(|said| said.events.iter().cloned()).collect();
        if !events.is_empty() {
            let name = match checkpoint::from_events(&events) {
                checkpoint::Checkpoint::UserMessage => "user_message",
                checkpoint::Checkpoint::AssistantTurn => "assistant_turn",
                checkpoint::Checkpoint::ToolResults => "tool_results",
                checkpoint::Checkpoint::ReplayResults => "replay_results",
                checkpoint::Checkpoint::Waiting => "waiting",
                checkpoint::Checkpoint::RunFinished => "run_finished",
            };
            self.count(Table::Checkpoint, name, "");
        }
    }

    /// An event, with the ledger before it.
    pub fn event(&mut self, ledger: &RunLedger, event: &Event) {
        self.count(Table::Event, event.fact.name(), "");
        let fact = &event.fact;
        if let Fact::RunInterrupting { .. } = fact {
            self.pairs(ledger, "interrupt");
        }
        if let Fact::RunEnded { termination, .. } = fact {
            self.count(Table::Termination, names::termination(termination), "");
        }
        if let Fact::ToolResumed { mode, .. } = fact {
            self.count(Table::ResumeMode, names::resume_mode(*mode), "resumed");
        }
        if let Fact::ToolDenied { expired: true, .. } = fact {
            self.count(Table::Suspension, "approval", "expiry");
        }
        if let Fact::ExecutionFailed { error, .. } = fact {
            self.count(Table::CallError, names::call_error(error.code), "");
        }
        if let Fact::ToolCancelled { call_id, reason, .. } = fact {
            self.count(Table::CancelReason, names::cancel_reason(*reason), "");
            if *reason == machine::event::CancelReason::Expired
                && let Some(open) = ledger.call(call_id).and_then(|call| call.open.as_ref())
            {
                self.count(Table::Suspension, open.kind.as_str(), "expiry");
            }
        }
        if let Fact::ChildEnded { .. } = fact {
            self.pairs(ledger, "child's end");
        }
        // A void approval returns its call to the gate from Suspended or Resuming.
        if let (Some(call_id), Some(change)) = (fact.call_id(), fact.call_change())
            && !matches!(fact, Fact::ApprovalVoided { .. })
        {
            self.call_becomes(ledger, call_id, change.status());
        }
    }

    fn call_becomes(&mut self, ledger: &RunLedger, id: &machine::id::CallId, to: CallStatus) {
        if let Some(call) = ledger.call(id) {
            self.count(Table::CallTransition, names::call_status(call.status), names::call_status(to));
        }
    }

    /// A run's status before and after an event.
    pub fn run_became(&mut self, before: &'static str, after: &'static str) {
        if before != after {
            self.count(Table::RunTransition, before, after);
        }
    }
}
