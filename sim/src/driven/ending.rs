//! The end of every world: no more trouble, every suspension is answered, and every run must end.

use std::time::Duration;

use engine::store::{CommittedEvent, StoreError, Tenant, decoded};
use machine::fold;
use machine::id::{Principal, RunId};
use machine::suspension::SuspensionKind;
use machine::thread::ThreadState;

use super::trouble::EngineTrouble;
use super::wording;
use super::world::EngineWorld;
use crate::judge::invariant::{Checked, Invariant, breach, ensure};
use crate::world::live::Presence;
use crate::world::people;

/// A world without trouble must end within this many rounds.
const ROUNDS_MAX: u64 = 400;
/// The number of rounds in which calls in doubt are retried. After that a person states what happened to them.
const RETRIES_MAX: u64 = 10;
/// Longer than any pause of a failing store.
const ROUND: Duration = Duration::from_secs(2);
/// The longest time that a client waits for an answer once there is no more trouble.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

impl EngineWorld {
    pub(crate) async fn come_to_rest(&mut self) {
        self.stage.tell(|| "from here on nothing goes wrong any more".into());
        {
            let mut book = self.stage.book();
            book.calm = true;
            book.temper = EngineTrouble::calm();
        }
        self.mend().await;
        for live in &mut self.setup.live.0 {
            live.presence = Presence::Offered;
        }
        for round in 0..ROUNDS_MAX {
            // Trouble from before may still be in progress.
            self.mend().await;
            if self.is_broken() {
                return;
            }
            if self.is_quiet() {
                let checked = self.check_end();
                self.stage.check(checked);
                return;
            }
            self.answer_all(round).await;
            tokio::time::sleep(ROUND).await;
        }
        let stuck = self.stuck();
        self.stage
            .check(breach(Invariant::NothingWedges, format!("{ROUNDS_MAX} rounds and no end: {stuck}")));
    }

    /// Every run has ended, no worker holds one, and no client waits for an answer.
    fn is_quiet(&self) -> bool {
        let ended = self.stage.book().runs.iter().all(|run| run.ledger.ended());
        ended
            && self.process.as_ref().is_none_or(|process| {
                process.engine.runs_in_memory() == 0
                    && process.clients.iter().all(|client| client.is_finished())
            })
    }

    async fn answer_all(&mut self, round: u64) {
        let now = self.stage.now();
        let answers: Vec<_> = {
            let book = self.stage.book();
            let open = book.runs.iter().flat_map(|run| {
                run.ledger.open_suspensions().map(|(call, open)| (run.id.clone(), call.clone(), open.clone()))
            });
            open.filter(|(_, _, open)| open.kind != SuspensionKind::ChildRun).collect()
        };
        for (run, call, open) in answers {
            let mut decision = people::plain_answer(&call, &open, None, now, round < RETRIES_MAX);
            self.decision_count += 1;
            decision.by = Principal::from(format!("ana-{}", self.decision_count));
            let Some(process) = &self.process else { return };
            let decide = wording::decide(&run, &decision);
            let decided = process.engine.decide(decide.clone());
            let Ok(answer) = tokio::time::timeout(ANSWER_WITHIN, decided).await else {
                if process.life.is_dead() {
                    return;
                }
                self.stage.check(breach(Invariant::NothingWedges, "a decision is never answered"));
                return;
            };
            self.stage.tell(|| format!("{} decides on call {}: {answer:?}", decision.by, decision.call));
            match answer {
                Ok(verdict) => {
                    let stored = self.stage.book().check_told(&decide, &verdict);
                    self.stage.check(stored);
                }
                // A store call that was refused before the trouble ended may return its error only now.
                Err(refused) if round == 0 => self.stage.tell(|| format!("a decision meets {refused}")),
                Err(refused) => {
                    self.stage
                        .check(breach(Invariant::NothingIsBroken, format!("a decision meets {refused}")));
                }
            }
        }
    }

    fn stored_log(&self, tenant: &Tenant, run: &RunId) -> Result<Vec<CommittedEvent>, StoreError> {
        let mut log: Vec<CommittedEvent> = Vec::new();
        loop {
            let after = log.last().map_or(0, |last| last.event.seq);
            let page = self.stage.disk.ask(None, |store| store.events(tenant, run, after, usize::MAX))?;
            if page.is_empty() {
                return Ok(log);
            }
            log.extend(decoded(page)?);
        }
    }

    fn check_end(&self) -> Checked {
        let book = self.stage.book();
        book.check_heard()?;
        let tenant = Tenant::default();
        for (run, ordinal) in book.runs.iter().zip(1..) {
            let stored = self.stored_log(&tenant, &run.id);
            let same = stored.as_ref().is_ok_and(|stored| {
                stored.len() == run.log.len()
                    && stored.iter().zip(&run.log).all(|(stored, known)| stored.event == *known)
            });
            ensure(same, Invariant::EventsSurviveStorage, || {
                format!("the log of run {ordinal} is {stored:?}")
            })?;
            let folded = fold(run.log.iter().map(|event| &**event)).ok();
            let view = self.stage.disk.ask(None, |store| store.run(&tenant, &run.id));
            let shown = view.ok().flatten().and_then(|view| view.control);
            ensure(folded.is_some() && folded == shown, Invariant::FoldIsControl, || {
                format!("run {ordinal} is stored as {shown:?}, its log folds to {folded:?}")
            })?;
            if let Some(parent) = &run.ledger.parent {
                let is_delivered = book
                    .of(&parent.run_id)?
                    .ledger
                    .call(&parent.call_id)
                    .is_some_and(|call| call.status.terminal());
                ensure(is_delivered && run.end_deliveries == 1, Invariant::ChildEndIsDeliveredOnce, || {
                    format!("the parent of run {ordinal} never received its end")
                })?;
            }
            let thread = self.stage.disk.ask(None, |store| store.thread(&tenant, &run.thread));
            let free = thread.as_ref().is_ok_and(|thread| thread.state == ThreadState::Free);
            ensure(free, Invariant::OneHolderPerThread, || format!("all runs ended, and {thread:?}"))?;
        }
        Ok(())
    }

    fn stuck(&self) -> String {
        let book = self.stage.book();
        let mut stuck: Vec<String> = book
            .runs
            .iter()
            .zip(1..)
            .filter(|(run, _)| !run.ledger.ended())
            .map(|(run, ordinal)| {
                let open = run.ledger.calls.iter().filter(|call| !call.status.terminal());
                let calls: Vec<String> = open.map(|call| format!("{} {}", call.id, call.status)).collect();
                format!("run {ordinal} is {:?} in {:?} with {calls:?}", run.ledger.status, run.folded.stage)
            })
            .collect();
        if let Some(process) = &self.process {
            let waiting = process.clients.iter().filter(|client| !client.is_finished()).count();
            stuck.push(format!("{} held in memory, {waiting} people wait", process.engine.runs_in_memory()));
        }
        stuck.join("; ")
    }
}
