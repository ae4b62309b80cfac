//! The ledger processes the events of calls.

use machine::event::{CancelReason, Event, Fact, OpenedSuspension, Usage};
use machine::id::{CallId, RunId, ToolName};
use machine::policy::StepEnd;
use machine::status::CallStatus;
use machine::suspension::{Held, SuspensionKind};
use machine::tool::{Arguments, EffectClass, ToolLookup};
use machine::{Input, Timestamp};

use crate::judge::causes::is_performed_elsewhere;
use crate::judge::events::Cause;
use crate::judge::invariant::{Checked, Invariant, breach, ensure};
use crate::judge::ledger::{Announced, CallLedger, Open, ReportedToModel, RunLedger, Shown};

impl RunLedger {
    pub(crate) fn hear_call_fact(&mut self, event: &Event, cause: Cause<'_>) -> Checked {
        let (seq, at) = (event.seq, event.at);
        match &event.fact {
            Fact::ToolRequested { call_id, tool, arguments } => {
                self.hear_requested(call_id, tool.clone(), arguments)
            }
            Fact::ApprovalRequested(opened) | Fact::ToolSuspended(opened) => {
                let approval = opened.held.kind() == SuspensionKind::Approval;
                let announced = matches!(event.fact, Fact::ApprovalRequested(_));
                ensure(approval == announced, Invariant::CallTransitionIsLegal, || "another kind".into())?;
                self.hear_opened(opened, at, cause)
            }
            Fact::ApprovalVoided { call_id, .. } => self.hear_voided(call_id, cause),
            Fact::ToolApproved { call_id, by, arguments, .. } => {
                self.hear_approved(call_id, by.as_str(), arguments.as_ref(), cause)
            }
            Fact::ToolDenied { call_id, expired, .. } => {
                if *expired {
                    self.check_expired(call_id, at)?;
                }
                self.close(call_id, cause)?;
                self.become_call(call_id, CallStatus::Cancelled, Some(seq))
            }
            Fact::ToolResumed { call_id, by, arguments, late_attempt, .. } => {
                if let Some(attempt) = late_attempt {
                    self.expect_call(call_id)?.doubted.retain(|doubted| doubted != attempt);
                }
                self.hear_resumed(call_id, by.as_str(), arguments.as_ref(), cause)
            }
            Fact::ExecutionStarted { call_id, attempt, class, .. } => {
                self.hear_started(call_id, *attempt, *class, cause)
            }
            Fact::ExecutionSucceeded { call_id, .. } => {
                self.become_call(call_id, CallStatus::Succeeded, Some(seq))
            }
            Fact::ExecutionFailed { call_id, .. } => self.become_call(call_id, CallStatus::Failed, Some(seq)),
            Fact::ToolCancelled { call_id, reason, outcome_unknown, .. } => {
                self.hear_cancelled(call_id, *reason, *outcome_unknown, seq, cause)
            }
            Fact::ChildStarted { call_id, run_id, grant_tokens, grant_descendants, .. } => {
                let call = self.expect_call(call_id)?;
                call.child = Some(run_id.clone());
                call.grant = *grant_tokens;
                call.descendants = *grant_descendants;
                self.check_descendants()
            }
            Fact::ChildEnded { call_id, run_id, usage, descendants } => {
                let granted = self.expect_call(call_id)?.descendants;
                ensure(*descendants <= granted, Invariant::TreeIsBounded, || {
                    format!("{run_id} started {descendants} runs and may start {granted}")
                })?;
                self.expect_call(call_id)?.descendants = *descendants;
                self.hear_child_ended(call_id, run_id, *usage)
            }
            Fact::RunQueued(_)
            | Fact::RunStarted { .. }
            | Fact::RunWaiting { .. }
            | Fact::RunResumed {}
            | Fact::RunInterrupting { .. }
            | Fact::RunEnding { .. }
            | Fact::RunEnded { .. }
            | Fact::RunRecovered { .. }
            | Fact::StepStarted { .. }
            | Fact::StepEnded { .. }
            | Fact::MessageAdded(_)
            | Fact::ModelRetrying { .. }
            | Fact::PhaseAnswered { .. }
            | Fact::StateChanged { .. } => Ok(()),
        }
    }

    pub(crate) fn become_call(&mut self, id: &CallId, to: CallStatus, end_seq: Option<u64>) -> Checked {
        use CallStatus::{Cancelled, Failed, New, Resuming, Running, Succeeded, Suspended};
        let call = self.expect_call(id)?;
        let from = call.status;
        ensure(!from.terminal(), Invariant::OneEndPerCall, || format!("call {id} is {from}, becomes {to}"))?;
        let legal = match (from, to) {
            (New | Running | Resuming, Running | Suspended | Succeeded | Failed | Cancelled) => true,
            (Suspended, Resuming | Cancelled) => true,
            (New | Running | Resuming, New | Resuming)
            | (Suspended, New | Running | Suspended | Succeeded | Failed)
            | (Succeeded | Failed | Cancelled, _) => false,
        };
        ensure(legal, Invariant::CallTransitionIsLegal, || format!("call {id}: {from} becomes {to}"))?;
        call.status = to;
        call.end_seq = end_seq;
        call.open = None;
        Ok(())
    }

    /// Closing a suspension must not overtake the accepted decision that answers it.
    fn close(&mut self, id: &CallId, cause: Cause<'_>) -> Checked {
        let call = self.expect_call(id)?;
        let Some(open) = &call.open else { return Ok(()) };
        let Some(answered_by) = open.answered_by else { return Ok(()) };
        let came_first = cause.ticket.is_some_and(|ticket| ticket <= answered_by);
        ensure(came_first, Invariant::AcceptedDecisionIsHeard, || {
            format!(
                "{} of call {id} is answered by item {answered_by} and closed by {:?}",
                open.id, cause.input
            )
        })
    }

    fn hear_requested(&mut self, id: &CallId, tool: ToolName, arguments: &Arguments) -> Checked {
        ensure(self.call(id).is_none(), Invariant::CallIdsAreUnique, || {
            format!("call {id} is asked for again")
        })?;
        let in_place = self.policy.step_end == StepEnd::AfterInference || self.step_open;
        ensure(in_place && !self.inferring, Invariant::OneContinuationPerTurn, || {
            format!("call {id} is asked for outside of an answer")
        })?;
        self.calls.push(CallLedger {
            id: id.clone(),
            step: self.step,
            tool,
            arguments: arguments.clone(),
            requested: arguments.digest(),
            status: CallStatus::New,
            attempt: 0,
            class: None,
            expires_in_ms: None,
            open: None,
            asked: Vec::new(),
            needs_decision: false,
            approved: None,
            decided_since_start: true,
            said: ReportedToModel::Nothing,
            end_seq: None,
            doubted: Vec::new(),
            lost: false,
            child: None,
            grant: None,
            descendants: 0,
            child_ended: false,
        });
        Ok(())
    }

    fn check_expiry(&mut self, opened: &OpenedSuspension, at: Timestamp, cause: Cause<'_>) -> Checked {
        let started = self.expect_call(&opened.call_id)?.expires_in_ms;
        let in_doubt = opened.held.kind() == SuspensionKind::InDoubt;
        let expected = if in_doubt { started } else { gated_expiry(cause).unwrap_or(started) };
        let right = match (&opened.held, expected) {
            (Held::ChildRun { .. }, _) => opened.expiry.is_none(),
            (_, None) => true,
            (_, Some(ms)) => opened.expiry.is_some_and(|expiry| expiry.at <= at.plus_ms(ms)),
        };
        ensure(right, Invariant::ToolsExpiryCounts, || {
            format!("call {} expires {:?}, and its tool says {expected:?}", opened.call_id, opened.expiry)
        })
    }

    fn hear_opened(&mut self, opened: &OpenedSuspension, at: Timestamp, cause: Cause<'_>) -> Checked {
        self.check_expiry(opened, at, cause)?;
        let was = self.expect_call(&opened.call_id)?.status;
        self.become_call(&opened.call_id, CallStatus::Suspended, None)?;
        let call = self.expect_call(&opened.call_id)?;
        let (definition, doubted) = (opened.held.definition(), opened.held.doubted_attempt());
        if definition.is_some() {
            let shown = opened.arguments.as_ref().map(Arguments::digest);
            ensure(shown == Some(call.arguments.digest()), Invariant::HeldCallNeedsItsDecision, || {
                format!("call {} shows other arguments than will run", opened.call_id)
            })?;
            call.needs_decision = true;
            call.approved = None;
        }
        if is_performed_elsewhere(opened) {
            call.needs_decision = false;
        }
        if let Held::InDoubt { attempt } = opened.held {
            call.doubted.retain(|earlier| *earlier != attempt);
            call.doubted.push(attempt);
        }
        // The current attempt has answered, so the tool is working on the call. Earlier doubts no longer matter.
        if was == CallStatus::Running && opened.by_the_tool && opened.asked_by.is_empty() {
            call.doubted.clear();
        }
        call.asked.extend(opened.asked_by.iter().cloned());
        call.open = Some(Open {
            id: opened.suspension_id.clone(),
            kind: opened.held.kind(),
            mode: opened.mode,
            expiry: opened.expiry,
            definition,
            doubted,
            asker_count: opened.asked_by.len(),
            answered_by: None,
        });
        Ok(())
    }

    /// The approval is void: a person has to be asked again.
    fn hear_voided(&mut self, id: &CallId, cause: Cause<'_>) -> Checked {
        if self.expect_call(id)?.status == CallStatus::Suspended {
            self.close(id, cause)?;
            self.become_call(id, CallStatus::Resuming, None)?;
        }
        let call = self.expect_call(id)?;
        call.asked.clear();
        call.needs_decision = true;
        call.approved = None;
        Ok(())
    }

    fn hear_approved(
        &mut self,
        id: &CallId,
        by: &str,
        edited: Option<&Arguments>,
        cause: Cause<'_>,
    ) -> Checked {
        self.close(id, cause)?;
        let open = self.expect_call(id)?.open.as_ref();
        let (definition, heard) = open.map_or((None, 0), |open| (open.definition, open.asker_count));
        self.become_call(id, CallStatus::Resuming, None)?;
        let call = self.expect_call(id)?;
        if let Some(arguments) = edited {
            // Only the askers that were just answered have seen the new arguments.
            call.arguments = arguments.clone();
            call.asked.drain(..call.asked.len().saturating_sub(heard));
        }
        let Some(definition) = definition else {
            return breach(Invariant::HeldCallNeedsItsDecision, format!("call {id} waits for no approval"));
        };
        call.approved = Some(Shown { arguments: call.arguments.digest(), definition });
        call.decided_since_start |= by != "system";
        Ok(())
    }

    fn hear_resumed(
        &mut self,
        id: &CallId,
        by: &str,
        arguments: Option<&Arguments>,
        cause: Cause<'_>,
    ) -> Checked {
        self.close(id, cause)?;
        let heard = self.expect_call(id)?.open.as_ref().map_or(0, |open| open.asker_count);
        self.become_call(id, CallStatus::Resuming, None)?;
        let call = self.expect_call(id)?;
        call.decided_since_start |= by != "system";
        if let Some(arguments) = arguments {
            // Only the askers that were just answered have seen the new arguments.
            call.arguments = arguments.clone();
            call.asked.drain(..call.asked.len().saturating_sub(heard));
            call.needs_decision = false;
            call.approved = None;
        }
        Ok(())
    }

    fn check_expired(&self, id: &CallId, at: Timestamp) -> Checked {
        let expires_at = self.call(id).and_then(|call| call.open.as_ref()).and_then(Open::expires_at);
        ensure(
            expires_at.is_some_and(|expires_at| expires_at <= at),
            Invariant::ExpiredIsNeverAccepted,
            || format!("call {id} expires at {at}, before its time {expires_at:?}"),
        )
    }

    fn hear_started(&mut self, id: &CallId, attempt: u32, class: EffectClass, cause: Cause<'_>) -> Checked {
        // A call that was approved before the end was decided may still start.
        let is_promised = self.call(id).is_some_and(CallLedger::is_approved_and_unstarted);
        ensure(self.ending.is_none() || is_promised, Invariant::OneEndPerRun, || {
            format!("call {id} starts at the end")
        })?;
        ensure(
            self.status == Announced::Running || matches!(self.status, Announced::Waiting(_)),
            Invariant::RunTransitionIsLegal,
            || format!("call {id} starts in a run that is {:?}", self.status),
        )?;
        self.become_call(id, CallStatus::Running, None)?;
        let call = self.expect_call(id)?;
        ensure(attempt == call.attempt + 1, Invariant::AttemptsAreNumbered, || {
            format!("attempt {attempt} of call {id} follows attempt {}", call.attempt)
        })?;
        let wrote = call.attempt > 0 && call.class == Some(EffectClass::Write);
        ensure(!wrote || call.decided_since_start, Invariant::WriteStartsOnce, || {
            format!("attempt {attempt} of call {id}, a write, starts without a decision")
        })?;
        ensure(!call.needs_decision || call.approved.is_some(), Invariant::HeldCallNeedsItsDecision, || {
            format!("call {id} was held, and starts without an approval")
        })?;
        call.attempt = attempt;
        call.class = Some(class);
        call.expires_in_ms = gated_expiry(cause).unwrap_or(call.expires_in_ms);
        call.decided_since_start = false;
        call.needs_decision = false;
        call.lost = false;
        Ok(())
    }

    fn hear_cancelled(
        &mut self,
        id: &CallId,
        reason: CancelReason,
        outcome_unknown: bool,
        seq: u64,
        cause: Cause<'_>,
    ) -> Checked {
        self.close(id, cause)?;
        let call = self.expect_call(id)?;
        // Other causes may cancel it: the gate may find that the call would be held again, and a failing run waits for
        // nothing.
        let refused = matches!(cause.input, Input::Decide(_) | Input::DeadlineReached);
        let unasked = reason == CancelReason::RunEnded && refused;
        ensure(!unasked || !call.is_approved_and_unstarted(), Invariant::ApprovedCallRuns, || {
            format!("call {id} was approved, and is cancelled because the run ends")
        })?;
        let is_person = match reason {
            CancelReason::Decided | CancelReason::GivenUp => true,
            CancelReason::Expired
            | CancelReason::RunEnded
            | CancelReason::Interrupted
            | CancelReason::Superseded
            | CancelReason::ChildInterrupted => false,
        };
        // A child run or outside performer continues with the call, unless a person cancels it, who knows better.
        let given = call.attempt > 0
            && call
                .open
                .as_ref()
                .is_some_and(|open| matches!(open.kind, SuspensionKind::External | SuspensionKind::ChildRun));
        let under_way = call.status == CallStatus::Running || (given && !is_person);
        let writing = under_way && call.class == Some(EffectClass::Write);
        // A doubt remains even if another attempt was requested.
        let right = outcome_unknown == (writing || !call.doubted.is_empty());
        ensure(right, Invariant::WriteStartsOnce, || {
            format!("call {id} is cancelled with outcome_unknown: {outcome_unknown}")
        })?;
        self.become_call(id, CallStatus::Cancelled, Some(seq))
    }

    /// Every child ever started counts, with what it started or may still start.
    fn check_descendants(&self) -> Checked {
        let counted: u64 = self
            .calls
            .iter()
            .filter(|call| call.child.is_some())
            .map(|call| 1 + u64::from(call.descendants))
            .sum();
        let granted = self.parent.as_ref().and_then(|parent| parent.grant_descendants);
        let max = self.policy.descendants_max.min(granted.unwrap_or(u32::MAX));
        ensure(counted <= u64::from(max), Invariant::TreeIsBounded, || {
            format!("{} started or gave away {counted} runs of {max}", self.run)
        })
    }

    fn hear_child_ended(&mut self, id: &CallId, run: &RunId, usage: Usage) -> Checked {
        self.usage = self.usage.plus(usage);
        let call = self.expect_call(id)?;
        ensure(
            call.child.as_ref() == Some(run) && !call.child_ended,
            Invariant::ChildEndIsDeliveredOnce,
            || format!("call {id} receives the end of {run}"),
        )?;
        call.child_ended = true;
        Ok(())
    }
}

/// How long the gate lets the tool's calls be held. None if the cause is not a gate, or the gate does not know the tool.
const fn gated_expiry(cause: Cause<'_>) -> Option<Option<u64>> {
    let Input::Gated(gated) = cause.input else { return None };
    match &gated.tool {
        ToolLookup::Known(tool) => Some(tool.expires_in_ms),
        ToolLookup::Unknown | ToolLookup::OutOfScope => None,
    }
}
