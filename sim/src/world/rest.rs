//! The end of every world: no more trouble, every suspension is answered, and every run must end.

use machine::suspension::SuspensionKind;
use machine::{Control, Timestamp, fold};

use crate::judge::invariant::{Checked, Invariant, breach, ensure};
use crate::world::World;
use crate::world::live::Presence;
use crate::world::people;
use crate::world::store::{RunIndex, is_taken};
use crate::world::submit::Form;

/// A world without trouble must end within this many rounds.
const ROUNDS_MAX: usize = 2_000;
/// The number of rounds in which calls in doubt are retried. After that a person states what happened to them.
const RETRIES_MAX: usize = 10;
/// The number of steps of one worker within a round.
const PASSES_MAX: usize = 60;

impl World {
    pub(crate) fn come_to_rest(&mut self) -> Checked {
        self.tell(|_| "from here on nothing goes wrong any more".into());
        self.at_rest = true;
        self.trouble = crate::world::setup::WorldTrouble::default();
        self.zombies.clear();
        self.sessions.retain(|session| self.store.runs[session.run].epoch == session.epoch);
        self.ghosts.clear();
        self.tampered.clear();
        for live in &mut self.live.0 {
            live.presence = Presence::Offered;
        }
        for session in &mut self.sessions {
            session.skew_ms = 0;
        }
        for round in 0..ROUNDS_MAX {
            let unended = self.store.unended();
            if unended.is_empty() {
                return self.check_whole_logs();
            }
            let mut moved = false;
            for run in unended {
                moved |= self.work_off(run)?;
                moved |= self.answer_all(run, round < RETRIES_MAX)?;
            }
            if !moved {
                self.skip_time()?;
            }
        }
        breach(Invariant::NothingWedges, format!("{ROUNDS_MAX} rounds and no end: {}", self.stuck()))
    }

    /// Lets the worker of a run continue until it has nothing to do. Returns whether anything happened.
    fn work_off(&mut self, run: RunIndex) -> Checked<bool> {
        let seq = self.store.runs[run].ledger.seq;
        if self.store.needs_a_worker(run, self.now) {
            self.claim(run)?;
        }
        for _ in 0..PASSES_MAX {
            let Some(place) = self.sessions.iter().position(|session| session.run == run) else { break };
            let session = self.sessions.remove(place);
            let idle = session.drained
                && session.completable(self.now).is_empty()
                && session.unstored.is_empty()
                && session.echoes.is_empty()
                && session.direct.is_empty()
                && self.store.runs[run].inbox.is_empty()
                && session.copy.next_deadline().is_none_or(|deadline| deadline.at > self.now);
            if idle {
                self.sessions.push(session);
                break;
            }
            if let Some(session) = self.pass(session)? {
                self.sessions.push(session);
            }
        }
        Ok(self.store.runs[run].ledger.seq != seq)
    }

    fn answer_all(&mut self, run: RunIndex, retries: bool) -> Checked<bool> {
        let ledger = &self.store.runs[run].ledger;
        let decisions: Vec<_> = ledger
            .open_suspensions()
            .filter(|(_, open)| open.kind != SuspensionKind::ChildRun && open.answered_by.is_none())
            .map(|(call, open)| {
                people::plain_answer(call, open, self.live.definition_now(&call.tool), self.now, retries)
            })
            .collect();
        let mut any = false;
        for decision in decisions {
            let verdict = self.store.submit_decision(run, &decision, Form::Good);
            any |= is_taken(&verdict?);
        }
        Ok(any)
    }

    fn skip_time(&mut self) -> Checked {
        match self.moments().first().copied() {
            Some(Timestamp(at)) => {
                self.now = Timestamp(at);
                Ok(())
            }
            None => {
                breach(Invariant::NothingWedges, format!("nothing can happen any more: {}", self.stuck()))
            }
        }
    }

    fn stuck(&self) -> String {
        self.store
            .unended()
            .into_iter()
            .map(|run| {
                let stored = &self.store.runs[run];
                let calls: Vec<String> = stored
                    .ledger
                    .calls
                    .iter()
                    .filter(|call| !call.status.terminal())
                    .map(|call| format!("{} {}", call.id, call.status))
                    .collect();
                format!("{} is {:?} with {calls:?}; ", stored.id, stored.folded.stage)
            })
            .collect()
    }

    /// Checks the whole log of every run again from the start.
    fn check_whole_logs(&self) -> Checked {
        for stored in &self.store.runs {
            let folded: Control = match fold(&stored.log) {
                Ok(folded) => folded,
                Err(impossible) => return breach(Invariant::NothingIsBroken, impossible.to_string()),
            };
            ensure(folded == stored.folded, Invariant::FoldIsControl, || {
                format!("{} ended otherwise", stored.id)
            })?;
            if let Some(parent) = &stored.ledger.parent {
                let is_delivered = self.store.by_id.get(&parent.run_id).is_some_and(|parent_index| {
                    let parent_run = &self.store.runs[*parent_index].ledger;
                    parent_run.call(&parent.call_id).is_some_and(|call| call.status.terminal())
                });
                ensure(is_delivered && stored.end_delivered, Invariant::ChildEndIsDeliveredOnce, || {
                    format!("the parent of {} never received its end", stored.id)
                })?;
            }
        }
        Ok(())
    }
}
