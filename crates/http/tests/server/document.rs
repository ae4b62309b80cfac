//! The OpenAPI document: as the code says it, and as it was agreed.

use std::collections::BTreeSet;
use std::path::Path;

use holdpoint_http::{Role, openapi};
use serde_json::Value;

use crate::test_server::{StoreKind, TestPlan};

fn document() -> Value {
    serde_json::from_str(&openapi().to_pretty_json().expect("it can be written down")).expect("it is JSON")
}

/// A change of the document is a change of what clients rely on: it is made on purpose, and written down with
/// `HOLDPOINT_WRITE_OPENAPI=1 cargo test -p holdpoint-http --test server document`.
#[test]
fn the_document_is_the_one_that_was_agreed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let text = openapi().to_pretty_json().expect("it can be written down") + "\n";
    if std::env::var_os("HOLDPOINT_WRITE_OPENAPI").is_some() {
        std::fs::write(&path, &text).expect("it can be written");
        panic!("it is written down; read what has changed, and run this without HOLDPOINT_WRITE_OPENAPI");
    }
    let agreed = std::fs::read_to_string(&path).expect("the agreed document is there");
    assert!(
        text == agreed,
        "crates/http/openapi.json is not what the code says; HOLDPOINT_WRITE_OPENAPI=1 writes it down"
    );
}

#[test]
fn every_operation_has_a_name_of_its_own_and_says_who_may_ask() {
    let document = document();
    let mut names = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name =
                operation["operationId"].as_str().unwrap_or_else(|| panic!("{method} {path} has no name"));
            assert!(names.insert(name.to_owned()), "{name} is there twice");
            assert!(operation["security"].is_array(), "{method} {path} does not say who may ask");
            assert!(operation["responses"]["default"].is_object(), "{method} {path} has no refusal");
            assert!(operation["summary"].is_string(), "{method} {path} does not say what it does");
        }
    }
    assert!(names.len() >= 28, "{names:?}");
}

#[test]
fn nothing_that_is_referred_to_is_missing() {
    fn references(value: &Value, into: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                into.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|field| references(field, into));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, into)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let document = document();
    let mut named = BTreeSet::new();
    references(&document, &mut named);
    assert!(!named.is_empty());
    for name in named {
        let pointer = name.strip_prefix('#').expect("it is in this document");
        assert!(document.pointer(pointer).is_some(), "{name} is not there");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_document_is_served() {
    let test_server = TestPlan::one_write(StoreKind::Memory).build().await;
    assert_eq!(test_server.client.get("/openapi.json").await.ok(200), document());
    let keys: [(&str, &str, &[Role]); 1] = [("ann", "acme", &[Role::Run])];
    let test_server = TestPlan::one_write(StoreKind::Memory).with_keys(&keys).build().await;
    assert_eq!(test_server.client.get("/openapi.json").await.ok(200), document(), "it needs no key");
}
