//! Standard Webhooks signatures (<https://www.standardwebhooks.com>), with which a tool verifies the sender.

use std::fmt;

use machine::id::Digest;

const PREFIX: &str = "whsec_";
/// The length that the standard allows for a secret.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The secret that signs requests. It never appears in printed output.
#[derive(Clone)]
pub struct SigningSecret(Vec<u8>);

impl SigningSecret {
    /// Parses `whsec_` followed by 24 to 64 bytes in Base64. None for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = decoded(text.trim().strip_prefix(PREFIX)?)?;
        SECRET_BYTES.contains(&bytes.len()).then_some(Self(bytes))
    }

    /// The value of the header `webhook-signature`.
    pub(super) fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let signed = [format!("{id}.{timestamp}.").as_bytes(), body].concat();
        format!("v1,{}", encoded(&Digest::hmac_sha256(&self.0, &signed).0))
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(…)")
    }
}

fn encoded(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().fold(0_u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = (group >> (18 - 6 * place)) & 63;
            let sign = ALPHABET.get(digit as usize).filter(|_| place <= chunk.len());
            text.push(sign.map_or('=', |sign| char::from(*sign)));
        }
    }
    text
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    if digits.len() % 4 == 1 || text.len() - digits.len() > 2 {
        return None;
    }
    let mut bytes = Vec::new();
    for chunk in digits.chunks(4) {
        let mut group = 0_u32;
        for sign in chunk {
            let digit = ALPHABET.iter().position(|known| known == sign)?;
            group = group << 6 | u32::try_from(digit).ok()?;
        }
        let [_, whole @ ..] = (group << (6 * (4 - chunk.len()))).to_be_bytes();
        bytes.extend(whole.into_iter().take(chunk.len() - 1));
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_signed_as_the_standard_says() {
        // The example from the specification's reference libraries.
        let secret = SigningSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret");
        let signature =
            secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(format!("{secret:?}"), "SigningSecret(…)");
    }

    #[test]
    fn base64_is_read_as_it_is_written() {
        for length in 0..70_u8 {
            let bytes: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(37)).collect();
            assert_eq!(decoded(&encoded(&bytes)), Some(bytes));
        }
        assert_eq!(encoded(b"foob"), "Zm9vYg==");
        for bad in ["A", "Zm9v!", "Zm9v===", "Zm 9v"] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_is_no_secret_of_the_standard_is_none() {
        for bad in [
            "",
            "whsec_",
            "whsec_short",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_not base 64 at all, but long",
        ] {
            assert!(SigningSecret::parse(bad).is_none(), "{bad}");
        }
    }
}
