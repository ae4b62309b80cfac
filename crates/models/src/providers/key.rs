//! A provider's API key: used, and never shown.

use std::fmt;
use std::sync::Arc;

use engine::masking::masked;
use hyper::header::HeaderValue;

/// An API key from the environment. It never appears in printed output.
#[derive(Clone)]
pub struct ApiKey {
    text: Arc<str>,
}

/// Replaces a key in texts.
const MASK: &str = "[key]";

impl ApiKey {
    /// Surrounding white space is removed. None if nothing is left, or if a header could not contain it.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let usable = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        usable.then(|| Self { text: Arc::from(text) })
    }

    /// Never None for a key that [`ApiKey::new`] accepted.
    pub(super) fn header(&self, before: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("{before}{}", self.text)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// The text with the key masked, and with words that begin like the key masked: providers echo keys, whole or in
    /// part.
    pub(super) fn masked(&self, text: &str) -> String {
        masked(text, &self.text, MASK)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey([key])")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> ApiKey {
        ApiKey::new(text).expect("a key that a header can carry")
    }

    #[test]
    fn a_key_is_never_printed() {
        assert_eq!(format!("{:?}", key("sk-secret-0123456789")), "ApiKey([key])");
        assert!(format!("{:?}", key("sk-secret").header("Bearer ")).contains("Sensitive"));
    }

    #[test]
    fn a_key_is_masked_whole_and_in_part() {
        let key = key("sk-secret-0123456789");
        let cases = [
            ("wrong key sk-secret-0123456789.", "wrong key [key]."),
            ("wrong key \"sk-secret-01*******789\", see", "wrong key \"[key]\", see"),
            ("sk-secret-", "[key]"),
            ("a sk-secret-0123456789 b sk-secret-01 c", "a [key] b [key] c"),
            ("sk-other is none of ours", "sk-other is none of ours"),
        ];
        for (text, expected) in cases {
            assert_eq!(key.masked(text), expected);
        }
    }

    #[test]
    fn what_no_header_can_carry_is_no_key() {
        assert!(ApiKey::new(" \n").is_none());
        assert!(ApiKey::new("two words").is_none());
        assert!(ApiKey::new("schlüssel").is_none());
        assert_eq!(ApiKey::new(" abc\n").and_then(|key| key.header("")).expect("a header"), "abc");
    }
}
