//! What errors from providers mean: whether and when to retry, and the message for the operator.

use std::time::SystemTime;

use engine::model::ModelFailure;
use hyper::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;

/// Maximum characters of a provider's text that are shown; the rest is rarely useful.
const SHOWN_CHARS_MAX: usize = 400;

pub(super) fn transient(message: impl Into<String>) -> ModelFailure {
    ModelFailure { message: message.into(), retryable: true, retry_after_ms: None }
}

pub(super) fn permanent(message: impl Into<String>) -> ModelFailure {
    ModelFailure { message: message.into(), retryable: false, retry_after_ms: None }
}

/// The failure for a response with a status other than 200.
pub(super) fn from_status(status: u16, headers: &HeaderMap, body: &str, now: SystemTime) -> ModelFailure {
    let parsed: Value = serde_json::from_str(body).unwrap_or_default();
    let provider_error = ProviderError::read(&parsed);
    let said = provider_error.message.clone().unwrap_or_else(|| shortened(body));
    let what = if said.is_empty() {
        format!("it answered {status}")
    } else {
        format!("it answered {status}: {said}")
    };
    if (300..400).contains(&status) {
        return permanent(format!("{what}; redirects are not followed, so correct base_url"));
    }
    let kind = provider_error.kind(status < 500);
    let retryable = match kind {
        Some(ErrorKind::ContextFull | ErrorKind::Filtered) => false,
        Some(ErrorKind::Busy | ErrorKind::InvalidRequest) | None => matches!(status, 429 | 500..),
    };
    let message = match kind {
        Some(ErrorKind::ContextFull) => context_full(&what),
        Some(ErrorKind::Filtered) => filtered(&what),
        Some(ErrorKind::Busy | ErrorKind::InvalidRequest) | None => what,
    };
    let retry_after_ms =
        if retryable { retry_after(headers, now).or_else(|| provider_error.retry_after_ms()) } else { None };
    ModelFailure { message, retryable, retry_after_ms }
}

/// The failure for an error inside a stream. An unknown error is taken for a temporary problem of the provider.
pub(super) fn from_stream_error(error: &Value) -> ModelFailure {
    let provider_error = ProviderError::read(error);
    let what = match &provider_error.message {
        Some(message) => format!("it broke off: {message}"),
        None => format!("it broke off: {}", shortened(&error.to_string())),
    };
    match provider_error.kind(true) {
        Some(ErrorKind::ContextFull) => permanent(context_full(&what)),
        Some(ErrorKind::Filtered) => permanent(filtered(&what)),
        Some(ErrorKind::InvalidRequest) => permanent(what),
        Some(ErrorKind::Busy) | None => {
            ModelFailure { retry_after_ms: provider_error.retry_after_ms(), ..transient(what) }
        }
    }
}

pub(super) fn context_full(what: &str) -> String {
    format!("{what} (the conversation does not fit into the model's context)")
}

pub(super) fn filtered(what: &str) -> String {
    format!("{what} (stopped by the provider's content filter)")
}

/// An error in the providers' format: `{"error": {"message", "code", "type", "status"}}`, or parts of that.
struct ProviderError<'a> {
    message: Option<String>,
    /// All fields that may name the kind of error.
    codes: Vec<&'a str>,
    status: Option<u64>,
    details: &'a [Value],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorKind {
    ContextFull,
    Filtered,
    /// The provider has a temporary problem.
    Busy,
    /// The request is invalid, and a retry would not help.
    InvalidRequest,
}

const CONTEXT_CODES: [&str; 4] = [
    "context_length_exceeded",
    "exceed_context_size_error",
    "model_context_window_exceeded",
    "string_above_max_length",
];
const CONTEXT_WORDS: [&str; 6] = [
    "context length",
    "context window",
    "context size",
    "prompt is too long",
    "input is too long",
    "input token count",
];
const FILTER_CODES: [&str; 4] =
    ["content_filter", "content_policy_violation", "responsibleaipolicyviolation", "prohibited_content"];
const WRONG_CODES: [&str; 16] = [
    "invalid_request_error",
    "invalid_prompt",
    "invalid_argument",
    "authentication_error",
    "invalid_api_key",
    "permission_error",
    "permission_denied",
    "unauthenticated",
    "not_found_error",
    "not_found",
    "model_not_found",
    "billing_error",
    "insufficient_quota",
    "request_too_large",
    "failed_precondition",
    "unsupported_value",
];

impl<'a> ProviderError<'a> {
    fn read(whole: &'a Value) -> Self {
        // Gemini wraps an error in a list if it has not begun to stream.
        let whole = whole.get(0).unwrap_or(whole);
        let error = whole.get("error").filter(|error| !error.is_null()).unwrap_or(whole);
        let text = |key: &str| error.get(key).and_then(Value::as_str);
        let message = error.as_str().or_else(|| text("message")).or_else(|| text("detail"));
        Self {
            message: message.map(shortened).filter(|message| !message.is_empty()),
            codes: ["code", "type", "status"].into_iter().filter_map(text).collect(),
            status: error.get("code").or_else(|| error.get("status")).and_then(Value::as_u64),
            details: error.get("details").and_then(Value::as_array).map_or(&[], Vec::as_slice),
        }
    }

    /// `by_words`: also use the text of the message, which is a guess.
    fn kind(&self, by_words: bool) -> Option<ErrorKind> {
        let named =
            |known: &[&str]| self.codes.iter().any(|code| known.contains(&code.to_lowercase().as_str()));
        if named(&CONTEXT_CODES) {
            return Some(ErrorKind::ContextFull);
        }
        if named(&FILTER_CODES) {
            return Some(ErrorKind::Filtered);
        }
        let message = self.message.as_deref().unwrap_or_default().to_lowercase();
        if by_words && CONTEXT_WORDS.iter().any(|words| message.contains(words)) {
            return Some(ErrorKind::ContextFull);
        }
        match self.status {
            Some(429 | 500..=599) => return Some(ErrorKind::Busy),
            Some(400..=499) => return Some(ErrorKind::InvalidRequest),
            Some(_) | None => {}
        }
        named(&WRONG_CODES).then_some(ErrorKind::InvalidRequest)
    }

    /// Gemini puts the delay into the details of its error: `{"retryDelay": "12.5s"}`.
    fn retry_after_ms(&self) -> Option<u64> {
        let delay = self.details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
        milliseconds(delay.strip_suffix('s')?, 1_000.0)
    }
}

/// The retry delay from the headers: in milliseconds, in seconds, or as a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<u64> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(ms) = text("retry-after-ms").and_then(|ms| milliseconds(ms, 1.0)) {
        return Some(ms);
    }
    let said = text(RETRY_AFTER.as_str())?;
    milliseconds(said, 1_000.0).or_else(|| {
        let wait = httpdate::parse_http_date(said).ok()?.duration_since(now).unwrap_or_default();
        u64::try_from(wait.as_millis()).ok()
    })
}

fn milliseconds(number: &str, unit_ms: f64) -> Option<u64> {
    let number: f64 = number.parse().ok()?;
    // The cast saturates if the value does not fit.
    (number.is_finite() && number >= 0.0).then_some((number * unit_ms).ceil() as u64)
}

/// In one line, cut to a readable length.
pub(super) fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<&str>>().join(" ");
    match line.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hyper::header::HeaderValue;
    use serde_json::json;

    use super::*;

    fn with_header(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).expect("a header"));
        headers
    }

    #[test]
    fn the_time_to_wait_is_read_in_every_form() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let later = httpdate::fmt_http_date(now + Duration::from_secs(7));
        let earlier = httpdate::fmt_http_date(now - Duration::from_secs(7));
        let cases = [
            ("retry-after", "3", Some(3_000)),
            ("retry-after", "0.25", Some(250)),
            ("retry-after-ms", "120", Some(120)),
            ("retry-after", later.as_str(), Some(7_000)),
            ("retry-after", earlier.as_str(), Some(0)),
            ("retry-after", "-1", None),
            ("retry-after", "soon", None),
        ];
        for (name, value, expected) in cases {
            let failure = from_status(429, &with_header(name, value), "", now);
            assert_eq!(failure.retry_after_ms, expected, "{name}: {value}");
            assert!(failure.retryable);
        }
        let in_body =
            json!({"error": {"code": 429, "message": "slow", "details": [{}, {"retryDelay": "1.5s"}]}});
        let failure = from_status(429, &HeaderMap::new(), &in_body.to_string(), now);
        assert_eq!(failure.retry_after_ms, Some(1_500));
    }

    #[test]
    fn the_status_decides_unless_the_error_names_its_kind() {
        let retryable = |status: u16, body: Value| {
            from_status(status, &HeaderMap::new(), &body.to_string(), SystemTime::UNIX_EPOCH).retryable
        };
        for status in [429, 500, 502, 503, 504, 529] {
            assert!(retryable(status, json!({})), "{status}");
        }
        for status in [301, 400, 401, 403, 404, 408, 409, 413, 422, 425] {
            assert!(!retryable(status, json!({})), "{status}");
        }
        assert!(!retryable(500, json!({"error": {"code": "context_length_exceeded"}})));
        // A message text is only a guess, and a failing server may send any text.
        assert!(retryable(500, json!({"error": {"message": "the context window service is down"}})));
    }

    #[test]
    fn an_error_has_the_providers_message_in_one_line() {
        let bodies = [
            json!({"error": {"message": "no\n such  model"}}).to_string(),
            json!({"error": "no such model"}).to_string(),
            json!({"message": "no such model"}).to_string(),
            json!({"detail": "no such model"}).to_string(),
            json!([{"error": {"message": "no such model"}}]).to_string(),
            "no such\r\nmodel".to_owned(),
        ];
        for body in bodies {
            let failure = from_status(404, &HeaderMap::new(), &body, SystemTime::UNIX_EPOCH);
            assert_eq!(failure.message, "it answered 404: no such model", "{body}");
        }
        let long = from_status(500, &HeaderMap::new(), &"é".repeat(10_000), SystemTime::UNIX_EPOCH);
        assert!(long.message.chars().count() < SHOWN_CHARS_MAX + 30);
    }

    #[test]
    fn an_error_inside_of_a_stream_is_judged_by_its_name() {
        let cases = [
            (json!({"type": "overloaded_error", "message": "busy"}), true),
            (json!({"error": {"code": "server_error", "message": "oops"}}), true),
            (json!({"error": {"code": 503, "message": "busy"}}), true),
            (json!({"what": "is this"}), true),
            (json!({"error": {"code": 400, "message": "bad"}}), false),
            (json!({"type": "invalid_request_error", "message": "bad"}), false),
            (json!({"error": {"code": "context_length_exceeded", "message": "long"}}), false),
            (
                json!({"error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}}),
                false,
            ),
            (json!({"code": "content_filter", "message": "no"}), false),
        ];
        for (error, retryable) in cases {
            assert_eq!(from_stream_error(&error).retryable, retryable, "{error}");
        }
    }
}
