//! Agents: model, tools and rules; as described by the embedder, as compiled for use, and as frozen for runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use machine::id::{AgentName, Digest, PluginName, ToolName};
use machine::phase::{Phase, PhaseSet};
pub use machine::policy::Policy;
use machine::revision::TOOL_NAME_BYTES_MAX;
pub use machine::revision::{Limits, Revision, StopCondition};
pub use machine::rules::{ArgumentTest, Condition, Rule, RuleAction};
use machine::rules::{PatternHit, at_path};
use machine::tool::{Approval, ApprovalTerms, EffectClass, OnExpiry, Performer, Tool as GateTool};
pub use machine::trim::Trim;
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::Model;
use crate::output::WantedOutput;
use crate::plugin::Plugin;
use crate::schema::Schema;
use crate::tool::{DeclaredTool, Tool, ToolDefinition};

/// A description of an agent. Everything that is not set has a cautious default.
#[derive(Clone)]
pub struct Agent {
    pub name: AgentName,
    pub instructions: String,
    pub model: Arc<dyn Model>,
    /// The name of the model: runs are pinned to it.
    pub model_name: String,
    pub tools: Vec<Arc<dyn Tool>>,
    /// Other available models, by name: a run that began with one of them continues with it, even if no agent uses it
    /// any more.
    pub other_models: BTreeMap<String, Arc<dyn Model>>,
    /// Names of other tools of the server, which no inline tool may use.
    pub reserved: BTreeSet<ToolName>,
    pub plugins: Vec<Arc<dyn Plugin>>,
    pub policy: Policy,
    pub rules: Vec<Rule>,
    pub stop: Vec<StopCondition>,
    pub limits: Limits,
    /// A JSON Schema that the last answer of a run has to match.
    pub output_schema: Option<Arc<Value>>,
    /// How much of a long thread the model sees.
    pub trim: Trim,
}

impl Agent {
    pub fn new(name: &str, model: impl Model) -> Self {
        Self {
            name: AgentName::from(name),
            instructions: String::new(),
            model: Arc::new(model),
            model_name: name.to_owned(),
            tools: Vec::new(),
            other_models: BTreeMap::new(),
            reserved: BTreeSet::new(),
            plugins: Vec::new(),
            policy: Policy::default(),
            rules: Vec::new(),
            stop: vec![StopCondition::MaxRounds { rounds: ROUNDS_DEFAULT }],
            limits: Limits::default(),
            output_schema: None,
            trim: Trim::default(),
        }
    }

    #[must_use]
    pub fn instructions(mut self, text: impl Into<String>) -> Self {
        self.instructions = text.into();
        self
    }

    #[must_use]
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    #[must_use]
    pub fn plugin(mut self, plugin: impl Plugin) -> Self {
        self.plugins.push(Arc::new(plugin));
        self
    }

    #[must_use]
    pub const fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Replaces all stop conditions. They are checked in this order: the first that fires wins.
    #[must_use]
    pub fn stop_when(mut self, conditions: impl IntoIterator<Item = StopCondition>) -> Self {
        self.stop = conditions.into_iter().collect();
        self
    }

    #[must_use]
    pub const fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Runs end with JSON that matches this JSON Schema, or fail.
    #[must_use]
    pub fn output_schema(mut self, schema: impl Into<Arc<Value>>) -> Self {
        self.output_schema = Some(schema.into());
        self
    }

    /// The model sees the newest turns that fit.
    #[must_use]
    pub const fn trim(mut self, trim: Trim) -> Self {
        self.trim = trim;
        self
    }
}

/// Maximum number of rounds of an agent without stop conditions of its own.
pub const ROUNDS_DEFAULT: u32 = 25;

/// What is wrong with a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentError {
    pub agent: AgentName,
    pub why: String,
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "agent {}: {}", self.agent, self.why)
    }
}

impl std::error::Error for AgentError {}

/// An agent that is ready for use: its description has been fully checked.
pub(crate) struct LiveAgent {
    pub(crate) name: AgentName,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) other_models: BTreeMap<String, Arc<dyn Model>>,
    pub(crate) tools: BTreeMap<ToolName, LiveTool>,
    pub(crate) reserved: BTreeSet<ToolName>,
    pub(crate) plugins: Vec<Arc<dyn Plugin>>,
    pub(crate) frozen: FrozenAgent,
    pub(crate) pinned: Arc<Pinned>,
}

pub(crate) struct LiveTool {
    pub(crate) tool: Arc<dyn Tool>,
    pub(crate) schema: Schema,
    /// The tool as the gate sees it.
    pub(crate) gate: GateTool,
}

impl LiveTool {
    fn compile(
        tool: Arc<dyn Tool>,
        schema: impl Fn(&Value) -> Result<Schema, String>,
    ) -> Result<Self, String> {
        let definition = tool.definition();
        if definition.name.as_str().is_empty() || definition.name.as_str().len() > TOOL_NAME_BYTES_MAX {
            return Err(format!("a name has 1 to {TOOL_NAME_BYTES_MAX} bytes"));
        }
        let schema = schema(&definition.parameters)
            .map_err(|why| format!("its parameters are no JSON Schema: {why}"))?;
        let gate = gate_tool(definition);
        Ok(Self { tool, schema, gate })
    }
}

impl LiveAgent {
    pub(crate) fn compile(agent: Agent) -> Result<Self, AgentError> {
        let fault = |why: String| AgentError { agent: agent.name.clone(), why };
        let mut tools = BTreeMap::new();
        for tool in &agent.tools {
            let name = tool.definition().name.clone();
            let live = LiveTool::compile(tool.clone(), Schema::compile);
            let live = live.map_err(|why| fault(format!("tool {name}: {why}")))?;
            if tools.insert(name.clone(), live).is_some() {
                return Err(fault(format!("tool {name} is there twice; give one of them another name")));
            }
        }
        for (plugin, index) in agent.plugins.iter().zip(0..) {
            if agent.plugins.iter().take(index).any(|other| other.name() == plugin.name()) {
                return Err(fault(format!("plugin {} is there twice", plugin.name())));
            }
        }
        let phases: PhaseSet = Phase::ALL
            .into_iter()
            .filter(|phase| agent.plugins.iter().any(|plugin| plugin.phases().has(*phase)))
            .collect();
        let frozen = FrozenAgent {
            agent: agent.name.clone(),
            instructions: agent.instructions.clone(),
            model: agent.model_name.clone(),
            tools: agent.tools.iter().map(|tool| FrozenTool::from_definition(tool.definition())).collect(),
            inline_tools: Vec::new(),
            output_schema: agent.output_schema.clone(),
            output_is_inline: false,
            trim: agent.trim,
            plugins: agent.plugins.iter().map(|plugin| (plugin.name().clone(), plugin.phases())).collect(),
            revision: Revision {
                policy: agent.policy,
                rules: agent.rules.clone(),
                stop: agent.stop.clone(),
                phases,
                limits: agent.limits,
            },
        };
        let pinned = Arc::new(Pinned::compile(&frozen).map_err(|why| fault(why.to_string()))?);
        let Agent { name, model, other_models, reserved, plugins, .. } = agent;
        Ok(Self { name, model, other_models, tools, reserved, plugins, frozen, pinned })
    }
}

fn gate_tool(definition: &ToolDefinition) -> GateTool {
    GateTool {
        definition: definition.digest(),
        class: definition.effect,
        approval: definition.approval,
        performer: definition.performer.clone(),
        expires_in_ms: definition.expires_in.map(milliseconds),
        on_expiry: definition.on_expiry,
    }
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// An agent as it is stored: a run is pinned to one, whatever happens to the configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FrozenAgent {
    pub(crate) agent: AgentName,
    pub(crate) instructions: String,
    pub(crate) model: String,
    pub(crate) tools: Vec<FrozenTool>,
    /// Tools that came with a message: they are in no configuration, so this is their only definition.
    #[serde(default, rename = "brought", skip_serializing_if = "Vec::is_empty")]
    inline_tools: Vec<FrozenTool>,
    /// The message's schema, otherwise the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output_schema: Option<Arc<Value>>,
    /// The schema is the message's, so the limits for sent schemas apply.
    #[serde(default, rename = "output_brought", skip_serializing_if = "std::ops::Not::not")]
    output_is_inline: bool,
    #[serde(default, skip_serializing_if = "Trim::is_unlimited")]
    trim: Trim,
    /// In registration order. The hooks of a plugin that is gone fail; they are not skipped.
    pub(crate) plugins: Vec<(PluginName, PhaseSet)>,
    pub(crate) revision: Revision,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FrozenTool {
    name: ToolName,
    description: String,
    parameters: Arc<Value>,
    effect: EffectClass,
    approval: Approval,
    performer: Performer,
    expires_in_ms: Option<u64>,
    on_expiry: OnExpiry,
}

impl FrozenTool {
    fn from_definition(definition: &ToolDefinition) -> Self {
        Self {
            name: definition.name.clone(),
            description: definition.description.clone(),
            parameters: definition.parameters.clone(),
            effect: definition.effect,
            approval: definition.approval,
            performer: definition.performer.clone(),
            expires_in_ms: definition.expires_in.map(milliseconds),
            on_expiry: definition.on_expiry,
        }
    }

    fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: self.name.clone(),
            description: self.description.clone(),
            parameters: self.parameters.clone(),
            effect: self.effect,
            approval: self.approval,
            performer: self.performer.clone(),
            expires_in: self.expires_in_ms.map(Duration::from_millis),
            on_expiry: self.on_expiry,
            timeout: crate::tool::TOOL_TIMEOUT,
        }
    }
}

impl FrozenAgent {
    /// The same agent for one message that has its own tools or its own output schema.
    pub(crate) fn with_inline(&self, tools: &[ToolDefinition], output_schema: Option<&Arc<Value>>) -> Self {
        // If the message wants the agent's own schema, it stays the agent's.
        let sent = output_schema.filter(|schema| self.output_schema.as_ref() != Some(*schema));
        Self {
            inline_tools: tools.iter().map(FrozenTool::from_definition).collect(),
            output_schema: sent.or(self.output_schema.as_ref()).cloned(),
            output_is_inline: sent.is_some(),
            ..self.clone()
        }
    }

    fn compile_inline_tools(&self) -> Result<BTreeMap<ToolName, LiveTool>, String> {
        let compiled = self.inline_tools.iter().map(|tool| {
            LiveTool::compile(Arc::new(DeclaredTool::new(tool.definition())), Schema::compile_sent)
                .map(|live| (tool.name.clone(), live))
                .map_err(|why| format!("tool {}: {why}", tool.name))
        });
        compiled.collect()
    }

    fn compile_output(&self) -> Result<Option<WantedOutput>, String> {
        let compile = if self.output_is_inline { WantedOutput::sent } else { WantedOutput::configured };
        self.output_schema.as_ref().map(compile).transpose()
    }

    /// Parses the stored text.
    pub fn from_json(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// The name of the model that its runs use.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The plugins that its runs ask, in order.
    pub fn plugins(&self) -> impl Iterator<Item = (&PluginName, PhaseSet)> {
        self.plugins.iter().map(|(name, phases)| (name, *phases))
    }

    /// Whether the tool came with a message, so that no configuration applies to it.
    #[must_use]
    pub fn has_inline_tool(&self, tool: &ToolName) -> bool {
        self.inline_tools.iter().any(|known| known.name == *tool)
    }

    /// The stored text. The same agent has the same text, and therefore the same digest.
    pub(crate) fn text(&self) -> Result<String, String> {
        serde_json::to_string(self).map_err(|error| error.to_string())
    }
}

/// A frozen agent, compiled for the runs that are pinned to it.
pub(crate) struct Pinned {
    pub(crate) digest: Digest,
    pub(crate) agent: AgentName,
    /// Including the instructions about the output.
    pub(crate) instructions: Arc<str>,
    pub(crate) output: Option<WantedOutput>,
    pub(crate) trim: Trim,
    pub(crate) model: String,
    /// The tools that the model sees.
    pub(crate) tools: Vec<Arc<ToolDefinition>>,
    inline_tools: BTreeMap<ToolName, LiveTool>,
    pub(crate) plugins: Vec<(PluginName, PhaseSet)>,
    pub(crate) revision: Arc<Revision>,
    stop_patterns: Vec<(u16, Regex)>,
    rule_patterns: Vec<RulePattern>,
    /// Approximate size in memory.
    pub(crate) bytes: usize,
}

/// Which part of a frozen agent cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PinError {
    Agent(String),
    /// A tool that came with the message.
    Tool(String),
    Output(String),
}

impl fmt::Display for PinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(why) | Self::Tool(why) => f.write_str(why),
            Self::Output(why) => write!(f, "output_schema: {why}"),
        }
    }
}

/// Estimated memory of compiled schemas per byte of their text.
const COMPILED_PER_BYTE: usize = 16;

struct RulePattern {
    hit: PatternHit,
    tool: ToolName,
    path: Vec<String>,
    pattern: Regex,
}

impl Pinned {
    pub(crate) fn compile(frozen: &FrozenAgent) -> Result<Self, PinError> {
        let regex = |what: &str, pattern: &str| {
            Regex::new(pattern).map_err(|error| PinError::Agent(format!("{what}: {error}")))
        };
        let mut stop_patterns = Vec::new();
        for (condition, index) in frozen.revision.stop.iter().zip(0_u16..) {
            if let StopCondition::ContentMatch { pattern } = condition {
                stop_patterns.push((index, regex(&format!("stop condition {index}"), pattern)?));
            }
        }
        let mut rule_patterns = Vec::new();
        for (rule, index) in frozen.revision.rules.iter().zip(0_u16..) {
            for (condition, position) in rule.when.iter().zip(0_u16..) {
                if let ArgumentTest::Matches(pattern) = &condition.test {
                    rule_patterns.push(RulePattern {
                        hit: PatternHit { rule: index, condition: position },
                        tool: rule.tool.clone(),
                        path: condition.path.clone(),
                        pattern: regex(&format!("rule {index}, condition {position}"), pattern)?,
                    });
                }
            }
        }
        let inline_tools = frozen.compile_inline_tools().map_err(PinError::Tool)?;
        let output = frozen.compile_output().map_err(PinError::Output)?;
        let shown = frozen.tools.iter().chain(&frozen.inline_tools);
        let text = frozen.text().map_err(PinError::Agent)?;
        let patterns = inline_tools.values().map(|tool| tool.schema.bytes()).sum::<usize>();
        Ok(Self {
            digest: Digest::sha256(text.as_bytes()),
            bytes: text.len() * COMPILED_PER_BYTE + patterns + output.as_ref().map_or(0, WantedOutput::bytes),
            agent: frozen.agent.clone(),
            instructions: match &output {
                Some(output) => output.instructions_with_schema(&frozen.instructions),
                None => Arc::from(frozen.instructions.as_str()),
            },
            output,
            trim: frozen.trim,
            model: frozen.model.clone(),
            tools: shown.map(|tool| Arc::new(tool.definition())).collect(),
            inline_tools,
            plugins: frozen.plugins.clone(),
            revision: Arc::new(frozen.revision.clone()),
            stop_patterns,
            rule_patterns,
        })
    }

    pub(crate) fn has_tool(&self, name: &ToolName) -> bool {
        self.tools.iter().any(|tool| tool.name == *name)
    }

    /// The approval terms of a tool in the frozen agent.
    pub(crate) fn terms(&self, name: &ToolName) -> Option<ApprovalTerms> {
        let frozen = self.tools.iter().find(|tool| tool.name == *name)?;
        Some(ApprovalTerms {
            approval: frozen.approval,
            expires_in_ms: frozen.expires_in.map(milliseconds),
            on_expiry: frozen.on_expiry,
        })
    }

    /// The tool as it is now. An inline tool stays as it was sent; all others are looked up in the configuration.
    pub(crate) fn live<'a>(&'a self, agent: Option<&'a LiveAgent>, name: &ToolName) -> Option<&'a LiveTool> {
        self.inline_tools.get(name).or_else(|| agent?.tools.get(name))
    }

    pub(crate) fn inline_tool(&self, name: &ToolName) -> Option<&Arc<ToolDefinition>> {
        self.inline_tools.get(name).map(|live| live.tool.definition())
    }

    /// Indexes of the stop conditions whose pattern matches the text.
    pub(crate) fn matched_stop_conditions(&self, text: &str) -> Vec<u16> {
        let hits = self.stop_patterns.iter().filter(|(_, pattern)| pattern.is_match(text));
        hits.map(|(index, _)| *index).collect()
    }

    pub(crate) fn rule_hits(&self, tool: &ToolName, arguments: &Value) -> Vec<PatternHit> {
        let hits = self.rule_patterns.iter().filter(|known| {
            known.tool == *tool
                && at_path(arguments, &known.path)
                    .and_then(Value::as_str)
                    .is_some_and(|text| known.pattern.is_match(text))
        });
        hits.map(|known| known.hit).collect()
    }
}
