//! Records which commits were sent to a store and which it acknowledged, to check what must be found later.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::store::{
    ApprovalFilter, Claimed, CommittedEvent, Created, Loaded, Page, RunFilter, RunView, StoreError,
    SuspensionView, decoded,
};
use machine::decision::Decision;
use machine::event::{Fact, RunRequest};
use machine::fold;
use machine::id::{DecisionId, RunId, ThreadId};
use machine::inbox::Item;
use machine::policy::OnBusy;
use machine::projection_rows::ApprovalStatus;
use machine::suspension::SuspensionKind;

use crate::disk::{Disk, Op, Part};
use crate::fixture::World;
use crate::worker::{Worker, creation};

/// An acknowledged write, which every later state of the file must contain.
#[derive(Clone, Debug)]
pub(crate) enum Promise {
    Thread(ThreadId),
    /// The log of the run has at least `seq` events.
    Log {
        run: RunId,
        seq: u64,
    },
    Decision {
        run: RunId,
        id: DecisionId,
        decision: Box<Decision>,
    },
    Interrupt {
        run: RunId,
    },
}

/// A commit that was sent, whether or not it was acknowledged.
#[derive(Clone, Debug)]
struct Sent {
    run: RunId,
    seq: u64,
    /// Number of promises made before this commit was sent. If the commit is found, these promises must hold too.
    after: usize,
}

#[derive(Default)]
struct Book {
    promises: Vec<Promise>,
    /// Length of the log file when each promise was made.
    log_bytes: Vec<usize>,
    sent: Vec<Sent>,
}

/// Shared by all writers of one store.
#[derive(Clone)]
pub(crate) struct Ledger {
    book: Arc<Mutex<Book>>,
    disk: Arc<Disk>,
    log: PathBuf,
}

impl Ledger {
    pub(crate) fn new(disk: Arc<Disk>, main: &Path) -> Self {
        Self { book: Arc::default(), disk, log: Part::Log.path(main) }
    }

    /// The same promises, for the next process that works with the file.
    pub(crate) fn on(&self, disk: Arc<Disk>, main: &Path) -> Self {
        Self { book: self.book.clone(), disk, log: Part::Log.path(main) }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn send(&self, run: &RunId, seq: u64) {
        let mut book = self.book();
        let after = book.promises.len();
        book.sent.push(Sent { run: run.clone(), seq, after });
    }

    pub(crate) fn promised(&self, promise: Promise) {
        let mut book = self.book();
        book.promises.push(promise);
        book.log_bytes.push(fs::metadata(&self.log).map_or(0, |log| log.len() as usize));
        self.disk.record(Op::Acknowledged { count: book.promises.len() });
    }

    /// Number of promises that had been made when the log had this length.
    pub(crate) fn promised_by(&self, log_bytes: usize) -> usize {
        self.book().log_bytes.iter().take_while(|bytes| **bytes <= log_bytes).count()
    }

    pub(crate) fn promise_count(&self) -> usize {
        self.book().promises.len()
    }

    /// The last acknowledged sequence number of the run's log.
    pub(crate) fn promised_seq(&self, wanted: &RunId) -> u64 {
        let seq = |promise: &Promise| match promise {
            Promise::Log { run, seq } if run == wanted => Some(*seq),
            _ => None,
        };
        self.book().promises.iter().filter_map(seq).max().unwrap_or(0)
    }

    /// Commits the worker's draft.
    pub(crate) async fn commit(&self, world: &World, worker: &mut Worker) -> Result<(), StoreError> {
        let (run, seq) = (worker.lease.run.clone(), worker.run.control.seq);
        // A commit without events leaves no trace in the log.
        if !worker.append().events.is_empty() {
            self.send(&run, seq);
        }
        worker.commit(world).await?;
        self.promised(Promise::Log { run, seq });
        Ok(())
    }

    pub(crate) async fn start(&self, world: &World, order: RunRequest) -> Result<Worker, StoreError> {
        let run = order.run_id.clone();
        let create = creation(world, order, OnBusy::Reject, true).await;
        let (control, seq) = ((*create.append.control).clone(), create.append.control.seq);
        self.send(&run, seq);
        let Created { lease, version, .. } = world.store.create(create).await?;
        let lease = lease.expect("the creator holds the run");
        self.promised(Promise::Log { run, seq });
        let (inbox, holds_thread, begins_after) = (Vec::new(), true, None);
        let loaded = Loaded { control, inbox, version, holds_thread, begins_after };
        Ok(Worker::from_claim(world, Claimed { lease, loaded: Ok(loaded), doubt_at: world.clock.now() }))
    }

    pub(crate) async fn submit(&self, world: &World, run: &RunId, item: Item) -> Result<(), StoreError> {
        let verdict = world.store.submit(&world.tenant, run, item.clone()).await?;
        assert!(verdict.is_taken(), "{verdict}");
        self.promised(match item {
            Item::Decision(decision) => Promise::Decision {
                run: run.clone(),
                id: decision.id.clone().expect("a decision of a recording has an id"),
                decision: Box::new(decision),
            },
            Item::Interrupt { .. } => Promise::Interrupt { run: run.clone() },
            other => panic!("no recording submits {other:?}"),
        });
        Ok(())
    }

    /// Reads the final logs, to compare earlier states with them.
    pub(crate) async fn close(&self, world: &World) -> Account {
        let mut logs = BTreeMap::new();
        for run in runs(world).await {
            logs.insert(run.id.clone(), log(world, &run.id).await);
        }
        let book = self.book();
        Account { promises: book.promises.clone(), sent: book.sent.clone(), logs }
    }
}

/// Everything that a recording sent, everything that was acknowledged, and the final logs.
pub(crate) struct Account {
    promises: Vec<Promise>,
    sent: Vec<Sent>,
    logs: BTreeMap<RunId, Vec<CommittedEvent>>,
}

impl Account {
    /// The store holds all of the first `promised` promises, and besides them only whole commits that were sent.
    pub(crate) async fn assert_kept(&self, world: &World, promised: usize) {
        let mut found = BTreeMap::new();
        for view in runs(world).await {
            found.insert(view.id.clone(), self.assert_whole(world, &view).await);
        }
        let there = |sent: &&Sent| found.get(&sent.run).is_some_and(|seq| *seq >= sent.seq);
        // If a commit is found, everything acknowledged before it was sent must be found too.
        let promised = self.sent.iter().filter(there).map(|sent| sent.after).fold(promised, usize::max);
        for promise in &self.promises[..promised] {
            self.assert_promise(world, promise, &found).await;
        }
    }

    /// The log has no gap and ends with a whole commit. State, messages and approvals match the log.
    async fn assert_whole(&self, world: &World, view: &RunView) -> u64 {
        let run = &view.id;
        let log = log(world, run).await;
        let whole = &self.logs[run];
        assert!(log.len() <= whole.len() && log[..] == whole[..log.len()], "{run} has a different log");
        let events: Vec<_> = log.iter().map(|committed| (*committed.event).clone()).collect();
        assert!(events.iter().map(|event| event.seq).eq(1..=log.len() as u64), "{run} has a gap");
        let folded = fold(&events).expect("a stored log can be folded");
        assert_eq!(Some(&folded), view.control.as_ref(), "{run}");
        let seq = view.control.as_ref().unwrap().seq;
        let ends: BTreeSet<u64> =
            self.sent.iter().filter(|sent| sent.run == *run).map(|sent| sent.seq).collect();
        // A child is created with one event, in the commit of its parent.
        let born = u64::from(view.control.as_ref().unwrap().parent.is_some());
        assert!(ends.contains(&seq) || seq == born, "{run} has half a commit: {seq} of {ends:?}");
        for event in &events {
            if let Fact::MessageAdded(message) = &event.fact {
                let place = world.store.message(&world.tenant, &view.thread, message.id()).await.unwrap();
                let place = place.unwrap_or_else(|| panic!("{run}: message {} is missing", message.id()));
                assert_eq!((&place.run, place.seq), (run, event.seq));
            }
            if let Fact::ChildStarted { run_id: child, .. } = &event.fact {
                assert!(world.store.run(&world.tenant, child).await.unwrap().is_some(), "{child} is missing");
            }
        }
        let filter = ApprovalFilter::changed(run, 0);
        let page = Page { cursor: None, limit: Page::LIMIT_MAX };
        let shown = world.store.approvals(&world.tenant, &filter, &page).await.unwrap().items;
        let is_open = |shown: &&SuspensionView| shown.answered || shown.status == ApprovalStatus::Pending;
        let open = shown.iter().filter(is_open).map(|shown| &shown.id);
        let held = view.control.as_ref().unwrap().calls.iter().filter_map(|call| call.suspension());
        let held = held.filter(|held| held.held.kind() != SuspensionKind::ChildRun).map(|held| &held.id);
        assert_eq!(open.collect::<BTreeSet<_>>(), held.collect::<BTreeSet<_>>(), "{run}");
        seq
    }

    async fn assert_promise(&self, world: &World, promise: &Promise, found: &BTreeMap<RunId, u64>) {
        let World { store, tenant, .. } = world;
        match promise {
            Promise::Thread(thread) => {
                let view = store.thread(tenant, thread).await.unwrap();
                assert!(view.created_at.is_some(), "thread {thread} is lost");
            }
            Promise::Log { run, seq } => {
                let there = found.get(run).copied().unwrap_or(0);
                assert!(
                    there >= *seq,
                    "{run} was acknowledged up to event {seq}, but its log ends at {there}"
                );
            }
            Promise::Decision { run, id, decision } => {
                let kept = store.decision(tenant, run, id).await.unwrap();
                assert_eq!(kept.as_ref(), Some(&**decision), "decision {id} of {run} is lost");
            }
            Promise::Interrupt { run } => {
                let view = store.run(tenant, run).await.unwrap();
                assert!(view.is_some_and(|view| view.interrupt_accepted), "the interrupt of {run} is lost");
            }
        }
    }
}

pub(crate) async fn runs(world: &World) -> Vec<RunView> {
    let page = Page { cursor: None, limit: Page::LIMIT_MAX };
    world.store.runs(&world.tenant, &RunFilter::default(), &page).await.unwrap().items
}

async fn log(world: &World, run: &RunId) -> Vec<CommittedEvent> {
    decoded(world.store.events(&world.tenant, run, 0, 100_000).await.unwrap()).unwrap()
}
