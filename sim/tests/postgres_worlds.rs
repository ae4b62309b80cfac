//! Worlds of the engine on a real PostgreSQL server hold, can be repeated, and are those of the store in memory.

use sim::driven::place::Place;
use sim::driven::runner::{self, FaultLevel, Played};
use sim::driven::tally::Tally;
use sim::play::runner::Batch;

fn on_a_server(seed: u64, roughness: FaultLevel) -> Played {
    runner::play(seed, Place::Server, roughness, false)
}

#[test]
fn a_hundred_worlds_on_a_server_keep_every_invariant() {
    let batch = Batch { from: 3_000_000, count: 100, threads: 2, until_failure: false };
    let summary = runner::run(batch, Some(Place::Server), &|_| {});
    assert_eq!(summary.world_count, 100);
    let broken: Vec<String> =
        summary.failures.iter().map(|(seed, violation)| format!("seed {seed}: {violation}")).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    let (_, never) = summary.tally.print();
    let expected = [
        "process: before a commit",
        "process: after a commit",
        "process: between commits",
        "process: to another process",
        "process: drained",
        "store: fenced",
        "store: behind",
        "store: release refused",
        "store: accepted into the inbox",
        "run: recovered with a lost attempt",
        "run: in doubt",
    ];
    let (_, possible) = Tally::default().print();
    for what in expected {
        assert!(possible.iter().any(|known| known == what), "{what} is the name of nothing");
        assert!(!never.iter().any(|missing| missing == what), "a hundred worlds, and never {what}");
    }
}

#[test]
fn a_seed_played_twice_on_a_server_gives_the_same_events_at_the_same_times() {
    for seed in 0..10 {
        let first = on_a_server(seed, FaultLevel::Drawn);
        assert_eq!(first.violation, None, "seed {seed}");
        assert_eq!(first.outline, on_a_server(seed, FaultLevel::Drawn).outline, "seed {seed}");
    }
}

#[test]
fn where_no_process_is_lost_a_server_gives_the_same_events_as_memory() {
    for seed in 0..20 {
        let played = on_a_server(seed, FaultLevel::Smooth);
        assert_eq!(played.violation, None, "seed {seed}");
        let in_memory = runner::play(seed, Place::Memory, FaultLevel::Smooth, false);
        assert_eq!(played.outline, in_memory.outline, "seed {seed}");
    }
}

#[test]
fn a_process_lost_before_or_after_any_commit_on_a_server_loses_nothing() {
    let seed = 1;
    let smooth = on_a_server(seed, FaultLevel::Smooth);
    assert_eq!(smooth.violation, None);
    assert!(smooth.commit_count > 5, "a world without commits shows nothing");
    for commit in 1..=smooth.commit_count {
        for roughness in [FaultLevel::LostBefore(commit), FaultLevel::LostAfter(commit)] {
            assert_eq!(on_a_server(seed, roughness).violation, None, "{roughness:?}");
        }
    }
}
