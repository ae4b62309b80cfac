//! Health, readiness and metrics of the server.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;
use serde::Serialize;
use utoipa::ToSchema;

use crate::access::draining_error;
use crate::error::ApiError;
use crate::server::Server;

#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// Always `ok`. A server that is not ready responds with an error.
    status: &'static str,
}

const OK: Health = Health { status: "ok" };

/// Check that the process is alive
#[utoipa::path(get, path = "/healthz", tag = "server", operation_id = "alive",
    responses((status = 200, description = "The process is alive", body = Health)))]
pub(crate) async fn alive() -> Json<Health> {
    Json(OK)
}

/// Check that the server accepts requests and that its store responds
#[utoipa::path(get, path = "/readyz", tag = "server", operation_id = "ready",
    responses((status = 200, description = "The server is ready", body = Health)))]
pub(crate) async fn ready(State(server): State<Arc<Server>>) -> Result<Json<Health>, ApiError> {
    if server.is_draining() {
        return Err(draining_error());
    }
    server.readiness.check(&**server.engine.store()).await?;
    Ok(Json(OK))
}

/// Get the metrics of this server
#[utoipa::path(get, path = "/metrics", tag = "server", operation_id = "metrics",
    responses((status = 200, description = "Metrics in the OpenMetrics text format", body = String, content_type = "application/openmetrics-text")))]
pub(crate) async fn metrics(State(server): State<Arc<Server>>) -> Result<impl IntoResponse, ApiError> {
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    let shown = server.metrics.render(&server.engine, server.limits.run_counts_age_max).await?;
    Ok(([(header::CONTENT_TYPE, kind)], shown))
}
