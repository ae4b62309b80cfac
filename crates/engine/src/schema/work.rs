//! How much work it is to check one value against one schema, counted before it is done: a schema that refers to itself
//! may visit each part of a value more often than anybody can wait for.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::unfolding::target;

/// Parts of a schema on the way to one part of a value: each takes some of the thread's stack.
const PATH_MAX: u32 = 256;
/// Characters that are looked at in one step, and states of a pattern that one character leads to in one step.
const PER_STEP: u64 = 16;
/// Of a pattern that nobody could weigh.
const WEIGHT_UNKNOWN: u64 = 4_096;

pub(super) struct Work<'s> {
    root: &'s Value,
    patterns: &'s BTreeMap<String, u64>,
    left: u64,
}

/// It is too much.
struct TooMuch;

#[derive(Clone, Copy)]
struct Place {
    depth: u32,
    /// Whether it is told what is wrong, for which branches that fail are looked at twice.
    telling: bool,
}

impl Place {
    const fn below(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }

    const fn silent(self) -> Self {
        Self { depth: self.depth + 1, telling: false }
    }
}

impl<'s> Work<'s> {
    pub(super) const fn new(root: &'s Value, patterns: &'s BTreeMap<String, u64>, work_max: u64) -> Self {
        Self { root, patterns, left: work_max }
    }

    /// Whether it can be done.
    pub(super) fn takes(mut self, value: &Value) -> bool {
        self.check(self.root, value, Place { depth: 0, telling: true }).is_ok()
    }

    fn spend(&mut self, steps: u64) -> Result<(), TooMuch> {
        self.left = self.left.checked_sub(steps).ok_or(TooMuch)?;
        Ok(())
    }

    fn check(&mut self, schema: &'s Value, value: &Value, place: Place) -> Result<(), TooMuch> {
        if place.depth > PATH_MAX {
            return Err(TooMuch);
        }
        self.spend(1 + count(value.as_str().map_or(0, str::len)) / PER_STEP)?;
        let Value::Object(keywords) = schema else { return Ok(()) };
        self.keywords(keywords, value, place)?;
        // What is left over by the others is found by asking them again.
        if keywords.contains_key("unevaluatedProperties") || keywords.contains_key("unevaluatedItems") {
            self.keywords(keywords, value, place.silent())?;
        }
        Ok(())
    }

    fn keywords(
        &mut self,
        keywords: &'s Map<String, Value>,
        value: &Value,
        place: Place,
    ) -> Result<(), TooMuch> {
        for (keyword, inner) in keywords {
            self.spend(1)?;
            match keyword.as_str() {
                "$ref" => {
                    if let Some(target) = inner.as_str().and_then(|text| target(self.root, text)) {
                        self.check(target, value, place.below())?;
                    }
                }
                "then" | "else" => self.check(inner, value, place.below())?,
                "not" | "if" => self.check(inner, value, place.silent())?,
                "allOf" => self.all(items(inner), value, place.below())?,
                "anyOf" | "oneOf" => {
                    if place.telling {
                        self.all(items(inner), value, place.silent())?;
                    }
                    self.all(items(inner), value, place.below())?;
                }
                "dependentSchemas" | "dependencies" => {
                    self.all(fields(inner).map(|(_, schema)| schema), value, place.below())?;
                }
                "enum" | "const" | "required" => self.spend(parts(inner))?,
                "uniqueItems" => self.spend(parts(value))?,
                "pattern" => {
                    if let (Some(pattern), Some(text)) = (inner.as_str(), value.as_str()) {
                        self.matched(pattern, text)?;
                    }
                }
                _ => self.children(keywords, keyword, inner, value, place.below())?,
            }
        }
        Ok(())
    }

    /// Keywords that are about the parts of a value.
    fn children(
        &mut self,
        keywords: &'s Map<String, Value>,
        keyword: &str,
        inner: &'s Value,
        value: &Value,
        place: Place,
    ) -> Result<(), TooMuch> {
        match keyword {
            "properties" => {
                for (name, schema) in fields(inner) {
                    self.spend(1)?;
                    if let Some(child) = value.get(name) {
                        self.check(schema, child, place)?;
                    }
                }
            }
            "patternProperties" => {
                for (pattern, schema) in fields(inner) {
                    for (name, child) in fields(value) {
                        self.matched(pattern, name)?;
                        self.check(schema, child, place)?;
                    }
                }
            }
            "additionalProperties" | "unevaluatedProperties" => {
                let named = keywords.get("properties");
                for (name, child) in fields(value) {
                    self.spend(1)?;
                    if named.is_none_or(|named| named.get(name).is_none()) {
                        self.check(inner, child, place)?;
                    }
                }
            }
            "propertyNames" => {
                for (name, _) in fields(value) {
                    self.check(inner, &Value::from(name.as_str()), place)?;
                }
            }
            "items" | "prefixItems" if inner.is_array() => {
                for (schema, child) in items(inner).zip(items(value)) {
                    self.check(schema, child, place)?;
                }
            }
            "items" | "additionalItems" | "unevaluatedItems" | "contains" => {
                for child in items(value) {
                    self.check(inner, child, place)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn all(
        &mut self,
        schemas: impl Iterator<Item = &'s Value>,
        value: &Value,
        place: Place,
    ) -> Result<(), TooMuch> {
        for schema in schemas {
            self.check(schema, value, place)?;
        }
        Ok(())
    }

    fn matched(&mut self, pattern: &str, text: &str) -> Result<(), TooMuch> {
        let weight = self.patterns.get(pattern).copied().unwrap_or(WEIGHT_UNKNOWN);
        self.spend(1 + weight.saturating_mul(count(text.len())) / PER_STEP)
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// All that a value consists of. Neither a value nor a schema is deep: that was checked before.
fn parts(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::String(text) => 1 + count(text.len()) / PER_STEP,
        Value::Array(items) => items.iter().map(parts).fold(1, u64::saturating_add),
        Value::Object(fields) => fields.values().map(parts).fold(1, u64::saturating_add),
    }
}
