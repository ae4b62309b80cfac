//! One world: processes with one engine each, one after the other, and what happens to them.

use std::sync::Arc;
use std::time::Duration;

use engine::quota::Quotas;
use engine::{Engine, Settings};
use machine::Timestamp;
use tokio::task::JoinHandle;

use super::agents;
use super::context::{Life, WorldContext};
use super::faulty_store::FaultyStore;
use super::performers::HOOK_TIMEOUT;
use super::trouble::Side;
use crate::judge::invariant::{Invariant, Violation};
use crate::world::setup::WorldSetup;

/// A process may be lost within this many of its commits.
const LOST_WITHIN: usize = 25;

pub(crate) struct EngineWorld {
    pub(crate) stage: Arc<WorldContext>,
    pub(crate) setup: WorldSetup,
    pub(crate) process: Option<Process>,
    /// Processes that continue although another one has the store, and until when.
    pub(crate) old: Vec<(Process, Timestamp)>,
    /// Where the first process is lost, if the world is only about that.
    pub(crate) lost_at: Option<(u64, Side)>,
    pub(crate) life_count: u64,
    pub(crate) message_count: u64,
    pub(crate) decision_count: u64,
    /// The number of commits of the first process.
    pub(crate) first_commits: u64,
}

pub(crate) struct Process {
    pub(crate) engine: Engine,
    pub(crate) life: Arc<Life>,
    /// Clients that wait for an answer of this process, or watch.
    pub(crate) clients: Vec<JoinHandle<()>>,
}

impl Process {
    /// Its clients get no more answers.
    fn end(self) {
        self.engine.abort();
        self.clients.iter().for_each(JoinHandle::abort);
    }
}

impl EngineWorld {
    pub(crate) fn new(stage: Arc<WorldContext>, setup: WorldSetup, lost_at: Option<(u64, Side)>) -> Self {
        Self {
            stage,
            setup,
            process: None,
            old: Vec::new(),
            lost_at,
            life_count: 0,
            message_count: 0,
            decision_count: 0,
            first_commits: 0,
        }
    }

    pub(crate) async fn play(&mut self) {
        self.start().await;
        let act_count = self.stage.book().temper.act_count;
        for _ in 0..act_count {
            self.mend().await;
            if self.is_broken() {
                return;
            }
            self.act().await;
            self.wait().await;
        }
        self.come_to_rest().await;
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.stage.book().violation.is_some()
    }

    /// Starts a process. It finds what the last one left.
    async fn start(&mut self) {
        self.life_count += 1;
        let lost_at = match self.lost_at.filter(|_| self.life_count == 1) {
            Some(lost_at) => Some(lost_at),
            None => self.draw_lost_at(),
        };
        let life = Arc::new(Life::new(self.life_count, lost_at));
        let number = self.life_count;
        self.stage.tell(|| format!("process {number} starts; it is lost around {lost_at:?}"));
        let settings = self.stage.draw(|tape| Settings {
            running_runs_max: tape.among([256, 256, 1, 2]),
            // Not drawn, so that recorded tapes keep their meaning.
            several_tenants: number.is_multiple_of(2),
            hook_timeout: HOOK_TIMEOUT,
            cancel_grace: Duration::from_millis(tape.among([5_000, 10])),
            model_timeout: Duration::from_secs(600),
            store_retry_pause: Duration::from_millis(tape.among([1_000, 20])),
            transcript_cache_bytes: tape.among([1 << 20, 1 << 20, 4_096, 0]),
            thread_bytes_max: 64 << 20,
            callbacks_at: None,
            callback_secrets: None,
            quotas: Quotas::default(),
        });
        let own = self.stage.disk.own();
        let store = Arc::new(FaultyStore { stage: self.stage.clone(), life: life.clone(), own });
        let mut builder = Engine::on_shared(store).clock(self.stage.clock).settings(settings);
        for agent in agents::agents(&self.setup, &self.stage, &life) {
            builder = builder.agent(agent);
        }
        match builder.start().await {
            Ok(engine) => self.process = Some(Process { engine, life, clients: Vec::new() }),
            Err(why) => self.stage.object(Violation {
                invariant: Invariant::NothingIsBroken,
                detail: format!("an engine does not start: {why}"),
            }),
        }
    }

    fn draw_lost_at(&self) -> Option<(u64, Side)> {
        let mut book = self.stage.book();
        let percent = book.temper.lost_at_commit;
        if book.calm || !book.tape.chance(percent) {
            return None;
        }
        let commit = 1 + book.tape.pick(LOST_WITHIN) as u64;
        Some((commit, book.tape.among([Side::Before, Side::After])))
    }

    /// Starts a process in place of a lost one, and ends processes that have outlived their store for long enough.
    pub(crate) async fn mend(&mut self) {
        let now = self.stage.now();
        for (process, until) in std::mem::take(&mut self.old) {
            if process.life.is_dead() || until <= now || self.stage.book().calm {
                self.stage.tell(|| format!("process {} ends", process.life.number));
                process.end();
            } else {
                self.old.push((process, until));
            }
        }
        if let Some(process) = self.process.take_if(|process| process.life.is_dead()) {
            if process.life.number == 1 {
                self.first_commits = process.life.commit_count();
            }
            process.end();
            self.reopen();
            self.start().await;
        }
    }

    fn reopen(&self) {
        if let Err(why) = self.stage.disk.reopen() {
            let detail = format!("the store does not open again: {why}");
            self.stage.object(Violation { invariant: Invariant::NothingIsBroken, detail });
        }
        self.stage.book().void_all_leases();
    }

    pub(crate) fn lose_process(&self) {
        if let Some(process) = &self.process {
            self.stage.lose(&process.life, "between commits");
        }
    }

    /// Another process opens the store while this one continues without knowing it.
    pub(crate) async fn hand_over(&mut self) {
        if !self.stage.disk.outlives_its_process() {
            return;
        }
        let Some(process) = self.process.take() else { return };
        self.stage.count("process", "to another process");
        self.stage.tell(|| format!("process {} loses the store and keeps running", process.life.number));
        process.life.fence();
        let linger = self.stage.draw(|tape| tape.among([30, 5, 300, 3_000]));
        self.old.push((process, self.stage.now().plus_ms(linger)));
        self.reopen();
        self.start().await;
    }

    /// A process is stopped as an operator would do it, and the next one starts.
    pub(crate) async fn drain(&mut self) {
        let Some(process) = self.process.take() else { return };
        self.stage.count("process", "drained");
        self.stage.tell(|| format!("process {} drains", process.life.number));
        let within = self.stage.draw(|tape| tape.among([1_000, 0, 10]));
        process.engine.drain(Duration::from_millis(within)).await;
        self.stage.tell(|| format!("process {} is drained", process.life.number));
        process.end();
        self.reopen();
        self.start().await;
    }

    /// An operator edits the configuration of the running process.
    pub(crate) async fn reconfigure(&mut self) {
        let change = {
            let mut book = self.stage.book();
            self.setup.live.change(&mut book.tape)
        };
        self.stage.tell(|| change);
        let Some(process) = &self.process else { return };
        let agents = agents::agents(&self.setup, &self.stage, &process.life);
        // A process that is lost meanwhile never answers.
        let replaced =
            tokio::time::timeout(Duration::from_secs(60), process.engine.replace_agents(agents)).await;
        if let Ok(Err(why)) = replaced {
            let detail = format!("the agents cannot be replaced: {why}");
            self.stage.object(Violation { invariant: Invariant::NothingIsBroken, detail });
        }
    }

    /// Waits until something else happens.
    async fn wait(&self) {
        let milliseconds = self.stage.draw(|tape| match tape.pick(8) {
            0..=2 => 0,
            3 | 4 => 1 + tape.pick(9) as u64,
            5 | 6 => 10 + tape.pick(120) as u64,
            _ => 1_000 + tape.pick(4_000) as u64,
        });
        if milliseconds == 0 {
            let turns = self.stage.draw(|tape| tape.pick(6));
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            return;
        }
        tokio::select! {
            biased;
            () = self.stage.rung() => {}
            () = tokio::time::sleep(Duration::from_millis(milliseconds)) => {}
        }
    }
}
