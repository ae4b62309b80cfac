//! Error responses of a server, and what to do about them.

use std::fmt;

use serde::Deserialize;
use serde_json::{Value, json};

use super::terminal_text::escaped;

/// In the server's own words: each of its codes has a documentation page.
#[derive(Debug)]
pub(in crate::cli) struct ApiError {
    code: String,
    message: String,
    details: Value,
    /// HOLDPOINT_TOKEN was sent; without it, the token of a server without `[auth]` would have been sent.
    token_file_exists: bool,
}

#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorFields,
}

#[derive(Deserialize)]
struct ErrorFields {
    code: String,
    message: String,
    #[serde(default)]
    details: Value,
}

impl ApiError {
    /// None for a body that a Holdpoint server never sends. `mask` hides secrets.
    pub(super) fn read(body: &str, mask: &impl Fn(&str) -> String) -> Option<Self> {
        let ErrorBody { error: ErrorFields { code, message, mut details } } =
            serde_json::from_str(body).ok()?;
        mask_in(&mut details, mask);
        let is_code = !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        is_code.then(|| Self { code, message: escaped(&mask(&message)), details, token_file_exists: false })
    }

    /// The error that the server would return, known before the request is sent.
    pub(super) fn predicted(code: &str, message: String) -> Self {
        Self { code: code.to_owned(), message, details: json!({}), token_file_exists: false }
    }

    pub(super) fn with_token_file(self, exists: bool) -> Self {
        Self { token_file_exists: exists, ..self }
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
            "UNAUTHORIZED" if self.token_file_exists => format!(
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

fn mask_in(value: &mut Value, mask: &impl Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = mask(text),
        Value::Array(items) => items.iter_mut().for_each(|item| mask_in(item, mask)),
        Value::Object(fields) => fields.values_mut().for_each(|field| mask_in(field, mask)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n  next: {}", self.code, self.message, self.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_error_has_the_servers_message_and_page_and_no_token() {
        let body = r#"{"error":{"code":"RUN_NOT_FOUND","message":"no run\u001b[2J a\"b","more":1,
            "details":{"ids":["x","a\"b"]}}}"#;
        let mask = |text: &str| text.replace("a\"b", "[token]");
        let error = ApiError::read(body, &mask).expect("an error of ours");
        assert_eq!(
            error.to_string(),
            "RUN_NOT_FOUND: no run\\u001b[2J [token]\n  next: See docs/errors/RUN_NOT_FOUND.md."
        );
        assert_eq!(error.as_json()["details"], json!({"ids": ["x", "[token]"]}));
    }

    #[test]
    fn a_body_that_is_no_holdpoint_error_is_not_parsed() {
        for other in
            ["", "<html>", "{}", r#"{"error":"no"}"#, r#"{"error":{"code":"../../x","message":"no"}}"#]
        {
            assert!(ApiError::read(other, &str::to_owned).is_none(), "{other}");
        }
    }
}
