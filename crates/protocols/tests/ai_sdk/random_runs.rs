//! Random runs, and pages that lose connections, reload, decide and let others decide.

use crate::page::{Ends, PageRun, check_run};
use crate::random_story::{Random, Story};

const WORLDS: u64 = 4_000;

#[test]
fn every_client_ends_with_the_message_of_an_uninterrupted_stream() {
    let mut ends = Ends::default();
    for seed in 1..=WORLDS {
        let mut random = Random::new(seed);
        let story = Story::generate(&mut random);
        let run = PageRun { items: &story.script.items, turns: &story.turns, may_cut: story.may_cut };
        check_run(&run, &mut random, seed, &mut ends);
    }
    // The test is about all of these.
    let Ends { cut, reloaded, decided, skipped, late } = ends;
    for count in [cut, reloaded, decided, skipped, late] {
        assert!(count > WORLDS / 8, "{ends:?}");
    }
}
