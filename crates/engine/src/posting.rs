//! Posting a message: admission to its thread, and the run that it starts.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use machine::event::{Event, Fact, Message as Said, RunRequest, UserMessage};
use machine::id::{AgentName, MessageId, RunId, ThreadId, ToolName};
use machine::json_value::{self, ValueFault};
use machine::policy::{LooseningRefused, resolve};
pub use machine::policy::{OnBusy, PolicyRequest};
use machine::projection_rows::PublicRunStatus;
use machine::thread::{Admission, Busy, IfBusy, admit};
use machine::{Input, Timestamp};
use serde_json::Value;
use uuid::Uuid;

use crate::history::for_each_event;
pub use crate::inline_tools::INLINE_TOOLS_MAX;
use crate::inline_tools::{self, AgentPin};
use crate::live::lock;
use crate::media;
pub use crate::message::{Message, ThreadTarget};
use crate::node::{Need, Node};
use crate::quota::QuotaReached;
use crate::store::{Create, SCOPE_BYTES_MAX, StoreError, ThreadView};
use crate::worker::{CreatedRun, RunCopy, RunSource};

/// Longer messages are refused.
pub const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// Maximum number of JSON values in the content of one message. The content stays in memory as long as its run.
pub const MESSAGE_NODES_MAX: usize = 10_000;
/// Prefixes of the derived ids of agents' and tools' messages.
const RESERVED_PREFIXES: [&str; 3] = ["msg_run_", "late_", "note_"];
/// How often the thread may be created, deleted or recreated while a message is posted, or lose its keys.
const TRIES_MAX: u32 = 64;

/// A run was created, by this message or by the one that it repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    pub run: RunId,
    pub thread: ThreadId,
    pub status: PublicRunStatus,
}

/// Why a message started no run. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostError {
    NoSuchAgent(AgentName),
    /// The message requires an existing thread, and there is none, or no longer one.
    NoSuchThread(ThreadId),
    Empty,
    TooLarge {
        bytes: usize,
    },
    /// Its content could not be stored and read back, or has too many values.
    Unstorable(ValueFault),
    /// A provider would refuse a part of the content, now and in every later run of the thread.
    BadPart {
        /// Counted from 0.
        place: usize,
        why: String,
    },
    Busy(Busy),
    Loosening(LooseningRefused),
    /// There already is a tool with this name: of some agent, or twice in the message.
    ToolNameTaken(ToolName),
    /// A tool of the message cannot be used.
    BadTools {
        why: String,
    },
    /// The output schema of the message cannot be used.
    BadOutputSchema {
        why: String,
    },
    /// The message to begin after does not exist, or leaves a call open.
    CannotBeginAfter {
        message: MessageId,
        why: String,
    },
    MessageIdTaken(MessageId),
    /// It looks like an id that is derived for another message.
    MessageIdReserved(MessageId),
    /// Another message was posted to the thread under this key, and has started this run.
    KeyUsed {
        run: RunId,
    },
    KeyTooLong {
        bytes: usize,
    },
    /// The tenant has its maximum number of threads or pending approvals.
    Quota(QuotaReached),
    Draining,
    Store(StoreError),
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchAgent(agent) => write!(f, "there is no agent {agent}"),
            Self::NoSuchThread(thread) => write!(f, "there is no thread {thread}"),
            Self::Empty => f.write_str("the message is empty"),
            Self::TooLarge { bytes } => {
                write!(f, "the message has {bytes} bytes; at most {MESSAGE_BYTES_MAX}")
            }
            Self::Unstorable(fault) => write!(f, "the message cannot be stored: {fault}"),
            Self::BadPart { place, why } => write!(f, "part {place} of the message cannot be sent: {why}"),
            Self::Busy(busy) => busy.fmt(f),
            Self::Loosening(LooseningRefused { field }) => {
                write!(
                    f,
                    "policy.{field} would be looser than the agent's own, which only an approver may ask for"
                )
            }
            Self::ToolNameTaken(tool) => write!(f, "there is a tool {tool} already"),
            Self::BadTools { why } => f.write_str(why),
            Self::BadOutputSchema { why } => write!(f, "the output schema cannot be used: {why}"),
            Self::CannotBeginAfter { message, why } => write!(f, "cannot begin after {message}: {why}"),
            Self::MessageIdTaken(message) => write!(f, "the thread has a message {message} already"),
            Self::MessageIdReserved(message) => {
                let list = RESERVED_PREFIXES.join(", ");
                write!(f, "message id {message} looks like one of ours; do not begin it with {list}")
            }
            Self::KeyUsed { run } => {
                write!(f, "this key was used for another message, which started run {run}; choose a new key")
            }
            Self::KeyTooLong { bytes } => {
                write!(f, "the key has {bytes} bytes with its scope; at most {SCOPE_BYTES_MAX}")
            }
            Self::Quota(reached) => reached.fmt(f),
            Self::Draining => f.write_str("this engine is stopping and takes nothing new"),
            Self::Store(refused) => refused.fmt(f),
        }
    }
}

impl std::error::Error for PostError {}

impl From<StoreError> for PostError {
    fn from(refused: StoreError) -> Self {
        Self::Store(refused)
    }
}

pub(crate) async fn post(node: &Arc<Node>, message: Message) -> Result<Posted, PostError> {
    if node.stopping.is_cancelled() {
        return Err(PostError::Draining);
    }
    let thread = match &message.thread {
        ThreadTarget::New => ThreadId::from(new_id("thr", node.clock.now())),
        ThreadTarget::Named(thread) | ThreadTarget::Existing(thread) => thread.clone(),
    };
    let ordered = match (order(node, &message, &thread), &message.key) {
        (Err(refused), None) => return Err(refused),
        // A repeat gets the original answer, even if the message would be refused today.
        (ordered, _) => ordered,
    };
    for attempt in 0..TRIES_MAX {
        // Read the thread first and judge afterwards: then a repeat of a message that arrived meanwhile is recognised,
        // and the changes which that message made to the thread do not count against it.
        let seen = match &message.thread {
            ThreadTarget::New => ThreadView::absent(thread.clone()),
            ThreadTarget::Named(_) => node.store.thread(&message.tenant, &thread).await?,
            ThreadTarget::Existing(_) => {
                let seen = node.store.thread(&message.tenant, &thread).await?;
                if seen.created_at.is_none() {
                    return Err(PostError::NoSuchThread(thread));
                }
                seen
            }
        };
        let ids = check_ids(node, &message, &thread).await;
        if let Some(posted) = find_repeat(node, &message).await? {
            return Ok(posted);
        }
        let (order, pin) = ordered.clone()?;
        ids?;
        let own = pin.pinned.revision.policy;
        let if_busy = IfBusy::resolve(message.on_busy, &message.policy, &own);
        // The store judges again inside its transaction; this only refuses a message earlier.
        let begin = match admit(&seen.state, if_busy) {
            Admission::Refuse(busy) => return Err(PostError::Busy(busy)),
            Admission::Hold if attempt == 0 => Begin::AtOnce,
            // Another message came first. A run that is only queued is never refused for that.
            Admission::Hold | Admission::Enqueue | Admission::Supersede => Begin::WhenClaimed,
        };
        check_quotas(node, &message, &seen).await?;
        // The caller may disappear meanwhile, but a run that exists has to be worked on.
        let (task_node, task_message) = (node.clone(), message.clone());
        let created = node.run_detached(async move {
            create(&task_node, &task_message, order, pin, seen, if_busy, begin).await
        });
        match created.await {
            Ok(posted) => return Ok(posted),
            Err(StoreError::Stale) => {}
            Err(StoreError::NotFound) => match &message.thread {
                ThreadTarget::Existing(_) => return Err(PostError::NoSuchThread(thread)),
                ThreadTarget::New | ThreadTarget::Named(_) => {}
            },
            Err(StoreError::Busy(busy)) => return Err(PostError::Busy(busy)),
            // A run that has not started may have a message with the same id: only the store knows.
            Err(StoreError::Impossible(why)) => {
                let taken = message.message_id.map(PostError::MessageIdTaken);
                return Err(taken.unwrap_or(PostError::Store(StoreError::Impossible(why))));
            }
            Err(refused) => {
                // The run may exist anyway, and then a worker has to take it.
                node.schedule_dispatch();
                return Err(refused.into());
            }
        }
    }
    Err(PostError::Store(StoreError::Stale))
}

async fn check_quotas(node: &Node, message: &Message, seen: &ThreadView) -> Result<(), PostError> {
    let quotas = *lock(&node.quotas);
    let reached = quotas.message(&*node.store, &message.tenant, seen.created_at.is_none()).await?;
    reached.map_or(Ok(()), |reached| Err(PostError::Quota(reached)))
}

/// The run that the same message has already started under its key.
async fn find_repeat(node: &Node, message: &Message) -> Result<Option<Posted>, PostError> {
    let (Some(key), Some(thread)) = (&message.key, message.thread.id()) else { return Ok(None) };
    let Some((run, body)) = node.store.posted(&message.tenant, thread, &key.scope).await? else {
        return Ok(None);
    };
    if body != key.body {
        return Err(PostError::KeyUsed { run });
    }
    // If the run is gone, it was deleted with its thread and its key.
    let view = node.store.run(&message.tenant, &run).await?;
    Ok(view.map(|view| Posted { run, status: view.shown_status(), thread: view.thread }))
}

/// Only a sender who may approve can ask that fewer calls wait. An unknown agent has nothing to loosen.
pub(crate) fn check_loosening(node: &Node, message: &Message) -> Result<(), PostError> {
    let agents = node.agents();
    let Some(agent) = agents.by_name.get(&message.agent) else { return Ok(()) };
    let own = agent.pinned.revision.policy;
    match resolve(&own, &message.policy, &message.by, message.may_approve) {
        Ok(_) => Ok(()),
        Err(refused) => Err(PostError::Loosening(refused)),
    }
}

/// The run that the message requests, as far as it can be judged without its thread.
fn order(node: &Node, message: &Message, thread: &ThreadId) -> Result<(RunRequest, AgentPin), PostError> {
    let agents = node.agents();
    let Some(agent) = agents.by_name.get(&message.agent) else {
        return Err(PostError::NoSuchAgent(message.agent.clone()));
    };
    check_content(message.content.as_ref())?;
    if let Some(key) = &message.key
        && key.check().is_err()
    {
        return Err(PostError::KeyTooLong { bytes: key.scope.len() });
    }
    let own = agent.pinned.revision.policy;
    let resolved =
        resolve(&own, &message.policy, &message.by, message.may_approve).map_err(PostError::Loosening)?;
    let pin = if message.tools.is_empty() && message.output_schema.is_none() {
        AgentPin::configured(agent)
    } else {
        inline_tools::pin_with_inline(node, &agents, agent, message)?
    };
    let now = node.clock.now();
    let order = RunRequest {
        run_id: RunId::from(new_id("run", now)),
        thread_id: thread.clone(),
        agent: message.agent.clone(),
        revision: pin.pinned.digest,
        policy: resolved.policy,
        loosened_by: resolved.loosened_by,
        message: message.content.clone().map(|content| UserMessage {
            id: message.message_id.clone().unwrap_or_else(|| MessageId::from(new_id("msg", now))),
            content: Arc::new(content),
            by: Some(message.by.clone()),
        }),
        parent: None,
    };
    Ok((order, pin))
}

/// When the created run starts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begin {
    /// In the commit that creates it, if this node has a slot for it. The thread must not have changed.
    AtOnce,
    WhenClaimed,
}

async fn create(
    node: &Arc<Node>,
    message: &Message,
    order: RunRequest,
    pin: AgentPin,
    seen: ThreadView,
    if_busy: IfBusy,
    begin: Begin,
) -> Result<Posted, StoreError> {
    let AgentPin { pinned, inline_agent } = pin;
    let (run_id, thread) = (order.run_id.clone(), order.thread_id.clone());
    let impossible = |why: String| StoreError::Impossible(why);
    let now = node.clock.now();
    let (mut batch, mut run) = RunCopy::for_new_run(order, pinned.revision.clone(), now)
        .map_err(|error| impossible(error.to_string()))?;
    let slot = match begin {
        Begin::AtOnce => node.try_take_slot(&message.tenant, Need::Start),
        Begin::WhenClaimed => None,
    };
    let after = message.after.clone().or_else(|| seen.head.clone());
    if after.is_none() {
        run.starts_thread();
    }
    if slot.is_some() {
        run.apply(&mut batch, &Input::Start { after }, None, now)
            .map_err(|rejection| impossible(rejection.to_string()))?;
    }
    let status = PublicRunStatus::from_status(&run.control().status);
    let (append, sent) = run.prepare(batch, Vec::new(), Vec::new());
    let create = Create {
        tenant: message.tenant.clone(),
        seen,
        if_busy,
        begins_after: message.after.clone(),
        key: message.key.clone(),
        inline_agent,
        lease: slot.is_some(),
        append,
    };
    let is_inline = create.inline_agent.is_some();
    let created = node.store.create(create).await?;
    let holds = created.admission == Admission::Hold;
    if is_inline {
        node.cache_revision(&message.tenant, pinned.clone());
    }
    match (created.lease, slot) {
        (Some(lease), Some(slot)) => {
            // Publish before a watcher can subscribe, so that it need not read these events from the store.
            let feed = node.feeds.for_run(&run_id);
            run.stored(&sent, created.version, node, &feed);
            let created_run = CreatedRun { lease, run, pinned, feed };
            node.begin(&message.tenant, &run_id, RunSource::Created(Box::new(created_run)), slot);
        }
        (Some(_) | None, _) if holds => node.wake(&message.tenant, &run_id, Need::Start),
        (Some(_) | None, _) => {}
    }
    for woken in created.woken {
        node.wake(&message.tenant, &woken, Need::Continue);
    }
    node.feeds.threads.changed(&message.tenant, &thread);
    Ok(Posted { run: run_id, thread, status })
}

fn check_content(content: Option<&Value>) -> Result<(), PostError> {
    let Some(content) = content else { return Ok(()) };
    let empty = match content {
        Value::String(text) => text.trim().is_empty(),
        Value::Array(parts) => parts.iter().all(is_blank_part),
        Value::Null => true,
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    };
    if empty {
        return Err(PostError::Empty);
    }
    if let Some(fault) = json_value::fault_within(content, MESSAGE_NODES_MAX) {
        return Err(PostError::Unstorable(fault));
    }
    let bytes = match content {
        Value::String(text) => text.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            content.to_string().len()
        }
    };
    if bytes > MESSAGE_BYTES_MAX {
        return Err(PostError::TooLarge { bytes });
    }
    let parts = content.as_array().map_or(std::slice::from_ref(content), Vec::as_slice);
    match parts.iter().map(media::fault).zip(0..).find_map(|(fault, place)| Some((place, fault?))) {
        Some((place, why)) => Err(PostError::BadPart { place, why }),
        None => Ok(()),
    }
}

/// A part of a message without text, and without anything in place of text.
fn is_blank_part(part: &Value) -> bool {
    let is_blank = |text: &Value| text.as_str().is_some_and(|text| text.trim().is_empty());
    match part {
        Value::Null => true,
        Value::String(_) => is_blank(part),
        Value::Object(fields) => {
            // A part that is not text may have content in any field besides its type.
            let is_text = fields.get("type").is_none_or(|kind| kind == "text");
            let mut rest = fields.iter().filter(|(name, _)| name.as_str() != "type");
            rest.all(|(name, value)| is_text && name == "text" && is_blank(value))
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => false,
    }
}

/// The message's own id must be new, and the message it begins after must leave no call open.
async fn check_ids(node: &Node, message: &Message, thread: &ThreadId) -> Result<(), PostError> {
    let store = &node.store;
    if let Some(id) = &message.message_id
        && RESERVED_PREFIXES.iter().any(|prefix| id.as_str().starts_with(prefix))
    {
        return Err(PostError::MessageIdReserved(id.clone()));
    }
    if let Some(id) = &message.message_id
        && store.message(&message.tenant, thread, id).await?.is_some()
    {
        return Err(PostError::MessageIdTaken(id.clone()));
    }
    let Some(after) = &message.after else {
        return if message.content.is_none() { Err(PostError::Empty) } else { Ok(()) };
    };
    let refused = |why: &str| PostError::CannotBeginAfter { message: after.clone(), why: why.into() };
    let Some(place) = store.message(&message.tenant, thread, after).await? else {
        return Err(refused("the thread has no such message"));
    };
    let mut open = Vec::new();
    let visit = |event: &Arc<Event>| {
        if let Fact::MessageAdded(said) = &event.fact {
            match said {
                Said::Assistant { calls, .. } => open.extend(calls.iter().map(|call| call.call_id.clone())),
                Said::Tool { call_id, .. } => open.retain(|call| call != call_id),
                Said::User { .. }
                | Said::Note { .. }
                | Said::Correction { .. }
                | Said::CallsDropped { .. }
                | Said::Interruption { .. } => {}
            }
        }
        ControlFlow::Continue(())
    };
    for_each_event(&**store, &message.tenant, &place.run, place.seq, visit).await?;
    if open.is_empty() { Ok(()) } else { Err(refused("it leaves a call without its result")) }
}

/// An id that sorts by time.
pub(crate) fn new_id(prefix: &str, now: Timestamp) -> String {
    let seconds = now.0 / 1_000;
    let nanoseconds = u32::try_from(now.0 % 1_000).unwrap_or(0) * 1_000_000;
    let at = uuid::Timestamp::from_unix(uuid::NoContext, seconds, nanoseconds);
    format!("{prefix}_{}", Uuid::new_v7(at))
}
