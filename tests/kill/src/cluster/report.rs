//! Human-readable output for a matrix of three nodes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::befell::Befell;
use super::world::Played;
use crate::life::Where;
use crate::report;
use crate::tally::{Sight, Tally};
use crate::wire::{Crossing, Passage, Side};

/// The totals over all worlds.
#[derive(Debug, Default)]
pub struct Summary {
    pub worlds: u64,
    pub kills: u64,
    pub by_story: BTreeMap<&'static str, u64>,
    pub by_place: BTreeMap<Where, u64>,
    pub befell: BTreeMap<Befell, u64>,
    pub tally: Tally,
}

/// The store is not read while nodes are working, so input that waits in an inbox is never seen.
fn may_be_seen(sight: &Sight) -> bool {
    *sight != Sight::UnheardInTheInbox
}

impl Summary {
    pub fn add(&mut self, played: &Played) {
        self.worlds += 1;
        self.kills += played.kills.len() as u64;
        *self.by_story.entry(played.case.story.name).or_default() += played.kills.len() as u64;
        for place in &played.kills {
            *self.by_place.entry(*place).or_default() += 1;
        }
        for befell in &played.befell {
            *self.befell.entry(*befell).or_default() += 1;
        }
        self.tally.add(&played.tally);
    }

    /// What a whole matrix must have covered and this one has not.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let mut missing: Vec<String> = Vec::new();
        for passage in Passage::ALL {
            for side in [Side::Before, Side::After] {
                let crossing = Crossing { side, passage };
                if !self.by_place.contains_key(&Where::At(crossing)) {
                    missing.push(format!("nobody was killed {crossing}"));
                }
            }
        }
        if !self.by_place.contains_key(&Where::AnyInstant) {
            missing.push("nobody was killed at any instant".into());
        }
        let unfelt = Befell::WANTED.into_iter().filter(|befell| !self.befell.contains_key(befell));
        missing.extend(unfelt.map(|befell| format!("never happened: {}", befell.words())));
        let unseen = Sight::ALL.into_iter().filter(may_be_seen).filter(|sight| self.tally.count(*sight) == 0);
        missing.extend(unseen.map(|sight| format!("never seen: {}", sight.words())));
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
            let _ = writeln!(text, "  {kills:>6}  {}", report::words(*place));
        }
        text.push_str("what else happened\n");
        for (befell, count) in &self.befell {
            let _ = writeln!(text, "  {count:>6}  {}", befell.words());
        }
        text.push_str("seen in worlds with trouble\n");
        for sight in Sight::ALL.into_iter().filter(may_be_seen) {
            let _ = writeln!(text, "  {:>6}  {}", self.tally.count(sight), sight.words());
        }
        text
    }
}

/// Everything about a world that failed, and how to replay it.
#[must_use]
pub fn wrong(played: &Played) -> String {
    let case = &played.case;
    let mut text = format!("VIOLATION in world {case} of seed {}\n", case.seed);
    for violation in &played.violations {
        let _ = writeln!(text, "  {violation}");
    }
    text.push_str(&report::kills(&played.kills));
    let _ = writeln!(text, "what else happened: {:?}", played.befell);
    text.push_str(&report::account(&played.people, played.evidence.as_ref()));
    let again = "play it again: cargo run -p kill -- matrix --store postgres --only";
    let _ = writeln!(text, "{again} {case} --seed {}", case.seed);
    text
}

#[test]
fn a_matrix_that_saw_nothing_names_everything_that_it_missed() {
    let missing = Summary::default().missing();
    assert_eq!(missing.len(), 2 * Passage::ALL.len() + 1 + Befell::WANTED.len() + Sight::ALL.len() - 1);
}
