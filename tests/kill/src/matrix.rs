//! The parent: plays worlds on two threads, and stops at the first that fails.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::bystanders::Bystanders;
use crate::chance::Chance;
use crate::node::Failure;
use crate::plan::{self, Aim, Case, Extent};
use crate::report::{self, Summary};
use crate::scratch::Scratch;
use crate::stories::{self, Story};
use crate::world::{Place, Played, play};

/// The number of worlds played at once.
const HANDS: usize = 2;
/// A matrix may need up to this many times the requested kills to see everything once.
const PATIENCE: u64 = 8;
const TELL_EVERY: Duration = Duration::from_secs(10);

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
    /// the machine's speed. What was not seen after `PATIENCE` times as many kills is reported as missing.
    pub(crate) fn wants_more(&self, kills: u64, missing: impl FnOnce() -> Vec<String>) -> bool {
        kills < self.kills || (self.is_whole() && kills < PATIENCE * self.kills && !missing().is_empty())
    }

    /// Whether every story takes part.
    pub(crate) const fn is_whole(&self) -> bool {
        self.only.is_none() && self.stories.is_empty()
    }
}

/// The result of a matrix.
#[derive(Debug)]
pub struct Outcome {
    pub summary: Summary,
    pub wrong: Option<Played>,
    /// The last world played, if it passed.
    pub last: Option<Played>,
    /// What a whole matrix must cover and this one did not. Empty for a partial matrix.
    pub missing: Vec<String>,
}

/// Plays the requested worlds. `program` is this very program.
pub fn run(program: PathBuf, order: &Order) -> Result<Outcome, Failure> {
    let scratch = Scratch::new(order.keep)?;
    let bystanders = Bystanders::start(&program, scratch.path())?;
    let place = Place::new(program, bystanders, scratch.path().to_owned());
    let mut chosen = chosen(order)?;
    let only = order.only.as_ref().map(|text| plan::parse(text, &chosen, order.seed)).transpose()?;
    if let Some(case) = &only {
        chosen.retain(|story| story.name == case.story.name);
    }
    let game = Game::new(&place, order, chosen);
    game.measure()?;
    game.play_all(only)?;
    if order.keep {
        eprintln!("the worlds lie in {}", scratch.path().display());
    }
    Ok(game.result())
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

struct Game<'a> {
    place: &'a Place,
    order: &'a Order,
    stories: Vec<Arc<Story>>,
    began: Instant,
    table: Mutex<Table>,
}

/// The state that both threads share.
struct Table {
    chance: Chance,
    extents: Vec<(Arc<Story>, Extent)>,
    ahead: Vec<Case>,
    /// Whether random worlds follow until there were enough kills.
    more: bool,
    summary: Summary,
    wrong: Option<Played>,
    last: Option<Played>,
    failure: Option<io::Error>,
    told_at: Instant,
}

impl<'a> Game<'a> {
    fn new(place: &'a Place, order: &'a Order, stories: Vec<Arc<Story>>) -> Self {
        let now = Instant::now();
        let table = Table {
            chance: Chance::of(order.seed),
            extents: Vec::new(),
            ahead: Vec::new(),
            more: false,
            summary: Summary::default(),
            wrong: None,
            last: None,
            failure: None,
            told_at: now,
        };
        Self { place, order, stories, began: now, table: Mutex::new(table) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plays every story without a kill. It must pass, and it shows where its boundaries are.
    fn measure(&self) -> io::Result<()> {
        let seed = self.order.seed;
        let quiet = |story: &Arc<Story>| Case { story: story.clone(), aim: Aim::Nobody, seed };
        self.table().ahead = self.stories.iter().map(quiet).collect();
        self.use_both_hands()
    }

    fn play_all(&self, only: Option<Case>) -> io::Result<()> {
        {
            let mut table = self.table();
            let Table { chance, extents, .. } = &mut *table;
            extents.sort_by_key(|(story, _)| story.name);
            let cases = plan::boundaries(extents, chance);
            table.more = only.is_none();
            table.ahead = only.map_or(cases, |case| vec![case]);
        }
        self.use_both_hands()
    }

    fn use_both_hands(&self) -> io::Result<()> {
        std::thread::scope(|scope| {
            for _ in 0..HANDS {
                scope.spawn(|| {
                    while let Some((case, extent)) = self.next_case() {
                        let played = play(self.place, &case, &extent, self.order.keep);
                        self.put_down(played);
                    }
                });
            }
        });
        self.table().failure.take().map_or(Ok(()), Err)
    }

    fn next_case(&self) -> Option<(Case, Extent)> {
        let mut table = self.table();
        if table.wrong.is_some() || table.failure.is_some() {
            return None;
        }
        let case = match table.ahead.pop() {
            Some(case) => case,
            None if table.more && self.order.wants_more(table.summary.kills, || table.summary.missing()) => {
                let Table { chance, extents, .. } = &mut *table;
                plan::any(extents, chance)?
            }
            None => return None,
        };
        let known = table.extents.iter().find(|(story, _)| story.name == case.story.name);
        let unknown = Extent { crossings: Vec::new(), lasts: Duration::ZERO };
        let extent = known.map_or(unknown, |(_, extent)| extent.clone());
        Some((case, extent))
    }

    fn put_down(&self, played: io::Result<Played>) {
        let mut table = self.table();
        match played {
            Err(error) => table.failure = Some(error),
            Ok(played) => {
                if played.case.aim == Aim::Nobody {
                    table.extents.push((played.case.story.clone(), played.extent.clone()));
                }
                table.summary.add(&played);
                if played.violations.is_empty() {
                    table.last = Some(played);
                } else if table.wrong.is_none() {
                    table.wrong = Some(played);
                }
            }
        }
        if table.told_at.elapsed() >= TELL_EVERY {
            table.told_at = Instant::now();
            let (kills, worlds) = (table.summary.kills, table.summary.worlds);
            let seconds = self.began.elapsed().as_secs();
            eprintln!("{kills} kills in {worlds} worlds after {seconds} s");
        }
    }

    fn result(self) -> Outcome {
        let whole = self.order.is_whole();
        let table = self.table.into_inner().unwrap_or_else(PoisonError::into_inner);
        let missing = if whole { table.summary.missing() } else { Vec::new() };
        Outcome { summary: table.summary, wrong: table.wrong, last: table.last, missing }
    }
}

/// Plays the worlds, prints the result and returns whether it passed.
pub fn tell(program: PathBuf, order: &Order) -> Result<bool, Failure> {
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
