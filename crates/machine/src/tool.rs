//! What the machine knows about a tool and about the arguments of a call.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{AgentName, Digest};
use crate::json_value::{self, ValueFault};
use crate::suspension::Expiry;
use crate::time::Timestamp;

/// A tool's side effects. They determine what may follow an attempt with unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    Read,
    /// Repeating the call with the same key is safe.
    Idempotent,
    Write,
}

impl EffectClass {
    #[must_use]
    pub const fn repeatable(self) -> bool {
        match self {
            Self::Read | Self::Idempotent => true,
            Self::Write => false,
        }
    }
}

/// Ordered from lenient to strict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    Never,
    Ask,
    Block,
}

/// What happens when a suspension expires unanswered. Neither runs anything. Ordered from lenient to strict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    #[default]
    Deny,
    EndRun,
}

/// How long a suspension stays open unanswered, and what happens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiryTerms {
    pub after_ms: u64,
    #[serde(default)]
    pub then: OnExpiry,
}

impl ExpiryTerms {
    /// The earlier expiry with the stricter consequence. A suspension that expires is stricter than one that does not.
    #[must_use]
    pub fn stricter(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
        Some(Self { after_ms: one.after_ms.min(other.after_ms), then: one.then.max(other.then) })
    }

    #[must_use]
    pub const fn from(self, now: Timestamp) -> Expiry {
        Expiry { at: now.plus_ms(self.after_ms), then: self.then }
    }
}

/// Who performs a call after it passes the gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Performer {
    /// The engine, as an attempt.
    Server,
    /// The caller's front end.
    Client,
    /// An external service that will post the result.
    External,
    /// A child run of this agent, with a grant of at most `budget_tokens_max` tokens.
    Agent { agent: AgentName, budget_tokens_max: Option<u64> },
}

/// A tool as the live configuration currently describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Digest of everything that a person approves: description, parameters, effect, and who performs it.
    pub definition: Digest,
    pub class: EffectClass,
    pub approval: Approval,
    pub performer: Performer,
    pub expires_in_ms: Option<u64>,
    pub on_expiry: OnExpiry,
}

/// A tool's configuration for holding its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApprovalTerms {
    pub approval: Approval,
    pub expires_in_ms: Option<u64>,
    pub on_expiry: OnExpiry,
}

impl Tool {
    /// When anything that holds a call of this tool expires, except a child run.
    #[must_use]
    pub fn expiry_terms(&self) -> Option<ExpiryTerms> {
        self.expires_in_ms.map(|after_ms| ExpiryTerms { after_ms, then: self.on_expiry })
    }

    /// The live tool for a run that is pinned to `frozen`: each field takes the stricter of the two values. A changed
    /// configuration can therefore tighten a run that is under way, but cannot loosen it. An approval that expires is
    /// stricter than one that does not, and an earlier expiry is stricter than a later one.
    #[must_use]
    pub fn tightened_by(mut self, frozen: &ApprovalTerms) -> Self {
        let ApprovalTerms { approval, expires_in_ms, on_expiry } = *frozen;
        self.approval = self.approval.max(approval);
        self.expires_in_ms = [self.expires_in_ms, expires_in_ms].into_iter().flatten().min();
        self.on_expiry = self.on_expiry.max(on_expiry);
        self
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolLookup {
    Known(Tool),
    Unknown,
    /// The tool exists, but this agent may not use it, or a hook hid it in this step.
    OutOfScope,
}

/// The arguments of a call after the shell parsed, validated and canonicalised them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arguments {
    Valid { value: Arc<Value>, digest: Digest },
    Invalid { raw: String, why: String },
}

impl Arguments {
    /// Turns arguments that cannot be stored into bad arguments.
    #[must_use]
    pub fn bounded(&self) -> Self {
        let fault = self.value().and_then(|value| json_value::fault(value));
        fault.map_or_else(|| self.clone(), Self::unstorable)
    }

    #[must_use]
    pub fn unstorable(fault: ValueFault) -> Self {
        Self::Invalid { raw: String::new(), why: format!("the arguments cannot be stored: {fault}") }
    }

    /// None if the arguments are bad.
    #[must_use]
    pub const fn value(&self) -> Option<&Arc<Value>> {
        match self {
            Self::Valid { value, .. } => Some(value),
            Self::Invalid { .. } => None,
        }
    }

    #[must_use]
    pub fn digest(&self) -> Digest {
        match self {
            Self::Valid { digest, .. } => *digest,
            Self::Invalid { raw, .. } => Digest::sha256(raw.as_bytes()),
        }
    }
}
