//! A message that a front end posts. The thread is created with it.

use engine::arguments;
use engine::posting::{Message, PolicyRequest, PostError, ThreadTarget};
use engine::store::{PostKey, RunView};
use engine::tool::ToolDefinition;
use machine::id::{AgentName, Digest, MessageId, RunId, ThreadId};
use serde_json::Value;

use crate::caller::Caller;
use crate::error::{ApiError, Code};
use crate::routes::messages::post_error;
use crate::routes::runs::find_run;
use crate::routes::threads::may_see;
use crate::server::Server;
use crate::setup::{AgentShown, Role};

/// What the front end asks for.
pub(crate) struct FrontEndMessage {
    pub(crate) thread: ThreadId,
    pub(crate) agent: AgentName,
    /// None answers the message in `after` again.
    pub(crate) content: Option<Value>,
    pub(crate) message_id: Option<MessageId>,
    pub(crate) after: Option<MessageId>,
    pub(crate) tools: Vec<ToolDefinition>,
    /// The same request again has the same key.
    pub(crate) key: Option<String>,
}

/// The agent with this name, if the caller may use it.
pub(crate) fn find_agent(server: &Server, caller: &Caller, name: &AgentName) -> Result<AgentShown, ApiError> {
    let agents = server.agents();
    let agent = agents.iter().find(|agent| agent.name == name.as_str() && caller.may_use(agent));
    agent.cloned().ok_or_else(|| ApiError::no_agent(name.as_str()))
}

/// Posts the message. Returns the run that it started, or that the same request started before.
pub(crate) async fn post_message(
    server: &Server,
    caller: &Caller,
    asked: FrontEndMessage,
) -> Result<RunView, ApiError> {
    if !may_see(server, caller, &asked.thread).await? {
        return Err(ApiError::no_thread(asked.thread.as_str()));
    }
    let key = asked.key.as_deref().map(|key| post_key(caller, key, asked.content.as_ref()));
    let message = Message {
        tenant: caller.tenant.clone(),
        thread: ThreadTarget::Named(asked.thread),
        agent: asked.agent,
        content: asked.content,
        message_id: asked.message_id,
        after: asked.after,
        on_busy: None,
        policy: PolicyRequest::default(),
        tools: asked.tools,
        output_schema: None,
        by: caller.principal.clone(),
        may_approve: caller.roles.has(Role::Approve),
        key,
    };
    match server.engine.post(message).await {
        Ok(posted) => find_run(server, caller, &posted.run).await,
        Err(PostError::KeyUsed { run }) => Err(id_used(&run)),
        Err(refused) => Err(post_error(server, caller, refused).await?),
    }
}

/// A client that repeats a request after a failure gets the run that the first one started.
fn id_used(run: &RunId) -> ApiError {
    ApiError::new(
        Code::IdempotencyConflict,
        format!(
            "an earlier request of this thread had the same id and other content, and started run `{run}`; no run was \
             started. Choose a new id"
        ),
    )
    .with("run_id", run.as_str())
}

fn post_key(caller: &Caller, key: &str, content: Option<&Value>) -> PostKey {
    let content = content.cloned().unwrap_or_default();
    let body = arguments::digest(&content).unwrap_or_else(|_| Digest::sha256(content.to_string().as_bytes()));
    PostKey { scope: post_scope(caller, key), body }
}

fn post_scope(caller: &Caller, key: &str) -> String {
    // The length keeps names and keys apart, whatever they contain.
    let principal = caller.principal.as_str();
    Digest::sha256(format!("{}:{principal}:{key}", principal.len()).as_bytes()).to_string()
}

/// The run that a message of this caller with this key started.
pub(crate) async fn find_posted(
    server: &Server,
    caller: &Caller,
    thread: &ThreadId,
    key: &str,
) -> Result<Option<RunId>, ApiError> {
    let posted = server.engine.store().posted(&caller.tenant, thread, &post_scope(caller, key)).await?;
    Ok(posted.map(|(run, _)| run))
}
