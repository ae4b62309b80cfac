//! A decision in progress: a copy of the state to which every recorded fact is applied at once.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::apply::apply;
use crate::call::Call;
use crate::control::{CONTROL_BYTES_MAX, Control};
use crate::event::{Event, Fact, Subject};
use crate::id::CallId;
use crate::phase::{Action, HookAnswers, HookOutcome, Phase};
use crate::rejection::Rejection;
use crate::revision::Revision;
use crate::time::Timestamp;

pub(super) struct Draft<'r> {
    pub(super) revision: &'r Revision,
    pub(super) control: Control,
    pub(super) now: Timestamp,
    pub(super) events: Vec<Event>,
    /// Calls whose hooks of AfterToolExecute answered with this input, including empty answers.
    pub(super) after_hooks_answered: BTreeSet<CallId>,
    /// An accepted interrupt is in the inbox: the input is recorded, and nothing follows from it.
    pub(super) interrupted: bool,
}

impl<'r> Draft<'r> {
    pub(super) fn new(revision: &'r Revision, control: &Control, now: Timestamp) -> Self {
        Self {
            revision,
            control: control.clone(),
            // Clocks of two workers differ, but the log's time must never run backwards.
            now: now.max(control.at),
            events: Vec::new(),
            after_hooks_answered: BTreeSet::new(),
            interrupted: false,
        }
    }

    pub(super) fn record(&mut self, fact: Fact) -> Result<u64, Rejection> {
        let seq = self.control.seq + 1;
        let step = self.step_of(&fact);
        let event = Event { seq, at: self.now, step, fact };
        apply(&mut self.control, &event)?;
        self.events.push(event);
        Ok(seq)
    }

    /// A fact about a call belongs to the step that asked for the call, no matter how late it arrives.
    fn step_of(&self, fact: &Fact) -> Option<u32> {
        let open = self.control.step_open.then_some(self.control.step);
        match fact.subject() {
            Subject::Run => None,
            Subject::Step(step) => Some(step),
            Subject::Call(id) => self.control.call(id).map(|call| call.step).or(open),
            Subject::OpenStep => open,
        }
    }

    pub(super) fn call(&self, id: &CallId) -> Result<&Call, Rejection> {
        self.control.call(id).ok_or_else(|| Rejection::UnknownCall(id.clone()))
    }

    /// Whether the stored control stays within its limit with this many more bytes, even if every call that is not held
    /// becomes in doubt, which cannot be refused.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.room_bytes().is_some_and(|room| bytes <= room)
    }

    /// How many more bytes the stored control can take under that condition. None if it already exceeds its limit.
    pub(super) fn room_bytes(&self) -> Option<usize> {
        const DOUBT_BYTES: usize = 60;
        let not_held =
            self.control.calls.iter().filter(|call| !call.settled() && call.suspension().is_none());
        let reserve = not_held.count() * DOUBT_BYTES;
        let stored = self.control.encode().ok()?;
        CONTROL_BYTES_MAX.checked_sub(stored.len())?.checked_sub(reserve)
    }

    pub(super) const fn has_hooks(&self, phase: Phase) -> bool {
        self.revision.phases.has(phase)
    }

    /// Stores the answers of the hooks of a phase. A plugin that answered with nothing leaves no event.
    pub(super) fn record_hooks(
        &mut self,
        phase: Phase,
        call: Option<&CallId>,
        hooks: &HookAnswers,
    ) -> Result<(), Rejection> {
        for answer in &hooks.answers {
            let (actions, failed) = match &answer.outcome {
                HookOutcome::Actions(actions) if actions.is_empty() => continue,
                HookOutcome::Actions(actions) => (actions.clone(), None),
                HookOutcome::Failed(why) => (Vec::new(), Some(crate::termination::truncate_reason(why))),
            };
            self.record(Fact::PhaseAnswered {
                phase,
                plugin: answer.plugin.clone(),
                call_id: call.cloned(),
                actions,
                failed,
            })?;
        }
        for (plugin, action) in hooks.actions() {
            if let Action::SetState { key, scope, value } = action {
                self.record(Fact::StateChanged {
                    plugin: plugin.clone(),
                    scope: *scope,
                    key: key.clone(),
                    value: value.clone(),
                })?;
            }
        }
        Ok(())
    }

    /// For phases in which one failure invalidates all answers: stores which plugins failed, and no other answers.
    pub(super) fn record_failures(
        &mut self,
        phase: Phase,
        call: Option<&CallId>,
        hooks: &HookAnswers,
    ) -> Result<(), Rejection> {
        for answer in hooks.isolate_failures(phase).answers {
            if let HookOutcome::Failed(why) = answer.outcome {
                self.record(Fact::PhaseAnswered {
                    phase,
                    plugin: answer.plugin,
                    call_id: call.cloned(),
                    actions: Vec::new(),
                    failed: Some(crate::termination::truncate_reason(&why)),
                })?;
            }
        }
        Ok(())
    }
}
