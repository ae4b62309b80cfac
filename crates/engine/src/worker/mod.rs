//! One worker for each run that is held: take what is ready, decide, store it in one commit, publish, do what is wanted.

mod batch;
mod children;
mod current_tool;
mod floor;
mod gate;
mod hooks;
mod judging;
mod measured;
mod model_task;
mod news;
mod panics;
mod pass;
mod run_end;
mod standing;
mod stepping_aside;
mod taking;
mod tasks;
mod tool_task;

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use machine::event::Event;
use machine::id::{CallId, Digest, MessageId, RunId};
use machine::inbox::{Item, Ticket};
use machine::phase::{Phase, PhaseSet};
use machine::projection_rows::StateRow;
use machine::status::RunStatus;
use machine::tool::Arguments;
use machine::{Control, Effect, Input, Run, Timestamp};
use tokio::sync::mpsc;

pub(crate) use batch::{Batch, committed};
pub(crate) use children::birth;

use crate::agent::Pinned;
use crate::clock::NotBefore;
use crate::feed::{HeldFeed, RunFeed};
use crate::history::History;
use crate::node::{Direct, Look, Mail, Node, Parting, Place};
use crate::store::{Claimed, Lease, Loaded, Refused, Tenant, Trouble};
use floor::{Floor, Turn};
use measured::Measured;
use news::{Brought, HeardAfter, News, NewsBody};
use pass::Unsure;
use taking::{Taken, take};
use tasks::UnderWay;

/// Where a worker sits: what it works on and how it is reached.
pub(crate) struct Desk {
    pub(crate) node: Arc<Node>,
    pub(crate) tenant: Tenant,
    pub(crate) run: RunId,
    /// Tells this worker from an earlier one on the same run.
    pub(crate) number: u64,
    pub(crate) mail: mpsc::Receiver<Mail>,
    pub(crate) look: Arc<Look>,
    /// The run was given to this process anew: what this worker held counts for nothing, and another one goes on.
    pub(crate) claimed: Option<Box<Claimed>>,
}

/// How a worker comes to its run.
pub(crate) enum Entry {
    Claim,
    Claimed(Box<Claimed>),
    /// It was created here, in the commit that also started it.
    Created(Box<Newborn>),
}

pub(crate) struct Newborn {
    pub(crate) lease: Lease,
    pub(crate) run: Run,
    pub(crate) control: Arc<Control>,
    pub(crate) version: u64,
    pub(crate) pinned: Arc<Pinned>,
    /// With every event that is stored.
    pub(crate) history: Option<History>,
    /// Its first events are published.
    pub(crate) feed: Arc<RunFeed>,
}

/// Why a worker leaves its run.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Somebody else holds the run, or it is over.
    Gone,
    Trouble(Trouble),
    /// A mistake of ours. The run stays as it is until somebody interrupts it, and nobody else gets it from this process.
    Broken(String),
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Fenced | Refused::NotFound => Self::Gone,
            Refused::Trouble(trouble) => Self::Trouble(trouble),
            Refused::Behind | Refused::Stale | Refused::Busy(_) => Self::Broken(refused.to_string()),
            Refused::Impossible(why) => Self::Broken(why),
        }
    }
}

pub(crate) struct Worker {
    node: Arc<Node>,
    lease: Lease,
    pinned: Arc<Pinned>,
    feed: HeldFeed,
    /// The worker's own copy. It runs ahead of the store within a pass, and is loaded again where the store refuses.
    run: Run,
    committed: Arc<Control>,
    /// All that was accepted by `version` and is not heard.
    inbox: Vec<(Ticket, Item)>,
    version: u64,
    holds_thread: bool,
    begins_after: Option<MessageId>,
    doubt_at: Timestamp,
    /// Everything that was accepted before the take-over has been heard.
    drained: bool,
    /// Its first events are stored, and nothing has been said to it since.
    is_newborn: bool,
    /// The last pass would have overtaken an accepted answer: the inbox is heard first.
    hurry: bool,
    /// There is no place for this run to execute in.
    only_hears: bool,
    /// What tasks came back with and is not stored.
    unsaid: Vec<NewsBody>,
    directs: Vec<Direct>,
    unsure: Option<Unsure>,
    after_tools: Vec<HeardAfter>,
    under_way: Vec<UnderWay>,
    last_task: u64,
    news_in: mpsc::Sender<News>,
    news: mpsc::Receiver<News>,
    /// Phases before the model call of this step and attempt whose hooks had nothing to say.
    silent: (u32, u32, Vec<Phase>),
    history: Option<History>,
    /// Of open calls, by the event that has them.
    arguments: BTreeMap<u64, Arguments>,
    state: Option<Arc<[StateRow]>>,
    floor: Floor,
    /// Of plugins whose answers are not stored yet.
    turns: Vec<Turn>,
    /// The definition of each tool as the gate saw it.
    gated: BTreeMap<CallId, Digest>,
    measured: Measured,
}

/// News that may wait: every task sends one.
const NEWS_MAX: usize = 256;

pub(crate) async fn work(mut desk: Desk, entry: Entry, mut place: Place) {
    let node = desk.node.clone();
    let stop = match take(&mut desk, &mut place, entry).await {
        Ok(Some(worker)) => worker.work(&mut desk, &mut place).await,
        Ok(None) => Stop::Gone,
        Err(refused) => refused.into(),
    };
    let parting = match stop {
        Stop::Gone => Parting::Done,
        Stop::Trouble(trouble) => {
            tracing::error!(run = %desk.run, %trouble, "the run cannot be loaded");
            Parting::NotLoaded
        }
        Stop::Broken(why) => {
            tracing::error!(run = %desk.run, why, "the run cannot be claimed");
            Parting::NotLoaded
        }
    };
    node.part(&mut desk, place, parting);
}

impl Worker {
    fn of(node: &Arc<Node>, taken: Taken, pinned: Arc<Pinned>) -> Self {
        let feed = node.feeds.of(&taken.lease.run);
        Self::with_feed(node, taken, pinned, feed)
    }

    fn with_feed(node: &Arc<Node>, taken: Taken, pinned: Arc<Pinned>, feed: Arc<RunFeed>) -> Self {
        let Taken { lease, loaded, doubt_at } = taken;
        let Loaded { control, inbox, version, holds_thread, begins_after } = loaded;
        let committed = Arc::new(control.clone());
        // Somebody else may have gone on with the run meanwhile.
        let shelved = node.shelf.take(&lease.tenant, &lease.run);
        let history = shelved.filter(|history| history.seq() == control.seq);
        let drained = node.unbegun.take(&lease, control.seq);
        let (news_in, news) = mpsc::channel(NEWS_MAX);
        Self {
            feed: HeldFeed::new(feed, node.store.is_shared()),
            node: node.clone(),
            lease,
            run: Run::new(pinned.revision.clone(), control),
            pinned,
            committed,
            inbox,
            version,
            holds_thread,
            begins_after,
            doubt_at,
            drained,
            is_newborn: false,
            hurry: false,
            only_hears: false,
            unsaid: Vec::new(),
            directs: Vec::new(),
            unsure: None,
            after_tools: Vec::new(),
            under_way: Vec::new(),
            last_task: 0,
            news_in,
            news,
            silent: (0, 0, Vec::new()),
            history,
            arguments: BTreeMap::new(),
            state: None,
            floor: Floor::new(),
            turns: Vec::new(),
            gated: BTreeMap::new(),
            measured: Measured::default(),
        }
    }

    /// There is nothing to take over: nobody held the run before.
    fn born(node: &Arc<Node>, newborn: Newborn) -> Self {
        let Newborn { lease, run, control, version, pinned, history, feed } = newborn;
        let loaded = Loaded {
            control: run.control,
            inbox: Vec::new(),
            version,
            holds_thread: true,
            begins_after: None,
        };
        let doubt_at = Timestamp::ZERO;
        let mut worker = Self::with_feed(node, Taken { lease, loaded, doubt_at }, pinned, feed);
        worker.measured = Measured::born(&control);
        worker.committed = control;
        (worker.drained, worker.is_newborn) = (true, true);
        worker.history = history;
        worker
    }

    async fn work(mut self, desk: &mut Desk, place: &mut Place) -> Stop {
        match self.go_on(desk, place).await {
            Stop::Broken(why) => self.stand_still(desk, place, &why).await,
            stop @ (Stop::Gone | Stop::Trouble(_)) => stop,
        }
    }

    async fn go_on(&mut self, desk: &mut Desk, place: &mut Place) -> Stop {
        let mut created = mem::take(&mut self.is_newborn);
        loop {
            self.only_hears = place.is_spare;
            self.open_all(desk);
            if desk.claimed.is_some() {
                return Stop::Gone;
            }
            let was_queued = self.committed.status == RunStatus::Queued;
            let passed = if created { Ok(()) } else { self.pass(desk).await };
            created = false;
            let settled = match passed {
                Ok(()) if self.run.control.ended().is_some() => {
                    self.stop_all();
                    if !was_queued {
                        self.ask_behind_the_end();
                    }
                    Err(Stop::Gone)
                }
                Ok(()) if place.is_spare => Ok(()),
                Ok(()) => self.reconcile().await,
                Err(stop) => Err(stop),
            };
            let parked = match settled {
                Ok(()) if place.is_spare => self.step_aside(desk, place).await,
                Ok(()) => self.let_go(desk).await,
                Err(stop) => Err(stop),
            };
            match parked {
                Ok(true) => return Stop::Gone,
                Ok(false) => self.wait(desk).await,
                Err(Stop::Trouble(trouble)) => {
                    if let Err(stop) = self.wait_out(desk, place, &trouble).await {
                        return stop;
                    }
                }
                Err(stop) => return stop,
            }
        }
    }

    /// A run with nothing to do leaves memory. False while there is something to do.
    async fn let_go(&mut self, desk: &mut Desk) -> Result<bool, Stop> {
        self.open_all(desk);
        let resting = match &self.run.control.status {
            RunStatus::Waiting(_) => true,
            RunStatus::Queued => !self.holds_thread,
            RunStatus::Running | RunStatus::Interrupting | RunStatus::Done(_) => false,
        };
        let now = self.node.clock.now();
        let deadline = self.run.next_deadline().map(|deadline| deadline.at);
        let busy = !self.under_way.is_empty() || !self.unsaid.is_empty() || !self.directs.is_empty();
        if !resting || busy || deadline.is_some_and(|at| at <= now) {
            return Ok(false);
        }
        if self.node.store.release(&self.lease).await? {
            if let Some(at) = deadline {
                self.node.due(at);
            }
            if let Some(history) = self.history.take() {
                self.node.shelf.put(&self.lease.tenant, &self.lease.run, history);
            }
            return Ok(true);
        }
        self.read_inbox().await?;
        // What waits there may have to stay: then the run stays too.
        Ok(false)
    }

    /// Until a task comes back, somebody brings something, the inbox is rung, or the deadline comes.
    async fn wait(&mut self, desk: &mut Desk) {
        if self.something_to_hear() {
            return;
        }
        let deadline = self.run.next_deadline().map(|deadline| deadline.at);
        let clock = self.node.clock.clone();
        let due = async move {
            match deadline {
                Some(at) => clock.sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(news) = self.news.recv() => self.hear_of(news),
            Some(mail) = desk.mail.recv() => self.open(desk, mail),
            () = desk.look.rung() => {}
            () = due => {}
        }
        // What has become ready at the same moment shares the commit; nothing is waited for.
        tokio::task::yield_now().await;
        while let Ok(news) = self.news.try_recv() {
            self.hear_of(news);
        }
    }

    fn open_all(&mut self, desk: &mut Desk) {
        while let Ok(mail) = desk.mail.try_recv() {
            self.open(desk, mail);
        }
    }

    /// Rows that can be heard at this moment, and results that were not stored, are not waited for.
    fn something_to_hear(&self) -> bool {
        let items: Vec<Item> = self.inbox.iter().map(|(_, item)| item.clone()).collect();
        !self.unsaid.is_empty()
            || !self.directs.is_empty()
            || !machine::inbox::drain(&self.run.control, &items, self.hurry).is_empty()
    }

    fn hear_of(&mut self, news: News) {
        let Some(task) = self.under_way.iter_mut().find(|task| task.number == news.task) else { return };
        task.finished = true;
        let Brought { body, turn } = news.brought;
        self.turns.extend(turn);
        // The task asks its phases in order and stops at the first that says something.
        if let NewsBody::Said(said) = &body
            && let Input::PhaseAnswered { phase: said, .. } = &**said
            && let Effect::CallModel { ask_first, .. } = &task.effect
        {
            self.silent.2.extend(ask_first.iter().copied().take_while(|phase| phase != said));
        }
        match body {
            NewsBody::After { call, status, hooks } => {
                self.after_tools.push(HeardAfter { call, status, hooks, fresh: true });
            }
            body @ (NewsBody::Said(_) | NewsBody::Gate { .. }) => self.unsaid.push(body),
        }
    }

    fn open(&mut self, desk: &mut Desk, mail: Mail) {
        match mail {
            Mail::Direct(direct) => self.directs.push(*direct),
            Mail::Claimed(claimed) => desk.claimed = Some(claimed),
        }
    }

    async fn read_inbox(&mut self) -> Result<(), Stop> {
        let loaded = self.node.store.load(&self.lease).await?;
        if loaded.control.seq != self.committed.seq {
            self.adopt(loaded);
            return Ok(());
        }
        self.see(loaded.inbox, loaded.version);
        self.holds_thread = loaded.holds_thread;
        self.begins_after = loaded.begins_after;
        Ok(())
    }

    /// Throws the copy away and loads what is stored.
    async fn reload(&mut self) -> Result<(), Stop> {
        match self.node.store.load(&self.lease).await {
            Ok(loaded) => self.adopt(loaded),
            Err(refused) => {
                // It may have ended in a commit of which nobody heard.
                self.feed.forget();
                self.node.later();
                self.node.approvals.changed(&self.lease.tenant, &self.lease.run);
                return Err(refused.into());
            }
        }
        Ok(())
    }

    fn adopt(&mut self, loaded: Loaded) {
        if loaded.control.seq != self.committed.seq {
            // A commit of which nobody heard is there after all, and may have ended the run or woken others.
            self.feed.forget();
            self.node.later();
            self.node.approvals.changed(&self.lease.tenant, &self.lease.run);
            self.history = None;
            self.state = None;
        }
        // Such a commit had the take-over in it: nothing is lost that this worker did not start.
        self.drained |= loaded.control.seq > self.committed.seq;
        self.committed = Arc::new(loaded.control.clone());
        self.run.control = loaded.control;
        self.see(loaded.inbox, loaded.version);
        self.holds_thread = loaded.holds_thread;
        self.begins_after = loaded.begins_after;
        self.after_tools.iter_mut().for_each(|heard| heard.fresh = true);
    }

    fn see(&mut self, inbox: Vec<(Ticket, Item)>, version: u64) {
        self.inbox = inbox;
        self.version = version;
    }

    /// Throws the copy away and begins again from what is stored and was seen.
    fn begin_again(&mut self) {
        self.run.control = (*self.committed).clone();
        self.after_tools.iter_mut().for_each(|heard| heard.fresh = true);
    }

    /// One event of the run. One that the state speaks of and that is not there is lost, not gone.
    async fn event(&self, seq: u64) -> Result<Arc<Event>, Stop> {
        match self.node.store.event(&self.lease, seq).await {
            Ok(event) => Ok(event),
            Err(Refused::NotFound) => {
                Err(Stop::Trouble(Trouble::Corrupt(format!("event {seq} is not in the log"))))
            }
            Err(refused) => Err(refused.into()),
        }
    }

    fn not_before(&self, at: Timestamp) -> Option<NotBefore> {
        NotBefore::new(at, self.node.clock.now(), self.committed.at)
    }

    fn phases(&self) -> PhaseSet {
        self.pinned.revision.phases
    }
}
