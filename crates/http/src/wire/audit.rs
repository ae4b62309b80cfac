//! An audit record as clients read it.

use machine::audit::{ChainFault, SealedRecord};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A sealed audit record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AuditRecord {
    /// Its number in the chain of the tenant, from 1 and without gaps.
    pub seq: u64,
    /// RFC 3339, UTC, with milliseconds.
    #[schema(format = DateTime)]
    pub at: String,
    pub action: String,
    /// The name of a key, `anonymous`, or `system`.
    pub by: String,
    /// The key through which a trusted service acted for `by`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
    /// The network address of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    pub tenant: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The approval, for the kinds that a person answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspension_id: Option<String>,
    /// SHA-256 of the arguments that the decision was about, in their canonical form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments_digest: Option<String>,
    #[schema(value_type = Object)]
    pub detail: Map<String, Value>,
    /// SHA-256 of the hash before and of this record in canonical form, without `seq` and `hash`.
    pub hash: String,
}

/// A record that cannot be read. It hides no other record; `holdpoint audit verify` names it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UnreadableAuditRecord {
    pub seq: u64,
    pub hash: String,
    /// Always true.
    pub unreadable: bool,
}

/// One entry of the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum ListedAuditRecord {
    Record(Box<AuditRecord>),
    Unreadable(UnreadableAuditRecord),
}

impl ListedAuditRecord {
    pub(crate) fn from_sealed(sealed: &SealedRecord) -> Self {
        match AuditRecord::from_sealed(sealed) {
            Ok(record) => Self::Record(Box::new(record)),
            Err(fault) => {
                tracing::error!(seq = sealed.seq, %fault, "an audit record cannot be read; run `holdpoint audit verify`");
                let hash = sealed.hash.to_string();
                Self::Unreadable(UnreadableAuditRecord { seq: sealed.seq, hash, unreadable: true })
            }
        }
    }
}

impl AuditRecord {
    fn from_sealed(sealed: &SealedRecord) -> Result<Self, ChainFault> {
        let line = sealed.to_line()?;
        serde_json::from_str(&line).map_err(|error| ChainFault::Form { why: error.to_string() })
    }
}
