//! What a server says when it says no, and what to do then.

use std::fmt;

use serde::Deserialize;
use serde_json::{Value, json};

use super::plain::plain;

/// In the server's own words: each of its codes has a page.
#[derive(Debug)]
pub(in crate::cli) struct Refusal {
    code: String,
    message: String,
    details: Value,
    /// HOLDPOINT_TOKEN was sent, and the token of a server without `[auth]` would be sent without it.
    kept_token_exists: bool,
}

#[derive(Deserialize)]
struct Body {
    error: Shown,
}

#[derive(Deserialize)]
struct Shown {
    code: String,
    message: String,
    #[serde(default)]
    details: Value,
}

impl Refusal {
    /// None for a text that no server of ours sends. `hide` leaves out what nobody may read.
    pub(super) fn read(body: &str, hide: &impl Fn(&str) -> String) -> Option<Self> {
        let Body { error: Shown { code, message, mut details } } = serde_json::from_str(body).ok()?;
        hide_in(&mut details, hide);
        let is_code = !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        is_code.then(|| Self { code, message: plain(&hide(&message)), details, kept_token_exists: false })
    }

    /// What the server would say, known before it is asked.
    pub(super) fn foreseen(code: &str, message: String) -> Self {
        Self { code: code.to_owned(), message, details: json!({}), kept_token_exists: false }
    }

    pub(super) fn with_kept_token(self, exists: bool) -> Self {
        Self { kept_token_exists: exists, ..self }
    }

    pub(in crate::cli) fn as_json(&self) -> Value {
        json!({
            "code": self.code,
            "cause": self.message,
            "next": self.next(),
            "page": self.page(),
            "details": self.details,
        })
    }

    fn page(&self) -> String {
        format!("docs/errors/{}.md", self.code)
    }

    fn next(&self) -> String {
        let page = self.page();
        match self.code.as_str() {
            "UNAUTHORIZED" if self.kept_token_exists => format!(
                "Set HOLDPOINT_TOKEN to a valid token, or unset it to use the token that the server on this machine keeps; see \
                 {page}."
            ),
            "UNAUTHORIZED" => format!("Set HOLDPOINT_TOKEN to a valid token; see {page}."),
            "FORBIDDEN" => format!("Set HOLDPOINT_TOKEN to a token whose key has the role; see {page}."),
            "ORIGIN_REFUSED" => format!("Name the server as localhost or 127.0.0.1; see {page}."),
            _ => format!("See {page}."),
        }
    }
}

fn hide_in(value: &mut Value, hide: &impl Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = hide(text),
        Value::Array(items) => items.iter_mut().for_each(|item| hide_in(item, hide)),
        Value::Object(fields) => fields.values_mut().for_each(|field| hide_in(field, hide)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n  next: {}", self.code, self.message, self.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_servers_words_and_the_page_and_no_token() {
        let body = r#"{"error":{"code":"RUN_NOT_FOUND","message":"no run\u001b[2J a\"b","more":1,
            "details":{"ids":["x","a\"b"]}}}"#;
        let hide = |text: &str| text.replace("a\"b", "[token]");
        let refusal = Refusal::read(body, &hide).expect("an error of ours");
        assert_eq!(
            refusal.to_string(),
            "RUN_NOT_FOUND: no run\\u001b[2J [token]\n  next: See docs/errors/RUN_NOT_FOUND.md."
        );
        assert_eq!(refusal.as_json()["details"], json!({"ids": ["x", "[token]"]}));
    }

    #[test]
    fn what_is_no_error_of_ours_is_none() {
        for other in
            ["", "<html>", "{}", r#"{"error":"no"}"#, r#"{"error":{"code":"../../x","message":"no"}}"#]
        {
            assert!(Refusal::read(other, &str::to_owned).is_none(), "{other}");
        }
    }
}
