//! Messages: post one to an agent, and list the messages of a thread.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::IntoResponse;
use engine::posting::{self, PostError};
use engine::store::{Listed, MessageOrder as StoredOrder, MessageView, Page, PostKey, StoreError};
use machine::id::{AgentName, ThreadId};
use machine::thread::Busy;

use crate::body::PostMessage;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::extract::{QueryParams, RequestBody, ThreadPath};
use crate::idempotency::idempotency_scope;
use crate::log_reader::LogReader;
use crate::paging::{PAGE_BYTES_MAX, PageBuilder, json_bytes};
use crate::routes::runs::{find_run, run_status};
use crate::routes::threads::find_thread;
use crate::run_wait::{RunWait, WAIT_DESCRIPTION, parse_wait};
use crate::server::Server;
use crate::setup::Role;
use crate::wire::enums::MessageOrder;
use crate::wire::message::Message;
use crate::wire::page::{Messages, parse_page};
use crate::wire::payload::Payload;
use crate::wire::run::Posted;

/// Messages per read.
const ROWS_MAX: usize = 16;

/// Post a message to an agent and start a run
///
/// With `wait`, the response is held back until the run has ended or waits, but for no longer than that.
#[utoipa::path(post, path = "/v1/threads/{id}/messages", tag = "threads", operation_id = "post_message",
    params(("id" = String, Path), ("wait" = Option<String>, Query, description = WAIT_DESCRIPTION),
        ("Idempotency-Key" = Option<String>, Header)),
    request_body = PostMessage, responses((status = 202, description = "The run that the message started", body = Posted)))]
pub(crate) async fn post(
    State(server): State<Arc<Server>>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    parts: Parts,
    received: RequestBody,
) -> Result<impl IntoResponse, ApiError> {
    let wait = parse_wait(&QueryParams::parse(&parts, &["wait"])?)?;
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
    if may_use {
        check_sink_for_policy(&server, &caller, &mut message)?;
    }
    find_thread(&server, &caller, &named).await?;
    if !may_use {
        return Err(PostError::NoSuchAgent(message.agent).into());
    }
    if let Some(scope) = idempotency_scope(&caller, &received) {
        message.key = Some(PostKey { scope, body: received.digest().await });
    }
    drop(received);
    // Before the message is posted: a request that may not wait changes nothing.
    let wait = wait.map(|duration| RunWait::reserve(&server, &caller, duration)).transpose()?;
    let posted = match server.engine.post(message).await {
        Ok(posted) => posted,
        Err(refused) => return Err(post_error(&server, &caller, refused).await?),
    };
    let mut answer = Posted::from_domain(&posted);
    if let Some(wait) = wait {
        let view = find_run(&server, &caller, &posted.run).await?;
        answer.status = wait.until_settled(view).await?.shown_status().into();
    }
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

/// A message that makes fewer calls wait lets calls run. It is refused while the required sink would not get the record.
fn check_sink_for_policy(
    server: &Server,
    caller: &Caller,
    message: &mut posting::Message,
) -> Result<(), ApiError> {
    let Err(down) = server.check_sink(&caller.tenant) else { return Ok(()) };
    let may_approve = std::mem::replace(&mut message.may_approve, false);
    let loosens = server.engine.check_loosening(message).is_err();
    message.may_approve = may_approve;
    if loosens { Err(down) } else { Ok(()) }
}

fn may_use(server: &Server, caller: &Caller, agent: &AgentName) -> bool {
    server.agents().iter().any(|shown| shown.name == agent.as_str() && caller.may_use(shown))
}

/// Names the run that blocks the request, with its status.
pub(crate) async fn post_error(
    server: &Server,
    caller: &Caller,
    refused: PostError,
) -> Result<ApiError, ApiError> {
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

/// List the messages of a thread, oldest or newest first
///
/// The order is that in which messages joined the thread, or its reverse. A queued message joins when its run starts. A
/// message that joins between two pages moves none of the others.
#[utoipa::path(get, path = "/v1/threads/{id}/messages", tag = "threads", operation_id = "list_messages",
    params(("id" = String, Path), ("order" = Option<String>, Query), ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, description = "One page of messages", body = Messages)))]
pub(crate) async fn list(
    State(server): State<Arc<Server>>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    parts: Parts,
) -> Result<Json<Messages>, ApiError> {
    let query = QueryParams::parse(&parts, &["order", "limit", "cursor"])?;
    let order = query.parse_value::<MessageOrder>("order")?.map_or_else(StoredOrder::default, Into::into);
    let page = parse_page(query.text("limit"), query.text("cursor"))?;
    find_thread(&server, &caller, &thread).await?;
    let mut builder = PageBuilder::new(page, ROWS_MAX);
    let mut messages = Vec::new();
    loop {
        let rows = builder.next_rows();
        let mut listed = list_rows(&server, &caller, &thread, order, &rows).await?;
        let read = read_messages(&server, &caller, order, &listed.items, &mut builder, &mut messages).await?;
        if read < listed.items.len() {
            let some = Page { limit: read, ..rows };
            listed.next = list_rows(&server, &caller, &thread, order, &some).await?.next;
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
    order: StoredOrder,
    rows: &Page,
) -> Result<Listed<MessageView>, ApiError> {
    match server.engine.store().messages(&caller.tenant, thread, order, rows).await {
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
    order: StoredOrder,
    listed: &[MessageView],
    builder: &mut PageBuilder,
    messages: &mut Vec<Message>,
) -> Result<usize, ApiError> {
    let mut read = 0;
    let is_ascending = order == StoredOrder::OldestFirst;
    for of_run in listed.chunk_by(|one, next| one.run == next.run && (one.seq < next.seq) == is_ascending) {
        let (Some(first), Some(last), false) = (of_run.first(), of_run.last(), builder.is_full()) else {
            break;
        };
        // None if its thread was deleted meanwhile.
        let Some(view) = server.engine.view(&caller.tenant, &first.run).await? else {
            read += of_run.len();
            continue;
        };
        let from = first.seq.min(last.seq) - 1;
        let mut reader = LogReader::open(&server.engine, &caller.tenant, &view, from).await?;
        if is_ascending {
            for one in of_run {
                if builder.is_full() {
                    return Ok(read);
                }
                let message = read_message(&mut reader, one).await?;
                builder.add(&message);
                messages.push(message);
                read += 1;
            }
            continue;
        }
        for message in read_newest_first(&mut reader, of_run).await? {
            if builder.is_full() {
                return Ok(read);
            }
            builder.add(&message);
            messages.push(message);
            read += 1;
        }
    }
    Ok(read)
}

/// Reads on to the event that added the message.
async fn read_message(reader: &mut LogReader, listed: &MessageView) -> Result<Message, ApiError> {
    while let Some(envelope) = reader.next_up_to(listed.seq).await? {
        if envelope.seq == listed.seq
            && let Payload::Message(added) = envelope.payload
        {
            return Ok(added.message);
        }
    }
    Ok(Message::unreadable(listed))
}

/// A log is read from its older events on. Of messages that do not fit on one page together, only the newest are kept.
async fn read_newest_first(
    reader: &mut LogReader,
    listed: &[MessageView],
) -> Result<impl Iterator<Item = Message>, ApiError> {
    let (mut kept, mut bytes) = (VecDeque::new(), 0);
    for one in listed.iter().rev() {
        let message = read_message(reader, one).await?;
        let message_bytes = json_bytes(&message);
        bytes += message_bytes;
        kept.push_back((message_bytes, message));
        while let Some((oldest, _)) = kept.front()
            && bytes - oldest >= PAGE_BYTES_MAX
        {
            bytes -= oldest;
            kept.pop_front();
        }
    }
    Ok(kept.into_iter().rev().map(|(_, message)| message))
}
