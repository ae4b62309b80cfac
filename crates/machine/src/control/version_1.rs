//! The control layout of fold version 1, and its conversion to the current one. Runs that ended under version 1 keep it
//! permanently, so this module stays as long as such stores are read.

use alloc::vec::Vec;
use serde::Deserialize;

use super::{Control, Inferring, Stage};
use crate::call::{Approved, Attempt, Call, CallState, Reported};
use crate::event::{Parent, Usage};
use crate::id::{AgentName, CallId, Digest, MessageId, Principal, RunId, SuspensionId, ThreadId, ToolName};
use crate::output::JudgedOutput;
use crate::phase::PhaseSet;
use crate::policy::{
    ApprovalScope, Continuation, DecisionTiming, Execution, OnBlock, OnBusy, OnReject, Policy, StepEnd,
    WhileWaiting,
};
use crate::recently_settled::RecentlySettled;
use crate::rules::Asker;
use crate::status::RunStatus;
use crate::suspension::{Expiry, Held, ResumeMode, Suspension};
use crate::termination::Termination;
use crate::time::Timestamp;
use crate::tool::EffectClass;

#[derive(Deserialize)]
pub(super) struct ControlV1 {
    run: RunId,
    thread: ThreadId,
    agent: AgentName,
    revision: Digest,
    parent: Option<ParentV1>,
    policy: PolicyV1,
    loosened_by: Option<Principal>,
    user_message: Option<MessageId>,
    after: Option<MessageId>,
    seq: u64,
    at: Timestamp,
    status: RunStatus,
    stage: StageV1,
    step: u32,
    step_open: bool,
    matched: Vec<u16>,
    output: Option<JudgedOutput>,
    output_corrected: bool,
    calls: Vec<CallV1>,
    recent: RecentlySettled,
    usage: Usage,
    reserved_tokens: u64,
    consecutive_errors: u32,
    active_ms: u64,
    active_since: Timestamp,
    loop_window: Vec<[u8; 16]>,
    message_count: u32,
    suspension_count: u32,
}

#[derive(Deserialize)]
struct ParentV1 {
    run_id: RunId,
    call_id: CallId,
    depth: u16,
    grant_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct PolicyV1 {
    continuation: Continuation,
    on_reject: Option<OnReject>,
    on_block: OnBlock,
    step_end: StepEnd,
    decisions: DecisionTiming,
    execution: Execution,
    approval: ApprovalScope,
    while_waiting: WhileWaiting,
    on_busy: OnBusy,
}

#[derive(Deserialize)]
enum StageV1 {
    Queued,
    Starting,
    Inferring(InferringV1),
    Acting,
    StepEnding,
    BetweenSteps,
    Ending(Termination),
    Ended,
}

#[derive(Deserialize)]
struct InferringV1 {
    attempt: u32,
    failures: u32,
    not_before: Timestamp,
    lost: bool,
    answered: PhaseSet,
    adjusted_by: Vec<u64>,
}

#[derive(Deserialize)]
struct CallV1 {
    id: CallId,
    step: u32,
    tool: ToolName,
    arguments: Digest,
    arguments_seq: u64,
    state: CallStateV1,
    attempts: u32,
    failures: u32,
    class: Option<EffectClass>,
    asked: Vec<Asker>,
    ask_rounds: u8,
    pending_rounds: u8,
    approved: Option<Approved>,
    doubted: Vec<u32>,
    must_ask: bool,
    answer_seq: Option<u64>,
    resume_state_seq: Option<u64>,
    notes: Vec<u64>,
    after_answered: bool,
    reported: Reported,
}

#[derive(Deserialize)]
enum CallStateV1 {
    New,
    Running(Attempt),
    Suspended(SuspensionV1),
    Resuming,
    Succeeded { seq: u64 },
    Failed { seq: u64 },
    Cancelled { seq: u64 },
}

#[derive(Deserialize)]
struct SuspensionV1 {
    id: SuspensionId,
    held: HeldV1,
    mode: ResumeMode,
    expiry: Option<Expiry>,
    asker_count: u8,
    by_the_tool: bool,
    seq: u64,
}

#[derive(Deserialize)]
enum HeldV1 {
    Approval { definition: Digest },
    ClientTool,
    External,
    Question,
    InDoubt { attempt: u32 },
    ChildRun { run: RunId, grant_tokens: Option<u64> },
}

impl From<ControlV1> for Control {
    fn from(old: ControlV1) -> Self {
        let calls: Vec<Call> = old.calls.into_iter().map(Call::from).collect();
        Self {
            run: old.run,
            thread: old.thread,
            agent: old.agent,
            revision: old.revision,
            parent: old.parent.map(Parent::from),
            policy: old.policy.into(),
            loosened_by: old.loosened_by,
            user_message: old.user_message,
            after: old.after,
            seq: old.seq,
            at: old.at,
            status: old.status,
            stage: old.stage.into(),
            step: old.step,
            step_open: old.step_open,
            matched: old.matched,
            output: old.output,
            output_corrected: old.output_corrected,
            descendants: open_children(&calls),
            calls,
            recent: old.recent,
            usage: old.usage,
            reserved_tokens: old.reserved_tokens,
            consecutive_errors: old.consecutive_errors,
            active_ms: old.active_ms,
            active_since: old.active_since,
            loop_window: old.loop_window,
            message_count: old.message_count,
            suspension_count: old.suspension_count,
        }
    }
}

/// Version 1 did not count the runs that a run had started; only those that it waits for are known.
fn open_children(calls: &[Call]) -> u32 {
    let is_open = |call: &&Call| call.suspension().is_some_and(|open| open.held.child_run().is_some());
    u32::try_from(calls.iter().filter(is_open).count()).unwrap_or(u32::MAX)
}

impl From<ParentV1> for Parent {
    fn from(ParentV1 { run_id, call_id, depth, grant_tokens }: ParentV1) -> Self {
        Self { run_id, call_id, depth, grant_tokens, grant_descendants: None }
    }
}

impl From<PolicyV1> for Policy {
    fn from(old: PolicyV1) -> Self {
        let Self { max_result_chars, descendants_max, .. } = Self::default();
        Self {
            continuation: old.continuation,
            on_reject: old.on_reject,
            on_block: old.on_block,
            step_end: old.step_end,
            decisions: old.decisions,
            execution: old.execution,
            approval: old.approval,
            while_waiting: old.while_waiting,
            on_busy: old.on_busy,
            max_result_chars,
            descendants_max,
        }
    }
}

impl From<StageV1> for Stage {
    fn from(old: StageV1) -> Self {
        match old {
            StageV1::Queued => Self::Queued,
            StageV1::Starting => Self::Starting,
            StageV1::Inferring(inferring) => Self::Inferring(Inferring {
                attempt: inferring.attempt,
                failures: inferring.failures,
                empty_retried: false,
                not_before: inferring.not_before,
                lost: inferring.lost,
                answered: inferring.answered,
                adjusted_by: inferring.adjusted_by,
            }),
            StageV1::Acting => Self::Acting,
            StageV1::StepEnding => Self::StepEnding,
            StageV1::BetweenSteps => Self::BetweenSteps,
            StageV1::Ending(termination) => Self::Ending(termination),
            StageV1::Ended => Self::Ended,
        }
    }
}

impl From<CallV1> for Call {
    fn from(old: CallV1) -> Self {
        Self {
            id: old.id,
            step: old.step,
            tool: old.tool,
            arguments: old.arguments,
            arguments_seq: old.arguments_seq,
            state: old.state.into(),
            attempts: old.attempts,
            failures: old.failures,
            class: old.class,
            expires: None,
            asked: old.asked,
            ask_rounds: old.ask_rounds,
            pending_rounds: old.pending_rounds,
            approved: old.approved,
            doubted: old.doubted,
            must_ask: old.must_ask,
            answer_seq: old.answer_seq,
            resume_state_seq: old.resume_state_seq,
            notes: old.notes,
            after_answered: old.after_answered,
            reported: old.reported,
        }
    }
}

impl From<CallStateV1> for CallState {
    fn from(old: CallStateV1) -> Self {
        match old {
            CallStateV1::New => Self::New,
            CallStateV1::Running(attempt) => Self::Running(attempt),
            CallStateV1::Suspended(open) => Self::Suspended(Suspension {
                id: open.id,
                held: open.held.into(),
                mode: open.mode,
                expiry: open.expiry,
                asker_count: open.asker_count,
                by_the_tool: open.by_the_tool,
                seq: open.seq,
            }),
            CallStateV1::Resuming => Self::Resuming,
            CallStateV1::Succeeded { seq } => Self::Succeeded { seq },
            CallStateV1::Failed { seq } => Self::Failed { seq },
            CallStateV1::Cancelled { seq } => Self::Cancelled { seq },
        }
    }
}

impl From<HeldV1> for Held {
    fn from(old: HeldV1) -> Self {
        match old {
            HeldV1::Approval { definition } => Self::Approval { definition },
            HeldV1::ClientTool => Self::ClientTool,
            HeldV1::External => Self::External,
            HeldV1::Question => Self::Question,
            HeldV1::InDoubt { attempt } => Self::InDoubt { attempt },
            HeldV1::ChildRun { run, grant_tokens } => {
                Self::ChildRun { run, grant_tokens, grant_descendants: 0 }
            }
        }
    }
}
