//! A posted message becomes a request to the engine, and its author is always the principal of the key.

use engine::posting;
use engine::store::Tenant;
use engine::tool::{Approval, Performer};
use holdpoint_http::body::{PostMessage, parse_strict};
use holdpoint_http::error::{ApiError, Code};
use machine::policy::{
    ApprovalScope, Continuation, DecisionTiming, Execution, OnBlock, OnBusy, OnReject, PolicyRequest,
    StepEnd, WhileWaiting,
};
use serde_json::{Value, json};

fn read(body: &Value) -> PostMessage {
    parse_strict(Some("application/json"), body.to_string().as_bytes(), false).unwrap()
}

fn asked(body: &Value) -> Result<posting::Message, ApiError> {
    read(body).into_message(Tenant::from("acme"), "thr_1".into(), "front-end".into(), false)
}

#[test]
fn a_plain_message_asks_for_what_it_says_and_nothing_else() {
    let message = asked(&json!({"agent": "assistant", "text": "Hello"})).unwrap();
    assert_eq!(message.tenant, Tenant::from("acme"));
    assert_eq!(
        message.thread,
        posting::ThreadTarget::Existing("thr_1".into()),
        "a message creates no thread"
    );
    assert_eq!((message.agent.as_str(), message.by.as_str()), ("assistant", "front-end"));
    assert_eq!(message.content, Some(json!("Hello")));
    assert_eq!((message.message_id, message.after, message.on_busy), (None, None, None));
    assert_eq!(message.policy, PolicyRequest::default());
    assert!(!message.may_approve);
}

#[test]
fn every_field_of_the_policy_can_be_asked_for() {
    let message = asked(&json!({
        "agent": "a", "text": "b", "message_id": "m-1", "after": "msg_call_1~2", "on_busy": "enqueue",
        "policy": {
            "continuation": "eager", "on_reject": "end_run", "on_block": "end_run", "step_end": "after_inference",
            "decisions": "at_boundary", "execution": "sequential", "approval": "all_tools",
            "while_waiting": "supersede", "on_busy": "interrupt", "max_result_chars": 500,
            "descendants_max": 3,
        },
    }))
    .unwrap();
    assert_eq!(
        message.policy,
        PolicyRequest {
            continuation: Some(Continuation::Eager),
            on_reject: Some(OnReject::EndRun),
            on_block: Some(OnBlock::EndRun),
            step_end: Some(StepEnd::AfterInference),
            decisions: Some(DecisionTiming::AtBoundary),
            execution: Some(Execution::Sequential),
            approval: Some(ApprovalScope::AllTools),
            while_waiting: Some(WhileWaiting::Supersede),
            on_busy: Some(OnBusy::Interrupt),
            max_result_chars: Some(500),
            descendants_max: Some(3),
        }
    );
    assert_eq!(message.on_busy, Some(OnBusy::Enqueue));
    assert_eq!(message.message_id, Some("m-1".into()));
    assert_eq!(message.after, Some("msg_call_1~2".into()));
}

#[test]
fn d20_a_message_says_something_in_one_way() {
    let code =
        |body: &Value| asked(body).map_err(|error| (error.code, error.details["field"].clone())).unwrap_err();
    assert_eq!(code(&json!({"agent": "a"})), (Code::BadRequest, json!("text")));
    assert_eq!(
        code(&json!({"agent": "a", "text": "b", "content": "c"})),
        (Code::BadRequest, json!("content"))
    );
    // An earlier message is answered again.
    assert_eq!(asked(&json!({"agent": "a", "after": "m-1"})).unwrap().content, None);
    let parts = json!([{"type": "text", "text": "b"}]);
    assert_eq!(asked(&json!({"agent": "a", "content": parts})).unwrap().content, Some(parts));
}

#[test]
fn auto_approve_is_a_looser_policy_and_nothing_that_the_engine_would_not_judge() {
    let approval = |body: &Value| asked(body).unwrap().policy.approval;
    assert_eq!(
        approval(&json!({"agent": "a", "text": "b", "auto_approve": true})),
        Some(ApprovalScope::Never)
    );
    assert_eq!(approval(&json!({"agent": "a", "text": "b", "auto_approve": false})), None);
    let contradiction =
        json!({"agent": "a", "text": "b", "auto_approve": true, "policy": {"approval": "all_tools"}});
    assert_eq!(asked(&contradiction).unwrap_err().details["field"], "auto_approve");
}

#[test]
fn client_tools_are_declared_and_performed_by_the_front_end() {
    let schema = json!({"type": "object"});
    let body = json!({"agent": "a", "text": "b", "tools": [{"name": "pick_file", "description": "Picks",
        "parameters": schema}, {"name": "ask"}]});
    let message = asked(&body).unwrap();
    let [pick, ask] = &message.tools[..] else { panic!("{:?}", message.tools) };
    assert_eq!((pick.name.as_str(), &*pick.description, &*pick.parameters), ("pick_file", "Picks", &schema));
    assert_eq!((&pick.performer, pick.approval), (&Performer::Client, Approval::Never));
    assert_eq!((&*ask.description, &*ask.parameters), ("", &schema));
    assert_eq!(asked(&json!({"agent": "a", "text": "b", "tools": []})).unwrap().tools, []);
}
