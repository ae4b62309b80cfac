//! The gate that every call passes before it runs, the first time and at every replay.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::InputOutcome;
use super::draft::Draft;
use crate::call::Call;
use crate::control::Stage;
use crate::event::{CallErrorCode, Fact, OpenedSuspension, ResultFrom, VoidReason};
use crate::grant::{Grant, HoldReason};
use crate::id::{PluginName, Principal};
use crate::input::{GateInput, ToolAnswer};
use crate::phase::{AskKind, Intercept, Phase, SuppliedResult, SuspendRequest, reduce};
use crate::policy::{ApprovalScopes, OnBlock};
use crate::rejection::Rejection;
use crate::revision::{ASK_ROUNDS_MAX, ATTEMPT_COUNT_MAX};
use crate::rules::{Asker, GateVerdict, evaluate};
use crate::status::CallStatus;
use crate::step_projection::is_at_gate;
use crate::suspension::{Held, ResumeMode};
use crate::termination::Termination;
use crate::tool::{Arguments, OnExpiry, Performer, Tool, ToolLookup};

/// Maximum number of bytes that a suspension adds to the stored control.
const HELD_BYTES: usize = 160;
const ASKER_BYTES: usize = 4;

impl Draft<'_> {
    /// Checks in this order: block, supplied result, unknown tool, bad arguments, suspend, execute.
    pub(super) fn gated(&mut self, gated: &GateInput) -> Result<InputOutcome, Rejection> {
        let call = self.call(&gated.call)?.clone();
        if matches!(self.control.stage, Stage::Ending(_)) && !call.is_approved_and_unstarted() {
            return Err(Rejection::RunEnding);
        }
        // If the step ends before the tools, the hooks of StepEnd are asked before the gate.
        if self.control.stage == Stage::StepEnding && call.step == self.control.step {
            return Err(Rejection::NotAtGate { status: call.status(), call: call.id });
        }
        let is_at_gate = match gated.unsent_attempt {
            Some(unsent) => call.running_attempt() == Some(unsent) && !call.lost(),
            None => is_at_gate(&self.control, &call),
        };
        if !is_at_gate {
            return Err(Rejection::NotAtGate { status: call.status(), call: call.id });
        }
        if let Some(fault) = gated.hooks.fault(Phase::BeforeToolExecute) {
            self.record_failures(Phase::BeforeToolExecute, Some(&call.id), &gated.hooks)?;
            self.fail(&call, CallErrorCode::GateFailed, fault)?;
            return Ok(InputOutcome::Done);
        }
        self.record_hooks(Phase::BeforeToolExecute, Some(&call.id), &gated.hooks)?;
        let hook = reduce(&gated.hooks, |plugin| call.asked.contains(&Asker::Plugin(plugin.clone())));
        if let Intercept::Block(plugin, reason) = &hook {
            return self.block(
                &call,
                CallErrorCode::BlockedByPlugin,
                format!("blocked by {plugin}: {reason}"),
            );
        }
        let verdict = match &gated.tool {
            ToolLookup::Known(tool) => Some(self.built_in_verdict(&call, tool, gated)),
            ToolLookup::Unknown | ToolLookup::OutOfScope => None,
        };
        match verdict {
            Some(GateVerdict::Block) => {
                return self.block(&call, CallErrorCode::BlockedByPolicy, "blocked by policy".into());
            }
            Some(GateVerdict::Deny { rule }) => {
                return self.block(&call, CallErrorCode::DeniedByRule, format!("denied by rule {rule}"));
            }
            Some(GateVerdict::Allow { .. } | GateVerdict::Ask { .. }) | None => {}
        }
        if let Intercept::SetResult(plugin, result) = &hook {
            return self.apply_supplied_result(&call, &gated.tool, plugin, result);
        }
        self.dispatch(&call, gated, &hook, verdict)
    }

    fn dispatch(
        &mut self,
        call: &Call,
        gated: &GateInput,
        hook: &Intercept<'_>,
        verdict: Option<GateVerdict>,
    ) -> Result<InputOutcome, Rejection> {
        let tool = match &gated.tool {
            ToolLookup::Known(tool) => tool,
            ToolLookup::Unknown if call.status() != CallStatus::New => {
                return self.refuse(
                    call,
                    CallErrorCode::ToolRemoved,
                    "the tool was removed while the call waited",
                );
            }
            ToolLookup::Unknown => {
                return self.refuse(call, CallErrorCode::UnknownTool, "there is no such tool");
            }
            ToolLookup::OutOfScope => {
                return self.refuse(call, CallErrorCode::OutOfScope, "this agent may not use the tool");
            }
        };
        if call.lost() && !tool.class.repeatable() {
            let why = "the worker was lost, and the tool may no longer be repeated";
            self.suspend_in_doubt(call, call.attempts, Some(why.into()))?;
            return Ok(InputOutcome::Done);
        }
        let is_unsent = gated.unsent_attempt.is_some();
        if is_unsent && call.failures > 0 && !tool.class.repeatable() {
            let why = "an earlier attempt got no answer, and the tool may no longer be repeated";
            self.suspend_in_doubt(call, call.attempts - 1, Some(why.into()))?;
            return Ok(InputOutcome::Done);
        }
        let unanswered = call.lost() || is_unsent || !call.doubted.is_empty();
        if unanswered && call.attempts >= ATTEMPT_COUNT_MAX {
            let why = format!("no answer in {ATTEMPT_COUNT_MAX} attempts");
            return self.refuse(call, CallErrorCode::NoAnswer, &why);
        }
        if let Arguments::Invalid { why, .. } = &gated.arguments {
            return self.refuse(call, CallErrorCode::BadArguments, why);
        }
        if gated.arguments.digest() != call.arguments {
            let why = "the arguments are not the ones that were asked for and decided on";
            return self.refuse(call, CallErrorCode::ArgumentsChanged, why);
        }
        let call = &self.void_if_changed(call, tool)?;
        let asked_by = self.unanswered_askers(call, verdict.as_ref());
        // A grant lifts the built-in gate's hold, unless the tool has changed since it was approved.
        let lifted_by = if call.must_ask { None } else { self.lifted_by(&asked_by, call, tool, gated) };
        if !asked_by.is_empty() && lifted_by.is_none() {
            return self.hold(call, tool, gated, asked_by, &approval_request());
        }
        if let Intercept::Suspend(plugin, request) = hook {
            return self.hold(call, tool, gated, alloc::vec![Asker::Plugin((*plugin).clone())], request);
        }
        // Nothing of a write was sent, but another attempt that no person decided on would look like its repetition.
        if is_unsent && call.class.is_some_and(|class| !class.repeatable()) {
            return self.refuse(call, CallErrorCode::NotSent, "the tool changed before the call was sent");
        }
        let loosened_by = self.loosened_by(call, tool, gated);
        self.execute(call, tool, gated, rule_of(verdict.as_ref()), lifted_by.or(loosened_by))
    }

    /// A policy that is looser than the agent's own applies only if the caller who loosened it is named.
    fn built_in_verdict(&self, call: &Call, tool: &Tool, gated: &GateInput) -> GateVerdict {
        self.verdict(self.scopes(gated), call, tool, gated)
    }

    fn scopes(&self, gated: &GateInput) -> ApprovalScopes {
        self.scopes_in_force(gated.loosening_ended)
    }

    pub(super) fn scopes_in_force(&self, loosening_ended: bool) -> ApprovalScopes {
        let (agent, run) = (self.revision.policy.approval, self.control.policy.approval);
        let may_be_looser = self.control.loosened_by.is_some() && !loosening_ended;
        ApprovalScopes { agent, run: if may_be_looser { run } else { run.max(agent) } }
    }

    fn verdict(&self, scopes: ApprovalScopes, call: &Call, tool: &Tool, gated: &GateInput) -> GateVerdict {
        evaluate(&self.revision.rules, scopes, &call.tool, tool, &gated.arguments, &gated.hits)
    }

    /// The approver whose grant lifts the first of these askers, if grants lift every one of them.
    fn lifted_by(&self, askers: &[Asker], call: &Call, tool: &Tool, gated: &GateInput) -> Option<Principal> {
        let scopes = self.scopes(gated);
        let giver = |asker| {
            let reason = HoldReason::for_asker(asker, scopes, self.revision, &self.control)?;
            let lifts = |grant: &&Grant| grant.lifts(&reason, &self.control.agent, &call.tool, tool);
            gated.grants.iter().find(lifts).map(|grant| grant.by.clone())
        };
        let givers: Option<Vec<Principal>> = askers.iter().map(giver).collect();
        givers?.into_iter().next()
    }

    /// The built-in askers that have not been answered yet.
    fn unanswered_askers(&self, call: &Call, verdict: Option<&GateVerdict>) -> Vec<Asker> {
        let mut unanswered: Vec<Asker> = match verdict {
            Some(GateVerdict::Ask { by }) => {
                by.iter().filter(|asker| !asker.is_answered(&call.asked)).cloned().collect()
            }
            Some(GateVerdict::Allow { .. } | GateVerdict::Deny { .. } | GateVerdict::Block) | None => {
                Vec::new()
            }
        };
        if call.must_ask && unanswered.is_empty() {
            unanswered.push(Asker::Policy);
        }
        unanswered
    }

    /// An approval is for one definition of the tool. Another definition voids it, and the call is held again.
    fn void_if_changed(&mut self, call: &Call, tool: &Tool) -> Result<Call, Rejection> {
        if let Some(approved) = &call.approved
            && approved.definition != tool.definition
        {
            self.record(Fact::ApprovalVoided {
                call_id: call.id.clone(),
                approval_id: approved.approval.clone(),
                reason: VoidReason::ToolChanged,
                by: None,
                decision_id: None,
            })?;
        }
        self.call(&call.id).cloned()
    }

    fn hold(
        &mut self,
        call: &Call,
        tool: &Tool,
        gated: &GateInput,
        asked_by: Vec<Asker>,
        request: &SuspendRequest,
    ) -> Result<InputOutcome, Rejection> {
        if self.cancel_if_ending(call)? {
            return Ok(InputOutcome::Done);
        }
        if call.ask_rounds >= ASK_ROUNDS_MAX {
            return self.fail_asked_too_often(call);
        }
        if request.kind == AskKind::Approval && request.mode != ResumeMode::ReplayToolCall {
            let why = "a hook asked for an approval that would not run the call; ask a question instead";
            return self.refuse(call, CallErrorCode::GateFailed, why);
        }
        if !self.has_room(HELD_BYTES + ASKER_BYTES * asked_by.len()) {
            return self.refuse(
                call,
                CallErrorCode::StateFull,
                "the run's state has no room to hold the call",
            );
        }
        let held = match request.kind {
            AskKind::Approval => Held::Approval { definition: tool.definition },
            AskKind::ClientTool => Held::ClientTool,
            AskKind::External => Held::External,
            AskKind::Question => Held::Question,
        };
        let approval = request.kind == AskKind::Approval;
        let mut opened = self.opened(call, held, request, tool.expiry_terms());
        opened.arguments = Some(gated.arguments.clone());
        opened.asked_by = asked_by;
        self.record(if approval { Fact::ApprovalRequested(opened) } else { Fact::ToolSuspended(opened) })?;
        Ok(InputOutcome::Done)
    }

    /// The caller who loosened this run's policy, if it allowed a call that the agent's own policy would hold.
    fn loosened_by(&self, call: &Call, tool: &Tool, gated: &GateInput) -> Option<Principal> {
        let own = self.revision.policy.approval;
        let unanswered = match self.verdict(ApprovalScopes { agent: own, run: own }, call, tool, gated) {
            GateVerdict::Ask { by } => by.iter().any(|asker| !asker.is_answered(&call.asked)),
            GateVerdict::Allow { .. } | GateVerdict::Deny { .. } | GateVerdict::Block => false,
        };
        let loosened = self.control.policy.approval < own && unanswered;
        if loosened { self.control.loosened_by.clone() } else { None }
    }

    fn execute(
        &mut self,
        call: &Call,
        tool: &Tool,
        gated: &GateInput,
        rule: Option<u16>,
        let_through_by: Option<Principal>,
    ) -> Result<InputOutcome, Rejection> {
        let elsewhere = match &tool.performer {
            Performer::Server | Performer::Agent { .. } => None,
            Performer::Client => Some(Held::ClientTool),
            Performer::External => Some(Held::External),
        };
        let is_held = elsewhere.is_some() || matches!(tool.performer, Performer::Agent { .. });
        if is_held && self.cancel_if_ending(call)? {
            return Ok(InputOutcome::Done);
        }
        if let Some(held) = elsewhere {
            let mode = ResumeMode::UseDecisionAsToolResult;
            let request = SuspendRequest { mode, ..approval_request() };
            // An approver may have changed the arguments. The performer gets the ones that were approved.
            let arguments = Some(gated.arguments.clone());
            let opened = self.opened(call, held, &request, tool.expiry_terms());
            let opened = OpenedSuspension { arguments, rule, let_through_by, ..opened };
            self.record(Fact::ToolSuspended(opened))?;
            return Ok(InputOutcome::Done);
        }
        if let Performer::Agent { budget_tokens_max, .. } = &tool.performer
            && let Some((code, why)) = self.no_room_for_child(*budget_tokens_max)
        {
            return self.refuse(call, code, &why);
        }
        self.record(Fact::ExecutionStarted {
            call_id: call.id.clone(),
            tool: call.tool.clone(),
            attempt: call.attempts + 1,
            class: tool.class,
            not_before: self.now,
            rule,
            let_through_by,
            expires: tool.expiry_terms(),
        })?;
        if let Performer::Agent { agent, budget_tokens_max } = &tool.performer {
            self.delegate(call, agent, *budget_tokens_max)?;
        }
        Ok(InputOutcome::Done)
    }

    /// A result supplied by a hook settles the call without running it; a pending one holds it.
    fn apply_supplied_result(
        &mut self,
        call: &Call,
        tool: &ToolLookup,
        plugin: &PluginName,
        result: &SuppliedResult,
    ) -> Result<InputOutcome, Rejection> {
        let answer = match result {
            SuppliedResult::Success { value, warning } => {
                ToolAnswer::Success { value: value.clone(), warning: warning.clone() }
            }
            SuppliedResult::Error { message } => {
                return self.refuse(call, CallErrorCode::PluginError, message);
            }
            SuppliedResult::Pending(_) if self.cancel_if_ending(call)? => return Ok(InputOutcome::Done),
            SuppliedResult::Pending(_) if call.ask_rounds >= ASK_ROUNDS_MAX => {
                return self.fail_asked_too_often(call);
            }
            SuppliedResult::Pending(request) => {
                let expires = match tool {
                    ToolLookup::Known(tool) => tool.expiry_terms(),
                    ToolLookup::Unknown | ToolLookup::OutOfScope => None,
                };
                self.suspend(call, request, alloc::vec![Asker::Plugin(plugin.clone())], expires)?;
                return Ok(InputOutcome::Done);
            }
        };
        self.answered(call, &answer, ResultFrom::Hook)?;
        Ok(InputOutcome::Done)
    }

    fn fail_asked_too_often(&mut self, call: &Call) -> Result<InputOutcome, Rejection> {
        let why = format!("the gate asked {ASK_ROUNDS_MAX} times and asks again");
        self.refuse(call, CallErrorCode::AskedTooOften, &why)
    }

    fn block(&mut self, call: &Call, code: CallErrorCode, why: String) -> Result<InputOutcome, Rejection> {
        self.fail(call, code, why.clone())?;
        match self.control.policy.on_block {
            OnBlock::FailCall => {}
            OnBlock::EndRun => self.finish(Termination::blocked(&why))?,
        }
        Ok(InputOutcome::Done)
    }

    fn refuse(&mut self, call: &Call, code: CallErrorCode, why: &str) -> Result<InputOutcome, Rejection> {
        self.fail(call, code, why.into())?;
        Ok(InputOutcome::Done)
    }
}

/// The rule that allowed the call.
const fn rule_of(verdict: Option<&GateVerdict>) -> Option<u16> {
    match verdict {
        Some(GateVerdict::Allow { rule }) => *rule,
        Some(GateVerdict::Ask { .. } | GateVerdict::Deny { .. } | GateVerdict::Block) | None => None,
    }
}

/// The built-in gate's request.
pub(super) const fn approval_request() -> SuspendRequest {
    SuspendRequest {
        kind: AskKind::Approval,
        question: None,
        schema: None,
        mode: ResumeMode::ReplayToolCall,
        resume_state: None,
        expires_in_ms: None,
        on_expiry: OnExpiry::Deny,
    }
}
