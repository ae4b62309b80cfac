//! Decisions as a client sends them, and their conversion for the engine.

use std::sync::Arc;

use engine::deciding::{self, Cancellation, Decide, Resumption};
use engine::store::{SuspensionView, Tenant};
use machine::decision::Payload;
use machine::id::{CallId, DecisionId, Digest, Principal, RunId, SuspensionId};
use machine::policy as domain;
use machine::suspension::SuspensionKind;
use serde::de::value::Error as ValueError;
use serde::de::{Deserializer, Error as _, IntoDeserializer as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::policy::OnReject;
use super::strict::{object, present};
use super::text::{FaultText, ForeignId, Remark};
use crate::error::{ApiError, bad_field};
use crate::wire::decision::{DecisionResult, Outcome};
use crate::wire::enums::ResumeMode;

/// Maximum number of decisions in one request.
pub const ENTRIES_MAX: usize = 1_000;

/// Body of `POST /v1/approvals/{id}/approve`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Approve {
    /// Arguments to run instead of the held ones. Absent: the held arguments run unchanged.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub arguments: Option<Value>,
    /// Digest of the arguments that the approver has seen (64 hex digits). If the held arguments have another digest,
    /// the request is refused with `DIGEST_MISMATCH`.
    #[serde(default, deserialize_with = "digest_or_text")]
    #[schema(value_type = Option<String>, nullable = false)]
    pub expect_digest: Option<Digest>,
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub note: Option<Remark>,
    /// If true, later calls of this tool by this agent in this thread are not held for the reasons that held this one.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub apply_to_future: Option<bool>,
}

impl Approve {
    pub fn into_decide(self, held: &SuspensionView, by: Principal) -> Decide {
        let resumption = Resumption {
            payload: Payload::Absent,
            arguments: self.arguments,
            expect_digest: self.expect_digest,
            mode: None,
            note: self.note.map(Remark::into_string),
            apply_to_future: self.apply_to_future.unwrap_or(false),
        };
        decide_on(held, by, vec![SuspensionKind::Approval], deciding::Answer::Resume(resumption))
    }
}

/// Body of `POST /v1/approvals/{id}/reject`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reject {
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub reason: Option<Remark>,
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub then: Option<OnReject>,
}

impl Reject {
    /// If neither the request nor the run's policy says what follows, this endpoint ends the run.
    pub fn into_decide(self, held: &SuspensionView, by: Principal) -> Decide {
        let cancellation = Cancellation {
            reason: self.reason.map(Remark::into_string),
            then: self.then.map(domain::OnReject::from),
            then_by_default: Some(domain::OnReject::EndRun),
            expect_digest: None,
        };
        decide_on(held, by, vec![SuspensionKind::Approval], deciding::Answer::Cancel(cancellation))
    }
}

/// Body of `POST /v1/approvals/{id}/answer`. Send exactly one of the two fields.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The answer to a question. For a call in doubt: it took effect, and this is its result. Any JSON value.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Value>)]
    pub result: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub choice: Option<Choice>,
}

/// How to settle a call in doubt: run it again, or cancel it with its outcome unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    Retry,
    GiveUp,
}

impl<'de> Deserialize<'de> for Choice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "retry" => Ok(Self::Retry),
            "give_up" => Ok(Self::GiveUp),
            other => Err(D::Error::unknown_variant(other, &["retry", "give_up"])),
        }
    }
}

impl Answer {
    pub fn into_decide(self, held: &SuspensionView, by: Principal) -> Result<Decide, ApiError> {
        let resume = |payload| deciding::Answer::Resume(Resumption { payload, ..Resumption::default() });
        let (kinds, answer) = match (self.result, self.choice) {
            (None, None) => {
                return Err(bad_field("result", "the answer is empty; send `result` or `choice`"));
            }
            (Some(_), Some(_)) => {
                return Err(bad_field("choice", "the answer also has a `result`; send one of the two"));
            }
            (Some(result), None) => (
                vec![SuspensionKind::Question, SuspensionKind::InDoubt],
                resume(Payload::Result(Arc::new(result))),
            ),
            (None, Some(Choice::Retry)) => (vec![SuspensionKind::InDoubt], resume(Payload::Absent)),
            (None, Some(Choice::GiveUp)) => {
                (vec![SuspensionKind::InDoubt], deciding::Answer::Cancel(Cancellation::default()))
            }
        };
        Ok(decide_on(held, by, kinds, answer))
    }
}

/// `kinds`: the kinds of suspension that the endpoint can answer.
fn decide_on(
    held: &SuspensionView,
    by: Principal,
    kinds: Vec<SuspensionKind>,
    answer: deciding::Answer,
) -> Decide {
    Decide {
        tenant: held.tenant.clone(),
        run: held.run.clone(),
        call: held.call.clone(),
        suspension: Some(held.id.clone()),
        id: None,
        by,
        kinds: Some(kinds),
        answer,
    }
}

/// Body of `POST /v1/runs/{id}/decisions`. Each decision is parsed and judged independently of the others.
#[derive(Clone, Debug, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Decisions {
    #[serde(deserialize_with = "bounded_list")]
    #[schema(value_type = Vec<DecisionEntry>, max_items = 1000)]
    pub decisions: Vec<Value>,
}

/// A decision about one call.
#[derive(Clone, Debug, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionEntry {
    pub call_id: ForeignId,
    pub action: WordAction,
    /// Makes the decision idempotent: a repeat with the same id and the same content is `already_applied`. Scoped to
    /// the run.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub decision_id: Option<ForeignId>,
    /// The suspension that this decision answers (`suspension.id` or `approval_id`). If another one holds the call by
    /// then, the outcome is `conflict`. If absent, the decision answers the suspension that holds the call when it
    /// arrives. Required for a call in doubt.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub suspension_id: Option<ForeignId>,
    /// Digest of the arguments that the approver has seen (64 hex digits). If the held arguments have another digest,
    /// the outcome is `conflict`.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<String>, pattern = "^[0-9a-f]{64}$", nullable = false)]
    pub expect_digest: Option<Digest>,
    /// The result or answer with which the call resumes. Any JSON value.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Value>)]
    pub result: Option<Value>,
    /// Why the call failed, reported by the client that executed it.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub error: Option<FaultText>,
    /// Edited arguments. Only for a call that is held for approval.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub arguments: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub mode: Option<ResumeMode>,
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub reason: Option<Remark>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WordAction {
    Resume,
    Cancel,
}

impl<'de> Deserialize<'de> for WordAction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "resume" => Ok(Self::Resume),
            "cancel" => Ok(Self::Cancel),
            other => Err(D::Error::unknown_variant(other, &["resume", "cancel"])),
        }
    }
}

/// Prefix of ids that the server derives, from an `Idempotency-Key` or for a callback. No other id begins with it.
pub const DERIVED_ID_PREFIX: &str = "key_";

impl DecisionEntry {
    /// An entry that cannot be parsed is `invalid`; the other entries are not affected.
    pub fn read(mut entry: Value) -> Result<Self, DecisionResult> {
        // Any value is a valid result. It is moved, because a copy of a large one takes as much memory again.
        let result = entry.as_object_mut().and_then(|fields| fields.remove("result"));
        let words = |field: &str| entry.get(field).and_then(Value::as_str).map(str::to_owned);
        let read: Result<Self, serde_json::Error> = object(&entry);
        match read {
            Ok(read) => Ok(Self { result, ..read }),
            Err(error) => Err(DecisionResult {
                call_id: words("call_id").unwrap_or_default(),
                decision_id: words("decision_id"),
                outcome: Outcome::Invalid,
                message: format!("{error}; nothing was changed"),
            }),
        }
    }

    /// The decision to submit to the engine, or why the entry is invalid.
    pub fn into_decide(self, tenant: &Tenant, run: &RunId, by: &Principal) -> Result<Decide, DecisionResult> {
        let invalid = |entry: &Self, why: &str| {
            Err(DecisionResult::new(&entry.call_id, entry.decision_id.as_deref(), Outcome::Invalid, why))
        };
        if self.decision_id.as_deref().is_some_and(|id| id.starts_with(DERIVED_ID_PREFIX)) {
            let why = format!(
                "`decision_id` begins with `{DERIVED_ID_PREFIX}`, which is reserved for the server; nothing was changed"
            );
            return invalid(&self, &why);
        }
        let answer = match self.action {
            WordAction::Cancel => {
                if self.result.is_some()
                    || self.error.is_some()
                    || self.arguments.is_some()
                    || self.mode.is_some()
                {
                    return invalid(
                        &self,
                        "`cancel` takes no `result`, `error`, `arguments` or `mode`; nothing was changed",
                    );
                }
                let reason = self.reason.map(Remark::into_string);
                let expect_digest = self.expect_digest;
                deciding::Answer::Cancel(Cancellation { reason, expect_digest, ..Cancellation::default() })
            }
            WordAction::Resume => {
                if self.result.is_some() && self.error.is_some() {
                    return invalid(&self, "send either `result` or `error`, not both; nothing was changed");
                }
                let payload = match (self.result, self.error) {
                    (Some(result), _) => Payload::Result(Arc::new(result)),
                    (None, Some(error)) => Payload::Error(error.into_string()),
                    (None, None) => Payload::Absent,
                };
                deciding::Answer::Resume(Resumption {
                    payload,
                    arguments: self.arguments,
                    expect_digest: self.expect_digest,
                    mode: self.mode.map(Into::into),
                    note: self.reason.map(Remark::into_string),
                    apply_to_future: false,
                })
            }
        };
        Ok(Decide {
            tenant: tenant.clone(),
            run: run.clone(),
            call: CallId::from(&*self.call_id),
            suspension: self.suspension_id.as_deref().map(SuspensionId::from),
            id: self.decision_id.as_deref().map(DecisionId::from),
            by: by.clone(),
            kinds: None,
            answer,
        })
    }
}

fn bounded_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    let entries = Vec::deserialize(deserializer)?;
    if entries.len() > ENTRIES_MAX {
        return Err(D::Error::custom(format!("{} decisions, at most {ENTRIES_MAX}", entries.len())));
    }
    Ok(entries)
}

/// A text that is not a digest must not match any arguments, so it is replaced by a digest that no arguments can have.
fn digest_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Digest>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let digest = Digest::deserialize(text.as_str().into_deserializer());
    Ok(Some(digest.unwrap_or_else(|_: ValueError| Digest::sha256(format!("no digest: {text}").as_bytes()))))
}

/// Edited arguments are any value that the schema accepts; `null` is a field that the client forgot to fill in.
fn not_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Err(D::Error::custom("invalid type: null, expected arguments")),
        value @ (Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_)) => Ok(Some(value)),
    }
}
