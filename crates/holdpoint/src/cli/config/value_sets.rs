//! Sets of JSON types and of numbers, as schemas and tests describe them.

use engine::agent::ArgumentTest;
use serde_json::{Map, Value};

/// The only values that a schema allows, if it lists them.
pub(super) fn enum_values(schema: &Map<String, Value>) -> Option<Vec<&Value>> {
    let only = schema.get("const").map(|only| vec![only]);
    only.or_else(|| Some(schema.get("enum")?.as_array()?.iter().collect()))
}

/// A set of JSON types. An integer is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    pub(super) const NONE: Self = Self(0);
    pub(super) const NULL: Self = Self(1);
    pub(super) const BOOLEAN: Self = Self(2);
    pub(super) const WHOLE: Self = Self(4);
    pub(super) const NUMBER: Self = Self(4 | 8);
    pub(super) const TEXT: Self = Self(16);
    pub(super) const ARRAY: Self = Self(32);
    pub(super) const OBJECT: Self = Self(64);
    pub(super) const ALL: Self = Self(127);
    pub(super) const NAMES: [(Self, &'static str); 7] = [
        (Self::NULL, "null"),
        (Self::BOOLEAN, "true or false"),
        (Self::WHOLE, "a whole number"),
        (Self::NUMBER, "a number"),
        (Self::TEXT, "a text"),
        (Self::ARRAY, "a list"),
        (Self::OBJECT, "an object"),
    ];

    /// The types that every schema of a shape allows.
    pub(super) fn from_shape(shape: &[&Map<String, Value>]) -> Self {
        shape.iter().fold(Self::ALL, |types, schema| {
            let named = match schema.get("type") {
                Some(Value::String(name)) => Self::from_name(name),
                Some(Value::Array(names)) => names
                    .iter()
                    .map(|name| name.as_str().map_or(Self::ALL, Self::from_name))
                    .fold(Self::NONE, Self::or),
                Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => Self::ALL,
            };
            let enum_values = enum_values(schema).map_or(Self::ALL, |values| {
                values.into_iter().map(Self::from_value).fold(Self::NONE, Self::or)
            });
            types.and(named).and(enum_values)
        })
    }

    fn from_name(name: &str) -> Self {
        match name {
            "null" => Self::NULL,
            "boolean" => Self::BOOLEAN,
            "integer" => Self::WHOLE,
            "number" => Self::NUMBER,
            "string" => Self::TEXT,
            "array" => Self::ARRAY,
            "object" => Self::OBJECT,
            _ => Self::ALL,
        }
    }

    const fn from_value(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(_) => Self::NUMBER,
            Value::String(_) => Self::TEXT,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the sets overlap.
    pub(super) const fn include(self, some: Self) -> bool {
        self.0 & some.0 != 0
    }

    pub(super) const fn include_all(self, all: Self) -> bool {
        self.0 & all.0 == all.0
    }
}

/// The numbers between two limits.
pub(super) struct Range {
    from: f64,
    above_from: bool,
    to: f64,
    below_to: bool,
}

impl Default for Range {
    fn default() -> Self {
        Self { from: f64::NEG_INFINITY, above_from: false, to: f64::INFINITY, below_to: false }
    }
}

impl Range {
    pub(super) fn narrow(&mut self, test: &ArgumentTest) {
        match test {
            ArgumentTest::Lt(limit) => self.at_most(*limit, true),
            ArgumentTest::Lte(limit) => self.at_most(*limit, false),
            ArgumentTest::Gt(limit) => self.at_least(*limit, true),
            ArgumentTest::Gte(limit) => self.at_least(*limit, false),
            ArgumentTest::Eq(_)
            | ArgumentTest::Ne(_)
            | ArgumentTest::In(_)
            | ArgumentTest::Matches(_)
            | ArgumentTest::Present
            | ArgumentTest::Absent => {}
        }
    }

    /// Draft 4 defines the exclusive limits differently and is not analysed.
    pub(super) fn narrow_to(&mut self, schema: &Map<String, Value>) {
        let limit = |keyword| schema.get(keyword).and_then(Value::as_f64);
        if let Some(min) = limit("minimum") {
            self.at_least(min, false);
        }
        if let Some(min) = limit("exclusiveMinimum") {
            self.at_least(min, true);
        }
        if let Some(max) = limit("maximum") {
            self.at_most(max, false);
        }
        if let Some(max) = limit("exclusiveMaximum") {
            self.at_most(max, true);
        }
    }

    fn at_least(&mut self, limit: f64, above: bool) {
        if limit > self.from {
            (self.from, self.above_from) = (limit, above);
        } else if limit >= self.from {
            self.above_from |= above;
        }
    }

    fn at_most(&mut self, limit: f64, below: bool) {
        if limit < self.to {
            (self.to, self.below_to) = (limit, below);
        } else if limit <= self.to {
            self.below_to |= below;
        }
    }

    pub(super) fn has_number(&self, whole: bool) -> bool {
        if whole {
            let from = if self.above_from { self.from.floor() + 1.0 } else { self.from.ceil() };
            let to = if self.below_to { self.to.ceil() - 1.0 } else { self.to.floor() };
            return from <= to;
        }
        self.from < self.to || (self.from <= self.to && !self.above_from && !self.below_to)
    }
}
