//! Every code has a page, every page a code; refusals of the engine become answers that give nothing away.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "what is missing fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use axum::response::IntoResponse;
use engine::posting::PostError;
use engine::quota::QuotaReached;
use engine::store::Countable;
use engine::store::{StoreError, StoreFailure};
use holdpoint_http::error::{ApiError, Code};
use machine::json_value::ValueFault;
use machine::policy::{LooseningRefused, StrictField};
use machine::thread::{Busy, QUEUE_MAX, QUEUE_WITH_SUPERSEDING_MAX};
use serde_json::{Value, json};

fn pages() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors")
}

#[test]
fn every_code_has_its_page_and_every_page_its_code() {
    let codes: BTreeSet<String> = Code::ALL.iter().map(|code| format!("{}.md", code.as_str())).collect();
    assert_eq!(codes.len(), Code::ALL.len(), "a code is listed twice");
    let there: BTreeSet<String> = fs::read_dir(pages())
        .expect("docs/errors is there")
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(codes, there);
}

#[test]
fn every_page_shows_a_body_with_its_code_and_status_and_says_what_to_do_next() {
    for code in Code::ALL {
        let text = fs::read_to_string(pages().join(format!("{}.md", code.as_str()))).unwrap();
        assert!(
            text.starts_with(&format!("# {}\n\nStatus {}. ", code.as_str(), code.status().as_u16())),
            "{text}"
        );
        let (_, after) =
            text.split_once("```json\n").unwrap_or_else(|| panic!("{} has no body", code.as_str()));
        let (body, rest) = after.split_once("```").unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["error"]["code"], code.as_str());
        assert!(body["error"]["message"].is_string() && body["error"]["details"].is_object(), "{body}");
        assert!(rest.contains("What to do next:\n\n- "), "{} has no next step", code.as_str());
    }
}

#[test]
fn a_code_is_spelled_on_the_wire_as_it_is_named() {
    for code in Code::ALL {
        assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
    }
}

#[test]
fn d29_an_error_has_a_code_a_message_and_details() {
    let error = ApiError::new(Code::ActiveRunExists, "run `run_1` has not ended").with("run_id", "run_1");
    assert_eq!(
        serde_json::to_value(error.body()).unwrap(),
        json!({"error": {
            "code": "ACTIVE_RUN_EXISTS", "message": "run `run_1` has not ended", "details": {"run_id": "run_1"},
        }})
    );
    let response = error.into_response();
    assert_eq!(response.status(), 409);
    assert_eq!(response.headers()["content-type"], "application/json");
}

#[test]
fn what_went_wrong_inside_never_leaves_the_server() {
    let secret = "/var/lib/holdpoint.db: SELECT * FROM runs; postgres://user:hunter2@db";
    let inside = [
        StoreError::Impossible(secret.into()),
        StoreError::Failed(StoreFailure::Unavailable(secret.into())),
        StoreError::Failed(StoreFailure::Full(secret.into())),
        StoreError::Failed(StoreFailure::Corrupt(secret.into())),
    ];
    for refused in inside {
        for error in [ApiError::from(refused.clone()), ApiError::from(PostError::Store(refused.clone()))] {
            let sent = serde_json::to_string(&error.body()).unwrap();
            for word in ["/var", "SELECT", "hunter2", "postgres"] {
                assert!(!sent.contains(word), "{refused:?} sends {sent}");
            }
            assert!(error.status().is_server_error(), "{refused:?}");
        }
    }
}

#[test]
fn d21_every_refused_message_has_its_code() {
    let loosening = LooseningRefused { field: StrictField::Approval };
    let cases = [
        (PostError::NoSuchAgent("a".into()), Code::AgentNotFound),
        (PostError::NoSuchThread("t".into()), Code::ThreadNotFound),
        (PostError::Empty, Code::BadRequest),
        (PostError::TooLarge { bytes: 1 }, Code::TooLarge),
        (PostError::Unstorable(ValueFault::TooDeep), Code::BadRequest),
        (PostError::Unstorable(ValueFault::ReservedKey), Code::BadRequest),
        (PostError::Unstorable(ValueFault::TooManyNodes { nodes_max: 1 }), Code::TooLarge),
        (PostError::BadPart { place: 0, why: "no".into() }, Code::BadRequest),
        (PostError::Busy(Busy::QueueFull { max: 100 }), Code::QueueFull),
        (PostError::Busy(Busy::InDoubt("run_1".into())), Code::InDoubt),
        (PostError::Loosening(loosening), Code::Forbidden),
        (PostError::ToolNameTaken("t".into()), Code::ToolNameTaken),
        (PostError::BadTools { why: "no".into() }, Code::BadRequest),
        (PostError::BadOutputSchema { why: "no".into() }, Code::BadRequest),
        (PostError::CannotBeginAfter { message: "m".into(), why: "no".into() }, Code::BadRequest),
        (PostError::MessageIdTaken("m".into()), Code::BadRequest),
        (PostError::MessageIdReserved("m".into()), Code::BadRequest),
        (PostError::KeyUsed { run: "run_1".into() }, Code::IdempotencyConflict),
        (PostError::KeyTooLong { bytes: 256 }, Code::BadRequest),
        (PostError::Quota(QuotaReached { what: Countable::PendingApprovals, max: 1 }), Code::QuotaReached),
        (PostError::Draining, Code::Draining),
        (PostError::Store(StoreError::Stale), Code::StoreUnavailable),
    ];
    let kinds: BTreeSet<usize> = cases.iter().map(|(refused, _)| kind(refused)).collect();
    assert_eq!(kinds.len(), KIND_COUNT, "one of each");
    for (refused, code) in cases {
        let said = format!("{refused:?}");
        assert_eq!(ApiError::from(refused).code, code, "{said}");
    }
    let busy = ApiError::from(PostError::Busy(Busy::ActiveRun("run_1".into())));
    assert_eq!((busy.code, &busy.details["run_id"]), (Code::ActiveRunExists, &json!("run_1")));
    for max in [QUEUE_MAX, QUEUE_WITH_SUPERSEDING_MAX] {
        let full = ApiError::from(PostError::Busy(Busy::QueueFull { max }));
        assert_eq!(full.details["queued_max"], json!(max));
        assert!(full.message.starts_with(&format!("{max} runs are queued")), "{}", full.message);
    }
    let loose = LooseningRefused { field: StrictField::Approval };
    let loose = ApiError::from(PostError::Loosening(loose));
    assert_eq!((loose.code, &loose.details["roles"]), (Code::Forbidden, &json!(["approve"])));
    assert!(loose.message.contains("`policy.approval`"), "{}", loose.message);
    assert_eq!(loose.details["field"], "policy.approval");
}

const KIND_COUNT: usize = 19;

/// Without a wildcard: a further refusal has to be counted here, and to have a case above.
const fn kind(refused: &PostError) -> usize {
    match refused {
        PostError::NoSuchAgent(_) => 0,
        PostError::Empty => 1,
        PostError::TooLarge { .. } => 2,
        PostError::Unstorable(_) => 3,
        PostError::BadPart { .. } => 4,
        PostError::Busy(_) => 5,
        PostError::Loosening(_) => 6,
        PostError::ToolNameTaken(_) => 7,
        PostError::BadTools { .. } => 8,
        PostError::BadOutputSchema { .. } => 9,
        PostError::CannotBeginAfter { .. } => 10,
        PostError::MessageIdTaken(_) => 11,
        PostError::MessageIdReserved(_) => 12,
        PostError::KeyUsed { .. } => 13,
        PostError::KeyTooLong { .. } => 14,
        PostError::Draining => 15,
        PostError::Store(_) => 16,
        PostError::NoSuchThread(_) => 17,
        PostError::Quota(_) => 18,
    }
}
