//! Calls that a child run works on.

use alloc::format;
use alloc::string::String;

use super::InputOutcome;
use super::draft::Draft;
use super::gate::approval_request;
use crate::call::Call;
use crate::event::{CallErrorCode, CancelReason, Fact, ResultFrom};
use crate::id::{AgentName, Principal, child_run_id, child_thread_id};
use crate::input::{ChildEnd, ChildEnded, ToolAnswer};
use crate::phase::SuspendRequest;
use crate::rejection::Rejection;
use crate::revision::Limits;
use crate::stop::grant_for_child;
use crate::suspension::{Held, ResumeMode};

impl Draft<'_> {
    /// In one append: the call has started, its child exists, and the call is held for it.
    pub(super) fn delegate(
        &mut self,
        call: &Call,
        agent: &AgentName,
        budget_tokens_max: Option<u64>,
    ) -> Result<(), Rejection> {
        let run_id = child_run_id(self.now, &self.control.run, &call.id);
        let grant_tokens = grant_for_child(self.revision, &self.control, budget_tokens_max);
        let grant_descendants = self.descendants_for_child();
        self.record(Fact::ChildStarted {
            call_id: call.id.clone(),
            run_id: run_id.clone(),
            thread_id: child_thread_id(self.now, &self.control.run, &call.id),
            agent: agent.clone(),
            depth: self.depth() + 1,
            grant_tokens,
            grant_descendants,
        })?;
        let mode = ResumeMode::UseDecisionAsToolResult;
        let request = SuspendRequest { mode, ..approval_request() };
        let held = Held::ChildRun { run: run_id, grant_tokens, grant_descendants };
        let opened = self.opened(call, held, &request, None);
        self.record(Fact::ToolSuspended(opened))?;
        Ok(())
    }

    /// Why this run may not start another child, if so, as a text for its model.
    pub(super) fn no_room_for_child(
        &self,
        budget_tokens_max: Option<u64>,
    ) -> Option<(CallErrorCode, String)> {
        let Limits { depth_max, children_max, .. } = self.revision.limits;
        let open = self.open_child_count();
        if self.depth() >= depth_max {
            let why = format!("agents may delegate {depth_max} levels deep, and this is the last one");
            return Some((CallErrorCode::TooDeep, why));
        }
        if open >= usize::from(children_max) {
            let why = format!("{open} delegated runs are open, and no more may be at the same time");
            return Some((CallErrorCode::TooManyChildren, why));
        }
        if self.descendants_left() == 0 {
            let max = self.descendants_max();
            let why = format!(
                "this run may start {max} runs in all, those that they start included, and none is left; do the rest \
                 without delegating"
            );
            return Some((CallErrorCode::TooManyDescendants, why));
        }
        let grant = grant_for_child(self.revision, &self.control, budget_tokens_max);
        let why = || "the budget of tokens has nothing left for a delegated run".into();
        (grant == Some(0)).then(|| (CallErrorCode::BudgetSpent, why()))
    }

    fn open_child_count(&self) -> usize {
        let is_child =
            |call: &&Call| matches!(call.suspension().map(|open| &open.held), Some(Held::ChildRun { .. }));
        self.control.calls.iter().filter(is_child).count()
    }

    /// Maximum number of runs that this one may start: its policy's limit, and no more than its parent granted.
    fn descendants_max(&self) -> u32 {
        let granted = self.control.parent.as_ref().and_then(|parent| parent.grant_descendants);
        granted.map_or(self.control.policy.descendants_max, |granted| {
            granted.min(self.control.policy.descendants_max)
        })
    }

    fn descendants_left(&self) -> u32 {
        self.descendants_max().saturating_sub(self.control.descendants)
    }

    /// Number of runs that the next child may start. The grants of all runs of a tree never add up to more than its
    /// root may start, so no shared counter is needed. One run is reserved for each further child that may be open
    /// beside this one; the child gets half of the rest. The only open child gets enough to delegate down to the last
    /// level, if possible.
    fn descendants_for_child(&self) -> u32 {
        let Limits { depth_max, children_max, .. } = self.revision.limits;
        let levels_below = depth_max.saturating_sub(self.depth() + 1);
        if levels_below == 0 {
            return 0;
        }
        let spare = self.descendants_left().saturating_sub(1);
        let open = u32::try_from(self.open_child_count()).unwrap_or(u32::MAX);
        let kept = u32::from(children_max).saturating_sub(open).saturating_sub(1);
        let half = spare.saturating_sub(kept) / 2;
        let down_to_the_last_level = u32::from(levels_below).min(spare / 2);
        if open == 0 { half.max(down_to_the_last_level) } else { half }
    }

    fn depth(&self) -> u16 {
        self.control.parent.as_ref().map_or(0, |parent| parent.depth)
    }

    pub(super) fn child_ended(&mut self, ended: &ChildEnded) -> Result<InputOutcome, Rejection> {
        let Some(call) = self.control.call(&ended.call).cloned() else {
            return Ok(InputOutcome::Duplicate);
        };
        let open = match call.suspension() {
            Some(open) if matches!(&open.held, Held::ChildRun { run, .. } if *run == ended.run) => open,
            Some(_) | None => return Ok(InputOutcome::Duplicate),
        };
        self.record(Fact::ChildEnded {
            call_id: call.id.clone(),
            run_id: ended.run.clone(),
            usage: ended.usage,
            descendants: ended.descendants,
        })?;
        let answer = match &ended.end {
            ChildEnd::Interrupted => {
                self.cancel_call(&call, CancelReason::ChildInterrupted)?;
                return Ok(InputOutcome::Done);
            }
            ChildEnd::Completed { answer } => {
                Ok(ToolAnswer::Success { value: answer.clone(), warning: None })
            }
            ChildEnd::Failed { message } => Err(message.clone()),
        };
        self.record(Fact::ToolResumed {
            call_id: call.id.clone(),
            suspension_id: open.id.clone(),
            mode: open.mode,
            by: Principal::system(),
            decision_id: None,
            late_attempt: None,
            answer: None,
            arguments: None,
        })?;
        self.announce_status()?;
        match answer {
            Ok(answer) => self.answered(&call, &answer, ResultFrom::Child)?,
            Err(message) => self.fail(&call, CallErrorCode::ChildFailed, message)?,
        }
        Ok(InputOutcome::Done)
    }
}
