//! Messages: post one to an agent, and list the messages of a thread.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::IntoResponse;
use engine::posting::PostError;
use engine::store::{Listed, MessageView, Page, PostKey, StoreError};
use machine::id::{AgentName, ThreadId};
use machine::thread::Busy;

use crate::access::Caller;
use crate::body::PostMessage;
use crate::error::ApiError;
use crate::extract::{QueryParams, RequestBody, ThreadPath};
use crate::idempotency::idempotency_scope;
use crate::log_reader::LogReader;
use crate::paging::PageBuilder;
use crate::routes::runs::run_status;
use crate::routes::threads::find_thread;
use crate::server::Server;
use crate::setup::Role;
use crate::wire::message::Message;
use crate::wire::page::{Messages, parse_page};
use crate::wire::payload::Payload;
use crate::wire::run::Posted;

/// Messages per read.
const ROWS_MAX: usize = 16;

/// Post a message to an agent and start a run
#[utoipa::path(post, path = "/v1/threads/{id}/messages", tag = "threads", operation_id = "post_message",
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    request_body = PostMessage, responses((status = 202, description = "The run that the message started", body = Posted)))]
pub(crate) async fn post(
    State(server): State<Arc<Server>>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    received: RequestBody,
) -> Result<impl IntoResponse, ApiError> {
    let request: PostMessage = received.parse().await?;
    // Before anything is looked up: a caller who may not approve may not ask that fewer calls wait for approval.
    let may_loosen = caller.roles.has(Role::Approve);
    if request.auto_approve == Some(true) && !may_loosen {
        return Err(caller.denial(&[Role::Approve], &server));
    }
    let named = thread.clone();
    let mut message =
        request.into_message(caller.tenant.clone(), thread, caller.principal.clone(), may_loosen)?;
    // An agent that the caller may not use is refused like one that does not exist.
    let may_use = may_use(&server, &caller, &message.agent);
    if may_use && let Err(refused) = server.engine.check_loosening(&message) {
        return Err(post_error(&server, &caller, refused).await?);
    }
    find_thread(&server, &caller, &named).await?;
    if !may_use {
        return Err(PostError::NoSuchAgent(message.agent).into());
    }
    if let Some(scope) = idempotency_scope(&caller, &received) {
        message.key = Some(PostKey { scope, body: received.digest().await });
    }
    match server.engine.post(message).await {
        Ok(posted) => Ok((StatusCode::ACCEPTED, Json(Posted::from_domain(&posted)))),
        Err(refused) => Err(post_error(&server, &caller, refused).await?),
    }
}

fn may_use(server: &Server, caller: &Caller, agent: &AgentName) -> bool {
    server.agents().iter().any(|shown| shown.name == agent.as_str() && caller.may_use(shown))
}

/// Names the run that blocks the request, with its status.
async fn post_error(server: &Server, caller: &Caller, refused: PostError) -> Result<ApiError, ApiError> {
    let front = match &refused {
        PostError::Busy(Busy::ActiveRun(run) | Busy::InDoubt(run)) => Some(run.clone()),
        PostError::Loosening(_) if caller.is_open() => {
            return Ok(caller.denial(&[Role::Approve], server));
        }
        PostError::Busy(Busy::QueueFull { .. })
        | PostError::NoSuchAgent(_)
        | PostError::NoSuchThread(_)
        | PostError::Empty
        | PostError::TooLarge { .. }
        | PostError::Unstorable(_)
        | PostError::BadPart { .. }
        | PostError::Loosening(_)
        | PostError::ToolNameTaken(_)
        | PostError::BadTools { .. }
        | PostError::BadOutputSchema { .. }
        | PostError::CannotBeginAfter { .. }
        | PostError::MessageIdTaken(_)
        | PostError::MessageIdReserved(_)
        | PostError::KeyUsed { .. }
        | PostError::KeyTooLong { .. }
        | PostError::Quota(_)
        | PostError::Draining
        | PostError::Store(_) => None,
    };
    let error = ApiError::from(refused);
    let Some(front) = front else { return Ok(error) };
    let status = run_status(server, &caller.tenant, &front).await?;
    Ok(error.with("status", status.map(|status| status.as_str())))
}

/// List the messages of a thread, oldest first
///
/// The order is that in which messages joined the thread. A queued message joins when its run starts.
#[utoipa::path(get, path = "/v1/threads/{id}/messages", tag = "threads", operation_id = "list_messages",
    params(("id" = String, Path), ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, description = "One page of messages", body = Messages)))]
pub(crate) async fn list(
    State(server): State<Arc<Server>>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    parts: Parts,
) -> Result<Json<Messages>, ApiError> {
    let query = QueryParams::parse(&parts, &["limit", "cursor"])?;
    let page = parse_page(query.text("limit"), query.text("cursor"))?;
    find_thread(&server, &caller, &thread).await?;
    let mut builder = PageBuilder::new(page, ROWS_MAX);
    let mut messages = Vec::new();
    loop {
        let rows = builder.next_rows();
        let mut listed = list_rows(&server, &caller, &thread, &rows).await?;
        let read = read_messages(&server, &caller, &listed.items, &mut builder, &mut messages).await?;
        if read < listed.items.len() {
            let some = Page { limit: read, ..rows };
            listed.next = list_rows(&server, &caller, &thread, &some).await?.next;
        }
        if let ControlFlow::Break(next_cursor) = builder.advance(read, listed.next) {
            return Ok(Json(Messages { messages, next_cursor }));
        }
    }
}

async fn list_rows(
    server: &Server,
    caller: &Caller,
    thread: &ThreadId,
    rows: &Page,
) -> Result<Listed<MessageView>, ApiError> {
    match server.engine.store().messages(&caller.tenant, thread, rows).await {
        Ok(listed) => Ok(listed),
        Err(StoreError::NotFound) => Err(ApiError::no_thread(thread.as_str())),
        Err(refused) => Err(refused.into()),
    }
}

/// The list only refers to the messages; their content is in the logs of their runs. Reads messages until the page is
/// full, and returns how many of the listed ones were read.
async fn read_messages(
    server: &Server,
    caller: &Caller,
    listed: &[MessageView],
    builder: &mut PageBuilder,
    messages: &mut Vec<Message>,
) -> Result<usize, ApiError> {
    let mut read = 0;
    for of_run in listed.chunk_by(|one, next| one.run == next.run && one.seq < next.seq) {
        let (Some(first), false) = (of_run.first(), builder.is_full()) else { break };
        let mut rest: VecDeque<&MessageView> = of_run.iter().collect();
        // None if its thread was deleted meanwhile.
        if let Some(view) = server.engine.view(&caller.tenant, &first.run).await? {
            let mut reader = LogReader::open(&server.engine, &caller.tenant, &view, first.seq - 1).await?;
            while !rest.is_empty()
                && !builder.is_full()
                && let Some(envelope) = reader.next().await?
            {
                if let Some(view) = rest.pop_front_if(|view| view.seq == envelope.seq) {
                    let message = if let Payload::Message(added) = envelope.payload {
                        added.message
                    } else {
                        Message::unreadable(view)
                    };
                    builder.add(&message);
                    messages.push(message);
                }
            }
            // If the page is not full, the messages that are left are in no event of the log.
            while !builder.is_full()
                && let Some(view) = rest.pop_front()
            {
                let message = Message::unreadable(view);
                builder.add(&message);
                messages.push(message);
            }
        }
        read += of_run.len() - if builder.is_full() { rest.len() } else { 0 };
    }
    Ok(read)
}
