//! Browser tokens: make one; and who the caller is.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use machine::Timestamp;
use machine::id::{Principal, RunId, ThreadId};
use serde::Serialize;
use utoipa::ToSchema;

use crate::acting;
use crate::body::PostToken;
use crate::browser_token::{self, Claims, Reach};
use crate::caller::{AuthMode, Caller};
use crate::error::{ApiError, Code, bad_field};
use crate::extract::RequestBody;
use crate::routes::runs::find_run;
use crate::routes::threads;
use crate::server::Server;
use crate::setup::{Role, Roles};
use crate::wire::time::Time;

#[derive(Serialize, ToSchema)]
pub(crate) struct BrowserToken {
    /// Send it as `Authorization: Bearer TOKEN`. Event streams also take it as `?access_token=TOKEN`.
    token: String,
    expires_at: Time,
}

/// Make a token for a browser
///
/// The token is valid for at most 24 hours and has no more rights than the key: the roles that are named, or `run`. With
/// `thread_id` or `run_id` it reaches only this thread or run and what its runs delegate; anything else does not exist for
/// it, and routes that concern the whole tenant refuse it. It has no effect once its key is removed.
#[utoipa::path(post, path = "/v1/tokens", tag = "tokens", operation_id = "create_token", request_body = PostToken,
    responses((status = 201, description = "The token. It is not shown again", body = BrowserToken)))]
pub(crate) async fn create(
    State(server): State<Arc<Server>>,
    caller: Caller,
    received: RequestBody,
) -> Result<(StatusCode, Json<BrowserToken>), ApiError> {
    let request: PostToken = received.parse().await?;
    if caller.mode == AuthMode::Token {
        return Err(ApiError::new(
            Code::Forbidden,
            "a browser token cannot make another one, and nothing was done; send the request with a key",
        ));
    }
    let lifetime_ms = request.lifetime_ms()?;
    let roles = roles(&server, &caller, request.roles.as_deref())?;
    let acting_for = acting_for(&caller, request.acting_for.as_deref())?;
    let reach = reach(&server, &caller, &request).await?;
    let expires_at = Timestamp(server.engine.store().now().0.saturating_add(lifetime_ms));
    let claims = Claims {
        expires_at_ms: expires_at.0,
        key: key_name(&caller),
        tenant: caller.tenant.to_string(),
        roles,
        reach,
        acting_for,
    };
    let token = browser_token::sign(&server, &claims, &caller.key_sha256).ok_or_else(|| {
        tracing::error!(
            "browser tokens cannot be signed; start the engine with Settings::callbacks_at, which gives it a key"
        );
        ApiError::internal()
    })?;
    Ok((StatusCode::CREATED, Json(BrowserToken { token, expires_at: expires_at.into() })))
}

/// The key's name, not that of the person for whom it acts.
fn key_name(caller: &Caller) -> Option<String> {
    let name = caller.principal.via().unwrap_or_else(|| caller.principal.name());
    (!caller.is_open()).then(|| name.to_owned())
}

fn roles(server: &Server, caller: &Caller, named: Option<&[Role]>) -> Result<Roles, ApiError> {
    let wanted = named.unwrap_or(&[Role::Run]);
    if wanted.is_empty() {
        return Err(bad_field("roles", "name at least one role, or leave it out for `run`"));
    }
    let missing: Vec<Role> = wanted.iter().copied().filter(|role| !caller.roles.has(*role)).collect();
    if missing.is_empty() { Ok(Roles::from_list(wanted)) } else { Err(caller.denial(&missing, server)) }
}

/// The person in the body, or the one in the header of this request.
fn acting_for(caller: &Caller, named: Option<&str>) -> Result<Option<String>, ApiError> {
    let in_header = caller.principal.via().is_some().then(|| caller.principal.name());
    let Some(named) = named else { return Ok(in_header.map(str::to_owned)) };
    if !caller.acts_for {
        return Err(ApiError::new(
            Code::Forbidden,
            "this key may not act for others, and nothing was done; leave out `acting_for`, or use a key with \
             acts_for = true",
        ));
    }
    acting::check_name(named).map_err(|why| bad_field("acting_for", &why))?;
    if in_header.is_some_and(|in_header| in_header != named) {
        return Err(bad_field(
            "acting_for",
            "`Holdpoint-Acting-For` names another person; send one of the two",
        ));
    }
    Ok(Some(named.to_owned()))
}

/// A thread need not exist yet. A thread or a run that the caller may not see is refused like one that does not exist.
async fn reach(server: &Server, caller: &Caller, request: &PostToken) -> Result<Reach, ApiError> {
    match (&request.thread_id, &request.run_id) {
        (None, None) => Ok(Reach::Tenant),
        (Some(_), Some(_)) => Err(bad_field("run_id", "name a thread or a run, not both")),
        (Some(thread), None) => {
            let id = ThreadId::from(&**thread);
            if threads::may_see(server, caller, &id).await? {
                Ok(Reach::Thread(thread.to_string()))
            } else {
                Err(ApiError::no_thread(id.as_str()))
            }
        }
        (None, Some(run)) => {
            let view = find_run(server, caller, &RunId::from(&**run)).await?;
            Ok(Reach::Run(view.id.to_string()))
        }
    }
}

/// How a caller was authenticated.
#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AuthKind {
    Key,
    Token,
    /// The server has no keys.
    Open,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Me {
    /// The name under which decisions of this caller are recorded.
    principal: String,
    /// The key that acts for the principal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    via: Option<String>,
    auth: AuthKind,
    tenant: String,
    roles: Vec<Role>,
    /// When the browser token expires. Absent for a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    expires_at: Option<Time>,
}

/// Get the caller
#[utoipa::path(get, path = "/v1/me", tag = "tokens", operation_id = "me",
    responses((status = 200, description = "Who the caller is, and what it may do", body = Me)))]
pub(crate) async fn me(caller: Caller) -> Json<Me> {
    let principal: &Principal = &caller.principal;
    Json(Me {
        principal: principal.name().to_owned(),
        via: principal.via().map(str::to_owned),
        auth: match caller.mode {
            AuthMode::Open(_) => AuthKind::Open,
            AuthMode::Key => AuthKind::Key,
            AuthMode::Token => AuthKind::Token,
        },
        tenant: caller.tenant.to_string(),
        roles: caller.roles.list(),
        expires_at: caller.validity.expires.map(|(at, _)| at.into()),
    })
}
