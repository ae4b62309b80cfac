//! The schema rejects every value that its analysis excludes: tested with random schemas, values and tests.

use engine::agent::ArgumentTest;
use engine::arguments::Schema;
use machine::rules::at_path;
use serde_json::{Map, Value, json};

use super::fuzz_tests::chance::Chance;
use super::schema_analysis::SchemaAnalysis;

const SCHEMA_COUNT: u64 = 1_500;
const VALUE_COUNT: usize = 12;

fn schema(chance: &mut Chance, depth: u8) -> Value {
    if depth == 0 || chance.below(12) == 0 {
        return [json!(true), json!({}), json!({"type": "number"}), json!({"type": "string"}), json!(false)]
            [chance.index(5)]
        .clone();
    }
    let mut fields = Map::new();
    for _ in 0..=chance.below(3) {
        let inner = |chance: &mut Chance| schema(chance, depth - 1);
        let (keyword, meaning) = match chance.below(21) {
            0..=2 => ("type", json!(kind(chance))),
            3 => ("type", json!([kind(chance), kind(chance)])),
            4 => ("enum", json!([leaf(chance), leaf(chance)])),
            5 => ("const", leaf(chance)),
            6 => ("minimum", json!(number(chance))),
            7 => ("exclusiveMaximum", json!(number(chance))),
            8 | 9 => ("properties", json!({"a": inner(chance), "b": inner(chance)})),
            10 | 11 => ("required", json!([key(chance)])),
            12 | 13 => ("additionalProperties", inner(chance)),
            14 => ("patternProperties", json!({"^a": inner(chance)})),
            15 => ("items", inner(chance)),
            16 => ("prefixItems", json!([inner(chance)])),
            17 => ("anyOf", json!([inner(chance), inner(chance)])),
            18 => ("oneOf", json!([inner(chance), inner(chance)])),
            19 => ("allOf", json!([inner(chance), inner(chance)])),
            _ => ("$ref", json!(["#/$defs/x", "#", "#/properties/a"][chance.index(3)])),
        };
        fields.insert(keyword.to_owned(), meaning);
    }
    Value::Object(fields)
}

fn kind(chance: &mut Chance) -> &'static str {
    ["object", "object", "array", "number", "integer", "string", "boolean", "null"][chance.index(8)]
}

fn key(chance: &mut Chance) -> &'static str {
    ["a", "b", "c", "0", "1"][chance.index(5)]
}

fn number(chance: &mut Chance) -> f64 {
    [-1.0, 0.0, 0.5, 1.0, 2.0][chance.index(5)]
}

fn leaf(chance: &mut Chance) -> Value {
    match chance.below(6) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(false),
        3 => json!(number(chance)),
        4 => json!(chance.below(3)),
        _ => json!(["", "a", "ab"][chance.index(3)]),
    }
}

fn value(chance: &mut Chance, depth: u8) -> Value {
    match chance.below(if depth == 0 { 2 } else { 8 }) {
        0 | 1 => leaf(chance),
        2 => (0..chance.below(3)).map(|_| value(chance, depth - 1)).collect(),
        _ => {
            let fields = (0..chance.below(4)).map(|_| (key(chance).to_owned(), value(chance, depth - 1)));
            Value::Object(fields.collect())
        }
    }
}

fn test(chance: &mut Chance) -> ArgumentTest {
    let limit = number(chance);
    match chance.below(9) {
        0 => ArgumentTest::Eq(leaf(chance)),
        1 => ArgumentTest::Ne(leaf(chance)),
        2 => ArgumentTest::Lt(limit),
        3 => ArgumentTest::Lte(limit),
        4 => ArgumentTest::Gt(limit),
        5 => ArgumentTest::Gte(limit),
        6 => ArgumentTest::In(vec![leaf(chance), leaf(chance)]),
        7 => ArgumentTest::Matches("a$".into()),
        _ => ArgumentTest::Present,
    }
}

/// Every path in the value.
fn gather_paths(value: &Value, above: &[String], found: &mut Vec<Vec<String>>) {
    let inside: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| (key.clone(), value)).collect(),
        Value::Array(items) => {
            items.iter().enumerate().map(|(index, item)| (index.to_string(), item)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    for (key, value) in inside {
        let path = [above, &[key]].concat();
        gather_paths(value, &path, found);
        found.push(path);
    }
}

#[test]
fn what_is_excluded_is_refused_by_the_schema() {
    let (mut passed, mut excluded, mut required) = (0_u32, 0_u32, 0_u32);
    for seed in 0..SCHEMA_COUNT {
        let chance = &mut Chance::from_seed(seed);
        let mut whole = schema(chance, 3);
        if let Value::Object(fields) = &mut whole {
            fields.insert("$defs".to_owned(), json!({"x": schema(chance, 2)}));
        }
        let (Ok(compiled), Some(analysis)) = (Schema::compile(&whole), SchemaAnalysis::new(&whole)) else {
            continue;
        };
        for _ in 0..VALUE_COUNT {
            let arguments = value(chance, 3);
            let is_valid = compiled.fault(&arguments).is_none();
            // One path that probably does not exist, and those that do.
            let mut paths = vec![vec![key(chance).to_owned(), key(chance).to_owned()]];
            gather_paths(&arguments, &[], &mut paths);
            for path in paths {
                let requires = analysis.requires(&path);
                let found = at_path(&arguments, &path);
                required += u32::from(requires);
                assert!(
                    !is_valid || found.is_some() || !requires,
                    "seed {seed}: {whole} requires {path:?}, not so {arguments}"
                );
                let tests: Vec<ArgumentTest> = (0..=chance.below(2)).map(|_| test(chance)).collect();
                let tests: Vec<&ArgumentTest> = tests.iter().collect();
                let can_pass = analysis.at(&path).can_pass(&tests);
                excluded += u32::from(!can_pass);
                let hit = || found.and_then(Value::as_str).is_some_and(|text| text.ends_with('a'));
                if is_valid && tests.iter().all(|test| test.holds(found, hit)) {
                    passed += 1;
                    assert!(
                        can_pass,
                        "seed {seed}: {whole} excludes {tests:?} at {path:?}, not so {arguments}"
                    );
                }
            }
        }
    }
    // Enough cases of each kind for the assertions above to be meaningful.
    assert!(passed > 500 && excluded > 1_000 && required > 100, "{passed} {excluded} {required}");
}

fn path(path: &str) -> Vec<String> {
    path.split('.').map(str::to_owned).collect()
}

/// Asserts that a rule on this path is impossible under this schema.
#[track_caller]
fn excludes(at: &str, tests: &[ArgumentTest], schema: &Value) {
    let analysis = SchemaAnalysis::new(schema).expect("it is analysed");
    assert!(!analysis.at(&path(at)).can_pass(&tests.iter().collect::<Vec<_>>()), "{schema}");
}

#[track_caller]
fn admits(at: &str, tests: &[ArgumentTest], schema: &Value) {
    let Some(analysis) = SchemaAnalysis::new(schema) else { return };
    assert!(analysis.at(&path(at)).can_pass(&tests.iter().collect::<Vec<_>>()), "{schema}");
}

#[test]
fn branches_exclude_a_value_only_where_all_of_them_do() {
    let branches = |second: Value| json!({"type": "object", "properties": {"n": {"anyOf": [{"type": "string"}, second]}}});
    excludes("n", &[ArgumentTest::Lt(5.0)], &branches(json!({"type": "boolean"})));
    admits("n", &[ArgumentTest::Lt(5.0)], &branches(json!({"type": "number"})));
    excludes("n", &[ArgumentTest::Lt(5.0)], &branches(json!({"type": "number", "minimum": 5})));
    let both =
        json!({"allOf": [{"properties": {"n": {"type": "number"}}}, {"properties": {"n": {"maximum": 3}}}]});
    excludes("n", &[ArgumentTest::Gt(3.0)], &both);
    admits("n", &[ArgumentTest::Gt(2.5)], &both);
}

#[test]
fn whole_numbers_leave_gaps() {
    let whole = json!({"properties": {"n": {"type": "integer"}}});
    excludes("n", &[ArgumentTest::Gt(1.0), ArgumentTest::Lt(2.0)], &whole);
    excludes("n", &[ArgumentTest::Eq(json!(1.5))], &whole);
    admits("n", &[ArgumentTest::Eq(json!(1.0))], &whole);
    admits("n", &[ArgumentTest::Gte(1.0), ArgumentTest::Lt(2.0)], &whole);
}

#[test]
fn references_are_followed_inside_of_the_document_and_nowhere_else() {
    let closed =
        json!({"type": "object", "additionalProperties": false, "properties": {"a": {"type": "string"}}});
    excludes(
        "o.b",
        &[ArgumentTest::Present],
        &json!({"properties": {"o": {"$ref": "#/$defs/o"}}, "$defs": {"o": closed}}),
    );
    admits("o.b", &[ArgumentTest::Present], &json!({"properties": {"o": {"$ref": "other.json#/o"}}}));
    // A recursive schema.
    let tree =
        json!({"type": "object", "additionalProperties": false, "properties": {"left": {"$ref": "#"}}});
    admits("left.left.left", &[ArgumentTest::Present], &tree);
    excludes("left.left.right", &[ArgumentTest::Present], &tree);
    // Older drafts ignore keywords next to a reference.
    for (dialect, is_read) in [
        ("http://json-schema.org/draft-07/schema#", false),
        ("https://json-schema.org/draft/2020-12/schema", true),
    ] {
        let beside = json!({"$schema": dialect, "$defs": {"any": {}}, "definitions": {},
            "properties": {"n": {"$ref": "#/$defs/any", "type": "string"}}});
        if is_read {
            excludes("n", &[ArgumentTest::Lt(1.0)], &beside)
        } else {
            admits("n", &[ArgumentTest::Lt(1.0)], &beside)
        }
    }
}

#[test]
fn what_is_not_understood_is_not_excluded() {
    for schema in [
        json!(true),
        json!({}),
        json!({"$schema": "https://example.org/mine", "additionalProperties": false}),
        json!({"not": {"required": ["n"]}}),
        json!({"if": {}, "then": {"additionalProperties": false}}),
        json!({"properties": {"n": {"$id": "other", "type": "string"}}}),
        json!({"additionalProperties": false, "patternProperties": {"^[a-z]$": {}}}),
    ] {
        admits("n", &[ArgumentTest::Lt(1.0)], &schema);
    }
}
