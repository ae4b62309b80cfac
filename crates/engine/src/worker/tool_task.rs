//! One attempt of a call: the last checks before it is sent, its timeout, and the meaning of a panic.

use std::sync::Arc;
use std::time::Duration;

use machine::event::Fact;
use machine::id::{CallId, Digest, SuspensionId, idempotency_key};
use machine::input::{Outcome, ToolAnswer};
use machine::phase::SuspendRequest;
use machine::tool::{Arguments, EffectClass};
use machine::{Effect, Input};
use tokio::sync::watch;

use super::panics::catch_panic;
use super::task_result::UnsentAttempt;
use super::{Stop, TaskResult, Worker};
use crate::agent::Pinned;
use crate::callback::{Callback, ReportedAttempt};
use crate::clock::NotBefore;
use crate::live::ToolNotes;
use crate::metrics::ms_between;
use crate::node::Node;
use crate::schema::Schema;
use crate::store::{Lease, StoreError, StoreFailure};
use crate::tool::{ApprovedBy, CancellationToken, Resumed, ToolRequest};

struct Attempt {
    node: Arc<Node>,
    lease: Lease,
    pinned: Arc<Pinned>,
    request: ToolRequest,
    /// Digest of the tool's definition as the gate saw it.
    gated: Option<Digest>,
    /// The approval that let the call through, and the digest of its arguments.
    approved: Option<(SuspensionId, Digest)>,
    /// None if it need not wait: then it is sent at once.
    waits: Option<(NotBefore, watch::Receiver<bool>)>,
}

impl Worker {
    pub(super) async fn begin_attempt(&mut self, effect: Effect) -> Result<(), Stop> {
        let Effect::RunTool { call: id, attempt, not_before } = &effect else {
            return Err(Stop::Broken(format!("{effect:?} is no attempt")));
        };
        let (attempt, not_before) = (*attempt, *not_before);
        let Some(call) = self.run.control().call(id).cloned() else {
            return Err(Stop::Broken(format!("call {id} is to run, but the run does not know it")));
        };
        let Arguments::Valid { value, digest } = self.arguments_of(&call).await? else {
            return Err(Stop::Broken(format!("call {id} runs with bad arguments")));
        };
        let resume = self.resumed(call.answer_seq, call.resume_state_seq).await?;
        let request = ToolRequest {
            tenant: self.lease.tenant.clone(),
            thread: self.lease.thread.clone(),
            run: self.lease.run.clone(),
            call: call.id.clone(),
            tool: call.tool.clone(),
            step: call.step,
            attempt,
            arguments: value,
            idempotency_key: idempotency_key(&self.lease.run, &call.id, &digest),
            approval: None,
            resume,
            callback: self.callback(&call.id, attempt),
            cancelled: CancellationToken::new(),
            notes: ToolNotes::new(self.live_output(call.step), call.id.clone(), call.tool.clone(), attempt),
        };
        let (hold, held_back) = watch::channel(false);
        let waits = self.not_before(not_before).map(|not_before| (not_before, held_back));
        let hold = waits.is_some().then_some(hold);
        let task = Attempt {
            node: self.node.clone(),
            lease: self.lease.clone(),
            pinned: self.pinned.clone(),
            gated: self.calls.gated.get(&call.id).copied(),
            approved: call.approved.map(|approved| (approved.approval, digest)),
            request,
            waits,
        };
        self.tasks.spawn_held_back(effect, hold, move |cancelled| task.work(cancelled));
        Ok(())
    }

    fn callback(&self, call: &CallId, attempt: u32) -> Option<Callback> {
        let callbacks = self.node.callbacks.as_ref()?;
        let (tenant, run) = (self.lease.tenant.clone(), self.lease.run.clone());
        Some(callbacks.issue(&ReportedAttempt { tenant, run, call: call.clone(), attempt }))
    }

    /// The state that the tool saved for itself, and the answer it has received since.
    async fn resumed(
        &self,
        answer_seq: Option<u64>,
        state_seq: Option<u64>,
    ) -> Result<Option<Resumed>, Stop> {
        let Some(answer_seq) = answer_seq else { return Ok(None) };
        let event = self.event(answer_seq).await?;
        let Fact::ToolResumed { answer, by, .. } = &event.fact else {
            return Err(Stop::Broken(format!("event {answer_seq} resumes nothing")));
        };
        let state = match state_seq {
            Some(seq) => {
                let opened = self.event(seq).await?;
                if let Fact::ToolSuspended(opened) | Fact::ApprovalRequested(opened) = &opened.fact {
                    opened.resume_state.clone()
                } else {
                    None
                }
            }
            None => None,
        };
        Ok(Some(Resumed { state, answer: answer.clone(), by: by.clone() }))
    }
}

impl Attempt {
    async fn work(mut self, cancelled: CancellationToken) -> TaskResult {
        self.request.cancelled = cancelled;
        let (step, call, attempt) = (self.request.step, self.request.call.clone(), self.request.attempt);
        if let Some((not_before, held_back)) = &mut self.waits {
            not_before.wait(&*self.node.clock).await;
            if held_back.wait_for(|held| !held).await.is_err() {
                // Only the worker could let it continue, and it is gone; this task is aborted too.
                std::future::pending::<()>().await;
            }
        }
        match self.send().await {
            Some(outcome) => {
                let outcome = with_usable_schema(outcome);
                TaskResult::Input(Box::new(Input::ToolReturned { step, call, attempt, outcome }))
            }
            None => TaskResult::ToolChanged(UnsentAttempt { step, call, attempt }),
        }
    }

    /// The last checks before anything leaves this machine. After this there is no way back. None if nothing was sent
    /// because the tool is not what the gate saw.
    async fn send(mut self) -> Option<Outcome> {
        match self.readable_approval().await {
            Ok(approval) => self.request.approval = approval,
            Err(refused) => return Some(not_sent(&format!("the approval could not be read: {refused}"))),
        }
        let agents = self.node.agents();
        let agent = agents.by_name.get(&self.pinned.agent).map(|agent| &**agent);
        let live = self.pinned.live(agent, &self.request.tool);
        let live = live.filter(|live| self.gated == Some(live.gate.definition))?;
        if !self.node.store.may_send(&self.lease) {
            return Some(not_sent("another worker may hold the run by now"));
        }
        let (tool, class) = (live.tool.clone(), live.gate.class);
        let timeout = tool.definition().timeout;
        let (node, name, request) = (self.node, self.request.tool.clone(), self.request);
        let answer = catch_panic(async move { tool.call(request).await });
        let sent = node.clock.now();
        let outcome = match tokio::time::timeout(timeout, answer).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(panic)) => panicked(class, &panic),
            Err(_) => timed_out(timeout),
        };
        node.counters.record_attempt(&name, ms_between(sent, node.clock.now()));
        Some(outcome)
    }
}

impl Attempt {
    /// A temporary store failure must not use up the approval: nothing has been sent, so the attempt waits.
    async fn readable_approval(&self) -> Result<Option<ApprovedBy>, StoreError> {
        loop {
            match self.approval().await {
                Err(StoreError::Failed(trouble @ (StoreFailure::Unavailable(_) | StoreFailure::Full(_))))
                    if self.node.store.may_send(&self.lease) =>
                {
                    tracing::warn!(run = %self.lease.run, %trouble, "the approval cannot be read; the call waits");
                    tokio::time::sleep(self.node.settings.store_retry_pause).await;
                }
                read => return read,
            }
        }
    }

    /// The approver, for a tool that wants to know.
    async fn approval(&self) -> Result<Option<ApprovedBy>, StoreError> {
        let Some((approval, arguments)) = &self.approved else { return Ok(None) };
        let agents = self.node.agents();
        let agent = agents.by_name.get(&self.pinned.agent).map(|agent| &**agent);
        let live = self.pinned.live(agent, &self.request.tool);
        if !live.is_some_and(|live| live.tool.wants_approval()) {
            return Ok(None);
        }
        let view = self.node.store.suspension(&self.lease.tenant, approval).await?;
        let by = view.and_then(|view| view.decided_by);
        Ok(by.map(|by| ApprovedBy { approval: approval.clone(), by, arguments: *arguments }))
    }
}

/// If a question has a schema that no answer could be validated against, it is asked without the schema, and says so:
/// the tool is already at work, so its question must not be lost.
fn with_usable_schema(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Answered(ToolAnswer::Pending(request)) => {
            let unusable = request.schema.as_ref().and_then(|schema| Schema::compile_sent(schema).err());
            let Some(why) = unusable else { return Outcome::Answered(ToolAnswer::Pending(request)) };
            let asked =
                request.question.as_deref().map(|question| format!("{question} ")).unwrap_or_default();
            let question = Some(format!("{asked}(the schema that came along cannot be used: {why})"));
            Outcome::Answered(ToolAnswer::Pending(SuspendRequest { question, schema: None, ..request }))
        }
        Outcome::Answered(ToolAnswer::Success { .. } | ToolAnswer::Error { .. })
        | Outcome::NotSent { .. }
        | Outcome::Unknown { .. } => outcome,
    }
}

fn not_sent(why: &str) -> Outcome {
    Outcome::NotSent { why: why.into(), retry_after_ms: None }
}

fn timed_out(after: Duration) -> Outcome {
    Outcome::Unknown { why: format!("no answer within {after:?}"), retry_after_ms: None }
}

/// A tool that panics may have acted before. If repeating it does no harm, it has simply failed.
fn panicked(class: EffectClass, panic: &str) -> Outcome {
    let why = format!("the tool panicked: {panic}");
    match class {
        EffectClass::Read | EffectClass::Idempotent => Outcome::Answered(ToolAnswer::Error { message: why }),
        EffectClass::Write => Outcome::Unknown { why, retry_after_ms: None },
    }
}
