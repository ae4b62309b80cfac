//! Determines which values a JSON Schema allows at a path, so that a rule that can never match is reported up front.
//!
//! The analysis never excludes a value that the schema accepts. It ignores keywords that it does not follow (`not`,
//! `if`, `dependentSchemas`, references to other documents, …).

use std::cell::Cell;
use std::collections::BTreeSet;

use engine::agent::ArgumentTest;
use engine::arguments::Schema;
use regex::Regex;
use serde_json::{Map, Value, json};

use super::value_sets::{Range, Types, enum_values};

/// How many schemas one query may visit; beyond that, everything counts as possible.
const FUEL_MAX: u32 = 20_000;
/// How many alternatives one location may have; `anyOf` and `oneOf` that would exceed it are not followed.
const SHAPES_MAX: usize = 256;
/// Keywords that constrain a value itself and nothing inside it.
const OWN_KEYWORDS: [&str; 17] = [
    "type",
    "enum",
    "const",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "required",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    /// Draft 6 and 7: keywords next to a `$ref` are ignored.
    Draft7,
    Draft2019,
    Draft2020,
}

/// One alternative for a location: the value satisfies all of these schemas at once. References and branches are
/// resolved.
type Shape<'s> = Vec<&'s Map<String, Value>>;

pub(super) struct SchemaAnalysis<'s> {
    root: &'s Value,
    dialect: Dialect,
    fuel: Cell<u32>,
}

/// Everything that the value at one path may be. Empty: there is never a value.
pub(super) struct PossibleValues<'s> {
    shapes: Vec<Shape<'s>>,
    dialect: Option<&'s Value>,
}

impl<'s> SchemaAnalysis<'s> {
    /// None if the schema uses a dialect or features that are not analysed.
    pub(super) fn new(root: &'s Value) -> Option<Self> {
        let dialect = match root.get("$schema").map(Value::as_str) {
            None => Dialect::Draft2020,
            Some(Some(name)) if name.contains("2020-12") => Dialect::Draft2020,
            Some(Some(name)) if name.contains("2019-09") => Dialect::Draft2019,
            Some(Some(name)) if name.contains("draft-07") || name.contains("draft-06") => Dialect::Draft7,
            Some(_) => return None,
        };
        // Inside a subschema with its own `$id`, references resolve differently.
        let nested = root.as_object().is_some_and(|fields| fields.values().any(has_own_id));
        (!nested).then(|| Self { root, dialect, fuel: Cell::new(FUEL_MAX) })
    }

    pub(super) fn at(&self, path: &[String]) -> PossibleValues<'s> {
        let shapes = path.iter().fold(self.root_shapes(), |shapes, key| {
            shapes.iter().flat_map(|shape| self.child_shapes(shape, key)).collect()
        });
        PossibleValues { shapes, dialect: self.root.get("$schema") }
    }

    /// Whether every value that the schema accepts has something at this path.
    pub(super) fn requires(&self, path: &[String]) -> bool {
        self.all_have(&self.root_shapes(), path)
    }

    fn all_have(&self, shapes: &[Shape<'s>], path: &[String]) -> bool {
        let Some((key, rest)) = path.split_first() else { return true };
        shapes.iter().all(|shape| {
            let types = Types::from_shape(shape);
            let lists = |schema: &&Map<String, Value>| {
                let required = schema.get("required").and_then(Value::as_array);
                required.is_some_and(|names| names.iter().any(|name| name == key))
            };
            let is_long = |schema: &&Map<String, Value>| {
                let min = schema.get("minItems").and_then(Value::as_u64);
                min.zip(key.parse::<u64>().ok()).is_some_and(|(min, index)| min > index)
            };
            let here = (types == Types::OBJECT && shape.iter().any(lists))
                || (types == Types::ARRAY && shape.iter().any(is_long));
            here && self.all_have(&self.child_shapes(shape, key), rest)
        })
    }

    /// The first object on this path that may have keys which the schema does not name.
    pub(super) fn first_open<'p>(&self, path: &'p [String]) -> Option<&'p [String]> {
        let mut shapes = self.root_shapes();
        for (depth, key) in path.iter().enumerate() {
            let is_closed = |shape: &Shape<'s>| {
                let closes = |schema: &&Map<String, Value>| {
                    ["additionalProperties", "unevaluatedProperties"]
                        .iter()
                        .any(|keyword| schema.get(*keyword) == Some(&Value::Bool(false)))
                };
                !Types::from_shape(shape).include(Types::OBJECT) || shape.iter().any(closes)
            };
            if !shapes.iter().all(is_closed) {
                return path.get(..depth);
            }
            shapes = shapes.iter().flat_map(|shape| self.child_shapes(shape, key)).collect();
        }
        None
    }

    fn root_shapes(&self) -> Vec<Shape<'s>> {
        self.fuel.set(FUEL_MAX);
        self.expand([self.root])
    }

    /// What an object of this shape may have under a key, or a list at an index.
    fn child_shapes(&self, shape: &Shape<'s>, key: &str) -> Vec<Shape<'s>> {
        let types = Types::from_shape(shape);
        let mut found = Vec::new();
        if types.include(Types::OBJECT) {
            found.extend(self.expand(shape.iter().flat_map(|schema| self.property(schema, key))));
        }
        if types.include(Types::ARRAY)
            && let Ok(index) = key.parse::<usize>()
        {
            let is_short = |schema: &&Map<String, Value>| {
                schema.get("maxItems").and_then(Value::as_u64).is_some_and(|max| max <= index as u64)
            };
            if !shape.iter().any(is_short) {
                found.extend(self.expand(shape.iter().filter_map(|schema| self.item(schema, index))));
            }
        }
        found
    }

    fn property(&self, schema: &'s Map<String, Value>, key: &str) -> Vec<&'s Value> {
        let mut found: Vec<&Value> = Vec::new();
        found.extend(schema.get("properties").and_then(|named| named.get(key)));
        let mut all_decided = true;
        for (pattern, inner) in
            schema.get("patternProperties").and_then(Value::as_object).into_iter().flatten()
        {
            match self.accepts(&json!({"patternProperties": {pattern: false}}), &json!({key: null})) {
                Some(false) => found.push(inner),
                Some(true) => {}
                None => all_decided = false,
            }
        }
        if found.is_empty() && all_decided {
            found.extend(schema.get("additionalProperties"));
        }
        found
    }

    fn item(&self, schema: &'s Map<String, Value>, index: usize) -> Option<&'s Value> {
        let items = schema.get("items");
        let (first, rest) = match self.dialect {
            Dialect::Draft2020 => (schema.get("prefixItems"), items),
            Dialect::Draft7 | Dialect::Draft2019 if items.is_some_and(Value::is_array) => {
                (items, schema.get("additionalItems"))
            }
            Dialect::Draft7 | Dialect::Draft2019 => (None, items),
        };
        first.and_then(|first| first.get(index)).or(rest)
    }

    /// Every way to satisfy all of these schemas.
    fn expand(&self, schemas: impl IntoIterator<Item = &'s Value>) -> Vec<Shape<'s>> {
        let shapes = schemas.into_iter().fold(vec![Shape::new()], |shapes, schema| self.add(shapes, schema));
        shapes.into_iter().filter(|shape| Types::from_shape(shape) != Types::NONE).collect()
    }

    fn add(&self, mut shapes: Vec<Shape<'s>>, schema: &'s Value) -> Vec<Shape<'s>> {
        let Some(fuel) = self.fuel.get().checked_sub(1) else { return shapes };
        self.fuel.set(fuel);
        let fields = match schema {
            Value::Bool(false) => return Vec::new(),
            Value::Object(fields) => fields,
            Value::Null | Value::Bool(true) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return shapes;
            }
        };
        // A schema that refers back to itself adds nothing.
        if shapes.iter().all(|shape| shape.iter().any(|known| std::ptr::eq(*known, fields))) {
            return shapes;
        }
        let reference = fields.get("$ref").and_then(Value::as_str);
        if reference.is_none() || self.dialect != Dialect::Draft7 {
            shapes.iter_mut().for_each(|shape| shape.push(fields));
            for all in fields.get("allOf").and_then(Value::as_array).into_iter().flatten() {
                shapes = self.add(shapes, all);
            }
            for keyword in ["anyOf", "oneOf"] {
                let Some(branches) = fields.get(keyword).and_then(Value::as_array) else { continue };
                if shapes.len().saturating_mul(branches.len()) > SHAPES_MAX {
                    continue;
                }
                let ways: Vec<Shape<'s>> =
                    branches.iter().flat_map(|branch| self.add(shapes.clone(), branch)).collect();
                if ways.len() <= SHAPES_MAX {
                    shapes = ways;
                }
            }
        }
        match reference.and_then(|reference| self.target(reference)) {
            Some(target) => self.add(shapes, target),
            None => shapes,
        }
    }

    /// Resolves only JSON pointers into this document.
    fn target(&self, reference: &str) -> Option<&'s Value> {
        let pointer = reference.strip_prefix('#').filter(|pointer| !pointer.contains('%'))?;
        self.root.pointer(pointer)
    }

    /// Uses the same validator as tool calls. None if the schema does not compile.
    fn accepts(&self, schema: &Value, value: &Value) -> Option<bool> {
        accepts(schema, self.root.get("$schema"), value)
    }
}

fn has_own_id(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => {
            ["$id", "$schema"].iter().any(|key| fields.get(*key).is_some_and(Value::is_string))
                || fields.values().any(has_own_id)
        }
        Value::Array(items) => items.iter().any(has_own_id),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn accepts(schema: &Value, dialect: Option<&Value>, value: &Value) -> Option<bool> {
    let mut schema = schema.clone();
    if let Some(dialect) = dialect {
        schema["$schema"] = dialect.clone();
    }
    Some(Schema::compile(&schema).ok()?.fault(value).is_none())
}

impl PossibleValues<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.shapes.is_empty()
    }

    /// Whether one value may pass all of these tests at once.
    pub(super) fn can_pass(&self, tests: &[&ArgumentTest]) -> bool {
        self.shapes.iter().any(|shape| self.shape_can_pass(shape, tests))
    }

    fn shape_can_pass(&self, shape: &Shape<'_>, tests: &[&ArgumentTest]) -> bool {
        let mut types = Types::from_shape(shape);
        let mut range = Range::default();
        let mut candidates: Option<Vec<&Value>> = shape.iter().find_map(|schema| enum_values(schema));
        for test in tests {
            match test {
                ArgumentTest::Eq(value) => candidates = Some(vec![value]),
                ArgumentTest::In(values) => candidates = Some(values.iter().collect()),
                ArgumentTest::Lt(_) | ArgumentTest::Lte(_) | ArgumentTest::Gt(_) | ArgumentTest::Gte(_) => {
                    types = types.and(Types::NUMBER);
                    range.narrow(test);
                }
                ArgumentTest::Matches(_) => types = types.and(Types::TEXT),
                ArgumentTest::Absent => return false,
                ArgumentTest::Ne(_) | ArgumentTest::Present => {}
            }
        }
        if candidates.is_none() && Types::NULL.or(Types::BOOLEAN).include_all(types) {
            candidates = Some(vec![&Value::Null, &Value::Bool(false), &Value::Bool(true)]);
        }
        if let Some(candidates) = candidates {
            return candidates.into_iter().any(|value| {
                tests.iter().all(|test| test.holds(Some(value), || pattern_matches(test, value)))
                    && shape.iter().all(|schema| self.own_keywords_accept(schema, value))
            });
        }
        shape.iter().for_each(|schema| range.narrow_to(schema));
        let is_numeric = Types::NUMBER.include_all(types);
        types != Types::NONE && (!is_numeric || range.has_number(types == Types::WHOLE))
    }

    fn own_keywords_accept(&self, schema: &Map<String, Value>, value: &Value) -> bool {
        let own = schema.iter().filter(|(keyword, _)| OWN_KEYWORDS.contains(&keyword.as_str()));
        let own: Map<String, Value> =
            own.map(|(keyword, wanted)| (keyword.clone(), wanted.clone())).collect();
        accepts(&Value::Object(own), self.dialect, value).unwrap_or(true)
    }

    /// For a message: `a number, at least 0`.
    pub(super) fn describe(&self) -> String {
        let words: BTreeSet<String> = self.shapes.iter().map(describe_shape).collect();
        words.into_iter().collect::<Vec<_>>().join(", or ")
    }

    /// The keys that the schema names here.
    pub(super) fn keys(&self) -> BTreeSet<&str> {
        let properties = self.shapes.iter().flatten().filter_map(|schema| schema.get("properties"));
        properties.filter_map(Value::as_object).flat_map(|named| named.keys().map(String::as_str)).collect()
    }
}

fn pattern_matches(test: &ArgumentTest, value: &Value) -> bool {
    match (test, value) {
        // An invalid pattern is reported elsewhere.
        (ArgumentTest::Matches(pattern), Value::String(text)) => {
            Regex::new(pattern).map_or(true, |pattern| pattern.is_match(text))
        }
        _ => false,
    }
}

/// A message lists at most this many values.
const LISTED_MAX: usize = 8;

fn describe_shape(shape: &Shape<'_>) -> String {
    if let Some(candidates) = shape
        .iter()
        .find_map(|schema| enum_values(schema))
        .filter(|candidates| candidates.len() <= LISTED_MAX)
    {
        let candidates: Vec<String> = candidates.iter().map(ToString::to_string).collect();
        return if candidates.len() == 1 {
            candidates.concat()
        } else {
            format!("one of {}", candidates.join(", "))
        };
    }
    let types = Types::from_shape(shape);
    if types == Types::ALL {
        return "anything".to_owned();
    }
    let mut words: Vec<&str> = Types::NAMES
        .iter()
        .filter(|(one, _)| {
            types.include_all(*one) && !(*one == Types::WHOLE && types.include_all(Types::NUMBER))
        })
        .map(|(_, name)| *name)
        .collect();
    words.sort_unstable();
    let mut words = words.join(" or ");
    if types.include(Types::NUMBER) {
        for (keyword, said) in [
            ("minimum", "at least"),
            ("exclusiveMinimum", "above"),
            ("maximum", "at most"),
            ("exclusiveMaximum", "below"),
        ] {
            for limit in shape.iter().filter_map(|schema| schema.get(keyword)) {
                words.push_str(&format!(", {said} {limit}"));
            }
        }
    }
    words
}
