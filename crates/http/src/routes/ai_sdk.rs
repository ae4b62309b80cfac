//! The AI SDK's chat protocol: post, resume, stop, and the messages for a page that is loaded again.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::deciding::{Answer, Cancellation, Resumption};
use engine::store::RunView;
use machine::id::{AgentName, MessageId, RunId, ThreadId};
use machine::inbox::Verdict;
use machine::suspension::SuspensionKind;
use protocols::ai_sdk::{
    AiDecision, ChatAction, ChatRequest, ChunkEncoder, ChunkVerifier, ClientToolOutput, Seen, UiMessage,
    UiRole, parse_request, run_id_of, run_messages,
};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::body::check_id;
use crate::caller::Caller;
use crate::error::{ApiError, Code, bad_field};
use crate::extract::{AgentPath, QueryParams, RequestBody};
use crate::front_end::conversation::{ConversationBudget, begins_after, newest_run, newest_runs};
use crate::front_end::decide::{answer_client_tool, answer_held, check_reason, find_held};
use crate::front_end::post::{FrontEndMessage, find_agent, post_message};
use crate::limits::TenantCount;
use crate::routes::runs::{find_run, run_refused};
use crate::routes::threads::find_thread;
use crate::run_wait::is_settled;
use crate::server::Server;
use crate::setup::AgentShown;
use crate::wire::page::parse_limit;

use self::stream::stream_chunks;

mod stream;

/// Runs of a conversation that one response shows, if the client names no limit.
const RUNS_MAX: usize = 100;

/// Post to a chat of the AI SDK
///
/// Takes what `DefaultChatTransport` sends: a new, edited or regenerated message, or answers to calls that wait for an
/// approval or for a tool of the front end. The response is a UI message stream. Only the decisions and the outputs of
/// client tools are taken from the posted history.
#[utoipa::path(post, path = "/v1/ai-sdk/{agent}", tag = "ai-sdk", operation_id = "ai_sdk_chat",
    params(("agent" = String, Path)), request_body = Object,
    responses((status = 200, description = "A UI message stream", body = Object, content_type = "text/event-stream")))]
pub(crate) async fn chat(
    State(server): State<Arc<Server>>,
    caller: Caller,
    AgentPath(agent): AgentPath,
    received: RequestBody,
) -> Result<Response, ApiError> {
    let body: Map<String, Value> = received.parse().await?;
    drop(received);
    let ChatRequest { chat_id, action } = parse_request(&Value::Object(body))
        .map_err(|error| bad_field(&error.path, &format!("{}; nothing was done", error.why)))?;
    let agent = find_agent(&server, &caller, &agent)?;
    check_id("id", &chat_id)?;
    let thread = ThreadId::from(chat_id.as_str());
    // Before anything is posted or decided.
    let open = server.open_stream(&caller.tenant)?;
    match action {
        ChatAction::Nothing => Err(bad_field(
            "messages",
            "the last message is neither from the user nor from the assistant, and nothing was done",
        )),
        ChatAction::Continue { message_id, decisions, outputs, seen } => {
            let answers = Answers { message_id, decisions, outputs };
            continue_run(&server, &caller, &agent, &thread, answers, seen, open).await
        }
        ChatAction::NewMessage { .. } | ChatAction::Edit { .. } | ChatAction::Regenerate { .. } => {
            let message = new_message(&server, &caller, &agent, thread, action).await?;
            let run = post_message(&server, &caller, message).await?;
            let encoder = ChunkEncoder::new(client_tools(&agent));
            stream_chunks(&server, &caller, &run, encoder, ChunkVerifier::default(), open).await
        }
    }
}

/// The message for the engine, of an action that posts one.
async fn new_message(
    server: &Server,
    caller: &Caller,
    agent: &AgentShown,
    thread: ThreadId,
    action: ChatAction,
) -> Result<FrontEndMessage, ApiError> {
    let message = |content, message_id: Option<&str>, after, key| FrontEndMessage {
        agent: AgentName::from(agent.name.as_str()),
        content,
        message_id: message_id.map(MessageId::from),
        after,
        tools: Vec::new(),
        key,
        thread: thread.clone(),
    };
    match action {
        ChatAction::NewMessage { message_id, content } => {
            check_id("messages.id", &message_id)?;
            let key = format!("ai-sdk:{message_id}");
            Ok(message(Some(content), Some(&message_id), None, Some(key)))
        }
        ChatAction::Edit { message_id, content, after: _ } => {
            let after = message_before(server, caller, &thread, &message_id).await?;
            Ok(message(Some(content), None, Some(after), None))
        }
        ChatAction::Regenerate { message_id: _, after } => {
            Ok(message(None, None, Some(MessageId::from(after.as_str())), None))
        }
        ChatAction::Continue { .. } | ChatAction::Nothing => Err(ApiError::internal()),
    }
}

/// The message after which the run of this user's message begins.
async fn message_before(
    server: &Server,
    caller: &Caller,
    thread: &ThreadId,
    message: &str,
) -> Result<MessageId, ApiError> {
    find_thread(server, caller, thread).await?;
    let unknown =
        || bad_field("messageId", &format!("the chat has no message `{message}`, and nothing was done"));
    let found = server.engine.store().message(&caller.tenant, thread, &MessageId::from(message)).await?;
    let run = found.ok_or_else(unknown)?.run;
    begins_after(server, &caller.tenant, &run).await?.ok_or_else(|| {
        bad_field(
            "messageId",
            "it is the first message of its chat, which cannot be edited, and nothing was done; start another chat",
        )
    })
}

/// What the client answers of a run, and what it shows of it.
struct Answers {
    message_id: String,
    decisions: Vec<AiDecision>,
    outputs: Vec<ClientToolOutput>,
}

async fn continue_run(
    server: &Arc<Server>,
    caller: &Caller,
    agent: &AgentShown,
    thread: &ThreadId,
    answers: Answers,
    mut seen: Seen,
    open: TenantCount,
) -> Result<Response, ApiError> {
    let Answers { message_id, decisions, outputs } = answers;
    let no_run = || ApiError::no_run(&message_id);
    let run = RunId::from(run_id_of(&message_id).ok_or_else(no_run)?);
    let view = find_run(server, caller, &run).await?;
    if view.thread != *thread || view.agent.as_str() != agent.name {
        return Err(no_run());
    }
    // Every approval is looked up before the first decision: a request with one that is not of this run changes nothing.
    let mut approvals = Vec::with_capacity(decisions.len());
    for decision in decisions {
        let held = find_held(server, caller, &view, &decision.approval_id).await?;
        let held = held
            .filter(|held| held.kind == SuspensionKind::Approval)
            .ok_or_else(|| ApiError::no_approval(&decision.approval_id))?;
        caller.may_decide(held.kind, server)?;
        server.check_sink_for(&caller.tenant, held.kind)?;
        approvals.push((held, to_answer(decision)?));
    }
    let (mut awaited_approvals, mut awaited_outputs) = (Vec::new(), Vec::new());
    for (held, answer) in approvals {
        if answer_held(server, caller, &held, answer).await? {
            awaited_approvals.push(held.id);
        }
    }
    for output in outputs {
        if answer_client_tool(server, caller, &view, &output.call_id, output.result).await? {
            awaited_outputs.push(output.call_id);
        } else {
            seen.forget_output(&output.call_id);
        }
    }
    let verifier = ChunkVerifier::continuing(&message_id, &seen);
    let mut encoder = ChunkEncoder::continuing(client_tools(agent), seen);
    awaited_approvals.iter().for_each(|id| encoder.await_approval(id.as_str()));
    awaited_outputs.iter().for_each(|call| encoder.await_output(call));
    let view = find_run(server, caller, &run).await?;
    stream_chunks(server, caller, &view, encoder, verifier, open).await
}

fn to_answer(decision: AiDecision) -> Result<Answer, ApiError> {
    let reason = check_reason("messages", decision.reason)?;
    if decision.approved {
        return Ok(Answer::Resume(Resumption::default()));
    }
    Ok(Answer::Cancel(Cancellation { reason, ..Cancellation::default() }))
}

/// Names of the tools that the front end executes.
fn client_tools(agent: &AgentShown) -> BTreeSet<String> {
    agent.tools.iter().filter(|tool| tool.kind == "client").map(|tool| tool.name.clone()).collect()
}

/// An agent and a chat of it, from the path.
pub(crate) struct ChatPath {
    agent: AgentName,
    chat: ThreadId,
}

impl FromRequestParts<Arc<Server>> for ChatPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, server: &Arc<Server>) -> Result<Self, ApiError> {
        let Ok(Path((agent, chat))) = Path::<(String, String)>::from_request_parts(parts, server).await
        else {
            return Err(ApiError::no_thread(""));
        };
        check_id("chat_id", &chat)?;
        Ok(Self { agent: AgentName::from(agent.as_str()), chat: ThreadId::from(chat.as_str()) })
    }
}

/// Resume the stream of an AI SDK chat
///
/// Replays the response that is being written from its beginning, and continues it. 204 if nothing is being written.
#[utoipa::path(get, path = "/v1/ai-sdk/{agent}/{chat_id}/stream", tag = "ai-sdk", operation_id = "ai_sdk_resume",
    params(("agent" = String, Path), ("chat_id" = String, Path)),
    responses((status = 200, description = "A UI message stream", body = Object, content_type = "text/event-stream"),
        (status = 204, description = "No response is being written")))]
pub(crate) async fn resume(
    State(server): State<Arc<Server>>,
    caller: Caller,
    path: ChatPath,
    parts: Parts,
) -> Result<Response, ApiError> {
    QueryParams::parse(&parts, &[])?;
    let agent = find_agent(&server, &caller, &path.agent)?;
    let Some(view) = unsettled_run(&server, &caller, &path).await? else {
        return Ok((StatusCode::NO_CONTENT, [(header::CACHE_CONTROL, "no-cache")]).into_response());
    };
    let encoder = ChunkEncoder::new(client_tools(&agent));
    let open = server.open_stream(&caller.tenant)?;
    stream_chunks(&server, &caller, &view, encoder, ChunkVerifier::default(), open).await
}

/// The run of the chat that is queued or executes. A chat that does not exist yet has none.
async fn unsettled_run(
    server: &Server,
    caller: &Caller,
    path: &ChatPath,
) -> Result<Option<RunView>, ApiError> {
    let thread = match find_thread(server, caller, &path.chat).await {
        Ok(thread) => thread,
        Err(error) if error.code == Code::ThreadNotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let view = newest_run(server, &caller.tenant, &thread).await?;
    Ok(view.filter(|view| view.agent == path.agent && !is_settled(view.shown_status())))
}

/// Stop the run of an AI SDK chat
///
/// Interrupts the run that is queued, executes or waits. Closing the stream does not: the run continues without it.
#[utoipa::path(post, path = "/v1/ai-sdk/{agent}/{chat_id}/stop", tag = "ai-sdk", operation_id = "ai_sdk_stop",
    params(("agent" = String, Path), ("chat_id" = String, Path)), request_body = Object,
    responses((status = 200, description = "Whether a run was interrupted", body = Stopped)))]
pub(crate) async fn stop(
    State(server): State<Arc<Server>>,
    caller: Caller,
    path: ChatPath,
    received: RequestBody,
) -> Result<Json<Stopped>, ApiError> {
    // Transports send fields of their own, such as the id of the stream.
    let _: Map<String, Value> = received.parse_or_empty().await?;
    find_agent(&server, &caller, &path.agent)?;
    let thread = find_thread(&server, &caller, &path.chat).await?;
    let view = newest_run(&server, &caller.tenant, &thread).await?;
    let Some(view) = view.filter(|view| view.agent == path.agent && !view.status.ended()) else {
        return Ok(Json(Stopped { stopped: false, run_id: None }));
    };
    let verdict = server.engine.interrupt(&caller.tenant, &view.id, &caller.principal).await;
    let stopped = match verdict.map_err(|refused| run_refused(&view.id, refused))? {
        Verdict::Accepted | Verdict::AlreadyApplied => true,
        Verdict::ToolChanged | Verdict::Refused(_) => false,
    };
    Ok(Json(Stopped { stopped, run_id: Some(view.id.as_str().to_owned()) }))
}

/// Whether a run was interrupted.
#[derive(Serialize, ToSchema)]
pub(crate) struct Stopped {
    stopped: bool,
    /// The run that was interrupted, or that ended before it could be.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    run_id: Option<String>,
}

/// Get the messages of an AI SDK chat
///
/// The messages as the client would have them if it had received every stream, for a page that is loaded again. They
/// include calls that wait for an approval. The message of a run that is being executed is left out: resume its stream.
/// At most `limit` runs are shown, the newest ones, and fewer if their events have more than 8 MiB.
#[utoipa::path(get, path = "/v1/ai-sdk/{agent}/{chat_id}/messages", tag = "ai-sdk", operation_id = "ai_sdk_messages",
    params(("agent" = String, Path), ("chat_id" = String, Path), ("limit" = Option<u32>, Query)),
    responses((status = 200, description = "The messages, oldest first", body = ChatMessages)))]
pub(crate) async fn messages(
    State(server): State<Arc<Server>>,
    caller: Caller,
    path: ChatPath,
    parts: Parts,
) -> Result<Json<ChatMessages>, ApiError> {
    let query = QueryParams::parse(&parts, &["limit"])?;
    let limit = parse_limit(query.text("limit"))?.min(RUNS_MAX);
    let agent = find_agent(&server, &caller, &path.agent)?;
    let thread = find_thread(&server, &caller, &path.chat).await?;
    let mut budget = ConversationBudget::new();
    let mut newest_first = Vec::new();
    for shown in newest_runs(&server, &caller.tenant, &thread, limit).await? {
        let is_newest = newest_first.is_empty();
        let Some(items) = budget.read(&server, &caller, &shown.view, is_newest).await? else { break };
        let is_written = !is_settled(shown.view.shown_status());
        let mut of_run = run_messages(&items, client_tools(&agent));
        if shown.only_user_message || is_written {
            of_run.retain(|message| message.role == UiRole::User);
        }
        newest_first.push(of_run);
    }
    let messages = newest_first.into_iter().rev().flatten().collect();
    Ok(Json(ChatMessages { messages }))
}

/// The messages of a chat, as `useChat` takes them.
#[derive(Serialize, ToSchema)]
pub(crate) struct ChatMessages {
    #[schema(value_type = Vec<Object>)]
    messages: Vec<UiMessage>,
}
