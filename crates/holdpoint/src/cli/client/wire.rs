//! The parts of a server's responses that these commands read. All other fields are ignored.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::connection::Connection;
use super::terminal_text::escaped;
use crate::cli::problem::Problem;

/// Parses a response of this server.
pub(super) fn read<T: DeserializeOwned>(connection: &Connection, text: &str) -> Result<T, Problem> {
    serde_json::from_str(text).map_err(|_| connection.not_holdpoint(text))
}

#[derive(Debug, Deserialize)]
pub(super) struct Run {
    pub(super) id: String,
    pub(super) thread_id: String,
    pub(super) agent: String,
    pub(super) status: String,
    pub(super) termination: Option<Termination>,
    #[serde(default)]
    pub(super) step: u32,
    #[serde(default)]
    pub(super) pending: Vec<Pending>,
    #[serde(default)]
    pub(super) usage: Usage,
    pub(super) error: Option<RunError>,
    pub(super) output: Option<Value>,
    pub(super) created_at: String,
    pub(super) started_at: Option<String>,
    pub(super) ended_at: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Termination {
    pub(super) reason: String,
    pub(super) code: Option<String>,
    pub(super) detail: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Pending {
    pub(super) call_id: String,
    pub(super) tool: String,
    pub(super) kind: String,
    pub(super) approval_id: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Usage {
    #[serde(default)]
    pub(super) input_tokens: u64,
    #[serde(default)]
    pub(super) output_tokens: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct RunError {
    pub(super) code: String,
    pub(super) message: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Calls {
    pub(super) calls: Vec<Call>,
}

/// A call of a run; these commands need only its arguments.
#[derive(Debug, Deserialize)]
pub(super) struct Call {
    pub(super) call_id: String,
    #[serde(default)]
    pub(super) arguments: Value,
    pub(super) suspension: Option<Suspension>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Suspension {
    pub(super) question: Option<String>,
    pub(super) expires_at: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Approval {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) run_id: String,
    pub(super) thread_id: String,
    pub(super) call_id: String,
    #[serde(default)]
    pub(super) agent: String,
    pub(super) tool: String,
    #[serde(default)]
    pub(super) tool_description: String,
    #[serde(default)]
    pub(super) arguments: Value,
    pub(super) arguments_digest: Option<String>,
    pub(super) question: Option<String>,
    pub(super) schema: Option<Value>,
    #[serde(default)]
    pub(super) path: Vec<PathStep>,
    pub(super) status: String,
    pub(super) created_at: String,
    pub(super) expires_at: Option<String>,
    pub(super) decided_at: Option<String>,
    decided_by: Option<String>,
    /// The key that acted for the approver.
    via: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) note: Option<String>,
    /// The idempotency key that the tool receives with every attempt of the call.
    pub(super) idempotency_key: Option<String>,
}

impl Approval {
    /// The name of the approver, escaped, with the key that acted for them.
    pub(super) fn decider(&self) -> Option<String> {
        self.decided_by.as_deref().map(|by| with_via(by, self.via.as_deref()))
    }

    /// The texts that a model or a tool wrote and an approver reads.
    pub(super) fn shown_texts(&self) -> Vec<Value> {
        let question = self.question.clone().map(Value::from);
        [self.arguments.clone()].into_iter().chain(question).collect()
    }
}

/// A name, escaped. If a key acted for it, the key is named too: the same name may also be that of a key.
pub(super) fn with_via(name: &str, via: Option<&str>) -> String {
    match via {
        Some(via) => format!("{} via {}", escaped(name), escaped(via)),
        None => escaped(name),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct PathStep {
    pub(super) agent: String,
}

/// A stored event, or a live item, which has no `seq`.
#[derive(Debug, Deserialize)]
pub(super) struct Event {
    pub(super) seq: Option<u64>,
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// None if the event could not be decoded.
    pub(super) ts: Option<String>,
    #[serde(default)]
    pub(super) payload: Value,
}

impl Event {
    /// How the run ended, if this is its last event.
    pub(super) fn final_status(&self) -> Option<&str> {
        match self.kind.as_str() {
            "run.completed" | "run.failed" | "run.interrupted" => self.kind.strip_prefix("run."),
            _ => None,
        }
    }
}
