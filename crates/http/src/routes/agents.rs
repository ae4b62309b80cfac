//! Agents: list them, and reload a changed configuration.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::body::AdminReload;
use crate::caller::Caller;
use crate::error::{ApiError, Code};
use crate::extract::{AgentPath, RequestBody};
use crate::server::Server;
use crate::setup::{AgentShown, Role};

#[derive(Serialize, ToSchema)]
pub(crate) struct Agents {
    agents: Vec<AgentShown>,
}

/// List agents
#[utoipa::path(get, path = "/v1/agents", tag = "agents", operation_id = "list_agents",
    responses((status = 200, description = "The agents that the key may use", body = Agents)))]
pub(crate) async fn list(State(server): State<Arc<Server>>, caller: Caller) -> Json<Agents> {
    let agents = server.agents();
    Json(Agents { agents: agents.iter().filter(|agent| caller.may_use(agent)).cloned().collect() })
}

/// Get an agent
#[utoipa::path(get, path = "/v1/agents/{name}", tag = "agents", operation_id = "show_agent",
    params(("name" = String, Path)),
    responses((status = 200, description = "The agent", body = AgentShown)))]
pub(crate) async fn show(
    State(server): State<Arc<Server>>,
    caller: Caller,
    AgentPath(name): AgentPath,
) -> Result<Json<AgentShown>, ApiError> {
    let agents = server.agents();
    let agent = agents.iter().find(|agent| agent.name == name.as_str() && caller.may_use(agent));
    agent.cloned().map(Json).ok_or_else(|| ApiError::no_agent(name.as_str()))
}

/// Reload the configuration
#[utoipa::path(post, path = "/v1/admin/reload", tag = "server", operation_id = "reload",
    request_body = AdminReload, responses(
        (status = 200, description = "The agents after the reload that the key may use", body = Agents)))]
pub(crate) async fn reload(
    State(server): State<Arc<Server>>,
    caller: Caller,
    received: RequestBody,
) -> Result<Json<Agents>, ApiError> {
    let AdminReload {} = received.parse_or_empty().await?;
    match server.reload(&caller.actor()).await {
        // An operator may not see any tenant's data.
        Ok(()) if !caller.roles.has(Role::Run) && !caller.roles.has(Role::Approve) => {
            Ok(Json(Agents { agents: Vec::new() }))
        }
        Ok(()) => Ok(list(State(server), caller).await),
        Err(why) => {
            tracing::warn!(why, "configuration reload failed; the previous configuration stays in force");
            Err(ApiError::new(Code::BadRequest, format!("{why}; the previous configuration stays in force")))
        }
    }
}
