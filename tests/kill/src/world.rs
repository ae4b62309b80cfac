//! One world: its processes one after the other, the kills between them, and the judgement at the end.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::clock::{Clock, SystemClock};
use machine::Timestamp;

use crate::chance::Chance;
use crate::driven_process::{DrivenProcess, KillPlace, KillPlan, ProcessEnd};
use crate::evidence::{self, Evidence, Traces};
use crate::judge::{Moment, Rule, Violation, judge};
use crate::ledger;
use crate::node::Node;
use crate::people::People;
use crate::plan::{self, Aim, Case, Extent};
use crate::stop::Stop;
use crate::store_at::StoreAt;
use crate::support_processes::SupportProcesses;
use crate::tally::Tally;
use crate::wire::{Boundary, Operation, Side};

/// A stop that is never reached. It is set because a process with a stop runs on one thread.
const NEVER: Stop = Stop::At(u64::MAX);
/// More processes than any world has.
const PROCESSES_MAX: usize = 16;

/// What all worlds share.
#[derive(Debug)]
pub struct WorldSetup {
    /// The program that all processes run.
    pub program: PathBuf,
    pub support_processes: SupportProcesses,
    pub folder: PathBuf,
    /// A process that is being started briefly inherits every file that is open here, with its lock. So no store is
    /// read while one starts.
    starting: Mutex<()>,
    world_count: AtomicU64,
}

impl WorldSetup {
    #[must_use]
    pub fn new(program: PathBuf, support_processes: SupportProcesses, folder: PathBuf) -> Self {
        Self {
            program,
            support_processes,
            folder,
            starting: Mutex::default(),
            world_count: AtomicU64::new(0),
        }
    }

    fn lock_exclusive(&self) -> MutexGuard<'_, ()> {
        self.starting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of one world.
#[derive(Debug)]
pub struct Played {
    pub case: Case,
    /// The places of the kills, in order of the killed processes.
    pub kills: Vec<KillPlace>,
    pub extent: Extent,
    pub violations: Vec<Violation>,
    pub people: People,
    pub evidence: Option<Evidence>,
    pub tally: Tally,
}

struct World<'a> {
    setup: &'a WorldSetup,
    store: PathBuf,
    traces: Traces,
    chance: Chance,
    played: Played,
}

/// Plays a world in its own folder. The folder is deleted afterwards unless `keep` is set.
pub fn play(setup: &WorldSetup, case: &Case, extent: &Extent, keep: bool) -> io::Result<Played> {
    let number = setup.world_count.fetch_add(1, Ordering::Relaxed) + 1;
    let folder = setup.folder.join(format!("{number}-{}", case.story.name));
    std::fs::create_dir_all(&folder)?;
    let people = People::for_story(&case.story).reading(ledger::in_folder(&folder));
    let world = World {
        setup,
        store: folder.join("store.db"),
        traces: Traces::in_folder(&folder),
        chance: Chance::from_seed(case.seed),
        played: Played {
            case: case.clone(),
            kills: Vec::new(),
            extent: Extent { boundaries: Vec::new(), lasts: Duration::ZERO },
            violations: Vec::new(),
            people,
            evidence: None,
            tally: Tally::default(),
        },
    };
    let played = world.play(extent)?;
    if !keep {
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(played)
}

impl World<'_> {
    fn play(mut self, extent: &Extent) -> io::Result<Played> {
        for process in 1..=PROCESSES_MAX {
            let kill_plan = plan::kill_plan(&self.played.case, extent, process, &mut self.chance);
            match self.drive_process(process, kill_plan)? {
                ProcessEnd::Over => {
                    self.judge_stored_data(process, Moment::End);
                    return Ok(self.played);
                }
                ProcessEnd::Wrong(violation) => {
                    self.played.violations.push(violation);
                    self.judge_stored_data(process, Moment::Between);
                    return Ok(self.played);
                }
                ProcessEnd::Killed(place) => self.played.kills.push(place),
            }
            // Opening the file changes it, so only half of the stores are read before the next process starts. A store
            // in whose inbox something waits is always read.
            let submitted = KillPlace::At(Boundary { side: Side::After, operation: Operation::Submit });
            if self.chance.percent(50) || self.played.kills.last() == Some(&submitted) {
                self.judge_stored_data(process, Moment::Between);
            }
            if !self.played.violations.is_empty() {
                return Ok(self.played);
            }
        }
        let what = format!("{PROCESSES_MAX} processes and no end");
        self.played.violations.push(Violation { rule: Rule::NothingIsStuck, what });
        Ok(self.played)
    }

    fn drive_process(&mut self, process: usize, kill_plan: KillPlan) -> io::Result<ProcessEnd> {
        let stop = match kill_plan {
            KillPlan::AtBoundary(boundary) => Some(Stop::At(boundary)),
            KillPlan::AfterTime(_) => None,
            KillPlan::Spared if self.played.case.aim == Aim::Instant => None,
            KillPlan::Spared => Some(NEVER),
        };
        let node = Node {
            process: u32::try_from(process).unwrap_or(u32::MAX),
            store: StoreAt::File(self.store.clone()),
            socket: self.setup.support_processes.ledger.clone(),
            folder: self.traces.folder().to_owned(),
            payment_port: self.setup.support_processes.payment_port,
            hook_port: self.played.case.story.hook.then_some(self.setup.support_processes.hook_port),
            ahead_ms: Some(self.ahead_ms(process)),
            stop,
        };
        let people = &mut self.played.people;
        people.begin_again();
        let mut driven_process = {
            let _alone = self.setup.lock_exclusive();
            DrivenProcess::begin(&self.setup.program, &node, &self.traces.complaints(node.process))?
        };
        let end = driven_process.drive(people, kill_plan);
        if self.played.case.aim == Aim::NoKill && !matches!(end, Some(ProcessEnd::Wrong(_))) {
            self.played.extent.boundaries.push(driven_process.count_boundaries()?);
            self.played.extent.lasts = self.played.extent.lasts.max(driven_process.age());
        }
        let end = end.unwrap_or_else(|| driven_process.kill(people, KillPlace::AtRest));
        drop(driven_process);
        ledger::catch_up(&self.setup.support_processes.ledger)?;
        Ok(end)
    }

    /// How much time has passed while no process was running.
    fn ahead_ms(&self, process: usize) -> u64 {
        let outages = u32::try_from(process - 1).unwrap_or(u32::MAX);
        let ahead = self.played.case.story.outage.saturating_mul(outages);
        u64::try_from(ahead.as_millis()).unwrap_or(u64::MAX)
    }

    /// Reads the stored data and judges it.
    fn judge_stored_data(&mut self, process: usize, moment: Moment) {
        let now = Timestamp(SystemClock.now().0 + self.ahead_ms(process));
        let people = &self.played.people;
        let read = {
            let _alone = self.setup.lock_exclusive();
            evidence::read_file(&self.store, &self.traces, people, now)
        };
        match read {
            Ok(evidence) => {
                self.played.violations.extend(judge(&evidence, people, moment));
                if !self.played.kills.is_empty() {
                    self.played.tally.note(&evidence, people, moment, self.played.kills.len());
                }
                self.played.evidence = Some(evidence);
            }
            Err(error) => {
                let what = format!("what is left cannot be read: {error}");
                self.played.violations.push(Violation { rule: Rule::NoErrorIsReported, what });
            }
        }
    }
}
