//! Chooses the next world of three nodes, and the trouble that happens to it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::chance::Chance;
use crate::stop::Stop;
use crate::stories::Story;
use crate::wire::{Boundary, Operation, Side};

/// The trouble that happens to a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    Nothing,
    /// A node is killed.
    Kill(Instant),
    /// A node pauses for longer than its lease, and resumes.
    Pause(Instant),
    /// A node pauses for longer than its lease, and resumes after others have claimed its run but before they have
    /// stored anything.
    Stale(Instant),
    /// The server crashes and restarts.
    Crash,
    /// Connections are cut after an arbitrary byte.
    Cut,
    /// The server dies, and its standby is promoted.
    Promotion,
}

impl Trouble {
    /// Whether nodes lose their server or the connection to it.
    #[must_use]
    pub const fn cuts_off(self) -> bool {
        match self {
            Self::Crash | Self::Cut | Self::Promotion => true,
            Self::Nothing | Self::Kill(_) | Self::Pause(_) | Self::Stale(_) => false,
        }
    }
}

/// When a node is hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instant {
    /// When the first node reaches this boundary for the nth time.
    At(Boundary, u64),
    Any,
}

#[derive(Clone, Debug)]
pub struct ClusterCase {
    pub story: Arc<Story>,
    pub trouble: Trouble,
    pub seed: u64,
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::At(boundary, nth) => write!(f, "{}", Stop::Nth { boundary, nth }),
            Self::Any => f.write_str("instant"),
        }
    }
}

impl Instant {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "instant" {
            return Ok(Self::Any);
        }
        match text.parse()? {
            Stop::Nth { boundary, nth } => Ok(Self::At(boundary, nth)),
            Stop::At(_) => Err(format!("{text} is no boundary of three nodes")),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Kill(when) => write!(f, "kill/{when}"),
            Self::Pause(when) => write!(f, "pause/{when}"),
            Self::Stale(when) => write!(f, "stale/{when}"),
            Self::Crash => f.write_str("crash"),
            Self::Cut => f.write_str("cut"),
            Self::Promotion => f.write_str("promotion"),
        }
    }
}

impl fmt::Display for ClusterCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.story.name, self.trouble)
    }
}

/// Parses what [`ClusterCase`] displays.
pub fn parse(text: &str, stories: &[Arc<Story>], seed: u64) -> Result<ClusterCase, String> {
    let (name, trouble) = text.split_once(':').ok_or_else(|| format!("{text} is not STORY:TROUBLE"))?;
    let story = stories.iter().find(|story| story.name == name);
    let story = story.ok_or_else(|| format!("there is no story {name}"))?.clone();
    let trouble = match trouble.split_once('/') {
        Some(("kill", when)) => Trouble::Kill(Instant::parse(when)?),
        Some(("pause", when)) => Trouble::Pause(Instant::parse(when)?),
        Some(("stale", when)) => Trouble::Stale(Instant::parse(when)?),
        None if trouble == "nothing" => Trouble::Nothing,
        None if trouble == "crash" => Trouble::Crash,
        None if trouble == "cut" => Trouble::Cut,
        None if trouble == "promotion" => Trouble::Promotion,
        Some(_) | None => return Err(format!("unknown trouble {trouble}")),
    };
    Ok(ClusterCase { story, trouble, seed })
}

/// After this boundary the intent to send is stored, but nothing has been sent.
pub const BEFORE_SENDING: Boundary = Boundary { side: Side::After, operation: Operation::Start };

/// Every nth story is played with a crash.
const CRASHES_EVERY: usize = 4;
const STALE_EVERY: usize = 2;
const STARTS_EVERY: usize = 4;

/// Every story undisturbed, at every boundary, paused and cut; some with a stale node, some with a crash and one with
/// a promoted standby. In random order.
#[must_use]
pub fn every(stories: &[Arc<Story>], chance: &mut Chance) -> Vec<ClusterCase> {
    let mut cases = Vec::new();
    for story in stories {
        let mut add =
            |trouble| cases.push(ClusterCase { story: story.clone(), trouble, seed: chance.number() });
        add(Trouble::Nothing);
        let of_story =
            |operation: &Operation| *operation != Operation::PutRevision && story.reaches(*operation);
        for operation in Operation::ALL.into_iter().filter(of_story) {
            for side in [Side::Before, Side::After] {
                add(Trouble::Kill(Instant::At(Boundary { side, operation }, 1)));
            }
        }
        add(Trouble::Kill(Instant::Any));
        add(Trouble::Kill(Instant::Any));
        add(Trouble::Pause(Instant::At(BEFORE_SENDING, 1)));
        add(Trouble::Pause(Instant::Any));
        add(Trouble::Cut);
    }
    for story in stories.iter().step_by(STALE_EVERY) {
        let trouble = any_stale(chance);
        cases.push(ClusterCase { story: story.clone(), trouble, seed: chance.number() });
    }
    // Every start stores the agents, whatever the story, so a few stories are enough.
    for story in stories.iter().step_by(STARTS_EVERY) {
        for side in [Side::Before, Side::After] {
            let start = Boundary { side, operation: Operation::PutRevision };
            let trouble = Trouble::Kill(Instant::At(start, 1));
            cases.push(ClusterCase { story: story.clone(), trouble, seed: chance.number() });
        }
    }
    // Only a few stories crash, because worlds with a crash cannot be played in parallel.
    for story in stories.iter().step_by(CRASHES_EVERY) {
        cases.push(ClusterCase { story: story.clone(), trouble: Trouble::Crash, seed: chance.number() });
    }
    if let Some(story) = stories.first() {
        cases.push(ClusterCase { story: story.clone(), trouble: Trouble::Promotion, seed: chance.number() });
    }
    chance.shuffle(&mut cases);
    cases
}

/// The percentage of random cases that are kills. Each next percentage applies to the cases that remain.
const KILLS_PERCENT: u64 = 80;
const PAUSES_PERCENT: u64 = 60;
const STALE_PERCENT: u64 = 30;
const CRASHES_PERCENT: u64 = 40;
/// Low, because a promotion needs two servers of its own.
const PROMOTIONS_PERCENT: u64 = 10;
const NTH_MAX: u64 = 4;

/// A random story with random trouble.
pub fn any(stories: &[Arc<Story>], chance: &mut Chance) -> Option<ClusterCase> {
    let story = stories.get(usize::try_from(chance.below(stories.len() as u64)).ok()?)?;
    let trouble = if chance.percent(KILLS_PERCENT) {
        Trouble::Kill(any_instant(chance))
    } else if chance.percent(PAUSES_PERCENT) {
        Trouble::Pause(any_instant(chance))
    } else if chance.percent(STALE_PERCENT) {
        any_stale(chance)
    } else if chance.percent(CRASHES_PERCENT) {
        Trouble::Crash
    } else if chance.percent(PROMOTIONS_PERCENT) {
        Trouble::Promotion
    } else {
        Trouble::Cut
    };
    Some(ClusterCase { story: story.clone(), trouble, seed: chance.number() })
}

/// Before one of the first commits of a run.
fn any_stale(chance: &mut Chance) -> Trouble {
    let operation = if chance.percent(50) { Operation::Append } else { Operation::Start };
    Trouble::Stale(Instant::At(Boundary { side: Side::Before, operation }, 1 + chance.below(2)))
}

fn any_instant(chance: &mut Chance) -> Instant {
    if chance.percent(50) {
        return Instant::Any;
    }
    let operation = Operation::ALL[chance.below(Operation::ALL.len() as u64) as usize];
    let side = if chance.percent(50) { Side::Before } else { Side::After };
    Instant::At(Boundary { side, operation }, 1 + chance.below(NTH_MAX))
}

/// Roughly how long an undisturbed story lasts.
const LASTS: Duration = Duration::from_millis(400);
/// How many processes of one world may be killed.
const KILLS_MAX: usize = 4;
const KILLED_AGAIN_PERCENT: u64 = 40;
/// Further kills happen soon after a start, once its agents are stored, because recovery is the most fragile phase.
const RECOVERY_BEGINS: u64 = 3;
const RECOVERY_CROSSINGS: u64 = 12;

pub fn any_moment(chance: &mut Chance) -> Duration {
    Duration::from_micros(chance.below(u64::try_from(LASTS.as_micros()).unwrap_or(u64::MAX)))
}

/// Where the replacement of a killed process is stopped and killed in turn, if at all.
pub fn stop_again(kill_count: usize, chance: &mut Chance) -> Option<Stop> {
    let again = kill_count < KILLS_MAX && chance.percent(KILLED_AGAIN_PERCENT);
    again.then(|| Stop::At(RECOVERY_BEGINS + chance.below(RECOVERY_CROSSINGS)))
}

#[test]
fn a_case_that_is_written_is_read_again() {
    let stories: Vec<Arc<Story>> = crate::stories::all().into_iter().map(Arc::new).collect();
    for case in every(&stories, &mut Chance::from_seed(1)) {
        let read = parse(&case.to_string(), &stories, 7).map(|case| case.to_string());
        assert_eq!(read, Ok(case.to_string()));
    }
    for bad in ["eager", "gone:cut", "eager:kill", "eager:kill/17", "eager:gone"] {
        assert!(parse(bad, &stories, 7).is_err(), "{bad}");
    }
}
