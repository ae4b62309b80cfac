//! The eight phases, what a hook may answer in each, and how several answers about one call are combined.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{PluginName, ToolName};
use crate::json_value::{self, ValueFault};
use crate::named_enum::named_enum;
use crate::suspension::{ResumeMode, SuspensionKind};
use crate::tool::{Arguments, OnExpiry};

named_enum! {
    pub enum Phase {
        RunStart = "run_start",
        StepStart = "step_start",
        BeforeInference = "before_inference",
        AfterInference = "after_inference",
        BeforeToolExecute = "before_tool_execute",
        AfterToolExecute = "after_tool_execute",
        StepEnd = "step_end",
        RunEnd = "run_end",
    }
}

impl Phase {
    const fn bit(self) -> u8 {
        match self {
            Self::RunStart => 1,
            Self::StepStart => 1 << 1,
            Self::BeforeInference => 1 << 2,
            Self::AfterInference => 1 << 3,
            Self::BeforeToolExecute => 1 << 4,
            Self::AfterToolExecute => 1 << 5,
            Self::StepEnd => 1 << 6,
            Self::RunEnd => 1 << 7,
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The phases that at least one plugin subscribes to, or that have been answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PhaseSet(u8);

impl PhaseSet {
    pub(crate) const NONE: Self = Self(0);

    #[must_use]
    pub const fn with(self, phase: Phase) -> Self {
        Self(self.0 | phase.bit())
    }

    #[must_use]
    pub const fn has(self, phase: Phase) -> bool {
        self.0 & phase.bit() != 0
    }
}

impl FromIterator<Phase> for PhaseSet {
    fn from_iter<I: IntoIterator<Item = Phase>>(phases: I) -> Self {
        phases.into_iter().fold(Self::default(), Self::with)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Run,
    Thread,
}

/// What a hook may ask for. Each action belongs to certain phases; in any other phase it is an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    SetState {
        key: String,
        scope: Scope,
        value: Arc<Value>,
    },
    End,
    AddInstruction {
        text: String,
    },
    HideTool {
        tool: ToolName,
    },
    SetParam {
        name: String,
        value: Arc<Value>,
    },
    ReplaceMessage {
        message: crate::id::MessageId,
        text: String,
    },
    SkipInference,
    /// The index is the call's position in the model's answer.
    DropCall {
        index: u16,
    },
    SetArguments {
        index: u16,
        arguments: Arguments,
    },
    Block {
        reason: String,
    },
    Suspend(SuspendRequest),
    SetResult(SuppliedResult),
    AddNote {
        text: String,
    },
}

/// The notes that one answer asks for, one text per line, starting with the first that is not empty. None if it asks
/// for no note.
#[must_use]
pub fn note_text(actions: &[Action]) -> Option<String> {
    let mut note: Option<String> = None;
    for action in actions {
        if let Action::AddNote { text } = action {
            let note = note.get_or_insert_default();
            if !note.is_empty() {
                note.push('\n');
            }
            note.push_str(text);
        }
    }
    note
}

impl Action {
    #[must_use]
    pub const fn belongs_to(&self, phase: Phase) -> bool {
        match self {
            Self::SetState { .. } => true,
            Self::End => {
                matches!(phase, Phase::RunStart | Phase::AfterInference | Phase::StepEnd)
            }
            Self::AddInstruction { .. }
            | Self::HideTool { .. }
            | Self::SetParam { .. }
            | Self::ReplaceMessage { .. }
            | Self::SkipInference => matches!(phase, Phase::StepStart | Phase::BeforeInference),
            Self::DropCall { .. } | Self::SetArguments { .. } => matches!(phase, Phase::AfterInference),
            Self::Block { .. } | Self::Suspend(_) | Self::SetResult(_) => {
                matches!(phase, Phase::BeforeToolExecute)
            }
            Self::AddNote { .. } => matches!(phase, Phase::AfterToolExecute),
        }
    }

    /// Why a value in the action could not be read back from the log.
    fn value_fault(&self) -> Option<ValueFault> {
        match self {
            Self::SetState { value, .. }
            | Self::SetParam { value, .. }
            | Self::SetArguments { arguments: Arguments::Valid { value, .. }, .. }
            | Self::SetResult(SuppliedResult::Success { value, .. }) => json_value::fault(value),
            Self::Suspend(request) | Self::SetResult(SuppliedResult::Pending(request)) => {
                request.value_fault()
            }
            Self::SetArguments { arguments: Arguments::Invalid { .. }, .. }
            | Self::SetResult(SuppliedResult::Error { .. })
            | Self::End
            | Self::AddInstruction { .. }
            | Self::HideTool { .. }
            | Self::ReplaceMessage { .. }
            | Self::SkipInference
            | Self::DropCall { .. }
            | Self::Block { .. }
            | Self::AddNote { .. } => None,
        }
    }

    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::SetState { .. } => "set_state",
            Self::End => "end",
            Self::AddInstruction { .. } => "add_instruction",
            Self::HideTool { .. } => "hide_tool",
            Self::SetParam { .. } => "set_param",
            Self::ReplaceMessage { .. } => "replace_message",
            Self::SkipInference => "skip_inference",
            Self::DropCall { .. } => "drop_call",
            Self::SetArguments { .. } => "set_arguments",
            Self::Block { .. } => "block",
            Self::Suspend(_) => "suspend",
            Self::SetResult(_) => "set_result",
            Self::AddNote { .. } => "add_note",
        }
    }
}

/// What a hook or a tool that holds a call asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuspendRequest {
    pub kind: AskKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::event_codec::deserialize_present"
    )]
    pub schema: Option<Arc<Value>>,
    pub mode: ResumeMode,
    /// Returned with the answer. The shell limits its size when it accepts it.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::event_codec::deserialize_present"
    )]
    pub resume_state: Option<Arc<Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_ms: Option<u64>,
    pub on_expiry: OnExpiry,
}

impl SuspendRequest {
    /// Why the schema or the state could not be read back from the log.
    pub(crate) fn value_fault(&self) -> Option<ValueFault> {
        let mut values = [&self.schema, &self.resume_state].into_iter().flatten();
        values.find_map(|value| json_value::fault(value))
    }

    /// A person has to approve the call before it runs.
    #[must_use]
    pub fn approval(question: &str) -> Self {
        Self::new(AskKind::Approval, question, ResumeMode::ReplayToolCall)
    }

    /// The answer is the result of the call.
    #[must_use]
    pub fn question(question: &str) -> Self {
        Self::new(AskKind::Question, question, ResumeMode::UseDecisionAsToolResult)
    }

    /// An external service will post the result of the call.
    #[must_use]
    pub fn external(question: &str) -> Self {
        Self::new(AskKind::External, question, ResumeMode::UseDecisionAsToolResult)
    }

    fn new(kind: AskKind, question: &str, mode: ResumeMode) -> Self {
        Self {
            kind,
            question: Some(question.into()),
            schema: None,
            mode,
            resume_state: None,
            expires_in_ms: None,
            on_expiry: OnExpiry::Deny,
        }
    }

    /// The schema that an answer has to fit.
    #[must_use]
    pub fn schema(mut self, schema: Value) -> Self {
        self.schema = Some(Arc::new(schema));
        self
    }

    #[must_use]
    pub const fn mode(mut self, mode: ResumeMode) -> Self {
        self.mode = mode;
        self
    }

    /// Returned to the tool with the answer.
    #[must_use]
    pub fn resume_state(mut self, state: Value) -> Self {
        self.resume_state = Some(Arc::new(state));
        self
    }

    #[must_use]
    pub const fn expires_in_ms(mut self, ms: u64, then: OnExpiry) -> Self {
        self.expires_in_ms = Some(ms);
        self.on_expiry = then;
        self
    }
}

/// The kinds that a hook or a tool can ask for. The engine creates the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskKind {
    Approval,
    ClientTool,
    External,
    Question,
}

impl AskKind {
    #[must_use]
    pub const fn kind(self) -> SuspensionKind {
        match self {
            Self::Approval => SuspensionKind::Approval,
            Self::ClientTool => SuspensionKind::ClientTool,
            Self::External => SuspensionKind::External,
            Self::Question => SuspensionKind::Question,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuppliedResult {
    Success { value: Arc<Value>, warning: Option<String> },
    Error { message: String },
    Pending(SuspendRequest),
}

/// The result of one plugin's hook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HookAnswer {
    pub plugin: PluginName,
    pub outcome: HookOutcome,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookOutcome {
    Actions(Vec<Action>),
    /// The hook failed, panicked or timed out.
    Failed(String),
}

/// The answers of all plugins that subscribe to a phase, in registration order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HookAnswers {
    pub answers: Vec<HookAnswer>,
    /// Total bytes of plugin state of the run and its thread once these answers are stored.
    pub state_bytes_after: u32,
}

/// Limit for all plugin state together.
pub const STATE_BYTES_MAX: u32 = 64 * 1024;

impl HookAnswers {
    /// The first fault in the answers, if any. For phases in which one failure invalidates all answers.
    #[must_use]
    pub fn fault(&self, phase: Phase) -> Option<String> {
        self.answers.iter().find_map(|answer| fault_of(answer, phase)).or_else(|| self.too_much_state())
    }

    /// The same answers with each faulty one replaced by its failure. For phases in which the other answers still
    /// count.
    #[must_use]
    pub fn isolate_failures(&self, phase: Phase) -> Self {
        let mut alone = self.clone();
        for answer in &mut alone.answers {
            let fault =
                fault_of(answer, phase).or_else(|| self.too_much_state().filter(|_| sets_state(answer)));
            if let Some(why) = fault {
                answer.outcome = HookOutcome::Failed(why);
            }
        }
        alone
    }

    fn too_much_state(&self) -> Option<String> {
        (self.state_bytes_after > STATE_BYTES_MAX).then(|| {
            format!("plugin state would take {} bytes; at most {STATE_BYTES_MAX}", self.state_bytes_after)
        })
    }

    pub fn actions(&self) -> impl Iterator<Item = (&PluginName, &Action)> {
        self.answers.iter().flat_map(|answer| match &answer.outcome {
            HookOutcome::Actions(actions) => {
                actions.iter().map(|action| (&answer.plugin, action)).collect::<Vec<_>>()
            }
            HookOutcome::Failed(_) => Vec::new(),
        })
    }
}

fn fault_of(answer: &HookAnswer, phase: Phase) -> Option<String> {
    let plugin = &answer.plugin;
    match &answer.outcome {
        HookOutcome::Failed(why) => Some(format!("{plugin} failed in {phase}: {why}")),
        HookOutcome::Actions(actions) => {
            let faulty = actions.iter().find_map(|action| Some((action.name(), action.value_fault()?)));
            if let Some((name, fault)) = faulty {
                return Some(format!("{plugin} answered {name} with a value that cannot be stored: {fault}"));
            }
            let wrong = actions.iter().find(|action| !action.belongs_to(phase))?;
            Some(format!("{plugin} answered {} in {phase}, where it has no meaning", wrong.name()))
        }
    }
}

fn sets_state(answer: &HookAnswer) -> bool {
    match &answer.outcome {
        HookOutcome::Actions(actions) => {
            actions.iter().any(|action| matches!(action, Action::SetState { .. }))
        }
        HookOutcome::Failed(_) => false,
    }
}

/// The combined answer of the hooks of BeforeToolExecute about a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Intercept<'a> {
    Nothing,
    SetResult(&'a PluginName, &'a SuppliedResult),
    Suspend(&'a PluginName, &'a SuspendRequest),
    Block(&'a PluginName, &'a str),
}

impl Intercept<'_> {
    const fn rank(&self) -> u8 {
        match self {
            Self::Nothing => 0,
            Self::SetResult(..) => 1,
            Self::Suspend(..) => 2,
            Self::Block(..) => 3,
        }
    }
}

/// Block beats Suspend beats SetResult; of equal rank the first wins. A Suspend from a plugin that has already asked
/// about this call is ignored.
pub fn reduce<'a>(hooks: &'a HookAnswers, has_asked: impl Fn(&PluginName) -> bool) -> Intercept<'a> {
    let mut strongest = Intercept::Nothing;
    for (plugin, action) in hooks.actions() {
        let candidate = match action {
            Action::Block { reason } => Intercept::Block(plugin, reason),
            Action::Suspend(request) if !has_asked(plugin) => Intercept::Suspend(plugin, request),
            Action::SetResult(SuppliedResult::Pending(_)) if has_asked(plugin) => Intercept::Nothing,
            Action::SetResult(result) => Intercept::SetResult(plugin, result),
            Action::Suspend(_)
            | Action::SetState { .. }
            | Action::End
            | Action::AddInstruction { .. }
            | Action::HideTool { .. }
            | Action::SetParam { .. }
            | Action::ReplaceMessage { .. }
            | Action::SkipInference
            | Action::DropCall { .. }
            | Action::SetArguments { .. }
            | Action::AddNote { .. } => Intercept::Nothing,
        };
        if candidate.rank() > strongest.rank() {
            strongest = candidate;
        }
    }
    strongest
}
