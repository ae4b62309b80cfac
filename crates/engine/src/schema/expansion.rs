//! The size of a schema once its references are followed. A few lines that refer to one another twice each expand to
//! more than any computer can visit.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Limits of the expansion, and whether everything has to be understood.
pub(super) struct ExpansionLimits {
    parts_max: u64,
    depth_max: u64,
    /// Refuses whatever could lead elsewhere than it appears to.
    strict: bool,
}

impl ExpansionLimits {
    pub(super) const SENT: Self = Self { parts_max: 10_000, depth_max: 128, strict: true };
    /// Refuses only the absurd: what could never be checked in practice, or would overflow a thread's stack.
    pub(super) const CONFIGURED: Self = Self { parts_max: 10_000_000, depth_max: 1_000, strict: false };
}

/// Keywords that move a reference's target, or resolve it only while a value is checked.
const DYNAMIC_REFERENCE_KEYWORDS: [&str; 5] =
    ["$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef"];

/// A reference back to an enclosing part counts as one part: how often it is followed depends on the value, and is
/// counted when the value is checked.
pub(super) fn check_expansion(schema: &Value, limits: &ExpansionLimits) -> Result<(), String> {
    let mut expansion = Expansion { root: schema, limits, known: BTreeMap::new() };
    if limits.strict {
        check_keywords(schema, true)?;
    }
    expansion.size(schema, 1).map(|_| ())
}

/// The size of a part including everything its references lead to.
#[derive(Clone, Copy)]
struct ExpandedSize {
    parts: u64,
    depth: u64,
}

struct Expansion<'s> {
    root: &'s Value,
    limits: &'s ExpansionLimits,
    /// Targets of references; None while a target is being measured.
    known: BTreeMap<&'s str, Option<ExpandedSize>>,
}

impl<'s> Expansion<'s> {
    fn size(&mut self, part: &'s Value, depth: u64) -> Result<ExpandedSize, String> {
        let ExpansionLimits { parts_max, depth_max, .. } = *self.limits;
        let too_deep = || {
            format!("with its references followed it unfolds to more than {depth_max} levels; nest it less")
        };
        // Check before going deeper: each level takes some of the thread's stack.
        if depth > depth_max {
            return Err(too_deep());
        }
        let mut size = ExpandedSize { parts: 1, depth: 1 };
        match part {
            Value::Object(fields) => {
                if let Some(Value::String(reference)) = fields.get("$ref") {
                    size.add(self.target_size(reference, depth + 1)?);
                }
                for field in fields.values() {
                    size.add(self.size(field, depth + 1)?);
                }
            }
            Value::Array(items) => {
                for item in items {
                    size.add(self.size(item, depth + 1)?);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                return Ok(ExpandedSize { parts: 0, depth: 0 });
            }
        }
        if size.parts > parts_max {
            return Err(format!(
                "with its references followed it unfolds to more than {parts_max} parts; let fewer of them lead to \
                 the same place"
            ));
        }
        if depth.saturating_add(size.depth) > depth_max {
            return Err(too_deep());
        }
        Ok(size)
    }

    fn target_size(&mut self, reference: &'s str, depth: u64) -> Result<ExpandedSize, String> {
        if let Some(known) = self.known.get(reference) {
            return Ok(known.unwrap_or(ExpandedSize { parts: 1, depth: 1 }));
        }
        let Some(target) = target(self.root, reference) else {
            if self.limits.strict {
                return Err(format!(
                    "the reference {reference:?} cannot be followed; write it as #/$defs/NAME, and give NAME there"
                ));
            }
            return Ok(ExpandedSize { parts: 1, depth: 1 });
        };
        self.known.insert(reference, None);
        let size = self.size(target, depth)?;
        self.known.insert(reference, Some(size));
        Ok(size)
    }
}

impl ExpandedSize {
    fn add(&mut self, inner: Self) {
        self.parts = self.parts.saturating_add(inner.parts);
        self.depth = self.depth.max(inner.depth.saturating_add(1));
    }
}

/// The target of a reference within the same schema.
pub(super) fn target<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    let pointer = reference.strip_prefix('#').filter(|pointer| !pointer.contains('%'))?;
    root.pointer(pointer)
}

fn check_keywords(part: &Value, is_root: bool) -> Result<(), String> {
    match part {
        Value::Object(fields) => {
            check_fields(fields, is_root)?;
            fields.values().try_for_each(|field| check_keywords(field, false))
        }
        Value::Array(items) => items.iter().try_for_each(|item| check_keywords(item, false)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn check_fields(fields: &Map<String, Value>, is_root: bool) -> Result<(), String> {
    let is_keyword =
        |name: &str| fields.get(name).is_some_and(|value| value.is_string() || value.is_boolean());
    if let Some(word) = DYNAMIC_REFERENCE_KEYWORDS.into_iter().find(|word| is_keyword(word)) {
        return Err(format!("it uses {word}; refer to its parts with $ref and #/$defs/NAME"));
    }
    if !is_root && is_keyword("$id") {
        return Err("it has an $id inside; only the whole schema may have one".into());
    }
    let dialect = fields.get("$schema").and_then(Value::as_str).unwrap_or_default();
    if dialect.contains("draft-03") || dialect.contains("draft-04") {
        return Err(format!("it is written in {dialect}; write it in draft 6 or a later one"));
    }
    Ok(())
}
