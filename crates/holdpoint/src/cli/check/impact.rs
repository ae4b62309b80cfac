//! What a configuration would do to each held call: how the engine would treat the call after the decision.

use std::collections::BTreeMap;
use std::fmt::Write;

use engine::agent::{Agent, FrozenAgent};
use engine::arguments::Schema;
use engine::plugin::Phase;
use engine::tool::ToolDefinition;
use machine::id::{AgentName, Digest, PluginName, RunId, ToolName};
use machine::suspension::{Held, ResumeMode, SuspensionKind};
use machine::tool::Approval;
use serde_json::{Value, json};
use stores::held_calls::{HeldCall, SurveyedCall, UnreadableCall};

use crate::cli::config::Configuration;

/// How many entries of each group are shown in the text output.
const SHOWN_COUNT_MAX: usize = 20;

/// Ordered by severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Impact {
    Untouched,
    /// The tool differs from what was shown: the approver is asked once more.
    AskAgain,
    Fail(FailReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FailReason {
    ModelGone,
    AgentGone,
    HookGone,
    ToolGone,
    Blocked,
    BadArguments,
    Unreadable,
}

impl FailReason {
    const fn as_str(self) -> &'static str {
        match self {
            Self::ModelGone => "model_gone",
            Self::AgentGone => "agent_gone",
            Self::HookGone => "hook_gone",
            Self::ToolGone => "tool_gone",
            Self::Blocked => "blocked",
            Self::BadArguments => "bad_arguments",
            Self::Unreadable => "unreadable",
        }
    }

    const fn describe(self) -> &'static str {
        match self {
            Self::ModelGone => "its model is gone",
            Self::AgentGone => "its agent is gone",
            Self::HookGone => "its agent does not have a hook any more that its runs need",
            Self::ToolGone => "its agent does not have the tool any more",
            Self::Blocked => "the tool is blocked",
            Self::BadArguments => "its arguments do not fit the tool any more",
            Self::Unreadable => "something that is stored of it cannot be decoded; run holdpoint doctor",
        }
    }
}

/// One held call and what would happen to it.
#[derive(Clone, Debug)]
pub(super) struct CallImpact {
    tenant: String,
    run: RunId,
    agent: AgentName,
    call: String,
    tool: ToolName,
    kind: SuspensionKind,
    impact: Impact,
}

impl CallImpact {
    /// The run of this call is halted, whatever the configuration says.
    fn unreadable(call: &UnreadableCall) -> Self {
        Self {
            tenant: call.tenant.to_string(),
            run: call.run.clone(),
            agent: call.agent.clone(),
            call: call.call.to_string(),
            tool: ToolName::from(""),
            kind: call.kind,
            impact: Impact::Fail(FailReason::Unreadable),
        }
    }
}

/// The agents of the configuration, prepared for comparison with the held calls.
pub(super) struct Agents {
    models: Vec<String>,
    by_name: BTreeMap<AgentName, CurrentAgent>,
}

struct CurrentAgent {
    tools: BTreeMap<ToolName, CurrentTool>,
    hooks: Vec<PluginName>,
}

impl CurrentAgent {
    fn new(agent: &Agent) -> Self {
        let definitions = agent.tools.iter().map(|tool| tool.definition());
        Self {
            tools: definitions.map(|found| (found.name.clone(), CurrentTool::new(found))).collect(),
            hooks: agent.plugins.iter().map(|plugin| plugin.name().clone()).collect(),
        }
    }

    /// Whether a hook is gone that the run needs in one of these phases.
    fn lacks_hook(&self, pinned: &FrozenAgent, phases: &[Phase]) -> bool {
        pinned
            .plugins()
            .any(|(name, asked)| phases.iter().any(|phase| asked.has(*phase)) && !self.hooks.contains(name))
    }
}

struct CurrentTool {
    definition: Digest,
    approval: Approval,
    /// Never None: the configuration has been validated.
    schema: Option<Schema>,
}

impl CurrentTool {
    fn new(definition: &ToolDefinition) -> Self {
        Self {
            definition: definition.digest(),
            approval: definition.approval,
            schema: Schema::compile(&definition.parameters).ok(),
        }
    }
}

impl Agents {
    pub(super) fn from_configuration(configuration: &Configuration) -> Self {
        let agents = &configuration.agents;
        Self {
            models: configuration.providers.keys().cloned().collect(),
            by_name: agents.iter().map(|agent| (agent.name.clone(), CurrentAgent::new(agent))).collect(),
        }
    }

    pub(super) fn assess(&self, found: &SurveyedCall) -> CallImpact {
        let held = match found {
            SurveyedCall::Call(held) => held,
            SurveyedCall::Unreadable(call) => return CallImpact::unreadable(call),
        };
        CallImpact {
            tenant: held.tenant.to_string(),
            run: held.run.clone(),
            agent: held.agent.clone(),
            call: held.call.id.to_string(),
            tool: held.call.tool.clone(),
            kind: held.opened.held.kind(),
            impact: self.impact(held),
        }
    }

    /// The frozen agent, if the configuration has its model.
    fn frozen_agent(&self, revision: &str) -> Option<FrozenAgent> {
        FrozenAgent::from_json(revision)
            .ok()
            .filter(|frozen| self.models.iter().any(|model| model == frozen.model()))
    }

    /// Checks in the order in which the engine would. One exception: a run without a model fails at its next step,
    /// whatever happens to the call.
    fn impact(&self, held: &HeldCall) -> Impact {
        let Some(pinned) = self.frozen_agent(&held.revision) else {
            return Impact::Fail(FailReason::ModelGone);
        };
        let agent = self.by_name.get(&held.agent);
        // Without them, the run fails at its next step.
        let before_tools = [Phase::StepStart, Phase::BeforeInference, Phase::AfterInference];
        if agent.is_some_and(|agent| agent.lacks_hook(&pinned, &before_tools)) {
            return Impact::Fail(FailReason::HookGone);
        }
        if !needs_tool(held) {
            return Impact::Untouched;
        }
        if agent.is_some_and(|agent| agent.lacks_hook(&pinned, &[Phase::BeforeToolExecute])) {
            return Impact::Fail(FailReason::HookGone);
        }
        if pinned.has_inline_tool(&held.call.tool) {
            return Impact::Untouched;
        }
        let Some(agent) = agent else { return Impact::Fail(FailReason::AgentGone) };
        let Some(tool) = agent.tools.get(&held.call.tool) else { return Impact::Fail(FailReason::ToolGone) };
        if tool.approval == Approval::Block {
            return Impact::Fail(FailReason::Blocked);
        }
        if held.opened.mode == ResumeMode::ReplayToolCall
            && let (Some(schema), Some(arguments)) = (&tool.schema, held.opened.shown_arguments())
            && schema.fault(arguments).is_some()
        {
            return Impact::Fail(FailReason::BadArguments);
        }
        match approved_definition(held) {
            Some(definition) if definition != tool.definition => Impact::AskAgain,
            Some(_) | None => Impact::Untouched,
        }
    }
}

/// Whether the tool is needed after the decision. It is not if the answer is the result.
fn needs_tool(held: &HeldCall) -> bool {
    match &held.opened.held {
        Held::Approval { .. } | Held::InDoubt { .. } => true,
        Held::ChildRun { .. } => false,
        Held::ClientTool | Held::External | Held::Question => match held.opened.mode {
            ResumeMode::ReplayToolCall | ResumeMode::PassDecisionToTool => true,
            ResumeMode::UseDecisionAsToolResult => false,
        },
    }
}

/// The definition that the approval is for: a requested approval, or one that was given before.
fn approved_definition(held: &HeldCall) -> Option<Digest> {
    let given_before = || held.call.approved.as_ref().map(|approved| approved.definition);
    held.opened.held.definition().or_else(given_before)
}

/// All held calls, grouped by what would happen to them.
pub(super) struct ImpactReport {
    fail: Vec<CallImpact>,
    ask_again: Vec<CallImpact>,
    untouched: Vec<CallImpact>,
    runs: ImpactedRuns,
}

/// Each run counts once, for the worst thing that would happen to it.
#[derive(Default)]
struct ImpactedRuns {
    fail: usize,
    ask_again: usize,
    untouched: usize,
}

impl ImpactReport {
    pub(super) fn new(all: Vec<CallImpact>) -> Self {
        let mut worst: BTreeMap<(String, RunId), Impact> = BTreeMap::new();
        let mut sorted = Self {
            fail: Vec::new(),
            ask_again: Vec::new(),
            untouched: Vec::new(),
            runs: ImpactedRuns::default(),
        };
        for call_impact in all {
            let run = worst
                .entry((call_impact.tenant.clone(), call_impact.run.clone()))
                .or_insert(call_impact.impact);
            *run = call_impact.impact.max(*run);
            match call_impact.impact {
                Impact::Fail(_) => sorted.fail.push(call_impact),
                Impact::AskAgain => sorted.ask_again.push(call_impact),
                Impact::Untouched => sorted.untouched.push(call_impact),
            }
        }
        for impact in worst.values() {
            match impact {
                Impact::Fail(_) => sorted.runs.fail += 1,
                Impact::AskAgain => sorted.runs.ask_again += 1,
                Impact::Untouched => sorted.runs.untouched += 1,
            }
        }
        sorted
    }

    /// Lists every call, without a limit.
    pub(super) fn as_json(&self) -> Value {
        let group = |call_impacts: &[CallImpact], runs: usize| {
            let list: Vec<Value> = call_impacts.iter().map(call_as_json).collect();
            json!({"run_count": runs, "call_count": list.len(), "calls": list})
        };
        json!({
            "fail": group(&self.fail, self.runs.fail),
            "ask_again": group(&self.ask_again, self.runs.ask_again),
            "untouched": group(&self.untouched, self.runs.untouched),
        })
    }

    pub(super) fn as_text(&self, store: &str) -> String {
        let mut text = format!("\n{store}:\n");
        let groups = [
            ("would fail", &self.fail, self.runs.fail),
            ("would be asked about again", &self.ask_again, self.runs.ask_again),
            ("would not be touched", &self.untouched, self.runs.untouched),
        ];
        for (what, call_impacts, runs) in groups {
            let count = call_impacts.len();
            let calls = if count == 1 { "call" } else { "calls" };
            let _ =
                writeln!(text, "  {count} held {calls} {what}; runs, counted by their worst call: {runs}");
            for call_impact in call_impacts.iter().take(SHOWN_COUNT_MAX) {
                let CallImpact { tenant, run, agent, call, tool, kind, impact } = call_impact;
                let _ = write!(text, "    {run} {call}: {tool} of {agent}, {kind}, tenant {tenant}");
                let _ = match impact {
                    Impact::Fail(why) => writeln!(text, ": {}", why.describe()),
                    Impact::AskAgain => writeln!(text, ": the tool changed"),
                    Impact::Untouched => writeln!(text),
                };
            }
            if count > SHOWN_COUNT_MAX {
                let _ = writeln!(text, "    and {} more; --json lists them all", count - SHOWN_COUNT_MAX);
            }
        }
        text
    }
}

fn call_as_json(call_impact: &CallImpact) -> Value {
    let CallImpact { tenant, run, agent, call, tool, kind, impact } = call_impact;
    let mut entry = json!({
        "tenant": tenant,
        "run_id": run.as_str(),
        "call_id": call,
        "agent": agent.as_str(),
        "tool": tool.as_str(),
        "kind": kind.as_str(),
    });
    if let Impact::Fail(why) = impact {
        entry["why"] = why.as_str().into();
    }
    entry
}
