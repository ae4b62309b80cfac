//! The runs of simulated worlds as front ends receive them: the AI SDK, AG-UI 1.0, and the dialect of AG-UI before it.
//! However the streams are cut, every one passes the verifier of its protocol, and each client ends up with the
//! conversation of the log.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one thing and passes over the rest")]
#![allow(clippy::indexing_slicing, reason = "a test fails by panicking")]

/// A page of the AI SDK.
#[path = "../../../crates/protocols/tests/ai_sdk/chat_client.rs"]
#[allow(dead_code, reason = "the tests of the protocols use all of it")]
mod chat_client;
/// A client of AG-UI.
#[path = "../../../crates/protocols/tests/ag_ui/client.rs"]
#[allow(dead_code, reason = "the tests of the protocols use all of it")]
mod client;
#[path = "../../../crates/protocols/tests/ag_ui/feed_story.rs"]
#[allow(dead_code, reason = "the tests of the protocols use all of it")]
mod feed_story;
#[path = "../../../crates/protocols/tests/ai_sdk/page.rs"]
mod page;
#[path = "../../../crates/protocols/tests/ai_sdk/random_story.rs"]
#[allow(dead_code, reason = "the tests of the protocols use all of it")]
mod random_story;
#[path = "../../../crates/protocols/tests/ag_ui/reader.rs"]
mod reader;
#[path = "../../../crates/protocols/tests/ai_sdk/run_script.rs"]
#[allow(dead_code, reason = "the tests of the protocols use all of it")]
mod run_script;
mod simulated;
#[path = "../../../crates/protocols/tests/ag_ui/world.rs"]
#[allow(dead_code, reason = "the tests of the protocols use all of it")]
mod world;

use std::collections::BTreeMap;

use feed_story::DIALECTS;
use page::{Ends, PageRun, check_run};
use random_story::Random;
use reader::Reader;
use simulated::{Outcome, SimulatedRun};
use world::Dice;

/// Number of worlds. `make test-long` plays more.
fn world_count() -> u64 {
    let variable = std::env::var("TRANSLATED_WORLDS").ok();
    variable.map_or(1_000, |count| count.parse().expect("TRANSLATED_WORLDS is a number"))
}

#[test]
fn streams_of_the_ai_sdk_fold_to_the_log_of_simulated_runs() {
    let (mut ends, mut outcomes) = (Ends::default(), BTreeMap::<Outcome, u64>::new());
    let mut run_count = 0;
    for seed in 0..world_count() {
        for run in SimulatedRun::of_world(seed) {
            let (turns, mut random) = (run.turns(), Random::new(seed));
            let page_run = PageRun { items: &run.items, turns: &turns, may_cut: true };
            let message = check_run(&page_run, &mut random, seed, &mut ends);
            run.check_message(&message, seed);
            run_count += 1;
            run.outcomes().into_values().for_each(|outcome| *outcomes.entry(outcome).or_default() += 1);
        }
    }
    println!("{run_count} runs, {ends:?}, {outcomes:?}");
    let Ends { cut, reloaded, decided, skipped, late } = ends;
    for count in [cut, reloaded, decided, skipped, late].into_iter().chain(outcomes.values().copied()) {
        assert!(count > world_count() / 20, "the worlds are not rich enough: {ends:?}, {outcomes:?}");
    }
    assert_eq!(outcomes.len(), 4, "{outcomes:?}");
}

#[test]
fn streams_of_ag_ui_fold_to_the_log_of_simulated_runs() {
    let (mut segments, mut ends) = (0, BTreeMap::<String, u64>::new());
    for seed in 0..world_count() {
        for (index, run) in SimulatedRun::of_world(seed).into_iter().enumerate() {
            let world = run.world();
            for dialect in DIALECTS {
                let (dice, cuts) = (Dice::new(seed + 1), [0, 30, 70][index % 3]);
                let mut reader = Reader::new(&world, dialect, dice, cuts);
                reader.read_to_the_end();
                reader.assert_conversation(seed);
                segments += reader.segments;
                reader.ends.into_iter().for_each(|end| *ends.entry(end).or_default() += 1);
            }
        }
    }
    println!("{segments} segments, {ends:?}");
    for end in ["success", "interrupt", "pending", "cancelled", "RUN_ERROR", "cut"] {
        assert!(ends.get(end).is_some_and(|count| *count > world_count() / 20), "{end}: {ends:?}");
    }
}
