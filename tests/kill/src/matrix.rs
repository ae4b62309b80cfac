//! The parent: plays worlds on two threads, and stops at the first that fails.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::chance::Chance;
use crate::node::Failure;
use crate::plan::{self, Aim, Case, Extent};
use crate::report::{self, Summary};
use crate::scratch::Scratch;
use crate::stories::{self, Story};
use crate::support_processes::SupportProcesses;
use crate::world::{Played, WorldSetup, play};

/// The number of worlds played at once.
const THREADS: usize = 2;
/// A matrix may need up to this many times the requested kills to see everything once.
const CALLER_TIMEOUT: u64 = 8;
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// The requested matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The minimum number of kills, after every boundary has had one. A whole matrix continues if it has not seen
    /// everything.
    pub kills: u64,
    pub seed: u64,
    /// Only these stories, if any are named.
    pub stories: Vec<String>,
    /// Only this world.
    pub only: Option<String>,
    /// Whether to keep the worlds' folders.
    pub keep: bool,
}

impl Order {
    /// Whether to continue: until there were enough kills and everything was seen, because rare situations depend on
    /// the machine's speed. What was not seen after `CALLER_TIMEOUT` times as many kills is reported as missing.
    pub(crate) fn wants_more(&self, kills: u64, missing: impl FnOnce() -> Vec<String>) -> bool {
        kills < self.kills
            || (self.is_whole() && kills < CALLER_TIMEOUT * self.kills && !missing().is_empty())
    }

    /// Whether every story takes part.
    pub(crate) const fn is_whole(&self) -> bool {
        self.only.is_none() && self.stories.is_empty()
    }
}

/// The result of a matrix.
#[derive(Debug)]
pub struct MatrixOutcome {
    pub summary: Summary,
    pub wrong: Option<Played>,
    /// The last world played, if it passed.
    pub last: Option<Played>,
    /// What a whole matrix must cover and this one did not. Empty for a partial matrix.
    pub missing: Vec<String>,
}

/// Plays the requested worlds. `program` is this very program.
pub fn run(program: PathBuf, order: &Order) -> Result<MatrixOutcome, Failure> {
    let scratch = Scratch::new(order.keep)?;
    let support_processes = SupportProcesses::start(&program, scratch.path())?;
    let setup = WorldSetup::new(program, support_processes, scratch.path().to_owned());
    let mut chosen = chosen(order)?;
    let only = order.only.as_ref().map(|text| plan::parse(text, &chosen, order.seed)).transpose()?;
    if let Some(case) = &only {
        chosen.retain(|story| story.name == case.story.name);
    }
    let matrix_run = MatrixRun::new(&setup, order, chosen);
    matrix_run.measure()?;
    matrix_run.play_all(only)?;
    if order.keep {
        eprintln!("the worlds lie in {}", scratch.path().display());
    }
    Ok(matrix_run.result())
}

/// The requested stories.
pub(crate) fn chosen(order: &Order) -> Result<Vec<Arc<Story>>, String> {
    let mut chosen: Vec<Arc<Story>> = stories::all().into_iter().map(Arc::new).collect();
    for name in &order.stories {
        if !chosen.iter().any(|story| story.name == name) {
            return Err(format!("there is no story {name}"));
        }
    }
    chosen.retain(|story| order.stories.is_empty() || order.stories.iter().any(|name| name == story.name));
    Ok(chosen)
}

struct MatrixRun<'a> {
    setup: &'a WorldSetup,
    order: &'a Order,
    stories: Vec<Arc<Story>>,
    began: Instant,
    state: Mutex<MatrixState>,
}

/// The state that both threads share.
struct MatrixState {
    chance: Chance,
    extents: Vec<(Arc<Story>, Extent)>,
    remaining: Vec<Case>,
    /// Whether random worlds follow until there were enough kills.
    more: bool,
    summary: Summary,
    wrong: Option<Played>,
    last: Option<Played>,
    failure: Option<io::Error>,
    reported_at: Instant,
}

impl<'a> MatrixRun<'a> {
    fn new(setup: &'a WorldSetup, order: &'a Order, stories: Vec<Arc<Story>>) -> Self {
        let now = Instant::now();
        let state = MatrixState {
            chance: Chance::from_seed(order.seed),
            extents: Vec::new(),
            remaining: Vec::new(),
            more: false,
            summary: Summary::default(),
            wrong: None,
            last: None,
            failure: None,
            reported_at: now,
        };
        Self { setup, order, stories, began: now, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, MatrixState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plays every story without a kill. It must pass, and it shows where its boundaries are.
    fn measure(&self) -> io::Result<()> {
        let seed = self.order.seed;
        let quiet = |story: &Arc<Story>| Case { story: story.clone(), aim: Aim::NoKill, seed };
        self.state().remaining = self.stories.iter().map(quiet).collect();
        self.play_in_parallel()
    }

    fn play_all(&self, only: Option<Case>) -> io::Result<()> {
        {
            let mut state = self.state();
            let MatrixState { chance, extents, .. } = &mut *state;
            extents.sort_by_key(|(story, _)| story.name);
            let cases = plan::boundaries(extents, chance);
            state.more = only.is_none();
            state.remaining = only.map_or(cases, |case| vec![case]);
        }
        self.play_in_parallel()
    }

    fn play_in_parallel(&self) -> io::Result<()> {
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    while let Some((case, extent)) = self.next_case() {
                        let played = play(self.setup, &case, &extent, self.order.keep);
                        self.record(played);
                    }
                });
            }
        });
        self.state().failure.take().map_or(Ok(()), Err)
    }

    fn next_case(&self) -> Option<(Case, Extent)> {
        let mut state = self.state();
        if state.wrong.is_some() || state.failure.is_some() {
            return None;
        }
        let case = match state.remaining.pop() {
            Some(case) => case,
            None if state.more && self.order.wants_more(state.summary.kills, || state.summary.missing()) => {
                let MatrixState { chance, extents, .. } = &mut *state;
                plan::any(extents, chance)?
            }
            None => return None,
        };
        let known = state.extents.iter().find(|(story, _)| story.name == case.story.name);
        let unknown = Extent { boundaries: Vec::new(), lasts: Duration::ZERO };
        let extent = known.map_or(unknown, |(_, extent)| extent.clone());
        Some((case, extent))
    }

    fn record(&self, played: io::Result<Played>) {
        let mut state = self.state();
        match played {
            Err(error) => state.failure = Some(error),
            Ok(played) => {
                if played.case.aim == Aim::NoKill {
                    state.extents.push((played.case.story.clone(), played.extent.clone()));
                }
                state.summary.add(&played);
                if played.violations.is_empty() {
                    state.last = Some(played);
                } else if state.wrong.is_none() {
                    state.wrong = Some(played);
                }
            }
        }
        if state.reported_at.elapsed() >= PROGRESS_INTERVAL {
            state.reported_at = Instant::now();
            let (kills, worlds) = (state.summary.kills, state.summary.worlds);
            let seconds = self.began.elapsed().as_secs();
            eprintln!("{kills} kills in {worlds} worlds after {seconds} s");
        }
    }

    fn result(self) -> MatrixOutcome {
        let whole = self.order.is_whole();
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let missing = if whole { state.summary.missing() } else { Vec::new() };
        MatrixOutcome { summary: state.summary, wrong: state.wrong, last: state.last, missing }
    }
}

/// Plays the worlds, prints the result and returns whether it passed.
pub fn run_and_report(program: PathBuf, order: &Order) -> Result<bool, Failure> {
    let began = Instant::now();
    let result = run(program, order)?;
    let (kills, worlds) = (result.summary.kills, result.summary.worlds);
    if let Some(played) = &result.wrong {
        print!("{}", report::wrong(played));
        println!("caught after {kills} kills in {worlds} worlds");
        return Ok(false);
    }
    print!("{}", result.summary.text());
    for missing in &result.missing {
        println!("NOT COVERED: {missing}");
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("{kills} kills in {worlds} worlds, {seconds:.1} s, no violation (seed {})", order.seed);
    Ok(result.missing.is_empty())
}
