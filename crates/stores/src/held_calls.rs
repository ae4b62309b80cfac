//! A held call with the context in which it was held, to find out what another configuration would do.

use std::sync::Arc;

use engine::store::{StoreError, StoreFailure, Tenant};
use machine::Control;
use machine::call::Call;
use machine::event::{Event, Fact, OpenedSuspension};
use machine::id::{AgentName, CallId, RunId};
use machine::suspension::SuspensionKind;

/// One held call.
#[derive(Clone, Debug)]
pub struct HeldCall {
    pub tenant: Tenant,
    pub run: RunId,
    pub agent: AgentName,
    /// The frozen agent that the run is pinned to, as it is stored.
    pub revision: Arc<str>,
    pub call: Call,
    /// The suspension that holds it.
    pub opened: OpenedSuspension,
}

/// A held call as the survey found it.
#[derive(Clone, Debug)]
pub enum SurveyedCall {
    Call(Box<HeldCall>),
    Unreadable(UnreadableCall),
}

/// A held call with an undecodable part: the event that holds it, or the state or the agent of its run.
#[derive(Clone, Debug)]
pub struct UnreadableCall {
    pub tenant: Tenant,
    pub run: RunId,
    pub agent: AgentName,
    pub call: CallId,
    pub kind: SuspensionKind,
}

/// A run that holds calls.
pub(crate) struct HoldingRun {
    pub(crate) tenant: Tenant,
    pub(crate) control: Control,
    pub(crate) revision: Arc<str>,
}

impl HoldingRun {
    /// One of its calls, with the event that holds it.
    pub(crate) fn held_call(&self, call: &CallId, event: &Event) -> Result<HeldCall, StoreError> {
        let control = &self.control;
        let corrupt = |why: String| StoreError::from(StoreFailure::Corrupt(why));
        let known = control.call(call);
        let known = known.ok_or_else(|| corrupt(format!("run {} knows no call {call}", control.run)))?;
        let (Fact::ApprovalRequested(opened) | Fact::ToolSuspended(opened)) = &event.fact else {
            return Err(corrupt(format!("event {} of run {} holds no call", event.seq, control.run)));
        };
        Ok(HeldCall {
            tenant: self.tenant.clone(),
            run: control.run.clone(),
            agent: control.agent.clone(),
            revision: self.revision.clone(),
            call: known.clone(),
            opened: opened.clone(),
        })
    }
}
