//! Messages: what somebody says to an agent, and what was said in a thread.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::IntoResponse;
use engine::posting::PostRefused;
use engine::store::{MessageView, PostKey, Refused};
use machine::id::{RunId, ThreadId};
use machine::thread::Busy;

use crate::access::Caller;
use crate::body::PostMessage;
use crate::error::ApiError;
use crate::received::{Asked, Received, ThreadPath};
use crate::repeats::scope_of;
use crate::routes::runs::status_of;
use crate::routes::threads::found;
use crate::server::Server;
use crate::setup::Role;
use crate::telling::tell;
use crate::wire::event::Envelope;
use crate::wire::message::Message;
use crate::wire::page::{Messages, page};
use crate::wire::payload::Payload;
use crate::wire::run::Posted;

/// Say something to an agent: a run begins
#[utoipa::path(post, path = "/v1/threads/{id}/messages", tag = "threads", operation_id = "post_message",
    params(("id" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    request_body = PostMessage, responses((status = 202, description = "The run that it started", body = Posted)))]
pub(crate) async fn post(
    State(server): State<Arc<Server>>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    received: Received,
) -> Result<impl IntoResponse, ApiError> {
    let asked: PostMessage = received.strict()?;
    found(&server, &caller, &thread).await?;
    let named = thread.clone();
    let may_loosen = caller.roles.has(Role::Approve);
    let mut message =
        asked.into_message(caller.tenant.clone(), thread, caller.principal.clone(), may_loosen)?;
    message.key = scope_of(&caller, &received).map(|scope| PostKey { scope, body: received.digest() });
    match server.engine.post(message).await {
        Ok(posted) => Ok((StatusCode::ACCEPTED, Json(Posted::of(&posted)))),
        Err(refused) => Err(told(&server, &caller, &named, refused).await?),
    }
}

/// A run that is in the way is named with its status.
async fn told(
    server: &Server,
    caller: &Caller,
    thread: &ThreadId,
    refused: PostRefused,
) -> Result<ApiError, ApiError> {
    let front = match &refused {
        PostRefused::Busy(Busy::ActiveRun(run) | Busy::InDoubt(run)) => Some(run.clone()),
        // The thread was deleted meanwhile.
        PostRefused::Store(Refused::NotFound) => return Ok(ApiError::no_thread(thread.as_str())),
        PostRefused::Busy(Busy::QueueFull)
        | PostRefused::NoSuchAgent(_)
        | PostRefused::Empty
        | PostRefused::TooLarge { .. }
        | PostRefused::TooDeep
        | PostRefused::Loosening(_)
        | PostRefused::ToolNameTaken(_)
        | PostRefused::BadTools { .. }
        | PostRefused::CannotBeginAfter { .. }
        | PostRefused::MessageIdTaken(_)
        | PostRefused::MessageIdReserved(_)
        | PostRefused::KeyUsed { .. }
        | PostRefused::KeyTooLong { .. }
        | PostRefused::Draining
        | PostRefused::Store(_) => None,
    };
    let error = ApiError::from(refused);
    let Some(front) = front else { return Ok(error) };
    let status = status_of(server, &caller.tenant, &front).await?;
    Ok(error.with("status", status.map(|status| status.as_str())))
}

/// What was said in a thread, in the order in which it joined
#[utoipa::path(get, path = "/v1/threads/{id}/messages", tag = "threads", operation_id = "list_messages",
    params(("id" = String, Path), ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, description = "One page", body = Messages)))]
pub(crate) async fn list(
    State(server): State<Arc<Server>>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    parts: Parts,
) -> Result<Json<Messages>, ApiError> {
    let asked = Asked::of(&parts, &["limit", "cursor"])?;
    let page = page(asked.text("limit"), asked.text("cursor"))?;
    match server.engine.store().messages(&caller.tenant, &thread, &page).await {
        Ok(listed) => {
            let messages = told_messages(&server, &caller, &listed.items).await?;
            Ok(Json(Messages { messages, next_cursor: listed.next }))
        }
        Err(Refused::NotFound) => Err(ApiError::no_thread(thread.as_str())),
        Err(refused) => Err(refused.into()),
    }
}

/// The list names the messages; what they say stands in the logs of their runs.
async fn told_messages(
    server: &Server,
    caller: &Caller,
    listed: &[MessageView],
) -> Result<Vec<Message>, ApiError> {
    let mut wanted: BTreeMap<&RunId, BTreeSet<u64>> = BTreeMap::new();
    for view in listed {
        wanted.entry(&view.run).or_default().insert(view.seq);
    }
    let mut said: BTreeMap<(RunId, u64), Message> = BTreeMap::new();
    for (run, seqs) in wanted {
        let (Some(first), Some(last)) = (seqs.first().copied(), seqs.last().copied()) else { continue };
        // Its thread was deleted meanwhile.
        let Some(view) = server.engine.view(&caller.tenant, run).await? else { continue };
        let hear = |envelope: Envelope| {
            if let Payload::Message(added) = envelope.payload
                && seqs.contains(&envelope.seq)
            {
                said.insert((run.clone(), envelope.seq), added.message);
            }
            if envelope.seq < last { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        tell(&**server.engine.store(), &caller.tenant, &view, first - 1, hear).await?;
    }
    Ok(listed.iter().filter_map(|view| said.remove(&(view.run.clone(), view.seq))).collect())
}
