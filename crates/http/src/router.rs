//! The routes, which callers each of them admits, and the OpenAPI document that describes them.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderValue, header};
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::get;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, ObjectBuilder, Ref, RefOr, Required, ResponseBuilder, Schema, Type};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::callback_auth::callback_guard;
use crate::cors::{answer_preflight, cors_headers};
use crate::error::{ApiError, Code, ErrorBody};
use crate::extract::{IDEMPOTENCY_KEY_BYTES_MAX, NAME_BYTES_MAX, NAME_PATTERN};
use crate::guard::{ForReach, Guard, WithoutKeys, guard, origin_guard};
use crate::limits::rate_limited;
use crate::middleware::finish_response;
use crate::routes::{
    ag_ui, agents, ai_sdk, approvals, audit, callbacks, copilot_kit, decisions, events, grants, health,
    messages, runs, threads, tokens,
};
use crate::run_wait::WAIT_PATTERN;
use crate::server::Server;
use crate::setup::Role;
use crate::wire::page::CURSOR_PATTERN;

/// Routes that admit the same callers.
struct Group {
    needs: Needs,
    routes: OpenApiRouter<Arc<Server>>,
}

enum Needs {
    /// Open to callers without a key.
    Nothing,
    /// A key, or a browser token of one.
    Key(KeyNeeds),
    /// A tool with the token of its callback. An API key is not accepted.
    CallbackToken,
}

/// What a key needs for a route.
#[derive(Clone, Copy)]
struct KeyNeeds {
    /// One of these roles, or any key if the list is empty.
    roles: &'static [Role],
    /// What is required if the server has no keys.
    without_keys: WithoutKeys,
    for_reach: ForReach,
    is_stream: bool,
}

impl KeyNeeds {
    const fn new(roles: &'static [Role], without_keys: WithoutKeys) -> Self {
        Self { roles, without_keys, for_reach: ForReach::Part, is_stream: false }
    }

    /// Refuses browser tokens for one thread or one run.
    const fn tenant_wide(self) -> Self {
        Self { for_reach: ForReach::Tenant, ..self }
    }

    /// Also takes a browser token in the query.
    const fn stream(self) -> Self {
        Self { is_stream: true, ..self }
    }

    fn guard(self, server: &Arc<Server>) -> Guard {
        let Self { roles, without_keys, for_reach, is_stream } = self;
        Guard { server: server.clone(), roles, without_keys, for_reach, is_stream }
    }
}

/// Every route is in exactly one group, so none lacks its guard.
fn groups() -> Vec<Group> {
    use WithoutKeys::{Free, Token};
    let group = |needs, routes| Group { needs, routes };
    let key = |roles, without_keys| KeyNeeds::new(roles, without_keys);
    let mut groups = vec![
        group(Needs::Key(key(&[Role::Run], Free)), front_end_routes()),
        group(
            Needs::Nothing,
            OpenApiRouter::new()
                .routes(routes!(health::alive))
                .routes(routes!(health::ready))
                .routes(routes!(openapi_json)),
        ),
        group(
            Needs::Key(key(&[Role::Run], Free)),
            OpenApiRouter::new()
                .routes(routes!(threads::create, threads::list))
                .routes(routes!(threads::show))
                .routes(routes!(messages::post, messages::list))
                .routes(routes!(runs::interrupt)),
        ),
        group(Needs::Key(key(&[Role::Run], Token)), OpenApiRouter::new().routes(routes!(threads::delete))),
        group(
            Needs::Key(key(&[Role::Run, Role::Approve], Free)),
            OpenApiRouter::new()
                .routes(routes!(runs::list))
                .routes(routes!(runs::show))
                .routes(routes!(runs::calls))
                .routes(routes!(runs::transcript))
                .routes(routes!(runs::state))
                .routes(routes!(decisions::decisions))
                .routes(routes!(approvals::answer)),
        ),
        group(
            Needs::Key(key(&[Role::Run, Role::Approve], Free).stream()),
            OpenApiRouter::new().routes(routes!(events::events)).routes(routes!(events::thread_events)),
        ),
        group(
            Needs::Key(key(&[Role::Approve], Free)),
            OpenApiRouter::new().routes(routes!(approvals::list)).routes(routes!(approvals::show)),
        ),
        group(
            Needs::Key(key(&[Role::Approve], Free).stream()),
            OpenApiRouter::new().routes(routes!(approvals::stream)),
        ),
        group(
            Needs::Key(key(&[Role::Approve], Token)),
            OpenApiRouter::new()
                .routes(routes!(threads::auto_approve))
                .routes(routes!(approvals::approve))
                .routes(routes!(approvals::reject)),
        ),
        group(Needs::Key(key(&[], Free)), OpenApiRouter::new().routes(routes!(tokens::me))),
        group(Needs::CallbackToken, OpenApiRouter::new().routes(routes!(callbacks::report))),
    ];
    groups.extend(tenant_wide_groups());
    groups
}

/// Routes that concern no single thread.
fn tenant_wide_groups() -> [Group; 6] {
    use WithoutKeys::{Free, Token};
    let group = |roles, without_keys, routes| Group {
        needs: Needs::Key(KeyNeeds::new(roles, without_keys).tenant_wide()),
        routes,
    };
    [
        group(&[Role::Admin], Token, OpenApiRouter::new().routes(routes!(audit::list))),
        group(
            &[Role::Run, Role::Approve],
            Free,
            OpenApiRouter::new().routes(routes!(agents::list)).routes(routes!(agents::show)),
        ),
        group(
            &[Role::Approve],
            Token,
            OpenApiRouter::new()
                .routes(routes!(grants::list, grants::revoke_by))
                .routes(routes!(grants::revoke)),
        ),
        group(&[], Free, OpenApiRouter::new().routes(routes!(tokens::create))),
        group(&[Role::Operator], Token, OpenApiRouter::new().routes(routes!(agents::reload))),
        group(&[Role::Operator], Free, OpenApiRouter::new().routes(routes!(health::metrics))),
    ]
}

/// The protocols of front ends.
fn front_end_routes() -> OpenApiRouter<Arc<Server>> {
    OpenApiRouter::new()
        .routes(routes!(ai_sdk::chat))
        .routes(routes!(ai_sdk::messages))
        .routes(routes!(ai_sdk::resume))
        .routes(routes!(ai_sdk::stop))
        .routes(routes!(ag_ui::run))
        .routes(routes!(copilot_kit::info))
        .routes(routes!(copilot_kit::run))
        .routes(routes!(copilot_kit::connect))
        .routes(routes!(copilot_kit::stop))
        .routes(routes!(copilot_kit::single))
}

pub(crate) fn api_router(server: &Arc<Server>) -> Router {
    let mut router = Router::new();
    for Group { needs, routes } in groups() {
        let (routes, _) = routes.split_for_parts();
        let guarded = match needs {
            Needs::Nothing => routes,
            Needs::Key(needs) => routes.route_layer(from_fn_with_state(needs.guard(server), guard)),
            Needs::CallbackToken => routes.route_layer(from_fn_with_state(server.clone(), callback_guard)),
        };
        router = router.merge(guarded);
    }
    with_middleware(router.fallback(no_route), server)
}

/// Serves connections above the limit: only health, readiness and metrics.
pub(crate) fn overload_router(server: &Arc<Server>) -> Router {
    let guard_state = KeyNeeds::new(&[Role::Operator], WithoutKeys::Free).tenant_wide().guard(server);
    let metrics = Router::new()
        .route("/metrics", get(health::metrics))
        .route_layer(from_fn_with_state(guard_state, guard));
    let health = Router::new().route("/healthz", get(health::alive)).route("/readyz", get(health::ready));
    with_middleware(health.merge(metrics).fallback(too_many_connections), server)
}

/// The middleware around every route.
fn with_middleware(router: Router<Arc<Server>>, server: &Arc<Server>) -> Router {
    router
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(server.limits.body_bytes_max))
        .layer(from_fn_with_state(server.clone(), answer_preflight))
        .layer(from_fn_with_state(server.clone(), origin_guard))
        .layer(from_fn_with_state(server.clone(), cors_headers))
        .layer(from_fn_with_state(server.clone(), finish_response))
        .with_state(server.clone())
}

async fn no_route() -> ApiError {
    ApiError::new(
        Code::NotFound,
        "there is no such route, and nothing was done; /openapi.json lists all routes",
    )
}

async fn too_many_connections() -> ApiError {
    rate_limited("too many connections are open")
}

async fn no_method() -> ApiError {
    ApiError::new(
        Code::MethodNotAllowed,
        "this route does not support this method, and nothing was done; /openapi.json lists the methods of each route",
    )
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Holdpoint", description = "Holdpoint runs AI agents durably. Any tool call can wait for a person's approval."),
    components(schemas(ErrorBody)),
    modifiers(&SecuritySchemes)
)]
struct Document;

struct SecuritySchemes;

impl Modify for SecuritySchemes {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let mut scheme = Http::new(HttpAuthScheme::Bearer);
        scheme.description = Some(
            "An API key of this server, or a browser token from `POST /v1/tokens`. Each operation lists the roles that it \
             accepts; the key needs one of them. A key that acts for others names the person in `Holdpoint-Acting-For`."
                .to_owned(),
        );
        let mut callback = Http::new(HttpAuthScheme::Bearer);
        callback.description =
            Some("The token that a tool received together with its callback address.".to_owned());
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("key", SecurityScheme::Http(scheme));
        components.add_security_scheme("callback", SecurityScheme::Http(callback));
    }
}

/// The OpenAPI document of every route: its schemas from the types that are sent, its roles from the guards.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut document = Document::openapi();
    for Group { needs, routes } in groups() {
        let mut part = routes.into_openapi();
        for item in part.paths.paths.values_mut() {
            for operation in [&mut item.get, &mut item.post, &mut item.delete].into_iter().flatten() {
                operation.security = Some(requirements(&needs));
                add_error_response(operation);
                bound_parameters(operation);
                set_body_required(operation);
            }
        }
        document.merge(part);
    }
    for schema in document.components.iter_mut().flat_map(|all| all.schemas.values_mut()) {
        relax_one_of(schema);
    }
    document
}

fn requirements(needs: &Needs) -> Vec<SecurityRequirement> {
    match needs {
        Needs::Nothing => Vec::new(),
        Needs::CallbackToken => vec![SecurityRequirement::new("callback", [""; 0])],
        Needs::Key(KeyNeeds { roles: [], .. }) => vec![SecurityRequirement::new("key", [""; 0])],
        Needs::Key(KeyNeeds { roles, .. }) => {
            // A tenant's admin may do whatever the tenant's other roles may do.
            let admin: &[Role] = if roles.contains(&Role::Operator) { &[] } else { &[Role::Admin] };
            let all = roles.iter().chain(admin.iter().filter(|admin| !roles.contains(admin)));
            all.map(|role| SecurityRequirement::new("key", [role.as_str()])).collect()
        }
    }
}

fn add_error_response(operation: &mut Operation) {
    let body = ContentBuilder::new().schema(Some(Ref::from_schema_name("ErrorBody"))).build();
    let refusal = ResponseBuilder::new()
        .description("Error. Nothing was changed, unless the code is `INTERNAL` or `STORE_UNAVAILABLE`")
        .content("application/json", body)
        .build();
    operation.responses.responses.insert("default".to_owned(), RefOr::T(refusal));
}

/// Adds the limits that the types of parameters do not express.
fn bound_parameters(operation: &mut Operation) {
    for parameter in operation.parameters.iter_mut().flatten() {
        let RefOr::T(parameter) = parameter else { continue };
        let text = ObjectBuilder::new().schema_type(Type::String);
        let bounded = match parameter.name.as_str() {
            "limit" => ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(1)),
            "after" => ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)),
            "cursor" => text.pattern(Some(CURSOR_PATTERN)).max_length(Some(NAME_BYTES_MAX)),
            "run_id" | "thread_id" | "agent" => {
                text.pattern(Some(NAME_PATTERN)).max_length(Some(NAME_BYTES_MAX))
            }
            "Idempotency-Key" => text.min_length(Some(1)).max_length(Some(IDEMPOTENCY_KEY_BYTES_MAX)),
            "wait" => text.pattern(Some(WAIT_PATTERN)),
            "order" => text.enum_values(Some(["asc", "desc"])),
            "from" => text.enum_values(Some(["now"])),
            "callback" => text.pattern(Some("^[0-9a-f]+$")),
            "Last-Event-ID" => text,
            _ => continue,
        };
        parameter.schema = Some(bounded.build().into());
    }
}

/// Turns `oneOf` into `anyOf`: one form may also match the schema of another that has fewer fields.
fn relax_one_of(schema: &mut RefOr<Schema>) {
    if let RefOr::T(Schema::OneOf(one)) = schema
        && one.discriminator.is_none()
        && one.items.iter().all(|item| matches!(item, RefOr::Ref(_)))
    {
        let any = one.items.drain(..).fold(AnyOfBuilder::new(), AnyOfBuilder::item);
        *schema = RefOr::T(any.description(one.description.take()).build().into());
    }
}

/// Operations that accept an empty body as `{}`.
const NO_BODY_NEEDED: [&str; 6] =
    ["approve", "reject", "interrupt_run", "reload", "ai_sdk_stop", "copilotkit_stop"];

fn set_body_required(operation: &mut Operation) {
    let may_be_empty = operation.operation_id.as_deref().is_some_and(|id| NO_BODY_NEEDED.contains(&id));
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        body.required = Some(if may_be_empty { Required::False } else { Required::True });
    }
}

/// Get this OpenAPI document
#[utoipa::path(get, path = "/openapi.json", tag = "server", operation_id = "openapi",
    responses((status = 200, description = "The OpenAPI 3.1 document", body = Object)))]
async fn openapi_json() -> Result<impl IntoResponse, ApiError> {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = match TEXT.get() {
        Some(text) => text,
        None => {
            let text = openapi().to_pretty_json().map_err(|error| {
                tracing::error!(%error, "the OpenAPI document cannot be serialized");
                ApiError::internal()
            })?;
            TEXT.get_or_init(|| text)
        }
    };
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text.as_str()))
}
