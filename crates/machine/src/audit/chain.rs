//! The chain over a tenant's records: how a record is sealed, and how the chain is verified.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use serde_json::{Map, Value};

use super::action::AuditAction;
use super::check::Restored;
use crate::id::Digest;

/// The end of a chain: the number of its last record, and that record's hash. Each hash is the SHA-256 of the hash
/// before it and the record's canonical content. Before the first record the hash is 32 zero bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditChain {
    pub seq: u64,
    pub hash: Digest,
}

/// A record with its position in the chain. It never changes again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedRecord {
    pub seq: u64,
    pub hash: Digest,
    /// The canonical content.
    pub body: String,
}

/// Why a chain does not continue with a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainFault {
    /// Records are missing, or were put elsewhere.
    Gap { expected: u64 },
    /// The content or the hash was altered, or the record before it is another one.
    Hash { expected: Digest },
    /// Not the canonical form of a record.
    Form { why: String },
}

impl AuditChain {
    /// A chain without records.
    pub const START: Self = Self { seq: 0, hash: Digest([0; 32]) };

    /// Adds a record at the end.
    pub fn seal(&mut self, body: String) -> SealedRecord {
        self.seq += 1;
        self.hash = self.next_hash(&body);
        SealedRecord { seq: self.seq, hash: self.hash, body }
    }

    /// Continues with a record that must follow.
    pub fn verify(&mut self, record: &SealedRecord) -> Result<(), ChainFault> {
        let expected = self.seq.saturating_add(1);
        if record.seq != expected {
            return Err(ChainFault::Gap { expected });
        }
        let hash = self.next_hash(&record.body);
        if record.hash != hash {
            return Err(ChainFault::Hash { expected: hash });
        }
        (self.seq, self.hash) = (record.seq, record.hash);
        Ok(())
    }

    fn next_hash(&self, body: &str) -> Digest {
        Digest::sha256(&[&self.hash.0[..], body.as_bytes()].concat())
    }
}

impl SealedRecord {
    /// The record as one line of an export, in canonical form: the content with `hash` and `seq`.
    pub fn to_line(&self) -> Result<String, ChainFault> {
        let mut content = content(&self.body)?;
        content.insert("hash".into(), Value::from(self.hash.to_string()));
        content.insert("seq".into(), Value::from(self.seq));
        Ok(Value::Object(content).to_string())
    }

    /// Reads a line of an export. A line in another form is refused: two programs could read it differently.
    pub fn from_line(line: &str) -> Result<Self, ChainFault> {
        let mut found = content(line)?;
        let hash = found.remove("hash").and_then(|hash| serde_json::from_value(hash).ok());
        let seq = found.remove("seq").and_then(|seq| seq.as_u64());
        match (seq, hash) {
            (Some(seq), Some(hash)) => Ok(Self { seq, hash, body: Value::Object(found).to_string() }),
            (None, _) => Err(form("it has no `seq`")),
            (Some(_), None) => Err(form("it has no `hash` of 64 hex digits")),
        }
    }

    /// The end of what was pruned, if this record says that records were.
    #[must_use]
    pub fn pruned_through(&self) -> Option<AuditChain> {
        let content = content(&self.body).ok()?;
        let is_prune = content.get("action")?.as_str()? == AuditAction::AuditPruned.as_str();
        let detail = content.get("detail").filter(|_| is_prune)?;
        let hash = serde_json::from_value(detail.get("through_hash")?.clone()).ok()?;
        Some(AuditChain { seq: detail.get("through_seq")?.as_u64()?, hash })
    }

    /// Where the store was restored from, if this record says that it was.
    pub(super) fn restored_from(&self) -> Option<Restored> {
        let content = content(&self.body).ok()?;
        let is_restore = content.get("action")?.as_str()? == AuditAction::StoreRestored.as_str();
        let detail = content.get("detail").filter(|_| is_restore)?;
        let taken_at = detail.get("taken_at")?.as_str()?.to_string();
        Some(Restored { taken_at, head_seq: detail.get("head_seq")?.as_u64()? })
    }

    /// A text of the content, or an empty text.
    pub fn text(&self, name: &str) -> Result<String, ChainFault> {
        Ok(content(&self.body)?.get(name).and_then(Value::as_str).unwrap_or_default().to_string())
    }
}

/// The members of a text in canonical form.
fn content(text: &str) -> Result<Map<String, Value>, ChainFault> {
    let members: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| form(&format!("it is not a JSON object: {error}")))?;
    let canonical = serde_json::to_string(&members).map_err(|error| form(&error.to_string()))?;
    if canonical != text {
        return Err(form("it is not in canonical form (RFC 8785)"));
    }
    Ok(members)
}

fn form(why: &str) -> ChainFault {
    ChainFault::Form { why: why.into() }
}

impl fmt::Display for ChainFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gap { expected } => {
                write!(f, "record {expected} should be here; records are missing or moved")
            }
            Self::Hash { expected } => write!(
                f,
                "its hash should be {expected}; it was altered, or the record before it was altered or removed"
            ),
            Self::Form { why } => f.write_str(why),
        }
    }
}
