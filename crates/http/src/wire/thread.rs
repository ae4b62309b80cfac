//! A thread as a client sees it.

use engine::store::ThreadView;
use machine::thread::ThreadState as State;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::is_false;
use super::time::Time;

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Thread {
    pub id: String,
    /// The metadata that the client stored; empty if it cannot be decoded.
    #[schema(value_type = Object)]
    pub metadata: Value,
    /// True if later calls are not held by policy.
    pub auto_approve: bool,
    /// Tools that have a grant from an approval with `apply_to_future`. `GET /v1/grants` shows what each grant covers.
    /// Absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub approved_tools: Vec<String>,
    pub created_at: Time,
    /// The run that is executing, waiting or first in the queue. Absent if every run of the thread has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub active_run_id: Option<String>,
    /// True if `metadata` cannot be decoded. Absent otherwise.
    #[serde(skip_serializing_if = "is_false")]
    #[schema(required = false)]
    pub unreadable: bool,
}

impl Thread {
    /// None if there is no such thread.
    #[must_use]
    pub fn from_view(view: &ThreadView) -> Option<Self> {
        let active_run_id = match &view.state {
            State::Free => None,
            State::Busy { front, .. } => Some(front.as_str().to_owned()),
        };
        Some(Self {
            id: view.id.as_str().into(),
            metadata: match &view.metadata {
                None | Some(Value::Null) => Value::Object(Map::new()),
                Some(
                    other @ (Value::Bool(_)
                    | Value::Number(_)
                    | Value::String(_)
                    | Value::Array(_)
                    | Value::Object(_)),
                ) => other.clone(),
            },
            auto_approve: view.auto_approved_by.is_some(),
            approved_tools: view.approved_tools.iter().map(|tool| tool.as_str().to_owned()).collect(),
            created_at: view.created_at?.into(),
            active_run_id,
            unreadable: view.metadata.is_none(),
        })
    }
}
