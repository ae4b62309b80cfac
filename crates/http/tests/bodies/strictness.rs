//! The rule of every body: an unknown field, a wrong type, a null or broken JSON changes nothing and is named.

use holdpoint_http::body::{
    Answer, Approve, AutoApprove, BODY_DEPTH_MAX, Decisions, Interrupt, PostMessage, PostThread, Reject,
    parse_strict,
};
use holdpoint_http::error::{ApiError, Code};
use serde::de::DeserializeOwned;

const JSON: Option<&str> = Some("application/json");

fn refused<T: DeserializeOwned>(text: &str) -> (Code, String) {
    let error =
        parse_strict::<T>(JSON, text.as_bytes(), true).err().unwrap_or_else(|| panic!("{text} was taken"));
    let field = error.details.get("field").map(|field| field.as_str().unwrap().to_owned());
    if let Some(field) = &field {
        assert!(error.message.contains(field.as_str()), "{} does not name {field}", error.message);
    }
    (error.code, field.unwrap_or_default())
}

fn names_the_field<T: DeserializeOwned>(text: &str, field: &str) {
    assert_eq!(refused::<T>(text), (Code::BadRequest, field.to_owned()), "{text}");
}

#[test]
fn a_misspelt_field_does_not_approve() {
    names_the_field::<Approve>(r#"{"expect_digset":"00"}"#, "expect_digset");
    names_the_field::<Approve>(r#"{"Note":"x"}"#, "Note");
    names_the_field::<Reject>(r#"{"reason":"x","them":"end_run"}"#, "them");
    names_the_field::<Answer>(r#"{"results":1}"#, "results");
    names_the_field::<Interrupt>(r#"{"now":true}"#, "now");
    names_the_field::<PostThread>(r#"{"ID":"a"}"#, "ID");
    names_the_field::<AutoApprove>(r#"{"enabled":true,"for":"ever"}"#, "for");
    names_the_field::<PostMessage>(
        r#"{"agent":"a","text":"b","policy":{"aproval":"never"}}"#,
        "policy.aproval",
    );
    names_the_field::<PostMessage>(
        r#"{"agent":"a","text":"b","tools":[{"name":"t","kind":"x"}]}"#,
        "tools[0].kind",
    );
}

#[test]
fn a_wrong_type_is_named() {
    names_the_field::<Approve>(r#"{"apply_to_future":"yes"}"#, "apply_to_future");
    names_the_field::<Approve>(r#"{"expect_digest":64}"#, "expect_digest");
    names_the_field::<Reject>(r#"{"then":"stop"}"#, "then");
    names_the_field::<Reject>(r#"{"then":{"end_run":null}}"#, "then");
    names_the_field::<Answer>(r#"{"choice":"RETRY"}"#, "choice");
    names_the_field::<AutoApprove>(r#"{"enabled":1}"#, "enabled");
    names_the_field::<PostThread>(r#"{"metadata":[1]}"#, "metadata");
    names_the_field::<PostThread>(r#"{"id":"a b"}"#, "id");
    names_the_field::<PostThread>(r#"{"id":""}"#, "id");
    names_the_field::<PostMessage>(r#"{"agent":"a","text":["b"]}"#, "text");
    names_the_field::<PostMessage>(r#"{"agent":"a","content":7}"#, "content");
    names_the_field::<PostMessage>(r#"{"agent":"a","content":["b"]}"#, "content");
    names_the_field::<PostMessage>(r#"{"agent":"a","text":"b","policy":["all_settled"]}"#, "policy");
    names_the_field::<PostMessage>(
        r#"{"agent":"a","text":"b","policy":{"approval":"none"}}"#,
        "policy.approval",
    );
    names_the_field::<PostMessage>(r#"{"agent":"a","text":"b","tools":[["t"]]}"#, "tools[0]");
    names_the_field::<Decisions>(r#"{"decisions":{"call_id":"a"}}"#, "decisions");
}

#[test]
fn a_null_is_not_an_absent_field() {
    for field in ["arguments", "expect_digest", "note", "apply_to_future"] {
        names_the_field::<Approve>(&format!(r#"{{"{field}":null}}"#), field);
    }
    for field in ["reason", "then"] {
        names_the_field::<Reject>(&format!(r#"{{"{field}":null}}"#), field);
    }
    for field in [
        "text",
        "content",
        "message_id",
        "after",
        "auto_approve",
        "on_busy",
        "policy",
        "tools",
        "output_schema",
    ] {
        names_the_field::<PostMessage>(&format!(r#"{{"agent":"a","{field}":null}}"#), field);
    }
    for field in [
        "continuation",
        "on_reject",
        "on_block",
        "step_end",
        "decisions",
        "execution",
        "approval",
        "while_waiting",
        "on_busy",
    ] {
        let text = format!(r#"{{"agent":"a","text":"b","policy":{{"{field}":null}}}}"#);
        names_the_field::<PostMessage>(&text, &format!("policy.{field}"));
    }
    names_the_field::<PostThread>(r#"{"id":null}"#, "id");
    names_the_field::<PostThread>(r#"{"metadata":null}"#, "metadata");
    names_the_field::<Answer>(r#"{"choice":null}"#, "choice");
    // The result of a call may be null: it is a value, not a field that the client forgot.
    let answer: Answer = parse_strict(JSON, br#"{"result":null}"#, false).unwrap();
    assert_eq!(answer.result, Some(serde_json::Value::Null));
}

#[test]
fn a_missing_field_is_named() {
    names_the_field::<PostMessage>(r#"{"text":"b"}"#, "agent");
    names_the_field::<AutoApprove>("{}", "enabled");
    names_the_field::<Decisions>("{}", "decisions");
}

#[test]
fn a_duplicate_key_is_refused_at_any_depth() {
    names_the_field::<Approve>(r#"{"note":"a","note":"b"}"#, "note");
    names_the_field::<Approve>(r#"{"arguments":{"amount":5,"amount":5000}}"#, "arguments.amount");
    names_the_field::<PostThread>(r#"{"metadata":{"a":[{"b":1,"b":2}]}}"#, "metadata.a[0].b");
    names_the_field::<Approve>("{\"arguments\":{\"\\u0061\":1,\"a\":2}}", "arguments.a");
}

#[test]
fn broken_json_and_anything_but_an_object_are_refused() {
    for text in [
        "{",
        "}",
        "nul",
        "{\"note\":\"a\"} {}",
        "{\"note\":\"\u{1}\"}",
        "{'note':1}",
        "{\"note\":\"a\",}",
        " ",
    ] {
        assert_eq!(refused::<Approve>(text).0, Code::BadRequest, "{text}");
    }
    for text in ["[]", "null", "true", "1", "\"approve\"", r#"[null,null,"note",true]"#] {
        assert_eq!(refused::<Approve>(text).0, Code::BadRequest, "{text}");
        assert_eq!(refused::<Interrupt>(text).0, Code::BadRequest, "{text}");
    }
    let not_text = parse_strict::<Approve>(JSON, b"{\"note\":\"\xff\xfe\"}", true).unwrap_err();
    assert_eq!(not_text.code, Code::BadRequest);
}

#[test]
fn nesting_has_a_limit_and_does_not_overflow_the_stack() {
    let nested = |depth: usize| format!(r#"{{"arguments":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    let deepest = BODY_DEPTH_MAX - 1;
    assert!(parse_strict::<Approve>(JSON, nested(deepest).as_bytes(), false).is_ok());
    names_the_field::<Approve>(&nested(deepest + 1), "arguments");
    assert_eq!(refused::<Approve>(&nested(1_000_000)).0, Code::BadRequest);
}

fn read(content_type: Option<&str>, text: &str, empty_allowed: bool) -> Result<Reject, ApiError> {
    parse_strict(content_type, text.as_bytes(), empty_allowed)
}

#[test]
fn a_body_is_read_only_if_it_is_declared_as_json() {
    for good in
        ["application/json", "Application/JSON", "application/json; charset=utf-8", " application/json ;"]
    {
        assert!(read(Some(good), "{}", false).is_ok(), "{good}");
    }
    for bad in
        ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonx", "application/json/x"]
    {
        assert_eq!(read(Some(bad), "{}", true).unwrap_err().code, Code::UnsupportedMediaType, "{bad}");
    }
    assert_eq!(read(None, "{}", true).unwrap_err().code, Code::UnsupportedMediaType);
}

#[test]
fn an_empty_body_is_an_empty_object_only_where_that_is_allowed() {
    assert_eq!(read(None, "", true).unwrap(), Reject::default());
    assert_eq!(read(Some("text/plain"), "", true).unwrap(), Reject::default());
    assert_eq!(read(JSON, "", false).unwrap_err().code, Code::BadRequest);
    assert_eq!(read(None, "", false).unwrap_err().code, Code::BadRequest);
}

#[test]
fn d29_a_refusal_repeats_only_so_much_of_what_it_refuses() {
    let long = format!(r#"{{"{}":1}}"#, "x".repeat(100_000));
    let error = parse_strict::<Approve>(JSON, long.as_bytes(), false).unwrap_err();
    assert!(error.message.len() < 1_000, "{} bytes", error.message.len());
    assert!(error.details["field"].as_str().unwrap().len() <= 300);
}

#[test]
fn texts_and_metadata_have_limits() {
    names_the_field::<Reject>(&format!(r#"{{"reason":"{}"}}"#, "x".repeat(4_001)), "reason");
    names_the_field::<PostMessage>(&format!(r#"{{"agent":"{}","text":"b"}}"#, "x".repeat(129)), "agent");
    names_the_field::<PostMessage>(r#"{"agent":"a","text":"b","after":""}"#, "after");
    let tools = vec![r#"{"name":"t"}"#; 129].join(",");
    names_the_field::<PostMessage>(&format!(r#"{{"agent":"a","text":"b","tools":[{tools}]}}"#), "tools");
    let large: PostThread =
        parse_strict(JSON, format!(r#"{{"metadata":{{"a":"{}"}}}}"#, "x".repeat(20_000)).as_bytes(), false)
            .unwrap();
    assert_eq!(large.metadata().unwrap_err().details["field"], "metadata");
    let small: PostThread = parse_strict(JSON, br#"{"metadata":{"a":1}}"#, false).unwrap();
    assert_eq!(small.metadata().unwrap(), serde_json::json!({"a": 1}));
}
