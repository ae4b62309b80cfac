//! Human-readable output for a matrix of three nodes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::disturbance::Disturbance;
use super::world::PlayedCluster;
use crate::driven_process::KillPlace;
use crate::report;
use crate::tally::{Observation, Tally};
use crate::wire::{Boundary, Operation, Side};

/// The totals over all worlds.
#[derive(Debug, Default)]
pub struct ClusterSummary {
    pub worlds: u64,
    pub kills: u64,
    pub by_story: BTreeMap<&'static str, u64>,
    pub by_place: BTreeMap<KillPlace, u64>,
    pub disturbances: BTreeMap<Disturbance, u64>,
    pub tally: Tally,
}

/// The store is not read while nodes are working, so input that waits in an inbox is never seen.
fn may_be_seen(observation: &Observation) -> bool {
    *observation != Observation::UnheardInTheInbox
}

impl ClusterSummary {
    pub fn add(&mut self, played: &PlayedCluster) {
        self.worlds += 1;
        self.kills += played.kills.len() as u64;
        *self.by_story.entry(played.case.story.name).or_default() += played.kills.len() as u64;
        for place in &played.kills {
            *self.by_place.entry(*place).or_default() += 1;
        }
        for disturbances in &played.disturbances {
            *self.disturbances.entry(*disturbances).or_default() += 1;
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
        if !self.by_place.contains_key(&KillPlace::AnyInstant) {
            missing.push("no process was killed at any instant".into());
        }
        let unfelt = Disturbance::WANTED
            .into_iter()
            .filter(|disturbances| !self.disturbances.contains_key(disturbances));
        missing.extend(unfelt.map(|disturbances| format!("never happened: {}", disturbances.description())));
        let unseen = Observation::ALL
            .into_iter()
            .filter(may_be_seen)
            .filter(|observation| self.tally.count(*observation) == 0);
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
            let _ = writeln!(text, "  {kills:>6}  {}", report::description(*place));
        }
        text.push_str("what else happened\n");
        for (disturbances, count) in &self.disturbances {
            let _ = writeln!(text, "  {count:>6}  {}", disturbances.description());
        }
        text.push_str("seen in worlds with trouble\n");
        for observation in Observation::ALL.into_iter().filter(may_be_seen) {
            let _ = writeln!(text, "  {:>6}  {}", self.tally.count(observation), observation.description());
        }
        text
    }
}

/// Everything about a world that failed, and how to replay it.
#[must_use]
pub fn wrong(played: &PlayedCluster) -> String {
    let case = &played.case;
    let mut text = format!("VIOLATION in world {case} of seed {}\n", case.seed);
    for violation in &played.violations {
        let _ = writeln!(text, "  {violation}");
    }
    text.push_str(&report::kills(&played.kills));
    let _ = writeln!(text, "what else happened: {:?}", played.disturbances);
    text.push_str(&report::account(&played.people, played.evidence.as_ref()));
    let again = "play it again: cargo run -p kill -- matrix --store postgres --only";
    let _ = writeln!(text, "{again} {case} --seed {}", case.seed);
    text
}

#[test]
fn a_matrix_that_saw_nothing_names_everything_that_it_missed() {
    let missing = ClusterSummary::default().missing();
    assert_eq!(
        missing.len(),
        2 * Operation::ALL.len() + 1 + Disturbance::WANTED.len() + Observation::ALL.len() - 1
    );
}
