//! Chooses the next world to play: every boundary of every story, then random moments for as long as time permits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::chance::Chance;
use crate::driven_process::KillPlan;
use crate::stories::Story;

/// When the first kill of a world happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// No process is killed. This shows how many boundaries there are, and how long a process lives.
    NoKill,
    /// At a boundary of the world's nth process. Both count from 1.
    Boundary {
        process: usize,
        boundary: u64,
    },
    Instant,
}

#[derive(Clone, Debug)]
pub struct Case {
    pub story: Arc<Story>,
    pub aim: Aim,
    pub seed: u64,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.story.name;
        match self.aim {
            Aim::NoKill => write!(f, "{name}:none"),
            Aim::Boundary { process, boundary } => write!(f, "{name}:{process}/{boundary}"),
            Aim::Instant => write!(f, "{name}:instant"),
        }
    }
}

/// Parses what [`Case`] displays.
pub fn parse(text: &str, stories: &[Arc<Story>], seed: u64) -> Result<Case, String> {
    let (name, aim) = text.split_once(':').ok_or_else(|| format!("{text} is not STORY:PROCESS/CROSSING"))?;
    let story = stories.iter().find(|story| story.name == name);
    let story = story.ok_or_else(|| format!("there is no story {name}"))?.clone();
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    let aim = match aim.split_once('/') {
        Some((process, boundary)) => {
            let process = usize::try_from(number(process)?).map_err(|error| error.to_string())?;
            Aim::Boundary { process, boundary: number(boundary)? }
        }
        None if aim == "instant" => Aim::Instant,
        None if aim == "none" => Aim::NoKill,
        None => return Err(format!("{aim} is neither PROCESS/CROSSING nor instant nor none")),
    };
    Ok(Case { story, aim, seed })
}

/// What a world without a kill has shown about its story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The number of crossings of each process in turn.
    pub boundaries: Vec<u64>,
    pub lasts: Duration,
}

/// Further kills happen soon after a start, because recovery is the most fragile phase.
const RECOVERY_CROSSINGS: u64 = 12;
const KILLED_AGAIN_PERCENT: u64 = 40;
/// How many processes of one world may be killed.
pub const KILLS_MAX: usize = 4;

/// The fate of the world's nth process.
pub fn kill_plan(case: &Case, extent: &Extent, process: usize, chance: &mut Chance) -> KillPlan {
    let lasts = u64::try_from(extent.lasts.as_micros()).unwrap_or(u64::MAX);
    let instant = |chance: &mut Chance| KillPlan::AfterTime(Duration::from_micros(chance.below(lasts)));
    match case.aim {
        Aim::NoKill => KillPlan::Spared,
        Aim::Boundary { process: aimed, .. } if process < aimed => KillPlan::Spared,
        Aim::Boundary { process: aimed, boundary } if process == aimed => KillPlan::AtBoundary(boundary),
        Aim::Instant if process == 1 => instant(chance),
        Aim::Boundary { .. } | Aim::Instant => {
            if process > KILLS_MAX || !chance.percent(KILLED_AGAIN_PERCENT) {
                KillPlan::Spared
            } else if chance.percent(50) {
                KillPlan::AtBoundary(1 + chance.below(RECOVERY_CROSSINGS))
            } else {
                instant(chance)
            }
        }
    }
}

/// Every boundary of every story, in random order.
#[must_use]
pub fn boundaries(stories: &[(Arc<Story>, Extent)], chance: &mut Chance) -> Vec<Case> {
    let mut cases = Vec::new();
    for (story, extent) in stories {
        for (count, process) in extent.boundaries.iter().zip(1..) {
            for boundary in 1..=*count {
                let aim = Aim::Boundary { process, boundary };
                cases.push(Case { story: story.clone(), aim, seed: chance.number() });
            }
        }
    }
    chance.shuffle(&mut cases);
    cases
}

/// A random world, killed at one of its boundaries or at a random moment.
pub fn any(stories: &[(Arc<Story>, Extent)], chance: &mut Chance) -> Option<Case> {
    let (story, extent) = pick(stories, chance)?;
    let mut aim = Aim::Instant;
    if chance.percent(50) {
        let process = 1 + chance.below(extent.boundaries.len() as u64) as usize;
        let boundary = 1 + chance.below(extent.boundaries.get(process - 1).copied()?);
        aim = Aim::Boundary { process, boundary };
    }
    Some(Case { story: story.clone(), aim, seed: chance.number() })
}

fn pick<'s, T>(list: &'s [T], chance: &mut Chance) -> Option<&'s T> {
    list.get(usize::try_from(chance.below(list.len() as u64)).ok()?)
}

#[test]
fn a_case_that_is_written_is_read_again() {
    let stories: Vec<Arc<Story>> = crate::stories::all().into_iter().map(Arc::new).collect();
    for text in ["eager:1/17", "queued:2/3", "question:instant", "rejected:none"] {
        let case = parse(text, &stories, 7).expect("it is written as cases are");
        assert_eq!(case.to_string(), text);
    }
    for bad in ["eager", "gone:1/2", "eager:1", "eager:x/2"] {
        assert!(parse(bad, &stories, 7).is_err(), "{bad}");
    }
}

#[test]
fn every_boundary_of_every_process_has_its_case() {
    let stories = vec![(
        Arc::new(crate::stories::all().remove(0)),
        Extent { boundaries: vec![3, 2], lasts: Duration::from_millis(10) },
    )];
    let cases = boundaries(&stories, &mut Chance::from_seed(1));
    let mut names: Vec<String> = cases.iter().map(ToString::to_string).collect();
    names.sort();
    let expected: Vec<String> =
        ["1/1", "1/2", "1/3", "2/1", "2/2"].iter().map(|aim| format!("write-retried:{aim}")).collect();
    assert_eq!(names, expected);
}
