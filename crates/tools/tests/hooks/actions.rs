//! The table of the design: each phase, each action that it allows, and what each way to fail does instead.

use engine::model::ModelMessage;
use engine::plugin::{CallErrorCode, Phase};
use machine::termination::{ErrorCode, Termination};
use serde_json::{Value, json};

use crate::harness::{ANSWER_BYTES_MAX, HeldClock, Seen, TIMEOUT, hook, run};
use crate::server::{HookServer, Turn, answering, down};

/// One action of every kind. Some have several forms.
fn all_actions() -> Vec<Value> {
    vec![
        json!({"type": "set_state", "key": "k", "value": {"n": 1}}),
        json!({"type": "end"}),
        json!({"type": "add_instruction", "text": "Be brief."}),
        json!({"type": "hide_tool", "tool": "look"}),
        json!({"type": "set_param", "name": "temperature", "value": 0}),
        json!({"type": "replace_message", "message_id": "m1", "text": "[redacted]"}),
        json!({"type": "skip_inference"}),
        json!({"type": "drop_call", "index": 0}),
        json!({"type": "set_arguments", "index": 0, "arguments": {"n": 2}}),
        json!({"type": "block", "reason": "not on sundays"}),
        json!({"type": "suspend", "question": "Really?"}),
        json!({"type": "suspend", "question": "How many?", "schema": {"type": "integer"}}),
        json!({"type": "set_result", "result": "from a cache"}),
        json!({"type": "set_result", "error": "out of order"}),
        json!({"type": "add_note", "text": "seen before"}),
    ]
}

/// The table of the design, by phase.
fn allowed(phase: Phase) -> &'static [&'static str] {
    match phase {
        Phase::RunStart | Phase::StepEnd => &["set_state", "end"],
        Phase::StepStart | Phase::BeforeInference => {
            &["set_state", "add_instruction", "hide_tool", "set_param", "replace_message", "skip_inference"]
        }
        Phase::AfterInference => &["set_state", "drop_call", "set_arguments", "end"],
        Phase::BeforeToolExecute => &["set_state", "block", "suspend", "set_result"],
        Phase::AfterToolExecute => &["set_state", "add_note"],
        Phase::RunEnd => &["set_state"],
    }
}

fn is_allowed(phase: Phase, action: &Value) -> bool {
    allowed(phase).contains(&action["type"].as_str().unwrap())
}

/// One run whose hook is asked in this phase and gets this turn the first time.
async fn with(phase: Phase, turn: Turn) -> Seen {
    let server = HookServer::serving([turn]).await;
    let seen = run(hook(&server.url(), [phase])).await;
    let name = serde_json::to_value(phase).unwrap();
    assert!(
        server.phases().iter().all(|asked| *asked == name),
        "only this phase is asked: {:?}",
        server.phases()
    );
    seen
}

/// What each action does if it is answered properly.
fn check_effect(phase: Phase, action: &Value, seen: &Seen) {
    let about = format!("{phase} {action}: {seen:#?}");
    let (ran, requests) = (&seen.ran, &seen.requests);
    let first = requests.first();
    let natural = seen.ended == Termination::NaturalEnd;
    let untouched = natural && *ran == [json!({"n": 1})];
    let holds = match action["type"].as_str().unwrap() {
        "set_state" => untouched && seen.state() == [("k".to_owned(), json!({"n": 1}))],
        "end" | "skip_inference" => {
            let asked = match phase {
                Phase::RunStart | Phase::StepStart | Phase::BeforeInference => 0,
                _ => 1,
            };
            let executed = usize::from(phase == Phase::StepEnd);
            seen.ended == Termination::BehaviorRequested && requests.len() == asked && ran.len() == executed
        }
        "add_instruction" => untouched && &*first.unwrap().instructions == "Be brief.",
        "hide_tool" => {
            natural
                && ran.is_empty()
                && first.unwrap().tools.is_empty()
                && seen.call_errors() == [CallErrorCode::OutOfScope]
        }
        "set_param" => untouched && first.unwrap().params.len() == 1,
        "replace_message" => {
            let ModelMessage::User { content, .. } = first.unwrap().messages.iter().next().unwrap() else {
                panic!("{about}")
            };
            untouched && content.as_str() == Some("[redacted]")
        }
        "drop_call" => natural && ran.is_empty() && seen.call_errors().is_empty() && requests.len() == 1,
        "set_arguments" => natural && *ran == [json!({"n": 2})],
        "block" => natural && ran.is_empty() && seen.call_errors() == [CallErrorCode::BlockedByPlugin],
        "suspend" if action.get("schema").is_some() => {
            natural
                && ran.is_empty()
                && seen.names().contains(&"tool.suspended".to_owned())
                && seen.last_request().contains("text: \"7\"")
        }
        "suspend" => untouched && seen.names().contains(&"tool.approval_requested".to_owned()),
        "set_result" if action.get("error").is_some() => {
            natural && ran.is_empty() && seen.call_errors() == [CallErrorCode::PluginError]
        }
        "set_result" => natural && ran.is_empty() && seen.last_request().contains("from a cache"),
        "add_note" => untouched && seen.last_request().contains("seen before"),
        _ => panic!("{about}"),
    };
    assert!(holds && seen.failures().is_empty(), "{about}");
}

/// The rule of the design for a hook that fails in this phase. Nothing of its answer has an effect.
#[track_caller]
fn check_failure(phase: Phase, how: &str, why: &str, seen: &Seen) {
    let about = format!("{phase} {how}: {seen:#?}");
    assert!(
        !seen.failures().is_empty() && seen.failures().iter().all(|failed| failed.contains(why)),
        "{about}"
    );
    assert_eq!(seen.state(), [], "{about}");
    match phase {
        Phase::RunStart | Phase::StepStart | Phase::BeforeInference | Phase::AfterInference => {
            let Termination::Error(error) = &seen.ended else { panic!("{about}") };
            assert_eq!((error.code, &*seen.ran), (ErrorCode::Hook, &[][..]), "{about}");
        }
        Phase::BeforeToolExecute => {
            let outcome = (&seen.ended, &*seen.ran, &*seen.call_errors());
            let expected = (&Termination::NaturalEnd, &[][..], &[CallErrorCode::GateFailed][..]);
            assert_eq!(outcome, expected, "{about}");
        }
        Phase::AfterToolExecute | Phase::StepEnd | Phase::RunEnd => {
            assert_eq!(
                (&seen.ended, &*seen.ran),
                (&Termination::NaturalEnd, &[json!({"n": 1})][..]),
                "{about}"
            );
            assert!(!seen.last_request().contains("seen before"), "{about}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_answer_of_each_phase_has_its_effect() {
    let _clock = HeldClock::new();
    for phase in Phase::ALL {
        for action in all_actions().iter().filter(|action| is_allowed(phase, action)) {
            let seen = with(phase, Turn::actions(std::slice::from_ref(action))).await;
            check_effect(phase, action, &seen);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_too_late_is_a_failure_and_changes_nothing_afterwards() {
    let _clock = HeldClock::new();
    for phase in Phase::ALL {
        for action in all_actions().iter().filter(|action| is_allowed(phase, action)) {
            let body = answering(std::slice::from_ref(action));
            let server = HookServer::serving([Turn::Late(body)]).await;
            let running = tokio::spawn(run(hook(&server.url(), [phase])));
            server.late_asked.notified().await;
            tokio::time::advance(TIMEOUT).await;
            server.release.notify_one();
            let seen = running.await.unwrap();
            check_failure(phase, &format!("late {action}"), "no answer within 5s", &seen);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_is_down_is_a_failure() {
    let _clock = HeldClock::new();
    for phase in Phase::ALL {
        let seen = run(hook(&down().await, [phase])).await;
        check_failure(phase, "down", "it could not be reached", &seen);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_cut_off_or_too_long_or_has_an_unknown_field_is_a_failure() {
    let _clock = HeldClock::new();
    let long = "x".repeat(ANSWER_BYTES_MAX);
    for phase in Phase::ALL {
        for action in all_actions().iter().filter(|action| is_allowed(phase, action)) {
            let body = answering(std::slice::from_ref(action));
            let mut unknown = action.clone();
            unknown["force"] = json!(true);
            let ways = [
                (Turn::Cut(body.clone()), "the connection was lost in the middle of its answer"),
                (Turn::Close, "the connection was lost before it had answered"),
                (Turn::Answer(format!("{body}{long}")), "200 OK with more than 4096 bytes"),
                (Turn::Answer(body[..body.len() - 1].to_owned()), "its answer is not JSON"),
                (Turn::actions(&[unknown]), "its answer is invalid: unknown field `force`"),
                (Turn::Status("201 Created", "", body.clone()), "it answered 201 Created"),
                (Turn::Status("500 Internal Server Error", "", body.clone()), "it answered 500"),
            ];
            for (turn, why) in ways {
                let how = format!("{turn:?}");
                check_failure(phase, &how, why, &with(phase, turn).await);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_action_outside_its_phase_is_a_failure() {
    let _clock = HeldClock::new();
    for phase in Phase::ALL {
        for action in all_actions().iter().filter(|action| !is_allowed(phase, action)) {
            // An allowed action beside it has no effect either.
            let state = json!({"type": "set_state", "key": "k", "value": 1});
            let seen = with(phase, Turn::actions(&[state, action.clone()])).await;
            let indexed = ["drop_call", "set_arguments"].contains(&action["type"].as_str().unwrap());
            let why = if indexed { "names the call at index 0" } else { "where it has no meaning" };
            check_failure(phase, &action.to_string(), why, &seen);
        }
    }
}
