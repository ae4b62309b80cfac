//! The calls of a run: what the client has seen of each, and what each waits for.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::feed::{RequestedCall, Suspension, SuspensionKind};

#[derive(Clone, Debug)]
pub(super) struct AgUiCall {
    pub(super) requested: RequestedCall,
    /// The assistant message that asks for it.
    pub(super) message_id: String,
    /// The client has seen the call, in the stream or in a snapshot.
    pub(super) is_announced: bool,
    pub(super) is_settled: bool,
    /// The client itself sent the result, so it already shows it.
    pub(super) is_supplied: bool,
    pub(super) is_client_tool: bool,
    /// The arguments that an approver put in place of the model's.
    pub(super) edited: Option<Value>,
    pub(super) child_run_id: Option<String>,
    pub(super) hold: Option<AgUiHold>,
}

/// Why a call does not continue.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AgUiHold {
    /// Id of the approval or the suspension.
    pub(super) id: String,
    pub(super) kind: AgUiHoldKind,
    /// The final arguments: what will run.
    pub(super) arguments: Value,
    pub(super) question: Option<String>,
    pub(super) schema: Option<Value>,
    pub(super) expires_at: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgUiHoldKind {
    Approval,
    Question,
    InDoubt,
    ClientTool,
    External,
    ChildRun,
}

impl AgUiHold {
    pub(super) fn for_approval(call: &RequestedCall, id: &str, expires_at: Option<&str>) -> Self {
        Self {
            id: id.to_owned(),
            kind: AgUiHoldKind::Approval,
            arguments: call.arguments.clone(),
            question: None,
            schema: None,
            expires_at: expires_at.map(str::to_owned),
        }
    }

    pub(super) fn from_suspension(call: &RequestedCall, suspension: &Suspension) -> Self {
        let kind = match &suspension.kind {
            SuspensionKind::ClientTool => AgUiHoldKind::ClientTool,
            SuspensionKind::External => AgUiHoldKind::External,
            SuspensionKind::Question => AgUiHoldKind::Question,
            SuspensionKind::InDoubt => AgUiHoldKind::InDoubt,
            SuspensionKind::ChildRun { .. } => AgUiHoldKind::ChildRun,
        };
        Self {
            id: suspension.id.clone(),
            kind,
            arguments: call.arguments.clone(),
            question: suspension.question.clone(),
            schema: suspension.schema.clone(),
            expires_at: suspension.expires_at.clone(),
        }
    }
}

impl AgUiCall {
    pub(super) fn is_held_as(&self, kind: AgUiHoldKind) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.kind == kind)
    }
}

/// In the order in which the model asked for them.
#[derive(Clone, Debug, Default)]
pub(super) struct AgUiCalls {
    calls: Vec<AgUiCall>,
    index: BTreeMap<String, usize>,
}

impl AgUiCalls {
    pub(super) fn add(&mut self, requested: &RequestedCall, message_id: String, is_client_tool: bool) {
        self.index.insert(requested.call_id.clone(), self.calls.len());
        self.calls.push(AgUiCall {
            requested: requested.clone(),
            message_id,
            is_announced: false,
            is_settled: false,
            is_supplied: false,
            is_client_tool,
            edited: None,
            child_run_id: None,
            hold: None,
        });
    }

    pub(super) fn get(&self, call_id: &str) -> Option<&AgUiCall> {
        self.calls.get(*self.index.get(call_id)?)
    }

    pub(super) fn get_mut(&mut self, call_id: &str) -> Option<&mut AgUiCall> {
        self.calls.get_mut(*self.index.get(call_id)?)
    }

    /// The call is no longer held.
    pub(super) fn release(&mut self, call_id: &str) {
        if let Some(call) = self.get_mut(call_id) {
            call.hold = None;
        }
    }

    /// The held calls, in the order in which the model asked for them.
    pub(super) fn held(&self) -> impl Iterator<Item = (&AgUiCall, &AgUiHold)> {
        self.calls.iter().filter_map(|call| Some((call, call.hold.as_ref()?)))
    }

    /// The delegated runs that have not returned, with their calls.
    pub(super) fn open_children(&self) -> impl Iterator<Item = (&AgUiCall, &str)> {
        let open = self.calls.iter().filter(|call| !call.is_settled);
        open.filter_map(|call| Some((call, call.child_run_id.as_deref()?)))
    }
}
