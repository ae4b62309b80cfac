//! Runs, threads and pages: absent and null as the contract has them.

use engine::store::ThreadView;
use holdpoint_http::wire::page;
use holdpoint_http::wire::run::Run;
use holdpoint_http::wire::thread::Thread;
use holdpoint_http::wire::time::Time;
use machine::Timestamp;
use machine::event::{Fact, Parent};
use machine::id::{Principal, RunId};
use machine::thread::{FrontState, ThreadState as State};
use serde_json::{Value, json};

use crate::stories;

fn run_json(name: &str, count: Option<usize>) -> Value {
    let story = stories::named(name);
    serde_json::to_value(Run::from_view(&story.view(count.unwrap_or(story.events.len())))).unwrap()
}

#[test]
fn d23_a_run_shows_its_status_times_usage_and_error() {
    assert_eq!(
        run_json("one_held_call", Some(8)),
        json!({
            "id": "run_1", "thread_id": "thr_1", "agent": "assistant", "status": "waiting_approval",
            "termination": null, "step": 1,
            "pending": [{"call_id": "call_1", "tool": "transfer", "kind": "approval", "suspension_id": "apr_1",
                "approval_id": "apr_1"}],
            "usage": {"input_tokens": 20, "output_tokens": 15}, "error": null,
            "created_at": "2026-01-01T00:00:00.000Z", "started_at": "2026-01-01T00:00:00.010Z", "ended_at": null,
        })
    );
}

#[test]
fn a_run_that_another_run_delegated_names_the_call_that_it_works_on() {
    let mut story = stories::named("plain_answer");
    let Fact::RunQueued(request) = &mut story.events[0].fact else { panic!("a log begins with the request") };
    request.parent = Some(Parent {
        run_id: "run_parent".into(),
        call_id: "call_7".into(),
        depth: 1,
        grant_tokens: None,
        grant_descendants: None,
    });
    let run = serde_json::to_value(Run::from_view(&story.view(story.events.len()))).unwrap();
    assert_eq!(run["parent"], json!({"run_id": "run_parent", "call_id": "call_7"}));
}

#[test]
fn d7_started_at_comes_with_the_first_running_and_ended_at_with_the_end() {
    let queued = run_json("one_held_call", Some(1));
    assert_eq!(
        (&queued["status"], &queued["started_at"], &queued["ended_at"]),
        (&json!("queued"), &json!(null), &json!(null))
    );
    let ended = run_json("one_held_call", None);
    assert_eq!((&ended["status"], &ended["error"]), (&json!("completed"), &json!(null)));
    assert!(ended["ended_at"].is_string() && ended["started_at"].is_string(), "{ended}");
    assert_eq!(ended["termination"], json!({"reason": "natural_end"}));
    assert_eq!(ended["pending"], json!([]));
}

#[test]
fn d42_a_model_that_fails_ends_the_run_with_a_code_and_words() {
    let failed = run_json("model_failed", None);
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("MODEL_ERROR")));
    assert_eq!(failed["termination"]["reason"], "error");
    assert_eq!(failed["termination"]["detail"], failed["error"]["message"]);
}

#[test]
fn d4_a_rejected_run_is_completed_and_stopped_with_the_code_rejected() {
    let rejected = run_json("rejected_ends_run", None);
    assert_eq!(rejected["status"], "completed");
    assert_eq!(
        (&rejected["termination"]["reason"], &rejected["termination"]["code"]),
        (&json!("stopped"), &json!("rejected"))
    );
}

#[test]
fn a_superseded_run_is_interrupted_and_says_what_took_its_place() {
    let superseded = run_json("superseded_while_waiting", None);
    assert_eq!((&superseded["status"], &superseded["error"]), (&json!("interrupted"), &json!(null)));
    assert_eq!(superseded["termination"], json!({"reason": "cancelled", "code": "superseded"}));
}

#[test]
fn d24_an_accepted_interrupt_shows_at_once_and_never_on_a_run_that_has_ended() {
    let story = stories::named("one_held_call");
    let mut view = story.view(8);
    view.interrupt_accepted = true;
    assert_eq!(serde_json::to_value(Run::from_view(&view)).unwrap()["status"], "interrupting");
    let mut ended = story.view(story.events.len());
    ended.interrupt_accepted = true;
    assert_eq!(serde_json::to_value(Run::from_view(&ended)).unwrap()["status"], "completed");
}

#[test]
fn d23_the_run_and_its_terminal_event_agree() {
    for story in stories::all() {
        let run = run_json(&story.name, None);
        let last = story.envelopes_as_json().pop().unwrap();
        for key in ["status", "termination", "usage", "error"] {
            assert_eq!(run[key], last["payload"][key], "{}: {key}", story.name);
        }
    }
}

#[test]
fn a_thread_names_its_active_run_only_while_there_is_one() {
    let mut view = ThreadView::absent("thr_1".into());
    assert_eq!(Thread::from_view(&view), None);
    view.created_at = Some(Timestamp(1_767_225_600_000));
    let quiet = serde_json::to_value(Thread::from_view(&view)).unwrap();
    assert_eq!(
        quiet,
        json!({"id": "thr_1", "metadata": {}, "auto_approve": false, "created_at": "2026-01-01T00:00:00.000Z"})
    );
    view.state = State::Busy {
        front: RunId::from("run_1"),
        front_is: FrontState::Executing,
        in_doubt: false,
        queued: 0,
    };
    view.auto_approved_by = Some(Principal::from("ana"));
    view.approved_tools = vec!["transfer".into()];
    view.metadata = Some(json!({"a": 1}));
    let busy = serde_json::to_value(Thread::from_view(&view)).unwrap();
    assert_eq!((&busy["active_run_id"], &busy["auto_approve"]), (&json!("run_1"), &json!(true)));
    assert_eq!((&busy["metadata"], &busy["approved_tools"]), (&json!({"a": 1}), &json!(["transfer"])));
}

#[test]
fn times_are_utc_with_milliseconds_whatever_the_number() {
    assert_eq!(Time(Timestamp(0)).text(), "1970-01-01T00:00:00.000Z");
    assert_eq!(Time(Timestamp(1_767_225_600_915)).text(), "2026-01-01T00:00:00.915Z");
    assert_eq!(Time(Timestamp(u64::MAX)).text(), "9999-12-30T22:00:00.999Z");
}

#[test]
fn a_page_has_a_hundred_entries_unless_asked_and_never_more_than_a_thousand() {
    let limit =
        |text| page::parse_page(text, None).map(|page| page.limit).map_err(|error| error.code.as_str());
    assert_eq!(limit(None), Ok(100));
    assert_eq!(limit(Some("7")), Ok(7));
    assert_eq!(limit(Some("5000")), Ok(1_000));
    assert_eq!(limit(Some("99999999999999999999999")), Ok(1_000));
    for bad in ["0", "", "-1", "+5", "1.5", "ten", "-99999999999999999999999"] {
        assert_eq!(limit(Some(bad)), Err("BAD_REQUEST"), "{bad}");
    }
}

#[test]
fn a_cursor_that_no_list_gave_out_is_a_client_error() {
    let cursor = |text| page::parse_page(None, Some(text)).map(|page| page.cursor);
    assert_eq!(cursor("1767225600000.run_1").unwrap().as_deref(), Some("1767225600000.run_1"));
    for bad in ["", ".", "x.run_1", "-1.run_1", "5.", "99999999999999999999.run_1", "run_1"] {
        assert_eq!(cursor(bad).unwrap_err().details["field"], "cursor", "{bad}");
    }
}
