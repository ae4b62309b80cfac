//! The embedder's view of the engine: agents on a store, messages in, events out, decisions at any time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use machine::event::{Fact, InterruptCause, Message as Said, Pending};
use machine::id::{Principal, RunId, SuspensionId, ThreadId, ToolName};
use machine::inbox::{Item, Verdict};
use machine::input::{Outcome, ToolAnswer};
use machine::termination::Termination;
use machine::transcript::Messages;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::agent::{Agent, AgentError};
use crate::approval_feed::ApprovalFeed;
use crate::callback::{Callbacks, ReportedAttempt};
use crate::clock::{Clock, SystemClock};
use crate::feed::{FeedItem, Subscription};
use crate::grants::{Approvers, anyone_may_approve};
use crate::history::{History, HistoryLimits};
use crate::live::lock;
use crate::metrics::EngineMetrics;
use crate::node::{Node, Settings};
use crate::posting::{self, Message, PostError, Posted};
use crate::prepared_agents::{compile, freeze};
use crate::quota::{QuotaReached, Quotas};
use crate::store::{
    ApprovalFilter, Listed, Page, RunFilter, RunView, Store, StoreError, SuspensionView, Tenant,
};
use crate::tool::ToolDefinition;

/// Drives runs on a store. Cheap to clone; everything stops when the last clone is dropped.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    node: Arc<Node>,
    background: Vec<AbortHandle>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.node.abort();
        self.background.iter().for_each(AbortHandle::abort);
    }
}

/// Configures an engine before it starts.
pub struct EngineBuilder {
    store: Arc<dyn Store>,
    clock: Option<Arc<dyn Clock>>,
    settings: Settings,
    approvers: Approvers,
    agents: Vec<Agent>,
}

/// Why an engine does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    Agent(AgentError),
    Store(StoreError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(fault) => fault.fmt(f),
            Self::Store(refused) => refused.fmt(f),
        }
    }
}

impl std::error::Error for StartError {}

impl From<StoreError> for StartError {
    fn from(refused: StoreError) -> Self {
        Self::Store(refused)
    }
}

impl EngineBuilder {
    #[must_use]
    pub fn agent(mut self, agent: Agent) -> Self {
        self.agents.push(agent);
        self
    }

    /// Used instead of the store's clock, or of this machine's if the store has none.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Decides at each use of a grant whether its giver may still approve. By default every giver may.
    #[must_use]
    pub fn approvers(mut self, approvers: Approvers) -> Self {
        self.approvers = approvers;
        self
    }

    /// Stores the agents, and continues every run that has something to do.
    pub async fn start(self) -> Result<Engine, StartError> {
        let agents = compile(self.agents).map_err(StartError::Agent)?;
        freeze(&*self.store, &agents).await?;
        let clock = self.clock.or_else(|| self.store.clock()).unwrap_or_else(|| Arc::new(SystemClock));
        let callbacks = match &self.settings.callbacks_at {
            Some(at) => {
                Some(Callbacks::open(at, self.settings.callback_secrets.as_ref(), &*self.store).await?)
            }
            None => None,
        };
        let node = Node::new(self.store, clock, self.settings, callbacks, self.approvers, agents);
        let wake_queue = node.feeds.wake_queue();
        let background = vec![
            node.tasks.spawn(node.clone().dispatch()).abort_handle(),
            node.tasks.spawn(node.clone().listen()).abort_handle(),
            node.tasks.spawn(node.clone().relay()).abort_handle(),
            node.tasks.spawn(async move { wake_queue.run().await }).abort_handle(),
        ];
        Ok(Engine { inner: Arc::new(Inner { node, background }) })
    }
}

/// The state of a run when nothing of it executes any more.
#[derive(Clone, Debug, PartialEq)]
pub struct RunReport {
    pub run: RunId,
    pub thread: ThreadId,
    /// The agent's last text.
    pub text: String,
    pub outcome: RunOutcome,
    /// The last event that was read: [`Engine::follow`] continues after it.
    pub last_seq: u64,
}

/// Why a run has stopped executing.
#[derive(Clone, Debug, PartialEq)]
pub enum RunOutcome {
    Ended(Termination),
    /// A call is held. The run continues when it is decided, in this process or another.
    Suspended(Vec<Pending>),
}

impl RunReport {
    fn empty(posted: Posted) -> Self {
        let outcome = RunOutcome::Suspended(Vec::new());
        Self { run: posted.run, thread: posted.thread, text: String::new(), outcome, last_seq: 0 }
    }

    /// Watches until the run ends or a call is held. False if there was nothing left to see.
    async fn watch(&mut self, mut watched: Subscription) -> Result<bool, StoreError> {
        while let Some(item) = watched.next().await {
            let FeedItem::Event(committed) = item? else { continue };
            self.last_seq = committed.event.seq;
            if let Fact::MessageAdded(Said::Assistant { text, .. }) = &committed.event.fact {
                self.text.clone_from(text);
            }
            if let Fact::RunEnded { termination, .. } = &committed.event.fact {
                self.outcome = RunOutcome::Ended(termination.clone());
                return Ok(true);
            }
            if let Fact::RunWaiting { pending, .. } = &committed.event.fact {
                self.outcome = RunOutcome::Suspended(pending.clone());
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Engine {
    #[must_use]
    pub fn on(store: impl Store) -> EngineBuilder {
        Self::on_shared(Arc::new(store))
    }

    #[must_use]
    pub fn on_shared(store: Arc<dyn Store>) -> EngineBuilder {
        let (settings, approvers) = (Settings::default(), anyone_may_approve());
        EngineBuilder { store, clock: None, settings, approvers, agents: Vec::new() }
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.inner.node
    }

    /// The store, for reading.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.node.store
    }

    /// Posts a message. Returns when the run exists, not when it is over.
    pub async fn post(&self, message: Message) -> Result<Posted, PostError> {
        posting::post(&self.inner.node, message).await
    }

    /// Posts a message, and waits until the run ends or a call is held.
    pub async fn run(&self, message: Message) -> Result<RunReport, PostError> {
        let tenant = message.tenant.clone();
        let posted = self.post(message).await?;
        let watched = self.subscribe(&tenant, &posted.run, 0).found();
        let mut finished = RunReport::empty(posted);
        finished.watch(watched).await?;
        Ok(finished)
    }

    /// Posts a message, and streams everything that happens, from the first event on.
    pub async fn stream(&self, message: Message) -> Result<(Posted, Subscription), PostError> {
        let tenant = message.tenant.clone();
        let posted = self.post(message).await?;
        let subscription = self.subscribe(&tenant, &posted.run, 0).found();
        Ok((posted, subscription))
    }

    /// Streams the events of a run after `after`, and then what happens. An unknown run is an error.
    #[must_use]
    pub fn subscribe(&self, tenant: &Tenant, run: &RunId, after: u64) -> Subscription {
        let node = &self.inner.node;
        Subscription::new(node.feeds.for_run(run), node.store.clone(), tenant.clone(), after)
    }

    /// Waits until the run ends, or a call is held by an event after `after`.
    pub async fn follow(&self, tenant: &Tenant, run: &RunId, after: u64) -> Result<RunReport, StoreError> {
        let Some(view) = self.view(tenant, run).await? else { return Err(StoreError::NotFound) };
        let posted = Posted { run: run.clone(), thread: view.thread, status: view.status };
        let mut finished = RunReport::empty(posted);
        let seen = finished.watch(self.subscribe(tenant, run, after)).await?;
        // The run's last event may be at or before `after`.
        if !seen
            && let Some(view) = self.view(tenant, run).await?
            && let Some(how) = view.decoded()?.ended()
        {
            finished.outcome = RunOutcome::Ended(how.clone());
        }
        Ok(finished)
    }

    /// Waits for the end, however often a call is held on the way.
    pub async fn wait_until_ended(&self, tenant: &Tenant, run: &RunId) -> Result<RunReport, StoreError> {
        let mut finished = self.follow(tenant, run, 0).await?;
        loop {
            match &finished.outcome {
                RunOutcome::Ended(_) => return Ok(finished),
                RunOutcome::Suspended(_) => {
                    let before = std::mem::take(&mut finished.text);
                    finished = self.follow(tenant, run, finished.last_seq).await?;
                    if finished.text.is_empty() {
                        finished.text = before;
                    }
                }
            }
        }
    }

    /// The attempt that a report with this token is about. `path` is the last part of the callback's address; None if
    /// the token does not belong to it. Reads nothing except the keys of a shared store, if the token names a key that
    /// this process does not know.
    pub async fn verify_callback(&self, path: &str, token: &str) -> Option<ReportedAttempt> {
        let node = &self.inner.node;
        node.callbacks.as_ref()?.verify_or_reload(path, token, &*node.store, node.clock.now()).await
    }

    /// Reports the result of an attempt that is in doubt, from the party that made it.
    pub async fn settle_doubt(
        &self,
        about: &ReportedAttempt,
        step: u32,
        answer: ToolAnswer,
    ) -> Result<Verdict, StoreError> {
        let (call, attempt) = (about.call.clone(), about.attempt);
        let item = Item::LateAnswer { step, call, attempt, outcome: Outcome::Answered(answer) };
        self.inner.node.submit(&about.tenant, &about.run, item).await
    }

    /// Whether the sender may ask for this policy, as far as that can be decided without a lookup.
    pub fn check_loosening(&self, message: &Message) -> Result<(), PostError> {
        posting::check_loosening(&self.inner.node, message)
    }

    /// Ends a run without waiting for anything.
    pub async fn interrupt(
        &self,
        tenant: &Tenant,
        run: &RunId,
        by: &Principal,
    ) -> Result<Verdict, StoreError> {
        self.view(tenant, run).await?.ok_or(StoreError::NotFound)?;
        let cause = InterruptCause::Person(by.clone());
        self.inner.node.submit(tenant, run, Item::Interrupt { cause }).await
    }

    pub async fn view(&self, tenant: &Tenant, run: &RunId) -> Result<Option<RunView>, StoreError> {
        self.store().run(tenant, run).await
    }

    /// Newest first.
    pub async fn runs(
        &self,
        tenant: &Tenant,
        filter: &RunFilter,
        page: &Page,
    ) -> Result<Listed<RunView>, StoreError> {
        self.store().runs(tenant, filter, page).await
    }

    /// What people have to answer, oldest first. Approvals of child runs include the path to them.
    pub async fn approvals(
        &self,
        tenant: &Tenant,
        filter: &ApprovalFilter,
        page: &Page,
    ) -> Result<Listed<SuspensionView>, StoreError> {
        self.store().approvals(tenant, filter, page).await
    }

    /// The oldest pending approvals.
    pub async fn pending(&self, tenant: &Tenant) -> Result<Vec<SuspensionView>, StoreError> {
        Ok(self.approvals(tenant, &ApprovalFilter::default(), &Page::default()).await?.items)
    }

    /// Changes whenever a call of any run is held or no longer held: read the list again.
    #[must_use]
    pub fn approvals_changed(&self) -> watch::Receiver<u64> {
        self.inner.node.approvals.count()
    }

    /// Names the runs of this tenant with a call that is held or no longer held, from now on: read their approvals
    /// again. Other tenants' load causes no missed notifications for this one. None if a thousand other tenants are
    /// already watched.
    #[must_use]
    pub fn approval_feed(&self, tenant: &Tenant) -> Option<ApprovalFeed> {
        self.inner.node.approvals.feed(tenant)
    }

    /// The messages as the model would read them if it were called at this moment. A run that has not started has none.
    pub async fn transcript(&self, tenant: &Tenant, run: &RunId) -> Result<Messages, StoreError> {
        let Some(view) = self.view(tenant, run).await? else { return Err(StoreError::NotFound) };
        let control = view.decoded()?;
        let trim = self.inner.node.pinned(tenant, control).await?.trim;
        let limits = HistoryLimits { trim, bytes_max: usize::MAX };
        Ok(History::load(&**self.store(), tenant, control, limits).await?.messages(&trim))
    }

    /// The same with a memory limit: None if the transcript takes up more, and reading stops there.
    pub async fn transcript_within(
        &self,
        tenant: &Tenant,
        run: &RunId,
        bytes_max: usize,
    ) -> Result<Option<Messages>, StoreError> {
        let Some(view) = self.view(tenant, run).await? else { return Err(StoreError::NotFound) };
        let control = view.decoded()?;
        let trim = self.inner.node.pinned(tenant, control).await?.trim;
        let limits = HistoryLimits { trim, bytes_max };
        let history = History::load_within(&**self.store(), tenant, control, limits).await?;
        Ok(history.map(|history| history.messages(&trim)))
    }

    pub async fn approval(
        &self,
        tenant: &Tenant,
        id: &SuspensionId,
    ) -> Result<Option<SuspensionView>, StoreError> {
        self.store().suspension(tenant, id).await
    }

    /// A tool that came with the message of this run.
    pub async fn inline_tool(
        &self,
        tenant: &Tenant,
        run: &RunId,
        tool: &ToolName,
    ) -> Result<Option<Arc<ToolDefinition>>, StoreError> {
        let Some(view) = self.view(tenant, run).await? else { return Ok(None) };
        match self.inner.node.pinned(tenant, view.decoded()?).await {
            Ok(pinned) => Ok(pinned.inline_tool(tool).cloned()),
            // The run was deleted meanwhile.
            Err(StoreError::NotFound) => Ok(None),
            Err(refused) => Err(refused),
        }
    }

    /// Sets whether several tenants share the slots in which runs execute ([`Settings::several_tenants`]).
    pub fn share_slots(&self, several_tenants: bool) {
        self.inner.node.share_slots(several_tenants);
    }

    /// Applies to messages posted from now on; existing runs continue.
    pub fn set_quotas(&self, quotas: Quotas) {
        *lock(&self.inner.node.quotas) = quotas;
    }

    /// The quota that prevents this tenant from creating a thread, if any.
    pub async fn thread_quota_reached(&self, tenant: &Tenant) -> Result<Option<QuotaReached>, StoreError> {
        let node = &self.inner.node;
        let quotas = *lock(&node.quotas);
        quotas.thread(&*node.store, tenant).await
    }

    /// Number of runs in memory.
    #[must_use]
    pub fn runs_in_memory(&self) -> usize {
        self.inner.node.runs_in_memory()
    }

    /// Metrics since this engine started.
    #[must_use]
    pub fn metrics(&self) -> EngineMetrics {
        self.inner.node.counters.snapshot()
    }

    /// Accepts nothing new, lets running work finish within this time, and leaves the rest as after a crash.
    pub async fn drain(&self, within: Duration) {
        let node = &self.inner.node;
        node.stopping.cancel();
        let _ = tokio::time::timeout(within, node.wait_until_idle()).await;
        node.abort();
        if let Err(refused) = node.store.release_all().await {
            tracing::warn!(%refused, "other processes can continue these runs only after the lease has expired");
        }
    }

    /// Drains, and returns when nothing of this engine is left, so that its store can be opened again.
    pub async fn close(self, within: Duration) {
        self.drain(within).await;
        self.inner.background.iter().for_each(AbortHandle::abort);
        let tasks = self.inner.node.tasks.clone();
        drop(self);
        tasks.close();
        tasks.wait().await;
    }

    /// Stops at once, as a crash would. Nothing that was acknowledged is lost.
    pub fn abort(&self) {
        self.inner.node.abort();
        self.inner.background.iter().for_each(AbortHandle::abort);
    }
}
