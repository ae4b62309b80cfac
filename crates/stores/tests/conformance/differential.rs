//! Random schedules, run against two stores: both give the same answers, and every read returns the same.

use std::fmt::Debug;
use std::sync::Arc;

use engine::store::{Appended, Claim, Claimed, Create, Loaded, StoreError, ThreadView};
use machine::decision::Decision;
use machine::event::InterruptCause;
use machine::id::{DecisionId, RunId, ThreadId};
use machine::inbox::Item;
use machine::policy::OnBusy;
use machine::projection_rows::PublicRunStatus;
use machine::thread::ThreadState;
use machine::{Control, Effect, Input, Timestamp};
use stores::memory::MemoryStore;

use crate::fixture::World;
use crate::snapshot::snapshot;
use crate::worker::{self, Worker, approve, creation, order, reject};

const STEPS: usize = 250;
const TOOLS: [&str; 6] = ["echo", "post", "transfer", "urgent", "pick_file", "researcher"];

/// The same choices for the same seed.
struct Choices(u64);

impl Choices {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

/// Two stores with the same past, and a worker in each for every run that is held.
struct StorePair {
    memory: World,
    other: World,
    workers: Vec<(Worker, Worker)>,
    runs: Vec<RunId>,
    choices: Choices,
}

#[track_caller]
fn same<T: PartialEq + Debug>(memory: T, other: T) -> T {
    assert_eq!(memory, other, "the stores differ");
    memory
}

/// Drops the text of `Impossible`: each store words it differently.
fn plain<T>(result: Result<T, StoreError>) -> Result<T, StoreError> {
    result.map_err(|refused| match refused {
        StoreError::Impossible(_) => StoreError::Impossible(String::new()),
        other => other,
    })
}

impl StorePair {
    fn new(other: World, seed: u64) -> Self {
        let theirs = other.clock.clone();
        let memory = MemoryStore::with_clock(Arc::new(move || theirs.now()));
        Self {
            memory: World::new(Arc::new(memory), other.clock.clone()),
            other,
            workers: Vec::new(),
            runs: Vec::new(),
            choices: Choices(seed),
        }
    }

    async fn step(&mut self) {
        match self.choices.below(13) {
            0 | 1 => self.create().await,
            2 => self.claim_next().await,
            3 => self.claim_one().await,
            4 | 5 => self.submit().await,
            6 | 7 => self.release().await,
            8 if self.choices.one_in(2) => self.interrupt().await,
            8 => self.pass_time().await,
            _ => self.work().await,
        }
    }

    async fn create(&mut self) {
        let thread = format!("thr_{}", self.choices.below(4));
        if self.choices.one_in(12) {
            let id = ThreadId::from(thread.as_str());
            let memory = self.memory.store.delete_thread(&self.memory.tenant, &id, &"tester".into()).await;
            same(memory, self.other.store.delete_thread(&self.other.tenant, &id, &"tester".into()).await)
                .ok();
            return;
        }
        // Sometimes a name that is already in use.
        let used = if self.choices.one_in(10) { self.any_run().await } else { None };
        let name = used.map_or_else(|| format!("run_{}", self.runs.len()), |(run, _)| run.to_string());
        let order = order(&thread, &name);
        let view = self.memory.store.thread(&self.memory.tenant, &order.thread_id).await.unwrap();
        let on_busy = match self.choices.below(6) {
            0 => OnBusy::Reject,
            1 | 2 => OnBusy::Interrupt,
            _ => OnBusy::Enqueue,
        };
        let starts = view.state == ThreadState::Free && self.choices.one_in(2);
        let memory = creation(&self.memory, order.clone(), on_busy, starts).await;
        let other = creation(&self.other, order.clone(), on_busy, starts).await;
        // Each store assigns its own thread numbers.
        same(&memory.seen, &ThreadView { row: memory.seen.row, ..other.seen.clone() });
        let control = (*memory.append.control).clone();
        let created = (create(&self.memory, memory).await, create(&self.other, other).await);
        let (Ok(memory), Ok(other)) = created else {
            same(created.0.map(|_| ()), created.1.map(|_| ())).unwrap_err();
            return;
        };
        same(&memory.admission, &other.admission);
        same(&memory.woken, &other.woken);
        let version = same(memory.version, other.version);
        self.runs.push(order.run_id);
        match (memory.lease, other.lease) {
            (Some(memory), Some(other)) => {
                same(memory.epoch, other.epoch);
                let claimed = |lease| {
                    let (control, inbox) = (control.clone(), Vec::new());
                    let loaded = Loaded { control, inbox, version, holds_thread: true, begins_after: None };
                    Claimed { lease, loaded: Ok(loaded), doubt_at: Timestamp::ZERO }
                };
                self.workers.push((
                    Worker::from_claim(&self.memory, claimed(memory)),
                    Worker::from_claim(&self.other, claimed(other)),
                ));
            }
            (memory, other) => {
                same(memory, other);
            }
        }
    }

    async fn claim_next(&mut self) {
        // All of them, because the stores queue a run that was released unchanged at different positions.
        self.claim(Claim::Next { limit: 1_000, skip_tenant: None }).await;
    }

    async fn claim_one(&mut self) {
        if self.runs.is_empty() {
            return;
        }
        let run = self.runs[self.choices.below(self.runs.len())].clone();
        self.claim(Claim::Run { tenant: self.memory.tenant.clone(), run }).await;
    }

    async fn claim(&mut self, claim: Claim) {
        let mut memory = self.memory.store.claim(claim.clone()).await.unwrap();
        let mut other = self.other.store.claim(claim).await.unwrap();
        memory.sort_by_key(|claimed| claimed.lease.run.clone());
        other.sort_by_key(|claimed| claimed.lease.run.clone());
        let names = |claimed: &[Claimed]| claimed.iter().map(|one| one.lease.run.clone()).collect::<Vec<_>>();
        same(names(&memory), names(&other));
        for (memory, other) in memory.into_iter().zip(other) {
            same((&memory.lease.run, memory.lease.epoch), (&other.lease.run, other.lease.epoch));
            same(&memory.loaded.as_ref().unwrap().control, &other.loaded.as_ref().unwrap().control);
            let items =
                |inbox: &[(u64, Item)]| inbox.iter().map(|(_, item)| item.clone()).collect::<Vec<_>>();
            let (ours, theirs) = (memory.loaded.as_ref().unwrap(), other.loaded.as_ref().unwrap());
            same(items(&ours.inbox), items(&theirs.inbox));
            same(ours.version, theirs.version);
            same(ours.holds_thread, theirs.holds_thread);
            let after = same(ours.begins_after.clone(), theirs.begins_after.clone());
            same(memory.doubt_at, other.doubt_at);
            let starts = memory.loaded.as_ref().unwrap().holds_thread;
            let mut pair = (Worker::from_claim(&self.memory, memory), Worker::from_claim(&self.other, other));
            for worker in [&mut pair.0, &mut pair.1] {
                take_over(worker);
                if starts
                    && PublicRunStatus::from_status(&worker.run.control.status) == PublicRunStatus::Queued
                {
                    worker.apply_input(&Input::Start { after: after.clone() });
                }
            }
            self.workers.push(pair);
            if !self.choices.one_in(4) {
                self.commit(self.workers.len() - 1).await;
            }
        }
    }

    async fn commit(&mut self, index: usize) {
        let (memory, other) = &mut self.workers[index];
        let results = (memory.commit(&self.memory).await, other.commit(&self.other).await);
        match same(plain(results.0), plain(results.1)) {
            Ok(Appended { .. }) => {
                let ended = memory.run.control.status.ended();
                if ended {
                    self.workers.remove(index);
                }
            }
            Err(StoreError::Behind) => {
                memory.reload(&self.memory).await;
                other.reload(&self.other).await;
                memory.drain();
                other.drain();
                let again = (memory.commit(&self.memory).await, other.commit(&self.other).await);
                same(plain(again.0), plain(again.1)).unwrap();
                if memory.run.control.status.ended() {
                    self.workers.remove(index);
                }
            }
            // A call id that another run of the thread has used.
            Err(StoreError::Impossible(_)) => {
                memory.reload(&self.memory).await;
                other.reload(&self.other).await;
            }
            Err(other) => panic!("{other}"),
        }
    }

    async fn submit(&mut self) {
        let Some((run, control)) = self.run_with_calls().await else { return };
        let Some(call) = pick(&mut self.choices, &control.calls) else { return };
        let suspension = call.suspension().map_or_else(|| "none".into(), |open| open.id.clone());
        let id = self.choices.one_in(2).then(|| DecisionId::from(format!("d{}", self.choices.below(3))));
        let decision = Decision {
            id,
            call: call.id.clone(),
            suspension,
            by: "ana".into(),
            accepted_at: self.memory.clock.now(),
            definition_now: Some(worker::tool(call.tool.as_str()).definition),
            action: if self.choices.one_in(2) { approve() } else { reject() },
        };
        let item = match self.choices.below(4) {
            0 => Item::Early { decision, digest: call.arguments },
            1 => Item::LateAnswer {
                step: call.step,
                call: call.id.clone(),
                attempt: call.attempts,
                outcome: worker::success(),
            },
            _ => Item::Decision(decision),
        };
        self.submit_to_both(&run, item).await;
    }

    async fn interrupt(&mut self) {
        let Some((run, _)) = self.any_run().await else { return };
        self.submit_to_both(&run, Item::Interrupt { cause: InterruptCause::Person("bob".into()) }).await;
    }

    async fn submit_to_both(&mut self, run: &RunId, item: Item) {
        let memory = self.memory.store.submit(&self.memory.tenant, run, item.clone()).await;
        let other = self.other.store.submit(&self.other.tenant, run, item).await;
        assert!(same(memory, other).is_ok());
    }

    async fn any_run(&mut self) -> Option<(RunId, Control)> {
        let run = self.runs.get(self.choices.below(self.runs.len().max(1)))?.clone();
        let view = self.memory.store.run(&self.memory.tenant, &run).await.unwrap()?;
        Some((run, view.control?))
    }

    async fn run_with_calls(&mut self) -> Option<(RunId, Control)> {
        for _ in 0..20 {
            if let Some((run, control)) = self.any_run().await
                && !control.calls.is_empty()
                && (!control.status.ended() || self.choices.one_in(10))
            {
                return Some((run, control));
            }
        }
        None
    }

    async fn release(&mut self) {
        if self.workers.is_empty() {
            return;
        }
        let index = self.choices.below(self.workers.len());
        let (memory, other) = &self.workers[index];
        let memory = self.memory.store.release(&memory.lease).await;
        if same(memory, self.other.store.release(&other.lease).await).unwrap() {
            self.workers.remove(index);
        }
    }

    async fn pass_time(&mut self) {
        let steps = [0, 1, 1_000, 70_000];
        self.memory.clock.advance(steps[self.choices.below(steps.len())]);
        let wake: Option<Timestamp> = self.memory.store.next_wake().await.unwrap();
        same(wake, self.other.store.next_wake().await.unwrap());
    }

    /// One thing that a worker does with its run, mostly committed at once.
    async fn work(&mut self) {
        if self.workers.is_empty() {
            return;
        }
        let index = self.choices.below(self.workers.len());
        let control = self.workers[index].0.run.control.clone();
        if control.status.ended() {
            return self.commit(index).await;
        }
        let wanted = self.workers[index].0.run.wanted();
        let due = self.workers[index].0.run.next_deadline();
        if due.is_some_and(|deadline| deadline.at <= self.memory.clock.now()) {
            self.both(index, |worker| worker.apply_input(&Input::DeadlineReached));
        } else if wanted.iter().any(|effect| matches!(effect, Effect::CallModel { .. })) {
            if self.choices.one_in(4) {
                self.both(index, |worker| worker.finish_with("done"));
            } else {
                let tool = TOOLS[self.choices.below(TOOLS.len())];
                let other = TOOLS[self.choices.below(TOOLS.len())];
                let call = format!("call_{}", self.choices.below(60));
                let second = format!("{call}_b");
                self.both(index, |worker| worker.asks(&[(&call, tool), (&second, other)]));
            }
        } else if let Some(call) = control.calls.iter().find(|call| call.running_attempt().is_some()) {
            self.both(index, |worker| worker.succeeds(call.id.as_str()));
        } else if let Some(call) = control.calls.iter().find(|call| call.suspension().is_some())
            && tool_asks(call.tool.as_str())
        {
            let action = if self.choices.one_in(2) { approve() } else { reject() };
            let id = self.choices.one_in(3).then(|| format!("d{}", self.choices.below(3)));
            let decision = self.workers[index].0.decision(call.id.as_str(), id.as_deref(), action);
            self.both(index, |worker| worker.accept(Item::Decision(decision.clone())));
        } else if self.choices.one_in(6) {
            let cause = InterruptCause::Person("eve".into());
            self.both(index, |worker| worker.accept(Item::Interrupt { cause: cause.clone() }));
        } else {
            let (memory, other) = &mut self.workers[index];
            memory.reload(&self.memory).await;
            other.reload(&self.other).await;
            self.both(index, Worker::drain);
        }
        if !self.choices.one_in(5) {
            self.commit(index).await;
        }
    }

    fn both(&mut self, index: usize, mut work: impl FnMut(&mut Worker)) {
        let (memory, other) = &mut self.workers[index];
        work(memory);
        work(other);
        same(&memory.run.control, &other.run.control);
    }
}

async fn create(world: &World, create: Create) -> Result<engine::store::Created, StoreError> {
    plain(world.store.create(create).await)
}

fn pick<'c, T>(choices: &mut Choices, from: &'c [T]) -> Option<&'c T> {
    from.get(choices.below(from.len().max(1)))
}

/// Processes the inbox. If an interrupt was pending, the run has ended and accepts no further input.
fn take_over(worker: &mut Worker) {
    let (epoch, doubt_at) = (worker.lease.epoch, worker.now());
    worker.apply_input(&Input::LeaseAcquired { epoch, doubt_at });
    worker.drain();
    if !worker.run.control.status.ended() {
        worker.apply_input(&Input::InboxDrained);
    }
}

fn tool_asks(tool: &str) -> bool {
    matches!(tool, "transfer" | "urgent")
}

/// For the same random calls, a fresh store returns the same results and the same state as the memory store.
pub(crate) async fn assert_stores_agree(other: World, seed: u64) {
    let mut pair = StorePair::new(other, seed);
    for step in 0..STEPS {
        pair.step().await;
        if step % 10 == 0 {
            let memory = snapshot(&pair.memory, &[]).await;
            assert!(memory == snapshot(&pair.other, &[]).await, "seed {seed}, step {step}");
        }
    }
}
