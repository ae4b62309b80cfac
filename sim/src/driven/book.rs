//! A record of what was committed, built only from the store's commits, and the checks of each commit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use engine::deciding::Decide;
use engine::store::{Append, Claimed, Create, Created, Lease};
use machine::control::CONTROL_BYTES_MAX;
use machine::event::{Event, Fact, InterruptCause};
use machine::id::{CallId, Digest, MessageId, RunId, ThreadId};
use machine::inbox::Item;
use machine::revision::Revision;
use machine::suspension::SuspensionKind;
use machine::thread::Admission;
use machine::transcript::Transcript;
use machine::{Control, Input, Timestamp, event_codec, fold};
use serde_json::Value;

use super::accepted::Accepted;
use super::tally::Tally;
use super::trouble::EngineTrouble;
use crate::judge::ends::goes_past_interrupt;
use crate::judge::events::Cause;
use crate::judge::invariant::{Checked, Invariant, Violation, breach, ensure};
use crate::judge::ledger::RunLedger;
use crate::judge::model_input;
use crate::play::tape::Tape;
use crate::play::words;

pub struct Book {
    pub tape: Tape,
    pub(crate) temper: EngineTrouble,
    /// No more trouble: everything must come to its end.
    pub(crate) calm: bool,
    pub tally: Tally,
    pub violation: Option<Violation>,
    pub diary: Option<Vec<String>>,
    /// In order of creation.
    pub runs: Vec<RunBook>,
    by_id: BTreeMap<RunId, usize>,
    revisions: BTreeMap<Digest, Arc<Revision>>,
    /// The position of each message of a thread: its run and its event.
    messages: BTreeMap<(ThreadId, MessageId), (usize, u64)>,
    /// Threads that were deleted.
    pub(crate) gone: BTreeSet<ThreadId>,
    pub(crate) accepted: Vec<Accepted>,
    /// The decisions that people gave, kept so that they can be resent.
    pub(crate) given: Vec<Decide>,
    pub(crate) event_count: u64,
}

pub struct RunBook {
    pub id: RunId,
    pub thread: ThreadId,
    pub ledger: RunLedger,
    pub log: Vec<Arc<Event>>,
    pub(crate) folded: Control,
    /// The epoch of the current lease, if there is one.
    epoch: u64,
    leased: bool,
    /// Appends that were requested and have not returned: the worker may not know what is stored.
    pub(crate) in_flight: u32,
    /// The last append was committed, but the store answered its worker that it may not have been.
    pub(crate) uncertain: bool,
    pub(crate) transcript: Transcript,
    pub(crate) tool_starts: BTreeSet<(CallId, u32)>,
    pub(crate) model_starts: BTreeSet<(u32, u32)>,
    /// How often its end was delivered to its parent.
    pub(crate) end_deliveries: u32,
}

impl RunBook {
    /// Whether its worker may not know what is stored.
    pub(crate) const fn is_ahead_of_its_worker(&self) -> bool {
        self.in_flight > 0 || self.uncertain
    }
}

impl Book {
    pub(crate) fn new(tape: Tape, temper: EngineTrouble, tells: bool) -> Self {
        Self {
            tape,
            temper,
            calm: false,
            tally: Tally::default(),
            violation: None,
            diary: tells.then(Vec::new),
            runs: Vec::new(),
            by_id: BTreeMap::new(),
            revisions: BTreeMap::new(),
            messages: BTreeMap::new(),
            gone: BTreeSet::new(),
            accepted: Vec::new(),
            given: Vec::new(),
            event_count: 0,
        }
    }

    pub(crate) fn tell(&mut self, now: Timestamp, line: impl FnOnce() -> String) {
        if let Some(diary) = &mut self.diary {
            diary.push(format!("{now} {}", line()));
        }
    }

    pub(crate) fn find(&self, run: &RunId) -> Option<usize> {
        self.by_id.get(run).copied()
    }

    pub(crate) fn of(&self, run: &RunId) -> Checked<&RunBook> {
        match self.find(run).and_then(|index| self.runs.get(index)) {
            Some(run) => Ok(run),
            None => breach(Invariant::NothingStartsUnstored, format!("{run} does not exist")),
        }
    }

    /// The engine generates run ids, so stories number runs in order of creation.
    pub(crate) fn name(&self, run: &RunId) -> String {
        self.find(run).map_or_else(|| run.to_string(), |index| format!("run {}", index + 1))
    }

    /// Records the rules of a stored agent revision.
    pub(crate) fn know_revision(&mut self, digest: Digest, text: &str) -> Checked {
        let frozen: Option<Value> = serde_json::from_str(text).ok();
        let revision = frozen.and_then(|frozen| serde_json::from_value(frozen.get("revision")?.clone()).ok());
        let Some(revision) = revision else {
            return breach(Invariant::EventsSurviveStorage, format!("a revision cannot be read: {text}"));
        };
        self.revisions.insert(digest, Arc::new(revision));
        Ok(())
    }

    /// Another process has opened the store.
    pub(crate) fn void_all_leases(&mut self) {
        self.runs.iter_mut().for_each(|run| run.leased = false);
    }

    pub(crate) fn created(&mut self, create: &Create, created: &Created, now: Timestamp) -> Checked {
        let append = &create.append;
        let Some((first, rest)) = append.events.split_first() else {
            return breach(Invariant::SeqIsDense, "a run begins without an event");
        };
        if let Some(brought) = &create.inline_agent {
            self.know_revision(*brought.digest(), brought.text())?;
        }
        ensure(!self.gone.contains(&create.seen.id), Invariant::DeletedThreadsStayGone, || {
            format!("thread {} is back", create.seen.id)
        })?;
        let run = self.add(first, now)?;
        for event in rest {
            self.hear(run, event, now)?;
        }
        if let Some(lease) = &created.lease {
            self.runs[run].epoch = lease.epoch;
            self.runs[run].leased = true;
        }
        if created.admission == Admission::Supersede {
            self.supersede(run, created)?;
        }
        self.check_control(run, &append.control)
    }

    /// Every other unended run of the thread must be interrupted by now, each once.
    fn supersede(&mut self, by: usize, created: &Created) -> Checked {
        self.tally.count("run", "superseded");
        let item = Item::Interrupt { cause: InterruptCause::Superseded(self.runs[by].id.clone()) };
        for run in &created.woken {
            let known = self.find(run).is_some_and(|run| !self.is_interrupted(run));
            ensure(known, Invariant::LastMessageRuns, || format!("{run} is interrupted twice"))?;
            self.accept(run, &item);
        }
        let left = self.runs.iter().zip(0..).find(|(run, index)| {
            run.thread == self.runs[by].thread
                && *index != by
                && !run.ledger.ended()
                && !self.is_interrupted(*index)
        });
        ensure(left.is_none(), Invariant::LastMessageRuns, || {
            format!("run {} leaves {:?} of its thread", by + 1, left.map(|(run, _)| &run.id))
        })
    }

    fn is_interrupted(&self, run: usize) -> bool {
        self.accepted
            .iter()
            .any(|accepted| accepted.run == run && matches!(accepted.item, Item::Interrupt { .. }))
    }

    fn add(&mut self, first: &Arc<Event>, now: Timestamp) -> Checked<usize> {
        let Fact::RunQueued(order) = &first.fact else {
            return breach(Invariant::RunTransitionIsLegal, "a log begins with something else");
        };
        let Some(revision) = self.revisions.get(&order.revision).cloned() else {
            return breach(
                Invariant::NothingStartsUnstored,
                "a run is pinned to an agent that is not stored",
            );
        };
        let folded = match fold([&**first]) {
            Ok(folded) => folded,
            Err(impossible) => return breach(Invariant::NothingIsBroken, impossible.to_string()),
        };
        let index = self.runs.len();
        let fresh = self.by_id.insert(order.run_id.clone(), index).is_none();
        ensure(fresh, Invariant::NothingIsBroken, || format!("{} exists twice", order.run_id))?;
        if order.parent.is_some() {
            self.tally.count("run", "a child");
        }
        self.runs.push(RunBook {
            id: order.run_id.clone(),
            thread: order.thread_id.clone(),
            ledger: RunLedger::new(order, revision, first),
            log: vec![first.clone()],
            folded,
            epoch: 0,
            leased: false,
            in_flight: 0,
            uncertain: false,
            transcript: Transcript::default(),
            tool_starts: BTreeSet::new(),
            model_starts: BTreeSet::new(),
            end_deliveries: 0,
        });
        self.event_count += 1;
        self.tell(now, || format!("run {} is created: {:?}", index + 1, order.policy));
        Ok(index)
    }

    pub(crate) fn claimed(&mut self, claimed: &Claimed, now: Timestamp) -> Checked {
        let Some(run) = self.find(&claimed.lease.run) else {
            return breach(Invariant::NothingStartsUnstored, format!("{} does not exist", claimed.lease.run));
        };
        self.tell(now, || format!("run {} is claimed with epoch {}", run + 1, claimed.lease.epoch));
        let known = &mut self.runs[run];
        let free = !known.leased && claimed.lease.epoch > known.epoch && !known.ledger.ended();
        ensure(free, Invariant::StaleWorkerIsRefused, || {
            format!("run {} is given out while it is held or over", run + 1)
        })?;
        known.leased = true;
        known.uncertain = false;
        known.epoch = claimed.lease.epoch;
        let loaded = claimed.loaded.as_ref().map(|loaded| &loaded.control);
        ensure(loaded == Ok(&known.folded), Invariant::FoldIsControl, || {
            format!("loaded {loaded:?}\nfolded {:?}", known.folded)
        })
    }

    /// A worker reads what is stored.
    pub(crate) fn loaded(&mut self, run: &RunId) {
        if let Some(run) = self.find(run) {
            self.runs[run].uncertain = false;
        }
    }

    pub(crate) fn released(&mut self, lease: &Lease, released: bool, now: Timestamp) {
        if !released {
            self.tally.count("store", "release refused");
        }
        let Some(run) = self.find(&lease.run).filter(|_| released) else { return };
        self.tell(now, || format!("run {} is let go", run + 1));
        if self.runs[run].epoch == lease.epoch {
            self.runs[run].leased = false;
        }
    }

    /// Checks everything that must hold for a commit, at the moment of the commit.
    pub(crate) fn appended(&mut self, lease: &Lease, append: &Append, now: Timestamp) -> Checked {
        let Some(run) = self.find(&lease.run) else {
            return breach(Invariant::NothingStartsUnstored, format!("{} does not exist", lease.run));
        };
        let known = &mut self.runs[run];
        known.uncertain = false;
        ensure(known.leased && known.epoch == lease.epoch, Invariant::StaleWorkerIsRefused, || {
            format!("an append with epoch {} came through; epoch {} counts", lease.epoch, known.epoch)
        })?;
        ensure(append.expected_seq == known.ledger.seq, Invariant::SeqIsDense, || {
            format!("an append behind event {} came through behind {}", append.expected_seq, known.ledger.seq)
        })?;
        let interrupted = self.has_accepted_interrupt(run);
        for item in &append.accepted {
            self.accept(&lease.run, item);
            self.tally.count("store", "accepted directly");
        }
        for event in &append.events {
            ensure(!interrupted || !goes_past_interrupt(&event.fact), Invariant::InterruptWins, || {
                format!("{:?} of run {} came through after its interrupt", event.fact, run + 1)
            })?;
            self.hear(run, event, now)?;
        }
        self.runs[run].ledger.check_status(false)?;
        for birth in &append.spawn {
            let child = self.add(&birth.first, now)?;
            self.check_control(child, &birth.control)?;
        }
        for delivery in &append.deliver {
            self.deliver(run, &delivery.to, &delivery.item)?;
        }
        self.check_deliveries(run, append)?;
        if self.runs[run].ledger.ended() {
            self.runs[run].leased = false;
        }
        self.check_control(run, &append.control)
    }

    fn deliver(&mut self, from: usize, to: &RunId, item: &Item) -> Checked {
        match item {
            Item::ChildEnded(ended) => {
                self.runs[from].end_deliveries += 1;
                let once = self.runs[from].end_deliveries == 1 && ended.run == self.runs[from].id;
                ensure(once, Invariant::ChildEndIsDeliveredOnce, || {
                    format!("run {} delivers the end of {}", from + 1, ended.run)
                })
            }
            Item::Interrupt { .. } => {
                self.accept(to, item);
                Ok(())
            }
            Item::Decision(_) | Item::Early { .. } | Item::LateAnswer { .. } => {
                breach(Invariant::NothingIsBroken, format!("a run delivers {item:?}"))
            }
        }
    }

    /// The commit delivers everything it must to other runs: an interrupt to each child whose call it cancels, even one
    /// that it creates, and its end to its parent.
    fn check_deliveries(&mut self, run: usize, append: &Append) -> Checked {
        let known = &self.runs[run];
        let left_alone: Vec<&RunId> = append
            .events
            .iter()
            .filter_map(|event| {
                let Fact::ToolCancelled { call_id, .. } = &event.fact else { return None };
                open_child(&known.log, call_id)
            })
            .collect();
        let interrupted: Vec<&RunId> = append
            .deliver
            .iter()
            .filter(|delivery| matches!(delivery.item, Item::Interrupt { .. }))
            .map(|delivery| &delivery.to)
            .collect();
        ensure(interrupted == left_alone, Invariant::InterruptReachesChildren, || {
            format!("run {} leaves {left_alone:?} alone and interrupts {interrupted:?}", run + 1)
        })?;
        let created = append.spawn.iter().any(|birth| interrupted.contains(&&birth.control.run));
        let ends = u32::from(known.ledger.ended() && known.folded.parent.is_some());
        ensure(known.end_deliveries == ends, Invariant::ChildEndIsDeliveredOnce, || {
            format!("run {} has delivered {} ends to its parent", run + 1, known.end_deliveries)
        })?;
        if created {
            self.tally.count("run", "a child interrupted in the commit that created it");
        }
        Ok(())
    }

    fn hear(&mut self, run: usize, event: &Arc<Event>, now: Timestamp) -> Checked {
        self.event_count += 1;
        self.tell(now, || format!("    run {} {}", run + 1, words::event(event)));
        self.count_event(event);
        check_storage(event)?;
        if let Fact::RunStarted { after } = &event.fact {
            self.runs[run].transcript = self.transcript_up_to(run, after.as_ref())?;
        }
        let known = &mut self.runs[run];
        // Commits do not record which input caused an event. The checks that need the input run in the other worlds.
        known.ledger.hear(event, Cause { input: &Input::InboxDrained, ticket: None })?;
        if let Err(impossible) = machine::apply::apply(&mut known.folded, event) {
            return breach(Invariant::NothingIsBroken, impossible.to_string());
        }
        known.log.push(event.clone());
        known.transcript.push(event);
        if let Fact::MessageAdded(message) = &event.fact {
            let place = (known.thread.clone(), message.id().clone());
            let fresh = self.messages.insert(place, (run, event.seq)).is_none();
            ensure(fresh, Invariant::NothingIsBroken, || format!("message {} exists twice", message.id()))?;
        }
        if model_input::is_changed_by(&event.fact) {
            model_input::check(&self.runs[run].transcript.model_input())?;
        }
        Ok(())
    }

    /// What a run that starts after this message reads first: the logs before it, and its own first event.
    fn transcript_up_to(&self, run: usize, after: Option<&MessageId>) -> Checked<Transcript> {
        let thread = &self.runs[run].thread;
        let mut logs: Vec<&[Arc<Event>]> = vec![&self.runs[run].log];
        let mut next = after.cloned();
        while let Some(message) = next {
            let Some((earlier, seq)) = self.messages.get(&(thread.clone(), message.clone())) else {
                return breach(Invariant::NothingIsBroken, format!("nothing is known of message {message}"));
            };
            let log = &self.runs[*earlier].log;
            let length = usize::try_from(*seq).unwrap_or(usize::MAX).min(log.len());
            logs.push(&log[..length]);
            next = self.runs[*earlier].folded.after.clone();
        }
        let mut transcript = Transcript::default();
        logs.iter().rev().flat_map(|log| log.iter()).for_each(|event| transcript.push(event));
        Ok(transcript)
    }

    fn check_control(&mut self, run: usize, control: &Control) -> Checked {
        let known = &self.runs[run];
        ensure(*control == known.folded, Invariant::FoldIsControl, || {
            format!("stored {control:?}\nfolded {:?}", known.folded)
        })?;
        let bytes = match control.encode() {
            Ok(bytes) => bytes.len(),
            Err(why) => return breach(Invariant::ControlIsSmall, why),
        };
        ensure(bytes <= CONTROL_BYTES_MAX, Invariant::ControlIsSmall, || format!("{bytes} bytes"))
    }

    fn count_event(&mut self, event: &Event) {
        if let Fact::RunRecovered { lost, .. } = &event.fact {
            let name = if lost.is_empty() { "recovered" } else { "recovered with a lost attempt" };
            self.tally.count("run", name);
        }
        if let Fact::ToolSuspended(opened) = &event.fact
            && opened.held.kind() == SuspensionKind::InDoubt
        {
            self.tally.count("run", "in doubt");
        }
        if let Fact::ToolDenied { expired: true, .. } = &event.fact {
            self.tally.count("run", "expired");
        }
    }
}

/// The child that works on this call, if its end is not known.
fn open_child<'a>(log: &'a [Arc<Event>], call: &CallId) -> Option<&'a RunId> {
    let child = log.iter().find_map(|event| {
        let Fact::ChildStarted { call_id, run_id, .. } = &event.fact else { return None };
        (call_id == call).then_some(run_id)
    })?;
    let ended =
        log.iter().any(|event| matches!(&event.fact, Fact::ChildEnded { run_id, .. } if run_id == child));
    (!ended).then_some(child)
}

fn check_storage(event: &Event) -> Checked {
    let read = event_codec::encode(event)
        .and_then(|text| event_codec::decode(&text).map_err(|error| error.to_string()));
    match read {
        Ok(read) => ensure(read == *event, Invariant::EventsSurviveStorage, || format!("{event:?}")),
        Err(why) => breach(Invariant::EventsSurviveStorage, why),
    }
}
