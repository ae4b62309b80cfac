//! The parent: plays world after world with two hands, and stops at the first that goes wrong.

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

/// Worlds that are played at once.
const HANDS: usize = 2;
/// How many times the kills that were asked for a matrix may take to see everything once.
const PATIENCE: u64 = 8;
const TELL_EVERY: Duration = Duration::from_secs(10);

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// At least so many, after every boundary has had its kill; more, if a whole matrix has not seen everything.
    pub kills: u64,
    pub seed: u64,
    /// Only these, if any is named.
    pub stories: Vec<String>,
    /// Only this world.
    pub only: Option<String>,
    /// The folders of the worlds stay.
    pub keep: bool,
}

impl Order {
    /// Until there were enough kills, and until everything was seen: what is rare depends on how fast the machine is.
    /// What was not seen after many times as many is not there.
    pub(crate) fn wants_more(&self, kills: u64, missing: impl FnOnce() -> Vec<String>) -> bool {
        kills < self.kills || (self.is_whole() && kills < PATIENCE * self.kills && !missing().is_empty())
    }

    /// Every story takes part.
    pub(crate) const fn is_whole(&self) -> bool {
        self.only.is_none() && self.stories.is_empty()
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    pub summary: Summary,
    pub wrong: Option<Played>,
    /// The world that was played last, if it went well.
    pub last: Option<Played>,
    /// What a whole matrix must see and this one did not. Nothing is asked of a part of one.
    pub missing: Vec<String>,
}

/// Plays what is asked for. `program` is this very program.
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

/// The stories that are asked for.
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

/// What both hands look at.
struct Table {
    chance: Chance,
    extents: Vec<(Arc<Story>, Extent)>,
    ahead: Vec<Case>,
    /// Any worlds follow, until there were enough kills.
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

    /// Plays every story without a kill: it must go right, and shows its boundaries.
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

/// Plays, prints, and says whether all is well.
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
