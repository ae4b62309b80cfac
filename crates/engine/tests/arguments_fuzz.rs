//! Arbitrary schemas of tools, and arbitrary arguments against them: a schema is compiled or refused, arguments are
//! valid with a digest or invalid with a reason; never a panic.

#[path = "../../machine/tests/fuzz/chance.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "arguments need little of what runs need")]
mod chance;
#[path = "../../machine/tests/fuzz/mutation.rs"]
mod mutation;

use std::env;
use std::sync::Arc;

use chance::Chance;
use engine::arguments::{Schema, from_text, from_value};
use machine::tool::Arguments;
use mutation::mutated;
use serde_json::Value;

const CASE_COUNT: u64 = 6_000;

const SCHEMAS: [&str; 6] = [
    r#"{"type":"object","required":["to","amount"],"properties":{"to":{"type":"string","minLength":1},"amount":{"type":"number","minimum":0}}}"#,
    r#"{"type":"object","additionalProperties":false,"properties":{"path":{"type":"string","pattern":"^[a-z]+$","format":"uri"}}}"#,
    r##"{"$defs":{"node":{"type":"object","properties":{"next":{"$ref":"#/$defs/node"}}}},"$ref":"#/$defs/node"}"##,
    r#"{"oneOf":[{"type":"integer","multipleOf":3},{"type":"array","items":{"enum":[1,"a",null]},"uniqueItems":true}]}"#,
    r#"{"if":{"properties":{"a":{"const":1}}},"then":{"required":["b"]},"else":{"maxProperties":2},"not":{"type":"null"}}"#,
    "true",
];

const ARGUMENTS: [&str; 6] = [
    r#"{"to":"bob","amount":5}"#,
    r#"{"path":"abc"}"#,
    r#"{"next":{"next":{"next":{}}}}"#,
    "[1,\"a\",null]",
    r#"{"a":1,"b":9007199254740991,"c":-0.0,"d":1e-7,"e":"\u00e9\ud83d\ude00"}"#,
    "",
];

const PIECES: [&str; 20] = [
    "null",
    "true",
    "-1",
    "1e999",
    "9007199254740993",
    "0.1",
    "\"\"",
    "\"\\ud800\"",
    "{",
    "}",
    "[",
    "]",
    "{\"a\":1,\"a\":2}",
    "\"pattern\":\"(\",",
    "\"pattern\":\"(a{999}){999}\",",
    "\"$ref\":\"#/nowhere\",",
    "\"$ref\":\"http://127.0.0.1:1/x\",",
    "\"minimum\":\"x\",",
    "\"type\":\"strang\",",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
];

#[test]
fn fuzzed_schemas_and_arguments_are_judged() {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    // `FUZZ_SEED=n` replays one case, `FUZZ_RUNS=n` tries that many.
    let seeds = match number("FUZZ_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FUZZ_RUNS").unwrap_or(CASE_COUNT),
    };
    let (mut compiled, mut refused, mut valid, mut invalid) = (0_u64, 0_u64, 0_u64, 0_u64);
    for seed in seeds.clone() {
        let mut chance = Chance::from_seed(seed);
        let schema = text(&mut chance, &SCHEMAS);
        let schema = match serde_json::from_str::<Value>(&schema).map(|schema| Schema::compile(&schema)) {
            Ok(Ok(schema)) => {
                compiled += 1;
                Some(schema)
            }
            Ok(Err(why)) => {
                refused += 1;
                assert!(!why.is_empty(), "seed {seed}");
                None
            }
            Err(_) => None,
        };
        for _ in 0..4 {
            let text = text(&mut chance, &ARGUMENTS);
            match from_text(&text, schema.as_ref()) {
                Arguments::Valid { value, digest } => {
                    valid += 1;
                    // A caller that repeats them means the same call.
                    let again = from_value(Arc::clone(&value), schema.as_ref());
                    assert_eq!(again, Arguments::Valid { value, digest }, "seed {seed}: {text}");
                }
                Arguments::Invalid { why, .. } => {
                    invalid += 1;
                    assert!(!why.is_empty(), "seed {seed}: {text}");
                }
            }
        }
    }
    // Of a few nothing can be asked.
    if seeds.end - seeds.start >= CASE_COUNT {
        let counts = [compiled, refused, valid, invalid];
        assert!(counts.iter().all(|count| *count > 50), "{counts:?}");
    }
}

fn text(chance: &mut Chance, corpus: &[&str]) -> String {
    let corpus: Vec<&[u8]> = corpus.iter().map(|text| text.as_bytes()).collect();
    String::from_utf8_lossy(&mutated(chance, &corpus, &PIECES)).into_owned()
}
