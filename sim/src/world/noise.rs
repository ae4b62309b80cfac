//! Wrong inputs: stale, foreign, repeated, malformed. None of them may lead to an event.

use machine::decision::{Decision, DecisionAction, Payload, Resume};
use machine::event::{InterruptCause, Usage};
use machine::id::{CallId, Digest, RunId, SuspensionId};
use machine::inbox::{self, Item};
use machine::input::{ChildEnd, ChildEnded};
use machine::phase::{HookAnswers, Phase};
use machine::policy::DecisionTiming;
use machine::status::CallStatus;
use machine::suspension::SuspensionKind;
use machine::{Input, Rejection};
use serde_json::Value;
use std::sync::Arc;

use crate::judge::invariant::{Checked, Invariant, breach, ensure};
use crate::judge::ledger::{Announced, CallLedger, Projected, RunLedger};
use crate::play::words;
use crate::world::World;
use crate::world::pass::check_rejected_alike;
use crate::world::script::{self, Turn};
use crate::world::worker::Session;

impl World {
    /// Gives a wrong input to a worker's copy that has no unstored changes.
    pub(crate) fn hear_noise(&mut self, session: &mut Session) -> Checked {
        if !self.tape.chance(self.trouble.noise) || session.copy.control.seq != session.expected_seq {
            return Ok(());
        }
        if session.epoch != self.store.runs[session.run].epoch {
            return Ok(());
        }
        self.check_drain_order(session)?;
        let Some(input) = self.draw_noise(session) else { return Ok(()) };
        let clock = session.clock(self.now);
        let decided = session.copy.decide(&input, clock);
        match decided {
            Ok(decided) => {
                self.coverage.answer(&decided.outcome);
                ensure(decided.events.is_empty(), Invariant::WrongInputHasNoEvents, || {
                    format!("{} led to {:?}", words::input(&input), decided.events)
                })
            }
            Err(Rejection::InternalError(impossible)) => {
                breach(Invariant::NothingIsBroken, format!("{input:?}: {impossible}"))
            }
            Err(rejection) => {
                check_rejected_alike(session, &input, clock, &rejection)?;
                self.coverage.rejection(&rejection);
                Ok(())
            }
        }
    }

    /// Even an inbox that no store would allow has exactly one processing order.
    fn check_drain_order(&mut self, session: &Session) -> Checked {
        let ledger = &self.store.runs[session.run].ledger;
        let calls: Vec<CallId> = ledger.calls.iter().map(|call| call.id.clone()).take(2).collect();
        let executes = ledger.projection() == Projected::Executing;
        let defers = ledger.policy.decisions == DecisionTiming::AtBoundary && executes;
        let mut items = Vec::new();
        for _ in 0..self.tape.pick(5) {
            let Some(call) = calls.get(self.tape.pick(2)) else { return Ok(()) };
            items.push(self.draw_item(call));
        }
        let hurry = self.tape.chance(25);
        let interrupted = items.iter().any(|item| matches!(item, Item::Interrupt { .. }));
        let expected = expected_order(&items, defers && !hurry && !interrupted);
        let order = inbox::drain(&session.copy.control, &items, hurry);
        ensure(order == expected, Invariant::InboxIsHeardInOrder, || {
            format!("{items:?} is processed as {order:?}, not as {expected:?}")
        })
    }

    fn draw_item(&mut self, call: &CallId) -> Item {
        match self.tape.pick(4) {
            0 => Item::Decision(Decision {
                id: None,
                call: call.clone(),
                suspension: SuspensionId::from("apr_any"),
                by: "ana".into(),
                accepted_at: self.now,
                definition_now: None,
                action: DecisionAction::Resume(Resume::default()),
            }),
            1 => Item::LateAnswer { step: 1, call: call.clone(), attempt: 1, outcome: script::success() },
            2 => Item::ChildEnded(ChildEnded {
                call: call.clone(),
                run: RunId::from("run_of_another_parent"),
                end: ChildEnd::Interrupted,
                usage: Usage::default(),
                descendants: 0,
            }),
            _ => Item::Interrupt { cause: InterruptCause::Person("ana".into()) },
        }
    }

    fn draw_noise(&mut self, session: &Session) -> Option<Input> {
        let ledger = self.store.runs[session.run].ledger.clone();
        match self.tape.pick(9) {
            0 => self.wrong_result(&ledger),
            1 => self.wrong_decision(&ledger),
            2 => self.wrong_gate(session, &ledger),
            3 => self.wrong_model(&ledger),
            4 => self.wrong_phase(&ledger),
            5 => (ledger.status != Announced::Queued).then_some(Input::Start { after: None }),
            6 => {
                let next = session.copy.next_deadline();
                let clock = session.clock(self.now);
                next.is_none_or(|deadline| deadline.at > clock).then_some(Input::DeadlineReached)
            }
            7 => Some(Input::ChildEnded(ChildEnded {
                call: self.any_call(&ledger).map_or_else(|| CallId::from("unknown"), |call| call.id),
                run: RunId::from("run_of_another_parent"),
                end: ChildEnd::Failed { message: "lost".into() },
                usage: Usage { input_tokens: 9, output_tokens: 9 },
                descendants: 0,
            })),
            _ => (!ledger.revision.phases.has(Phase::AfterToolExecute))
                .then(|| Input::AfterTools { heard: vec![(CallId::from("a"), HookAnswers::default())] }),
        }
    }

    /// A random call, mostly one that has not ended.
    fn any_call(&mut self, ledger: &RunLedger) -> Option<CallLedger> {
        let open: Vec<&CallLedger> = ledger.calls.iter().filter(|call| !call.status.terminal()).collect();
        if !open.is_empty() && self.tape.chance(60) {
            return Some(open[self.tape.pick(open.len())].clone());
        }
        if ledger.calls.is_empty() {
            return None;
        }
        Some(ledger.calls[self.tape.pick(ledger.calls.len())].clone())
    }

    /// A result of another turn, another attempt, a call that has ended, or a call that does not exist.
    fn wrong_result(&mut self, ledger: &RunLedger) -> Option<Input> {
        let outcome = script::draw_outcome(&mut self.tape, 30);
        let call = self.any_call(ledger)?;
        if !call.doubted.is_empty() {
            return None;
        }
        let doubted = call.open.as_ref().and_then(|open| open.doubted);
        let current = if call.status == CallStatus::Running { Some(call.attempt) } else { doubted };
        let right = current.unwrap_or(call.attempt);
        let (id, step, attempt) = match self.tape.pick(6) {
            0 | 4 => (call.id, call.step + 1, right),
            1 => (call.id, call.step.saturating_sub(1), right),
            2 => (call.id, call.step, right + 1),
            3 => (call.id, call.step, right.checked_sub(1)?),
            _ if current.is_none() => (call.id, call.step, right),
            _ => (CallId::from("unknown"), call.step, right),
        };
        Some(Input::ToolReturned { step, call: id, attempt, outcome })
    }

    /// A decision for a call that is not held, with an old suspension, malformed, too late, or about other arguments.
    fn wrong_decision(&mut self, ledger: &RunLedger) -> Option<Input> {
        let mut decision = Decision {
            id: None,
            call: CallId::from("unknown"),
            suspension: SuspensionId::from("apr_old"),
            by: "mallory".into(),
            accepted_at: self.now,
            definition_now: None,
            action: DecisionAction::Resume(Resume::default()),
        };
        let Some(call) = self.any_call(ledger) else { return Some(Input::Decide(decision)) };
        decision.call = call.id.clone();
        decision.definition_now = self.live.definition_now(&call.tool);
        let Some(open) = &call.open else {
            if self.tape.chance(20) {
                decision.call = CallId::from("unknown");
            }
            return Some(Input::Decide(decision));
        };
        match self.tape.pick(4) {
            0 => {}
            1 => {
                decision.suspension = open.id.clone();
                decision.accepted_at = open.expires_at()?;
            }
            2 => {
                decision.suspension = open.id.clone();
                if open.kind == SuspensionKind::InDoubt {
                    return None;
                }
                let null = Payload::Result(Arc::new(Value::Null));
                let mode = Some(machine::suspension::ResumeMode::ReplayToolCall);
                decision.action = DecisionAction::Resume(Resume { payload: null, mode, ..Resume::default() });
            }
            _ => {
                decision.suspension = open.id.clone();
                let resume = Resume {
                    expect_digest: Some(Digest([1; 32])),
                    payload: Payload::Result(Arc::new(Value::Bool(true))),
                    ..Resume::default()
                };
                decision.action = DecisionAction::Resume(resume);
            }
        }
        Some(Input::Decide(decision))
    }

    fn wrong_gate(&mut self, session: &Session, ledger: &RunLedger) -> Option<Input> {
        let call = self.any_call(ledger)?;
        let at_the_gate = match call.status {
            CallStatus::Resuming => true,
            CallStatus::New => ledger.is_next_in_line(&call),
            CallStatus::Running => call.lost,
            CallStatus::Suspended | CallStatus::Succeeded | CallStatus::Failed | CallStatus::Cancelled => {
                false
            }
        };
        if at_the_gate && ledger.ending.is_none() {
            return None;
        }
        self.gated(session, &call.id).map(Input::Gated)
    }

    fn wrong_model(&mut self, ledger: &RunLedger) -> Option<Input> {
        let turn = match self.tape.pick(3) {
            0 => Turn { step: ledger.step + 1, attempt: 1 },
            1 => Turn { step: ledger.step, attempt: ledger.model_attempt + 1 },
            _ if !ledger.inferring => Turn { step: ledger.step, attempt: ledger.model_attempt },
            _ => Turn { step: ledger.step, attempt: ledger.model_attempt.checked_sub(1)? },
        };
        Some(script::words(turn, &ledger.revision))
    }

    fn wrong_phase(&mut self, ledger: &RunLedger) -> Option<Input> {
        let phase = Phase::ALL[self.tape.pick(Phase::ALL.len())];
        let asked = match phase {
            Phase::AfterInference | Phase::BeforeToolExecute | Phase::AfterToolExecute => false,
            Phase::RunStart => ledger.step == 0,
            Phase::StepStart | Phase::BeforeInference => ledger.inferring,
            Phase::StepEnd => ledger.step_open && !ledger.inferring,
            Phase::RunEnd => ledger.ending.is_some(),
        };
        let hooks = crate::world::hooks::draw(&mut self.tape, phase, &ledger.revision, 100);
        (!asked).then_some(Input::PhaseAnswered { phase, hooks })
    }
}

/// Results come first, unless their call was decided before them; then the rest in order of arrival. A deferred
/// decision also holds back what came after it on the same call.
fn expected_order(items: &[Item], puts_off: bool) -> Vec<usize> {
    let is_late_result = |place: usize| match &items[place] {
        Item::LateAnswer { call, .. } | Item::ChildEnded(ChildEnded { call, .. }) => {
            let decided = items[..place]
                .iter()
                .any(|item| matches!(item, Item::Decision(decision) if decision.call == *call));
            Some(decided)
        }
        Item::Decision(_) | Item::Early { .. } | Item::Interrupt { .. } => None,
    };
    let first = (0..items.len()).filter(|place| is_late_result(*place) == Some(false));
    let rest = (0..items.len()).filter(|place| match &items[*place] {
        Item::LateAnswer { .. } | Item::ChildEnded(_) => is_late_result(*place) == Some(true) && !puts_off,
        Item::Decision(_) | Item::Early { .. } => !puts_off,
        Item::Interrupt { .. } => true,
    });
    first.chain(rest).collect()
}
