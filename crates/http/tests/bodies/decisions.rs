//! Decisions: which request may answer which suspension, and what the engine is then asked.

use std::sync::Arc;

use engine::deciding::{Answer as EngineAnswer, Cancellation, Resumption};
use engine::store::{SuspensionView, Tenant};
use holdpoint_http::body::{Answer, Approve, DecisionEntry, Decisions, Reject, parse_strict};
use holdpoint_http::error::{ApiError, Code};
use holdpoint_http::wire::decision::{DecisionResult, Outcome};
use machine::Timestamp;
use machine::decision::Payload;
use machine::event::OpenedSuspension;
use machine::id::{Digest, RunId};
use machine::inbox::{Refusal, Verdict};
use machine::policy::OnReject;
use machine::projection_rows::ApprovalStatus;
use machine::suspension::{Held, ResumeMode, SuspensionKind};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn read<T: DeserializeOwned>(body: &Value) -> T {
    parse_strict(Some("application/json"), body.to_string().as_bytes(), true).unwrap()
}

fn held(kind: SuspensionKind) -> SuspensionView {
    let held = match kind {
        SuspensionKind::Approval => Held::Approval { definition: Digest::sha256(b"tool") },
        SuspensionKind::ClientTool => Held::ClientTool,
        SuspensionKind::External => Held::External,
        SuspensionKind::Question => Held::Question,
        SuspensionKind::InDoubt => Held::InDoubt { attempt: 1 },
        SuspensionKind::ChildRun => {
            Held::ChildRun { run: RunId::from("run_2"), grant_tokens: None, grant_descendants: 0 }
        }
    };
    let opened = OpenedSuspension {
        call_id: "call_1".into(),
        tool: "transfer".into(),
        suspension_id: "apr_1".into(),
        held,
        mode: ResumeMode::ReplayToolCall,
        arguments: None,
        question: None,
        schema: None,
        resume_state: None,
        asked_by: Vec::new(),
        by_the_tool: false,
        rule: None,
        let_through_by: None,
        expiry: None,
    };
    SuspensionView {
        tenant: Tenant::from("acme"),
        id: "apr_1".into(),
        run: "run_1".into(),
        thread: "thr_1".into(),
        agent: "assistant".into(),
        call: "call_1".into(),
        step: 1,
        kind,
        status: ApprovalStatus::Pending,
        answered: false,
        edited: None,
        opened: Some(Arc::new(opened)),
        answer_is_unreadable: false,
        opened_seq: 1,
        closed_seq: None,
        created_at: Timestamp(0),
        decided_at: None,
        decided_by: None,
        reason: None,
        note: None,
        path: Vec::new(),
    }
}

#[test]
fn d14_approve_answers_this_very_opening_with_what_was_said() {
    let digest = Digest::sha256(b"arguments");
    let approve: Approve = read(&json!({
        "arguments": {"amount": 4}, "expect_digest": digest.to_string(), "note": "fine", "apply_to_future": true,
    }));
    let decide = approve.into_decide(&held(SuspensionKind::Approval), "ana".into());
    assert_eq!(
        (decide.tenant.as_str(), decide.run.as_str(), decide.call.as_str()),
        ("acme", "run_1", "call_1")
    );
    assert_eq!((decide.suspension, decide.by.as_str()), (Some("apr_1".into()), "ana"));
    assert_eq!(
        decide.answer,
        EngineAnswer::Resume(Resumption {
            payload: Payload::Absent,
            arguments: Some(json!({"amount": 4})),
            expect_digest: Some(digest),
            mode: None,
            note: Some("fine".into()),
            apply_to_future: true,
        })
    );
    let plain: Approve = read(&json!({}));
    let decide = plain.into_decide(&held(SuspensionKind::Approval), "ana".into());
    assert_eq!(decide.answer, EngineAnswer::Resume(Resumption::default()));
}

#[test]
fn d15_reject_ends_the_run_unless_the_request_or_the_policy_says_otherwise() {
    let cancellation = |body: Value| {
        let reject: Reject = read(&body);
        match reject.into_decide(&held(SuspensionKind::Approval), "ana".into()).answer {
            EngineAnswer::Cancel(cancellation) => (cancellation.then, cancellation.then_by_default),
            EngineAnswer::Resume(other) => panic!("{other:?}"),
        }
    };
    let by_default = Some(OnReject::EndRun);
    assert_eq!(cancellation(json!({})), (None, by_default));
    assert_eq!(cancellation(json!({"then": "continue"})), (Some(OnReject::Continue), by_default));
    assert_eq!(cancellation(json!({"then": "end_run"})), (Some(OnReject::EndRun), by_default));
}

#[test]
fn approve_and_reject_are_only_for_approvals() {
    let approvals = Some(vec![SuspensionKind::Approval]);
    for kind in SuspensionKind::ALL {
        let approve = Approve::default().into_decide(&held(kind), "ana".into());
        let reject = Reject::default().into_decide(&held(kind), "ana".into());
        assert_eq!((&approve.kinds, &reject.kinds), (&approvals, &approvals), "{kind}");
    }
}

#[test]
fn a_decision_of_the_wrong_kind_says_how_to_answer_the_call() {
    for kind in SuspensionKind::ALL {
        let refused = ApiError::decision_refused(&Refusal::Forbidden(kind), &held(kind));
        assert_eq!((refused.code, &refused.details["kind"]), (Code::WrongKind, &json!(kind.as_str())));
        let other = SuspensionKind::ALL.into_iter().find(|other| *other != kind).unwrap();
        let replaced = ApiError::decision_refused(&Refusal::Forbidden(other), &held(kind));
        assert_eq!(replaced.code, Code::ApprovalNotPending, "{kind} was closed, and {other} is open");
    }
    let next_step = |kind| ApiError::decision_refused(&Refusal::Forbidden(kind), &held(kind)).message;
    assert!(next_step(SuspensionKind::Approval).contains("approve or reject it"));
    assert!(next_step(SuspensionKind::Question).contains("`result` to /answer"));
    assert!(next_step(SuspensionKind::InDoubt).contains("a `choice` or the `result` to /answer"));
}

fn answered(body: &Value) -> Result<(Vec<SuspensionKind>, EngineAnswer), ApiError> {
    let decide = read::<Answer>(body).into_decide(&held(SuspensionKind::Question), "ana".into())?;
    Ok((decide.kinds.expect("an answer names the kinds that it fits"), decide.answer))
}

#[test]
fn an_answer_names_the_kinds_that_it_fits() {
    let resume = |payload| EngineAnswer::Resume(Resumption { payload, ..Resumption::default() });
    let (question, in_doubt) = (SuspensionKind::Question, SuspensionKind::InDoubt);
    assert_eq!(
        answered(&json!({"result": "blue"})),
        Ok((vec![question, in_doubt], resume(Payload::Result(Arc::new(json!("blue"))))))
    );
    assert_eq!(answered(&json!({"choice": "retry"})), Ok((vec![in_doubt], resume(Payload::Absent))));
    assert_eq!(
        answered(&json!({"choice": "give_up"})),
        Ok((vec![in_doubt], EngineAnswer::Cancel(Cancellation::default())))
    );
    for body in [json!({}), json!({"result": 1, "choice": "retry"})] {
        assert_eq!(answered(&body).unwrap_err().code, Code::BadRequest, "{body}");
    }
}

fn entry(entry: &Value) -> Result<EngineAnswer, DecisionResult> {
    let tenant = Tenant::from("acme");
    let decide = DecisionEntry::read(entry.clone())?.into_decide(&tenant, &"run_1".into(), &"ana".into())?;
    assert_eq!((decide.tenant, decide.run.as_str(), decide.suspension), (tenant, "run_1", None));
    Ok(decide.answer)
}

#[test]
fn each_entry_is_read_separately_and_a_bad_one_is_invalid() {
    let list: Decisions = read(&json!({"decisions": [
        {"call_id": "call_1", "action": "resume"},
        {"call_id": "call_2", "action": "resume", "resutl": 1, "decision_id": "d-2"},
        {"call_id": "call_3"},
        {"action": "resume"},
        ["call_5", "resume"],
        null,
        {"call_id": "call_7", "action": "approve"},
        {"call_id": "call_8", "action": "resume", "mode": null},
        {"call_id": "call_9", "action": {"resume": null}},
    ]}));
    assert_eq!(list.decisions.len(), 9);
    assert_eq!(entry(&list.decisions[0]), Ok(EngineAnswer::Resume(Resumption::default())));
    for (index, bad) in list.decisions.iter().enumerate().skip(1) {
        let result = entry(bad).unwrap_err();
        assert_eq!(result.outcome, Outcome::Invalid, "entry {index}");
    }
    let second = entry(&list.decisions[1]).unwrap_err();
    assert_eq!((second.call_id.as_str(), second.decision_id.as_deref()), ("call_2", Some("d-2")));
    assert!(second.message.contains("resutl"), "{}", second.message);
}

#[test]
fn an_entry_says_one_thing() {
    assert_eq!(
        entry(&json!({"call_id": "c", "action": "resume", "error": "no paper"})),
        Ok(EngineAnswer::Resume(Resumption {
            payload: Payload::Error("no paper".into()),
            ..Resumption::default()
        }))
    );
    assert_eq!(
        entry(&json!({"call_id": "c", "action": "resume", "result": null, "mode": "pass_decision_to_tool"})),
        Ok(EngineAnswer::Resume(Resumption {
            payload: Payload::Result(Arc::new(Value::Null)),
            mode: Some(ResumeMode::PassDecisionToTool),
            ..Resumption::default()
        }))
    );
    assert_eq!(
        entry(&json!({"call_id": "c", "action": "cancel", "reason": "too much"})),
        Ok(EngineAnswer::Cancel(Cancellation { reason: Some("too much".into()), ..Cancellation::default() }))
    );
    let failing =
        |chars: usize| entry(&json!({"call_id": "c", "action": "resume", "error": "é".repeat(chars)}));
    assert!(failing(65_536).is_ok(), "a front end reports a long trace");
    assert_eq!(failing(65_537).unwrap_err().outcome, Outcome::Invalid);
    for bad in [
        json!({"call_id": "c", "action": "resume", "result": 1, "error": "x"}),
        json!({"call_id": "c", "action": "cancel", "result": 1}),
        json!({"call_id": "c", "action": "cancel", "arguments": {}}),
        json!({"call_id": "c", "action": "cancel", "mode": "replay_tool_call"}),
        json!({"call_id": "c", "action": "cancel", "error": "x"}),
    ] {
        assert_eq!(entry(&bad).unwrap_err().outcome, Outcome::Invalid, "{bad}");
    }
}

#[test]
fn a_list_has_at_most_a_thousand_entries() {
    let list = |count: usize| json!({"decisions": vec![json!({}); count]}).to_string();
    let json = Some("application/json");
    assert_eq!(
        parse_strict::<Decisions>(json, list(1_000).as_bytes(), false).unwrap().decisions.len(),
        1_000
    );
    assert_eq!(
        parse_strict::<Decisions>(json, list(1_001).as_bytes(), false).unwrap_err().details["field"],
        "decisions"
    );
}

#[test]
fn every_verdict_has_its_outcome() {
    let outcome = |verdict| DecisionResult::from_verdict("c", None, &verdict).outcome;
    assert_eq!(outcome(Verdict::Accepted), Outcome::Applied);
    assert_eq!(outcome(Verdict::AlreadyApplied), Outcome::AlreadyApplied);
    assert_eq!(outcome(Verdict::ToolChanged), Outcome::Conflict);
    assert_eq!(outcome(Verdict::Refused(Refusal::Invalid("x".into()))), Outcome::Invalid);
    for refusal in [
        Refusal::IdUsed,
        Refusal::NotHeld,
        Refusal::Answered,
        Refusal::Expired,
        Refusal::RunOver,
        Refusal::DigestMismatch,
        Refusal::SuspensionNotNamed,
    ] {
        assert_eq!(outcome(Verdict::Refused(refusal)), Outcome::Conflict);
    }
}

#[test]
fn d25_a_second_decision_names_who_decided_first() {
    let mut decided = held(SuspensionKind::Approval);
    decided.status = ApprovalStatus::Rejected;
    decided.decided_by = Some("ana".into());
    for refusal in [Refusal::NotHeld, Refusal::Answered, Refusal::Expired, Refusal::RunOver] {
        let error = ApiError::decision_refused(&refusal, &decided);
        assert_eq!(error.code, Code::ApprovalNotPending);
        assert_eq!(
            (&error.details["status"], &error.details["decided_by"]),
            (&json!("rejected"), &json!("ana"))
        );
        assert!(error.message.contains("rejected by ana"), "{}", error.message);
    }
    let code = |refusal| ApiError::decision_refused(&refusal, &decided).code;
    assert_eq!(code(Refusal::DigestMismatch), Code::DigestMismatch);
    assert_eq!(code(Refusal::Invalid("5 is not a text".into())), Code::InvalidArguments);
    assert_eq!(code(Refusal::IdUsed), Code::IdempotencyConflict);
    let changed = ApiError::tool_changed(&decided, Some(&"apr_2".into()));
    assert_eq!((changed.code, &changed.details["approval_id"]), (Code::ToolChanged, &json!("apr_2")));
    assert!(changed.message.contains("the call is held again"), "{}", changed.message);
    let not_again = ApiError::tool_changed(&decided, None);
    assert!(not_again.details.get("approval_id").is_none(), "{:?}", not_again.details);
    assert!(!not_again.message.contains("new approval"), "{}", not_again.message);
    let run = format!("GET /v1/runs/{} shows in `pending`", decided.run);
    assert!(not_again.message.contains(&run), "{}", not_again.message);
}
