//! What a check may cost, and what is refused before it is compiled.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::*;

/// Enough even for a slow build on a busy machine.
const SOON: Duration = Duration::from_secs(20);

fn fault(schema: &Value, value: &Value) -> Option<String> {
    let begun = Instant::now();
    let fault = Schema::compile_sent(schema).expect("a schema").fault(value);
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    fault
}

fn is_too_much(schema: &Value, value: &Value) -> bool {
    fault(schema, value).is_some_and(|why| why.contains("too much work"))
}

#[test]
fn small_and_ordinary_checks_are_done() {
    let schema = json!({"type": "array", "items": {"type": "object", "required": ["id"], "properties": {
        "id": {"type": "string", "pattern": "^[a-z0-9-]{1,64}$"}, "count": {"type": "integer", "minimum": 0}}}});
    let item = json!({"id": "a-1", "count": 7});
    assert_eq!(fault(&schema, &Value::from(vec![item.clone(); 20_000])), None);
    let mut wrong = vec![item; 20_000];
    wrong.push(json!({"id": "A"}));
    let why = fault(&schema, &Value::from(wrong)).expect("the last one is wrong");
    assert!(why.starts_with("/20000/id:"), "{why}");
}

#[test]
fn many_rules_times_many_values_are_too_much() {
    let many: Vec<Value> = (0..4_000).map(|_| json!({"minimum": 0})).collect();
    let schema = json!({"items": {"allOf": many}});
    assert_eq!(fault(&schema, &json!([1, 2, 3])), None);
    assert!(is_too_much(&schema, &Value::from(vec![1; 100_000])));
    let schema = json!({"items": {"enum": (0..5_000).collect::<Vec<u32>>()}});
    assert!(is_too_much(&schema, &Value::from(vec![1; 100_000])));
}

/// For this pattern a DFA would double its states with each further character, so it is matched state by state.
#[test]
fn large_patterns_on_long_texts_are_too_much() {
    let schema = json!({"items": {"pattern": "[01]*1[01]{4000}$"}});
    assert_eq!(fault(&schema, &json!(["1".repeat(5_000)])), None);
    assert!(is_too_much(&schema, &json!(["01".repeat(100_000)])));
    assert!(is_too_much(&schema, &Value::from(vec!["01".repeat(500); 100])));
}

#[test]
fn what_is_left_over_by_others_and_branches_that_fail_are_counted_as_often_as_they_are_asked() {
    let mut schema = json!({"type": "string"});
    for _ in 0..20 {
        schema = json!({"anyOf": [schema], "unevaluatedProperties": false});
    }
    assert!(is_too_much(&schema, &json!({"a": 1})));
    let mut schema = json!({"type": "string"});
    for _ in 0..25 {
        schema = json!({"oneOf": [schema.clone(), {"type": "null"}]});
    }
    assert!(fault(&schema, &json!(1)).is_some());
}

/// Each level that is followed takes some of the stack, whether a reference or a list leads there.
#[test]
fn references_behind_nested_lists_are_followed_to_a_depth_limit() {
    let nested = |inner: Value| (0..60).fold(inner, |inner, _| json!([inner]));
    let chained: Vec<Value> =
        (1..400).map(|number| nested(json!({"$ref": format!("#/a/{number}")}))).collect();
    let why = Schema::compile_sent(&json!({"a": chained})).expect_err("it is too deep to follow");
    assert!(why.contains("levels"), "{why}");
}

#[test]
fn a_pattern_that_looks_around_backtracks_a_bounded_number_of_times() {
    let mail = json!({"pattern": "^(?!\\.)(?!.*\\.\\.)[a-z.]+@[a-z]+\\.[a-z]{2,}$"});
    assert_eq!(fault(&mail, &json!("ann.lee@example.com")), None);
    assert!(fault(&mail, &json!("ann..lee@example.com")).is_some());
    let doubling = json!({"pattern": "^(?!b)(?:a|a)*(?=c)"});
    let why = fault(&doubling, &json!("a".repeat(64))).expect("it does not fit");
    assert!(why.contains("backtracking"), "{why}");
}

/// Sixteen thousand paths: more than a pattern may try, and few enough to end by itself without a limit.
#[test]
fn a_configured_pattern_that_looks_around_backtracks_a_bounded_number_of_times_too() {
    let doubling = Schema::compile(&json!({"pattern": "^(?!b)(?:a|a)*(?=c)"})).expect("a schema");
    assert_eq!(doubling.fault(&json!("aac")), None);
    let why = doubling.fault(&json!("a".repeat(14))).expect("it does not fit");
    assert!(why.contains("backtracking"), "{why}");
}

#[test]
fn a_configured_pattern_that_looks_around_is_not_followed_through_a_text_that_takes_too_much_work() {
    let looks = Schema::compile(&json!({"items": {"pattern": "^(?!b)[a-z]+$"}})).expect("a schema");
    let long = json!(["a".repeat(1_000), "a".repeat(1_000_000)]);
    let why = looks.fault(&long).expect("it is too much");
    assert!(why.contains("too much work"), "{why}");
}

#[test]
fn a_configured_pattern_that_cannot_be_bounded_is_refused() {
    let refused = |pattern: &str| Schema::compile(&json!({"pattern": pattern})).expect_err("it is refused");
    let why = refused("^(a+)\\1$");
    assert!(why.contains("without back-references"), "{why}");
    let why = refused("(?:[a-z]{1,200}){1,200}");
    assert!(why.contains("repeat less in it"), "{why}");
}

#[test]
fn a_path_that_would_take_the_stack_is_too_much() {
    let chained: Map<String, Value> = (0..50)
        .map(|number| (format!("d{number}"), json!({"$ref": format!("#/$defs/d{}", number + 1)})))
        .chain([("d50".to_owned(), json!({"properties": {"x": {"$ref": "#/$defs/d0"}}}))])
        .collect();
    let schema = json!({"$ref": "#/$defs/d0", "$defs": chained});
    let nested = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({"x": inner}));
    assert_eq!(fault(&schema, &nested(3)), None);
    assert!(is_too_much(&schema, &nested(60)));
    assert!(is_too_much(&json!({"$ref": "#"}), &json!({})), "it leads nowhere but to itself");
}

/// The operator may write any schema, except one that cannot be followed at all.
#[test]
fn configured_schemas_keep_what_sent_ones_must_not_have() {
    let schema = Schema::compile(
        &json!({"properties": {"a": {"$anchor": "a", "pattern": "^(?!x)"}, "b": {"$ref": "#a"}}}),
    );
    let schema = schema.expect("a schema");
    assert_eq!(schema.fault(&json!({"a": "y", "b": "y"})), None);
    assert!(schema.fault(&json!({"b": "x"})).is_some());

    let again = json!({"$ref": "#/$defs/a"});
    let branch =
        |kind: &str| json!({"properties": {"kind": {"const": kind}, "x": again}, "required": ["kind"]});
    let recursive = json!({"$ref": "#/$defs/a", "$defs": {"a": {"oneOf": [branch("or"), branch("and")]}}});
    let recursive = Schema::compile(&recursive).expect("a schema");
    let nested =
        |kind: &str| (0..40).fold(json!({"kind": kind}), |inner, _| json!({"kind": "or", "x": inner}));
    assert_eq!(recursive.fault(&nested("and")), None);
    assert_eq!(
        recursive.fault(&nested("xor")).as_deref(),
        Some("it does not fit its schema, and is too large to say where")
    );

    let level = |number: usize| {
        let next = json!({"$ref": format!("#/$defs/d{}", number + 1)});
        (format!("d{number}"), json!({"allOf": [next.clone(), next]}))
    };
    let levels: Map<String, Value> = (0..50).map(level).chain([("d50".to_owned(), json!({}))]).collect();
    let why = Schema::compile(&json!({"$ref": "#/$defs/d0", "$defs": levels}))
        .expect_err("it is too deep to follow");
    assert!(why.contains("unfolds"), "{why}");
}
