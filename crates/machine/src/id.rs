//! Names of things, and ids that are derived, so that a retry produces the same ones.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

pub use crate::principal::Principal;
use crate::time::Timestamp;

macro_rules! names {
    ($($(#[$attribute:meta])* $name:ident;)*) => {$(
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(Arc::from(text))
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(Arc::from(text))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

names! {
    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    RunId;
    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    ThreadId;
    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    MessageId;
    /// Unique within a thread; the same in messages, model input, events, tools and decisions.
    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    CallId;
    /// One opening of a suspension. For the kinds that a person answers it is the approval's id.
    SuspensionId;
    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    DecisionId;
    /// A standing approval.
    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    GrantId;
    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    ToolName;
    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    AgentName;
    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    PluginName;
}

/// The stored control has up to 128 of these ids: a derived one takes 17 bytes there instead of 41.
#[derive(Serialize, Deserialize)]
enum CompactId<'a> {
    Approval([u8; 16]),
    Suspension([u8; 16]),
    Other(Cow<'a, str>),
}

impl Serialize for SuspensionId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.serialize_str(&self.0);
        }
        let uuid_after = |prefix| self.0.strip_prefix(prefix).and_then(uuid_bytes);
        match (uuid_after("apr_"), uuid_after("sus_")) {
            (Some(uuid), _) => CompactId::Approval(uuid),
            (None, Some(uuid)) => CompactId::Suspension(uuid),
            (None, None) => CompactId::Other(Cow::Borrowed(&self.0)),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SuspensionId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return String::deserialize(deserializer).map(Self::from);
        }
        Ok(match CompactId::deserialize(deserializer)? {
            CompactId::Approval(uuid) => Self::from(format!("apr_{}", uuid_text(uuid))),
            CompactId::Suspension(uuid) => Self::from(format!("sus_{}", uuid_text(uuid))),
            CompactId::Other(text) => Self::from(&*text),
        })
    }
}

/// A SHA-256 of canonical bytes. Computed by the shell for arguments and definitions, compared here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    #[must_use]
    pub fn sha256(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of the concatenated parts.
    #[must_use]
    pub fn sha256_of_parts(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        parts.iter().for_each(|part| hasher.update(part));
        Self(hasher.finalize().into())
    }

    /// HMAC-SHA-256, as in RFC 2104.
    #[must_use]
    pub fn hmac_sha256(key: &[u8], bytes: &[u8]) -> Self {
        const BLOCK_BYTES: usize = 64;
        let hashed = Self::sha256(key).0;
        let key = if key.len() > BLOCK_BYTES { &hashed[..] } else { key };
        let mut block = [0_u8; BLOCK_BYTES];
        block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
        let inner = Self::sha256(&[&block.map(|byte| byte ^ 0x36)[..], bytes].concat());
        Self::sha256(&[&block.map(|byte| byte ^ 0x5c)[..], &inner.0[..]].concat())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

// Hex where people read it (events, golden logs), raw bytes where size matters (the stored control).
impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let text = String::deserialize(deserializer)?;
            parse_hex(text.bytes())
                .map(Self)
                .ok_or_else(|| serde::de::Error::custom("a digest is 64 hex digits"))
        } else {
            <[u8; 32]>::deserialize(deserializer).map(Self)
        }
    }
}

/// The id of the assistant message of step `step`; a retried model call has the same one.
#[must_use]
pub fn assistant_message_id(run: &RunId, step: u32) -> MessageId {
    MessageId::from(format!("msg_{run}_{step}"))
}

/// The id of the message that asks the model to correct its answer of step `step`.
#[must_use]
pub fn correction_message_id(run: &RunId, step: u32) -> MessageId {
    MessageId::from(format!("msg_{run}_{step}_correction"))
}

/// The id of the message that informs the model of dropped calls in its last answer.
#[must_use]
pub fn calls_dropped_message_id(run: &RunId, step: u32) -> MessageId {
    MessageId::from(format!("msg_{run}_{step}_calls_dropped"))
}

/// The id of the message that informs the next run of the thread that this one gave no answer.
#[must_use]
pub fn interruption_message_id(run: &RunId, step: u32) -> MessageId {
    MessageId::from(format!("msg_{run}_{step}_interrupted"))
}

#[must_use]
pub fn tool_message_id(call: &CallId) -> MessageId {
    MessageId::from(format!("msg_{call}"))
}

/// The id of the message with the late result of a call that had a placeholder.
#[must_use]
pub fn late_message_id(call: &CallId) -> MessageId {
    MessageId::from(format!("late_{call}"))
}

/// The id of a message that a plugin adds to a call's result.
#[must_use]
pub fn plugin_note_id(call: &CallId, recorded_at: u64) -> MessageId {
    MessageId::from(format!("note_{recorded_at}_{call}"))
}

/// The key by which a tool recognises a repeated call: the same across retries, take-overs and in-doubt repeats,
/// different for edited arguments.
#[must_use]
pub fn idempotency_key(run: &RunId, call: &CallId, arguments: &Digest) -> String {
    format!("{}", hash_parts(&[run.as_str(), call.as_str(), &format!("{arguments}")]))
}

/// An id for a call that the model gave no usable id. It differs between the runs of a thread.
pub(crate) fn generated_call_id(run: &RunId, step: u32, index: u16) -> String {
    let hash = format!("{}", hash_parts(&["call", run.as_str()]));
    let short: String = hash.chars().take(16).collect();
    format!("call_{short}_{step}_{index}")
}

/// Ids of the same moment sort in the order of opening, so that lists which start with the oldest show them that way.
pub(crate) fn suspension_id(prefix: &str, at: Timestamp, run: &RunId, ordinal: u32) -> SuspensionId {
    let mut hash = hash_parts(&["suspension", run.as_str(), &format!("{ordinal}")]);
    let [_, _, high, low] = ordinal.to_be_bytes();
    let [first, second, ..] = &mut hash.0;
    (*first, *second) = (high, low);
    SuspensionId::from(format!("{prefix}_{}", uuid_v7(at, &hash)))
}

/// The id of the grant that an approval with `apply_to_future` gives: one grant per approval.
#[must_use]
pub fn grant_id(approval: &SuspensionId) -> GrantId {
    let approval = approval.as_str();
    GrantId::from(format!("grt_{}", approval.strip_prefix("apr_").unwrap_or(approval)))
}

pub(crate) fn child_run_id(at: Timestamp, parent: &RunId, call: &CallId) -> RunId {
    let hash = hash_parts(&["child run", parent.as_str(), call.as_str()]);
    RunId::from(format!("run_{}", uuid_v7(at, &hash)))
}

pub(crate) fn child_thread_id(at: Timestamp, parent: &RunId, call: &CallId) -> ThreadId {
    let hash = hash_parts(&["child thread", parent.as_str(), call.as_str()]);
    ThreadId::from(format!("thr_{}", uuid_v7(at, &hash)))
}

fn hash_parts(parts: &[&str]) -> Digest {
    let mut hasher = Sha256::new();
    for part in parts {
        // The length prefix distinguishes ("ab","c") from ("a","bc").
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    Digest(hasher.finalize().into())
}

/// The layout of a version 7 UUID. Its random part is taken from the hash of what it names.
fn uuid_v7(at: Timestamp, hash: &Digest) -> String {
    let [_, _, t0, t1, t2, t3, t4, t5] = at.0.to_be_bytes();
    let mut uuid = [t0, t1, t2, t3, t4, t5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    uuid.iter_mut().skip(6).zip(hash.0).for_each(|(to, from)| *to = from);
    let [.., version, _, variant, _, _, _, _, _, _, _] = &mut uuid;
    *version = (*version & 0x0f) | 0x70;
    *variant = (*variant & 0x3f) | 0x80;
    uuid_text(uuid)
}

const HEX: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];

fn uuid_text(uuid: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (byte, index) in uuid.iter().zip(0_usize..) {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.extend([byte >> 4, byte & 0x0f].iter().filter_map(|digit| HEX.get(usize::from(*digit))));
    }
    text
}

/// Accepts only a text that [`uuid_text`] would write again, so that an id is never stored as another.
fn uuid_bytes(text: &str) -> Option<[u8; 16]> {
    let dashed = text.len() == 36
        && text.bytes().zip(0_usize..).all(|(byte, at)| (byte == b'-') == matches!(at, 8 | 13 | 18 | 23));
    if dashed { parse_hex(text.bytes().filter(|byte| *byte != b'-')) } else { None }
}

/// Exactly as many lower-case hex digits as the bytes need.
fn parse_hex<const N: usize>(mut digits: impl Iterator<Item = u8>) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    for byte in &mut bytes {
        *byte = (hex_value(digits.next()?)? << 4) | hex_value(digits.next()?)?;
    }
    digits.next().is_none().then_some(bytes)
}

const fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}
