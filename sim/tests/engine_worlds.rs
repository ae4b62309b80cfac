//! Worlds of the engine itself hold, can be repeated, and survive the loss of their process around every commit.

use sim::driven::place::Place;
use sim::driven::runner::{self, FaultLevel, Played};
use sim::play::runner::Batch;

fn play(seed: u64, roughness: FaultLevel) -> Played {
    runner::play(seed, Place::of_seed(seed), roughness, false)
}

#[test]
fn some_hundred_worlds_of_the_engine_keep_every_invariant() {
    let batch = Batch { from: 1_000_000, count: 400, threads: 2, until_failure: false };
    let summary = runner::run(batch, None, &|_| {});
    assert_eq!(summary.world_count, 400);
    let broken: Vec<String> =
        summary.failures.iter().map(|(seed, violation)| format!("seed {seed}: {violation}")).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn a_seed_played_twice_gives_the_same_events_at_the_same_times() {
    for seed in 0..40 {
        let first = play(seed, FaultLevel::Drawn);
        assert_eq!(first.violation, None, "seed {seed}");
        assert_eq!(first.outline, play(seed, FaultLevel::Drawn).outline, "seed {seed}");
    }
}

#[test]
fn a_process_lost_before_or_after_any_commit_loses_nothing() {
    let mut world_count = 0;
    // A world with hardly any commits shows nothing.
    for seed in (0..40).filter(|seed| play(*seed, FaultLevel::Smooth).commit_count > 5).take(6) {
        world_count += 1;
        let smooth = play(seed, FaultLevel::Smooth);
        assert_eq!(smooth.violation, None, "seed {seed}");
        for commit in 1..=smooth.commit_count {
            for roughness in [FaultLevel::LostBefore(commit), FaultLevel::LostAfter(commit)] {
                let played = play(seed, roughness);
                assert_eq!(played.violation, None, "seed {seed}, {roughness:?}");
            }
        }
    }
    assert_eq!(world_count, 6);
}
