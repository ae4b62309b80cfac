//! Agents: which there are, and how a changed configuration comes into force.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::body::AdminReload;
use crate::error::{ApiError, Code};
use crate::received::{AgentPath, Received};
use crate::server::Server;
use crate::setup::AgentShown;

#[derive(Serialize, ToSchema)]
pub(crate) struct Agents {
    agents: Vec<AgentShown>,
}

/// List agents
#[utoipa::path(get, path = "/v1/agents", tag = "agents", operation_id = "list_agents",
    responses((status = 200, description = "All of them", body = Agents)))]
pub(crate) async fn list(State(server): State<Arc<Server>>) -> Json<Agents> {
    Json(Agents { agents: server.agents().to_vec() })
}

/// Show an agent
#[utoipa::path(get, path = "/v1/agents/{name}", tag = "agents", operation_id = "show_agent",
    params(("name" = String, Path)),
    responses((status = 200, description = "The agent", body = AgentShown)))]
pub(crate) async fn show(
    State(server): State<Arc<Server>>,
    AgentPath(name): AgentPath,
) -> Result<Json<AgentShown>, ApiError> {
    let agents = server.agents();
    let agent = agents.iter().find(|agent| agent.name == name.as_str());
    agent.cloned().map(Json).ok_or_else(|| ApiError::no_agent(name.as_str()))
}

/// Read the configuration again
#[utoipa::path(post, path = "/v1/admin/reload", tag = "server", operation_id = "reload",
    request_body = AdminReload, responses((status = 200, description = "The agents from here on", body = Agents)))]
pub(crate) async fn reload(
    State(server): State<Arc<Server>>,
    received: Received,
) -> Result<Json<Agents>, ApiError> {
    let AdminReload {} = received.strict_or_empty().await?;
    match server.reload().await {
        Ok(()) => Ok(list(State(server)).await),
        Err(why) => {
            tracing::warn!(why, "the configuration was not taken");
            Err(ApiError::new(Code::BadRequest, format!("{why}; the configuration stays as it was")))
        }
    }
}
