//! Decisions on held calls: completes what the approver said with the call's context, and submits it to the run.

use std::sync::Arc;

use machine::decision::{Decision, DecisionAction, Payload, Resume};
use machine::id::{CallId, DecisionId, Digest, Principal, RunId, SuspensionId};
use machine::inbox::{Item, Refusal, Verdict, target_suspension};
pub use machine::policy::OnReject;
use machine::suspension::{ResumeMode, Suspension};
use serde_json::Value;

use crate::arguments;
use crate::node::Node;
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
    pub answer: Answer,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Approval, or the answer to whatever else holds the call.
    Resume(Resumption),
    /// Denied, cancelled or abandoned.
    Cancel { reason: Option<String>, then: Option<OnReject> },
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
        Self::new(run, call, by, Answer::Cancel { reason, then: None })
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

pub(crate) async fn decide(node: &Arc<Node>, said: Decide) -> Result<Verdict, StoreError> {
    let Some(run) = node.store.run(&said.tenant, &said.run).await? else {
        return Err(StoreError::NotFound);
    };
    if is_over_and_undecoded(&run) {
        return Ok(Verdict::Refused(Refusal::RunOver));
    }
    let earlier = match &said.id {
        Some(id) => node.store.decision(&said.tenant, &said.run, id).await?,
        None => None,
    };
    // The agent that the run was pinned to may no longer be decodable.
    if run.ended_at.is_some() && earlier.is_none() {
        return Ok(Verdict::Refused(Refusal::RunOver));
    }
    let control = run.decoded()?;
    let open = control.call(&said.call).and_then(|call| call.suspension()).cloned();
    let named = earlier.map(|earlier| earlier.suspension).or_else(|| said.suspension.clone());
    let suspension = match target_suspension(control, &said.call, named.as_ref()) {
        Ok(suspension) => suspension,
        Err(refusal) => return Ok(Verdict::Refused(refusal)),
    };
    let decision = complete(node, &run, &said, suspension, open.as_ref()).await?;
    node.submit(&said.tenant, &said.run, Item::Decision(decision)).await
}

/// Decides before the call is held: applies only to the arguments with this digest.
pub(crate) async fn decide_early(
    node: &Arc<Node>,
    said: Decide,
    digest: Digest,
) -> Result<Verdict, StoreError> {
    let Some(run) = node.store.run(&said.tenant, &said.run).await? else {
        return Err(StoreError::NotFound);
    };
    if is_over_and_undecoded(&run) {
        return Ok(Verdict::Refused(Refusal::RunOver));
    }
    let decision = complete(node, &run, &said, SuspensionId::from(""), None).await?;
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
        Answer::Cancel { reason, then } => DecisionAction::Cancel { reason: reason.clone(), then: *then },
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
