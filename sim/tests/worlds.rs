//! Worlds hold, repeat themselves byte for byte, shrink when they fail, and those that once failed are kept.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use sim::judge::invariant::Invariant;
use sim::play::runner::{self, Batch};
use sim::play::shrink::shrink;
use sim::play::tape::Tape;
use sim::play::{differential, story, tables};

#[test]
fn a_few_hundred_worlds_keep_every_invariant() {
    let batch = Batch { from: 1_000_000, count: 600, threads: 2, until_failure: false };
    let tally = runner::run(batch, &|_| {});
    assert_eq!(tally.worlds, 600);
    let broken: Vec<String> = tally
        .failures
        .iter()
        .map(|failure| format!("seed {}: {}", failure.seed, failure.violation))
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn a_hundred_seeds_run_twice_give_byte_identical_logs() {
    for seed in 0..100 {
        let (first, violation) = runner::logs(Tape::seeded(seed));
        assert_eq!(violation, None, "seed {seed}");
        assert_eq!(first, runner::logs(Tape::seeded(seed)).0, "seed {seed}");
    }
}

#[test]
fn a_recorded_tape_tells_the_same_story_as_its_seed() {
    for seed in 0..20 {
        let mut world = sim::world::World::new(Tape::seeded(seed), false);
        world.play().unwrap();
        let recorded = Tape::recorded(world.tape.drawn().to_vec());
        assert_eq!(runner::logs(Tape::seeded(seed)).0, runner::logs(recorded).0, "seed {seed}");
    }
}

#[test]
fn a_tape_that_has_run_out_still_makes_a_world() {
    assert_eq!(runner::logs(Tape::recorded(Vec::new())).1, None);
}

#[test]
fn calm_worlds_end_alike_however_decisions_are_heard() {
    for seed in 0..150 {
        differential::check(seed).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
}

#[test]
fn a_planted_failure_shrinks_to_the_choices_that_matter() {
    let long: Vec<u32> = (0..400).map(|number| number % 17).collect();
    let fails =
        |choices: &[u32]| choices.contains(&13) && choices.iter().filter(|one| **one == 7).count() >= 2;
    assert!(fails(&long));
    let mut short = shrink(&long, fails);
    short.sort_unstable();
    assert_eq!(short, [7, 7, 13]);
}

/// A world that once failed. A seed also compares both decision timings.
enum Kept {
    Seed(u64),
    Tape(Vec<u32>),
}

/// Each file of the corpus: a comment that says why it is kept, then `seed N` or `tape` with its choices.
fn corpus() -> Vec<(PathBuf, Kept)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the corpus is a folder")
        .map(|entry| entry.expect("a folder can be read").path())
        .collect();
    files.sort();
    for path in &files {
        let tape = path.extension().is_some_and(|extension| extension == "tape");
        assert!(tape, "{}: only .tape files are replayed", path.display());
    }
    files.into_iter().map(|path| (path.clone(), read_kept(&path))).collect()
}

fn read_kept(path: &Path) -> Kept {
    let text = fs::read_to_string(path).expect("a tape is a text");
    assert!(text.starts_with("# "), "{}: begin with a comment that says why it is kept", path.display());
    let line = text.lines().find(|line| !line.starts_with('#')).expect("a tape has a line of choices");
    let mut words = line.split_whitespace();
    let kind = words.next().expect("it says what it is");
    let numbers: Vec<u64> = words.map(|word| word.parse().expect("a choice is a number")).collect();
    match kind {
        "seed" => Kept::Seed(numbers[0]),
        "tape" => Kept::Tape(
            numbers.iter().map(|number| u32::try_from(*number).expect("a choice is small")).collect(),
        ),
        other => panic!("{}: {other:?} is neither a seed nor a tape", path.display()),
    }
}

#[test]
fn worlds_that_once_failed_hold() {
    let corpus = corpus();
    assert!(!corpus.is_empty());
    for (path, kept) in corpus {
        let (tape, compared) = match kept {
            Kept::Seed(seed) => (Tape::seeded(seed), differential::check(seed)),
            Kept::Tape(choices) => (Tape::recorded(choices), Ok(())),
        };
        assert_eq!(runner::logs(tape).1, None, "{}", path.display());
        assert_eq!(compared, Ok(()), "{}", path.display());
    }
}

#[test]
fn every_cell_stands_once_and_every_invariant_has_a_sentence() {
    let cells = tables::cells();
    let distinct: BTreeSet<_> = cells.iter().collect();
    assert_eq!(distinct.len(), cells.len());
    for invariant in Invariant::ALL {
        assert!(invariant.meaning().ends_with('.'), "{invariant:?}");
    }
}

#[test]
fn the_story_tells_of_the_crash_and_ends_with_what_the_model_read() {
    let text = story::tell().unwrap();
    let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} is missing in\n{text}"));
    let c_starts = place("tool.execution_started    C  attempt 1");
    let takeover = place("run.recovered");
    let c_again = place("tool.execution_started    C  attempt 2");
    let a_starts = place("tool.execution_started    A  attempt 1");
    let c_ends = place("tool.execution_succeeded  C");
    let b_approved = place("tool.approved             B");
    let ended = place("run.ended");
    let told = place("tool A");
    let order = [c_starts, takeover, c_again, a_starts, c_ends, b_approved, ended, told];
    assert!(order.is_sorted(), "{text}");
}
