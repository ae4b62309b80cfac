//! What a configuration would do to each held call: what the engine does with it once somebody has decided.

use std::collections::BTreeMap;
use std::fmt::Write;

use engine::agent::FrozenAgent;
use engine::arguments::Schema;
use engine::tool::ToolDefinition;
use machine::id::{AgentName, Digest, RunId, ToolName};
use machine::suspension::{Held, ResumeMode, SuspensionKind};
use machine::tool::Approval;
use serde_json::{Value, json};
use stores::held_calls::{HeldCall, SurveyedCall, UnreadableCall};

use crate::cli::config::Configuration;

/// So many of each are shown to a person.
const SHOWN_COUNT_MAX: usize = 20;

/// Ordered by how much is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    Untouched,
    /// The tool is not what was shown: whoever approves it is asked once more.
    AskAgain,
    Fail(Why),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    ModelGone,
    AgentGone,
    ToolGone,
    Blocked,
    BadArguments,
    Unreadable,
}

impl Why {
    const fn as_str(self) -> &'static str {
        match self {
            Self::ModelGone => "model_gone",
            Self::AgentGone => "agent_gone",
            Self::ToolGone => "tool_gone",
            Self::Blocked => "blocked",
            Self::BadArguments => "bad_arguments",
            Self::Unreadable => "unreadable",
        }
    }

    const fn in_words(self) -> &'static str {
        match self {
            Self::ModelGone => "its model is gone",
            Self::AgentGone => "its agent is gone",
            Self::ToolGone => "its agent does not have the tool any more",
            Self::Blocked => "the tool is blocked",
            Self::BadArguments => "its arguments do not fit the tool any more",
            Self::Unreadable => "something that is stored of it cannot be decoded; run holdpoint doctor",
        }
    }
}

/// One held call and what becomes of it.
#[derive(Clone, Debug)]
pub(super) struct Outlook {
    tenant: String,
    run: RunId,
    agent: AgentName,
    call: String,
    tool: ToolName,
    kind: SuspensionKind,
    fate: Fate,
}

impl Outlook {
    /// Whatever the configuration says, its run is halted.
    fn unreadable(call: &UnreadableCall) -> Self {
        Self {
            tenant: call.tenant.to_string(),
            run: call.run.clone(),
            agent: call.agent.clone(),
            call: call.call.to_string(),
            tool: ToolName::from(""),
            kind: call.kind,
            fate: Fate::Fail(Why::Unreadable),
        }
    }
}

/// The agents of the configuration, ready to be compared with what is held.
pub(super) struct Agents {
    models: Vec<String>,
    by_name: BTreeMap<AgentName, BTreeMap<ToolName, Tool>>,
}

struct Tool {
    definition: Digest,
    approval: Approval,
    /// None is impossible: the configuration was judged.
    schema: Option<Schema>,
}

impl Tool {
    fn of(definition: &ToolDefinition) -> Self {
        Self {
            definition: definition.digest(),
            approval: definition.approval,
            schema: Schema::compile(&definition.parameters).ok(),
        }
    }
}

impl Agents {
    pub(super) fn of(configuration: &Configuration) -> Self {
        let tools = |agent: &engine::agent::Agent| -> BTreeMap<ToolName, Tool> {
            agent.tools.iter().map(|tool| tool.definition()).map(|d| (d.name.clone(), Tool::of(d))).collect()
        };
        let agents = &configuration.agents;
        Self {
            models: configuration.providers.keys().cloned().collect(),
            by_name: agents.iter().map(|agent| (agent.name.clone(), tools(agent))).collect(),
        }
    }

    pub(super) fn outlook(&self, found: &SurveyedCall) -> Outlook {
        let held = match found {
            SurveyedCall::Call(held) => held,
            SurveyedCall::Unreadable(call) => return Outlook::unreadable(call),
        };
        Outlook {
            tenant: held.tenant.to_string(),
            run: held.run.clone(),
            agent: held.agent.clone(),
            call: held.call.id.to_string(),
            tool: held.call.tool.clone(),
            kind: held.opened.held.kind(),
            fate: self.fate(held),
        }
    }

    /// The frozen agent, if the configuration has its model.
    fn pinned(&self, revision: &str) -> Option<FrozenAgent> {
        FrozenAgent::from_json(revision)
            .ok()
            .filter(|frozen| self.models.iter().any(|model| model == frozen.model()))
    }

    /// In the order in which the engine would find out, except that a run without a model fails at its next step,
    /// whatever becomes of the call.
    fn fate(&self, held: &HeldCall) -> Fate {
        let Some(pinned) = self.pinned(&held.revision) else { return Fate::Fail(Why::ModelGone) };
        if !runs_again(held) || pinned.has_inline_tool(&held.call.tool) {
            return Fate::Untouched;
        }
        let Some(tools) = self.by_name.get(&held.agent) else { return Fate::Fail(Why::AgentGone) };
        let Some(tool) = tools.get(&held.call.tool) else { return Fate::Fail(Why::ToolGone) };
        if tool.approval == Approval::Block {
            return Fate::Fail(Why::Blocked);
        }
        if held.opened.mode == ResumeMode::ReplayToolCall
            && let (Some(schema), Some(arguments)) = (&tool.schema, held.opened.shown_arguments())
            && schema.fault(arguments).is_some()
        {
            return Fate::Fail(Why::BadArguments);
        }
        match shown(held) {
            Some(definition) if definition != tool.definition => Fate::AskAgain,
            Some(_) | None => Fate::Untouched,
        }
    }
}

/// Whether the tool is needed once somebody has answered. Where the answer is the result, it is not.
fn runs_again(held: &HeldCall) -> bool {
    match &held.opened.held {
        Held::Approval { .. } | Held::InDoubt { .. } => true,
        Held::ChildRun { .. } => false,
        Held::ClientTool | Held::External | Held::Question => match held.opened.mode {
            ResumeMode::ReplayToolCall | ResumeMode::PassDecisionToTool => true,
            ResumeMode::UseDecisionAsToolResult => false,
        },
    }
}

/// The definition that the approval is for: one that is asked for, or one that was given before.
fn shown(held: &HeldCall) -> Option<Digest> {
    match &held.opened.held {
        Held::Approval { definition } => Some(*definition),
        Held::ClientTool | Held::External | Held::Question | Held::InDoubt { .. } | Held::ChildRun { .. } => {
            held.call.approved.as_ref().map(|approved| approved.definition)
        }
    }
}

/// All of them, sorted by what becomes of them.
pub(super) struct Outlooks {
    fail: Vec<Outlook>,
    ask_again: Vec<Outlook>,
    untouched: Vec<Outlook>,
    runs: RunCounts,
}

/// A run counts once, for the worst that happens to it.
#[derive(Default)]
struct RunCounts {
    fail: usize,
    ask_again: usize,
    untouched: usize,
}

impl Outlooks {
    pub(super) fn of(all: Vec<Outlook>) -> Self {
        let mut worst: BTreeMap<(String, RunId), Fate> = BTreeMap::new();
        let mut sorted = Self {
            fail: Vec::new(),
            ask_again: Vec::new(),
            untouched: Vec::new(),
            runs: RunCounts::default(),
        };
        for outlook in all {
            let run = worst.entry((outlook.tenant.clone(), outlook.run.clone())).or_insert(outlook.fate);
            *run = outlook.fate.max(*run);
            match outlook.fate {
                Fate::Fail(_) => sorted.fail.push(outlook),
                Fate::AskAgain => sorted.ask_again.push(outlook),
                Fate::Untouched => sorted.untouched.push(outlook),
            }
        }
        for fate in worst.values() {
            match fate {
                Fate::Fail(_) => sorted.runs.fail += 1,
                Fate::AskAgain => sorted.runs.ask_again += 1,
                Fate::Untouched => sorted.runs.untouched += 1,
            }
        }
        sorted
    }

    /// Complete.
    pub(super) fn as_json(&self) -> Value {
        let group = |outlooks: &[Outlook], runs: usize| {
            let list: Vec<Value> = outlooks.iter().map(entry).collect();
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
        for (what, outlooks, runs) in groups {
            let count = outlooks.len();
            let calls = if count == 1 { "call" } else { "calls" };
            let _ =
                writeln!(text, "  {count} held {calls} {what}; runs, counted by their worst call: {runs}");
            for outlook in outlooks.iter().take(SHOWN_COUNT_MAX) {
                let Outlook { tenant, run, agent, call, tool, kind, fate } = outlook;
                let _ = write!(text, "    {run} {call}: {tool} of {agent}, {kind}, tenant {tenant}");
                let _ = match fate {
                    Fate::Fail(why) => writeln!(text, ": {}", why.in_words()),
                    Fate::AskAgain => writeln!(text, ": the tool changed"),
                    Fate::Untouched => writeln!(text),
                };
            }
            if count > SHOWN_COUNT_MAX {
                let _ = writeln!(text, "    and {} more; --json lists them all", count - SHOWN_COUNT_MAX);
            }
        }
        text
    }
}

fn entry(outlook: &Outlook) -> Value {
    let Outlook { tenant, run, agent, call, tool, kind, fate } = outlook;
    let mut entry = json!({
        "tenant": tenant,
        "run_id": run.as_str(),
        "call_id": call,
        "agent": agent.as_str(),
        "tool": tool.as_str(),
        "kind": kind.as_str(),
    });
    if let Fate::Fail(why) = fate {
        entry["why"] = why.as_str().into();
    }
    entry
}
