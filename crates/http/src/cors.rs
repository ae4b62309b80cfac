//! CORS: which web pages of other origins may read responses, and the answers to their preflight requests.
//!
//! A browser asks with a preflight before it sends a request of another origin that a form could not send. It shows a
//! response to the page only if the response names the page's origin. Nothing here lets a request through that would be
//! refused otherwise, except that a server without keys accepts the configured origins ([`crate::access`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use utoipa::openapi::path::{Operation, ParameterIn};
use utoipa::openapi::{OpenApi, RefOr};

use crate::acting::ACTING_FOR;
use crate::origin::WebOrigin;
use crate::router;
use crate::server::Server;

/// Response headers that a page may read, beside those that every page may read.
const EXPOSED: &str = "x-request-id, retry-after, location, date, x-vercel-ai-ui-message-stream";
/// Request headers that every route takes.
const HEADERS_OF_EVERY_ROUTE: [&str; 3] = ["authorization", "content-type", "x-request-id"];
/// How long a browser remembers the answer to a preflight.
const MAX_AGE_SECONDS: &str = "600";
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The request's origin, if it is one of these. A request with several origins has none.
pub(crate) fn allowed_origin(headers: &HeaderMap, allowed: &[WebOrigin]) -> Option<HeaderValue> {
    let mut values = headers.get_all(header::ORIGIN).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let origin: WebOrigin = value.to_str().ok()?.parse().ok()?;
    allowed.contains(&origin).then(|| value.clone())
}

/// Names the page's origin in the response if the page may read it. This is around everything else, so that a page can
/// also read why it was refused.
pub(crate) async fn cors_headers(
    State(server): State<Arc<Server>>,
    request: Request,
    next: Next,
) -> Response {
    let allowed = server.access.allow_origins();
    let origin = allowed_origin(request.headers(), &allowed);
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    if !allowed.is_empty() {
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
    }
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        headers.insert(RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
    }
    response
}

/// Answers the preflight requests of allowed origins. Other requests pass.
pub(crate) async fn answer_preflight(
    State(server): State<Arc<Server>>,
    request: Request,
    next: Next,
) -> Response {
    let is_preflight = *request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let route = request.extensions().get::<MatchedPath>().and_then(|path| routes().get(path.as_str()));
    match route {
        Some(route)
            if is_preflight
                && allowed_origin(request.headers(), &server.access.allow_origins()).is_some() =>
        {
            route.preflight_response()
        }
        Some(_) | None => next.run(request).await,
    }
}

/// What a route takes.
struct RouteOptions {
    methods: HeaderValue,
    headers: HeaderValue,
}

impl RouteOptions {
    fn preflight_response(&self) -> Response {
        let headers = [
            (header::ACCESS_CONTROL_ALLOW_METHODS, self.methods.clone()),
            (header::ACCESS_CONTROL_ALLOW_HEADERS, self.headers.clone()),
            (header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE_SECONDS)),
        ];
        (StatusCode::NO_CONTENT, headers).into_response()
    }
}

/// Every route by its path.
fn routes() -> &'static BTreeMap<String, RouteOptions> {
    static ROUTES: OnceLock<BTreeMap<String, RouteOptions>> = OnceLock::new();
    ROUTES.get_or_init(|| read_routes(&router::openapi()))
}

fn read_routes(document: &OpenApi) -> BTreeMap<String, RouteOptions> {
    let paths = document.paths.paths.iter();
    paths
        .filter_map(|(path, item)| {
            let operations: [(&str, &Option<Operation>); 3] =
                [("GET", &item.get), ("POST", &item.post), ("DELETE", &item.delete)];
            let operations = operations.iter().filter_map(|(name, found)| Some((*name, found.as_ref()?)));
            let methods: Vec<&str> = operations.clone().map(|(name, _)| name).collect();
            let mut headers: BTreeSet<String> = HEADERS_OF_EVERY_ROUTE.map(str::to_owned).into();
            operations.for_each(|(_, operation)| headers.extend(headers_of(operation)));
            let headers: Vec<String> = headers.into_iter().collect();
            let options = RouteOptions {
                methods: HeaderValue::from_str(&methods.join(", ")).ok()?,
                headers: HeaderValue::from_str(&headers.join(", ")).ok()?,
            };
            Some((path.clone(), options))
        })
        .collect()
}

/// The headers that the document declares for an operation, and that of keys which act for others.
fn headers_of(operation: &Operation) -> BTreeSet<String> {
    let parameters = operation.parameters.iter().flatten().filter_map(|parameter| match parameter {
        RefOr::T(parameter) => Some(parameter),
        RefOr::Ref(_) => None,
    });
    let declared = parameters.filter(|parameter| matches!(parameter.parameter_in, ParameterIn::Header));
    let needs_key = operation.security.as_ref().is_some_and(|needs| !needs.is_empty());
    let acting = needs_key.then(|| ACTING_FOR.as_str().to_owned());
    declared.map(|parameter| parameter.name.to_ascii_lowercase()).chain(acting).collect()
}
