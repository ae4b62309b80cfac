//! The runs that this process holds: who works on them, how many there may be, and who is woken when.

mod dispatch;
mod kept;
mod mail;
mod place;

use kept::Kept;
pub(crate) use mail::{Direct, Look, Mail, Reply};
pub(crate) use place::{Need, Place};
use place::{Places, Unbegun};

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::Poll;
use std::time::Duration;

use machine::Control;
use machine::id::{AgentName, Digest, RunId, ToolName};
use machine::inbox::{Item, Refusal, Verdict};
use machine::visible::looks_like;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::{Frozen, LiveAgent, Pinned};
use crate::approval_feed::ApprovalBell;
use crate::callback::{CallbackSecrets, Callbacks};
use crate::clock::Clock;
use crate::feed::Feeds;
use crate::grants::Approvers;
use crate::live::lock;
use crate::model::Model;
use crate::numbers::Tally;
use crate::quota::Quotas;
use crate::shelf::Shelf;
use crate::store::{Refused, Store, Tenant, Trouble};
use crate::worker::{self, Entry};

/// How much one engine takes on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Runs that execute together; more are queued.
    pub running_runs_max: usize,
    /// Several tenants share this engine: none of them gets all the places in which runs execute. 90 % of them are for
    /// any tenant's runs; the rest is for other tenants, and half of it also for runs that continue, such as decided ones.
    pub several_tenants: bool,
    /// What one tenant may have in the store.
    pub quotas: Quotas,
    /// How long a hook of a plugin may take.
    pub hook_timeout: Duration,
    /// How long one model call may take. One that took longer failed, and is tried again.
    pub model_timeout: Duration,
    /// How long a tool that was told to stop may go on before its task is taken away.
    pub cancel_grace: Duration,
    /// Before a store that is in trouble is asked again.
    pub trouble_pause: Duration,
    /// Memory for the transcripts of runs that were let go lately, so that one that comes back soon need not read
    /// its log again. However many runs wait, it is never more.
    pub shelf_bytes: usize,
    /// What the runs before one in its thread may take up in memory where the model is shown all of it. A run behind more
    /// fails when it would ask the model. Where the agent is shown its newest turns alone, no more than those is kept.
    pub thread_bytes_max: usize,
    /// The address under which somebody takes in what tools report later ([`Engine::reported`](crate::Engine::reported));
    /// none where nobody does.
    pub callbacks_at: Option<String>,
    /// What the tokens of callbacks are made with; none: a key that the store keeps.
    pub callback_secrets: Option<CallbackSecrets>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            running_runs_max: 256,
            several_tenants: false,
            quotas: Quotas::default(),
            hook_timeout: Duration::from_secs(30),
            model_timeout: Duration::from_secs(600),
            cancel_grace: Duration::from_secs(5),
            trouble_pause: Duration::from_secs(1),
            shelf_bytes: 32 * 1024 * 1024,
            thread_bytes_max: 64 * 1024 * 1024,
            callbacks_at: None,
            callback_secrets: None,
        }
    }
}

pub(crate) fn stopped() -> Refused {
    Refused::Trouble(Trouble::Unavailable("this engine is stopping".into()))
}

/// Mail that one worker may have waiting; what does not fit goes through the store.
const MAIL_MAX: usize = 256;

/// How a worker leaves its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parting {
    /// It ended, it was let go, or somebody else holds it.
    Done,
    /// It could not be loaded.
    NotLoaded,
}

/// Runs are known by their tenant too: a stranger who guesses an id meets nobody.
type Key = (Tenant, RunId);

#[derive(Default)]
struct Active {
    held: BTreeMap<Key, Held>,
    /// Nothing starts any more.
    aborted: bool,
}

struct Held {
    number: u64,
    mail: mpsc::Sender<Mail>,
    look: Arc<Look>,
    abort: Option<AbortHandle>,
}

/// The agents as they are configured at this moment.
#[derive(Default)]
pub(crate) struct Agents {
    pub(crate) by_name: BTreeMap<AgentName, Arc<LiveAgent>>,
}

impl Agents {
    pub(crate) fn has_tool(&self, name: &ToolName) -> bool {
        self.by_name.values().any(|agent| agent.tools.contains_key(name))
    }

    /// A tool of the server has this name or one that a reader takes for it, whether or not an agent uses it.
    pub(crate) fn is_reserved(&self, name: &ToolName) -> bool {
        let of_agents = self.by_name.values().flat_map(|agent| agent.tools.keys().chain(&agent.reserved));
        let mut known = of_agents.map(ToolName::as_str);
        known.any(|known| looks_like(known, name.as_str()))
    }

    /// Under one name agents may have different models, such as one with others behind it: a run's own agent comes first.
    pub(crate) fn model(&self, agent: &AgentName, name: &str) -> Option<Arc<dyn Model>> {
        let mut agents = self.by_name.get(agent).into_iter().chain(self.by_name.values());
        let of = |agent: &LiveAgent| {
            let used = (agent.pinned.model == name).then_some(&agent.model);
            used.or_else(|| agent.other_models.get(name)).cloned()
        };
        agents.find_map(|agent| of(agent))
    }
}

pub(crate) struct Node {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    /// As they are now; a reload may change them.
    pub(crate) quotas: Mutex<Quotas>,
    pub(crate) callbacks: Option<Callbacks>,
    pub(crate) approvers: Approvers,
    pub(crate) feeds: Arc<Feeds>,
    pub(crate) shelf: Shelf,
    agents: RwLock<Arc<Agents>>,
    kept: Kept,
    active: Mutex<Active>,
    /// Rings when a run has been let go.
    parted: Notify,
    places: Places,
    pub(crate) unbegun: Unbegun,
    /// Something is ready and found no place.
    backlog: AtomicBool,
    /// Runs may stand in line for a place: since one found none, until a look has found fewer than it had places for.
    has_line: AtomicBool,
    dispatch: Notify,
    /// When the dispatcher looks for due runs again.
    next_look: AtomicU64,
    last_number: AtomicU64,
    pub(crate) stopping: CancellationToken,
    /// As after a crash: what is under way goes no further.
    aborted: CancellationToken,
    /// Rings whenever a suspension opens or closes.
    pub(crate) approvals: ApprovalBell,
    pub(crate) tally: Tally,
    /// Everything that this engine has under way.
    pub(crate) tasks: TaskTracker,
}

impl Node {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        settings: Settings,
        callbacks: Option<Callbacks>,
        approvers: Approvers,
        agents: Agents,
    ) -> Arc<Self> {
        Arc::new(Self {
            places: Places::new(settings.running_runs_max, settings.several_tenants),
            unbegun: Unbegun::default(),
            shelf: Shelf::new(settings.shelf_bytes),
            store,
            clock,
            quotas: Mutex::new(settings.quotas),
            settings,
            callbacks,
            approvers,
            feeds: Arc::default(),
            agents: RwLock::new(Arc::new(agents)),
            kept: Kept::default(),
            active: Mutex::default(),
            parted: Notify::new(),
            backlog: AtomicBool::new(false),
            has_line: AtomicBool::new(false),
            dispatch: Notify::new(),
            next_look: AtomicU64::new(u64::MAX),
            last_number: AtomicU64::new(0),
            stopping: CancellationToken::new(),
            aborted: CancellationToken::new(),
            approvals: ApprovalBell::default(),
            tally: Tally::default(),
            tasks: TaskTracker::new(),
        })
    }

    pub(crate) fn agents(&self) -> Arc<Agents> {
        self.agents.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn replace_agents(&self, agents: Agents) {
        *self.agents.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(agents);
    }

    /// The frozen agent of a run. [`Refused::NotFound`] where the run is gone: its thread was deleted meanwhile, and what
    /// had come with its message went along.
    pub(crate) async fn pinned(&self, tenant: &Tenant, run: &Control) -> Result<Arc<Pinned>, Refused> {
        let digest = &run.revision;
        let live = self.agents().by_name.values().find(|agent| agent.pinned.digest == *digest).cloned();
        if let Some(agent) = live {
            return Ok(agent.pinned.clone());
        }
        if let Some(known) = self.remembered(tenant, digest) {
            return Ok(known);
        }
        let text = self.store.revision(tenant, &run.thread, digest).await?;
        let unreadable =
            |why: String| Refused::Trouble(Trouble::Corrupt(format!("revision {digest}: {why}")));
        let Some(text) = text else {
            let there = self.store.run(tenant, &run.run).await?.is_some();
            return Err(if there { unreadable("it is not stored".into()) } else { Refused::NotFound });
        };
        let frozen: Frozen = serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
        let pinned = Pinned::compile(&frozen).map_err(|fault| unreadable(fault.to_string()))?;
        let pinned = Arc::new(pinned);
        self.remember(tenant, pinned.clone());
        Ok(pinned)
    }

    /// A frozen agent that is stored, if it is at hand.
    pub(crate) fn remembered(&self, tenant: &Tenant, digest: &Digest) -> Option<Arc<Pinned>> {
        self.kept.of(tenant, digest)
    }

    pub(crate) fn remember(&self, tenant: &Tenant, pinned: Arc<Pinned>) {
        self.kept.put(tenant, pinned);
    }

    /// Brings an item to a run: straight to its worker where this process has one or can have one, else through the
    /// store. The answer comes after the commit.
    pub(crate) async fn submit(
        self: &Arc<Self>,
        tenant: &Tenant,
        run: &RunId,
        item: Item,
    ) -> Result<Verdict, Refused> {
        let item = match item.storable() {
            Ok(item) => item,
            Err(why) => return Ok(Verdict::Refused(Refusal::Invalid(why))),
        };
        let mut reply = self.brought(tenant, run, &item).await;
        if matches!(reply, Some(Reply::LetGo)) {
            reply = self.brought(tenant, run, &item).await;
        }
        if let Some(Reply::Stored(verdict)) = reply {
            return Ok(verdict);
        }
        // Whoever asked may go away meanwhile; what is stored has to be heard all the same.
        let (node, tenant, run) = (self.clone(), tenant.clone(), run.clone());
        let answers = item.call().is_some();
        let submitted = self.surely(async move {
            let submitted = node.store.submit(&tenant, &run, item).await;
            // What is answered is shown as its answer says, long before the run has heard it.
            if answers && submitted.as_ref().is_ok_and(Verdict::is_taken) {
                node.approvals.changed(&tenant, &run);
            }
            match &submitted {
                Ok(Verdict::Accepted | Verdict::ToolChanged | Verdict::AlreadyApplied) => {
                    node.wake(&tenant, &run, Need::Continue)
                }
                Ok(Verdict::Refused(_)) => {}
                // It may be stored all the same, and then somebody has to hear it.
                Err(_) => node.later(),
            }
            submitted
        });
        submitted.await
    }

    /// Goes on to its end although whoever waits for it may go away. Only the end of the engine stops it.
    pub(crate) async fn surely<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Refused>> + Send + 'static,
    ) -> Result<T, Refused> {
        let aborted = self.aborted.clone();
        let mut work = Box::pin(async move {
            tokio::select! {
                biased;
                () = aborted.cancelled() => Err(stopped()),
                done = work => done,
            }
        });
        // A store that answers at once needs no task, and nobody can go away in between.
        if let Poll::Ready(done) = poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await {
            return done;
        }
        self.tasks.spawn(work).await.unwrap_or_else(|_| Err(stopped()))
    }

    /// None where there is no worker and no place for one.
    async fn brought(self: &Arc<Self>, tenant: &Tenant, run: &RunId, item: &Item) -> Option<Reply> {
        self.bring(tenant, run, item)?.await.ok()
    }

    fn bring(
        self: &Arc<Self>,
        tenant: &Tenant,
        run: &RunId,
        item: &Item,
    ) -> Option<oneshot::Receiver<Reply>> {
        let (reply, answer) = oneshot::channel();
        let mail = Mail::Direct(Box::new(Direct { item: item.clone(), reply }));
        let mut active = lock(&self.active);
        if let Some(held) = active.held.get(&(tenant.clone(), run.clone())) {
            // The last room is kept for a claim, which has no other way to the worker.
            let has_room = held.mail.capacity() > 1;
            return (has_room && held.mail.try_send(mail).is_ok()).then_some(answer);
        }
        let place = self.place_past_nobody(tenant, Need::Continue)?;
        self.start(&mut active, tenant, run, Entry::Claim, Some(mail), place);
        Some(answer)
    }

    /// There is something for this run. It gets a worker now, or as soon as a place is free.
    pub(crate) fn wake(self: &Arc<Self>, tenant: &Tenant, run: &RunId, need: Need) {
        let mut active = lock(&self.active);
        if let Some(held) = active.held.get(&(tenant.clone(), run.clone())) {
            held.look.ring();
            return;
        }
        match self.place_past_nobody(tenant, need) {
            Some(place) => self.start(&mut active, tenant, run, Entry::Claim, None, place),
            None => self.line_up(tenant, need),
        }
    }

    /// Something is ready and found no place, or could not be loaded. The dispatcher takes it up: a place may have
    /// become free meanwhile.
    pub(crate) fn later(&self) {
        self.backlog.store(true, Ordering::Release);
        self.dispatch.notify_one();
    }

    /// Begins to work on a run that this process holds already.
    pub(crate) fn begin(self: &Arc<Self>, tenant: &Tenant, run: &RunId, entry: Entry, place: Place) {
        let mut active = lock(&self.active);
        self.start(&mut active, tenant, run, entry, None, place);
    }

    fn start(
        self: &Arc<Self>,
        active: &mut Active,
        tenant: &Tenant,
        run: &RunId,
        entry: Entry,
        mail: Option<Mail>,
        place: Place,
    ) {
        if active.aborted {
            self.give_back(entry);
            return;
        }
        let (sender, receiver) = mpsc::channel(MAIL_MAX);
        if let Some(mail) = mail {
            // The channel is new and has room.
            let _ = sender.try_send(mail);
        }
        let look = Arc::new(Look::default());
        let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let desk = worker::Desk {
            node: self.clone(),
            tenant: tenant.clone(),
            run: run.clone(),
            number,
            mail: receiver,
            look: look.clone(),
            claimed: None,
        };
        let key = (tenant.clone(), run.clone());
        active.held.insert(key.clone(), Held { number, mail: sender, look, abort: None });
        let task = self.tasks.spawn(worker::work(desk, entry, place));
        if let Some(held) = active.held.get_mut(&key).filter(|held| held.number == number) {
            held.abort = Some(task.abort_handle());
        }
    }

    /// Everything has stopped: a run that is held by now is let go, as far as the store lets it.
    fn give_back(self: &Arc<Self>, entry: Entry) {
        let lease = match entry {
            Entry::Claim => return,
            Entry::Claimed(claimed) => claimed.lease,
            Entry::Created(newborn) => newborn.lease,
        };
        let store = self.store.clone();
        self.tasks.spawn(async move {
            if let Err(refused) = store.release(&lease).await {
                tracing::warn!(run = %lease.run, %refused, "a run of a stopped engine stays held");
            }
        });
    }

    /// A worker is done with its run. What reached it meanwhile is not lost.
    pub(crate) fn part(self: &Arc<Self>, desk: &mut worker::Desk, place: Place, parting: Parting) {
        let mut active = lock(&self.active);
        let key = (desk.tenant.clone(), desk.run.clone());
        if active.held.get(&key).is_none_or(|held| held.number != desk.number) {
            return;
        }
        active.held.remove(&key);
        desk.mail.close();
        let mut claimed = desk.claimed.take();
        while let Ok(mail) = desk.mail.try_recv() {
            match mail {
                Mail::Direct(direct) => drop(direct.reply.send(match parting {
                    Parting::Done => Reply::LetGo,
                    Parting::NotLoaded => Reply::UseTheInbox,
                })),
                Mail::Claimed(other) => claimed = Some(other),
            }
        }
        if let Some(claimed) = claimed {
            self.start(&mut active, &desk.tenant, &desk.run, Entry::Claimed(claimed), None, place);
        } else if desk.look.take() {
            self.start(&mut active, &desk.tenant, &desk.run, Entry::Claim, None, place);
        } else {
            drop(place);
            if parting == Parting::NotLoaded {
                self.later();
            }
        }
        drop(active);
        self.parted.notify_waiters();
    }

    /// Waits until nobody works here any more.
    pub(crate) async fn idle(&self) {
        loop {
            let parted = self.parted.notified();
            tokio::pin!(parted);
            parted.as_mut().enable();
            if lock(&self.active).held.is_empty() {
                return;
            }
            parted.await;
        }
    }

    /// As a crash would: everything under way is gone.
    pub(crate) fn abort(&self) {
        self.stopping.cancel();
        let held = {
            let mut active = lock(&self.active);
            active.aborted = true;
            self.aborted.cancel();
            self.feeds.stop();
            std::mem::take(&mut active.held)
        };
        for held in held.into_values() {
            if let Some(abort) = held.abort {
                abort.abort();
            }
        }
    }

    pub(crate) fn held_count(&self) -> usize {
        lock(&self.active).held.len()
    }
}
