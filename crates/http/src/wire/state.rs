//! The durable state of a run, by its paths: `__run`, `__tool_call_states`, `__suspended_tool_calls`,
//! `__resume_decisions`, and what plugins store.

use std::collections::BTreeMap;

use engine::store::{RunView, StateView};
use machine::Control;
use machine::id::PluginName;
use machine::phase::Scope;
use machine::projection_rows::PublicRunStatus;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::call::{Call, CallFold, ResumeDecision, Suspension};
use super::enums::CallStatus;
use super::is_false;
use super::time::Time;

/// Response of `GET /v1/runs/{id}/state`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct State {
    #[serde(rename = "__run")]
    pub run: RunState,
    /// All calls, by call id.
    #[serde(rename = "__tool_call_states")]
    pub tool_call_states: BTreeMap<String, ToolCallState>,
    /// The held calls, by call id.
    #[serde(rename = "__suspended_tool_calls")]
    pub suspended_tool_calls: BTreeMap<String, SuspendedCall>,
    /// The decisions on calls that were decided and have not continued yet, by call id.
    #[serde(rename = "__resume_decisions")]
    pub resume_decisions: BTreeMap<String, ResumeDecision>,
    /// True if part of the state cannot be decoded. The rest is included. Absent otherwise.
    #[serde(skip_serializing_if = "is_false")]
    #[schema(required = false)]
    pub unreadable: bool,
    /// Values that plugins store: for the run under `PLUGIN.KEY`, for the thread under `thread:PLUGIN.KEY`. A value
    /// that cannot be decoded is replaced by `{"unreadable": true}`.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    pub plugins: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RunState {
    pub id: String,
    pub status: Layer,
    /// Why the run is done; null until then.
    pub done_reason: Option<String>,
    pub updated_at: Time,
}

/// State of the run-level state machine. Queued runs and runs that are being interrupted count as `running`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    Running,
    Waiting,
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ToolCallState {
    pub call_id: String,
    pub tool: String,
    pub status: CallStatus,
    pub attempts: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct SuspendedCall {
    pub call_id: String,
    pub tool: String,
    #[schema(value_type = Value)]
    pub arguments: Value,
    pub suspension: Suspension,
}

impl State {
    /// `calls` was folded from every event of the run; `kept` is what plugins store for the run and its thread.
    #[must_use]
    pub fn new(view: &RunView, calls: CallFold, kept: &[StateView]) -> Self {
        let is_complete =
            calls.is_complete() && view.control.is_some() && kept.iter().all(|row| row.value.is_some());
        let (calls, resume_decisions) = calls.finish_with_decisions();
        let control = view.control.as_ref();
        let status = match view.status {
            PublicRunStatus::Queued | PublicRunStatus::Running | PublicRunStatus::Interrupting => {
                Layer::Running
            }
            PublicRunStatus::WaitingApproval | PublicRunStatus::WaitingTool => Layer::Waiting,
            PublicRunStatus::Completed | PublicRunStatus::Failed | PublicRunStatus::Interrupted => {
                Layer::Done
            }
        };
        let known_at = view.ended_at.or(view.started_at).unwrap_or(view.created_at);
        Self {
            run: RunState {
                id: view.id.as_str().into(),
                status,
                done_reason: control.and_then(Control::ended).map(|how| how.done_reason()),
                updated_at: control.map_or(known_at, |control| control.at).into(),
            },
            unreadable: !is_complete,
            tool_call_states: calls
                .iter()
                .map(|call| (call.call_id.clone(), ToolCallState::from_call(call)))
                .collect(),
            suspended_tool_calls: calls.into_iter().filter_map(SuspendedCall::from_call).collect(),
            resume_decisions,
            plugins: kept
                .iter()
                .map(|row| (key(row.scope, &row.plugin, &row.key), plugin_value(row)))
                .collect(),
        }
    }
}

impl ToolCallState {
    fn from_call(call: &Call) -> Self {
        Self {
            call_id: call.call_id.clone(),
            tool: call.tool.clone(),
            status: call.status,
            attempts: call.attempts,
        }
    }
}

impl SuspendedCall {
    fn from_call(call: Call) -> Option<(String, Self)> {
        let Call { call_id, tool, arguments, suspension, .. } = call;
        let suspension = suspension?;
        Some((call_id.clone(), Self { call_id, tool, arguments, suspension }))
    }
}

fn plugin_value(row: &StateView) -> Value {
    row.value.as_ref().map_or_else(|| json!({"unreadable": true}), |value| (**value).clone())
}

/// The key of a plugin's value in the document.
fn key(scope: Scope, plugin: &PluginName, key: &str) -> String {
    match scope {
        Scope::Run => format!("{plugin}.{key}"),
        Scope::Thread => format!("thread:{plugin}.{key}"),
    }
}

/// The same as an RFC 6901 pointer into the document.
pub(crate) fn pointer(scope: Scope, plugin: &PluginName, name: &str) -> String {
    format!("/{}", key(scope, plugin, name).replace('~', "~0").replace('/', "~1"))
}
