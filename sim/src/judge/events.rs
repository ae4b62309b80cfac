//! The ledger processes one event after the other and objects to every breach.

use machine::event::{Event, Fact, LostAttempt, Message, NoteBody, Pending, ToolBody, Usage};
use machine::id::{CallId, assistant_message_id, late_message_id, tool_message_id};
use machine::status::{CallStatus, WaitingOn};
use machine::suspension::SuspensionKind;
use machine::termination::Termination;
use machine::{Input, Timestamp};

use crate::judge::invariant::{Checked, Invariant, breach, ensure};
use crate::judge::ledger::{Announced, CallLedger, ReportedToModel, RunLedger, Ticket};

/// The input that caused an event.
#[derive(Clone, Copy)]
pub struct Cause<'w> {
    pub input: &'w Input,
    /// The ticket of the accepted item, if the input came from the inbox.
    pub ticket: Option<Ticket>,
}

impl RunLedger {
    pub fn hear(&mut self, event: &Event, cause: Cause<'_>) -> Checked {
        ensure(!self.ended(), Invariant::OneEndPerRun, || format!("{:?} after the end", event.fact))?;
        ensure(event.seq == self.seq + 1, Invariant::SeqIsDense, || {
            format!("event {} follows {}", event.seq, self.seq)
        })?;
        ensure(event.at >= self.at, Invariant::TimeNeverDecreases, || {
            format!("{} follows {}", event.at, self.at)
        })?;
        self.hear_fact(event, cause)?;
        self.seq = event.seq;
        self.at = event.at;
        Ok(())
    }

    fn hear_fact(&mut self, event: &Event, cause: Cause<'_>) -> Checked {
        let at = event.at;
        match &event.fact {
            Fact::RunQueued(_) => breach(Invariant::RunTransitionIsLegal, "queued twice"),
            Fact::RunStarted { .. } => self.become_status(Announced::Running, at),
            Fact::RunWaiting { on, pending } => self.hear_waiting(*on, pending, at),
            Fact::RunResumed {} => self.become_status(Announced::Running, at),
            Fact::RunInterrupting { .. } => self.become_status(Announced::Interrupting, at),
            Fact::RunEnding { termination } => {
                self.check_stop(termination, at)?;
                self.ending = Some(termination.clone());
                Ok(())
            }
            Fact::RunEnded { termination, usage, output } => {
                self.check_output_at_end(termination, *output)?;
                self.hear_end(termination, *usage, at)
            }
            Fact::RunRecovered { lost, lost_model_attempt, .. } => {
                self.hear_recovered(lost, *lost_model_attempt)
            }
            Fact::StepStarted { step, message_id } => {
                ensure(
                    *message_id == assistant_message_id(&self.run, *step),
                    Invariant::OneContinuationPerTurn,
                    || format!("step {step} announces {message_id}"),
                )?;
                self.hear_step_started(*step, at)
            }
            Fact::StepEnded { step, .. } => {
                ensure(self.step_open && *step == self.step, Invariant::OneContinuationPerTurn, || {
                    format!("step {step} ends while step {} is open: {}", self.step, self.step_open)
                })?;
                self.step_open = false;
                self.inferring = false;
                Ok(())
            }
            Fact::MessageAdded(message) => {
                self.hear_output(message, event.seq)?;
                self.hear_message(message)
            }
            Fact::ModelRetrying { attempt, empty_answer, .. } => {
                ensure(
                    self.inferring && *attempt == self.model_attempt + 1,
                    Invariant::AttemptsAreNumbered,
                    || format!("model attempt {attempt} follows {}", self.model_attempt),
                )?;
                self.model_attempt = *attempt;
                self.empty_retried |= *empty_answer;
                Ok(())
            }
            Fact::PhaseAnswered { .. } | Fact::StateChanged { .. } => Ok(()),
            Fact::ToolRequested { .. }
            | Fact::ApprovalRequested(_)
            | Fact::ApprovalVoided { .. }
            | Fact::ToolApproved { .. }
            | Fact::ToolDenied { .. }
            | Fact::ToolSuspended(_)
            | Fact::ToolResumed { .. }
            | Fact::ExecutionStarted { .. }
            | Fact::ExecutionSucceeded { .. }
            | Fact::ExecutionFailed { .. }
            | Fact::ToolCancelled { .. }
            | Fact::ChildStarted { .. }
            | Fact::ChildEnded { .. } => self.hear_call_fact(event, cause),
        }
    }

    pub(crate) fn expect_call(&mut self, id: &CallId) -> Checked<&mut CallLedger> {
        match self.calls.iter_mut().find(|call| call.id == *id) {
            Some(call) => Ok(call),
            None => breach(Invariant::CallTransitionIsLegal, format!("the model never requested call {id}")),
        }
    }

    fn become_status(&mut self, to: Announced, at: Timestamp) -> Checked {
        use Announced::{Done, Interrupting, Queued, Running, Waiting};
        let aborts = |how: &Termination| matches!(how, Termination::Cancelled(_) | Termination::Error(_));
        let legal = match (&self.status, &to) {
            (Queued, Running | Interrupting) | (Running, Waiting(_) | Interrupting | Done(_)) => true,
            (Waiting(_), Running | Interrupting) => true,
            (Waiting(before), Waiting(after)) => before != after,
            (Queued | Waiting(_), Done(how)) => aborts(how),
            (Interrupting, Done(how)) => matches!(how, Termination::Cancelled(_)),
            (Queued, Queued | Waiting(_))
            | (Running, Queued | Running)
            | (Waiting(_), Queued)
            | (Interrupting, Queued | Running | Waiting(_) | Interrupting)
            | (Done(_), Queued | Running | Waiting(_) | Interrupting | Done(_)) => false,
        };
        ensure(legal, Invariant::RunTransitionIsLegal, || format!("{:?} becomes {to:?}", self.status))?;
        self.announce(to, at);
        Ok(())
    }

    fn hear_waiting(&mut self, on: WaitingOn, pending: &[Pending], at: Timestamp) -> Checked {
        let own: Vec<Pending> = self
            .open_suspensions()
            .map(|(call, open)| Pending {
                call_id: call.id.clone(),
                tool: call.tool.clone(),
                kind: open.kind,
                child_run: call.child.clone().filter(|_| open.kind == SuspensionKind::ChildRun),
                suspension_id: open.id.clone(),
                expires_at: open.expires_at(),
            })
            .collect();
        ensure(own == pending, Invariant::StatusIsTheProjection, || {
            format!("run.waiting names {pending:?}, open are {own:?}")
        })?;
        let person = own.iter().any(|pending| {
            matches!(
                pending.kind,
                SuspensionKind::Approval | SuspensionKind::Question | SuspensionKind::InDoubt
            )
        });
        let expected = if person { WaitingOn::Person } else { WaitingOn::Tool };
        ensure(on == expected, Invariant::StatusIsTheProjection, || format!("waits on {on:?}"))?;
        self.become_status(Announced::Waiting(on), at)
    }

    fn hear_end(&mut self, termination: &Termination, usage: Usage, at: Timestamp) -> Checked {
        for call in &self.calls {
            ensure(call.status.terminal() && call.open.is_none(), Invariant::EndLeavesNothingOpen, || {
                format!("call {} is {} at the end", call.id, call.status)
            })?;
            ensure(call.said != ReportedToModel::Nothing, Invariant::OneToolMessagePerCall, || {
                format!("call {} ends as {} without a tool message", call.id, call.status)
            })?;
            ensure(call.said == ReportedToModel::Result, Invariant::EagerLosesNothing, || {
                format!("the model never receives the result of call {}", call.id)
            })?;
        }
        ensure(usage == self.usage, Invariant::LimitsHold, || {
            format!("the run says it used {usage:?}, the answers add up to {:?}", self.usage)
        })?;
        ensure(!self.step_open, Invariant::OneContinuationPerTurn, || "a step is open at the end".into())?;
        match &self.ending {
            Some(decided) => {
                ensure(decided == termination || termination.is_cancelled(), Invariant::OneEndPerRun, || {
                    format!("the run was ending as {decided:?} and ended as {termination:?}")
                })?
            }
            None => self.check_stop(termination, at)?,
        }
        if *termination == Termination::NaturalEnd {
            let asked = self.calls.iter().any(|call| call.step == self.step);
            ensure(!asked, Invariant::OneContinuationPerTurn, || "the model never gets the results".into())?;
            ensure(!self.untold_news, Invariant::EagerLosesNothing, || {
                "a late result did not wake the model".into()
            })?;
        }
        self.become_status(Announced::Done(termination.clone()), at)
    }

    fn hear_recovered(&mut self, lost: &[LostAttempt], lost_model_attempt: Option<u32>) -> Checked {
        if let Some(attempt) = lost_model_attempt {
            ensure(
                self.inferring && attempt == self.model_attempt,
                Invariant::OnlyTheCurrentAttemptSettles,
                || format!("model attempt {attempt} is lost; {} is under way", self.model_attempt),
            )?;
        }
        for attempt in lost {
            let call = self.expect_call(&attempt.call_id)?;
            let under_way = call.status == CallStatus::Running && call.attempt == attempt.attempt;
            ensure(under_way, Invariant::OnlyTheCurrentAttemptSettles, || {
                format!("attempt {} of call {} cannot be lost", attempt.attempt, attempt.call_id)
            })?;
            call.lost = true;
        }
        let forgotten = self.calls.iter().find(|call| call.status == CallStatus::Running && !call.lost);
        ensure(forgotten.is_none(), Invariant::OnlyTheCurrentAttemptSettles, || {
            format!("{forgotten:?} runs on after its worker is gone")
        })
    }

    fn hear_message(&mut self, message: &Message) -> Checked {
        match message {
            Message::User { .. } | Message::Correction { .. } | Message::CallsDropped { .. } => Ok(()),
            Message::Interruption { id } => ensure(self.inferring, Invariant::OneContinuationPerTurn, || {
                format!("{id} says that step {} had no answer", self.step)
            }),
            Message::Assistant { id, text, usage, .. } => {
                let expected = assistant_message_id(&self.run, self.step);
                ensure(self.inferring && *id == expected, Invariant::OneContinuationPerTurn, || {
                    format!("{id} answers step {} of {}", self.step, self.run)
                })?;
                self.inferring = false;
                self.usage = self.usage.plus(*usage);
                self.untold_news = false;
                self.last_text.clone_from(text);
                Ok(())
            }
            Message::Tool { id, call_id, status, body } => {
                ensure(*id == tool_message_id(call_id), Invariant::OneToolMessagePerCall, || id.to_string())?;
                self.hear_tool_message(call_id, *status, body)
            }
            Message::Note { id, call_id, body: NoteBody::Late { seq } } => {
                let call = self.expect_call(call_id)?;
                let right = call.said == ReportedToModel::Placeholder
                    && call.end_seq == Some(*seq)
                    && *id == late_message_id(call_id);
                ensure(right, Invariant::EagerLosesNothing, || format!("{id} tells a wrong result"))?;
                call.said = ReportedToModel::Result;
                self.untold_news = true;
                Ok(())
            }
            Message::Note { call_id, body: NoteBody::Plugin { .. }, .. } => {
                self.expect_call(call_id).map(|_| ())
            }
        }
    }

    fn hear_tool_message(&mut self, id: &CallId, status: CallStatus, body: &ToolBody) -> Checked {
        let eager = self.eager();
        let step = self.step;
        let earlier = self.calls.iter().take_while(|call| call.id != *id);
        let skipped =
            earlier.clone().find(|call| call.said == ReportedToModel::Nothing).map(|call| call.id.clone());
        let later_said = self
            .calls
            .iter()
            .skip_while(|call| call.id != *id)
            .skip(1)
            .any(|call| call.said != ReportedToModel::Nothing);
        ensure(skipped.is_none() && !later_said, Invariant::OneToolMessagePerCall, || {
            format!("the model receives the result of call {id} out of order, {skipped:?} comes before it")
        })?;
        let call = self.expect_call(id)?;
        ensure(
            call.said == ReportedToModel::Nothing && call.step == step,
            Invariant::OneToolMessagePerCall,
            || format!("call {id} of step {} has a second tool message", call.step),
        )?;
        ensure(status == call.status, Invariant::OneToolMessagePerCall, || {
            format!("call {id} is {}, its message says {status}", call.status)
        })?;
        match body {
            ToolBody::Settled { seq } => {
                ensure(call.end_seq == Some(*seq), Invariant::OneToolMessagePerCall, || {
                    format!("the message of call {id} points to event {seq}, it ended in {:?}", call.end_seq)
                })?;
                call.said = ReportedToModel::Result;
            }
            ToolBody::Placeholder { .. } => {
                ensure(eager && call.end_seq.is_none(), Invariant::OneToolMessagePerCall, || {
                    format!("call {id} has a placeholder")
                })?;
                call.said = ReportedToModel::Placeholder;
            }
        }
        Ok(())
    }
}
