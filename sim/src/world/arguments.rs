//! The arguments of calls: a few values, created once, so that a world spends no time on digests.

use std::sync::{Arc, OnceLock};

use machine::id::Digest;
use machine::tool::Arguments;
use serde_json::{Value, json};

use crate::play::tape::Tape;

/// The number of different amounts. Small, so that calls repeat each other.
const AMOUNTS: u32 = 6;
const RECEIVERS: [&str; 2] = ["bank", "xenia"];

fn table() -> &'static [Arguments] {
    static TABLE: OnceLock<Vec<Arguments>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut all = Vec::new();
        for to in RECEIVERS {
            for amount in 0..AMOUNTS {
                all.push(valid(json!({"amount": amount, "to": to})));
            }
        }
        all
    })
}

#[must_use]
pub fn valid(value: Value) -> Arguments {
    let digest = Digest::sha256(value.to_string().as_bytes());
    Arguments::Valid { value: Arc::new(value), digest }
}

#[must_use]
pub fn malformed() -> Arguments {
    Arguments::Invalid { raw: "{\"amount\":".into(), why: "the text ends too early".into() }
}

pub fn draw_valid(tape: &mut Tape) -> Arguments {
    let table = table();
    table[tape.pick(table.len())].clone()
}

pub fn draw(tape: &mut Tape) -> Arguments {
    if tape.chance(6) { malformed() } else { draw_valid(tape) }
}

/// The amount that a rule on arguments may test, read without the machine's code.
#[must_use]
pub fn amount_of(arguments: &Arguments) -> Option<f64> {
    match arguments {
        Arguments::Valid { value, .. } => value.get("amount").and_then(Value::as_f64),
        Arguments::Invalid { .. } => None,
    }
}

#[must_use]
pub fn receiver_of(arguments: &Arguments) -> Option<&str> {
    match arguments {
        Arguments::Valid { value, .. } => value.get("to").and_then(Value::as_str),
        Arguments::Invalid { .. } => None,
    }
}
