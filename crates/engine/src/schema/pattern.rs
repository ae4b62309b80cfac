//! The weight of patterns: a few characters can stand for millions of states.

use std::collections::BTreeMap;

use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};
use serde_json::Value;

/// States of a class that matches any character, which is matched byte by byte.
const ANY_STATES: u64 = 12;
/// States of one range beyond ASCII among many: neighbours share some.
const RANGE_STATES: u64 = 4;
const NESTING_MAX: u32 = 64;
/// How many times one match of a pattern with lookaround may backtrack; after that the text counts as not matching.
/// Only such a pattern has to backtrack, and this number is added to its weight, because each time it may read the text
/// once more.
pub(super) const BACKTRACKS_MAX: usize = 2_000;
/// Lookaround, as front ends send it for e-mail addresses.
const LOOKAROUNDS: [&str; 4] = ["(?=", "(?!", "(?<=", "(?<!"];

/// The patterns of a schema, each with its number of states. Texts that only look like patterns count too: telling them
/// apart would take a second schema parser, with its own mistakes.
pub(super) fn weights(schema: &Value) -> Result<BTreeMap<String, u64>, String> {
    let mut found = BTreeMap::new();
    collect(schema, &mut found)?;
    Ok(found)
}

fn collect(schema: &Value, found: &mut BTreeMap<String, u64>) -> Result<(), String> {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(pattern)) = fields.get("pattern") {
                weigh(pattern, found)?;
            }
            if let Some(Value::Object(named)) = fields.get("patternProperties") {
                named.keys().try_for_each(|pattern| weigh(pattern, found))?;
            }
            fields.values().try_for_each(|field| collect(field, found))
        }
        Value::Array(items) => items.iter().try_for_each(|item| collect(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn weigh(pattern: &str, found: &mut BTreeMap<String, u64>) -> Result<(), String> {
    if found.contains_key(pattern) {
        return Ok(());
    }
    let weight = weight(pattern).ok_or_else(|| {
        format!(
            "the pattern {pattern:?} cannot be used: it has to be a regular expression without back-references"
        )
    })?;
    found.insert(pattern.to_owned(), weight);
    Ok(())
}

/// Such a pattern may have to backtrack to match a text.
pub(super) fn has_lookaround(pattern: &str) -> bool {
    plain_weight(pattern).is_none()
}

/// The states of a pattern of this weight, without the allowance for backtracking.
pub(super) fn states_of(pattern: &str, weight: u64) -> u64 {
    plain_weight(pattern).unwrap_or_else(|| weight.saturating_sub(backtracks_max()))
}

fn backtracks_max() -> u64 {
    u64::try_from(BACKTRACKS_MAX).unwrap_or(u64::MAX)
}

fn weight(pattern: &str) -> Option<u64> {
    if let Some(weight) = plain_weight(pattern) {
        return Some(weight);
    }
    let plain = LOOKAROUNDS.iter().fold(pattern.to_owned(), |plain, look| plain.replace(look, "(?:"));
    plain_weight(&plain).map(|weight| weight.saturating_add(backtracks_max()))
}

/// In JSON Schema `\w` and `\d` mean ASCII; only a pattern that names a Unicode property is parsed with full Unicode.
fn plain_weight(pattern: &str) -> Option<u64> {
    let read = |unicode: bool| {
        let mut parser = ParserBuilder::new();
        parser.unicode(unicode).utf8(false).nest_limit(NESTING_MAX).build().parse(pattern).ok()
    };
    read(false).or_else(|| read(true)).map(|read| states(&read))
}

fn states(read: &Hir) -> u64 {
    match read.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => u64::try_from(literal.0.len()).unwrap_or(u64::MAX),
        HirKind::Class(Class::Bytes(class)) => {
            sum(class.ranges().iter().map(|range| if range.end() < 0x80 { 1 } else { ANY_STATES }))
        }
        HirKind::Class(Class::Unicode(class)) => {
            sum(class.ranges().iter().map(|range| if range.end() < '\u{80}' { 1 } else { RANGE_STATES }))
        }
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min.saturating_add(1)).max(1);
            states(&repetition.sub).saturating_add(1).saturating_mul(u64::from(times))
        }
        HirKind::Capture(capture) => states(&capture.sub).saturating_add(2),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            sum(parts.iter().map(states)).saturating_add(1)
        }
    }
}

fn sum(parts: impl Iterator<Item = u64>) -> u64 {
    parts.fold(0, u64::saturating_add)
}
