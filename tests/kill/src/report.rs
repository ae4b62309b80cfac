//! Human-readable output: progress, results, and everything about a world that failed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::driven_process::KillPlace;
use crate::evidence::Evidence;
use crate::people::People;
use crate::plan::Case;
use crate::tally::{Observation, Tally};
use crate::wire::{Boundary, Operation, Side};
use crate::world::Played;

/// The totals over all worlds.
#[derive(Debug, Default)]
pub struct Summary {
    pub worlds: u64,
    pub kills: u64,
    pub by_story: BTreeMap<&'static str, u64>,
    pub by_place: BTreeMap<KillPlace, u64>,
    pub tally: Tally,
}

impl Summary {
    pub fn add(&mut self, played: &Played) {
        self.worlds += 1;
        self.kills += played.kills.len() as u64;
        *self.by_story.entry(played.case.story.name).or_default() += played.kills.len() as u64;
        for place in &played.kills {
            *self.by_place.entry(*place).or_default() += 1;
        }
        self.tally.add(&played.tally);
    }

    /// What a whole matrix must have covered and this one has not.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let mut missing: Vec<String> = Vec::new();
        for operation in Operation::ALL {
            for side in [Side::Before, Side::After] {
                let boundary = Boundary { side, operation };
                if !self.by_place.contains_key(&KillPlace::At(boundary)) {
                    missing.push(format!("no process was killed {boundary}"));
                }
            }
        }
        for (place, description) in
            [(KillPlace::AnyInstant, "at any instant"), (KillPlace::AtRest, "at rest")]
        {
            if !self.by_place.contains_key(&place) {
                missing.push(format!("no process was killed {description}"));
            }
        }
        let unseen = Observation::ALL.into_iter().filter(|observation| self.tally.count(*observation) == 0);
        missing.extend(unseen.map(|observation| format!("never seen: {}", observation.description())));
        missing
    }

    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::from("kills by story\n");
        for (story, kills) in &self.by_story {
            let _ = writeln!(text, "  {kills:>6}  {story}");
        }
        text.push_str("kills by place\n");
        for (place, kills) in &self.by_place {
            let _ = writeln!(text, "  {kills:>6}  {}", description(*place));
        }
        text.push_str("seen in worlds with a kill\n");
        for observation in Observation::ALL {
            let _ = writeln!(text, "  {:>6}  {}", self.tally.count(observation), observation.description());
        }
        text
    }
}

pub(crate) fn description(place: KillPlace) -> String {
    match place {
        KillPlace::At(boundary) => boundary.to_string(),
        KillPlace::AnyInstant => "at any instant".into(),
        KillPlace::AtRest => "at rest".into(),
    }
}

/// Everything about a world that failed, and how to replay it.
#[must_use]
pub fn wrong(played: &Played) -> String {
    let Case { seed, .. } = played.case;
    let mut text = format!("VIOLATION in world {} of seed {seed}\n", played.case);
    for violation in &played.violations {
        let _ = writeln!(text, "  {violation}");
    }
    text.push_str(&kills(&played.kills));
    text.push_str(&account(&played.people, played.evidence.as_ref()));
    let _ = writeln!(text, "play it again: cargo run -p kill -- matrix --only {} --seed {seed}", played.case);
    text
}

/// The places where processes were killed, in one line.
pub(crate) fn kills(places: &[KillPlace]) -> String {
    let kills: Vec<String> = places.iter().map(|place| description(*place)).collect();
    format!("killed: {}\n", if kills.is_empty() { "no process".into() } else { kills.join(", ") })
}

/// What people sent, what the tools did, and what is stored.
pub(crate) fn account(people: &People, evidence: Option<&Evidence>) -> String {
    let mut text = String::from("requests of people and their answers\n");
    for posted in &people.messages {
        let _ = writeln!(text, "  {}: {:?}", posted.id, posted.responses);
    }
    for decided in people.decisions.values() {
        let (given, count) = (&decided.given, decided.sent_count);
        let _ = writeln!(
            text,
            "  {} {:?} on {}, {count} times: {:?}",
            given.id, given.reply, given.call, decided.responses
        );
    }
    for (run, responses) in &people.interrupts {
        let _ = writeln!(text, "  interrupt of {run}: {responses:?}");
    }
    for (id, responses) in &people.late_answers {
        let _ = writeln!(text, "  late answer to {id}: {responses:?}");
    }
    if let Some(evidence) = evidence {
        text.push_str("what the ledger has\n");
        for act in &evidence.acts {
            let _ = writeln!(text, "  {act:?}");
        }
        for run in &evidence.runs {
            let _ = writeln!(text, "the log of {}", run.view.id);
            for event in &run.log {
                let _ = writeln!(text, "  {}", sim::play::words::event(event));
            }
        }
        text.push_str("what the processes complained of\n");
        for complaint in &evidence.complaints {
            let _ = writeln!(text, "  process {}: {}", complaint.process, complaint.words);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_that_saw_nothing_names_everything_that_it_missed() {
        let missing = Summary::default().missing();
        assert_eq!(missing.len(), 2 * Operation::ALL.len() + 2 + Observation::ALL.len());
    }

    #[test]
    fn a_place_where_somebody_was_killed_is_not_missed() {
        let mut summary = Summary::default();
        let boundary = Boundary { side: Side::After, operation: Operation::Submit };
        summary.by_place.insert(KillPlace::At(boundary), 1);
        let missing = summary.missing();
        assert!(!missing.contains(&"no process was killed after submit".to_owned()), "{missing:?}");
        assert!(missing.contains(&"no process was killed before submit".to_owned()), "{missing:?}");
    }
}
