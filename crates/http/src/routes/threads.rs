//! Threads: create, list, show and delete them, and set auto-approve for one.

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::IntoResponse;
use engine::store::{Deleted, Deletion, Page, RunView, StoreError, ThreadView};
use machine::id::ThreadId;
use machine::thread::ThreadState;
use uuid::Uuid;

use crate::body::{AutoApprove, PostThread};
use crate::caller::Caller;
use crate::error::{ApiError, Code};
use crate::extract::{QueryParams, RequestBody, ThreadPath};
use crate::paging::PageBuilder;
use crate::routes::runs::run_status;
use crate::server::Server;
use crate::setup::Role;
use crate::wire::page::{Threads, parse_page};
use crate::wire::thread::Thread;

/// How often a thread is created again if other requests delete it before it is shown.
const CREATE_ATTEMPTS_MAX: usize = 16;
/// Threads per read. Little is read of each.
const ROWS_MAX: usize = 100;

/// Create a thread
#[utoipa::path(post, path = "/v1/threads", tag = "threads", operation_id = "create_thread", request_body = PostThread, responses(
    (status = 201, description = "The new thread", body = Thread),
    (status = 200, description = "A thread with this id already exists. It is returned unchanged", body = Thread),
))]
pub(crate) async fn create(
    State(server): State<Arc<Server>>,
    caller: Caller,
    received: RequestBody,
) -> Result<impl IntoResponse, ApiError> {
    let request: PostThread = received.parse().await?;
    let metadata = request.metadata()?;
    let id = match &request.id {
        Some(id) => ThreadId::from(&**id),
        None => ThreadId::from(format!("thr_{}", Uuid::now_v7())),
    };
    // Before anything is changed: a token for one thread may create only that one.
    if !caller.reaches_thread(&id) {
        return Err(ApiError::no_thread(id.as_str()));
    }
    // An existing thread is shown as it is, even if the quota is reached.
    let store = server.engine.store();
    let exists = request.id.is_some() && store.thread(&caller.tenant, &id).await?.created_at.is_some();
    if !exists && let Some(reached) = server.engine.thread_quota_reached(&caller.tenant).await? {
        return Err(reached.into());
    }
    for _ in 0..CREATE_ATTEMPTS_MAX {
        let is_new = store.put_thread(&caller.tenant, &id, &metadata).await?;
        if !may_see(&server, &caller, &id).await? {
            return Err(ApiError::thread_id_unavailable(id.as_str()));
        }
        // If another request has deleted it meanwhile, create it again.
        if let Some(thread) = Thread::from_view(&store.thread(&caller.tenant, &id).await?) {
            let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
            return Ok((status, Json(thread)));
        }
    }
    Err(ApiError::no_thread(id.as_str()))
}

/// List threads, newest first
#[utoipa::path(get, path = "/v1/threads", tag = "threads", operation_id = "list_threads",
    params(("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, description = "One page of threads", body = Threads)))]
pub(crate) async fn list(
    State(server): State<Arc<Server>>,
    caller: Caller,
    parts: Parts,
) -> Result<Json<Threads>, ApiError> {
    let query = QueryParams::parse(&parts, &["limit", "cursor"])?;
    let page = parse_page(query.text("limit"), query.text("cursor"))?;
    if !caller.reach.is_tenant() {
        return Ok(Json(only_thread(&server, &caller).await?));
    }
    let mut builder = PageBuilder::new(page, ROWS_MAX);
    let mut threads = Vec::new();
    loop {
        let rows = builder.next_rows();
        let mut listed = server.engine.store().threads(&caller.tenant, &rows).await?;
        let mut read = 0;
        for view in &listed.items {
            read += 1;
            if !may_see(&server, &caller, &view.id).await? {
                builder.skip_hidden();
                continue;
            }
            let thread = Thread::from_view(view);
            builder.add(&thread);
            threads.extend(thread);
            if builder.is_full() {
                break;
            }
        }
        if read < listed.items.len() {
            let some = Page { limit: read, ..rows };
            listed.next = server.engine.store().threads(&caller.tenant, &some).await?.next;
        }
        if let ControlFlow::Break(next_cursor) = builder.advance(read, listed.next) {
            return Ok(Json(Threads { threads, next_cursor }));
        }
    }
}

/// The only thread that the caller can reach. Other threads are not even counted, so that no cursor shows them.
async fn only_thread(server: &Server, caller: &Caller) -> Result<Threads, ApiError> {
    let mut threads = Vec::new();
    if let Some(id) = caller.reach.thread() {
        let view = server.engine.store().thread(&caller.tenant, &id).await?;
        if may_see(server, caller, &id).await? {
            threads.extend(Thread::from_view(&view));
        }
    }
    Ok(Threads { threads, next_cursor: None })
}

/// Get a thread
#[utoipa::path(get, path = "/v1/threads/{id}", tag = "threads", operation_id = "show_thread",
    params(("id" = String, Path)),
    responses((status = 200, description = "The thread", body = Thread)))]
pub(crate) async fn show(
    State(server): State<Arc<Server>>,
    caller: Caller,
    ThreadPath(id): ThreadPath,
) -> Result<Json<Thread>, ApiError> {
    Ok(Json(to_wire(&find_thread(&server, &caller, &id).await?)?))
}

/// Delete a thread with its runs, approvals and logs
///
/// The audit record keeps an entry of it. If an approval of the thread was decided, this needs the role `admin`.
#[utoipa::path(delete, path = "/v1/threads/{id}", tag = "threads", operation_id = "delete_thread",
    params(("id" = String, Path)),
    responses((status = 204, description = "The thread is deleted")))]
pub(crate) async fn delete(
    State(server): State<Arc<Server>>,
    caller: Caller,
    ThreadPath(id): ThreadPath,
) -> Result<StatusCode, ApiError> {
    if !caller.reaches_thread(&id) {
        return Err(ApiError::no_thread(id.as_str()));
    }
    // Only for a key that is limited to some agents: other keys can delete even an unreadable thread.
    if caller.agents().is_some() {
        find_thread(&server, &caller, &id).await?;
    }
    let decided_approvals = caller.roles.has(Role::Admin);
    let deletion = Deletion { actor: caller.actor(), decided_approvals };
    match server.engine.delete_thread(&caller.tenant, &id, &deletion).await {
        Ok(Deleted::Thread) => Ok(StatusCode::NO_CONTENT),
        Ok(Deleted::Nothing) => Err(caller.denial(&[Role::Admin], &server)),
        Err(StoreError::NotFound) => Err(ApiError::no_thread(id.as_str())),
        Err(StoreError::Stale) => Err(thread_in_use(&server, &caller, &id).await?),
        Err(refused) => Err(refused.into()),
    }
}

/// Turn auto-approve for a thread on or off
#[utoipa::path(post, path = "/v1/threads/{id}/auto-approve", tag = "threads", operation_id = "auto_approve",
    params(("id" = String, Path)),
    request_body = AutoApprove, responses((status = 200, description = "The thread", body = Thread)))]
pub(crate) async fn auto_approve(
    State(server): State<Arc<Server>>,
    caller: Caller,
    ThreadPath(id): ThreadPath,
    received: RequestBody,
) -> Result<Json<Thread>, ApiError> {
    let request: AutoApprove = received.parse().await?;
    find_thread(&server, &caller, &id).await?;
    if request.enabled {
        server.check_sink(&caller.tenant)?;
    }
    match server.engine.auto_approve(&caller.tenant, &id, request.enabled, &caller.actor()).await {
        Ok(()) => Ok(Json(to_wire(&find_thread(&server, &caller, &id).await?)?)),
        Err(StoreError::NotFound) => Err(ApiError::no_thread(id.as_str())),
        Err(refused) => Err(refused.into()),
    }
}

/// The thread with this id, if it belongs to the caller's tenant and the caller may see it.
pub(crate) async fn find_thread(
    server: &Server,
    caller: &Caller,
    id: &ThreadId,
) -> Result<ThreadView, ApiError> {
    let view = server.engine.store().thread(&caller.tenant, id).await?;
    if view.created_at.is_some() && may_see(server, caller, id).await? {
        Ok(view)
    } else {
        Err(ApiError::no_thread(id.as_str()))
    }
}

/// A key that is limited to some agents may see only threads in which no other agent has run: what is said in a thread,
/// and what is allowed in it, concerns every agent of the thread. A token for one thread sees only that one.
pub(crate) async fn may_see(server: &Server, caller: &Caller, id: &ThreadId) -> Result<bool, ApiError> {
    Ok(caller.reaches_thread(id) && may_see_agents(server, caller, id).await?)
}

/// Whether the caller may see everything that the model reads in this run: the messages of its thread. A token that can
/// reach the run but not its thread may, if no other run has written in the thread.
pub(crate) async fn may_see_all_of(
    server: &Server,
    caller: &Caller,
    run: &RunView,
) -> Result<bool, ApiError> {
    if !caller.reaches_thread(&run.thread) {
        let runs = server.engine.store().runs_of_thread(&caller.tenant, &run.thread, None, 2).await?;
        if runs != [run.id.clone()] {
            return Ok(false);
        }
    }
    may_see_agents(server, caller, &run.thread).await
}

async fn may_see_agents(server: &Server, caller: &Caller, id: &ThreadId) -> Result<bool, ApiError> {
    match caller.agents() {
        Some(agents) => Ok(!server.engine.store().has_other_agents(&caller.tenant, id, agents).await?),
        None => Ok(true),
    }
}

fn to_wire(view: &ThreadView) -> Result<Thread, ApiError> {
    Thread::from_view(view).ok_or_else(|| ApiError::no_thread(view.id.as_str()))
}

/// The refusal that names the run which blocks the request.
async fn thread_in_use(server: &Server, caller: &Caller, id: &ThreadId) -> Result<ApiError, ApiError> {
    let error = ApiError::new(
        Code::ActiveRunExists,
        "a run of this thread, or one that it delegated to, has not ended, and nothing was deleted; interrupt it, or wait \
         for its end",
    );
    match find_thread(server, caller, id).await?.state {
        ThreadState::Free => Ok(error),
        ThreadState::Busy { front, .. } => {
            let status = run_status(server, &caller.tenant, &front).await?;
            Ok(error.with("run_id", front.as_str()).with("status", status.map(|status| status.as_str())))
        }
    }
}
