//! Browser tokens: short-lived bearer tokens that the holder of a key gives to a page, with no more than the key has.
//!
//! A token carries what it allows, and a signature. Nothing is stored per token, so every node accepts it, also after a
//! restart. The signature covers the digest of the key that made it: if the key is removed, renamed or gets another
//! token, every browser token of it is dead. What the key may do is looked up with each request.

use machine::Timestamp;
use machine::id::{Digest, RunId, ThreadId};
use serde::{Deserialize, Serialize};

use crate::server::Server;
use crate::setup::Roles;

/// Every browser token begins with this.
const PREFIX: &str = "hpt_";
/// What the signature is for. Another form of token needs another purpose.
const PURPOSE: &str = "browser token v1";

/// The part of a tenant that a caller can reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reach {
    /// All of it.
    #[default]
    Tenant,
    /// One thread with its runs, and what these delegate.
    Thread(String),
    /// One run, and what it delegates.
    Run(String),
}

impl Reach {
    /// The only thread that the caller can reach. None if there are more, or none.
    pub(crate) fn thread(&self) -> Option<ThreadId> {
        match self {
            Self::Thread(id) => Some(ThreadId::from(id.as_str())),
            Self::Tenant | Self::Run(_) => None,
        }
    }

    /// The only run that the caller can reach, apart from those below it.
    pub(crate) fn run(&self) -> Option<RunId> {
        match self {
            Self::Run(id) => Some(RunId::from(id.as_str())),
            Self::Tenant | Self::Thread(_) => None,
        }
    }

    pub(crate) fn is_tenant(&self) -> bool {
        *self == Self::Tenant
    }
}

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claims {
    pub(crate) expires_at_ms: u64,
    /// The name of the key that made it. None: the server had no keys.
    pub(crate) key: Option<String>,
    pub(crate) tenant: String,
    pub(crate) roles: Roles,
    pub(crate) reach: Reach,
    /// The person whom the key named.
    pub(crate) acting_for: Option<String>,
}

impl Claims {
    pub(crate) fn has_expired(&self, now: Timestamp) -> bool {
        now.0 >= self.expires_at_ms
    }
}

/// A token whose signature was verified. Whether it has expired, and what its key may still do, is checked for each
/// request.
#[derive(Clone, Debug)]
pub(crate) struct VerifiedToken {
    pub(crate) claims: Claims,
    /// The digest of the key that made it.
    pub(crate) key_sha256: [u8; 32],
}

pub(crate) fn looks_like_token(bearer: &[u8]) -> bool {
    bearer.starts_with(PREFIX.as_bytes())
}

/// Makes a token. None if the engine of this server has no signing key.
pub(crate) fn sign(server: &Server, claims: &Claims, key_sha256: &[u8; 32]) -> Option<String> {
    let json = serde_json::to_string(claims).ok()?;
    let body: String = json.bytes().map(|byte| format!("{byte:02x}")).collect();
    let signature = server.engine.sign(PURPOSE, &signed_text(&body, key_sha256))?;
    Some(format!("{PREFIX}{body}.{signature}"))
}

/// Reads a token and verifies its signature. `key_sha256` looks up the key that the claims name. None for any text that
/// this server has not signed.
pub(crate) async fn verify(
    server: &Server,
    bearer: &[u8],
    key_sha256: impl FnOnce(&Claims) -> Option<[u8; 32]>,
) -> Option<VerifiedToken> {
    let text = std::str::from_utf8(bearer).ok()?.strip_prefix(PREFIX)?;
    let (body, signature) = text.split_once('.')?;
    let claims: Claims = serde_json::from_slice(&decode_hex(body)?).ok()?;
    let key_sha256 = key_sha256(&claims)?;
    let is_signed = server.engine.verify_signature(PURPOSE, &signed_text(body, &key_sha256), signature).await;
    is_signed.then_some(VerifiedToken { claims, key_sha256 })
}

/// The body in lower-case hexadecimal digits has only one form, so it is signed as it is sent.
fn signed_text(body: &str, key_sha256: &[u8; 32]) -> String {
    format!("{body}.{}", Digest(*key_sha256))
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}
