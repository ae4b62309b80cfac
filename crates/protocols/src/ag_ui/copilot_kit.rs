//! CopilotKit's runtime surface: the document of agents and the single endpoint.

use serde_json::{Map, Value, json};

use super::fields::{AgUiObject, AgUiRequestError};
use super::request::AgUiRequest;

/// An agent in the document of [`runtime_info`].
#[derive(Clone, Debug, PartialEq)]
pub struct CopilotKitAgent {
    pub name: String,
    pub description: String,
    /// Such as [`capabilities`].
    pub capabilities: Value,
}

/// The body of `GET …/info`.
#[must_use]
pub fn runtime_info(version: &str, agents: &[CopilotKitAgent]) -> Value {
    let entry = |agent: &CopilotKitAgent| {
        let described = json!({
            "name": agent.name,
            "description": agent.description,
            "className": "HttpAgent",
            "capabilities": agent.capabilities,
        });
        (agent.name.clone(), described)
    };
    let agents: Map<String, Value> = agents.iter().map(entry).collect();
    json!({"version": version, "mode": "sse", "agents": agents})
}

/// What every agent of Holdpoint can do. `has_subagents`: one of its tools is an agent.
#[must_use]
pub fn capabilities(has_subagents: bool) -> Value {
    json!({
        "transport": {"streaming": true, "resumable": false},
        "tools": {"supported": true, "parallelCalls": true, "clientProvided": true},
        "state": {"snapshots": true, "deltas": true, "persistentState": true},
        "multiAgent": {"supported": has_subagents, "delegation": has_subagents},
        "humanInTheLoop": {
            "supported": true,
            "approvals": true,
            "interrupts": true,
            "approveWithEdits": true,
        },
    })
}

/// The body of the response to a stop.
#[must_use]
pub fn stopped_body(stopped: bool) -> Value {
    json!({"stopped": stopped})
}

/// A request to the single endpoint: the same requests that have paths of their own otherwise.
#[derive(Clone, Debug, PartialEq)]
pub enum CopilotKitCall {
    Info,
    Run { agent: String, input: Box<AgUiRequest> },
    Connect { agent: String, input: Box<AgUiRequest> },
    Stop { agent: String, thread_id: String, run_id: Option<String> },
}

impl CopilotKitCall {
    /// `{method, params, body}`.
    pub fn parse(request: &Value) -> Result<Self, AgUiRequestError> {
        let envelope = AgUiObject::new(request, String::new())?;
        let method = envelope.text("method")?;
        if method == "info" {
            return Ok(Self::Info);
        }
        let params = AgUiObject::new(envelope.required("params")?, "params".to_owned())?;
        let agent = params.id("agentId")?;
        match method {
            "agent/run" => Ok(Self::Run { agent, input: Box::new(input(&envelope)?) }),
            "agent/connect" => Ok(Self::Connect { agent, input: Box::new(input(&envelope)?) }),
            "agent/stop" => {
                let run_id = match envelope.value("body") {
                    None | Some(Value::Null) => None,
                    Some(body) => Self::stop_run_id(body)?,
                };
                Ok(Self::Stop { agent, thread_id: params.id("threadId")?, run_id })
            }
            other => {
                let problem =
                    format!("is `{other}`; use `info`, `agent/run`, `agent/connect` or `agent/stop`");
                Err(envelope.wrong("method", problem))
            }
        }
    }

    /// The run that the body of a stop names. A client may leave it out.
    pub fn stop_run_id(body: &Value) -> Result<Option<String>, AgUiRequestError> {
        AgUiObject::new(body, "body".to_owned())?.optional_id("runId")
    }
}

fn input(envelope: &AgUiObject<'_>) -> Result<AgUiRequest, AgUiRequestError> {
    AgUiRequest::parse(envelope.required("body")?).map_err(|error| {
        let dot = if error.path.is_empty() { "" } else { "." };
        AgUiRequestError::new(format!("body{dot}{}", error.path), error.problem)
    })
}
