//! JSON text is walked before a value is built: what could not be read back, or costs too much, is refused with its
//! place.

use machine::json::Json;
use machine::json_text::{Bounds, FaultKind, parse, parse_bytes, walk};
use machine::json_value::{
    RESERVED_KEY_PREFIX, VALUE_DEPTH_MAX, VALUE_NODES_MAX, ValueFault, fault, fault_within, memory_bytes,
};
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

#[test]
fn a_stored_result_is_shown_as_its_compact_text_everywhere() {
    let value = json!({"b": [1, null, "x\ny"], "a": {}});
    let stored = Json::from(&value);
    let text = r#"{"a":{},"b":[1,null,"x\ny"]}"#;
    assert_eq!((stored.as_str(), stored.to_string().as_str()), (text, text));
    assert_eq!(format!("{stored:?}"), text);
    assert_eq!(stored.to_value(), value);
    assert_eq!(serde_json::to_string(&stored).unwrap(), text);
    assert_eq!(stored.plain_text(), text);
    assert_eq!(Json::from(json!("x\ny")).plain_text(), "x\ny");
}

#[test]
fn every_form_that_json_has_is_read_as_the_json_library_reads_it() {
    for text in [
        " [ ] ",
        "{ }",
        "\t{\"a\" : [ ] , \"b\":{ } ,\r\n\"c\":[ 1 , [2] , {\"d\":3} ]}\r\n",
        r#""""#,
        r#"" \" \\ \/ \b \f \n \r \t \u00e9 \u00E9 \uffff \uD83D\uDE00 \ud7ff é 😀""#,
        r#"["\\","a\"b\\"]"#,
        "[true,false,null]",
        "true",
        "false",
        "null",
        "[0,-0,10,-7,1.5,-0.25,1e5,1E5,1e+5,1E-5,10.01e10]",
    ] {
        let read: Value = serde_json::from_str(text).expect(text);
        assert_eq!(parse(text, &Bounds::VALUE), Ok(read), "{text}");
    }
}

#[test]
fn what_the_json_library_refuses_is_refused_with_its_reason() {
    for (text, why) in [
        (r#""\x""#, "an escape that JSON does not have"),
        (r#""a\"#, "an escape that JSON does not have"),
        (r#""\u12""#, "`\\u` without four hexadecimal digits"),
        (r#""\u12g4""#, "`\\u` without four hexadecimal digits"),
        (r#""\ud83d\u12g4""#, "`\\u` without four hexadecimal digits"),
        ("\"a\u{1f}b\"", "a control character in a string"),
        ("\"a\n\"", "a control character in a string"),
        ("-", "expected a digit"),
        ("1.e5", "expected a digit"),
        ("1e", "expected a digit"),
        ("1e+", "expected a digit"),
        ("1e+-5", "expected a digit"),
        ("00", "a number with a leading zero"),
        ("-01", "a number with a leading zero"),
        (".5", "expected a JSON value"),
        ("falsy", "expected a JSON value"),
        ("nul", "expected a JSON value"),
        ("[,1]", "expected a JSON value"),
        ("{\"a\":}", "expected a JSON value"),
        ("[1", "expected `,` or `]`"),
        ("[1}", "expected `,` or `]`"),
        ("{\"a\":1]", "expected `,` or `}`"),
        ("{\"a\":1 \"b\":2}", "expected `,` or `}`"),
        ("{,}", "expected a key in quotes"),
        ("{\"a\" 1}", "expected `:`"),
        ("\"a", "the text ends within a string"),
        ("[", "the text ends where a value is expected"),
        ("[] []", "more text after the end of the value"),
    ] {
        assert_eq!(refused(text).0, FaultKind::NotJson(why), "{text}");
        assert!(serde_json::from_str::<Value>(text).is_err(), "{text}");
    }
}

#[test]
fn a_key_that_is_written_with_escapes_is_the_key_that_they_stand_for() {
    for (one, other) in [
        (r"\b", r"\u0008"),
        (r"\f", r"\u000c"),
        (r"\n", r"\u000A"),
        (r"\r", r"\u000d"),
        (r"\t", r"\u0009"),
        (r"\/", "/"),
        (r"\\", r"\u005c"),
        (r#"\""#, r"\u0022"),
        (r"x\u00e9y\nz", r"x\u00E9y\u000az"),
        (r"\ud83d\ude00", "😀"),
    ] {
        let twice = format!(r#"{{"{one}":1,"{other}":2}}"#);
        assert!(matches!(refused(&twice).0, FaultKind::DuplicateKey(_)), "{twice}");
        let apart = format!(r#"{{"{one}":1,"{other}x":2}}"#);
        assert_eq!(parse(&apart, &Bounds::VALUE), Ok(serde_json::from_str(&apart).unwrap()), "{apart}");
    }
}

#[test]
fn a_fault_is_written_with_its_reason_its_path_and_its_place() {
    let says = |text: &str| parse(text, &Bounds { depth_max: 3, nodes_max: 6 }).unwrap_err().to_string();
    assert_eq!(says(r#"{"a":1,"a":2}"#), "the key \"a\" appears twice in its object, at line 1 column 13");
    assert_eq!(
        says("{\n \"$serde_json::private::X\":1}"),
        "the key \"$serde_json::private::X\" is reserved and cannot be stored, at line 2 column 27"
    );
    assert_eq!(says("[\"\\ud800\"]"), "a string has half of a surrogate pair, in \"[0]\" at line 1 column 9");
    assert_eq!(
        says("\n\n[0,1e999]"),
        "a number is out of range and would be changed, in \"[1]\" at line 3 column 9"
    );
    assert_eq!(
        says("{\"a\":{\"b\":[1]}}"),
        "nested too deeply, at most 3 levels, in \"a\" at line 1 column 12"
    );
    assert_eq!(says("[0,1,2,3,4,5]"), "more than 6 JSON values, in \"[5]\" at line 1 column 12");
}

#[test]
fn the_path_to_a_fault_leaves_out_what_is_too_much_of_it() {
    let nested = |levels: usize| format!("{}x", "{\"k\":[0,".repeat(levels));
    let path = |levels: usize| "k[1].".repeat(levels).trim_end_matches('.').to_owned();
    assert_eq!(refused(&nested(3)).1, path(3));
    // Sixteen steps, of which each level has two.
    assert_eq!(refused(&nested(20)).1, path(8));
    // Of a path that is too deep only the first step helps the reader.
    assert_eq!(refused(&nested(40)).1, "k");
    for (chars, shown) in [(100, "é".repeat(100)), (101, "é".repeat(100) + "…")] {
        let key = "é".repeat(chars);
        assert_eq!(refused(&format!("{{\"{key}\":x")).1, shown);
        let twice = format!("{{\"{key}\":1,\"{key}\":2}}");
        assert_eq!(refused(&twice).0, FaultKind::DuplicateKey(shown));
    }
}

#[test]
fn a_text_and_the_value_of_it_cost_the_same() {
    for (text, nodes, memory) in [
        ("0", 1, 48),
        ("\"\"", 1, 48),
        ("\"é\"", 1, 48 + 16 + 2),
        ("[[],{},null]", 4, 4 * 48),
        ("{\"a\":1}", 2, 2 * 48 + 656 + 17),
        ("{\"\":{\"b\":\"c\"}}", 3, 3 * 48 + 2 * 656 + 2 * 17),
        ("{\"1\":0,\"2\":0,\"3\":0,\"4\":0,\"5\":0,\"6\":0}", 7, 7 * 48 + 656 + 6 * 17),
        ("{\"1\":0,\"2\":0,\"3\":0,\"4\":0,\"5\":0,\"6\":0,\"7\":0}", 8, 8 * 48 + 2 * 656 + 7 * 17),
    ] {
        let cost = walk(text.as_bytes(), &Bounds::VALUE).unwrap();
        assert_eq!((cost.nodes, cost.memory_bytes), (nodes, memory), "{text}");
        assert_eq!(memory_bytes(&serde_json::from_str(text).unwrap()), memory, "{text}");
    }
}

#[test]
fn a_value_is_judged_by_the_bound_that_it_is_given() {
    let value = json!({"a": [1, 2], "b": null});
    assert_eq!(fault_within(&value, 5), None);
    let fault = fault_within(&value, 4);
    assert_eq!(fault, Some(ValueFault::TooManyNodes { nodes_max: 4 }));
    let texts = [fault.unwrap(), ValueFault::TooDeep, ValueFault::ReservedKey].map(|fault| fault.to_string());
    assert_eq!(
        texts,
        [
            "more than 4 JSON values",
            "nested too deeply",
            "a key begins with `$serde_json::private::`, which is reserved"
        ]
    );
}
