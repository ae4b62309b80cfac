//! The runs of a thread that a front end shows: the one that ends with the thread's newest message, and those before it.
//! Runs that were edited or regenerated are not among them.

use engine::store::{LogEntry, RunView, Tenant, ThreadView};
use machine::event::Fact;
use machine::id::{MessageId, RunId, ThreadId};
use machine::projection_rows::Role;
use machine::thread::ThreadState;
use protocols::feed::Item;

use crate::caller::Caller;
use crate::error::{ApiError, Code};
use crate::log_reader::LogReader;
use crate::paging::{PAGE_BYTES_MAX, json_bytes};
use crate::server::Server;
use crate::wire::feed::event_item;

/// Events of a run among which `run.started` is searched. It is the first or the second, unless the run was queued.
const FIRST_EVENTS: usize = 8;

/// A run of the conversation.
pub(crate) struct ShownRun {
    pub(crate) view: RunView,
    /// The conversation continues after the user's message: a later run has answered it again.
    pub(crate) only_user_message: bool,
}

/// The run in front, or the run of the newest message if all have ended.
pub(crate) async fn newest_run(
    server: &Server,
    tenant: &Tenant,
    thread: &ThreadView,
) -> Result<Option<RunView>, ApiError> {
    let run = match (&thread.state, &thread.head) {
        (ThreadState::Busy { front, .. }, _) => Some(front.clone()),
        (ThreadState::Free, Some(head)) => {
            run_of(server, tenant, &thread.id, head).await?.map(|(run, _)| run)
        }
        (ThreadState::Free, None) => None,
    };
    match run {
        Some(run) => Ok(server.engine.view(tenant, &run).await?),
        None => Ok(None),
    }
}

/// The newest runs of the conversation, newest first, and at most `count` of them.
pub(crate) async fn newest_runs(
    server: &Server,
    tenant: &Tenant,
    thread: &ThreadView,
    count: usize,
) -> Result<Vec<ShownRun>, ApiError> {
    let mut runs: Vec<ShownRun> = Vec::new();
    let mut next = newest_run(server, tenant, thread).await?.map(|view| (view, false));
    while let Some((view, only_user_message)) = next.take() {
        let after = begins_after(server, tenant, &view.id).await?;
        runs.push(ShownRun { view, only_user_message });
        if runs.len() < count
            && let Some(after) = after
            && let Some((run, role)) = run_of(server, tenant, &thread.id, &after).await?
            // A log that names itself would never end.
            && runs.iter().all(|shown| shown.view.id != run)
        {
            next = server.engine.view(tenant, &run).await?.map(|view| (view, role == Role::User));
        }
    }
    Ok(runs)
}

async fn run_of(
    server: &Server,
    tenant: &Tenant,
    thread: &ThreadId,
    message: &MessageId,
) -> Result<Option<(RunId, Role)>, ApiError> {
    let position = server.engine.store().message(tenant, thread, message).await?;
    Ok(position.map(|position| (position.run, position.role)))
}

/// The message after which the run begins. None for the first of its thread, and for a run that has not started.
pub(crate) async fn begins_after(
    server: &Server,
    tenant: &Tenant,
    run: &RunId,
) -> Result<Option<MessageId>, ApiError> {
    let events = server.engine.store().events(tenant, run, 0, FIRST_EVENTS).await?;
    let started = events.iter().filter_map(LogEntry::readable).find_map(|committed| {
        if let Fact::RunStarted { after } = &committed.event.fact { Some(after.clone()) } else { None }
    });
    Ok(started.flatten())
}

/// How much of the events of a conversation is in memory for one request. Older runs are left out.
pub(crate) struct ConversationBudget {
    bytes_left: usize,
}

/// Bytes of events that a conversation may have as JSON, beside the newest run.
const CONVERSATION_BYTES_MAX: usize = 2 * PAGE_BYTES_MAX;
/// Bytes of events that one run may have to be shown as a whole.
const RUN_BYTES_MAX: usize = 8 * PAGE_BYTES_MAX;

impl ConversationBudget {
    pub(crate) const fn new() -> Self {
        Self { bytes_left: CONVERSATION_BYTES_MAX }
    }

    /// Every stored event of a run, as translators read it. None if the budget is used up; the newest run may have more.
    pub(crate) async fn read(
        &mut self,
        server: &Server,
        caller: &Caller,
        view: &RunView,
        is_newest: bool,
    ) -> Result<Option<Vec<Item>>, ApiError> {
        let bytes_max = if is_newest { RUN_BYTES_MAX } else { self.bytes_left };
        // Whole runs take turns, like every view of a whole run.
        let _turn = caller.permit.long_json_turn().await;
        let mut reader = LogReader::open(&server.engine, &caller.tenant, view, 0).await?;
        let (mut items, mut bytes) = (Vec::new(), 0);
        while let Some(envelope) = reader.next().await? {
            bytes += json_bytes(&envelope);
            if bytes > bytes_max && is_newest {
                return Err(ApiError::new(
                    Code::TooLarge,
                    format!(
                        "run `{}` is too long to be shown as one message; read its events page by page",
                        view.id
                    ),
                ));
            }
            if bytes > bytes_max {
                self.bytes_left = 0;
                return Ok(None);
            }
            items.push(event_item(envelope));
        }
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        Ok(Some(items))
    }
}
