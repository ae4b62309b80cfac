//! Arbitrary texts as a script: read, or refused with a place and a next step; never a panic.

#[path = "../../machine/tests/fuzz/chance.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "scripts need little of what runs need")]
mod chance;
#[path = "../../machine/tests/fuzz/mutation.rs"]
mod mutation;

use std::env;

use chance::Chance;
use models::scripted::Script;
use mutation::mutated;

const CASE_COUNT: u64 = 20_000;

const CORPUS: [&str; 4] = [
    r#"{"rules":[{"when":".*","replies":[{"tool_calls":[{"id":"call_0","name":"transfer","arguments":{"to":"bob","amount":5}}],"usage":{"input_tokens":10,"output_tokens":5}},{"text":"Done.","delta_chars":4,"delay_ms":0},{"error":{"status":500,"message":"overloaded"}}]}]}"#,
    r#"{"rules":[{"when":"(?i)pay","replies":[{"text":"Paid.","reasoning":"Hm.","delta_chars":2,"delay_ms":10}]},{"when":"^(a|b)+$","replies":[{"text":"x"}]}]}"#,
    r#"{"rules":[{"when":"\\d{1,3}","replies":[{"error":{"status":429,"message":"slow","retry_after_ms":20},"delay_ms":5}]}]}"#,
    r#"{"rules":[{"when":"","replies":[{"tool_calls":[{"name":"t","arguments_text":"{not json"},{"name":"u","arguments":null}]}]}]}"#,
];

const PIECES: [&str; 18] = [
    "null",
    "true",
    "-1",
    "1e999",
    "99999999999999999999",
    "\"\\ud800\"",
    "\\u0000",
    "{",
    "}",
    "[",
    "]",
    "\"rules\":[]",
    "\"when\":\"(\",",
    "\"when\":\"(a{1000}){1000}\",",
    "\"text\":\"\",",
    "\"delta_chars\":0,",
    "\"status\":200,",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
];

#[test]
fn fuzzed_scripts_are_read_or_refused() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let corpus = CORPUS.map(str::as_bytes);
    // `FUZZ_SEED=n` replays one script, `FUZZ_RUNS=n` tries that many.
    let seeds = match number("FUZZ_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FUZZ_RUNS").unwrap_or(CASE_COUNT),
    };
    let (mut read, mut refused) = (0_u64, 0_u64);
    for seed in seeds.clone() {
        let bytes = mutated(&mut Chance::from_seed(seed), &corpus, &PIECES);
        let text = String::from_utf8_lossy(&bytes);
        match Script::from_json(&text) {
            Ok(_) => read += 1,
            Err(error) => {
                refused += 1;
                assert!(!error.what.is_empty() && error.to_string().contains(": "), "seed {seed}: {error}");
                assert!(error.to_string().len() < 4 * text.len() + 4_000, "seed {seed}: {error}");
            }
        }
    }
    // A fuzzer that only ever meets one of the two shows nothing; of a few nothing can be asked.
    if seeds.end - seeds.start >= CASE_COUNT {
        assert!(read > 500 && refused > 500, "{read} read, {refused} refused");
    }
}
