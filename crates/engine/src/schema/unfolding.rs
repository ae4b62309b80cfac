//! What a schema is once its references are followed. A few lines that refer to one another twice each come to more than
//! any computer can visit.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// How far it may go, and how well it has to be understood.
pub(super) struct Bounds {
    places_max: u64,
    depth_max: u64,
    /// Refuses what could lead elsewhere than it seems to.
    strict: bool,
}

impl Bounds {
    pub(super) const SENT: Self = Self { places_max: 10_000, depth_max: 128, strict: true };
    /// Only the absurd is refused: it could not be checked before the universe ends, or takes the stack of a thread.
    pub(super) const CONFIGURED: Self = Self { places_max: 10_000_000, depth_max: 1_000, strict: false };
}

/// Keywords that move a reference's target, or find it only while a value is checked.
const ELSEWHERE: [&str; 5] =
    ["$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef"];

/// A reference back to where one comes from counts as one place: how often it is followed depends on the value, and is
/// counted with it.
pub(super) fn unfold(schema: &Value, bounds: &Bounds) -> Result<(), String> {
    let mut unfolding = Unfolding { root: schema, bounds, known: BTreeMap::new() };
    if bounds.strict {
        check_words(schema, true)?;
    }
    unfolding.size(schema, 1).map(|_| ())
}

/// Of a part with all that its references lead to.
#[derive(Clone, Copy)]
struct Size {
    places: u64,
    depth: u64,
}

struct Unfolding<'s> {
    root: &'s Value,
    bounds: &'s Bounds,
    /// Targets of references; none while one is being looked at.
    known: BTreeMap<&'s str, Option<Size>>,
}

impl<'s> Unfolding<'s> {
    fn size(&mut self, part: &'s Value, depth: u64) -> Result<Size, String> {
        let Bounds { places_max, depth_max, .. } = *self.bounds;
        let too_deep = || {
            format!("with its references followed it unfolds to more than {depth_max} levels; nest it less")
        };
        // Before it is followed further: each level takes some of the thread's stack.
        if depth > depth_max {
            return Err(too_deep());
        }
        let mut size = Size { places: 1, depth: 1 };
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
                return Ok(Size { places: 0, depth: 0 });
            }
        }
        if size.places > places_max {
            return Err(format!(
                "with its references followed it unfolds to more than {places_max} parts; let fewer of them lead to \
                 the same place"
            ));
        }
        if depth.saturating_add(size.depth) > depth_max {
            return Err(too_deep());
        }
        Ok(size)
    }

    fn target_size(&mut self, reference: &'s str, depth: u64) -> Result<Size, String> {
        if let Some(known) = self.known.get(reference) {
            return Ok(known.unwrap_or(Size { places: 1, depth: 1 }));
        }
        let Some(target) = target(self.root, reference) else {
            if self.bounds.strict {
                return Err(format!(
                    "the reference {reference:?} cannot be followed; write it as #/$defs/NAME, and give NAME there"
                ));
            }
            return Ok(Size { places: 1, depth: 1 });
        };
        self.known.insert(reference, None);
        let size = self.size(target, depth)?;
        self.known.insert(reference, Some(size));
        Ok(size)
    }
}

impl Size {
    fn add(&mut self, inner: Self) {
        self.places = self.places.saturating_add(inner.places);
        self.depth = self.depth.max(inner.depth.saturating_add(1));
    }
}

/// Where a reference within the same schema leads.
pub(super) fn target<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    let pointer = reference.strip_prefix('#').filter(|pointer| !pointer.contains('%'))?;
    root.pointer(pointer)
}

fn check_words(part: &Value, is_root: bool) -> Result<(), String> {
    match part {
        Value::Object(fields) => {
            check_fields(fields, is_root)?;
            fields.values().try_for_each(|field| check_words(field, false))
        }
        Value::Array(items) => items.iter().try_for_each(|item| check_words(item, false)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

fn check_fields(fields: &Map<String, Value>, is_root: bool) -> Result<(), String> {
    let is_word = |name: &str| fields.get(name).is_some_and(|value| value.is_string() || value.is_boolean());
    if let Some(word) = ELSEWHERE.into_iter().find(|word| is_word(word)) {
        return Err(format!("it uses {word}; refer to its parts with $ref and #/$defs/NAME"));
    }
    if !is_root && is_word("$id") {
        return Err("it has an $id inside; only the whole schema may have one".into());
    }
    let dialect = fields.get("$schema").and_then(Value::as_str).unwrap_or_default();
    if dialect.contains("draft-03") || dialect.contains("draft-04") {
        return Err(format!("it is written in {dialect}; write it in draft 6 or a later one"));
    }
    Ok(())
}
