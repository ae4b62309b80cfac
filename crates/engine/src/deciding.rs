//! Decisions on held calls: completes what the approver said with the call's context, and submits it to the run.

use std::sync::Arc;

use machine::decision::{Decision, DecisionAction, Payload, Resume};
use machine::event::VoidReason;
use machine::id::{CallId, DecisionId, Digest, Principal, RunId, SuspensionId, tool_message_id};
use machine::inbox::{Item, Refusal, Target, Verdict, target_suspension};
pub use machine::policy::OnReject;
use machine::projection_rows::ApprovalStatus;
use machine::suspension::{ResumeMode, Suspension, SuspensionKind};
use machine::tool::Arguments;
use serde_json::Value;

use crate::arguments;
use crate::engine::Engine;
use crate::node::Node;
use crate::replaced_approval;
use crate::schema::Schema;
use crate::store::{RunView, StoreError, SuspensionView, Tenant};

/// A decision as the approver gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Decide {
    pub tenant: Tenant,
    pub run: RunId,
    pub call: CallId,
    /// The suspension that it answers. None: the open one, unless the call is in doubt, which must be named to be
    /// answered.
    pub suspension: Option<SuspensionId>,
    /// Identifies a repeat; scoped to the run.
    pub id: Option<DecisionId>,
    pub by: Principal,
    /// The kinds of suspension that the principal may answer. None: every kind.
    pub kinds: Option<Vec<SuspensionKind>>,
    pub answer: Answer,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Approval, or the answer to whatever else holds the call.
    Resume(Resumption),
    /// Denied, cancelled or abandoned.
    Cancel(Cancellation),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cancellation {
    pub reason: Option<String>,
    /// What happens to the run. None: what its policy says.
    pub then: Option<OnReject>,
    /// What happens to the run if neither `then` nor its policy says so.
    pub then_by_default: Option<OnReject>,
    /// Digest of the arguments that the approver has seen.
    pub expect_digest: Option<Digest>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resumption {
    pub payload: Payload,
    /// Edited arguments, for an approval.
    pub arguments: Option<Value>,
    /// Digest of the arguments that the approver has seen.
    pub expect_digest: Option<Digest>,
    pub mode: Option<ResumeMode>,
    pub note: Option<String>,
    /// Later calls of this tool in this thread need no approval.
    pub apply_to_future: bool,
}

impl Decide {
    /// Approves the call as it is.
    pub fn approve(run: &RunId, call: &CallId, by: &str) -> Self {
        Self::new(run, call, by, Answer::Resume(Resumption::default()))
    }

    /// Denies the call; the model receives the reason.
    pub fn reject(run: &RunId, call: &CallId, by: &str, reason: &str) -> Self {
        let reason = Some(reason.to_owned());
        Self::new(run, call, by, Answer::Cancel(Cancellation { reason, ..Cancellation::default() }))
    }

    /// The answer to a question, or the result of a call that was performed elsewhere.
    pub fn result(run: &RunId, call: &CallId, by: &str, result: Value) -> Self {
        let payload = Payload::Result(Arc::new(result));
        Self::new(run, call, by, Answer::Resume(Resumption { payload, ..Resumption::default() }))
    }

    fn new(run: &RunId, call: &CallId, by: &str, answer: Answer) -> Self {
        Self {
            tenant: Tenant::default(),
            run: run.clone(),
            call: call.clone(),
            suspension: None,
            id: None,
            by: Principal::from(by),
            kinds: None,
            answer,
        }
    }

    /// Answers only this suspension, and nothing that may be asked about the call later.
    #[must_use]
    pub fn for_suspension(mut self, suspension: &SuspensionId) -> Self {
        self.suspension = Some(suspension.clone());
        self
    }

    #[must_use]
    pub fn for_tenant(mut self, tenant: Tenant) -> Self {
        self.tenant = tenant;
        self
    }

    #[must_use]
    pub fn with_id(mut self, id: &str) -> Self {
        self.id = Some(DecisionId::from(id));
        self
    }

    /// Runs with these arguments instead of the ones that were shown.
    #[must_use]
    pub fn with_arguments(mut self, arguments: Value) -> Self {
        if let Answer::Resume(resumption) = &mut self.answer {
            resumption.arguments = Some(arguments);
        }
        self
    }
}

impl SuspensionView {
    /// Approves exactly what is shown here.
    #[must_use]
    pub fn approve(&self, by: &str) -> Decide {
        Decide::approve(&self.run, &self.call, by).for_suspension(&self.id).for_tenant(self.tenant.clone())
    }

    #[must_use]
    pub fn reject(&self, by: &str, reason: &str) -> Decide {
        Decide::reject(&self.run, &self.call, by, reason)
            .for_suspension(&self.id)
            .for_tenant(self.tenant.clone())
    }

    #[must_use]
    pub fn result(&self, by: &str, result: Value) -> Decide {
        Decide::result(&self.run, &self.call, by, result)
            .for_suspension(&self.id)
            .for_tenant(self.tenant.clone())
    }
}

/// The verdict on a decision, and the suspension that it answers as it is afterwards.
#[derive(Clone, Debug)]
pub struct Decided {
    /// The verdict that the decision was stored with, unless the suspension shows that it did not count in the end.
    pub verdict: Verdict,
    /// None if the decision addresses no suspension, or if the thread was deleted meanwhile.
    pub suspension: Option<SuspensionView>,
    /// The edited arguments of the decision that was submitted, in the form in which they run.
    pub edited: Option<Arguments>,
}

/// A verdict, and what it is about.
struct Judged {
    verdict: Verdict,
    suspension: Option<SuspensionId>,
    /// The principal whose decision counts: that of the first submission, if this one is a repeat.
    by: Principal,
    /// The edited arguments of the decision that was submitted, in the form in which they run.
    edited: Option<Arguments>,
}

impl Engine {
    /// Answers a held call. The verdict is final: an accepted decision is stored.
    pub async fn decide(&self, decision: Decide) -> Result<Verdict, StoreError> {
        Ok(judge(self.node(), &decision).await?.verdict)
    }

    /// Like [`Engine::decide`], and reads the suspension afterwards. The verdict is stored: even if the run has not
    /// processed it yet, no other decision can be accepted any more, and the store shows the suspension as decided. So
    /// there is no need to wait for a run that waits for a slot.
    pub async fn decide_and_read(&self, decision: &Decide) -> Result<Decided, StoreError> {
        decide_and_read(self.node(), decision).await
    }

    /// The approval that holds a call again after its tool has changed and `void` no longer counts. Waits until the run
    /// has judged the call; None if it is not held for approval then.
    pub async fn replacement_approval(
        &self,
        void: &SuspensionView,
    ) -> Result<Option<SuspensionId>, StoreError> {
        replaced_approval::find(self, void).await
    }

    /// Decides on a call that was requested but is not held yet. Applies only to the arguments with this digest.
    pub async fn decide_early(&self, decision: Decide, digest: Digest) -> Result<Verdict, StoreError> {
        decide_early(self.node(), &decision, digest).await
    }
}

async fn decide_and_read(node: &Arc<Node>, said: &Decide) -> Result<Decided, StoreError> {
    let Judged { verdict, suspension, by, edited } = judge(node, said).await?;
    let Some(id) = suspension.or_else(|| said.suspension.clone()) else {
        return Ok(Decided { verdict, suspension: None, edited });
    };
    let suspension = node.store.suspension(&said.tenant, &id).await?;
    let verdict = match (&verdict, &suspension) {
        (Verdict::Refused(_), _) | (_, None) => verdict,
        (Verdict::Accepted | Verdict::AlreadyApplied | Verdict::ToolChanged, Some(now)) if is_void(now) => {
            Verdict::ToolChanged
        }
        // An item that was accepted earlier has ended the run: this decision was too late after all.
        (Verdict::Accepted | Verdict::AlreadyApplied, Some(now)) if !has_won(now, &by, &said.answer) => {
            Verdict::Refused(Refusal::RunOver)
        }
        (Verdict::Accepted | Verdict::AlreadyApplied | Verdict::ToolChanged, Some(_)) => verdict,
    };
    Ok(Decided { verdict, suspension, edited })
}

/// Whether the approval no longer counts because the tool has changed.
fn is_void(now: &SuspensionView) -> bool {
    now.status == ApprovalStatus::Expired && now.reason.as_deref() == Some(VoidReason::ToolChanged.as_str())
}

/// Whether the suspension shows this decision, and not another principal's.
fn has_won(now: &SuspensionView, by: &Principal, answer: &Answer) -> bool {
    let matches_answer = match (now.kind, answer) {
        (SuspensionKind::Approval, Answer::Resume(_)) => now.status == ApprovalStatus::Approved,
        (SuspensionKind::Approval, Answer::Cancel(_)) => now.status == ApprovalStatus::Rejected,
        (SuspensionKind::Question | SuspensionKind::InDoubt, _) => now.status != ApprovalStatus::Pending,
        // No person answers these, and the store does not show who did.
        (SuspensionKind::ClientTool | SuspensionKind::External | SuspensionKind::ChildRun, _) => return true,
    };
    matches_answer && now.decided_by.as_ref() == Some(by)
}

async fn judge(node: &Arc<Node>, said: &Decide) -> Result<Judged, StoreError> {
    let Some(run) = node.store.run(&said.tenant, &said.run).await? else {
        return Err(StoreError::NotFound);
    };
    let refused = |refusal| Judged {
        verdict: Verdict::Refused(refusal),
        suspension: said.suspension.clone(),
        by: said.by.clone(),
        edited: None,
    };
    if is_over_and_undecoded(&run) {
        return Ok(refused(Refusal::RunOver));
    }
    let earlier = match &said.id {
        Some(id) => node.store.decision(&said.tenant, &said.run, id).await?,
        None => None,
    };
    let control = run.decoded()?;
    let cancels = match &said.answer {
        Answer::Cancel(cancellation) => cancellation.expect_digest,
        Answer::Resume(_) => None,
    };
    let target = Target {
        named: said.suspension.as_ref(),
        earlier: earlier.as_ref(),
        cancels,
        kinds: said.kinds.as_deref(),
    };
    let suspension = match target_suspension(control, &said.call, &target) {
        Ok(suspension) => suspension,
        Err(refusal) if is_known(node, &run, said).await? => return Ok(refused(refusal)),
        Err(_) => return Ok(refused(Refusal::UnknownCall)),
    };
    let open = control.call(&said.call).and_then(|call| call.suspension()).cloned();
    let decision = complete(node, &run, said, suspension.clone(), open.as_ref()).await?;
    let edited = match &decision.action {
        DecisionAction::Resume(resume) => resume.arguments.clone(),
        DecisionAction::Cancel { .. } => None,
    };
    let verdict = node.submit(&said.tenant, &said.run, Item::Decision(decision)).await?;
    let by = earlier.map_or_else(|| said.by.clone(), |earlier| earlier.by);
    Ok(Judged { verdict, suspension: Some(suspension), by, edited })
}

/// Whether the run has this call. A call of an earlier step is no longer in the control state, but its message is stored.
async fn is_known(node: &Node, run: &RunView, said: &Decide) -> Result<bool, StoreError> {
    if run.decoded()?.call(&said.call).is_some() {
        return Ok(true);
    }
    let message = tool_message_id(&said.call);
    let place = node.store.message(&said.tenant, &run.thread, &message).await?;
    Ok(place.is_some_and(|place| place.run == run.id))
}

async fn decide_early(node: &Arc<Node>, said: &Decide, digest: Digest) -> Result<Verdict, StoreError> {
    let Some(run) = node.store.run(&said.tenant, &said.run).await? else {
        return Err(StoreError::NotFound);
    };
    if is_over_and_undecoded(&run) {
        return Ok(Verdict::Refused(Refusal::RunOver));
    }
    let decision = complete(node, &run, said, SuspensionId::from(""), None).await?;
    node.submit(&said.tenant, &said.run, Item::Early { decision, digest }).await
}

/// Such a run was ended by the plain columns of its store, so its calls are unknown.
const fn is_over_and_undecoded(run: &RunView) -> bool {
    run.ended_at.is_some() && run.control.is_none()
}

/// Adds what the approver does not know: the live tool, and whether the answer matches its schema.
async fn complete(
    node: &Node,
    run: &RunView,
    said: &Decide,
    suspension: SuspensionId,
    open: Option<&Suspension>,
) -> Result<Decision, StoreError> {
    let agents = node.agents();
    let control = run.decoded()?;
    let pinned = node.pinned(&said.tenant, control).await?;
    let agent = agents.by_name.get(&control.agent).map(|agent| &**agent);
    let call = control.call(&said.call);
    let live = call.and_then(|call| pinned.live(agent, &call.tool));
    let schema = live.map(|live| &live.schema);
    let action = match &said.answer {
        Answer::Cancel(Cancellation { reason, then, then_by_default, expect_digest: _ }) => {
            let by_default = then_by_default.map(|default| control.policy.on_reject.unwrap_or(default));
            DecisionAction::Cancel { reason: reason.clone(), then: then.or(by_default) }
        }
        Answer::Resume(resumption) => {
            let mode = resumption.mode.or_else(|| open.map(|open| open.mode));
            let judged = against_schema(node, said, &suspension, resumption).await?;
            let edited = resumption.arguments.clone();
            let payload_arguments = match &resumption.payload {
                // A bare `true` means the arguments as they are.
                Payload::Result(value)
                    if mode == Some(ResumeMode::PassDecisionToTool) && **value != Value::Bool(true) =>
                {
                    Some(arguments::from_value(value.clone(), schema))
                }
                Payload::Result(_) | Payload::Absent | Payload::Error(_) => None,
            };
            DecisionAction::Resume(Resume {
                payload: resumption.payload.clone(),
                has_schema: judged.is_some(),
                payload_fault: judged.flatten(),
                expect_digest: resumption.expect_digest,
                arguments: edited.map(|edited| arguments::from_value(Arc::new(edited), schema)),
                payload_arguments,
                mode: resumption.mode,
                note: resumption.note.clone(),
                apply_to_future: resumption.apply_to_future,
            })
        }
    };
    Ok(Decision {
        id: said.id.clone(),
        call: said.call.clone(),
        suspension,
        by: said.by.clone(),
        accepted_at: node.clock.now(),
        definition_now: live.map(|live| live.gate.definition),
        action,
    })
}

/// The fault that the suspension's schema finds in the answer; the outer None if there is no schema.
async fn against_schema(
    node: &Node,
    said: &Decide,
    suspension: &SuspensionId,
    resumption: &Resumption,
) -> Result<Option<Option<String>>, StoreError> {
    let Payload::Result(value) = &resumption.payload else { return Ok(None) };
    let Some(view) = node.store.suspension(&said.tenant, suspension).await? else { return Ok(None) };
    let Some(schema) = &view.decoded()?.schema else { return Ok(None) };
    // A tool's schema was checked when the tool asked. A plugin is configured, so its schema is trusted.
    Ok(Some(match Schema::compile_sent(schema).or_else(|_| Schema::compile(schema)) {
        Ok(schema) => schema.fault(value),
        Err(why) => Some(format!("its schema cannot be used: {why}")),
    }))
}
