//! What a message may ask of a run's policy, and what it meets on a thread that is busy.

use machine::id::{Principal, RunId};
use machine::policy::{
    ApprovalScope, Continuation, DecisionTiming, Execution, LooseningRefused, OnBlock, OnBusy, OnReject,
    Policy, PolicyRequest, ResolvedPolicy, StepEnd, StrictField, WhileWaiting, resolve,
};
use machine::thread::{
    Admission, Busy, FrontState, IfBusy, QUEUE_MAX, QUEUE_WITH_SUPERSEDING_MAX, RunActivity, ThreadState,
    UnendedRun, admit, promote, to_supersede,
};
use serde_json::json;

const SCOPES: [ApprovalScope; 4] =
    [ApprovalScope::Never, ApprovalScope::Policy, ApprovalScope::WriteTools, ApprovalScope::AllTools];

#[test]
fn a_request_may_tighten_and_only_an_approver_may_loosen_who_is_then_named() {
    let ana = Principal::from("ana");
    for (from, agent_scope) in SCOPES.into_iter().enumerate() {
        for (to, wish) in SCOPES.into_iter().enumerate() {
            let agent = Policy { approval: agent_scope, ..Policy::default() };
            let request = PolicyRequest { approval: Some(wish), ..PolicyRequest::default() };
            let policy = Policy { approval: wish, ..agent };
            let loosened_by = (to < from).then(|| ana.clone());
            let resolved = Ok(ResolvedPolicy { policy, loosened_by });
            assert_eq!(resolve(&agent, &request, &ana, true), resolved);
            let refused = Err(LooseningRefused { field: StrictField::Approval });
            assert_eq!(resolve(&agent, &request, &ana, false), if to < from { refused } else { resolved });
        }
    }
}

/// One field of a request against one of an agent, with `run` alone and with `approve`.
fn resolved(
    agent: Policy,
    request: PolicyRequest,
) -> (Result<ResolvedPolicy, LooseningRefused>, ResolvedPolicy) {
    let ana = Principal::from("ana");
    let by_an_approver = resolve(&agent, &request, &ana, true).unwrap();
    (resolve(&agent, &request, &ana, false), by_an_approver)
}

#[test]
fn a_rejection_that_ends_the_run_may_be_asked_for_and_only_an_approver_may_take_it_back() {
    use OnReject::{Continue, EndRun};
    // Without a word of the agent a rejection ends the run, so `continue` is the looser side there too.
    let table = [
        (None, EndRun, false),
        (None, Continue, true),
        (Some(Continue), Continue, false),
        (Some(Continue), EndRun, false),
        (Some(EndRun), EndRun, false),
        (Some(EndRun), Continue, true),
    ];
    for (own, wish, is_looser) in table {
        let agent = Policy { on_reject: own, ..Policy::default() };
        let request = PolicyRequest { on_reject: Some(wish), ..PolicyRequest::default() };
        let (by_anyone, by_an_approver) = resolved(agent, request);
        let loosened_by = is_looser.then(|| Principal::from("ana"));
        let expected = ResolvedPolicy { policy: Policy { on_reject: Some(wish), ..agent }, loosened_by };
        assert_eq!(by_an_approver, expected, "{own:?} {wish:?}");
        let refused = Err(LooseningRefused { field: StrictField::OnReject });
        assert_eq!(by_anyone, if is_looser { refused } else { Ok(expected) }, "{own:?} {wish:?}");
    }
}

#[test]
fn a_block_that_ends_the_run_may_be_asked_for_and_only_an_approver_may_take_it_back() {
    for (own, wish) in [
        (OnBlock::FailCall, OnBlock::FailCall),
        (OnBlock::FailCall, OnBlock::EndRun),
        (OnBlock::EndRun, OnBlock::EndRun),
        (OnBlock::EndRun, OnBlock::FailCall),
    ] {
        let agent = Policy { on_block: own, ..Policy::default() };
        let request = PolicyRequest { on_block: Some(wish), ..PolicyRequest::default() };
        let (by_anyone, by_an_approver) = resolved(agent, request);
        let is_looser = (own, wish) == (OnBlock::EndRun, OnBlock::FailCall);
        let loosened_by = is_looser.then(|| Principal::from("ana"));
        let expected = ResolvedPolicy { policy: Policy { on_block: wish, ..agent }, loosened_by };
        assert_eq!(by_an_approver, expected, "{own:?} {wish:?}");
        let refused = Err(LooseningRefused { field: StrictField::OnBlock });
        assert_eq!(by_anyone, if is_looser { refused } else { Ok(expected) }, "{own:?} {wish:?}");
    }
}

#[test]
fn every_field_of_a_request_counts_and_absent_ones_keep_the_agents_value() {
    let agent = Policy {
        continuation: Continuation::Eager,
        on_reject: Some(OnReject::Continue),
        on_block: OnBlock::FailCall,
        step_end: StepEnd::AfterInference,
        decisions: DecisionTiming::AtBoundary,
        execution: Execution::Sequential,
        approval: ApprovalScope::Policy,
        while_waiting: WhileWaiting::Enqueue,
        on_busy: OnBusy::Interrupt,
        max_result_chars: 5_000,
        descendants_max: 50,
    };
    let ana = Principal::from("ana");
    let nothing = resolve(&agent, &PolicyRequest::default(), &ana, false).unwrap();
    assert_eq!(nothing, ResolvedPolicy { policy: agent, loosened_by: None });
    let request = PolicyRequest {
        continuation: Some(Continuation::AllSettled),
        on_reject: Some(OnReject::EndRun),
        on_block: Some(OnBlock::EndRun),
        step_end: Some(StepEnd::AfterTools),
        decisions: Some(DecisionTiming::Immediate),
        execution: Some(Execution::Parallel),
        approval: Some(ApprovalScope::AllTools),
        while_waiting: Some(WhileWaiting::Supersede),
        on_busy: Some(OnBusy::Enqueue),
        max_result_chars: Some(4_000),
        descendants_max: Some(40),
    };
    let expected = Policy {
        continuation: Continuation::AllSettled,
        on_reject: Some(OnReject::EndRun),
        on_block: OnBlock::EndRun,
        step_end: StepEnd::AfterTools,
        decisions: DecisionTiming::Immediate,
        execution: Execution::Parallel,
        approval: ApprovalScope::AllTools,
        while_waiting: WhileWaiting::Supersede,
        on_busy: OnBusy::Enqueue,
        max_result_chars: 4_000,
        descendants_max: 40,
    };
    let resolved = ResolvedPolicy { policy: expected, loosened_by: None };
    assert_eq!(resolve(&agent, &request, &ana, false), Ok(resolved));
}

#[test]
fn a_request_may_lower_a_limit_and_never_raise_it() {
    let agent = Policy { max_result_chars: 5_000, ..Policy::default() };
    for (asked, expected) in [(1, 1), (5_000, 5_000), (5_001, 5_000)] {
        let request = PolicyRequest { max_result_chars: Some(asked), ..PolicyRequest::default() };
        for may_approve in [false, true] {
            let resolved = resolve(&agent, &request, &Principal::from("ana"), may_approve).unwrap();
            let policy = Policy { max_result_chars: expected, ..agent };
            assert_eq!(resolved, ResolvedPolicy { policy, loosened_by: None });
        }
    }
    let request = PolicyRequest { descendants_max: Some(101), ..PolicyRequest::default() };
    let resolved = resolve(&agent, &request, &Principal::from("ana"), true).unwrap();
    assert_eq!(resolved, ResolvedPolicy { policy: agent, loosened_by: None });
}

#[test]
fn the_defaults_are_the_first_values_of_the_policy_table() {
    assert_eq!(
        serde_json::to_value(Policy { on_reject: Some(OnReject::default()), ..Policy::default() }).unwrap(),
        json!({
            "continuation": "all_settled",
            "on_reject": "continue",
            "on_block": "fail_call",
            "step_end": "after_tools",
            "decisions": "immediate",
            "execution": "parallel",
            "approval": "policy",
            "while_waiting": "reject",
            "on_busy": "reject",
            "max_result_chars": 100_000,
            "descendants_max": 100
        })
    );
    assert!(serde_json::from_value::<PolicyRequest>(json!({"on_buzy": "reject"})).is_err());
}

fn busy(front_is: FrontState, in_doubt: bool, queued: usize) -> ThreadState {
    ThreadState::Busy { front: RunId::from("run_1"), front_is, in_doubt, queued }
}

fn refused() -> Admission {
    Admission::Refuse(Busy::ActiveRun("run_1".into()))
}

/// What the agent's policy alone makes of a message.
fn by_policy(thread: &ThreadState, on_busy: OnBusy, while_waiting: WhileWaiting) -> Admission {
    let agent = Policy { on_busy, while_waiting, ..Policy::default() };
    admit(thread, IfBusy::resolve(None, &PolicyRequest::default(), &agent))
}

#[test]
fn a_free_thread_is_held_at_once() {
    for asked in [None, Some(OnBusy::Reject), Some(OnBusy::Enqueue), Some(OnBusy::Interrupt)] {
        let admission =
            admit(&ThreadState::Free, IfBusy::resolve(asked, &PolicyRequest::default(), &Policy::default()));
        assert_eq!(admission, Admission::Hold);
    }
}

#[test]
fn on_busy_decides_over_a_run_that_executes_or_is_queued() {
    for front in [FrontState::Executing, FrontState::Queued] {
        let thread = busy(front, false, 0);
        for (on_busy, expected) in [
            (OnBusy::Reject, refused()),
            (OnBusy::Enqueue, Admission::Enqueue),
            (OnBusy::Interrupt, Admission::Supersede),
        ] {
            for other in [WhileWaiting::Reject, WhileWaiting::Supersede, WhileWaiting::Enqueue] {
                assert_eq!(by_policy(&thread, on_busy, other), expected, "{front:?} {on_busy:?}");
            }
        }
    }
}

#[test]
fn while_waiting_decides_over_a_run_that_only_waits() {
    let thread = busy(FrontState::Waiting, false, 0);
    for (while_waiting, expected) in [
        (WhileWaiting::Reject, refused()),
        (WhileWaiting::Supersede, Admission::Supersede),
        (WhileWaiting::Enqueue, Admission::Enqueue),
    ] {
        for other in [OnBusy::Reject, OnBusy::Enqueue, OnBusy::Interrupt] {
            assert_eq!(by_policy(&thread, other, while_waiting), expected, "{while_waiting:?}");
        }
    }
}

#[test]
fn the_messages_own_word_comes_before_its_policy_and_that_before_the_agents() {
    let wishes = [
        (OnBusy::Reject, refused()),
        (OnBusy::Enqueue, Admission::Enqueue),
        (OnBusy::Interrupt, Admission::Supersede),
    ];
    for front in [FrontState::Executing, FrontState::Queued, FrontState::Waiting] {
        let thread = busy(front, false, 0);
        for (asked, expected) in wishes.clone() {
            let request = PolicyRequest {
                on_busy: Some(OnBusy::Reject),
                while_waiting: Some(WhileWaiting::Reject),
                ..PolicyRequest::default()
            };
            let agent = Policy {
                on_busy: OnBusy::Enqueue,
                while_waiting: WhileWaiting::Enqueue,
                ..Policy::default()
            };
            assert_eq!(admit(&thread, IfBusy::resolve(Some(asked), &request, &agent)), expected);
            assert_eq!(admit(&thread, IfBusy::resolve(None, &request, &agent)), refused());
            assert_eq!(
                admit(&thread, IfBusy::resolve(None, &PolicyRequest::default(), &agent)),
                Admission::Enqueue
            );
        }
    }
}

#[test]
fn a_run_that_waits_for_one_that_does_not_wait_counts_as_executing() {
    use FrontState::{Executing, Queued, Waiting};
    let activity = |state| RunActivity { state, in_doubt: false };
    for (front, below, expected) in [
        (Waiting, vec![], Waiting),
        (Waiting, vec![Waiting, Waiting], Waiting),
        (Waiting, vec![Waiting, Executing], Executing),
        (Waiting, vec![Queued, Waiting], Executing),
        (Executing, vec![Waiting], Executing),
        (Queued, vec![], Queued),
    ] {
        let seen = activity(front).with_descendants(below.iter().copied().map(activity));
        assert_eq!(seen, activity(expected), "{front:?} {below:?}");
    }
}

#[test]
fn a_doubt_of_a_descendant_counts_as_the_runs_own() {
    let activity = |in_doubt| RunActivity { state: FrontState::Waiting, in_doubt };
    for (front, below, expected) in [
        (false, vec![], false),
        (false, vec![false], false),
        (false, vec![false, true, false], true),
        (true, vec![false], true),
    ] {
        let seen = activity(front).with_descendants(below.iter().copied().map(activity));
        assert_eq!(seen, activity(expected), "{front} {below:?}");
    }
}

#[test]
fn a_run_in_doubt_is_not_superseded() {
    let doubted = Admission::Refuse(Busy::InDoubt("run_1".into()));
    for front in [FrontState::Executing, FrontState::Waiting] {
        let thread = busy(front, true, 0);
        assert_eq!(by_policy(&thread, OnBusy::Interrupt, WhileWaiting::Supersede), doubted);
        assert_eq!(by_policy(&thread, OnBusy::Enqueue, WhileWaiting::Enqueue), Admission::Enqueue);
        assert_eq!(by_policy(&thread, OnBusy::Reject, WhileWaiting::Reject), refused());
    }
}

#[test]
fn the_queue_is_bounded_and_as_many_superseding_runs_fit_again() {
    for front in [FrontState::Executing, FrontState::Queued, FrontState::Waiting] {
        let enqueue = |queued| by_policy(&busy(front, false, queued), OnBusy::Enqueue, WhileWaiting::Enqueue);
        assert_eq!(enqueue(QUEUE_MAX - 1), Admission::Enqueue);
        assert_eq!(enqueue(QUEUE_MAX), Admission::Refuse(Busy::QueueFull { max: 100 }));
        let take_place =
            |queued| by_policy(&busy(front, false, queued), OnBusy::Interrupt, WhileWaiting::Supersede);
        assert_eq!(take_place(QUEUE_WITH_SUPERSEDING_MAX - 1), Admission::Supersede);
        assert_eq!(take_place(QUEUE_WITH_SUPERSEDING_MAX), Admission::Refuse(Busy::QueueFull { max: 200 }));
    }
    assert_eq!((QUEUE_MAX, QUEUE_WITH_SUPERSEDING_MAX), (100, 200));
}

/// Each with whether an interrupt was accepted for it.
fn line<'r>(runs: &'r [(RunId, bool)]) -> impl Iterator<Item = UnendedRun<'r>> {
    runs.iter().map(|(run, interrupted)| UnendedRun { run, interrupted: *interrupted })
}

#[test]
fn a_superseding_message_interrupts_every_unended_run_once_queued_ones_included() {
    let runs = [("run_1", true), ("run_2", false), ("run_3", true), ("run_4", false)];
    let runs = runs.map(|(run, interrupted)| (RunId::from(run), interrupted));
    let superseded: Vec<&str> = to_supersede(line(&runs)).map(RunId::as_str).collect();
    assert_eq!(superseded, ["run_2", "run_4"]);
    assert_eq!(to_supersede(line(&[])).count(), 0);
}

#[test]
fn the_first_in_line_that_is_not_interrupted_holds_the_thread_next() {
    for (runs, expected) in [
        (&[][..], None),
        (&[("run_2", false), ("run_3", false)], Some("run_2")),
        (&[("run_2", true), ("run_3", false), ("run_4", false)], Some("run_3")),
        // A run that lines up later needs a holder before it.
        (&[("run_2", true), ("run_3", true)], Some("run_2")),
    ] {
        let runs: Vec<_> = runs.iter().map(|(run, ends)| (RunId::from(*run), *ends)).collect();
        assert_eq!(promote(line(&runs)).map(RunId::as_str), expected, "{runs:?}");
    }
}

#[test]
fn a_message_that_a_busy_thread_refuses_is_answered_with_the_reason() {
    for (busy, text) in [
        (
            Busy::ActiveRun(RunId::from("run_7")),
            "run run_7 of this thread has not ended; wait for it, interrupt it, or enqueue",
        ),
        (Busy::QueueFull { max: 100 }, "100 runs are queued on this thread"),
        (
            Busy::InDoubt(RunId::from("run_7")),
            "a call of run run_7, or of a run that works for it, is in doubt; a person has to settle it first",
        ),
    ] {
        assert_eq!(busy.to_string(), text);
    }
}
