//! People: they post, decide, repeat themselves, interrupt and watch, concurrently and at any time.

use std::sync::Arc;
use std::time::Duration;

use engine::Engine;
use engine::deciding::{Answer, Cancellation, Decide};
use engine::feed::{FeedItem, Subscription};
use engine::posting::{Message, OnBusy, PostError};
use engine::store::{StoreError, Tenant};
use machine::event::{Fact, InterruptCause};
use machine::id::{Digest, MessageId, Principal, RunId};
use machine::inbox::{Item, Refusal, Verdict};
use machine::projection_rows::PublicRunStatus;
use machine::status::CallStatus;

use super::context::{Life, WorldContext};
use super::wording;
use super::world::EngineWorld;
use crate::judge::invariant::{Invariant, Violation, breach, ensure};
use crate::play::names;
use crate::world::{people, setup};

const RUNS_MAX: usize = 12;
const THREADS: [&str; 2] = ["t1", "t2"];
/// How long a refused watcher waits before it tries again.
const WATCH_AGAIN_MS: u64 = 40;

/// The answer that a person expects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expects {
    Anything,
    /// The same decision was accepted before.
    Repeated,
    /// Another decision was accepted under the same id.
    IdUsed,
}

impl EngineWorld {
    /// Draws and performs one action.
    pub(crate) async fn act(&mut self) {
        let temper = self.stage.book().temper;
        let weights = [
            12 + temper.setup.people,
            temper.setup.messages + 3,
            temper.setup.interrupts,
            3,
            3,
            4,
            temper.setup.configuration / 2,
            temper.crash,
            temper.hand_over,
            temper.drain,
        ];
        let mut chosen = self.stage.draw(|tape| tape.pick(weights.iter().sum()));
        let place = weights.iter().position(|weight| {
            let here = chosen < *weight;
            chosen = chosen.saturating_sub(*weight);
            here
        });
        if self.stage.book().runs.is_empty() {
            self.post();
            return;
        }
        match place {
            None | Some(0) => self.decide(),
            Some(1) => self.post(),
            Some(2) => self.interrupt(),
            Some(3) => self.decide_early(),
            Some(4) => self.repeat(),
            Some(5) => self.watch(),
            Some(6) => self.reconfigure().await,
            Some(7) => self.lose_process(),
            Some(8) => self.hand_over().await,
            Some(_) => self.drain().await,
        }
    }

    /// A client talks to the running process, and waits for the answer in its own task.
    pub(super) fn send<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        work: impl FnOnce(Arc<WorldContext>, Engine, Arc<Life>) -> F,
    ) {
        let stage = self.stage.clone();
        if let Some(process) = &mut self.process {
            let task = tokio::spawn(work(stage, process.engine.clone(), process.life.clone()));
            process.clients.push(task);
        }
    }

    fn post(&mut self) {
        if self.stage.book().runs.len() >= RUNS_MAX {
            return;
        }
        self.message_count += 1;
        let message = self.draw_message(self.message_count);
        let (watches, gives_leave, passes) =
            self.stage.draw(|tape| (tape.chance(50), tape.chance(6), tape.chance(12)));
        if passes {
            self.post_beside_a_deletion(message);
            return;
        }
        self.send(move |stage, engine, _| async move {
            if let Some(thread) = message.thread.id().filter(|_| gives_leave) {
                // The thread may not exist yet.
                let _ = engine.auto_approve(&message.tenant, thread, true, &message.by.clone().into()).await;
            }
            let words = format!("{} writes to {:?}", message.by, message.thread);
            stage.tell(|| format!("{words}, if busy {:?}", message.on_busy));
            let posted = engine.post(message).await;
            stage.count("message", answer_name(&posted));
            stage.tell(|| format!("{words}: {posted:?}"));
            if let Err(PostError::Store(refused)) = &posted {
                stage.check(expected(refused, &words));
            }
            let Ok(posted) = posted else { return };
            let known = stage.book().of(&posted.run).map(|_| ());
            stage.check(known);
            if watches {
                watch(&stage, engine.subscribe(&Tenant::default(), &posted.run, 0), &posted.run, 0).await;
            }
        });
    }

    fn draw_message(&self, number: u64) -> Message {
        let mut book = self.stage.book();
        let thread = book.tape.among(THREADS);
        let earlier = if book.tape.chance(12) { some_message(&mut book, thread) } else { None };
        if earlier.is_some() {
            book.tally.count("message", "begins after an earlier one");
        }
        let tape = &mut book.tape;
        let mut message = Message::to("desk", "please").on_thread(thread);
        // Sometimes a person sends the same message twice.
        let number = if tape.chance(6) { number.saturating_sub(1).max(1) } else { number };
        message.message_id = Some(MessageId::from(format!("msg_{number}")));
        message.after = earlier;
        message.on_busy = tape.among([
            None,
            Some(OnBusy::Enqueue),
            Some(OnBusy::Interrupt),
            Some(OnBusy::Reject),
            Some(OnBusy::Enqueue),
        ]);
        message.policy = setup::draw_request(tape);
        message.by = people::somebody(tape);
        message.may_approve = tape.chance(60);
        message
    }

    fn decide(&mut self) {
        self.decision_count += 1;
        let Some((run, decide)) = self.draw_decision(self.decision_count) else { return };
        self.stage.book().given.push(decide.clone());
        // Two people decide at once, and one of them is too late.
        if self.stage.draw(|tape| tape.chance(10)) {
            self.decision_count += 1;
            let mut other = decide.clone();
            other.by = Principal::from(format!("hasty-{}", self.decision_count));
            other.id = None;
            self.send_decision(run.clone(), other, Expects::Anything);
        }
        self.send_decision(run, decide, Expects::Anything);
    }

    fn send_decision(&mut self, run: RunId, decide: Decide, expects: Expects) {
        self.send(move |stage, engine, _| async move {
            let name = stage.book().name(&run);
            let words = format!("{} decides on call {} of {name}", decide.by, decide.call);
            stage.tell(|| format!("{words}: {:?}", decide.answer));
            let answer = engine.decide(decide.clone()).await;
            stage.tell(|| format!("{words}: {answer:?}"));
            let verdict = match answer {
                Ok(verdict) => verdict,
                Err(refused) => {
                    stage.count("decision", "no answer");
                    stage.check(expected(&refused, &words));
                    return;
                }
            };
            stage.count("decision", names::verdict(&verdict));
            let stored = stage.book().check_told(&decide, &verdict);
            stage.check(stored);
            let right = match expects {
                Expects::Anything => true,
                Expects::Repeated => verdict == Verdict::AlreadyApplied,
                Expects::IdUsed => verdict == Verdict::Refused(Refusal::IdUsed),
            };
            stage.check(ensure(right, Invariant::VerdictIsRight, || {
                format!("{words} again, and receives {verdict:?}")
            }));
        });
    }

    /// A decision about any held call, mostly a valid one.
    fn draw_decision(&self, number: u64) -> Option<(RunId, Decide)> {
        let now = self.stage.now();
        let mut book = self.stage.book();
        let open: Vec<(usize, usize)> = book
            .runs
            .iter()
            .enumerate()
            .flat_map(|(run, known)| {
                let held = |call: &crate::judge::ledger::CallLedger| call.open.is_some();
                known
                    .ledger
                    .calls
                    .iter()
                    .enumerate()
                    .filter(move |(_, call)| held(call))
                    .map(move |(place, _)| (run, place))
            })
            .collect();
        let (run, place) = book.tape.one_of(&open)?;
        let id = book.runs[run].id.clone();
        let call = book.runs[run].ledger.calls[place].clone();
        let open = call.open.clone()?;
        let written = people::draw_decision(&mut book.tape, &call, &open, None, now, number);
        let mut decide = wording::decide(&id, &written.decision);
        // The unique name makes the decider findable in the log.
        decide.by = Principal::from(format!("{}-{number}", decide.by));
        if book.tape.chance(30) {
            decide.suspension = None;
        }
        Some((id, decide))
    }

    fn decide_early(&mut self) {
        self.decision_count += 1;
        let number = self.decision_count;
        let Some((run, decide, digest)) = self.draw_early(number) else { return };
        self.send(move |stage, engine, _| async move {
            let name = stage.book().name(&run);
            let words = format!("{} decides early on call {} of {name}", decide.by, decide.call);
            let answer = engine.decide_early(decide, digest).await;
            stage.tell(|| format!("{words}: {answer:?}"));
            match answer {
                Ok(verdict) => stage.count("early decision", names::verdict(&verdict)),
                Err(refused) => stage.check(expected(&refused, &words)),
            }
        });
    }

    fn draw_early(&self, number: u64) -> Option<(RunId, Decide, Digest)> {
        let now = self.stage.now();
        let mut book = self.stage.book();
        let under_way: Vec<(usize, usize)> = book
            .runs
            .iter()
            .enumerate()
            .flat_map(|(run, known)| {
                let calls = known.ledger.calls.iter().enumerate();
                calls.filter(|(_, call)| call.status == CallStatus::New).map(move |(place, _)| (run, place))
            })
            .collect();
        let (run, place) = book.tape.one_of(&under_way)?;
        let id = book.runs[run].id.clone();
        let call = book.runs[run].ledger.calls[place].clone();
        let decision = people::draw_early(&mut book.tape, &call, None, now, number);
        let mut decide = wording::decide(&id, &decision);
        decide.by = Principal::from(format!("{}-{number}", decide.by));
        Some((id, decide, call.arguments.digest()))
    }

    /// Resends a decision, or sends another one under the same id.
    fn repeat(&mut self) {
        let mut book = self.stage.book();
        let with_id: Vec<usize> =
            (0..book.given.len()).filter(|place| book.given[*place].id.is_some()).collect();
        let Some(place) = book.tape.one_of(&with_id) else { return };
        let mut decide = book.given[place].clone();
        let same = book.tape.chance(70);
        let is_stored = book.is_remembered(&decide);
        drop(book);
        if !same {
            self.decision_count += 1;
            let other = format!("other-{}", self.decision_count);
            decide.by = Principal::from(other.as_str());
            decide.answer = Answer::Cancel(Cancellation { reason: Some(other), ..Cancellation::default() });
        }
        let expects = match (is_stored, same) {
            (false, _) => Expects::Anything,
            (true, true) => Expects::Repeated,
            (true, false) => Expects::IdUsed,
        };
        self.send_decision(decide.run.clone(), decide, expects);
    }

    fn interrupt(&mut self) {
        let Some(run) = self.some_run() else { return };
        let by = self.stage.draw(people::somebody);
        let elsewhere = self.stage.draw(|tape| tape.chance(40));
        let ring_after = self.stage.draw(|tape| tape.among([0, 5, 40, 300]));
        self.send(move |stage, engine, _| async move {
            let words = format!("{by} interrupts {}", stage.book().name(&run));
            if elsewhere {
                interrupt_elsewhere(&stage, &run, &by);
                // A notification from another process takes a while.
                tokio::time::sleep(Duration::from_millis(ring_after)).await;
            }
            let answer = engine.interrupt(&Tenant::default(), &run, &by).await;
            stage.tell(|| format!("{words}: {answer:?}"));
            match answer {
                Ok(verdict) => stage.count("interrupt", names::verdict(&verdict)),
                Err(refused) => stage.check(expected(&refused, &words)),
            }
        });
    }

    fn watch(&mut self) {
        let Some(run) = self.some_run() else { return };
        let last = {
            let mut book = self.stage.book();
            let seq = book.of(&run).map_or(0, |known| known.ledger.seq);
            if book.tape.chance(50) { 0 } else { seq }
        };
        self.send(move |stage, engine, _| async move {
            watch(&stage, engine.subscribe(&Tenant::default(), &run, last), &run, last).await;
        });
    }

    fn some_run(&self) -> Option<RunId> {
        let mut book = self.stage.book();
        let count = book.runs.len();
        let place = if count == 0 { return None } else { book.tape.pick(count) };
        Some(book.runs[place].id.clone())
    }
}

/// Another process accepts the interrupt, so the worker of the run here does not know of it.
fn interrupt_elsewhere(stage: &WorldContext, run: &RunId, by: &Principal) {
    let item = Item::Interrupt { cause: InterruptCause::Person(by.clone()) };
    let told = stage.disk.ask(None, |store| store.submit(&Tenant::default(), run, item.clone()));
    if let Ok(verdict) = told {
        let now = stage.now();
        stage.book().submitted(run, &item, &verdict, now);
        stage.count("interrupt at another process", names::verdict(&verdict));
    }
}

/// Reads everything that is shown of a run, to its end.
async fn watch(stage: &WorldContext, mut watched: Subscription, run: &RunId, after: u64) {
    let mut last = after;
    loop {
        match watched.next().await {
            None => {
                let checked = stage.book().watched(run, last);
                stage.check(checked);
                return;
            }
            Some(Ok(FeedItem::Event(committed))) => {
                let checked = stage.book().shown(run, last, &committed.event);
                stage.check(checked);
                last = committed.event.seq;
            }
            Some(Ok(FeedItem::Unreadable(event))) => {
                let what = format!("event {} cannot be decoded", event.seq);
                stage.check(breach(Invariant::EventsSurviveStorage, what));
                last = event.seq;
            }
            Some(Ok(FeedItem::Live(_))) => {}
            Some(Err(refused)) => {
                stage.check(expected(&refused, "a client watches"));
                tokio::time::sleep(Duration::from_millis(WATCH_AGAIN_MS)).await;
            }
        }
    }
}

/// The only store error that callers of the engine may see is a failure.
pub(super) fn expected(refused: &StoreError, who: &str) -> Result<(), Violation> {
    let trouble = match refused {
        StoreError::Failed(_) => true,
        StoreError::Fenced
        | StoreError::Behind
        | StoreError::Stale
        | StoreError::Busy(_)
        | StoreError::Impossible(_)
        | StoreError::NotFound => false,
    };
    ensure(trouble, Invariant::NothingIsBroken, || format!("{who}, and receives the error: {refused}"))
}

fn some_message(book: &mut super::book::Book, thread: &str) -> Option<MessageId> {
    let said: Vec<(usize, usize)> = book
        .runs
        .iter()
        .enumerate()
        .filter(|(_, known)| known.thread.as_str() == thread)
        .flat_map(|(run, known)| {
            let messages = known.log.iter().enumerate();
            messages
                .filter(|(_, event)| matches!(event.fact, Fact::MessageAdded(_)))
                .map(move |(place, _)| (run, place))
        })
        .collect();
    let (run, place) = book.tape.one_of(&said)?;
    let Fact::MessageAdded(message) = &book.runs[run].log[place].fact else { return None };
    Some(message.id().clone())
}

pub(super) fn answer_name(posted: &Result<engine::posting::Posted, PostError>) -> &'static str {
    match posted {
        Ok(posted) if posted.status == PublicRunStatus::Queued => "queued",
        Ok(_) => "started a run",
        Err(refused) => refusal_name(refused),
    }
}

fn refusal_name(refused: &PostError) -> &'static str {
    if matches!(refused, PostError::Busy(_)) {
        "refused as busy"
    } else if matches!(refused, PostError::Loosening(_)) {
        "refused as loosening"
    } else if matches!(refused, PostError::MessageIdTaken(_)) {
        "refused as its id is taken"
    } else if matches!(refused, PostError::NoSuchThread(_)) {
        "refused as its thread is gone"
    } else if matches!(refused, PostError::Store(_) | PostError::Draining) {
        "no answer"
    } else {
        "refused otherwise"
    }
}
