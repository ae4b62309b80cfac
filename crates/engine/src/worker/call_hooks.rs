//! Hooks before and after calls: in the model's order of calls, one at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use machine::call::Call;
use machine::id::CallId;
use machine::input::GateInput;
use machine::phase::{HookAnswers, Phase};
use machine::status::CallStatus;
use machine::tool::Arguments;
use machine::{Control, Effect, Input, Timestamp};
use serde_json::Value;

use super::pass::NotStored;
use super::task_result::UnsentAttempt;
use super::{Batch, Stop, Worker};
use crate::plugin::{CallResult, GateRevisit, Subject};

impl Worker {
    pub(super) async fn gate_subject(&mut self, id: &CallId) -> Result<Subject, Stop> {
        let call = self.known_call(id)?;
        let arguments = self.shown_arguments(&call).await?;
        let revisit = (call.status() != CallStatus::New).then(|| GateRevisit {
            approval: call.approved.as_ref().map(|approved| approved.approval.clone()),
            attempts: call.attempts,
        });
        Ok(Subject::BeforeToolExecute { call: call.id, tool: call.tool, arguments, revisit })
    }

    pub(super) async fn result_subject(&mut self, id: &CallId) -> Result<Subject, Stop> {
        let call = self.known_call(id)?;
        let (arguments, status) = (self.shown_arguments(&call).await?, call.status());
        let result = match call.settled_seq() {
            Some(seq) => {
                let event = self.event(seq).await?;
                let Some(result) = CallResult::from_fact(&event.fact) else {
                    return Err(Stop::Broken(format!("event {seq} does not settle call {id}")));
                };
                Some(result)
            }
            None => None,
        };
        Ok(Subject::AfterToolExecute { call: call.id, tool: call.tool, arguments, status, result })
    }

    fn known_call(&self, id: &CallId) -> Result<Call, Stop> {
        let call = self.run.control().call(id).cloned();
        call.ok_or_else(|| Stop::Broken(format!("call {id} is to be judged, but the run does not know it")))
    }

    async fn shown_arguments(&mut self, call: &Call) -> Result<Arc<Value>, Stop> {
        Ok(match self.arguments_of(call).await? {
            Arguments::Valid { value, .. } => value,
            Arguments::Invalid { raw, .. } => Arc::new(Value::from(raw)),
        })
    }

    /// If no plugin has to be asked, the gate only needs the configuration, and no commit is needed before it.
    pub(super) async fn process_gates(&mut self, batch: &mut Batch, now: Timestamp) -> Result<(), NotStored> {
        if self.phases().has(Phase::BeforeToolExecute) {
            return Ok(());
        }
        loop {
            let calls: Vec<CallId> = in_order(self.run.control(), self.run.wanted())
                .into_iter()
                .filter_map(|effect| if let Effect::Gate(call) = effect { Some(call) } else { None })
                .collect();
            if calls.is_empty() {
                return Ok(());
            }
            for call in calls {
                // The gate of an earlier call may have ended the run.
                if !self.run.wanted().contains(&Effect::Gate(call.clone())) {
                    continue;
                }
                let gated = self.gated(&call, HookAnswers::default()).await?;
                if self.apply(batch, &Input::Gated(gated), None, now)?.is_none() {
                    return Err(NotStored::Stop(Stop::Broken(format!("call {call} cannot pass the gate"))));
                }
            }
        }
    }

    /// A call whose tool changed before its attempt was sent passes the gate again, as the tool is now. Hooks have
    /// judged the call with these arguments, and are not asked again unless it is held.
    pub(super) async fn pass_gate_again(
        &mut self,
        batch: &mut Batch,
        unsent: &UnsentAttempt,
        now: Timestamp,
    ) -> Result<(), NotStored> {
        let UnsentAttempt { call, attempt, .. } = unsent;
        if self.run.control().call(call).and_then(Call::running_attempt) == Some(*attempt) {
            let gated = self.gated(call, HookAnswers::default()).await?;
            let gated = GateInput { unsent_attempt: Some(*attempt), ..gated };
            if self.apply(batch, &Input::Gated(gated), None, now)?.is_some() {
                return Ok(());
            }
            // It has not passed the gate as the tool is now.
            self.calls.gated.remove(call);
        }
        self.apply(batch, &unsent.to_input(), None, now)?;
        Ok(())
    }

    /// Applies all AfterTool answers that are not recorded yet together, whenever one arrives and after other events.
    pub(super) fn process_after_tools(
        &mut self,
        batch: &mut Batch,
        now: Timestamp,
    ) -> Result<bool, NotStored> {
        let heard = self.plugins.take_after_tools(!batch.events.is_empty(), || self.run.wanted());
        if heard.is_empty() {
            return Ok(false);
        }
        let before = batch.events.len();
        self.apply(batch, &Input::AfterTools { heard }, None, now)?;
        Ok(batch.events.len() > before)
    }
}

pub(super) const fn asks_about_call(effect: &Effect) -> bool {
    match effect {
        Effect::Gate(_) | Effect::RunAfterToolHooks { .. } => true,
        Effect::RunPhase(_) | Effect::CallModel { .. } | Effect::RunTool { .. } => false,
    }
}

/// Gates before attempts before results, in the order of `kind`; within a kind in the model's order of calls.
pub(super) fn in_order(control: &Control, wanted: BTreeSet<Effect>) -> Vec<Effect> {
    let mut ordered: Vec<Effect> = wanted.into_iter().collect();
    ordered.sort_by_cached_key(|effect| {
        let (kind, call) = match effect {
            Effect::RunPhase(_) => (0, None),
            Effect::CallModel { .. } => (1, None),
            Effect::Gate(call) => (2, Some(call)),
            Effect::RunTool { call, .. } => (3, Some(call)),
            Effect::RunAfterToolHooks { call, .. } => (4, Some(call)),
        };
        (kind, call.and_then(|id| control.calls.iter().position(|call| call.id == *id)))
    });
    ordered
}
