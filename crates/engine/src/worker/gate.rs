//! What the gate has to look up: whether the tool still exists, whether the arguments are valid, which grants apply.

use machine::call::Call;
use machine::id::{CallId, Principal};
use machine::input::GateInput;
use machine::phase::{HookAnswers, Phase};
use machine::policy::ApprovalScopes;
use machine::rules::{GateVerdict, evaluate};
use machine::tool::{Arguments, Performer, Tool, ToolLookup};

use super::known_calls::arguments_in;
use super::{Stop, Worker};
use crate::arguments;
use crate::node::Agents;

impl Worker {
    /// Everything the gate needs to know about a call.
    pub(super) async fn gated(&mut self, id: &CallId, hooks: HookAnswers) -> Result<GateInput, Stop> {
        let Some(call) = self.run.control().call(id).cloned() else {
            return Err(Stop::Broken(format!("call {id} is at the gate, but the run does not know it")));
        };
        let stored = self.arguments_of(&call).await?;
        let hidden = self.is_hidden(&call).await?;
        let agents = self.node.agents();
        let tool = self.tool_now(&agents, &call, hidden);
        let arguments = match &stored {
            Arguments::Valid { value, .. } => {
                let agent = agents.by_name.get(&self.pinned.agent).map(|agent| &**agent);
                let schema = self.pinned.live(agent, &call.tool).map(|tool| &tool.schema);
                arguments::from_value(value.clone(), schema)
            }
            Arguments::Invalid { .. } => stored,
        };
        let hits = match &arguments {
            Arguments::Valid { value, .. } => self.pinned.rule_hits(&call.tool, value),
            Arguments::Invalid { .. } => Vec::new(),
        };
        let loosened_by = self.run.control().loosened_by.as_ref();
        let loosening_ended = loosened_by.is_some_and(|by| !self.may_approve(by));
        let grants = Vec::new();
        let mut gated = GateInput {
            call: id.clone(),
            tool,
            arguments,
            hits,
            grants,
            loosening_ended,
            unsent_attempt: None,
            hooks,
        };
        if let ToolLookup::Known(tool) = &gated.tool {
            self.calls.gated.insert(id.clone(), tool.definition);
            if self.may_need_approval(&call, tool, &gated) {
                let mut grants = self.node.store.grants_for(&self.lease, &call.tool).await?;
                grants.retain(|grant| self.may_approve(&grant.by));
                gated.grants = grants;
            }
        }
        Ok(gated)
    }

    /// A grant ends when its giver loses the role of approver.
    fn may_approve(&self, giver: &Principal) -> bool {
        (self.node.approvers)(&self.lease.tenant, giver, &self.pinned.agent)
    }

    /// Grants are looked up only if they could matter.
    fn may_need_approval(&self, call: &Call, tool: &Tool, gated: &GateInput) -> bool {
        let agent = self.pinned.revision.policy.approval;
        let scopes = ApprovalScopes { agent, run: self.run.control().policy.approval.max(agent) };
        let rules = &self.pinned.revision.rules;
        match evaluate(rules, scopes, &call.tool, tool, &gated.arguments, &gated.hits) {
            GateVerdict::Ask { .. } => true,
            GateVerdict::Allow { .. } | GateVerdict::Deny { .. } | GateVerdict::Block => false,
        }
    }

    fn tool_now(&self, agents: &Agents, call: &Call, hidden: bool) -> ToolLookup {
        let agent = agents.by_name.get(&self.pinned.agent).map(|agent| &**agent);
        match self.pinned.live(agent, &call.tool) {
            Some(live) if self.pinned.has_tool(&call.tool) && !hidden => match &live.gate.performer {
                Performer::Agent { agent, .. } if !agents.by_name.contains_key(agent) => ToolLookup::Unknown,
                Performer::Server | Performer::Client | Performer::External | Performer::Agent { .. } => {
                    let tool = live.gate.clone();
                    ToolLookup::Known(match self.pinned.terms(&call.tool) {
                        Some(frozen) => tool.tightened_by(&frozen),
                        None => tool,
                    })
                }
            },
            Some(_) => ToolLookup::OutOfScope,
            // A tool that the agent had when the run began and no longer has is gone, even if another agent has it.
            None if !self.pinned.has_tool(&call.tool) && agents.has_tool(&call.tool) => {
                ToolLookup::OutOfScope
            }
            None => ToolLookup::Unknown,
        }
    }

    /// Whether a hook hid the tool in the step that requested the call.
    async fn is_hidden(&mut self, call: &Call) -> Result<bool, Stop> {
        let phases = self.phases();
        if !phases.has(Phase::StepStart) && !phases.has(Phase::BeforeInference) {
            return Ok(false);
        }
        if call.step != self.run.control().step {
            return Ok(false);
        }
        Ok(self.history().await?.hidden().contains(&call.tool))
    }

    /// The arguments that will run, from memory or from the event that contains them.
    pub(super) async fn arguments_of(&mut self, call: &Call) -> Result<Arguments, Stop> {
        if let Some(known) = self.calls.arguments.get(&call.arguments_seq) {
            return Ok(known.clone());
        }
        let event = self.event(call.arguments_seq).await?;
        let Some(arguments) = arguments_in(&event) else {
            return Err(Stop::Broken(format!("event {} has no arguments of {}", event.seq, call.id)));
        };
        self.calls.arguments.insert(event.seq, arguments.clone());
        Ok(arguments)
    }
}
