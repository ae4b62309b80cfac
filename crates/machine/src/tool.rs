//! What the machine is told about a tool and about the arguments of a call.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{AgentName, Digest};
use crate::json_value::{self, ValueFault};

/// What a tool does to the world. It decides what an attempt of unknown outcome may lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    Read,
    /// Repeating it with the same key is safe.
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

/// What happens when nobody answers in time. Neither runs anything. Ordered from lenient to strict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    #[default]
    Deny,
    EndRun,
}

/// Who performs a call once the gate lets it through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Performer {
    /// The engine, as an attempt.
    Server,
    /// The caller's front end.
    Client,
    /// Someone who will post the result.
    External,
    /// A child run of this agent, given at most `budget_tokens_max` tokens.
    Agent { agent: AgentName, budget_tokens_max: Option<u64> },
}

/// A tool as the live configuration describes it at this moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Of everything a person agrees to when they approve: description, parameters, effect, and who performs it.
    pub definition: Digest,
    pub class: EffectClass,
    pub approval: Approval,
    pub performer: Performer,
    pub expires_in_ms: Option<u64>,
    pub on_expiry: OnExpiry,
}

/// What a configuration says about holding the calls of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApprovalTerms {
    pub approval: Approval,
    pub expires_in_ms: Option<u64>,
    pub on_expiry: OnExpiry,
}

impl Tool {
    /// The live tool for a run that is pinned to `frozen`: in each field the stricter of the two counts. So a changed
    /// file can tighten a run that is under way, and can not loosen it. An approval that expires is stricter than one
    /// that does not, and so is the earlier of two.
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
    /// It exists, but this agent may not use it, or a hook hid it in this step.
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
    /// Arguments that cannot be stored are bad arguments.
    #[must_use]
    pub fn bounded(&self) -> Self {
        let fault = self.value().and_then(|value| json_value::fault(value));
        fault.map_or_else(|| self.clone(), Self::unstorable)
    }

    #[must_use]
    pub fn unstorable(fault: ValueFault) -> Self {
        Self::Invalid { raw: String::new(), why: format!("the arguments cannot be stored: {fault}") }
    }

    /// None where they are bad.
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
