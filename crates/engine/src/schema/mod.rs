//! JSON Schemas: those of the configuration, and those that were sent with a message or with a question.
//!
//! Configured schemas are trusted as long as they can be followed at all; only their patterns are bounded. Sent schemas
//! are not trusted: their size, their expansion, their patterns and the work of checking one value are bounded, so that
//! no check blocks a thread for long.

mod cost;
mod expansion;
mod keyword;
mod pattern;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jsonschema::PatternOptions;
use machine::json_value;
use serde_json::Value;

use cost::CheckCost;
use expansion::{ExpansionLimits, check_expansion};

/// Maximum size of one sent schema.
pub(crate) const SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of patterns in one message, or in one question.
pub(crate) const PATTERNS_MAX: usize = 64;
/// Maximum weight of all patterns of one message: a few megabytes once they are compiled.
pub(crate) const PATTERN_WEIGHT_MAX: u64 = 16 * 1024;
/// Maximum number of compiled patterns of one message. A pattern that several schemas share counts once for each,
/// because every schema is compiled separately.
const COMPILED_PATTERNS_MAX: usize = 256;
/// Maximum number of states of all of them. A run keeps them in memory while it executes.
const COMPILED_STATES_MAX: u64 = 16 * 1024;
/// A second limit after the weight computed here: the regex engine refuses larger patterns.
const PATTERN_BYTES_MAX: usize = 512 * 1024;
/// Memory for matching a pattern quickly; with less, matching is slower but gives the same result.
const PATTERN_CACHE_BYTES: usize = 64 * 1024;
/// Maximum number of steps of one check: a few tenths of a second.
const CHECK_STEPS_MAX: u64 = 4_000_000;

/// A compiled schema. Compiling is slow, so it is done once per tool.
#[derive(Debug)]
pub struct Schema {
    validator: jsonschema::Validator,
    text: Value,
    patterns: BTreeMap<String, u64>,
    origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Configured,
    Sent,
}

impl Schema {
    /// Compiles a schema of the operator.
    pub fn compile(schema: &Value) -> Result<Self, String> {
        check_storable(schema)?;
        check_expansion(schema, &ExpansionLimits::CONFIGURED)?;
        let patterns = pattern::weights(schema)?;
        if let Some((pattern, weight)) = patterns.iter().find(|(_, weight)| **weight > PATTERN_WEIGHT_MAX) {
            return Err(format!(
                "the pattern {pattern:?} is too large: it comes to {weight} states, at most {PATTERN_WEIGHT_MAX}; \
                 repeat less in it"
            ));
        }
        let validator = bounded_validator(schema)?;
        Ok(Self { validator, text: schema.clone(), patterns, origin: Origin::Configured })
    }

    /// Compiles a schema from any other source.
    pub fn compile_sent(schema: &Value) -> Result<Self, String> {
        let SchemaSize { patterns, .. } = SchemaSize::measure(schema)?;
        let validator = bounded_validator(schema)?;
        Ok(Self { validator, text: schema.clone(), patterns, origin: Origin::Sent })
    }

    /// The first error, if any.
    #[must_use]
    pub fn fault(&self, value: &Value) -> Option<String> {
        if CheckCost::new(&self.text, &self.patterns, CHECK_STEPS_MAX).allows(value) {
            return self.validator.validate(value).err().map(|error| {
                match error.instance_path().to_string() {
                    root if root.is_empty() => error.to_string(),
                    path => format!("{path}: {error}"),
                }
            });
        }
        match self.origin {
            // Finding out whether a value is valid is faster than finding out why not, unless a pattern has to
            // backtrack.
            Origin::Configured if !self.patterns.keys().any(|pattern| pattern::has_lookaround(pattern)) => {
                (!self.validator.is_valid(value))
                    .then(|| "it does not fit its schema, and is too large to say where".into())
            }
            Origin::Configured | Origin::Sent => Some(
                "it takes too much work to check this against its schema; make one of the two simpler".into(),
            ),
        }
    }

    /// Approximate size in memory.
    pub(crate) fn bytes(&self) -> usize {
        let weight = self.patterns.values().fold(0, |sum: u64, weight| sum.saturating_add(*weight));
        let states = usize::try_from(weight).unwrap_or(usize::MAX).saturating_mul(STATE_BYTES);
        states.saturating_add(self.patterns.len() * PATTERN_CACHE_BYTES)
    }
}

/// For any schema: bounds the backtracking and the memory of its patterns.
fn bounded_validator(schema: &Value) -> Result<jsonschema::Validator, String> {
    let options = PatternOptions::fancy_regex()
        .backtrack_limit(pattern::BACKTRACKS_MAX)
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_CACHE_BYTES);
    let validator = jsonschema::options().with_pattern_options(options).build(schema);
    validator.map_err(|error| keyword::fault(&error))
}

/// Size of one state of a compiled pattern, forward and backward.
const STATE_BYTES: usize = 128;

/// The size of a sent schema. Measuring fails if it is too large or cannot be followed.
#[derive(Debug)]
pub(crate) struct SchemaSize {
    pub(crate) bytes: usize,
    pub(crate) patterns: BTreeMap<String, u64>,
}

impl SchemaSize {
    pub(crate) fn measure(schema: &Value) -> Result<Self, String> {
        check_storable(schema)?;
        let bytes = schema.to_string().len();
        if bytes > SCHEMA_BYTES_MAX {
            return Err(format!("it has {bytes} bytes, at most {SCHEMA_BYTES_MAX}"));
        }
        check_expansion(schema, &ExpansionLimits::SENT)?;
        let patterns = pattern::weights(schema)?;
        check_patterns(&patterns)?;
        Ok(Self { bytes, patterns })
    }
}

/// The total size of the schemas of one message, each compiled separately.
#[derive(Debug, Default)]
pub(crate) struct CompiledSize {
    patterns: usize,
    states: u64,
}

impl CompiledSize {
    pub(crate) fn add(&mut self, size: &SchemaSize) -> Result<(), String> {
        self.patterns += size.patterns.len();
        for (pattern, weight) in &size.patterns {
            self.states = self.states.saturating_add(pattern::states_of(pattern, *weight));
        }
        if self.patterns > COMPILED_PATTERNS_MAX || self.states > COMPILED_STATES_MAX {
            return Err(format!(
                "its schemas have {} patterns with {} states, those that they have in common counted once for each; at \
                 most {COMPILED_PATTERNS_MAX} patterns with {COMPILED_STATES_MAX} states may come along; leave patterns \
                 out of some of them",
                self.patterns, self.states
            ));
        }
        Ok(())
    }
}

/// Schemas are stored with the agents and the runs that use them.
fn check_storable(schema: &Value) -> Result<(), String> {
    json_value::fault(schema).map_or(Ok(()), |fault| Err(format!("it cannot be stored: {fault}")))
}

pub(crate) fn check_patterns(patterns: &BTreeMap<String, u64>) -> Result<(), String> {
    if patterns.len() > PATTERNS_MAX {
        return Err(format!("there are {} patterns; at most {PATTERNS_MAX} may come along", patterns.len()));
    }
    let weight = patterns.values().fold(0, |sum: u64, weight| sum.saturating_add(*weight));
    if weight > PATTERN_WEIGHT_MAX {
        return Err(format!(
            "its patterns are too large: they come to {weight} states, and at most {PATTERN_WEIGHT_MAX} may come \
             along; repeat less in them"
        ));
    }
    Ok(())
}
