//! Which decision may answer which suspension, and what the decision then means.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call::Call;
use crate::id::{CallId, DecisionId, Digest, Principal, SuspensionId};
use crate::json_value::{self, ValueFault};
use crate::policy::OnReject;
use crate::rules::Asker;
use crate::suspension::{ResumeMode, SuspensionKind};
use crate::time::Timestamp;
use crate::tool::Arguments;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Chosen by the client, to recognise a repeated decision; scoped to the run.
    pub id: Option<DecisionId>,
    pub call: CallId,
    /// The exact suspension it answers, so that a decision never applies to a later question about the same call.
    pub suspension: SuspensionId,
    pub by: Principal,
    /// Expiry is judged by the time the decision was accepted, not by the time the run processed it.
    pub accepted_at: Timestamp,
    /// The tool's definition in the live configuration. None if the tool no longer exists.
    pub definition_now: Option<Digest>,
    pub action: DecisionAction,
}

impl Decision {
    /// Whether both decisions say the same about the same suspension, regardless of time, sender and changes of the
    /// configuration in between. The first sender counts as the one who decided.
    #[must_use]
    pub fn same_content(&self, other: &Self) -> bool {
        let same_answer = match (&self.action, &other.action) {
            (DecisionAction::Resume(one), DecisionAction::Resume(other)) => one.same_answer(other),
            (DecisionAction::Cancel { .. }, DecisionAction::Cancel { .. }) => self.action == other.action,
            (DecisionAction::Resume(_), DecisionAction::Cancel { .. })
            | (DecisionAction::Cancel { .. }, DecisionAction::Resume(_)) => false,
        };
        same_answer && self.call == other.call && self.suspension == other.suspension
    }

    /// The tool exists, but its definition differs from the one that was shown.
    #[must_use]
    pub fn is_for_changed_tool(&self, shown: Digest) -> bool {
        self.definition_now.is_some_and(|current| current != shown)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionAction {
    Resume(Resume),
    Cancel { reason: Option<String>, then: Option<OnReject> },
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resume {
    pub payload: Payload,
    /// Why the payload does not fit the suspension's schema.
    pub payload_fault: Option<String>,
    /// The suspension has a schema, and the payload was checked against it.
    pub has_schema: bool,
    /// Digest of the arguments that the approver saw, before an edit.
    pub expect_digest: Option<Digest>,
    /// The edited arguments. Only an approval accepts them.
    pub arguments: Option<Arguments>,
    /// With [`ResumeMode::PassDecisionToTool`]: the payload as arguments.
    pub payload_arguments: Option<Arguments>,
    /// Overrides the suspension's mode.
    pub mode: Option<ResumeMode>,
    pub note: Option<String>,
    /// Later calls of this tool by this agent in this thread are not held for the reasons that held this one.
    pub apply_to_future: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    #[default]
    Absent,
    Result(Arc<Value>),
    /// The client or service that ran the call reports that it failed.
    Error(String),
}

impl Resume {
    /// Ignores the schema's verdict on the payload and the arguments made from it: the sender did not write them.
    fn same_answer(&self, other: &Self) -> bool {
        let edited = |resume: &Self| match &resume.arguments {
            Some(Arguments::Valid { value, .. }) => Some(value.to_string()),
            Some(Arguments::Invalid { raw, .. }) => Some(raw.clone()),
            None => None,
        };
        self.payload == other.payload
            && self.expect_digest == other.expect_digest
            && self.mode == other.mode
            && self.note == other.note
            && self.apply_to_future == other.apply_to_future
            && edited(self) == edited(other)
    }

    /// Why a value in the decision could not be stored.
    pub(crate) fn value_fault(&self) -> Option<ValueFault> {
        let payload = match &self.payload {
            Payload::Result(value) => Some(value),
            Payload::Absent | Payload::Error(_) => None,
        };
        let arguments = [&self.arguments, &self.payload_arguments].into_iter().flatten();
        let mut values = payload.into_iter().chain(arguments.filter_map(Arguments::value));
        values.find_map(|value| json_value::fault(value))
    }
}

pub(crate) fn unstorable(fault: ValueFault) -> String {
    format!("the result or the arguments cannot be stored: {fault}")
}

/// What a decision means for the call that it answers.
#[derive(Clone, Debug, PartialEq)]
pub enum DecisionMeaning<'d> {
    /// Whether an edit can be used is judged last ([`edit_fault`]). If the tool has changed meanwhile, the approver has
    /// not seen the definition that the edit would have to fit.
    Approve {
        edited: Option<&'d Arguments>,
    },
    Deny,
    /// The call passes the full pipeline again, with the answer in addition to the tool's own `resume_state`.
    Replay {
        answer: Option<&'d Arc<Value>>,
        arguments: Option<&'d Arguments>,
        mode: ResumeMode,
    },
    Result(&'d Arc<Value>),
    Failure(&'d str),
    /// It stays unknown whether the effect took place, and the call is not tried again.
    GiveUp,
    Cancel,
}

/// The truth table of answers. A missing, null or malformed answer never executes anything.
pub fn interpret(
    kind: SuspensionKind,
    mode: ResumeMode,
    action: &DecisionAction,
) -> Result<DecisionMeaning<'_>, String> {
    let resume = match action {
        DecisionAction::Cancel { .. } => {
            return match kind {
                SuspensionKind::Approval => Ok(DecisionMeaning::Deny),
                SuspensionKind::InDoubt => Ok(DecisionMeaning::GiveUp),
                SuspensionKind::ClientTool | SuspensionKind::External | SuspensionKind::Question => {
                    Ok(DecisionMeaning::Cancel)
                }
                SuspensionKind::ChildRun => Err(child_run()),
            };
        }
        DecisionAction::Resume(resume) => resume,
    };
    if let Some(fault) = resume.value_fault() {
        return Err(unstorable(fault));
    }
    if let Some(why) = &resume.payload_fault {
        return Err(format!("the result does not fit the schema: {why}"));
    }
    match kind {
        SuspensionKind::Approval => approval(resume),
        SuspensionKind::InDoubt => in_doubt(resume),
        SuspensionKind::ClientTool | SuspensionKind::External | SuspensionKind::Question => {
            answered(resume, kind, resume.mode.unwrap_or(mode))
        }
        SuspensionKind::ChildRun => Err(child_run()),
    }
}

fn approval(resume: &Resume) -> Result<DecisionMeaning<'_>, String> {
    match resume.mode {
        None | Some(ResumeMode::ReplayToolCall) => {}
        Some(ResumeMode::UseDecisionAsToolResult | ResumeMode::PassDecisionToTool) => {
            return Err("an approval replays the call; it takes no other mode".into());
        }
    }
    if !says_yes(&resume.payload) {
        return Err("an approval needs a plain yes: leave `result` out or set it to true".into());
    }
    Ok(DecisionMeaning::Approve { edited: resume.arguments.as_ref() })
}

/// Why the edited arguments of an approver cannot run.
#[must_use]
pub fn edit_fault(edited: &Arguments) -> Option<String> {
    match edited {
        Arguments::Valid { .. } => None,
        Arguments::Invalid { why, .. } => Some(format!("the edited arguments are bad: {why}")),
    }
}

/// Whether the built-in gate holds the call, so that a grant can stop it from holding later ones.
pub(crate) fn is_grantable(call: &Call) -> bool {
    call.open_askers().iter().any(Asker::is_built_in)
}

/// Why `apply_to_future` is refused: a plugin, or the tool itself, asks again regardless of any grant.
pub(crate) fn grant_fault(
    means: &DecisionMeaning<'_>,
    action: &DecisionAction,
    is_grantable: bool,
) -> Option<String> {
    let for_later_calls = match (means, action) {
        (DecisionMeaning::Approve { .. }, DecisionAction::Resume(resume)) => resume.apply_to_future,
        (
            DecisionMeaning::Approve { .. }
            | DecisionMeaning::Deny
            | DecisionMeaning::Replay { .. }
            | DecisionMeaning::Result(_)
            | DecisionMeaning::Failure(_)
            | DecisionMeaning::GiveUp
            | DecisionMeaning::Cancel,
            _,
        ) => false,
    };
    (for_later_calls && !is_grantable).then(|| {
        "`apply_to_future` cannot apply here: a plugin or the tool itself asked, and it will ask again; leave the field out"
            .into()
    })
}

fn in_doubt(resume: &Resume) -> Result<DecisionMeaning<'_>, String> {
    if resume.arguments.is_some() || resume.mode.is_some() {
        return Err("a call in doubt is retried as it was, given its result, or given up".into());
    }
    match &resume.payload {
        Payload::Absent => {
            Ok(DecisionMeaning::Replay { answer: None, arguments: None, mode: ResumeMode::ReplayToolCall })
        }
        Payload::Result(value) => Ok(DecisionMeaning::Result(value)),
        Payload::Error(_) => {
            Err("a call in doubt is retried, given its result, or given up; it cannot be reported as failed"
                .into())
        }
    }
}

fn answered(resume: &Resume, kind: SuspensionKind, mode: ResumeMode) -> Result<DecisionMeaning<'_>, String> {
    if resume.arguments.is_some() {
        return Err("only an approval takes edited arguments".into());
    }
    if let Payload::Error(text) = &resume.payload {
        return Ok(DecisionMeaning::Failure(text));
    }
    // The asker's schema determines the valid answers: `false` is a normal answer to a question.
    let any_answer = kind == SuspensionKind::Question && resume.has_schema;
    match mode {
        ResumeMode::UseDecisionAsToolResult => match &resume.payload {
            Payload::Result(value) => Ok(DecisionMeaning::Result(value)),
            Payload::Absent | Payload::Error(_) => Err("the answer needs `result` or `error`".into()),
        },
        ResumeMode::ReplayToolCall => match &resume.payload {
            Payload::Result(value) if says_no(value) && !any_answer => Err(never_executes()),
            Payload::Result(value) => {
                Ok(DecisionMeaning::Replay { answer: Some(value), arguments: None, mode })
            }
            Payload::Absent => Ok(DecisionMeaning::Replay { answer: None, arguments: None, mode }),
            Payload::Error(text) => Ok(DecisionMeaning::Failure(text)),
        },
        ResumeMode::PassDecisionToTool => match (&resume.payload, &resume.payload_arguments) {
            (Payload::Absent | Payload::Error(_), _) => {
                Err("the answer needs `result`, which becomes the arguments".into())
            }
            (Payload::Result(value), _) if says_no(value) => Err(never_executes()),
            (Payload::Result(value), _) if **value == Value::Bool(true) => {
                Ok(DecisionMeaning::Replay { answer: Some(value), arguments: None, mode })
            }
            (Payload::Result(_), Some(Arguments::Invalid { why, .. })) => {
                Err(format!("the result cannot be the arguments: {why}"))
            }
            (Payload::Result(_), None) => Err("the result cannot be the arguments".into()),
            (Payload::Result(value), Some(arguments @ Arguments::Valid { .. })) => {
                Ok(DecisionMeaning::Replay { answer: Some(value), arguments: Some(arguments), mode })
            }
        },
    }
}

fn says_yes(payload: &Payload) -> bool {
    match payload {
        Payload::Absent => true,
        Payload::Result(value) => **value == Value::Bool(true),
        Payload::Error(_) => false,
    }
}

fn says_no(value: &Value) -> bool {
    value.is_null() || *value == Value::Bool(false)
}

fn never_executes() -> String {
    "false and null never run a tool; cancel the call instead".into()
}

fn child_run() -> String {
    "a child run works on this call; decide the calls that it holds".into()
}
