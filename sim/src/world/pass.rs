//! One pass of a worker: take what is ready, decide and apply on its own copy, append once, then reconcile.

use machine::inbox::{self, Item};
use machine::phase::Phase;
use machine::projection_rows::{self, ProjectionRows};
use machine::status::RunStatus;
use machine::{Effect, Input, InputOutcome, Rejection, Timestamp};

use crate::judge::invariant::{Checked, Invariant, breach, ensure};
use crate::judge::ledger::{Announced, Ticket};
use crate::play::words;
use crate::world::World;
use crate::world::store::{Append, ProcessedInput, Refused, Seen, is_taken};
use crate::world::thread_rows::encode;
use crate::world::worker::{Ghost, Heard, Session, Task};

/// How many passes in a row may be repeated because they would overtake an accepted answer.
const OVERTAKING_MAX: u32 = 1;

impl World {
    /// Returns the session if the worker still holds the run.
    pub(crate) fn pass(&mut self, mut session: Session) -> Checked<Option<Session>> {
        let mut append = Append::default();
        session.version = self.store.runs[session.run].version;
        if self.store.runs[session.run].inbox.iter().any(|row| row.item.interrupts()) {
            self.hear_interrupt(&mut session, &mut append)?;
        } else if !session.drained {
            self.take_over(&mut session, &mut append)?;
        } else {
            if session.hurry {
                self.hear_inbox(&mut session, &mut append)?;
            }
            self.hear_tasks(&mut session, &mut append)?;
            self.hear_noise(&mut session)?;
            self.hear_direct(&mut session, &mut append)?;
            self.hear_inbox(&mut session, &mut append)?;
        }
        if session.drained {
            self.hear_clock(&mut session, &mut append)?;
        }
        self.hear_start(&mut session, &mut append)?;
        self.hear_after_tools(&mut session, &mut append)?;
        if self.overtakes(&session, &append) {
            self.tell(|_| "  the pass would overtake an accepted answer, and is made again".into());
            self.coverage.store("pass made again");
            session.overtaking_count += 1;
            ensure(session.overtaking_count <= OVERTAKING_MAX, Invariant::AcceptedDecisionIsHeard, || {
                "the worker overtakes an answer however often it drains its inbox".into()
            })?;
            session.hurry = true;
            return self.begin_again(session, &append);
        }
        self.overlap(&session)?;
        if append.event_count() == 0 && append.consumed.is_empty() {
            return self.settle_down(session);
        }
        self.store_pass(session, &append)
    }

    pub(crate) fn store_pass(&mut self, mut session: Session, append: &Append) -> Checked<Option<Session>> {
        let mut append = append.clone();
        append.control = encode(&session.copy.control)?;
        if self.tape.chance(self.trouble.append_loss) {
            self.tell(|_| "  the worker dies before the append".into());
            self.coverage.store("worker lost before the append");
            self.lose(session);
            return Ok(None);
        }
        let run = session.run;
        let current = self.store.runs[run].epoch == session.epoch;
        let seen = Seen { seq: session.expected_seq, version: session.version };
        let stored = self.store.append(run, session.epoch, seen, &append, &mut self.coverage)?;
        match stored {
            Ok(()) => {
                ensure(current, Invariant::StaleWorkerIsRefused, || "an old lease stored something".into())?;
                self.tell_commit(run, &append);
            }
            Err(Refused::Fenced) => {
                self.tell(|_| "  the append is refused: another worker holds the run".into());
                self.coverage.store("append fenced");
                session.unstored.extend(results_of(&append));
                self.lose(session);
                return Ok(None);
            }
            Err(Refused::Behind) => {
                self.tell(|_| "  the append is refused: something was accepted meanwhile".into());
                self.coverage.store("append behind");
                return self.begin_again(session, &append);
            }
        }
        session.expected_seq += append.event_count() as u64;
        session.version += 1;
        session.hurry = false;
        session.overtaking_count = 0;
        session.unstored.clear();
        if self.tape.chance(self.trouble.append_loss) {
            self.tell(|_| "  the worker dies after the append".into());
            self.coverage.store("worker lost after the append");
            self.lose(session);
            return Ok(None);
        }
        self.settle_down(session)
    }

    /// Whether the pass closes a suspension whose accepted answer it has not processed first.
    fn overtakes(&self, session: &Session, append: &Append) -> bool {
        let stored = &self.store.runs[session.run];
        if stored.epoch != session.epoch {
            return false;
        }
        let mut rows = ProjectionRows::default();
        for said in &append.said {
            let heard = projection_rows::InboxPosition { count: said.heard_count, ticket: said.ticket };
            rows.add_events(Some(&stored.folded), &said.events, heard);
        }
        let inbox: Vec<(Ticket, Item)> =
            stored.inbox.iter().map(|row| (row.ticket, row.item.clone())).collect();
        inbox::overrides_accepted_answer(&stored.folded, &inbox, &rows.closed, &append.consumed)
    }

    /// An accepted interrupt ends the run. Results that arrived by then are recorded, but have no further effect.
    fn hear_interrupt(&mut self, session: &mut Session, append: &mut Append) -> Checked {
        if !session.acquired {
            let (epoch, doubt_at) = (session.epoch, session.clock(self.now));
            self.say(session, append, Input::LeaseAcquired { epoch, doubt_at }, None)?;
        }
        (session.acquired, session.drained) = (true, true);
        for input in std::mem::take(&mut session.unstored) {
            if matches!(input, Input::ToolReturned { .. }) {
                self.say_as(session, append, input, None, true)?;
            }
        }
        self.hear_inbox(session, append)
    }

    /// Discards the copy and loads it again. The results of this pass become inputs of the next one.
    fn begin_again(&mut self, mut session: Session, append: &Append) -> Checked<Option<Session>> {
        session.unstored = results_of(append);
        session.heard.iter_mut().for_each(|heard| heard.fresh = true);
        session.copy = self.store.runs[session.run].load()?;
        session.drained = session.drained && !append.said.iter().any(is_take_over);
        session.acquired = session.drained;
        Ok(Some(session))
    }

    fn take_over(&mut self, session: &mut Session, append: &mut Append) -> Checked {
        let clock = session.clock(self.now);
        if !session.acquired {
            let doubt_at = clock.plus_ms(self.tape.among([0, 0, 1_000]));
            let epoch = session.epoch;
            self.say(session, append, Input::LeaseAcquired { epoch, doubt_at }, None)?;
            session.acquired = true;
        }
        self.hear_inbox(session, append)?;
        // The lease and the drained inbox may also be stored in two commits.
        if append.event_count() > 0 && self.tape.chance(10) {
            return Ok(());
        }
        if session.copy.control.ended().is_none() {
            self.say(session, append, Input::InboxDrained, None)?;
        }
        session.drained = true;
        Ok(())
    }

    fn hear_tasks(&mut self, session: &mut Session, append: &mut Append) -> Checked {
        for input in std::mem::take(&mut session.unstored) {
            self.say_late(session, append, input)?;
        }
        let ready = session.completable(self.now);
        let count = if ready.is_empty() { 0 } else { 1 + self.tape.pick(ready.len().min(3)) };
        for _ in 0..count {
            let ready = session.completable(self.now);
            let Some(place) = self.tape.one_of(&ready) else { break };
            if let Some(input) = self.complete(session, place) {
                self.say(session, append, input, None)?;
            }
        }
        while !session.echoes.is_empty() {
            let input = session.echoes.remove(0);
            self.say_late(session, append, input)?;
        }
        Ok(())
    }

    /// Applies an input that may be stale. A rejection is fine.
    fn say_late(&mut self, session: &mut Session, append: &mut Append, input: Input) -> Checked {
        self.say(session, append, input, None).map(|_| ())
    }

    fn hear_direct(&mut self, session: &mut Session, append: &mut Append) -> Checked {
        for written in std::mem::take(&mut session.direct) {
            let verdict = self.store.judge(session.run, &written.decision, written.form)?;
            self.coverage.verdict(&verdict);
            let said_already = append.accepted.iter().any(|(_, other)| {
                other.call == written.decision.call || other.id.is_some() && other.id == written.decision.id
            });
            if !is_taken(&verdict) || said_already {
                continue;
            }
            let ticket = self.store.ticket();
            self.tell(|_| format!("  {} brings a decision straight to the worker", written.decision.by));
            let input = Input::Decide(written.decision.clone());
            if self.say(session, append, input, Some(ticket))? {
                append.accepted.push((ticket, written.decision));
            } else {
                append.said.pop();
            }
        }
        Ok(())
    }

    pub(crate) fn hear_inbox(&mut self, session: &mut Session, append: &mut Append) -> Checked {
        let rows: Vec<(Ticket, Item)> =
            self.store.runs[session.run].inbox.iter().map(|row| (row.ticket, row.item.clone())).collect();
        session.version = self.store.runs[session.run].version;
        if rows.is_empty() {
            return Ok(());
        }
        let rows: Vec<(Ticket, Item)> =
            rows.into_iter().filter(|(ticket, _)| !append.consumed.contains(ticket)).collect();
        let items: Vec<Item> = rows.iter().map(|(_, item)| item.clone()).collect();
        let interrupted = items.iter().any(Item::interrupts);
        for index in inbox::drain(&session.copy.control, &items, session.hurry) {
            let Some((ticket, item)) = rows.get(index) else {
                return breach(Invariant::NothingIsBroken, "drain names a row that is not there");
            };
            if append.consumed.contains(ticket) {
                return breach(Invariant::NothingIsBroken, "drain names a row twice");
            }
            append.consumed.push(*ticket);
            if let Some(input) = inbox::to_input(&session.copy.control, item) {
                let before_interrupt = interrupted && !item.interrupts();
                self.say_as(session, append, input, Some(*ticket), before_interrupt)?;
            }
        }
        Ok(())
    }

    fn hear_clock(&mut self, session: &mut Session, append: &mut Append) -> Checked {
        let clock = session.clock(self.now);
        let due = session.copy.next_deadline().is_some_and(|deadline| deadline.at <= clock);
        if due && session.copy.control.ended().is_none() {
            self.say(session, append, Input::DeadlineReached, None)?;
        }
        Ok(())
    }

    fn hear_start(&mut self, session: &mut Session, append: &mut Append) -> Checked {
        let thread = &self.store.threads[self.store.runs[session.run].thread];
        let holds = thread.holder == Some(session.run);
        if holds && session.drained && session.copy.control.status == RunStatus::Queued {
            self.hear_noise(session)?;
            let thread = &self.store.threads[self.store.runs[session.run].thread];
            let after = thread.last_message.clone();
            self.say(session, append, Input::Start { after }, None)?;
        }
        Ok(())
    }

    /// Applies all unrecorded hook answers together, whenever a new one arrives and after any other event.
    fn hear_after_tools(&mut self, session: &mut Session, append: &mut Append) -> Checked {
        if session.heard.is_empty() {
            return Ok(());
        }
        let wanted = session.copy.wanted();
        let is_wanted = |heard: &Heard| {
            wanted.contains(&Effect::RunAfterToolHooks { call: heard.call.clone(), status: heard.status })
        };
        let news = append.event_count() > 0 || session.heard.iter().any(|heard| heard.fresh);
        if !news || !session.heard.iter().any(is_wanted) {
            return Ok(());
        }
        let heard = session
            .heard
            .iter()
            .filter(|heard| is_wanted(heard))
            .map(|heard| (heard.call.clone(), heard.hooks.clone()))
            .collect();
        session.heard.iter_mut().for_each(|heard| heard.fresh = false);
        self.say(session, append, Input::AfterTools { heard }, None)?;
        Ok(())
    }

    /// Decides on the worker's copy and applies the events. Returns whether the input was accepted.
    pub(crate) fn say(
        &mut self,
        session: &mut Session,
        append: &mut Append,
        input: Input,
        ticket: Option<Ticket>,
    ) -> Checked<bool> {
        self.say_as(session, append, input, ticket, false)
    }

    /// The same, even while an accepted interrupt waits after it.
    fn say_as(
        &mut self,
        session: &mut Session,
        append: &mut Append,
        input: Input,
        ticket: Option<Ticket>,
        before_interrupt: bool,
    ) -> Checked<bool> {
        let clock = session.clock(self.now);
        let heard_count = append.consumed.len();
        let decided = if before_interrupt {
            session.copy.decide_before_interrupt(&input, clock)
        } else {
            session.copy.decide(&input, clock)
        };
        self.tell(|_| format!("  says {}", words::input(&input)));
        match decided {
            Ok(decided) => {
                self.coverage.answer(&decided.outcome);
                let silent = decided.outcome != InputOutcome::Duplicate || decided.events.is_empty();
                ensure(silent, Invariant::WrongInputHasNoEvents, || format!("{input:?} is a duplicate"))?;
                for event in &decided.events {
                    if let Err(impossible) = session.copy.apply(event) {
                        return breach(Invariant::NothingIsBroken, impossible.to_string());
                    }
                }
                let (events, rejected) = (decided.events, None);
                append.said.push(ProcessedInput {
                    input,
                    ticket,
                    events,
                    rejected,
                    heard_count,
                    before_interrupt,
                });
                Ok(true)
            }
            Err(Rejection::InternalError(impossible)) => {
                breach(Invariant::NothingIsBroken, format!("{input:?}: {impossible}"))
            }
            Err(rejection) => {
                check_rejected_alike(session, &input, clock, &rejection)?;
                self.coverage.rejection(&rejection);
                self.tell(|_| format!("    rejected: {rejection}"));
                let (events, rejected) = (Vec::new(), Some(rejection));
                append.said.push(ProcessedInput {
                    input,
                    ticket,
                    events,
                    rejected,
                    heard_count,
                    before_interrupt,
                });
                Ok(false)
            }
        }
    }

    /// After a commit: start the wanted tasks, drop the others, and release the run if nothing is left to do.
    fn settle_down(&mut self, mut session: Session) -> Checked<Option<Session>> {
        if self.store.runs[session.run].epoch != session.epoch {
            return Ok(Some(session));
        }
        self.reconcile(&mut session)?;
        let stored = &self.store.runs[session.run];
        let wants = !session.copy.wanted().is_empty();
        if session.drained {
            let deadline = session.copy.next_deadline().is_some();
            match &stored.ledger.status {
                Announced::Running => ensure(wants || deadline, Invariant::ExecutingWantsSomething, || {
                    format!("{} runs and wants nothing", stored.id)
                })?,
                Announced::Waiting(_) => {
                    let held = stored.ledger.open_suspensions().next().is_some();
                    ensure(!wants && held, Invariant::WaitingWantsNothing, || {
                        format!("{} waits and wants {:?}", stored.id, session.copy.wanted())
                    })?;
                }
                Announced::Queued | Announced::Interrupting | Announced::Done(_) => {}
            }
        }
        let due = session.copy.next_deadline().is_some_and(|deadline| deadline.at <= self.now);
        let parked = !due
            && match &stored.ledger.status {
                Announced::Waiting(_) | Announced::Done(_) => true,
                Announced::Queued => self.store.threads[stored.thread].holder != Some(session.run),
                Announced::Running | Announced::Interrupting => false,
            };
        if stored.ledger.ended() {
            self.store.runs[session.run].inbox.clear();
        }
        if session.drained && parked && self.store.release(session.run) {
            for task in std::mem::take(&mut session.tasks) {
                self.abandon(&session, task);
            }
            self.tell(|_| "  the worker releases the run".into());
            return Ok(None);
        }
        Ok(Some(session))
    }

    fn reconcile(&mut self, session: &mut Session) -> Checked {
        let wanted = if session.drained { session.copy.wanted() } else { std::collections::BTreeSet::new() };
        // Only after the commit: an answer whose append was refused has to be applied again.
        session.heard.retain(|heard| {
            wanted.contains(&Effect::RunAfterToolHooks { call: heard.call.clone(), status: heard.status })
        });
        for task in std::mem::take(&mut session.tasks) {
            match wanted.iter().find(|effect| effect.same_task(&task.effect)) {
                Some(effect) => session.tasks.push(Task { effect: effect.clone(), ..task }),
                None => self.abandon(session, task),
            }
        }
        for effect in wanted {
            if session.tasks.iter().any(|task| task.effect.same_task(&effect)) {
                continue;
            }
            if let Effect::RunTool { call, attempt, .. } = &effect {
                let stored = &self.store.runs[session.run];
                let intent = stored.ledger.call(call).is_some_and(|known| {
                    known.attempt == *attempt && known.status == machine::status::CallStatus::Running
                });
                let first = self.store.sent.insert((session.run, call.clone(), *attempt));
                ensure(intent && first, Invariant::NothingStartsUnstored, || {
                    format!("attempt {attempt} of call {call}: stored {intent}, first {first}")
                })?;
            }
            session.tasks.push(Task { effect, asked: Vec::new(), done: false });
        }
        Ok(())
    }

    /// The worker no longer waits for the task, but its tool may still answer.
    pub(crate) fn abandon(&mut self, session: &Session, task: Task) {
        let Effect::RunTool { call, attempt, .. } = task.effect else { return };
        let Some(known) = self.store.runs[session.run].ledger.call(&call) else { return };
        let step = known.step;
        self.ghosts.push(Ghost { run: session.run, step, call, attempt });
    }

    /// The `AfterToolExecute` hooks have answered. Their answers are applied together with the others.
    pub(crate) fn note_heard(&mut self, session: &mut Session, place: usize) {
        let Effect::RunAfterToolHooks { call, status } = session.tasks[place].effect.clone() else { return };
        session.tasks[place].done = true;
        let revision = session.copy.revision.clone();
        let hooks = self.draw_hooks(Phase::AfterToolExecute, &revision, call.as_str());
        session.heard.push(Heard { call, status, hooks, fresh: true });
    }
}

/// `decide` cannot change the copy, so side effects of a rejection only show when the same input is repeated.
pub(crate) fn check_rejected_alike(
    session: &Session,
    input: &Input,
    clock: Timestamp,
    rejection: &Rejection,
) -> Checked {
    let again = session.copy.decide(input, clock);
    ensure(again.as_ref() == Err(rejection), Invariant::RejectedChangesNothing, || {
        format!("{input:?} was rejected as {rejection}, and then {again:?}")
    })
}

fn is_take_over(said: &ProcessedInput) -> bool {
    matches!(said.input, Input::LeaseAcquired { .. } | Input::InboxDrained)
}

/// The results of tasks. They are applied again after the run was reloaded.
fn results_of(append: &Append) -> Vec<Input> {
    append
        .said
        .iter()
        .filter(|said| said.ticket.is_none())
        .map(|said| said.input.clone())
        .filter(|input| match input {
            Input::PhaseAnswered { .. }
            | Input::ModelAnswered(_)
            | Input::ModelFailed { .. }
            | Input::Gated(_)
            | Input::ToolReturned { .. } => true,
            Input::Start { .. }
            | Input::LeaseAcquired { .. }
            | Input::InboxDrained
            | Input::AfterTools { .. }
            | Input::Decide(_)
            | Input::ChildEnded(_)
            | Input::Interrupt { .. }
            | Input::DeadlineReached => false,
        })
        .collect()
}
