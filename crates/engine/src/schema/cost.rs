//! Counts the work of checking one value against one schema before doing it: a schema that refers to itself may visit
//! each part of a value far too often.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::expansion::target;

/// Maximum number of nested schema parts on the path to one part of a value: each takes some of the thread's stack.
const PATH_MAX: u32 = 256;
/// Characters read in one step, and pattern states per character in one step.
const PER_STEP: u64 = 16;
/// Weight of a pattern that could not be weighed.
const WEIGHT_UNKNOWN: u64 = 4_096;

pub(super) struct CheckCost<'s> {
    root: &'s Value,
    patterns: &'s BTreeMap<String, u64>,
    left: u64,
}

/// The check would exceed its budget.
struct OverBudget;

#[derive(Clone, Copy)]
struct Visit {
    depth: u32,
    /// Whether errors are reported, for which failing branches are visited twice.
    reports_errors: bool,
}

impl Visit {
    const fn below(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }

    const fn without_errors(self) -> Self {
        Self { depth: self.depth + 1, reports_errors: false }
    }
}

impl<'s> CheckCost<'s> {
    pub(super) const fn new(root: &'s Value, patterns: &'s BTreeMap<String, u64>, steps_max: u64) -> Self {
        Self { root, patterns, left: steps_max }
    }

    /// Whether the check stays within the budget.
    pub(super) fn allows(mut self, value: &Value) -> bool {
        self.check(self.root, value, Visit { depth: 0, reports_errors: true }).is_ok()
    }

    fn spend(&mut self, steps: u64) -> Result<(), OverBudget> {
        self.left = self.left.checked_sub(steps).ok_or(OverBudget)?;
        Ok(())
    }

    fn check(&mut self, schema: &'s Value, value: &Value, visit: Visit) -> Result<(), OverBudget> {
        if visit.depth > PATH_MAX {
            return Err(OverBudget);
        }
        self.spend(1 + count(value.as_str().map_or(0, str::len)) / PER_STEP)?;
        let Value::Object(keywords) = schema else { return Ok(()) };
        self.keywords(keywords, value, visit)?;
        // Unevaluated parts are found by checking the other keywords again.
        if keywords.contains_key("unevaluatedProperties") || keywords.contains_key("unevaluatedItems") {
            self.keywords(keywords, value, visit.without_errors())?;
        }
        Ok(())
    }

    fn keywords(
        &mut self,
        keywords: &'s Map<String, Value>,
        value: &Value,
        visit: Visit,
    ) -> Result<(), OverBudget> {
        for (keyword, inner) in keywords {
            self.spend(1)?;
            match keyword.as_str() {
                "$ref" => {
                    if let Some(target) = inner.as_str().and_then(|text| target(self.root, text)) {
                        self.check(target, value, visit.below())?;
                    }
                }
                "then" | "else" => self.check(inner, value, visit.below())?,
                "not" | "if" => self.check(inner, value, visit.without_errors())?,
                "allOf" => self.all(items(inner), value, visit.below())?,
                "anyOf" | "oneOf" => {
                    if visit.reports_errors {
                        self.all(items(inner), value, visit.without_errors())?;
                    }
                    self.all(items(inner), value, visit.below())?;
                }
                "dependentSchemas" | "dependencies" => {
                    self.all(fields(inner).map(|(_, schema)| schema), value, visit.below())?;
                }
                "enum" | "const" | "required" => self.spend(parts(inner))?,
                "uniqueItems" => self.spend(parts(value))?,
                "pattern" => {
                    if let (Some(pattern), Some(text)) = (inner.as_str(), value.as_str()) {
                        self.spend_match(pattern, text)?;
                    }
                }
                _ => self.children(keywords, keyword, inner, value, visit.below())?,
            }
        }
        Ok(())
    }

    /// Keywords that apply to the parts of a value.
    fn children(
        &mut self,
        keywords: &'s Map<String, Value>,
        keyword: &str,
        inner: &'s Value,
        value: &Value,
        visit: Visit,
    ) -> Result<(), OverBudget> {
        match keyword {
            "properties" => {
                for (name, schema) in fields(inner) {
                    self.spend(1)?;
                    if let Some(child) = value.get(name) {
                        self.check(schema, child, visit)?;
                    }
                }
            }
            "patternProperties" => {
                for (pattern, schema) in fields(inner) {
                    for (name, child) in fields(value) {
                        self.spend_match(pattern, name)?;
                        self.check(schema, child, visit)?;
                    }
                }
            }
            "additionalProperties" | "unevaluatedProperties" => {
                let named = keywords.get("properties");
                for (name, child) in fields(value) {
                    self.spend(1)?;
                    if named.is_none_or(|named| named.get(name).is_none()) {
                        self.check(inner, child, visit)?;
                    }
                }
            }
            "propertyNames" => {
                for (name, _) in fields(value) {
                    self.check(inner, &Value::from(name.as_str()), visit)?;
                }
            }
            "items" | "prefixItems" if inner.is_array() => {
                for (schema, child) in items(inner).zip(items(value)) {
                    self.check(schema, child, visit)?;
                }
            }
            "items" | "additionalItems" | "unevaluatedItems" | "contains" => {
                for child in items(value) {
                    self.check(inner, child, visit)?;
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
        visit: Visit,
    ) -> Result<(), OverBudget> {
        for schema in schemas {
            self.check(schema, value, visit)?;
        }
        Ok(())
    }

    fn spend_match(&mut self, pattern: &str, text: &str) -> Result<(), OverBudget> {
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

/// The number of parts of a value. Values and schemas are not deep: that was checked before.
fn parts(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::String(text) => 1 + count(text.len()) / PER_STEP,
        Value::Array(items) => items.iter().map(parts).fold(1, u64::saturating_add),
        Value::Object(fields) => fields.values().map(parts).fold(1, u64::saturating_add),
    }
}
