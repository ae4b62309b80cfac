//! The calls below delegated runs that wait for a person. The log of the run that delegated does not show them.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use engine::ApprovalFeed;
use engine::feed::Subscription;
use engine::store::{ApprovalFilter, Page, SuspensionView};
use futures_util::future::select_all;
use machine::id::RunId;
use machine::projection_rows::PublicRunStatus;
use protocols::ag_ui::AgUiDelegatedHold;
use protocols::feed::RequestedCall;

use super::answerable;
use crate::approval_view::build_approval_if_exists;
use crate::caller::Caller;
use crate::error::ApiError;
use crate::server::Server;
use crate::wire::time::Time;

/// Held calls that one response asks about. The next one asks about the others.
const HOLDS_MAX: usize = 256;
/// Approvals per read.
const ROWS_MAX: usize = 16;
/// How long a stream waits before it reads the approvals again if it cannot be notified.
const RECHECK: Duration = Duration::from_secs(2);

pub(super) struct DelegatedCalls {
    server: Arc<Server>,
    caller: Caller,
    /// The run that delegated.
    run: RunId,
    /// The run has delegated.
    is_watching: bool,
    /// None if too many tenants are watched.
    feed: Option<ApprovalFeed>,
    /// The runs below that hold a call and execute another one. The user is asked once such a run waits.
    executing: Vec<Subscription>,
}

impl DelegatedCalls {
    pub(super) fn new(server: &Arc<Server>, caller: &Caller, run: &RunId) -> Self {
        Self {
            server: server.clone(),
            caller: caller.clone(),
            run: run.clone(),
            is_watching: false,
            feed: None,
            executing: Vec::new(),
        }
    }

    /// Starts to watch, because the run has delegated. Returns true the first time: the stream then reads the held calls
    /// once, after the watch has begun, so that it misses no change. Every later read follows a change.
    pub(super) fn begin(&mut self) -> bool {
        if self.is_watching {
            return false;
        }
        self.is_watching = true;
        self.feed = self.server.engine.approval_feed(&self.caller.tenant);
        true
    }

    /// Returns when the held calls may be others than those that were read. Cancel-safe.
    pub(super) async fn changed(&mut self) {
        if !self.is_watching {
            return pending().await;
        }
        let Self { feed, executing, .. } = self;
        let approvals = async {
            let Some(feed) = feed else { return tokio::time::sleep(RECHECK).await };
            if feed.next().await.is_none() {
                // The engine is gone, and the log of the run ends too.
                pending::<()>().await;
            }
        };
        let progress = async {
            if executing.is_empty() {
                return pending().await;
            }
            select_all(executing.iter_mut().map(|run| Box::pin(run.next()))).await;
        };
        tokio::select! {
            () = approvals => {}
            () = progress => {}
        }
    }

    /// The held calls that the caller may see, of runs that wait.
    pub(super) async fn read(&mut self) -> Result<Vec<AgUiDelegatedHold>, ApiError> {
        let filter =
            ApprovalFilter { run: Some(self.run.clone()), descendants: true, ..ApprovalFilter::default() };
        let mut page = Page { cursor: None, limit: ROWS_MAX };
        let mut holds = Vec::new();
        let mut is_waiting = BTreeMap::new();
        self.executing.clear();
        loop {
            let listed = self.server.engine.approvals(&self.caller.tenant, &filter, &page).await?;
            for view in listed.items {
                if view.run == self.run || !self.caller.can_read(&view) {
                    continue;
                }
                if !is_waiting.contains_key(&view.run) {
                    let waits = self.waits(&view.run).await?;
                    is_waiting.insert(view.run.clone(), waits);
                }
                if is_waiting.get(&view.run) == Some(&true) {
                    holds.extend(self.hold(&view).await?);
                }
            }
            page.cursor = listed.next;
            if page.cursor.is_none() || holds.len() >= HOLDS_MAX {
                holds.truncate(HOLDS_MAX);
                return Ok(holds);
            }
        }
    }

    /// Whether the run waits. A run that executes is followed until it does.
    async fn waits(&mut self, run: &RunId) -> Result<bool, ApiError> {
        let engine = &self.server.engine;
        let Some(view) = engine.view(&self.caller.tenant, run).await? else { return Ok(false) };
        match view.shown_status() {
            PublicRunStatus::WaitingApproval | PublicRunStatus::WaitingTool => Ok(true),
            PublicRunStatus::Queued | PublicRunStatus::Running | PublicRunStatus::Interrupting => {
                let followed = engine.subscribe(&self.caller.tenant, run, view.seq);
                self.executing.push(followed.without_live());
                Ok(false)
            }
            PublicRunStatus::Completed | PublicRunStatus::Failed | PublicRunStatus::Interrupted => Ok(false),
        }
    }

    /// None if the approval was deleted or cannot be decoded.
    async fn hold(&self, view: &SuspensionView) -> Result<Option<AgUiDelegatedHold>, ApiError> {
        let Some(child) = view.path.iter().skip_while(|entry| entry.run != self.run).nth(1) else {
            return Ok(None);
        };
        let approval = build_approval_if_exists(&self.server, view).await?;
        Ok(approval.filter(|approval| !approval.unreadable).map(|approval| AgUiDelegatedHold {
            id: approval.id,
            child_run_id: child.run.as_str().to_owned(),
            kind: answerable(view.kind),
            call: RequestedCall {
                call_id: approval.call_id,
                tool: approval.tool,
                arguments: approval.arguments,
            },
            question: approval.question,
            schema: approval.schema,
            expires_at: approval.expires_at.map(Time::text),
        }))
    }
}
