//! JSON text is walked before a value is built: what could not be read back, or costs too much, is refused with its
//! place.

use machine::json_text::{Bounds, FaultKind, parse, parse_bytes, walk};
use machine::json_value::{RESERVED_KEY_PREFIX, VALUE_DEPTH_MAX, VALUE_NODES_MAX, ValueFault, fault};
use serde_json::{Value, json};

fn refused(text: &str) -> (FaultKind, String) {
    let fault = parse(text, &Bounds::VALUE).expect_err(text);
    (fault.kind, fault.path)
}

#[test]
fn a_key_that_appears_twice_is_refused_however_it_is_written() {
    let twice = |key: &str| FaultKind::DuplicateKey(key.into());
    assert_eq!(refused(r#"{"a":1,"a":1}"#), (twice("a"), String::new()));
    assert_eq!(refused(r#"{"a":1,"b":{},"\u0061":1}"#), (twice("a"), String::new()));
    assert_eq!(refused(r#"{"x":[0,{"y":{"k":1,"j":2,"k":3}}]}"#), (twice("k"), "x[1].y".into()));
    assert_eq!(refused(r#"{"\ud83d\ude00":1,"😀":2}"#), (twice("😀"), String::new()));
    assert_eq!(parse(r#"[{"a":1},{"a":1,"A":{"a":2}}]"#, &Bounds::VALUE).map(|_| ()), Ok(()));
}

#[test]
fn a_key_that_the_json_library_gives_a_meaning_is_refused_everywhere() {
    for name in ["RawValue", "Number", "Anything"] {
        let key = format!("{RESERVED_KEY_PREFIX}{name}");
        let reserved = FaultKind::ReservedKey(key.clone());
        for text in [
            format!(r#"{{"{key}":"1"}}"#),
            format!(r#"{{"a":1,"{key}":"1"}}"#),
            format!(r#"{{"a":1,"\u0024{}":"1"}}"#, &key[1..]),
        ] {
            assert_eq!(refused(&text), (reserved.clone(), String::new()));
            assert_eq!(refused(&format!("[[0,{text}]]")).0, reserved);
            // As the text of a string it is a text.
            let inside = serde_json::to_string(&text).unwrap();
            assert_eq!(parse(&inside, &Bounds::VALUE), Ok(Value::String(text)));
        }
        let built = json!({"a": [{key: "1"}]});
        assert_eq!(fault(&built), Some(ValueFault::ReservedKey));
    }
}

#[test]
fn numbers_that_would_be_changed_are_refused() {
    for good in ["18446744073709551615", "-9223372036854775808", "-0", "1e308", "0.1", "1e22", "1E-400"] {
        let value = parse(good, &Bounds::VALUE).expect(good);
        assert_eq!(parse(&value.to_string(), &Bounds::VALUE), Ok(value));
    }
    for bad in ["18446744073709551616", "-9223372036854775809", "1e309", "-1e400", &"9".repeat(400)] {
        assert_eq!(refused(&format!(r#"{{"n":{bad}}}"#)), (FaultKind::NumberOutOfRange, "n".into()));
    }
}

#[test]
fn half_of_a_surrogate_pair_is_refused() {
    for bad in [r#""\ud800""#, r#""\udc00""#, r#""\ud800A""#, r#""\ud800\u0041""#, r#""\udc00\ud800""#] {
        assert_eq!(refused(bad).0, FaultKind::LoneSurrogate, "{bad}");
        assert_eq!(refused(&format!("{{{bad}:1}}")).0, FaultKind::LoneSurrogate, "{bad}");
    }
    assert_eq!(parse(r#""\ud83d\ude00""#, &Bounds::VALUE), Ok(json!("😀")));
}

#[test]
fn nodes_are_counted_before_a_value_is_built() {
    let list = |count: usize| format!("[{}0]", "0,".repeat(count));
    assert_eq!(walk(list(VALUE_NODES_MAX - 2).as_bytes(), &Bounds::VALUE).unwrap().nodes, VALUE_NODES_MAX);
    let (kind, path) = refused(&list(VALUE_NODES_MAX - 1));
    assert_eq!(kind, FaultKind::TooManyNodes { nodes_max: VALUE_NODES_MAX });
    assert_eq!(path, format!("[{}]", VALUE_NODES_MAX - 1));
    let built = Value::Array(vec![json!(0); VALUE_NODES_MAX]);
    assert_eq!(fault(&built), Some(ValueFault::TooManyNodes { nodes_max: VALUE_NODES_MAX }));
}

#[test]
fn small_objects_are_charged_for_the_memory_that_they_take() {
    let cost = |text: &str| walk(text.as_bytes(), &Bounds::VALUE).unwrap().memory_bytes;
    let objects = format!("[{}0]", r#"{"":0},"#.repeat(20_000));
    let numbers = format!("[{}0]", "0,".repeat(20_000));
    assert!(cost(&objects) > 20_000 * 632, "an object with one entry takes a whole leaf of its tree");
    assert!(cost(&objects) > 10 * cost(&numbers));
    assert!(cost(&format!("\"{}\"", "x".repeat(100_000))) < 101_000);
}

#[test]
fn a_hostile_depth_of_text_is_found_out_without_recursion() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nested = |depth: usize| format!("{}1{}", open.repeat(depth), close.repeat(depth));
        assert!(parse(&nested(VALUE_DEPTH_MAX - 1), &Bounds::VALUE).is_ok());
        let too_deep = FaultKind::TooDeep { depth_max: VALUE_DEPTH_MAX };
        assert_eq!(refused(&nested(VALUE_DEPTH_MAX)).0, too_deep);
        assert_eq!(refused(&open.repeat(1_000_000)).0, too_deep);
    }
}

#[test]
fn what_is_not_json_is_refused_with_its_line_and_column() {
    let fault = parse("{\n  \"a\": [1,\n    2 3]\n}", &Bounds::VALUE).unwrap_err();
    assert_eq!(fault.to_string(), "expected `,` or `]`, in \"a[1]\" at line 3 column 7");
    for bad in [
        "",
        " ",
        "{",
        "[1,]",
        "{\"a\":1,}",
        "{\"a\"}",
        "{a:1}",
        "01",
        "1.",
        "+1",
        "tru",
        "\"a",
        "1 2",
        "\u{feff}1",
    ] {
        assert!(matches!(refused(bad).0, FaultKind::NotJson(_)), "{bad}");
        assert!(serde_json::from_str::<Value>(bad).is_err(), "{bad}");
    }
    let fault = parse_bytes(b"{\"a\":\"\xff\"}", &Bounds::VALUE).unwrap_err();
    assert_eq!(fault.to_string(), "not UTF-8, at line 1 column 7");
}
