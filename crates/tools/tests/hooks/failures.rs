//! Answers that are no answers, at the gate: the call never runs.

use engine::plugin::{CallErrorCode, Phase};
use serde_json::json;
use tools::http::{HookSettings, HttpHook, HttpSettings};

use crate::harness::{HeldClock, hook, run, settings};
use crate::server::{HookServer, Turn, answering};

/// Why the hook failed, after this turn at the gate.
async fn refused(turn: Turn) -> String {
    refused_in(Phase::BeforeToolExecute, turn).await
}

async fn refused_in(phase: Phase, turn: Turn) -> String {
    let server = HookServer::serving([turn]).await;
    let seen = run(hook(&server.url(), [phase])).await;
    assert_eq!(seen.ran, [] as [serde_json::Value; 0], "{seen:#?}");
    if phase == Phase::BeforeToolExecute {
        assert_eq!(seen.call_errors(), [CallErrorCode::GateFailed], "{seen:#?}");
    }
    seen.failures()[0].to_owned()
}

#[tokio::test(start_paused = true)]
async fn what_is_no_list_of_known_actions_is_a_failure() {
    let _clock = HeldClock::new();
    let cases = [
        ("", "its answer is not JSON"),
        ("ok", "its answer is not JSON"),
        ("[]", "its answer is invalid"),
        ("{}", "missing field `actions`"),
        ("null", "its answer is invalid"),
        (r#"{"actions": null}"#, "its answer is invalid"),
        (r#"{"actions": {}}"#, "its answer is invalid"),
        (r#"{"actions": [], "allow": true}"#, "unknown field `allow`"),
        (r#"{"actions": [], "actions": []}"#, "its answer is not JSON"),
        (r#"{"actions": [{}]}"#, "missing field `type`"),
        (r#"{"actions": ["block"]}"#, "its answer is invalid"),
        (r#"{"actions": [{"type": "allow"}]}"#, "unknown variant `allow`"),
        (r#"{"actions": [{"type": "Block", "reason": "no"}]}"#, "unknown variant `Block`"),
        (r#"{"actions": [{"type": "block"}]}"#, "missing field `reason`"),
        (r#"{"actions": [{"type": "block", "reason": 7}]}"#, "invalid type"),
        (r#"{"actions": [{"type": "set_result"}]}"#, "has no result and no error"),
        (r#"{"actions": [{"type": "set_result", "result": 1, "error": "x"}]}"#, "a result and an error"),
        (r#"{"actions": [{"type": "set_result", "error": "x", "warning": "y"}]}"#, "an error and a warning"),
        (r#"{"actions": [{"type": "set_state", "key": "k"}]}"#, "missing field `value`"),
        (
            r#"{"actions": [{"type": "set_state", "key": "k", "value": 1, "scope": "tenant"}]}"#,
            "unknown variant",
        ),
        (
            r#"{"actions": [{"type": "suspend", "kind": "approval", "schema": {}}]}"#,
            "an approval with a schema",
        ),
        (
            r#"{"actions": [{"type": "suspend", "schema": {"type": "thing"}}]}"#,
            "a schema that cannot be used",
        ),
        (r#"{"actions": [{"type": "suspend", "kind": "in_doubt"}]}"#, "unknown variant `in_doubt`"),
    ];
    for (body, why) in cases {
        let failed = refused(Turn::Answer(body.to_owned())).await;
        assert!(failed.contains(why), "{body}: {failed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_exist_cannot_be_dropped_or_changed() {
    let _clock = HeldClock::new();
    for action in [
        json!({"type": "drop_call", "index": 1}),
        json!({"type": "set_arguments", "index": 1, "arguments": {}}),
    ] {
        let failed = refused_in(Phase::AfterInference, Turn::actions(&[action])).await;
        assert!(failed.contains("names the call at index 1, and there are 1 calls here"), "{failed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_other_than_200_is_a_failure_and_a_redirect_is_not_followed() {
    let _clock = HeldClock::new();
    let elsewhere = HookServer::serving([]).await;
    let location = format!("location: {}\r\n", elsewhere.url()).leak();
    for (status, headers, why) in [
        ("302 Found", &*location, "it answered 302 Found, and redirects are not followed"),
        ("307 Temporary Redirect", &*location, "redirects are not followed"),
        ("202 Accepted", "", "it answered 202 Accepted"),
        ("401 Unauthorized", "", "it answered 401 Unauthorized"),
        ("503 Service Unavailable", "retry-after: 0\r\n", "it answered 503 Service Unavailable"),
    ] {
        let failed = refused(Turn::Status(status, headers, answering(&[]))).await;
        assert!(failed.contains(why), "{failed}");
    }
    assert_eq!(elsewhere.phases(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn more_state_than_the_limit_is_a_failure() {
    let _clock = HeldClock::new();
    let large = json!({"type": "set_state", "key": "k", "value": "x".repeat(64 * 1024)});
    let server = HookServer::serving([Turn::actions(&[large])]).await;
    let mut roomy = settings(&server.url(), [Phase::BeforeToolExecute]);
    roomy.http.response_bytes_max = 1 << 20;
    let seen = run(HttpHook::new(&roomy).unwrap()).await;
    assert_eq!((seen.call_errors(), seen.ran.len()), (vec![CallErrorCode::GateFailed], 0));
    assert!(seen.state().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_token_that_the_hook_echoes_is_masked_everywhere() {
    let _clock = HeldClock::new();
    let token = "tok-en-0123456789";
    for turn in [
        Turn::actions(&[json!({"type": "block", "reason": format!("Bearer {token} is bad")})]),
        Turn::Status("403 Forbidden", "", format!("bad token {token}")),
        Turn::Answer(format!(r#"{{"actions": [], "{token}": 1}}"#)),
    ] {
        let server = HookServer::serving([turn]).await;
        let plain = settings(&server.url(), [Phase::BeforeToolExecute]);
        let http = HttpSettings { bearer: Some(token.into()), ..plain.http.clone() };
        let seen = run(HttpHook::new(&HookSettings { http, ..plain }).unwrap()).await;
        assert!(server.heads()[0].contains(&format!("authorization: bearer {token}")));
        let shown = format!("{:?}", seen.events);
        assert!(shown.contains("[token]") && !shown.contains("tok-en-0"), "{shown}");
    }
}
