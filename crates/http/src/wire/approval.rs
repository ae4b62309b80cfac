//! An approval: a suspension that a person must answer, with the arguments that will really run.

use engine::store::{PathEntry, SuspensionView};
use machine::id::idempotency_key;
use machine::suspension::SuspensionKind as Kind;
use machine::tool::Arguments;
use machine::visible::{self, Warning};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::enums::{ApprovalStatus, SuspensionKind};
use super::time::Time;
use super::{is_false, via_text};
use crate::body::Choice;

#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Approval {
    pub id: String,
    pub kind: SuspensionKind,
    pub run_id: String,
    pub thread_id: String,
    pub call_id: String,
    pub step: u32,
    pub agent: String,
    pub tool: String,
    pub tool_description: String,
    /// The final arguments, exactly as the call will run with them. Null if there is nothing left to run.
    #[schema(value_type = Value)]
    pub arguments: Value,
    /// The arguments before the approver edited them. Absent if they were not edited.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>, nullable = false)]
    pub original_arguments: Option<Value>,
    /// SHA-256 of `arguments` in RFC 8785 form, as 64 lower-case hex digits. Null if there is nothing left to run.
    pub arguments_digest: Option<String>,
    /// Only for a call in doubt: the idempotency key that its attempts sent. With it, the tool's service may be able to
    /// say whether the call took effect. A retry sends the same key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub idempotency_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub question: Option<String>,
    /// JSON Schema for the answer to a question. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>, nullable = false)]
    pub schema: Option<Value>,
    /// Only for a call in doubt: the possible values of `choice`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub choices: Option<Vec<Choice>>,
    /// The chain of runs from the one that a message started down to the run with the held call.
    pub path: Vec<PathStep>,
    pub status: ApprovalStatus,
    pub created_at: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub expires_at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub decided_at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub decided_by: Option<String>,
    /// The key that acted for `decided_by`. Absent if `decided_by` is not a person for whom a key acted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub via: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub note: Option<String>,
    /// True if part of the approval cannot be decoded: the request (then `tool` is empty and `arguments` is null), or
    /// an answer that the run has not processed yet. Absent otherwise.
    #[serde(skip_serializing_if = "is_false")]
    #[schema(required = false)]
    pub unreadable: bool,
    /// Present if the arguments or the question may not be what they look like. Show this instead of them, together
    /// with its warnings.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub display: Option<Display>,
}

/// The arguments and the question in a form that is safe to show to an approver, with warnings. Derived, never stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Display {
    /// `arguments` as one line of JSON text in which every invisible character is escaped. It parses to the same value.
    pub arguments: String,
    /// `question`, escaped in the same way. Absent if there is no question.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub question: Option<String>,
    /// Each warning at most once, in the order in which `DisplayWarning` lists them.
    pub warnings: Vec<DisplayWarning>,
}

/// Why a text may not be what it looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DisplayWarning {
    /// It contains invisible characters.
    Invisible,
    /// A word mixes letters of two scripts.
    MixedScripts,
    /// Parts of it are displayed from right to left.
    RightToLeft,
}

impl From<Warning> for DisplayWarning {
    fn from(warning: Warning) -> Self {
        match warning {
            Warning::Invisible => Self::Invisible,
            Warning::MixedScripts => Self::MixedScripts,
            Warning::RightToLeft => Self::RightToLeft,
        }
    }
}

impl Approval {
    /// The approval as it was opened and closed. The tool's description is in the configuration, and edited arguments
    /// are in the approving event: [`Approval::with_description`] and [`Approval::with_edited_arguments`] add them.
    #[must_use]
    pub fn from_view(view: &SuspensionView) -> Self {
        let opened = view.opened.as_deref();
        let asked = opened.and_then(|opened| opened.arguments.as_ref());
        Self {
            id: view.id.as_str().into(),
            kind: view.kind.into(),
            run_id: view.run.as_str().into(),
            thread_id: view.thread.as_str().into(),
            call_id: view.call.as_str().into(),
            step: view.step,
            agent: view.agent.as_str().into(),
            tool: opened.map(|opened| opened.tool.as_str().to_owned()).unwrap_or_default(),
            tool_description: String::new(),
            arguments: asked.map(super::arguments).unwrap_or_default(),
            original_arguments: None,
            arguments_digest: asked.map(|arguments| arguments.digest().to_string()),
            idempotency_key: asked.and_then(|arguments| sent_key(view, arguments)),
            question: opened.and_then(|opened| opened.question.clone()),
            schema: opened.and_then(|opened| opened.schema.as_ref()).map(|schema| (**schema).clone()),
            choices: (view.kind == Kind::InDoubt).then(|| vec![Choice::Retry, Choice::GiveUp]),
            path: view.path.iter().map(PathStep::from_entry).collect(),
            status: view.status.into(),
            created_at: view.created_at.into(),
            expires_at: opened.and_then(|opened| opened.expiry).map(|expiry| expiry.at.into()),
            decided_at: view.decided_at.map(Time),
            decided_by: view.decided_by.as_ref().map(|by| by.name().into()),
            via: view.decided_by.as_ref().and_then(via_text),
            reason: view.reason.clone(),
            note: view.note.clone(),
            unreadable: view.is_unreadable(),
            display: None,
        }
    }

    #[must_use]
    pub fn with_description(mut self, description: &str) -> Self {
        self.tool_description = description.to_owned();
        self
    }

    /// Adds the arguments that will run, if the suspension does not contain them.
    #[must_use]
    pub fn with_arguments(mut self, view: &SuspensionView, arguments: &Arguments) -> Self {
        self.arguments = super::arguments(arguments);
        self.arguments_digest = Some(arguments.digest().to_string());
        self.idempotency_key = sent_key(view, arguments);
        self
    }

    /// Marks that something the approval shows cannot be decoded.
    #[must_use]
    pub fn marked_unreadable(mut self) -> Self {
        self.unreadable = true;
        self
    }

    /// Shows the arguments as the approver edited them.
    #[must_use]
    pub fn with_edited_arguments(mut self, to: &Arguments) -> Self {
        let shown = std::mem::replace(&mut self.arguments, super::arguments(to));
        self.original_arguments = Some(shown);
        self.arguments_digest = Some(to.digest().to_string());
        self
    }
}

impl Approval {
    /// Adds a [`Display`] if one is needed. The arguments have to be final by then.
    #[must_use]
    pub fn with_display(mut self) -> Self {
        let mut found = visible::json_warnings(&self.arguments);
        if let Some(question) = &self.question {
            found.extend(visible::warnings(question));
        }
        if !found.is_empty() {
            self.display = Some(Display {
                arguments: visible::escaped(&self.arguments.to_string()),
                question: self.question.as_deref().map(visible::escaped),
                warnings: found.into_iter().map(DisplayWarning::from).collect(),
            });
        }
        self
    }
}

/// The idempotency key that the attempts of a call in doubt sent. No other kind of suspension is opened after an
/// attempt whose outcome is unknown.
fn sent_key(view: &SuspensionView, arguments: &Arguments) -> Option<String> {
    (view.kind == Kind::InDoubt).then(|| idempotency_key(&view.run, &view.call, &arguments.digest()))
}

/// One run on the path to a held call. `call_id` is its call that started the next run; in the last entry it is the
/// held call itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct PathStep {
    pub run_id: String,
    pub agent: String,
    pub call_id: String,
}

impl PathStep {
    #[must_use]
    pub fn from_entry(entry: &PathEntry) -> Self {
        Self {
            run_id: entry.run.as_str().into(),
            agent: entry.agent.as_str().into(),
            call_id: entry.call.as_str().into(),
        }
    }
}
