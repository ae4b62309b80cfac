//! The course of a world: draws what happens next, does it, and at the end brings every run to rest.

use std::collections::BTreeSet;

use machine::Timestamp;
use machine::decision::{Decision, DecisionAction};
use machine::event::InterruptCause;
use machine::id::{CallId, Digest};
use machine::inbox::Verdict;
use machine::policy::OnBusy;

use crate::judge::grants;
use crate::judge::invariant::Checked;
use crate::play::coverage::Coverage;
use crate::play::tape::Tape;
use crate::play::words;
use crate::world::live::LiveTools;
use crate::world::people::{self, Written};
use crate::world::script;
use crate::world::setup::{Agent, DESK, WorldSetup, WorldTrouble, draw_request};
use crate::world::store::{Append, RunIndex, Store};
use crate::world::thread_rows::Posted;
use crate::world::worker::{Ghost, Session};

const START: Timestamp = Timestamp(1_000_000);
/// The number of threads that people write to. Child runs have their own.
const THREADS: usize = 2;
const RUNS_MAX: usize = 16;

#[derive(Debug)]
pub struct World {
    pub tape: Tape,
    pub now: Timestamp,
    pub agents: Vec<Agent>,
    pub live: LiveTools,
    pub trouble: WorldTrouble,
    pub store: Store,
    pub sessions: Vec<Session>,
    /// Workers that lost their lease and do not know it.
    pub zombies: Vec<Session>,
    pub ghosts: Vec<Ghost>,
    pub tampered: BTreeSet<(RunIndex, CallId)>,
    /// Decisions that were written and may be resent.
    pub letters: Vec<(RunIndex, Written)>,
    /// Decisions that were given before their call was held, with the digest of the arguments that they apply to.
    pub early_letters: Vec<(RunIndex, Decision, Digest)>,
    pub letter_count: u64,
    /// No more trouble: everything succeeds, and models only answer with text.
    pub at_rest: bool,
    /// If set, content is drawn from separate tapes with this seed.
    pub script_seed: Option<u64>,
    pub coverage: Coverage,
    /// A readable account of what happened, if it is wanted.
    pub diary: Option<Vec<String>>,
}

impl World {
    #[must_use]
    pub fn new(mut tape: Tape, with_diary: bool) -> Self {
        let checks_storage = tape.chance(6);
        let WorldSetup { agents, live, temper } = WorldSetup::draw(&mut tape);
        let clerk = agents[agents.len() - 1].clone();
        let mut store = Store::new(clerk, checks_storage);
        for number in 1..=THREADS {
            store.new_thread(&format!("thr_{number}"));
        }
        let mut coverage = Coverage::default();
        for agent in &agents {
            coverage.agent(&agent.revision);
        }
        Self {
            tape,
            now: START,
            agents,
            live,
            trouble: temper,
            store,
            sessions: Vec::new(),
            zombies: Vec::new(),
            ghosts: Vec::new(),
            tampered: BTreeSet::new(),
            letters: Vec::new(),
            early_letters: Vec::new(),
            letter_count: 0,
            at_rest: false,
            script_seed: None,
            coverage,
            diary: with_diary.then(Vec::new),
        }
    }

    /// Plays from the first message until every run has ended.
    pub fn play(&mut self) -> Checked {
        self.post_message()?;
        for _ in 0..self.trouble.rounds {
            self.round()?;
        }
        self.come_to_rest()
    }

    #[must_use]
    pub fn event_count(&self) -> u64 {
        self.store.runs.iter().map(|run| run.log.len() as u64).sum()
    }

    pub(crate) fn tell(&mut self, words: impl FnOnce(&Store) -> String) {
        if let Some(diary) = &mut self.diary {
            diary.push(words(&self.store));
        }
    }

    fn round(&mut self) -> Checked {
        self.now = self.now.plus_ms(self.tape.among([1, 0, 7, 40]));
        let trouble = self.trouble;
        let weights = [
            60,
            trouble.people,
            trouble.clock,
            trouble.messages,
            trouble.interrupts,
            trouble.crashes,
            trouble.late_answers,
            trouble.configuration,
            trouble.tampering,
            trouble.crashes / 2,
        ];
        let mut left = self.tape.pick(weights.iter().sum());
        let mut action = 0;
        for (weight, ordinal) in weights.iter().zip(0..) {
            action = ordinal;
            if left < *weight {
                break;
            }
            left -= weight;
        }
        match action {
            0 => self.work(),
            1 => self.decide_something(),
            2 => self.advance_clock(),
            3 => self.post_message(),
            4 => self.interrupt_something(),
            5 => self.crash_something(),
            6 => self.answer_late(),
            7 => {
                let change = self.live.change(&mut self.tape);
                self.tell(|_| format!("configuration: {change}"));
                Ok(())
            }
            8 => self.tamper(),
            _ => self.wake_zombie(),
        }
    }

    /// A worker that holds a run continues, or a free worker claims a run that needs one.
    pub(crate) fn work(&mut self) -> Checked {
        let waiting: Vec<RunIndex> = self
            .store
            .unended()
            .into_iter()
            .filter(|run| self.store.needs_a_worker(*run, self.now))
            .collect();
        let choice = self.tape.pick((self.sessions.len() + waiting.len()).max(1));
        if choice < self.sessions.len() {
            let session = self.sessions.remove(choice);
            self.tell(|store| format!("worker of {}:", store.runs[session.run].id));
            if let Some(session) = self.pass(session)? {
                self.sessions.push(session);
            }
        } else if let Some(run) = waiting.get(choice - self.sessions.len()).copied() {
            self.claim(run)?;
        }
        Ok(())
    }

    pub(crate) fn claim(&mut self, run: RunIndex) -> Checked {
        let copy = self.store.claim(run)?;
        let epoch = self.store.runs[run].epoch;
        let skew_ms = if self.at_rest { 0 } else { self.tape.among([0, 0, 0, 30]) };
        self.tell(|store| format!("a worker takes {} with epoch {epoch}", store.runs[run].id));
        let session = Session::new(run, epoch, copy, self.store.runs[run].version, skew_ms);
        if let Some(session) = self.pass(session)? {
            self.sessions.push(session);
        }
        Ok(())
    }

    fn advance_clock(&mut self) -> Checked {
        let jump = self.tape.chance(60);
        let moments = self.moments();
        self.now = match moments.first() {
            Some(next) if jump => *next,
            Some(_) | None => self.now.plus_ms(self.tape.among([100, 900, 3_000])),
        };
        let now = self.now;
        self.tell(|_| format!("the clock says {now}"));
        Ok(())
    }

    /// The times at which something becomes due, earliest first.
    pub(crate) fn moments(&self) -> Vec<Timestamp> {
        let mut moments: Vec<Timestamp> = self
            .sessions
            .iter()
            .filter_map(|session| session.next_moment(self.now))
            .chain(self.store.runs.iter().filter(|run| !run.ledger.ended()).filter_map(|run| run.wake_at))
            .filter(|at| *at > self.now)
            .collect();
        moments.sort_unstable();
        moments
    }

    pub(crate) fn post_message(&mut self) -> Checked {
        if self.store.runs.len() >= RUNS_MAX {
            return Ok(());
        }
        let thread = self.tape.pick(THREADS);
        let posted = Posted {
            by: people::somebody(&mut self.tape),
            may_approve: self.tape.chance(50),
            asked: self.tape.among([
                None,
                None,
                Some(OnBusy::Enqueue),
                Some(OnBusy::Interrupt),
                Some(OnBusy::Reject),
            ]),
            request: draw_request(&mut self.tape),
            text: "please",
        };
        if self.tape.chance(8) {
            self.store.threads[thread].grants.push(grants::auto_approval(&posted.by));
        }
        if let Some(holder) = self.store.threads[thread].holder {
            self.coverage.pairs(&self.store.runs[holder].ledger, "new message");
        }
        let agent = self.agents[DESK].clone();
        let known = self.store.runs.len();
        let met = self.store.post(thread, DESK, &agent, &posted, self.now)?;
        self.coverage.met(&met);
        for run in &self.store.runs[known..] {
            self.coverage.created(&run.ledger);
        }
        self.tell(|_| format!("{} posts a message to thread {}: {met:?}", posted.by, thread + 1));
        Ok(())
    }

    fn interrupt_something(&mut self) -> Checked {
        let unended = self.store.unended();
        let Some(run) = self.tape.one_of(&unended) else { return Ok(()) };
        let by = people::somebody(&mut self.tape);
        self.tell(|store| format!("{by} interrupts {}", store.runs[run].id));
        self.store.submit_interrupt(run, InterruptCause::Person(by))
    }

    /// A worker dies, or loses its lease without knowing it.
    fn crash_something(&mut self) -> Checked {
        if self.sessions.is_empty() {
            return Ok(());
        }
        let place = self.tape.pick(self.sessions.len());
        let session = self.sessions.remove(place);
        if self.tape.chance(60) {
            self.tell(|store| format!("the worker of {} dies", store.runs[session.run].id));
            self.lose(session);
            return Ok(());
        }
        self.tell(|store| format!("the worker of {} loses its lease", store.runs[session.run].id));
        self.coverage.pairs(&self.store.runs[session.run].ledger, "crash");
        self.coverage.store("lease handed to another worker");
        let run = session.run;
        self.zombies.push(session);
        self.store.runs[run].leased = false;
        self.claim(run)
    }

    /// The worker is gone, but what it had sent may still be answered.
    pub(crate) fn lose(&mut self, mut session: Session) {
        self.coverage.pairs(&self.store.runs[session.run].ledger, "crash");
        if self.store.runs[session.run].epoch == session.epoch {
            self.store.runs[session.run].leased = false;
        }
        for task in std::mem::take(&mut session.tasks) {
            self.abandon(&session, task);
        }
        for input in session.unstored {
            if let machine::Input::ToolReturned { step, call, attempt, .. } = input {
                self.ghosts.push(Ghost { run: session.run, step, call, attempt });
            }
        }
    }

    fn wake_zombie(&mut self) -> Checked {
        if self.zombies.is_empty() {
            return Ok(());
        }
        let place = self.tape.pick(self.zombies.len());
        let zombie = self.zombies.remove(place);
        self.tell(|store| format!("a worker that lost {} continues:", store.runs[zombie.run].id));
        if let Some(zombie) = self.pass(zombie)? {
            self.zombies.push(zombie);
        }
        Ok(())
    }

    /// An abandoned attempt answers anyway: to its worker, or through the inbox.
    fn answer_late(&mut self) -> Checked {
        if self.ghosts.is_empty() {
            return Ok(());
        }
        let place = self.tape.pick(self.ghosts.len());
        let ghost = if self.tape.chance(30) { self.ghosts[place].clone() } else { self.ghosts.remove(place) };
        let outcome = script::draw_outcome(&mut self.tape, 40);
        let Ghost { run, step, call, attempt } = ghost;
        if self.tape.chance(50)
            && let Some(session) = self.sessions.iter_mut().find(|session| session.run == run)
        {
            session.echoes.push(machine::Input::ToolReturned { step, call, attempt, outcome });
            return Ok(());
        }
        let verdict = self.store.submit_late_answer(run, step, &call, attempt, outcome)?;
        self.coverage.late_verdict(&verdict);
        self.tell(|_| format!("attempt {attempt} of call {call} answers late: {verdict:?}"));
        Ok(())
    }

    fn tamper(&mut self) -> Checked {
        let unended = self.store.unended();
        let Some(run) = self.tape.one_of(&unended) else { return Ok(()) };
        let calls: Vec<CallId> = self.store.runs[run]
            .ledger
            .calls
            .iter()
            .filter(|call| !call.status.terminal())
            .map(|call| call.id.clone())
            .collect();
        if !calls.is_empty() {
            let call = calls[self.tape.pick(calls.len())].clone();
            self.tell(|_| format!("an attacker changes the arguments of call {call}"));
            self.tampered.insert((run, call));
        }
        Ok(())
    }

    /// A person decides an open suspension, or resends an old decision.
    pub(crate) fn decide_something(&mut self) -> Checked {
        if !self.letters.is_empty() && self.tape.chance(18) {
            let place = self.tape.pick(self.letters.len());
            let (run, mut written) = self.letters[place].clone();
            written.decision.accepted_at = self.now;
            if written.decision.id.is_some() && self.tape.chance(15) {
                people::say_otherwise(&mut self.tape, &mut written);
            }
            return self.send(run, written);
        }
        if !self.early_letters.is_empty() && self.tape.chance(4) {
            let place = self.tape.pick(self.early_letters.len());
            let (run, mut decision, digest) = self.early_letters[place].clone();
            if self.tape.chance(40) {
                decision.by = people::somebody(&mut self.tape);
                decision.action = DecisionAction::Cancel { reason: None, then: None };
            }
            return self.send_early(run, &decision, digest);
        }
        let candidates: Vec<RunIndex> =
            self.store.unended().into_iter().filter(|run| self.may_decide_in(*run)).collect();
        let Some(run) = self.tape.one_of(&candidates) else { return Ok(()) };
        self.letter_count += 1;
        let number = self.letter_count;
        let ledger = &self.store.runs[run].ledger;
        let open: Vec<usize> =
            (0..ledger.calls.len()).filter(|place| ledger.calls[*place].open.is_some()).collect();
        let Some(place) = self.tape.one_of(&open) else { return self.decide_early(run, number) };
        let call = &ledger.calls[place];
        let Some(suspension) = &call.open else { return Ok(()) };
        let definition = self.live.definition_now(&call.tool);
        let mut written =
            people::draw_decision(&mut self.tape, call, suspension, definition, self.now, number);
        if self.tape.chance(5) {
            // Names another call with this call's suspension.
            let other = &ledger.calls[self.tape.pick(ledger.calls.len())];
            written.decision.call = other.id.clone();
        }
        self.letters.push((run, written.clone()));
        self.send(run, written)
    }

    fn may_decide_in(&self, run: RunIndex) -> bool {
        self.store.runs[run].ledger.calls.iter().any(|call| !call.status.terminal())
    }

    fn decide_early(&mut self, run: RunIndex, number: u64) -> Checked {
        let ledger = &self.store.runs[run].ledger;
        let calls: Vec<usize> =
            (0..ledger.calls.len()).filter(|place| !ledger.calls[*place].status.terminal()).collect();
        let Some(place) = self.tape.one_of(&calls) else { return Ok(()) };
        let call = &ledger.calls[place];
        let definition = self.live.definition_now(&call.tool);
        let decision = people::draw_early(&mut self.tape, call, definition, self.now, number);
        let digest = if self.tape.chance(80) { call.arguments.digest() } else { Digest([3; 32]) };
        self.early_letters.push((run, decision.clone(), digest));
        self.send_early(run, &decision, digest)
    }

    fn send_early(&mut self, run: RunIndex, decision: &Decision, digest: Digest) -> Checked {
        let verdict = self.store.submit_early(run, decision, digest)?;
        self.coverage.early_verdict(&verdict);
        self.tell(|_| format!("{} decides early: {}: {verdict:?}", decision.by, words::decision(decision)));
        Ok(())
    }

    /// Sends the decision through the store, or directly to the worker that holds the run.
    fn send(&mut self, run: RunIndex, written: Written) -> Checked {
        let direct = self.tape.chance(30);
        self.coverage.decision_pair(&self.store.runs[run].ledger, &written.decision);
        if direct
            && let Some(session) = self.sessions.iter_mut().find(|session| session.run == run)
            && session.copy.control.policy.decisions == machine::policy::DecisionTiming::Immediate
        {
            session.direct.push(written);
            return Ok(());
        }
        let verdict = self.store.submit_decision(run, &written.decision, written.form)?;
        self.coverage.verdict(&verdict);
        if verdict == Verdict::Accepted {
            self.coverage.decision(&written.decision);
        }
        self.tell(|_| {
            format!("{}: {}: {verdict:?}", written.decision.by, words::decision(&written.decision))
        });
        Ok(())
    }

    /// Other actors may act between a worker's read and its append.
    pub(crate) fn overlap(&mut self, session: &Session) -> Checked {
        if !self.tape.chance(self.trouble.overlap) {
            return Ok(());
        }
        match self.tape.pick(5) {
            0 => self.decide_something(),
            1 => {
                let run = session.run;
                self.decide_in(run)
            }
            2 => {
                let by = people::somebody(&mut self.tape);
                self.store.submit_interrupt(session.run, InterruptCause::Person(by))
            }
            3 => self.post_message(),
            _ => {
                if self.store.runs[session.run].epoch != session.epoch {
                    return Ok(());
                }
                self.coverage.store("lease handed to another worker");
                self.store.runs[session.run].leased = false;
                self.claim_quietly(session.run)
            }
        }
    }

    /// Another worker claims the run, and has not done anything with it yet.
    fn claim_quietly(&mut self, run: RunIndex) -> Checked {
        let copy = self.store.claim(run)?;
        let epoch = self.store.runs[run].epoch;
        self.tell(|store| format!("  another worker takes {} with epoch {epoch}", store.runs[run].id));
        self.sessions.push(Session::new(run, epoch, copy, self.store.runs[run].version, 0));
        Ok(())
    }

    fn decide_in(&mut self, run: RunIndex) -> Checked {
        let ledger = &self.store.runs[run].ledger;
        let Some((call, open)) = ledger.open_suspensions().next() else { return Ok(()) };
        let definition = self.live.definition_now(&call.tool);
        self.letter_count += 1;
        let written =
            people::draw_decision(&mut self.tape, call, open, definition, self.now, self.letter_count);
        let verdict = self.store.submit_decision(run, &written.decision, written.form)?;
        self.coverage.verdict(&verdict);
        self.tell(|_| {
            format!(
                "  meanwhile {}: {}: {verdict:?}",
                written.decision.by,
                words::decision(&written.decision)
            )
        });
        Ok(())
    }

    pub(crate) fn tell_commit(&mut self, run: RunIndex, append: &Append) {
        if let Some(diary) = &mut self.diary {
            let id = &self.store.runs[run].id;
            for said in &append.said {
                for event in &said.events {
                    diary.push(format!("    {id} {}", words::event(event)));
                }
            }
        }
    }
}
