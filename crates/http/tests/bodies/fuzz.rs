//! Arbitrary bytes as a body: read, or refused with 400, 413 or 415; never a panic, and nothing is read in two ways.

#[path = "../../../machine/tests/fuzz/chance.rs"]
#[allow(dead_code, reason = "bodies need little of what runs need")]
mod chance;

use std::env;
use std::panic::catch_unwind;

use chance::Chance;
use holdpoint_http::body::{
    Answer, Approve, AutoApprove, DecisionEntry, Decisions, Interrupt, PostMessage, PostThread, Reject,
    parse_strict,
};
use holdpoint_http::error::ApiError;
use serde::de::DeserializeOwned;
use serde_json::Value;

const BODY_COUNT: u64 = 20_000;

const SEEDS: [&str; 12] = [
    r#"{"agent":"assistant","text":"Hello","policy":{"approval":"all_tools","on_busy":"enqueue"},"tools":[{"name":"t"}]}"#,
    r#"{"agent":"a","content":[{"type":"text","text":"b"}],"message_id":"m-1","after":"m-0","auto_approve":true}"#,
    r#"{"arguments":{"to":"bob","amount":5},"note":"fine","apply_to_future":true}"#,
    r#"{"expect_digest":"29ddb7bbd60d67fa1591798dc16ecfeddfbfbb48c6353113c32659d4e76a6078"}"#,
    r#"{"reason":"no","then":"end_run"}"#,
    r#"{"result":{"deep":[[[[1]]]]}}"#,
    r#"{"choice":"give_up"}"#,
    r#"{"decisions":[{"call_id":"c","action":"resume","result":1},{"call_id":"d","action":"cancel"}]}"#,
    r#"{"id":"thr_1","metadata":{"k":[null,1e9,-0.0,"\u00e9"]}}"#,
    r#"{"enabled":false}"#,
    "{}",
    "",
];

/// Pieces that break things.
const PIECES: [&str; 20] = [
    "null",
    "true",
    "1e999",
    "-",
    "\"",
    "\\u0000",
    "\\ud800",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"note\":",
    "\u{feff}",
    "9007199254740993",
    "[[[[[[[[",
    "\"policy\":{}",
    "{\"a\":1,\"a\":2}",
    "end_run",
];

#[test]
fn arbitrary_bodies_are_read_or_refused() {
    // `FUZZ_SEED=n` replays one body, `FUZZ_RUNS=n` tries that many.
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    if let Some(seed) = number("FUZZ_SEED") {
        try_body(seed);
        return;
    }
    let (mut read, mut refused) = (0_u64, 0_u64);
    let count = number("FUZZ_RUNS").unwrap_or(BODY_COUNT);
    for seed in 0..count {
        let counted = catch_unwind(|| try_body(seed));
        let (was_read, was_refused) =
            counted.unwrap_or_else(|_| panic!("seed {seed} failed; replay it with FUZZ_SEED={seed}"));
        read += was_read;
        refused += was_refused;
    }
    // A fuzzer that only ever meets one of the two shows nothing; of a few nothing can be asked.
    if count >= BODY_COUNT {
        assert!(read > 1_000 && refused > 1_000, "{read} read, {refused} refused");
    }
}

fn try_body(seed: u64) -> (u64, u64) {
    let mut chance = Chance::from_seed(seed);
    let bytes = body(&mut chance);
    let content_type = *chance.pick(&[
        Some("application/json"),
        Some("application/json"),
        None,
        Some("text/plain"),
        Some("\u{7f}"),
    ]);
    let empty_allowed = chance.one_in(2);
    let outcomes = [
        check::<PostThread>(content_type, &bytes, empty_allowed),
        check::<PostMessage>(content_type, &bytes, empty_allowed),
        check::<AutoApprove>(content_type, &bytes, empty_allowed),
        check::<Approve>(content_type, &bytes, empty_allowed),
        check::<Reject>(content_type, &bytes, empty_allowed),
        check::<Answer>(content_type, &bytes, empty_allowed),
        check::<Decisions>(content_type, &bytes, empty_allowed),
        check::<Interrupt>(content_type, &bytes, empty_allowed),
    ];
    if let Ok(list) = parse_strict::<Decisions>(content_type, &bytes, empty_allowed) {
        // Whatever an entry is, it is read or invalid, alone.
        list.decisions.into_iter().for_each(|entry| drop(DecisionEntry::read(entry)));
    }
    let read = outcomes.iter().filter(|read| **read).count() as u64;
    (read, outcomes.len() as u64 - read)
}

/// True if it was read.
fn check<T: DeserializeOwned>(content_type: Option<&str>, bytes: &[u8], empty_allowed: bool) -> bool {
    match parse_strict::<T>(content_type, bytes, empty_allowed) {
        Ok(_) => {
            // What is read is one JSON object, or nothing where nothing is allowed.
            let object = serde_json::from_slice::<Value>(bytes).is_ok_and(|value| value.is_object());
            assert!(object || (bytes.is_empty() && empty_allowed));
            true
        }
        Err(error) => {
            check_refusal(&error);
            false
        }
    }
}

fn check_refusal(error: &ApiError) {
    assert!(matches!(error.status().as_u16(), 400 | 413 | 415), "{error:?}");
    assert!(error.message.len() < 4_000, "{} bytes", error.message.len());
    serde_json::to_string(&error.body()).expect("a refusal can be sent");
}

fn body(chance: &mut Chance) -> Vec<u8> {
    let mut bytes = chance.pick(&SEEDS).as_bytes().to_vec();
    for _ in 0..chance.below(5) {
        mutate(chance, &mut bytes);
    }
    bytes
}

fn mutate(chance: &mut Chance, bytes: &mut Vec<u8>) {
    let at = chance.index(bytes.len() + 1);
    match chance.below(6) {
        0 => {
            let piece = chance.pick(&PIECES).as_bytes().to_vec();
            bytes.splice(at..at, piece);
        }
        1 => bytes.truncate(at),
        2 => {
            let byte = u8::try_from(chance.below(256)).expect("a byte");
            bytes.insert(at, byte);
        }
        3 if !bytes.is_empty() => {
            let place = chance.index(bytes.len());
            bytes[place] ^= 1 << chance.below(8);
        }
        4 => {
            let other = chance.pick(&SEEDS).as_bytes().to_vec();
            bytes.splice(at..at, other);
        }
        _ => {
            let depth = chance.index(200);
            bytes.splice(at..at, vec![b'['; depth]);
        }
    }
}
