//! `[agents.NAME.policy]`: behaviour for which different applications need different choices.

use engine::agent::Policy;
use machine::policy::{
    ApprovalScope, Continuation, DecisionTiming, Execution, OnBlock, OnBusy, OnReject, StepEnd, WhileWaiting,
};

use super::table::{Entry, Table};

pub(super) fn read(entry: &Entry<'_>) -> Policy {
    let Some(mut table) = entry.table("a table [agents.NAME.policy]") else { return Policy::default() };
    let defaults = Policy::default();
    let policy = Policy {
        continuation: choice(&mut table, "continuation", &CONTINUATIONS).unwrap_or_default(),
        on_reject: choice(&mut table, "on_reject", &ON_REJECT),
        on_block: choice(&mut table, "on_block", &ON_BLOCK).unwrap_or_default(),
        step_end: choice(&mut table, "step_end", &STEP_ENDS).unwrap_or_default(),
        decisions: choice(&mut table, "decisions", &DECISIONS).unwrap_or_default(),
        execution: choice(&mut table, "execution", &EXECUTIONS).unwrap_or_default(),
        approval: choice(&mut table, "approval", &APPROVALS).unwrap_or_default(),
        while_waiting: choice(&mut table, "while_waiting", &WHILE_WAITING).unwrap_or_default(),
        on_busy: choice(&mut table, "on_busy", &ON_BUSY).unwrap_or_default(),
        max_result_chars: limit(&mut table, "max_result_chars", 1).unwrap_or(defaults.max_result_chars),
        descendants_max: limit(&mut table, "descendants_max", 0).unwrap_or(defaults.descendants_max),
    };
    table.finish();
    policy
}

fn choice<T: Copy>(table: &mut Table<'_>, key: &'static str, words: &[(&str, T)]) -> Option<T> {
    table.take(key)?.choice(words)
}

fn limit(table: &mut Table<'_>, key: &'static str, least: u32) -> Option<u32> {
    let limit = table.take(key)?.integer(u64::from(least), u64::from(u32::MAX))?;
    u32::try_from(limit).ok()
}

const CONTINUATIONS: [(&str, Continuation); 2] =
    [("all_settled", Continuation::AllSettled), ("eager", Continuation::Eager)];
const ON_REJECT: [(&str, OnReject); 2] = [("continue", OnReject::Continue), ("end_run", OnReject::EndRun)];
const ON_BLOCK: [(&str, OnBlock); 2] = [("fail_call", OnBlock::FailCall), ("end_run", OnBlock::EndRun)];
const STEP_ENDS: [(&str, StepEnd); 2] =
    [("after_tools", StepEnd::AfterTools), ("after_inference", StepEnd::AfterInference)];
const DECISIONS: [(&str, DecisionTiming); 2] =
    [("immediate", DecisionTiming::Immediate), ("at_boundary", DecisionTiming::AtBoundary)];
const EXECUTIONS: [(&str, Execution); 2] =
    [("parallel", Execution::Parallel), ("sequential", Execution::Sequential)];
const APPROVALS: [(&str, ApprovalScope); 4] = [
    ("policy", ApprovalScope::Policy),
    ("all_tools", ApprovalScope::AllTools),
    ("write_tools", ApprovalScope::WriteTools),
    ("never", ApprovalScope::Never),
];
const WHILE_WAITING: [(&str, WhileWaiting); 3] = [
    ("reject", WhileWaiting::Reject),
    ("supersede", WhileWaiting::Supersede),
    ("enqueue", WhileWaiting::Enqueue),
];
const ON_BUSY: [(&str, OnBusy); 3] =
    [("reject", OnBusy::Reject), ("enqueue", OnBusy::Enqueue), ("interrupt", OnBusy::Interrupt)];
