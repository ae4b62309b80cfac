//! Submissions from outside: one transaction that decides who wins, compared with the simulator's own verdict.

use machine::Timestamp;
use machine::decision::{Decision, DecisionAction};
use machine::event::InterruptCause;
use machine::id::{CallId, Digest};
use machine::inbox::{self, Item, Refusal, RunLifecycle, Verdict};
use machine::input::Outcome;
use machine::status::CallStatus;
use machine::suspension::SuspensionKind;

use crate::judge::invariant::{Checked, Invariant, ensure};
use crate::world::store::{RunIndex, Store, StoredRun, is_taken, same_content};

/// What the author of a decision knows about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Good,
    /// A plain yes with arguments that cannot run. If the tool has changed, the arguments are not checked.
    BadEdit,
    Malformed,
}

impl Store {
    /// Only the verdict. Nothing is written.
    pub fn judge(&self, run: RunIndex, decision: &Decision, form: Form) -> Checked<Verdict> {
        let stored = &self.runs[run];
        let row = stored.ledger.suspension_row(&decision.call);
        let over = stored.ledger.row(stored.is_on_its_way_out());
        let verdict = stored.judge(&Item::Decision(decision.clone()));
        let expected = expected_verdict(stored, decision, form);
        let got = match &verdict {
            Verdict::Accepted => Expected::Accepted,
            Verdict::ToolChanged => Expected::Voided,
            Verdict::AlreadyApplied => Expected::Repeated,
            Verdict::Refused(_) => Expected::Refused,
        };
        let invariant = match &verdict {
            Verdict::Accepted if row.as_ref().is_some_and(|row| is_over(row.expires_at, decision)) => {
                Invariant::ExpiredIsNeverAccepted
            }
            Verdict::Accepted | Verdict::ToolChanged | Verdict::AlreadyApplied | Verdict::Refused(_) => {
                Invariant::VerdictIsRight
            }
        };
        ensure(got == expected, invariant, || {
            format!("{decision:?} meets {row:?} of a run that is {over:?}: {verdict:?}, not {expected:?}")
        })?;
        Ok(verdict)
    }

    pub fn submit_decision(&mut self, run: RunIndex, decision: &Decision, form: Form) -> Checked<Verdict> {
        let verdict = self.judge(run, decision, form)?;
        if is_taken(&verdict) {
            let ticket = self.put(run, Item::Decision(decision.clone()));
            self.mark_answered(run, &decision.call, ticket);
            self.remember(run, decision);
        }
        Ok(verdict)
    }

    /// A decision on a call that is not held yet. It is kept while the call may still be held, for these arguments
    /// only.
    pub fn submit_early(&mut self, run: RunIndex, decision: &Decision, digest: Digest) -> Checked<Verdict> {
        let stored = &self.runs[run];
        let item = Item::Early { decision: decision.clone(), digest };
        let verdict = stored.judge(&item);
        let expected = expected_early_verdict(stored, decision);
        ensure(verdict == expected, Invariant::VerdictIsRight, || {
            format!("{decision:?} comes early: {verdict:?}, not {expected:?}")
        })?;
        if is_taken(&verdict) {
            self.put(run, item);
            self.remember(run, decision);
        }
        Ok(verdict)
    }

    pub fn submit_late_answer(
        &mut self,
        run: RunIndex,
        step: u32,
        call: &CallId,
        attempt: u32,
        outcome: Outcome,
    ) -> Checked<Verdict> {
        let stored = &self.runs[run];
        let row = stored.ledger.suspension_row(call);
        let over = stored.ledger.row(stored.is_on_its_way_out());
        let under_way = stored
            .ledger
            .call(call)
            .filter(|call| call.status == CallStatus::Running)
            .map(|call| call.attempt);
        let item = Item::LateAnswer { step, call: call.clone(), attempt, outcome };
        let verdict = stored.judge(&item);
        let doubted = row.is_some_and(|row| row.doubted_attempt == Some(attempt) && !row.answered);
        let expected = over == RunLifecycle::Open && (doubted || under_way == Some(attempt));
        ensure((verdict == Verdict::Accepted) == expected, Invariant::OnlyTheCurrentAttemptSettles, || {
            format!("a late answer of attempt {attempt} of call {call} is {verdict:?}")
        })?;
        if verdict == Verdict::Accepted {
            let ticket = self.put(run, item);
            self.mark_answered(run, call, ticket);
        }
        Ok(verdict)
    }

    /// A run that is already ending takes no second interrupt.
    pub fn submit_interrupt(&mut self, run: RunIndex, cause: InterruptCause) -> Checked {
        let stored = &self.runs[run];
        let item = Item::Interrupt { cause };
        let verdict = stored.judge(&item);
        let expected = !stored.ledger.ended() && !stored.interrupt_accepted;
        ensure(is_taken(&verdict) == expected, Invariant::VerdictIsRight, || {
            format!("an interrupt of {} is {verdict:?}", stored.id)
        })?;
        if is_taken(&verdict) {
            self.put(run, item);
            self.runs[run].interrupt_accepted = true;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Accepted,
    Voided,
    Repeated,
    Refused,
}

fn is_over(expires_at: Option<Timestamp>, decision: &Decision) -> bool {
    expires_at.is_some_and(|at| at <= decision.accepted_at)
}

fn expected_early_verdict(stored: &StoredRun, decision: &Decision) -> Verdict {
    if let Some(earlier) = stored.earlier(decision) {
        let same = same_content(earlier, decision);
        return if same { Verdict::AlreadyApplied } else { Verdict::Refused(Refusal::IdUsed) };
    }
    match stored.ledger.row(stored.is_on_its_way_out()) {
        RunLifecycle::Open => {}
        RunLifecycle::Ending | RunLifecycle::Ended => return Verdict::Refused(Refusal::RunOver),
    }
    let kept = stored.inbox.iter().any(|row| match &row.item {
        Item::Early { decision: other, .. } => other.call == decision.call,
        Item::Decision(_) | Item::Interrupt { .. } | Item::ChildEnded(_) | Item::LateAnswer { .. } => false,
    });
    if kept || !inbox::may_keep_early(&stored.folded, &decision.call) {
        return Verdict::Refused(Refusal::NotHeld);
    }
    Verdict::Accepted
}

fn expected_verdict(stored: &StoredRun, decision: &Decision, form: Form) -> Expected {
    if let Some(earlier) = decision.id.as_ref().and_then(|id| stored.decisions.get(id)) {
        return if same_content(earlier, decision) { Expected::Repeated } else { Expected::Refused };
    }
    let ledger = &stored.ledger;
    if ledger.ended() || ledger.ending.is_some() || stored.is_on_its_way_out() {
        return Expected::Refused;
    }
    let Some(call) = ledger.call(&decision.call) else { return Expected::Refused };
    let Some(open) = call.open.as_ref().filter(|open| open.id == decision.suspension) else {
        return Expected::Refused;
    };
    let saw_other = match &decision.action {
        DecisionAction::Resume(resume) => {
            resume.expect_digest.is_some_and(|seen| seen != call.arguments.digest())
        }
        DecisionAction::Cancel { .. } => false,
    };
    let refused = open.answered_by.is_some()
        || is_over(open.expires_at(), decision)
        || form == Form::Malformed
        || open.kind == SuspensionKind::ChildRun
        || saw_other;
    let changed = match (&decision.action, open.definition, decision.definition_now) {
        (DecisionAction::Resume(_), Some(shown), Some(current)) => shown != current,
        (DecisionAction::Resume(_) | DecisionAction::Cancel { .. }, _, _) => false,
    };
    match (refused, changed) {
        (true, _) => Expected::Refused,
        (false, true) => Expected::Voided,
        (false, false) if form == Form::BadEdit => Expected::Refused,
        (false, false) => Expected::Accepted,
    }
}
