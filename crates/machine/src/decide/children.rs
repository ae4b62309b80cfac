//! A call that a child run works on.

use alloc::format;
use alloc::string::String;

use super::Answer;
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
use crate::tool::Tool;

impl Draft<'_> {
    /// One append: the call has started, its child exists, and the call is held for it.
    pub(super) fn delegate(
        &mut self,
        call: &Call,
        tool: &Tool,
        agent: &AgentName,
        budget_tokens_max: Option<u64>,
    ) -> Result<(), Rejection> {
        let run_id = child_run_id(self.now, &self.control.run, &call.id);
        let grant_tokens = grant_for_child(self.revision, &self.control, budget_tokens_max);
        self.record(Fact::ChildStarted {
            call_id: call.id.clone(),
            run_id: run_id.clone(),
            thread_id: child_thread_id(self.now, &self.control.run, &call.id),
            agent: agent.clone(),
            depth: self.depth() + 1,
            grant_tokens,
        })?;
        let mode = ResumeMode::UseDecisionAsToolResult;
        let request = SuspendRequest { mode, expires_in_ms: None, ..approval_request(tool) };
        let opened = self.opened(call, Held::ChildRun { run: run_id, grant_tokens }, &request);
        self.record(Fact::ToolSuspended(opened))?;
        Ok(())
    }

    /// Why this run may not have another child, if so, in words for its model.
    pub(super) fn no_room_for_child(
        &self,
        budget_tokens_max: Option<u64>,
    ) -> Option<(CallErrorCode, String)> {
        let Limits { depth_max, children_max, .. } = self.revision.limits;
        let open = self
            .control
            .calls
            .iter()
            .filter(|call| matches!(call.suspension().map(|open| &open.held), Some(Held::ChildRun { .. })))
            .count();
        if self.depth() >= depth_max {
            let why = format!("agents may delegate {depth_max} levels deep, and this is the last one");
            return Some((CallErrorCode::TooDeep, why));
        }
        if open >= usize::from(children_max) {
            let why = format!("{open} delegated runs are open, and no more may be at the same time");
            return Some((CallErrorCode::TooManyChildren, why));
        }
        let grant = grant_for_child(self.revision, &self.control, budget_tokens_max);
        let why = || "the budget of tokens has nothing left for a delegated run".into();
        (grant == Some(0)).then(|| (CallErrorCode::BudgetSpent, why()))
    }

    fn depth(&self) -> u16 {
        self.control.parent.as_ref().map_or(0, |parent| parent.depth)
    }

    pub(super) fn child_ended(&mut self, ended: &ChildEnded) -> Result<Answer, Rejection> {
        let Some(call) = self.control.call(&ended.call).cloned() else {
            return Ok(Answer::Duplicate);
        };
        let open = match call.suspension() {
            Some(open) if matches!(&open.held, Held::ChildRun { run, .. } if *run == ended.run) => open,
            Some(_) | None => return Ok(Answer::Duplicate),
        };
        self.record(Fact::ChildEnded {
            call_id: call.id.clone(),
            run_id: ended.run.clone(),
            usage: ended.usage,
        })?;
        let answer = match &ended.end {
            ChildEnd::Interrupted => {
                self.cancel_call(&call, CancelReason::ChildInterrupted)?;
                return Ok(Answer::Done);
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
        Ok(Answer::Done)
    }
}
