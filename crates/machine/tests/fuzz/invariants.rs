//! A fuzzed run, and the laws that hold after everything that is said to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use machine::control::CONTROL_BYTES_MAX;
use machine::id::{CallId, SuspensionId, ToolName};
use machine::input::Input;
use machine::status::RunStatus;
use machine::tool::{Arguments, Tool};
use machine::transcript::{Messages, ModelMessage};
use machine::{Control, Event, Fact, InputOutcome, Rejection, Run, Timestamp, event_codec, fold, queue};

use crate::chance::Chance;
use crate::inputs;
use crate::plain_transcript::Compared;
use crate::world::{self, TOOLS};

pub(crate) struct Fuzzed {
    pub(crate) run: Run,
    /// As the store would give it back.
    pub(crate) log: Vec<Event>,
    pub(crate) now: Timestamp,
    pub(crate) tools: BTreeMap<ToolName, Tool>,
    /// Of every call that was ever asked for, those that count.
    pub(crate) arguments: BTreeMap<CallId, Arguments>,
    /// Every one that was ever open.
    pub(crate) suspensions: Vec<SuspensionId>,
    /// Between a take-over and the end of the inbox the run does not continue.
    undrained: bool,
}

impl Fuzzed {
    pub(crate) fn begin(chance: &mut Chance) -> Self {
        let revision = world::revision(chance);
        let now = Timestamp(chance.below(5_000));
        let first = queue(world::order(chance, &revision), now);
        let control = fold([&first]).unwrap();
        Self {
            run: Run::new(Arc::new(revision), control),
            log: vec![through_the_store(&first)],
            now,
            tools: TOOLS.into_iter().map(|name| (ToolName::from(name), world::tool(chance))).collect(),
            arguments: BTreeMap::new(),
            suspensions: Vec::new(),
            undrained: false,
        }
    }

    /// Clocks jump, stand still and run backwards.
    pub(crate) fn pass_time(&mut self, chance: &mut Chance) {
        self.now = match chance.below(200) {
            0 => Timestamp(u64::MAX),
            1..=9 => Timestamp(self.now.0.saturating_sub(chance.below(5_000))),
            10..=40 => self.now.plus_ms(chance.below(600_000)),
            41..=120 => self.now.plus_ms(chance.below(1_000)),
            _ => self.now,
        };
    }

    pub(crate) fn say(&mut self, input: &Input) {
        let ended = self.run.control.ended().cloned();
        match (self.run.decide(input, self.now), ended) {
            (Err(rejection), Some(how)) => assert_eq!(rejection, Rejection::RunEnded(how)),
            (Err(rejection), None) => {
                let broken = matches!(rejection, Rejection::InternalError(_) | Rejection::RunEnded(_));
                assert!(!broken, "{rejection}\n{input:#?}");
                assert!(!rejection.to_string().is_empty(), "{rejection:?}");
            }
            (Ok(decided), Some(_)) => panic!("the run had ended: {decided:#?}"),
            (Ok(decided), None) => {
                if decided.outcome == InputOutcome::Duplicate {
                    assert_eq!(decided.events, [], "a duplicate changes nothing\n{input:#?}");
                }
                match input {
                    Input::LeaseAcquired { .. } => self.undrained = true,
                    Input::InboxDrained => self.undrained = false,
                    Input::Start { .. }
                    | Input::PhaseAnswered { .. }
                    | Input::ModelAnswered(_)
                    | Input::ModelFailed { .. }
                    | Input::Gated(_)
                    | Input::ToolReturned { .. }
                    | Input::AfterTools { .. }
                    | Input::Decide(_)
                    | Input::ChildEnded(_)
                    | Input::Interrupt { .. }
                    | Input::DeadlineReached => {}
                }
                self.store(&decided.events, input);
                self.check_state(input);
            }
        }
    }

    /// Events apply to what the store would give back, and lead to the same state as the one in memory.
    fn store(&mut self, events: &[Event], input: &Input) {
        let mut reloaded = Control::decode(&self.run.control.encode().unwrap()).unwrap();
        assert_eq!(reloaded, self.run.control);
        for event in events {
            let before = &self.run.control;
            assert_eq!(event.seq, before.seq + 1, "{event:#?}");
            assert!(event.at >= before.at, "{event:#?}");
            self.run.apply(event).unwrap_or_else(|impossible| panic!("{impossible}\n{input:#?}"));
            let stored = through_the_store(event);
            assert_eq!(&stored, event, "after {input:#?}");
            machine::apply::apply(&mut reloaded, &stored).unwrap();
            self.note(event);
            self.log.push(stored);
        }
        assert_eq!(reloaded, self.run.control, "after {input:#?}");
        let bytes = reloaded.encode().unwrap().len();
        assert!(bytes <= CONTROL_BYTES_MAX, "the control has {bytes} bytes after {input:#?}\n{reloaded:#?}");
    }

    fn note(&mut self, event: &Event) {
        if let Fact::ToolRequested { call_id, arguments, .. }
        | Fact::ToolApproved { call_id, arguments: Some(arguments), .. }
        | Fact::ToolResumed { call_id, arguments: Some(arguments), .. } = &event.fact
        {
            self.arguments.insert(call_id.clone(), arguments.clone());
        }
        if let Fact::ApprovalRequested(opened) | Fact::ToolSuspended(opened) = &event.fact {
            self.suspensions.push(opened.suspension_id.clone());
        }
    }

    /// A run that waits wants nothing and holds something; one that executes wants something or has a deadline.
    fn check_state(&self, input: &Input) {
        let (wanted, control) = (self.run.wanted(), &self.run.control);
        match &control.status {
            RunStatus::Queued | RunStatus::Done(_) => assert!(wanted.is_empty(), "{wanted:#?}"),
            RunStatus::Waiting(_) => {
                assert!(wanted.is_empty(), "the run waits and wants {wanted:#?} after {input:#?}");
                assert!(!control.pending().is_empty(), "the run waits for nothing after {input:#?}");
            }
            RunStatus::Running => {
                let moves = !wanted.is_empty() || self.run.next_deadline().is_some() || self.undrained;
                assert!(moves, "the run executes and nothing does after {input:#?}\n{control:#?}");
            }
            RunStatus::Interrupting => panic!("an interrupt does not wait: {control:#?}"),
        }
    }

    pub(crate) fn check_the_whole(mut self) {
        assert_eq!(fold(&self.log).as_ref(), Ok(&self.run.control), "the log tells another story");
        let mut transcript = Compared::default();
        for event in &self.log {
            transcript.push(event);
            if matches!(event.fact, Fact::StepStarted { .. }) {
                check_model_input(&transcript.shared.model_input());
            }
        }
        check_model_input(&transcript.shared.model_input());
        if self.run.control.ended().is_some() {
            let mut chance = Chance::from_seed(self.run.control.seq);
            for _ in 0..5 {
                let input = inputs::input(&mut chance, &self);
                self.say(&input);
            }
        }
    }
}

fn through_the_store(event: &Event) -> Event {
    let text = event_codec::encode(event).unwrap();
    event_codec::decode(&text).unwrap_or_else(|unreadable| panic!("{unreadable}\n{text}"))
}

/// Every call has exactly one result, in call order, directly after the message that asked for it.
fn check_model_input(messages: &Messages) {
    let mut expected: Vec<&CallId> = Vec::new();
    let mut seen = BTreeSet::new();
    for message in messages.iter() {
        match message {
            ModelMessage::Tool { call, .. } => {
                assert_eq!(expected.first(), Some(&call), "{messages:#?}");
                expected.remove(0);
            }
            ModelMessage::Assistant { calls, .. } => {
                assert!(expected.is_empty(), "{expected:?} have no result\n{messages:#?}");
                expected = calls.iter().map(|call| &call.id).collect();
                assert!(expected.iter().all(|call| seen.insert(*call)), "an id is used twice\n{messages:#?}");
            }
            ModelMessage::User { .. } | ModelMessage::Note { .. } | ModelMessage::Notice { .. } => {
                assert!(expected.is_empty(), "{expected:?} have no result\n{messages:#?}");
            }
        }
    }
    assert!(expected.is_empty(), "{expected:?} have no result\n{messages:#?}");
}
