//! What a store gives back may be anything: a log and a control that were damaged are read or refused, never a panic.

use std::ops::Range;

use machine::control::{Control, ControlDecodeError};
use machine::event_codec::{self, EventDecodeError};

use crate::chance::Chance;
use crate::mutation::mutated;
use crate::{number_from, story};

const CASE_COUNT: u64 = 30_000;
const STORY_COUNT: u64 = 40;

const PIECES: [&str; 16] = [
    "null",
    "-1",
    "1e999",
    "18446744073709551616",
    "\"\\ud800\"",
    "{}",
    "[]",
    "\"v\":2,",
    "\"type\":\"run.ended\",",
    "\"payload\":{",
    "\"seq\":0,",
    "}",
    "[[[[[[[[[[[[[[[[",
    "\u{0}",
    "\u{7f}\u{7f}\u{7f}\u{7f}\u{f}",
    "\"",
];

#[test]
fn a_fuzzed_event_is_read_or_refused() {
    let lines: Vec<String> = (0..STORY_COUNT)
        .flat_map(|seed| story(seed).log)
        .map(|event| event_codec::encode(&event).expect("an event can be stored"))
        .collect();
    let corpus: Vec<&[u8]> = lines.iter().map(String::as_bytes).collect();
    let (mut read, mut refused) = (0_u64, 0_u64);
    let seeds = seeds();
    for seed in seeds.clone() {
        let bytes = mutated(&mut Chance::from_seed(seed), &corpus, &PIECES);
        let text = String::from_utf8_lossy(&bytes);
        match event_codec::decode(&text) {
            Ok(event) => {
                read += 1;
                // What was read means one thing: stored again it is read as the same.
                let again = event_codec::encode(&event).expect("what was read can be stored");
                assert_eq!(event_codec::decode(&again), Ok(event), "seed {seed}: {text}");
            }
            Err(why @ (EventDecodeError::Version(_) | EventDecodeError::Malformed(_))) => {
                refused += 1;
                assert!(why.to_string().starts_with("stored event "), "seed {seed}: {why}");
            }
        }
    }
    check_mixture(&seeds, read, refused);
}

#[test]
fn a_fuzzed_control_is_read_or_refused() {
    let controls: Vec<Vec<u8>> = (0..STORY_COUNT)
        .map(|seed| story(seed).run.control.encode().expect("a control can be stored"))
        .collect();
    let corpus: Vec<&[u8]> = controls.iter().map(Vec::as_slice).collect();
    let (mut read, mut refused) = (0_u64, 0_u64);
    let seeds = seeds();
    for seed in seeds.clone() {
        let bytes = mutated(&mut Chance::from_seed(seed), &corpus, &PIECES);
        match Control::decode(&bytes) {
            Ok(control) => {
                read += 1;
                let again = control.encode().expect("what was read can be stored");
                assert_eq!(Control::decode(&again).as_ref(), Ok(&control), "seed {seed}");
                // A count in damaged bytes must not make anybody reserve what it says.
                assert!(again.len() <= 16 * bytes.len() + 16, "seed {seed}");
            }
            Err(ControlDecodeError::UnsupportedVersion(_)) => refused += 1,
            Err(ControlDecodeError::Corrupt(why)) => {
                refused += 1;
                assert!(!why.is_empty(), "seed {seed}");
            }
        }
    }
    check_mixture(&seeds, read, refused);
}

/// A fuzzer that only ever meets one of the two shows nothing; of a few nothing can be asked.
fn check_mixture(seeds: &Range<u64>, read: u64, refused: u64) {
    if seeds.end - seeds.start >= CASE_COUNT {
        assert!(read > CASE_COUNT / 20 && refused > CASE_COUNT / 20, "{read} read, {refused} refused");
    }
}

/// `FUZZ_SEED=n` replays one, `FUZZ_RUNS=n` tries that many.
fn seeds() -> Range<u64> {
    match number_from("FUZZ_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number_from("FUZZ_RUNS").unwrap_or(CASE_COUNT),
    }
}
