//! CopilotKit's runtime surface: a browser uses this server without a runtime of its own in between.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use machine::id::{AgentName, ThreadId};
use machine::inbox::Verdict;
use protocols::ag_ui::{
    AgUiRequest, CopilotKitAgent, CopilotKitCall, capabilities, runtime_info, stopped_body,
};
use serde_json::{Map, Value};

use crate::body::check_id;
use crate::caller::Caller;
use crate::error::{ApiError, Code};
use crate::extract::{AgentPath, QueryParams, RequestBody};
use crate::front_end::conversation::newest_run;
use crate::front_end::post::{find_agent, find_posted};
use crate::routes::ag_ui::{KnownThread, post_key, request_refused, run_request};
use crate::routes::runs::run_refused;
use crate::routes::threads::find_thread;
use crate::server::Server;

/// Describe the agents to CopilotKit
#[utoipa::path(get, path = "/v1/copilotkit/info", tag = "copilotkit", operation_id = "copilotkit_info",
    responses((status = 200, description = "The agents that the key may use", body = Object)))]
pub(crate) async fn info(
    State(server): State<Arc<Server>>,
    caller: Caller,
    parts: Parts,
) -> Result<Json<Value>, ApiError> {
    QueryParams::parse(&parts, &[])?;
    Ok(Json(describe_agents(&server, &caller)))
}

fn describe_agents(server: &Server, caller: &Caller) -> Value {
    let agents = server.agents();
    let described: Vec<CopilotKitAgent> = agents
        .iter()
        .filter(|agent| caller.may_use(agent))
        .map(|agent| CopilotKitAgent {
            name: agent.name.clone(),
            description: String::new(),
            capabilities: capabilities(agent.tools.iter().any(|tool| tool.kind == "agent")),
        })
        .collect();
    runtime_info(env!("CARGO_PKG_VERSION"), &described)
}

/// Run an agent for CopilotKit
///
/// The same as `POST /v1/ag-ui/{agent}`.
#[utoipa::path(post, path = "/v1/copilotkit/agent/{agent}/run", tag = "copilotkit", operation_id = "copilotkit_run",
    params(("agent" = String, Path)), request_body = Object,
    responses((status = 200, description = "A stream of AG-UI events", body = Object, content_type = "text/event-stream")))]
pub(crate) async fn run(
    State(server): State<Arc<Server>>,
    caller: Caller,
    AgentPath(agent): AgentPath,
    received: RequestBody,
) -> Result<Response, ApiError> {
    let request = read_input(received).await?;
    run_request(&server, &caller, &agent, request).await
}

/// Connect CopilotKit to a thread
///
/// Replays the messages of the thread, and what its run waits for. A run that executes is followed.
#[utoipa::path(post, path = "/v1/copilotkit/agent/{agent}/connect", tag = "copilotkit", operation_id = "copilotkit_connect",
    params(("agent" = String, Path)), request_body = Object,
    responses((status = 200, description = "A stream of AG-UI events", body = Object, content_type = "text/event-stream")))]
pub(crate) async fn connect(
    State(server): State<Arc<Server>>,
    caller: Caller,
    AgentPath(agent): AgentPath,
    received: RequestBody,
) -> Result<Response, ApiError> {
    let request = read_input(received).await?;
    connect_request(&server, &caller, &agent, request).await
}

async fn connect_request(
    server: &Arc<Server>,
    caller: &Caller,
    agent: &AgentName,
    request: AgUiRequest,
) -> Result<Response, ApiError> {
    let agent = find_agent(server, caller, agent)?;
    let known = KnownThread::read(server, caller, &agent, &request).await?;
    known.replay(server, caller, &agent, &request).await
}

/// An agent and a thread, from the path of a stop.
pub(crate) struct StopPath {
    agent: AgentName,
    thread: String,
}

impl FromRequestParts<Arc<Server>> for StopPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, server: &Arc<Server>) -> Result<Self, ApiError> {
        match Path::<(String, String)>::from_request_parts(parts, server).await {
            Ok(Path((agent, thread))) => Ok(Self { agent: AgentName::from(agent.as_str()), thread }),
            Err(_) => Err(ApiError::no_thread("")),
        }
    }
}

/// Stop the run of a CopilotKit thread
///
/// Interrupts the run that is queued, executes or waits. With the `runId` that began a run, a later run is not interrupted.
#[utoipa::path(post, path = "/v1/copilotkit/agent/{agent}/stop/{thread_id}", tag = "copilotkit", operation_id = "copilotkit_stop",
    params(("agent" = String, Path), ("thread_id" = String, Path)), request_body = Object,
    responses((status = 200, description = "Whether a run was interrupted", body = Object)))]
pub(crate) async fn stop(
    State(server): State<Arc<Server>>,
    caller: Caller,
    path: StopPath,
    received: RequestBody,
) -> Result<Json<Value>, ApiError> {
    let body: Map<String, Value> = received.parse_or_empty().await?;
    let run_id =
        CopilotKitCall::stop_run_id(&Value::Object(body)).map_err(|error| request_refused(&error))?;
    stop_thread(&server, &caller, &path.agent, &path.thread, run_id.as_deref()).await
}

async fn stop_thread(
    server: &Server,
    caller: &Caller,
    agent: &AgentName,
    thread: &str,
    run_id: Option<&str>,
) -> Result<Json<Value>, ApiError> {
    find_agent(server, caller, agent)?;
    check_id("thread_id", thread)?;
    let thread = match find_thread(server, caller, &ThreadId::from(thread)).await {
        Ok(thread) => thread,
        Err(error) if error.code == Code::ThreadNotFound => return Ok(Json(stopped_body(false))),
        Err(error) => return Err(error),
    };
    let view = newest_run(server, &caller.tenant, &thread).await?;
    let Some(view) = view.filter(|view| view.agent == *agent && !view.status.ended()) else {
        return Ok(Json(stopped_body(false)));
    };
    // An id that began no run, such as that of a connect or of an answer, stops the run in front.
    if let Some(run_id) = run_id
        && let Some(named) = find_posted(server, caller, &thread.id, &post_key(run_id)).await?
        && named != view.id
    {
        return Ok(Json(stopped_body(false)));
    }
    let verdict = server.engine.interrupt(&caller.tenant, &view.id, &caller.principal).await;
    let stopped = match verdict.map_err(|refused| run_refused(&view.id, refused))? {
        Verdict::Accepted | Verdict::AlreadyApplied => true,
        Verdict::ToolChanged | Verdict::Refused(_) => false,
    };
    Ok(Json(stopped_body(stopped)))
}

/// Call CopilotKit's single endpoint
///
/// Takes `{method, params, body}`, where the method is `info`, `agent/run`, `agent/connect` or `agent/stop`.
#[utoipa::path(post, path = "/v1/copilotkit", tag = "copilotkit", operation_id = "copilotkit_single",
    request_body = Object,
    responses((status = 200, description = "The response of the method: JSON, or a stream of AG-UI events",
        content((Object = "application/json"), (Object = "text/event-stream")))))]
pub(crate) async fn single(
    State(server): State<Arc<Server>>,
    caller: Caller,
    received: RequestBody,
) -> Result<Response, ApiError> {
    let body: Map<String, Value> = received.parse().await?;
    drop(received);
    let call = CopilotKitCall::parse(&Value::Object(body)).map_err(|error| request_refused(&error))?;
    match call {
        CopilotKitCall::Info => Ok(Json(describe_agents(&server, &caller)).into_response()),
        CopilotKitCall::Run { agent, input } => {
            run_request(&server, &caller, &AgentName::from(agent.as_str()), *input).await
        }
        CopilotKitCall::Connect { agent, input } => {
            connect_request(&server, &caller, &AgentName::from(agent.as_str()), *input).await
        }
        CopilotKitCall::Stop { agent, thread_id, run_id } => {
            let agent = AgentName::from(agent.as_str());
            let stopped = stop_thread(&server, &caller, &agent, &thread_id, run_id.as_deref()).await?;
            Ok(stopped.into_response())
        }
    }
}

async fn read_input(received: RequestBody) -> Result<AgUiRequest, ApiError> {
    let body: Map<String, Value> = received.parse().await?;
    AgUiRequest::parse(&Value::Object(body)).map_err(|error| request_refused(&error))
}
