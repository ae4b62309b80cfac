//! One world: its processes one after the other, the kills between them, and the judgement at the end.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::clock::{Clock, SystemClock};
use machine::Timestamp;

use crate::bystanders::Bystanders;
use crate::chance::Chance;
use crate::evidence::{self, Evidence, Traces};
use crate::judge::{Moment, Rule, Violation, judge};
use crate::ledger;
use crate::life::{End, Fate, Life, Where};
use crate::node::Node;
use crate::people::People;
use crate::plan::{self, Aim, Case, Extent};
use crate::stop::Stop;
use crate::store_at::StoreAt;
use crate::tally::Tally;
use crate::wire::{Crossing, Passage, Side};

/// A stop that is never reached. It is set because a process with a stop runs on one thread.
const NEVER: Stop = Stop::At(u64::MAX);
/// More processes than any world has.
const PROCESSES_MAX: usize = 16;

/// What all worlds share.
#[derive(Debug)]
pub struct Place {
    /// The program that all processes run.
    pub program: PathBuf,
    pub bystanders: Bystanders,
    pub folder: PathBuf,
    /// A process that is being started briefly inherits every file that is open here, with its lock. So no store is
    /// read while one starts.
    starting: Mutex<()>,
    world_count: AtomicU64,
}

impl Place {
    #[must_use]
    pub fn new(program: PathBuf, bystanders: Bystanders, folder: PathBuf) -> Self {
        Self { program, bystanders, folder, starting: Mutex::default(), world_count: AtomicU64::new(0) }
    }

    fn alone(&self) -> MutexGuard<'_, ()> {
        self.starting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of one world.
#[derive(Debug)]
pub struct Played {
    pub case: Case,
    /// The places of the kills, in order of the killed processes.
    pub kills: Vec<Where>,
    pub extent: Extent,
    pub violations: Vec<Violation>,
    pub people: People,
    pub evidence: Option<Evidence>,
    pub tally: Tally,
}

struct World<'a> {
    place: &'a Place,
    store: PathBuf,
    traces: Traces,
    chance: Chance,
    played: Played,
}

/// Plays a world in its own folder. The folder is deleted afterwards unless `keep` is set.
pub fn play(place: &Place, case: &Case, extent: &Extent, keep: bool) -> io::Result<Played> {
    let number = place.world_count.fetch_add(1, Ordering::Relaxed) + 1;
    let folder = place.folder.join(format!("{number}-{}", case.story.name));
    std::fs::create_dir_all(&folder)?;
    let people = People::of(&case.story).reading(ledger::in_folder(&folder));
    let world = World {
        place,
        store: folder.join("store.db"),
        traces: Traces::in_folder(&folder),
        chance: Chance::of(case.seed),
        played: Played {
            case: case.clone(),
            kills: Vec::new(),
            extent: Extent { crossings: Vec::new(), lasts: Duration::ZERO },
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
            let fate = plan::fate(&self.played.case, extent, process, &mut self.chance);
            match self.live(process, fate)? {
                End::Over => {
                    self.look(process, Moment::End);
                    return Ok(self.played);
                }
                End::Wrong(violation) => {
                    self.played.violations.push(violation);
                    self.look(process, Moment::Between);
                    return Ok(self.played);
                }
                End::Killed(place) => self.played.kills.push(place),
            }
            // Opening the file changes it, so only half of the stores are read before the next process starts. A store
            // in whose inbox something waits is always read.
            let submitted = Where::At(Crossing { side: Side::After, passage: Passage::Submit });
            if self.chance.percent(50) || self.played.kills.last() == Some(&submitted) {
                self.look(process, Moment::Between);
            }
            if !self.played.violations.is_empty() {
                return Ok(self.played);
            }
        }
        let what = format!("{PROCESSES_MAX} processes and no end");
        self.played.violations.push(Violation { rule: Rule::NothingIsStuck, what });
        Ok(self.played)
    }

    fn live(&mut self, process: usize, fate: Fate) -> io::Result<End> {
        let stop = match fate {
            Fate::AtCrossing(crossing) => Some(Stop::At(crossing)),
            Fate::AfterTime(_) => None,
            Fate::Spared if self.played.case.aim == Aim::Instant => None,
            Fate::Spared => Some(NEVER),
        };
        let node = Node {
            process: u32::try_from(process).unwrap_or(u32::MAX),
            store: StoreAt::File(self.store.clone()),
            socket: self.place.bystanders.ledger.clone(),
            folder: self.traces.folder().to_owned(),
            till: self.place.bystanders.till,
            ahead_ms: Some(self.ahead_ms(process)),
            stop,
        };
        let people = &mut self.played.people;
        people.begin_again();
        let mut life = {
            let _alone = self.place.alone();
            Life::begin(&self.place.program, &node, &self.traces.complaints(node.process))?
        };
        let end = life.drive(people, fate);
        if self.played.case.aim == Aim::Nobody && !matches!(end, Some(End::Wrong(_))) {
            self.played.extent.crossings.push(life.count_crossings()?);
            self.played.extent.lasts = self.played.extent.lasts.max(life.age());
        }
        let end = end.unwrap_or_else(|| life.kill(people, Where::AtRest));
        drop(life);
        ledger::catch_up(&self.place.bystanders.ledger)?;
        Ok(end)
    }

    /// How much time has passed while no process was running.
    fn ahead_ms(&self, process: usize) -> u64 {
        let outages = u32::try_from(process - 1).unwrap_or(u32::MAX);
        let ahead = self.played.case.story.outage.saturating_mul(outages);
        u64::try_from(ahead.as_millis()).unwrap_or(u64::MAX)
    }

    /// Reads the stored data and judges it.
    fn look(&mut self, process: usize, moment: Moment) {
        let now = Timestamp(SystemClock.now().0 + self.ahead_ms(process));
        let people = &self.played.people;
        let read = {
            let _alone = self.place.alone();
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
                self.played.violations.push(Violation { rule: Rule::NobodyComplains, what });
            }
        }
    }
}
