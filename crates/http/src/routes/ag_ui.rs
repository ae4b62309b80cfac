//! AG-UI: one request of the protocol is a segment of a run, until the run waits or ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use engine::deciding::{Answer, Cancellation, Resumption};
use engine::store::{RunView, ThreadView};
use engine::tool::{Performer, ToolDefinition};
use machine::decision::Payload;
use machine::id::{AgentName, MessageId, ThreadId};
use machine::suspension::SuspensionKind;
use protocols::ag_ui::{
    AgUiAnswerable, AgUiAsk, AgUiConversation, AgUiDecision, AgUiInputMessage, AgUiMessage, AgUiRequest,
    AgUiRequestError, AgUiResumeEntry, AgUiSegment, AgUiThreadView, AgUiToolResult, AgUiUserMessage,
};
use protocols::feed::Body;
use serde_json::{Map, Value};

use self::stream::{stream_events, stream_replay};
use crate::body::check_id;
use crate::caller::Caller;
use crate::error::{ApiError, Code, bad_field};
use crate::extract::{AgentPath, RequestBody};
use crate::front_end::conversation::{ConversationBudget, newest_run, newest_runs};
use crate::front_end::decide::{answer_client_tool, answer_held, check_reason, find_held_in_tree};
use crate::front_end::post::{FrontEndMessage, find_agent, post_message};
use crate::limits::TenantCount;
use crate::routes::runs::find_run;
use crate::routes::threads::find_thread;
use crate::server::Server;
use crate::setup::AgentShown;

mod delegated;
mod stream;

/// Runs of a thread that a snapshot of its messages contains.
const RUNS_MAX: usize = 100;

/// Run an agent over AG-UI
///
/// Takes a `RunAgentInput`: a new message, answers to interrupts in `resume`, or results of client tools. The response is
/// a stream of AG-UI events. With `protocolVersion` it speaks 1.0, otherwise the dialect before it.
#[utoipa::path(post, path = "/v1/ag-ui/{agent}", tag = "ag-ui", operation_id = "ag_ui_run",
    params(("agent" = String, Path)), request_body = Object,
    responses((status = 200, description = "A stream of AG-UI events", body = Object, content_type = "text/event-stream")))]
pub(crate) async fn run(
    State(server): State<Arc<Server>>,
    caller: Caller,
    AgentPath(agent): AgentPath,
    received: RequestBody,
) -> Result<Response, ApiError> {
    let body: Map<String, Value> = received.parse().await?;
    let request = AgUiRequest::parse(&Value::Object(body)).map_err(|error| request_refused(&error))?;
    drop(received);
    run_request(&server, &caller, &agent, request).await
}

/// The refusal of a request with a field that has the wrong form.
pub(crate) fn request_refused(error: &AgUiRequestError) -> ApiError {
    bad_field(&error.path, &format!("{}; nothing was done", error.problem))
}

pub(crate) async fn run_request(
    server: &Arc<Server>,
    caller: &Caller,
    agent: &AgentName,
    request: AgUiRequest,
) -> Result<Response, ApiError> {
    let agent = find_agent(server, caller, agent)?;
    let known = KnownThread::read(server, caller, &agent, &request).await?;
    let (entries, tool_results, messages) = match request.ask(&known.view) {
        AgUiAsk::NewMessage { messages } => {
            let message = new_message(&agent, &request, messages)?;
            let run = post_message(server, caller, message).await?;
            return known.stream(server, caller, &agent, &request, &run, 0).await;
        }
        AgUiAsk::Regenerate { message } => {
            let after = Some(MessageId::from(message.id.as_str()));
            let asked = FrontEndMessage { after, ..front_end_message(&agent, &request) };
            let run = post_message(server, caller, asked).await?;
            return known.stream(server, caller, &agent, &request, &run, 0).await;
        }
        AgUiAsk::Resume { entries, tool_results, messages } => (entries, tool_results, messages),
        AgUiAsk::ToolResults { tool_results, messages } => (Vec::new(), tool_results, messages),
        AgUiAsk::Nothing => (Vec::new(), Vec::new(), Vec::new()),
    };
    if !messages.is_empty() {
        return Err(message_beside_answers(known.newest.as_ref()));
    }
    known.continue_run(server, caller, &agent, &request, (entries, tool_results)).await
}

/// A user's message begins a run, and answers continue one. Together they would need two runs at once.
fn message_beside_answers(newest: Option<&RunView>) -> ApiError {
    let error = ApiError::new(
        Code::ActiveRunExists,
        "the request answers a run that waits and has a new message, and nothing was done; send the answers first, and the \
         message when that run has ended",
    );
    match newest {
        Some(view) => error.with("run_id", view.id.as_str()).with("status", view.shown_status().as_str()),
        None => error,
    }
}

fn front_end_message(agent: &AgentShown, request: &AgUiRequest) -> FrontEndMessage {
    let own: BTreeSet<&str> = agent.tools.iter().map(|tool| tool.name.as_str()).collect();
    let tools = request.tools.iter().filter(|tool| !own.contains(tool.name.as_str()));
    FrontEndMessage {
        thread: ThreadId::from(request.thread_id.as_str()),
        agent: AgentName::from(agent.name.as_str()),
        content: None,
        message_id: None,
        after: None,
        tools: tools
            .map(|tool| {
                let definition =
                    ToolDefinition::new(&tool.name, &tool.description).performed_by(Performer::Client);
                match &tool.parameters {
                    Some(parameters) => definition.parameters(parameters.clone()),
                    None => definition,
                }
            })
            .collect(),
        key: Some(post_key(&request.run_id)),
    }
}

/// The key of the message that begins a run, from the client's id of its protocol run.
pub(crate) fn post_key(run_id: &str) -> String {
    format!("ag-ui:{run_id}")
}

/// The user's messages that the thread does not have, as one message with the id of the last.
fn new_message(
    agent: &AgentShown,
    request: &AgUiRequest,
    messages: Vec<AgUiUserMessage>,
) -> Result<FrontEndMessage, ApiError> {
    let id = messages.last().map(|message| message.id.clone()).unwrap_or_default();
    check_id("messages.id", &id)?;
    let content = match <[AgUiUserMessage; 1]>::try_from(messages) {
        Ok([only]) => only.content,
        Err(several) => {
            Value::Array(several.into_iter().flat_map(|message| parts(message.content)).collect())
        }
    };
    Ok(FrontEndMessage {
        content: Some(content),
        message_id: Some(MessageId::from(id.as_str())),
        ..front_end_message(agent, request)
    })
}

fn parts(content: Value) -> Vec<Value> {
    match content {
        Value::Array(parts) => parts,
        Value::String(text) => vec![serde_json::json!({"type": "text", "text": text})],
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => vec![other],
    }
}

/// The thread of a request, as it is stored.
pub(crate) struct KnownThread {
    /// None if it does not exist yet.
    thread: Option<ThreadView>,
    /// The run in front, or the newest one.
    newest: Option<RunView>,
    view: AgUiThreadView,
    /// Taken before the request changes anything.
    open: TenantCount,
}

impl KnownThread {
    pub(crate) async fn read(
        server: &Server,
        caller: &Caller,
        agent: &AgentShown,
        request: &AgUiRequest,
    ) -> Result<Self, ApiError> {
        check_id("threadId", &request.thread_id)?;
        check_id("runId", &request.run_id)?;
        let open = server.open_stream(&caller.tenant)?;
        let thread = match find_thread(server, caller, &ThreadId::from(request.thread_id.as_str())).await {
            Ok(thread) => Some(thread),
            Err(error) if error.code == Code::ThreadNotFound => None,
            Err(error) => return Err(error),
        };
        let newest = match &thread {
            Some(thread) => newest_run(server, &caller.tenant, thread).await?,
            None => None,
        };
        let newest = newest.filter(|view| view.agent.as_str() == agent.name && caller.may_see(&view.agent));
        let mut view = AgUiThreadView::default();
        if let Some(thread) = &thread {
            view.message_ids = known_messages(server, caller, thread, request).await?;
        }
        let control = newest.as_ref().and_then(|view| view.control.as_ref());
        for pending in control.map(machine::Control::pending).unwrap_or_default() {
            let call = pending.call_id.as_str().to_owned();
            match pending.kind {
                SuspensionKind::ClientTool => {
                    view.open_client_calls.insert(call);
                }
                SuspensionKind::Approval | SuspensionKind::Question | SuspensionKind::InDoubt => {
                    view.open_interrupts.insert(pending.suspension_id.as_str().to_owned(), call);
                }
                SuspensionKind::External | SuspensionKind::ChildRun => {}
            }
        }
        Ok(Self { thread, newest, view, open })
    }

    /// Gives the client's answers to the run that waits for them, and streams what follows. A client without an answer
    /// follows the run.
    async fn continue_run(
        self,
        server: &Arc<Server>,
        caller: &Caller,
        agent: &AgentShown,
        request: &AgUiRequest,
        (entries, tool_results): (Vec<AgUiResumeEntry>, Vec<AgUiToolResult>),
    ) -> Result<Response, ApiError> {
        let Some(view) = self.newest.clone() else {
            return self.replay(server, caller, agent, request).await;
        };
        // Every answer is read before the first one is given: a request with a wrong one changes nothing.
        let mut answers = Vec::with_capacity(entries.len());
        for entry in &entries {
            let Some(held) = find_held_in_tree(server, caller, &view, &entry.interrupt_id).await? else {
                tracing::debug!(run = %view.id, "an AG-UI request answers an interrupt that the run does not have");
                continue;
            };
            caller.may_decide(held.kind, server)?;
            server.check_sink_for(&caller.tenant, held.kind)?;
            let decision = AgUiDecision::from_entry(entry, answerable(held.kind))
                .map_err(|invalid| bad_field("resume", &format!("{invalid}; nothing was done")))?;
            answers.push((held, to_answer(decision)?));
        }
        let mut decided = BTreeSet::new();
        for (held, answer) in answers {
            match answer_held(server, caller, &held, answer).await {
                Ok(true) => {
                    decided.insert(held.id.as_str().to_owned());
                }
                Ok(false) => {}
                // An answer before it is accepted. The segment ends with an interrupt for the call that is still held.
                Err(refused) if refused.code == Code::InvalidArguments && !decided.is_empty() => {}
                Err(refused) => return Err(refused),
            }
        }
        for result in &tool_results {
            let value = match &result.error {
                Some(error) => Err(error.clone()),
                None => Ok(result.value()),
            };
            if answer_client_tool(server, caller, &view, &result.call_id, value).await? {
                decided.extend(suspension_of(&view, &result.call_id));
            }
        }
        let now = find_run(server, caller, &view.id).await?;
        let mut segment = self.segment(server, caller, agent, request, &now).await?;
        segment.new_after = view.seq;
        segment.decided = decided;
        stream_events(server, caller, &now, segment, self.open).await
    }

    async fn stream(
        self,
        server: &Arc<Server>,
        caller: &Caller,
        agent: &AgentShown,
        request: &AgUiRequest,
        run: &RunView,
        new_after: u64,
    ) -> Result<Response, ApiError> {
        let segment = self.segment(server, caller, agent, request, run).await?;
        stream_events(server, caller, run, AgUiSegment { new_after, ..segment }, self.open).await
    }

    /// The thread as it is: its messages, and what its run waits for. A run that executes is followed.
    pub(crate) async fn replay(
        self,
        server: &Arc<Server>,
        caller: &Caller,
        agent: &AgentShown,
        request: &AgUiRequest,
    ) -> Result<Response, ApiError> {
        if let Some(view) = self.newest.clone().filter(|view| !view.status.ended()) {
            return self.stream(server, caller, agent, request, &view, view.seq).await;
        }
        let mut segment = AgUiSegment::for_request(request);
        segment.earlier = self.earlier(server, caller, agent, request, None).await?;
        stream_replay(server, segment)
    }

    async fn segment(
        &self,
        server: &Server,
        caller: &Caller,
        agent: &AgentShown,
        request: &AgUiRequest,
        run: &RunView,
    ) -> Result<AgUiSegment, ApiError> {
        let mut segment = AgUiSegment::for_request(request);
        segment.client_tools.extend(client_tools(agent));
        segment.tool_schemas =
            agent.tools.iter().map(|tool| (tool.name.clone(), tool.parameters.clone())).collect();
        segment.earlier = self.earlier(server, caller, agent, request, Some(run)).await?;
        Ok(segment)
    }

    /// The messages of the conversation before this run; all of them without one.
    async fn earlier(
        &self,
        server: &Server,
        caller: &Caller,
        agent: &AgentShown,
        request: &AgUiRequest,
        run: Option<&RunView>,
    ) -> Result<Vec<AgUiMessage>, ApiError> {
        let Some(thread) = &self.thread else { return Ok(Vec::new()) };
        let mut offered: BTreeSet<String> = request.tools.iter().map(|tool| tool.name.clone()).collect();
        offered.extend(client_tools(agent));
        let result_ids: BTreeMap<String, String> = request
            .tool_results()
            .map(|result| (result.call_id.clone(), result.message_id.clone()))
            .collect();
        let mut budget = ConversationBudget::new();
        let mut newest_first = Vec::new();
        for shown in newest_runs(server, &caller.tenant, thread, RUNS_MAX).await? {
            if run.is_some_and(|run| run.id == shown.view.id) || !caller.may_see(&shown.view.agent) {
                continue;
            }
            let Some(mut items) = budget.read(server, caller, &shown.view, false).await? else { break };
            if shown.only_user_message {
                items.retain(|item| matches!(item.body, Body::UserMessage { .. }));
            }
            newest_first.push(items);
        }
        let mut messages = Vec::new();
        for items in newest_first.iter().rev() {
            let mut conversation = AgUiConversation::new(messages, offered.clone(), result_ids.clone());
            conversation.read_all(items);
            messages = conversation.into_messages();
        }
        Ok(messages)
    }
}

/// The ids of the user's messages at the end of the history that the thread has.
async fn known_messages(
    server: &Server,
    caller: &Caller,
    thread: &ThreadView,
    request: &AgUiRequest,
) -> Result<BTreeSet<String>, ApiError> {
    let mut known = BTreeSet::new();
    for message in request.messages.iter().rev() {
        let AgUiInputMessage::User(message) = message else { break };
        let id = MessageId::from(message.id.as_str());
        if server.engine.store().message(&caller.tenant, &thread.id, &id).await?.is_some() {
            known.insert(message.id.clone());
            break;
        }
    }
    Ok(known)
}

fn client_tools(agent: &AgentShown) -> impl Iterator<Item = String> {
    agent.tools.iter().filter(|tool| tool.kind == "client").map(|tool| tool.name.clone())
}

const fn answerable(kind: SuspensionKind) -> AgUiAnswerable {
    match kind {
        SuspensionKind::InDoubt => AgUiAnswerable::InDoubt,
        SuspensionKind::Question => AgUiAnswerable::Question,
        // Only kinds that a person answers are found.
        SuspensionKind::Approval
        | SuspensionKind::ClientTool
        | SuspensionKind::External
        | SuspensionKind::ChildRun => AgUiAnswerable::Approval,
    }
}

fn to_answer(decision: AgUiDecision) -> Result<Answer, ApiError> {
    let resume = |resumption| Answer::Resume(resumption);
    let cancel = |reason| Answer::Cancel(Cancellation { reason, ..Cancellation::default() });
    Ok(match decision {
        AgUiDecision::Approve { edited } => resume(Resumption { arguments: edited, ..Resumption::default() }),
        AgUiDecision::Answer { result } => {
            resume(Resumption { payload: Payload::Result(Arc::new(result)), ..Resumption::default() })
        }
        AgUiDecision::Retry => resume(Resumption::default()),
        AgUiDecision::Deny { reason } => cancel(check_reason("resume", reason)?),
        AgUiDecision::GiveUp => cancel(None),
        AgUiDecision::Cancel { reason } => cancel(Some(reason.to_owned())),
    })
}

/// The suspension that holds the call for the front end.
fn suspension_of(view: &RunView, call: &str) -> Option<String> {
    let pending = view.control.as_ref().map(machine::Control::pending).unwrap_or_default();
    let held = pending.iter().find(|pending| pending.call_id.as_str() == call)?;
    Some(held.suspension_id.as_str().to_owned())
}
