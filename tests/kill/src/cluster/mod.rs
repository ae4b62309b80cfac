//! The matrix of three nodes on one PostgreSQL server. Worlds are played in parallel, because each spends most of its
//! time waiting for a lease to expire.

pub mod concurrent_runs;
pub mod disturbance;
mod members;
mod pausing;
pub mod plan;
mod reader;
pub mod report;
mod server_access;
pub mod world;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::chance::Chance;
use crate::matrix::{Order, chosen};
use crate::node::Failure;
use crate::scratch::Scratch;
use crate::server::Server;
use crate::stories::Story;
use crate::support_processes::SupportProcesses;

use plan::ClusterCase;
use report::ClusterSummary;
use world::{PlayedCluster, play};

/// The number of worlds played at once.
const THREADS: usize = 12;
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// What all worlds share.
pub struct ClusterSetup {
    program: PathBuf,
    support_processes: SupportProcesses,
    folder: PathBuf,
    steady: Arc<Server>,
    /// The server that is crashed on purpose. Started when first needed.
    shaky: Mutex<Option<Arc<Server>>>,
    crashing: Mutex<()>,
    world_count: AtomicU64,
}

impl ClusterSetup {
    /// `program` is this very program.
    pub fn new(program: PathBuf, support_processes: SupportProcesses, folder: &Path) -> io::Result<Self> {
        Ok(Self {
            program,
            support_processes,
            folder: folder.to_owned(),
            steady: Arc::new(Server::start(&folder.join("steady"))?),
            shaky: Mutex::default(),
            crashing: Mutex::default(),
            world_count: AtomicU64::new(0),
        })
    }

    fn shaky(&self) -> io::Result<Arc<Server>> {
        let mut shaky = self.shaky.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = &*shaky {
            return Ok(server.clone());
        }
        let server = Arc::new(Server::start(&self.folder.join("shaky"))?);
        *shaky = Some(server.clone());
        Ok(server)
    }
}

/// The result of a matrix.
#[derive(Debug)]
pub struct ClusterOutcome {
    pub summary: ClusterSummary,
    pub wrong: Option<PlayedCluster>,
    /// What a whole matrix must cover and this one did not. Empty for a partial matrix.
    pub missing: Vec<String>,
}

/// Plays the requested worlds. `program` is this very program.
pub fn run(program: PathBuf, order: &Order) -> Result<ClusterOutcome, Failure> {
    let scratch = Scratch::new(order.keep)?;
    let support_processes = SupportProcesses::start(&program, scratch.path())?;
    let setup = ClusterSetup::new(program, support_processes, scratch.path())?;
    let stories = chosen(order)?;
    let parse = |text: &str| plan::parse(text, &stories, order.seed);
    let only = order.only.as_ref().map(|text| text.split(',').map(parse).collect::<Result<_, _>>());
    let only = only.transpose()?;
    let matrix_run = ClusterMatrixRun::new(&setup, order, stories, only);
    matrix_run.play_all()?;
    if order.keep {
        eprintln!("the worlds lie in {}", scratch.path().display());
    }
    Ok(matrix_run.result())
}

struct ClusterMatrixRun<'a> {
    setup: &'a ClusterSetup,
    order: &'a Order,
    stories: Vec<Arc<Story>>,
    began: Instant,
    state: Mutex<ClusterMatrixState>,
}

/// The state that all threads share.
struct ClusterMatrixState {
    chance: Chance,
    remaining: Vec<ClusterCase>,
    /// Whether random worlds follow until there were enough kills.
    more: bool,
    summary: ClusterSummary,
    wrong: Option<PlayedCluster>,
    failure: Option<io::Error>,
    reported_at: Instant,
}

impl<'a> ClusterMatrixRun<'a> {
    fn new(
        setup: &'a ClusterSetup,
        order: &'a Order,
        stories: Vec<Arc<Story>>,
        only: Option<Vec<ClusterCase>>,
    ) -> Self {
        let now = Instant::now();
        let mut chance = Chance::from_seed(order.seed);
        let more = only.is_none();
        let remaining = only.unwrap_or_else(|| plan::every(&stories, &mut chance));
        let summary = ClusterSummary::default();
        let state = ClusterMatrixState {
            chance,
            remaining,
            more,
            summary,
            wrong: None,
            failure: None,
            reported_at: now,
        };
        Self { setup, order, stories, began: now, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, ClusterMatrixState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn play_all(&self) -> io::Result<()> {
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || {
                    while let Some(case) = self.next_case() {
                        let played = play(self.setup, thread, &case, self.order.keep);
                        self.record(played);
                    }
                });
            }
        });
        self.state().failure.take().map_or(Ok(()), Err)
    }

    fn next_case(&self) -> Option<ClusterCase> {
        let mut state = self.state();
        if state.wrong.is_some() || state.failure.is_some() {
            return None;
        }
        if let Some(case) = state.remaining.pop() {
            return Some(case);
        }
        let more = state.more && self.order.wants_more(state.summary.kills, || state.summary.missing());
        if more { plan::any(&self.stories, &mut state.chance) } else { None }
    }

    fn record(&self, played: io::Result<PlayedCluster>) {
        let mut state = self.state();
        match played {
            Err(error) => state.failure = Some(error),
            Ok(played) => {
                state.summary.add(&played);
                if !played.violations.is_empty() && state.wrong.is_none() {
                    state.wrong = Some(played);
                }
            }
        }
        if state.reported_at.elapsed() >= PROGRESS_INTERVAL {
            state.reported_at = Instant::now();
            let (kills, worlds) = (state.summary.kills, state.summary.worlds);
            let seconds = self.began.elapsed().as_secs();
            eprintln!("{kills} kills in {worlds} worlds of three nodes after {seconds} s");
        }
    }

    fn result(self) -> ClusterOutcome {
        let whole = self.order.is_whole();
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let missing = if whole { state.summary.missing() } else { Vec::new() };
        ClusterOutcome { summary: state.summary, wrong: state.wrong, missing }
    }
}

/// Plays the worlds, prints the result and returns whether it passed.
pub fn run_and_report(program: PathBuf, order: &Order) -> Result<bool, Failure> {
    let began = Instant::now();
    let result = run(program, order)?;
    let (kills, worlds) = (result.summary.kills, result.summary.worlds);
    if let Some(played) = &result.wrong {
        print!("{}", report::wrong(played));
        println!("caught after {kills} kills in {worlds} worlds of three nodes");
        return Ok(false);
    }
    print!("{}", result.summary.text());
    for missing in &result.missing {
        println!("NOT COVERED: {missing}");
    }
    let (seconds, seed) = (began.elapsed().as_secs_f64(), order.seed);
    println!("{kills} kills in {worlds} worlds of three nodes, {seconds:.1} s, no violation (seed {seed})");
    Ok(result.missing.is_empty())
}
