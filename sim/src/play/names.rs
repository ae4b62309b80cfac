//! Short names of the machine's values. A new value there breaks the build here.

use machine::event::{CallErrorCode, CancelReason};
use machine::inbox::{Refusal, Verdict};
use machine::phase::Phase;
use machine::policy::{
    ApprovalScope, Continuation, DecisionTiming, Execution, OnBlock, OnBusy, OnReject, Policy, StepEnd,
    WhileWaiting,
};
use machine::revision::StopCondition;
use machine::status::{CallStatus, WaitingOn};
use machine::suspension::ResumeMode;
use machine::termination::{Cancelled, ErrorCode, Termination};
use machine::thread::{Admission, Busy};
use machine::{InputOutcome, Rejection};

use crate::judge::ledger::Announced;

/// Every name that [`Fact::name`](machine::event::Fact::name) can return.
pub const FACTS: [&str; 27] = [
    "run.queued",
    "run.started",
    "run.waiting",
    "run.resumed",
    "run.interrupting",
    "run.ending",
    "run.ended",
    "run.recovered",
    "step.started",
    "step.ended",
    "message.added",
    "model.retrying",
    "phase.answered",
    "state.changed",
    "tool.requested",
    "tool.approval_requested",
    "tool.approval_voided",
    "tool.approved",
    "tool.denied",
    "tool.suspended",
    "tool.resumed",
    "tool.execution_started",
    "tool.execution_succeeded",
    "tool.execution_failed",
    "tool.cancelled",
    "child.started",
    "child.ended",
];

#[must_use]
pub const fn call_status(status: CallStatus) -> &'static str {
    match status {
        CallStatus::New => "New",
        CallStatus::Running => "Running",
        CallStatus::Suspended => "Suspended",
        CallStatus::Resuming => "Resuming",
        CallStatus::Succeeded => "Succeeded",
        CallStatus::Failed => "Failed",
        CallStatus::Cancelled => "Cancelled",
    }
}

#[must_use]
pub const fn announced(status: &Announced) -> &'static str {
    match status {
        Announced::Queued => "Queued",
        Announced::Running => "Running",
        Announced::Waiting(WaitingOn::Person) => "Waiting(person)",
        Announced::Waiting(WaitingOn::Tool) => "Waiting(tool)",
        Announced::Interrupting => "Interrupting",
        Announced::Done(_) => "Done",
    }
}

#[must_use]
pub const fn rejection(rejection: &Rejection) -> &'static str {
    match rejection {
        Rejection::RunEnded(_) => "RunEnded",
        Rejection::RunEnding => "RunEnding",
        Rejection::AlreadyStarted => "AlreadyStarted",
        Rejection::NotStarted => "NotStarted",
        Rejection::UnknownCall(_) => "UnknownCall",
        Rejection::WrongStep { .. } => "WrongStep",
        Rejection::StaleAttempt { .. } => "StaleAttempt",
        Rejection::StaleModelAttempt { .. } => "StaleModelAttempt",
        Rejection::NotAtGate { .. } => "NotAtGate",
        Rejection::NotAsked(_) => "NotAsked",
        Rejection::NotSuspended { .. } => "NotSuspended",
        Rejection::WrongSuspension { .. } => "WrongSuspension",
        Rejection::Expired { .. } => "Expired",
        Rejection::Invalid { .. } => "Invalid",
        Rejection::DigestMismatch { .. } => "DigestMismatch",
        Rejection::NothingDue => "NothingDue",
        Rejection::InternalError(_) => "Broken",
    }
}

pub const REJECTIONS: [&str; 17] = [
    "RunEnded",
    "RunEnding",
    "AlreadyStarted",
    "NotStarted",
    "UnknownCall",
    "WrongStep",
    "StaleAttempt",
    "StaleModelAttempt",
    "NotAtGate",
    "NotAsked",
    "NotSuspended",
    "WrongSuspension",
    "Expired",
    "Invalid",
    "DigestMismatch",
    "NothingDue",
    "Broken",
];

#[must_use]
pub const fn answer(answer: &InputOutcome) -> &'static str {
    match answer {
        InputOutcome::Done => "Done",
        InputOutcome::Duplicate => "Duplicate",
        InputOutcome::ToolChanged { .. } => "ToolChanged",
    }
}

#[must_use]
pub const fn verdict(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Accepted => "Accepted",
        Verdict::ToolChanged => "ToolChanged",
        Verdict::AlreadyApplied => "AlreadyApplied",
        Verdict::Refused(Refusal::IdUsed) => "Refused(IdUsed)",
        Verdict::Refused(Refusal::NotHeld) => "Refused(NotHeld)",
        Verdict::Refused(Refusal::Answered) => "Refused(Answered)",
        Verdict::Refused(Refusal::Expired) => "Refused(Expired)",
        Verdict::Refused(Refusal::RunOver) => "Refused(RunOver)",
        Verdict::Refused(Refusal::DigestMismatch) => "Refused(DigestMismatch)",
        Verdict::Refused(Refusal::SuspensionNotNamed) => "Refused(SuspensionNotNamed)",
        Verdict::Refused(Refusal::UnknownCall) => "Refused(UnknownCall)",
        Verdict::Refused(Refusal::Forbidden(_)) => "Refused(Forbidden)",
        Verdict::Refused(Refusal::Invalid(_)) => "Refused(Invalid)",
    }
}

pub const VERDICTS: [&str; 10] = [
    "Accepted",
    "ToolChanged",
    "AlreadyApplied",
    "Refused(IdUsed)",
    "Refused(NotHeld)",
    "Refused(Answered)",
    "Refused(Expired)",
    "Refused(RunOver)",
    "Refused(DigestMismatch)",
    "Refused(Invalid)",
];

#[must_use]
pub const fn admission(admission: &Admission) -> &'static str {
    match admission {
        Admission::Hold => "Hold",
        Admission::Enqueue => "Enqueue",
        Admission::Supersede => "Supersede",
        Admission::Refuse(Busy::ActiveRun(_)) => "Refuse(ActiveRun)",
        Admission::Refuse(Busy::QueueFull { .. }) => "Refuse(QueueFull)",
        Admission::Refuse(Busy::InDoubt(_)) => "Refuse(InDoubt)",
    }
}

#[must_use]
pub const fn resume_mode(mode: ResumeMode) -> &'static str {
    match mode {
        ResumeMode::ReplayToolCall => "replay_tool_call",
        ResumeMode::UseDecisionAsToolResult => "use_decision_as_tool_result",
        ResumeMode::PassDecisionToTool => "pass_decision_to_tool",
    }
}

#[must_use]
pub const fn call_error(code: CallErrorCode) -> &'static str {
    match code {
        CallErrorCode::ToolError => "ToolError",
        CallErrorCode::BlockedByPlugin => "BlockedByPlugin",
        CallErrorCode::BlockedByPolicy => "BlockedByPolicy",
        CallErrorCode::DeniedByRule => "DeniedByRule",
        CallErrorCode::UnknownTool => "UnknownTool",
        CallErrorCode::OutOfScope => "OutOfScope",
        CallErrorCode::ToolRemoved => "ToolRemoved",
        CallErrorCode::BadArguments => "BadArguments",
        CallErrorCode::ArgumentsChanged => "ArgumentsChanged",
        CallErrorCode::GateFailed => "GateFailed",
        CallErrorCode::AskedTooOften => "AskedTooOften",
        CallErrorCode::NotSent => "NotSent",
        CallErrorCode::NoAnswer => "NoAnswer",
        CallErrorCode::TooDeep => "TooDeep",
        CallErrorCode::TooManyChildren => "TooManyChildren",
        CallErrorCode::TooManyDescendants => "TooManyDescendants",
        CallErrorCode::ChildFailed => "ChildFailed",
        CallErrorCode::StateFull => "StateFull",
        CallErrorCode::PluginError => "PluginError",
        CallErrorCode::BudgetSpent => "BudgetSpent",
    }
}

pub const CALL_ERRORS: [&str; 20] = [
    "ToolError",
    "BlockedByPlugin",
    "BlockedByPolicy",
    "DeniedByRule",
    "UnknownTool",
    "OutOfScope",
    "ToolRemoved",
    "BadArguments",
    "ArgumentsChanged",
    "GateFailed",
    "AskedTooOften",
    "NotSent",
    "NoAnswer",
    "TooDeep",
    "TooManyChildren",
    "TooManyDescendants",
    "ChildFailed",
    "StateFull",
    "PluginError",
    "BudgetSpent",
];

#[must_use]
pub const fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::RunStart => "RunStart",
        Phase::StepStart => "StepStart",
        Phase::BeforeInference => "BeforeInference",
        Phase::AfterInference => "AfterInference",
        Phase::BeforeToolExecute => "BeforeToolExecute",
        Phase::AfterToolExecute => "AfterToolExecute",
        Phase::StepEnd => "StepEnd",
        Phase::RunEnd => "RunEnd",
    }
}

#[must_use]
pub const fn cancel_reason(reason: CancelReason) -> &'static str {
    match reason {
        CancelReason::Decided => "Decided",
        CancelReason::GivenUp => "GivenUp",
        CancelReason::Expired => "Expired",
        CancelReason::RunEnded => "RunEnded",
        CancelReason::Interrupted => "Interrupted",
        CancelReason::Superseded => "Superseded",
        CancelReason::ChildInterrupted => "ChildInterrupted",
    }
}

pub const CANCEL_REASONS: [&str; 7] =
    ["Decided", "GivenUp", "Expired", "RunEnded", "Interrupted", "Superseded", "ChildInterrupted"];

#[must_use]
pub const fn termination(termination: &Termination) -> &'static str {
    match termination {
        Termination::NaturalEnd => "NaturalEnd",
        Termination::BehaviorRequested => "BehaviorRequested",
        Termination::Stopped(stopped) => stopped.code.as_str(),
        Termination::Cancelled(Cancelled::Interrupted) => "Cancelled(Interrupted)",
        Termination::Cancelled(Cancelled::Superseded) => "Cancelled(Superseded)",
        Termination::Cancelled(Cancelled::ByParent) => "Cancelled(ByParent)",
        Termination::Blocked(_) => "Blocked",
        Termination::Error(error) => match error.code {
            ErrorCode::Model => "Error(Model)",
            ErrorCode::Hook => "Error(Hook)",
            ErrorCode::Output => "Error(Output)",
            ErrorCode::Unknown => "Error(Unknown)",
        },
    }
}

#[must_use]
pub const fn stop_condition(condition: &StopCondition) -> &'static str {
    match condition {
        StopCondition::MaxRounds { .. } => "MaxRounds",
        StopCondition::Timeout { .. } => "Timeout",
        StopCondition::TokenBudget { .. } => "TokenBudget",
        StopCondition::ConsecutiveErrors { .. } => "ConsecutiveErrors",
        StopCondition::StopOnTool { .. } => "StopOnTool",
        StopCondition::ContentMatch { .. } => "ContentMatch",
        StopCondition::LoopDetection { .. } => "LoopDetection",
    }
}

/// Field and value of every policy field.
#[must_use]
pub const fn policy(policy: &Policy) -> [(&'static str, &'static str); 9] {
    let continuation = match policy.continuation {
        Continuation::AllSettled => "all_settled",
        Continuation::Eager => "eager",
    };
    let on_reject = match policy.on_reject {
        None => "unset",
        Some(OnReject::Continue) => "continue",
        Some(OnReject::EndRun) => "end_run",
    };
    let on_block = match policy.on_block {
        OnBlock::FailCall => "fail_call",
        OnBlock::EndRun => "end_run",
    };
    let step_end = match policy.step_end {
        StepEnd::AfterTools => "after_tools",
        StepEnd::AfterInference => "after_inference",
    };
    let decisions = match policy.decisions {
        DecisionTiming::Immediate => "immediate",
        DecisionTiming::AtBoundary => "at_boundary",
    };
    let execution = match policy.execution {
        Execution::Parallel => "parallel",
        Execution::Sequential => "sequential",
    };
    let approval = match policy.approval {
        ApprovalScope::Never => "never",
        ApprovalScope::Policy => "policy",
        ApprovalScope::WriteTools => "write_tools",
        ApprovalScope::AllTools => "all_tools",
    };
    let while_waiting = match policy.while_waiting {
        WhileWaiting::Reject => "reject",
        WhileWaiting::Supersede => "supersede",
        WhileWaiting::Enqueue => "enqueue",
    };
    let on_busy = match policy.on_busy {
        OnBusy::Reject => "reject",
        OnBusy::Enqueue => "enqueue",
        OnBusy::Interrupt => "interrupt",
    };
    [
        ("continuation", continuation),
        ("on_reject", on_reject),
        ("on_block", on_block),
        ("step_end", step_end),
        ("decisions", decisions),
        ("execution", execution),
        ("approval", approval),
        ("while_waiting", while_waiting),
        ("on_busy", on_busy),
    ]
}

pub const POLICY_VALUES: [(&str, &[&str]); 9] = [
    ("continuation", &["all_settled", "eager"]),
    ("on_reject", &["unset", "continue", "end_run"]),
    ("on_block", &["fail_call", "end_run"]),
    ("step_end", &["after_tools", "after_inference"]),
    ("decisions", &["immediate", "at_boundary"]),
    ("execution", &["parallel", "sequential"]),
    ("approval", &["never", "policy", "write_tools", "all_tools"]),
    ("while_waiting", &["reject", "supersede", "enqueue"]),
    ("on_busy", &["reject", "enqueue", "interrupt"]),
];
