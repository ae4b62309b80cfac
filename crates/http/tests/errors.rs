//! Every code has a page, every page a code; refusals of the engine become answers that give nothing away.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "what is missing fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use axum::response::IntoResponse;
use engine::posting::PostRefused;
use engine::quota::QuotaReached;
use engine::store::Countable;
use engine::store::{Refused, Trouble};
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
    assert_eq!(codes.len(), Code::ALL.len(), "a code stands twice in the list");
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
        Refused::Impossible(secret.into()),
        Refused::Trouble(Trouble::Unavailable(secret.into())),
        Refused::Trouble(Trouble::Full(secret.into())),
        Refused::Trouble(Trouble::Corrupt(secret.into())),
    ];
    for refused in inside {
        for error in [ApiError::from(refused.clone()), ApiError::from(PostRefused::Store(refused.clone()))] {
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
        (PostRefused::NoSuchAgent("a".into()), Code::AgentNotFound),
        (PostRefused::NoSuchThread("t".into()), Code::ThreadNotFound),
        (PostRefused::Empty, Code::BadRequest),
        (PostRefused::TooLarge { bytes: 1 }, Code::TooLarge),
        (PostRefused::Unstorable(ValueFault::TooDeep), Code::BadRequest),
        (PostRefused::Unstorable(ValueFault::ReservedKey), Code::BadRequest),
        (PostRefused::Unstorable(ValueFault::TooManyNodes { nodes_max: 1 }), Code::TooLarge),
        (PostRefused::BadPart { place: 0, why: "no".into() }, Code::BadRequest),
        (PostRefused::Busy(Busy::QueueFull { max: 100 }), Code::QueueFull),
        (PostRefused::Busy(Busy::InDoubt("run_1".into())), Code::InDoubt),
        (PostRefused::Loosening(loosening), Code::Forbidden),
        (PostRefused::ToolNameTaken("t".into()), Code::ToolNameTaken),
        (PostRefused::BadTools { why: "no".into() }, Code::BadRequest),
        (PostRefused::BadOutputSchema { why: "no".into() }, Code::BadRequest),
        (PostRefused::CannotBeginAfter { message: "m".into(), why: "no".into() }, Code::BadRequest),
        (PostRefused::MessageIdTaken("m".into()), Code::BadRequest),
        (PostRefused::MessageIdReserved("m".into()), Code::BadRequest),
        (PostRefused::KeyUsed { run: "run_1".into() }, Code::IdempotencyConflict),
        (PostRefused::KeyTooLong { bytes: 256 }, Code::BadRequest),
        (PostRefused::Quota(QuotaReached { what: Countable::PendingApprovals, max: 1 }), Code::QuotaReached),
        (PostRefused::Draining, Code::Draining),
        (PostRefused::Store(Refused::Stale), Code::StoreUnavailable),
    ];
    let kinds: BTreeSet<usize> = cases.iter().map(|(refused, _)| kind(refused)).collect();
    assert_eq!(kinds.len(), KIND_COUNT, "one of each");
    for (refused, code) in cases {
        let said = format!("{refused:?}");
        assert_eq!(ApiError::from(refused).code, code, "{said}");
    }
    let busy = ApiError::from(PostRefused::Busy(Busy::ActiveRun("run_1".into())));
    assert_eq!((busy.code, &busy.details["run_id"]), (Code::ActiveRunExists, &json!("run_1")));
    for max in [QUEUE_MAX, QUEUE_WITH_SUPERSEDING_MAX] {
        let full = ApiError::from(PostRefused::Busy(Busy::QueueFull { max }));
        assert_eq!(full.details["queued_max"], json!(max));
        assert!(full.message.starts_with(&format!("{max} runs are queued")), "{}", full.message);
    }
    let loose = LooseningRefused { field: StrictField::Approval };
    let loose = ApiError::from(PostRefused::Loosening(loose));
    assert_eq!((loose.code, &loose.details["roles"]), (Code::Forbidden, &json!(["approve"])));
    assert!(loose.message.contains("`policy.approval`"), "{}", loose.message);
    assert_eq!(loose.details["field"], "policy.approval");
}

const KIND_COUNT: usize = 19;

/// Without a wildcard: a further refusal has to be counted here, and to have a case above.
const fn kind(refused: &PostRefused) -> usize {
    match refused {
        PostRefused::NoSuchAgent(_) => 0,
        PostRefused::Empty => 1,
        PostRefused::TooLarge { .. } => 2,
        PostRefused::Unstorable(_) => 3,
        PostRefused::BadPart { .. } => 4,
        PostRefused::Busy(_) => 5,
        PostRefused::Loosening(_) => 6,
        PostRefused::ToolNameTaken(_) => 7,
        PostRefused::BadTools { .. } => 8,
        PostRefused::BadOutputSchema { .. } => 9,
        PostRefused::CannotBeginAfter { .. } => 10,
        PostRefused::MessageIdTaken(_) => 11,
        PostRefused::MessageIdReserved(_) => 12,
        PostRefused::KeyUsed { .. } => 13,
        PostRefused::KeyTooLong { .. } => 14,
        PostRefused::Draining => 15,
        PostRefused::Store(_) => 16,
        PostRefused::NoSuchThread(_) => 17,
        PostRefused::Quota(_) => 18,
    }
}
