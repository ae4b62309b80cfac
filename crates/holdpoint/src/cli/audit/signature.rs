//! Ed25519 signatures of heads: who has the public key can tell that a head was signed before the store was changed.

use std::fmt;
use std::sync::Arc;

use machine::Timestamp;
use machine::audit::{AuditChain, time_text};
use machine::id::Digest;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::json;

const KEY_BYTES: usize = 32;
/// No text that is signed for another purpose begins like this.
const PURPOSE: &str = "holdpoint audit head\n";

/// A key that signs heads.
#[derive(Clone)]
pub(in crate::cli) struct SigningKey(Arc<Ed25519KeyPair>);

impl SigningKey {
    pub(in crate::cli) const FORM: &'static str = "32 random bytes as 64 hex digits or as base64, such as the secret that \
        `holdpoint audit key` prints";

    pub(in crate::cli) fn parse(text: &str) -> Option<Self> {
        let key = Ed25519KeyPair::from_seed_unchecked(&bytes(text.trim())?).ok()?;
        Some(Self(Arc::new(key)))
    }

    pub(in crate::cli) fn public(&self) -> PublicKey {
        let mut bytes = [0; KEY_BYTES];
        bytes.copy_from_slice(self.0.public_key().as_ref());
        PublicKey(bytes)
    }

    /// The head as a line of an export or a sink.
    pub(in crate::cli) fn head_line(&self, tenant: &str, head: AuditChain, at: Timestamp) -> String {
        let (at, key) = (time_text(at), self.public().to_string());
        let signature = self.sign(&signed_text(&at, head, &key, tenant));
        let AuditChain { seq, hash } = head;
        json!({"head": {
            "at": at, "hash": hash.to_string(), "key": key, "seq": seq, "signature": signature, "tenant": tenant,
        }})
        .to_string()
    }

    /// As hex digits. The text begins with its purpose.
    pub(super) fn sign(&self, text: &str) -> String {
        hex(self.0.sign(text.as_bytes()).as_ref())
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SigningKey").field(&self.public().to_string()).finish()
    }
}

impl PartialEq for SigningKey {
    fn eq(&self, other: &Self) -> bool {
        self.public() == other.public()
    }
}

/// A new secret, as text.
pub(super) fn new_secret() -> Option<String> {
    let mut secret = [0; KEY_BYTES];
    SystemRandom::new().fill(&mut secret).ok()?;
    Some(hex(&secret))
}

/// The key that heads are verified with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) struct PublicKey([u8; KEY_BYTES]);

impl PublicKey {
    /// For the command line.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        bytes(text)
            .map(Self)
            .ok_or_else(|| "a public key has 64 hex digits, or is 32 bytes as base64".to_owned())
    }

    /// Why a head does not count, if it does not: who signed it, the signature, and the signed text.
    pub(super) fn fault(&self, signer: &str, signature: &str, text: &str) -> Option<&'static str> {
        if signature.is_empty() {
            return Some("its head is not signed");
        }
        if signer != self.to_string() {
            return Some("its head is signed with another key");
        }
        let is_signed = unhex(signature).is_some_and(|signature| {
            UnparsedPublicKey::new(&ED25519, self.0).verify(text.as_bytes(), &signature).is_ok()
        });
        (!is_signed).then_some("the signature of its head is not valid")
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// What a line says of a head.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SignedHead {
    pub(super) hash: Digest,
    pub(super) seq: u64,
    pub(super) tenant: String,
    #[serde(default)]
    at: String,
    #[serde(default)]
    key: String,
    #[serde(default)]
    signature: String,
}

impl SignedHead {
    pub(super) const fn end(&self) -> AuditChain {
        AuditChain { seq: self.seq, hash: self.hash }
    }

    /// Why this head does not count, if it does not.
    pub(super) fn fault(&self, key: &PublicKey) -> Option<&'static str> {
        key.fault(&self.key, &self.signature, &signed_text(&self.at, self.end(), &self.key, &self.tenant))
    }
}

/// In canonical form (RFC 8785).
fn signed_text(at: &str, head: AuditChain, key: &str, tenant: &str) -> String {
    let AuditChain { seq, hash } = head;
    let head = json!({"at": at, "hash": hash.to_string(), "key": key, "seq": seq, "tenant": tenant});
    format!("{PURPOSE}{head}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

/// 32 bytes, written as hex digits or as base64 in either alphabet.
fn bytes(text: &str) -> Option<[u8; KEY_BYTES]> {
    let bytes = if text.len() == KEY_BYTES * 2 { unhex(text)? } else { unbase64(text)? };
    bytes.try_into().ok()
}

fn unbase64(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut bit_count) = (Vec::new(), 0_u32, 0_u32);
    for sign in text.trim_end_matches('=').bytes() {
        let value = match sign {
            b'A'..=b'Z' => sign - b'A',
            b'a'..=b'z' => sign - b'a' + 26,
            b'0'..=b'9' => sign - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        bit_count += 6;
        if bit_count >= 8 {
            bit_count -= 8;
            bytes.push(u8::try_from((bits >> bit_count) & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
    /// Of RFC 8032, test 1.
    const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

    fn signed(line: &str) -> SignedHead {
        let mut line: serde_json::Value = serde_json::from_str(line).expect("a line");
        serde_json::from_value(line["head"].take()).expect("a head")
    }

    #[test]
    fn a_key_is_read_from_hex_and_base64_and_nothing_else() {
        let key = SigningKey::parse(SECRET).expect("a key");
        assert_eq!(key.public().to_string(), PUBLIC);
        let base64 = "nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=";
        assert_eq!(SigningKey::parse(base64), Some(key));
        for text in ["", "abc", &SECRET[1..], &SECRET.replace('9', "g"), "näh"] {
            assert_eq!(SigningKey::parse(text), None, "{text}");
        }
        let (one, other) = (new_secret().expect("random"), new_secret().expect("random"));
        assert_ne!(one, other);
        assert!(SigningKey::parse(&one).is_some());
    }

    #[test]
    fn every_part_of_a_head_is_signed() {
        let key = SigningKey::parse(SECRET).expect("a key");
        let head = AuditChain { seq: 7, hash: Digest::sha256(b"seven") };
        let line = key.head_line("acme", head, Timestamp(1_000));
        assert_eq!(signed(&line).fault(&key.public()), None, "{line}");
        for (from, to) in [
            ("\"seq\":7", "\"seq\":8"),
            ("acme", "other"),
            ("01.000Z", "02.000Z"),
            (&head.hash.to_string()[..4], "0000"),
        ] {
            let altered = line.replace(from, to);
            assert_ne!(altered, line);
            assert_eq!(signed(&altered).fault(&key.public()), Some("the signature of its head is not valid"));
        }
        let other = SigningKey::parse(PUBLIC).expect("any 32 bytes are a key").public();
        assert_eq!(signed(&line).fault(&other), Some("its head is signed with another key"));
    }
}
