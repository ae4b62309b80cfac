//! The matrix of three nodes on one PostgreSQL server. Worlds are played in parallel, because each spends most of its
//! time waiting for a lease to expire.

pub mod befell;
pub mod crowd;
mod members;
mod pausing;
pub mod plan;
mod reader;
pub mod report;
mod way;
pub mod world;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::bystanders::Bystanders;
use crate::chance::Chance;
use crate::matrix::{Order, chosen};
use crate::node::Failure;
use crate::scratch::Scratch;
use crate::server::Server;
use crate::stories::Story;

use plan::Case;
use report::Summary;
use world::{Played, play};

/// The number of worlds played at once.
const HANDS: usize = 12;
const TELL_EVERY: Duration = Duration::from_secs(10);

/// What all worlds share.
pub struct Ground {
    program: PathBuf,
    bystanders: Bystanders,
    folder: PathBuf,
    steady: Arc<Server>,
    /// The server that is crashed on purpose. Started when first needed.
    shaky: Mutex<Option<Arc<Server>>>,
    crashing: Mutex<()>,
    world_count: AtomicU64,
}

impl Ground {
    /// `program` is this very program.
    pub fn new(program: PathBuf, bystanders: Bystanders, folder: &Path) -> io::Result<Self> {
        Ok(Self {
            program,
            bystanders,
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
pub struct Outcome {
    pub summary: Summary,
    pub wrong: Option<Played>,
    /// What a whole matrix must cover and this one did not. Empty for a partial matrix.
    pub missing: Vec<String>,
}

/// Plays the requested worlds. `program` is this very program.
pub fn run(program: PathBuf, order: &Order) -> Result<Outcome, Failure> {
    let scratch = Scratch::new(order.keep)?;
    let bystanders = Bystanders::start(&program, scratch.path())?;
    let ground = Ground::new(program, bystanders, scratch.path())?;
    let stories = chosen(order)?;
    let parse = |text: &str| plan::parse(text, &stories, order.seed);
    let only = order.only.as_ref().map(|text| text.split(',').map(parse).collect::<Result<_, _>>());
    let only = only.transpose()?;
    let game = Game::new(&ground, order, stories, only);
    game.play_all()?;
    if order.keep {
        eprintln!("the worlds lie in {}", scratch.path().display());
    }
    Ok(game.result())
}

struct Game<'a> {
    ground: &'a Ground,
    order: &'a Order,
    stories: Vec<Arc<Story>>,
    began: Instant,
    table: Mutex<Table>,
}

/// The state that all threads share.
struct Table {
    chance: Chance,
    ahead: Vec<Case>,
    /// Whether random worlds follow until there were enough kills.
    more: bool,
    summary: Summary,
    wrong: Option<Played>,
    failure: Option<io::Error>,
    told_at: Instant,
}

impl<'a> Game<'a> {
    fn new(ground: &'a Ground, order: &'a Order, stories: Vec<Arc<Story>>, only: Option<Vec<Case>>) -> Self {
        let now = Instant::now();
        let mut chance = Chance::of(order.seed);
        let more = only.is_none();
        let ahead = only.unwrap_or_else(|| plan::every(&stories, &mut chance));
        let summary = Summary::default();
        let table = Table { chance, ahead, more, summary, wrong: None, failure: None, told_at: now };
        Self { ground, order, stories, began: now, table: Mutex::new(table) }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn play_all(&self) -> io::Result<()> {
        std::thread::scope(|scope| {
            for hand in 0..HANDS {
                scope.spawn(move || {
                    while let Some(case) = self.next_case() {
                        let played = play(self.ground, hand, &case, self.order.keep);
                        self.put_down(played);
                    }
                });
            }
        });
        self.table().failure.take().map_or(Ok(()), Err)
    }

    fn next_case(&self) -> Option<Case> {
        let mut table = self.table();
        if table.wrong.is_some() || table.failure.is_some() {
            return None;
        }
        if let Some(case) = table.ahead.pop() {
            return Some(case);
        }
        let more = table.more && self.order.wants_more(table.summary.kills, || table.summary.missing());
        if more { plan::any(&self.stories, &mut table.chance) } else { None }
    }

    fn put_down(&self, played: io::Result<Played>) {
        let mut table = self.table();
        match played {
            Err(error) => table.failure = Some(error),
            Ok(played) => {
                table.summary.add(&played);
                if !played.violations.is_empty() && table.wrong.is_none() {
                    table.wrong = Some(played);
                }
            }
        }
        if table.told_at.elapsed() >= TELL_EVERY {
            table.told_at = Instant::now();
            let (kills, worlds) = (table.summary.kills, table.summary.worlds);
            let seconds = self.began.elapsed().as_secs();
            eprintln!("{kills} kills in {worlds} worlds of three nodes after {seconds} s");
        }
    }

    fn result(self) -> Outcome {
        let whole = self.order.is_whole();
        let table = self.table.into_inner().unwrap_or_else(PoisonError::into_inner);
        let missing = if whole { table.summary.missing() } else { Vec::new() };
        Outcome { summary: table.summary, wrong: table.wrong, missing }
    }
}

/// Plays the worlds, prints the result and returns whether it passed.
pub fn tell(program: PathBuf, order: &Order) -> Result<bool, Failure> {
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
