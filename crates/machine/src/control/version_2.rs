//! The control layout of fold version 2, and its conversion to the current one. Runs that ended under version 2 keep it
//! permanently, so this module stays as long as such stores are read.

use alloc::vec::Vec;
use serde::Deserialize;

use super::{Control, Stage};
use crate::call::{Approved, Call, CallState, Reported};
use crate::event::{Parent, Usage};
use crate::id::{AgentName, CallId, Digest, MessageId, Principal, RunId, ThreadId, ToolName};
use crate::output::JudgedOutput;
use crate::policy::Policy;
use crate::recently_settled::RecentlySettled;
use crate::rules::Asker;
use crate::status::RunStatus;
use crate::time::Timestamp;
use crate::tool::EffectClass;

#[derive(Deserialize)]
pub(super) struct ControlV2 {
    run: RunId,
    thread: ThreadId,
    agent: AgentName,
    revision: Digest,
    parent: Option<Parent>,
    policy: Policy,
    loosened_by: Option<Principal>,
    user_message: Option<MessageId>,
    after: Option<MessageId>,
    seq: u64,
    at: Timestamp,
    status: RunStatus,
    stage: Stage,
    step: u32,
    step_open: bool,
    matched: Vec<u16>,
    output: Option<JudgedOutput>,
    output_corrected: bool,
    calls: Vec<CallV2>,
    recent: RecentlySettled,
    usage: Usage,
    reserved_tokens: u64,
    consecutive_errors: u32,
    active_ms: u64,
    active_since: Timestamp,
    loop_window: Vec<[u8; 16]>,
    message_count: u32,
    suspension_count: u32,
    descendants: u32,
}

#[derive(Deserialize)]
struct CallV2 {
    id: CallId,
    step: u32,
    tool: ToolName,
    arguments: Digest,
    arguments_seq: u64,
    state: CallState,
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

impl From<ControlV2> for Control {
    fn from(old: ControlV2) -> Self {
        Self {
            run: old.run,
            thread: old.thread,
            agent: old.agent,
            revision: old.revision,
            parent: old.parent,
            policy: old.policy,
            loosened_by: old.loosened_by,
            user_message: old.user_message,
            after: old.after,
            seq: old.seq,
            at: old.at,
            status: old.status,
            stage: old.stage,
            step: old.step,
            step_open: old.step_open,
            matched: old.matched,
            output: old.output,
            output_corrected: old.output_corrected,
            calls: old.calls.into_iter().map(Call::from).collect(),
            recent: old.recent,
            usage: old.usage,
            reserved_tokens: old.reserved_tokens,
            consecutive_errors: old.consecutive_errors,
            active_ms: old.active_ms,
            active_since: old.active_since,
            loop_window: old.loop_window,
            message_count: old.message_count,
            suspension_count: old.suspension_count,
            descendants: old.descendants,
        }
    }
}

impl From<CallV2> for Call {
    fn from(old: CallV2) -> Self {
        Self {
            id: old.id,
            step: old.step,
            tool: old.tool,
            arguments: old.arguments,
            arguments_seq: old.arguments_seq,
            state: old.state,
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
