//! What an HTTP response means. If it does not say whether the call took effect, the outcome is unknown.

use std::fmt::Display;
use std::sync::Arc;
use std::time::SystemTime;

use engine::tool::{AskKind, OnExpiry, Outcome, ResumeMode, SuspendRequest, ToolAnswer};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use hyper::http::response::Parts;
use hyper::{HeaderMap, Response, StatusCode};
use machine::json_text::{self, Bounds};
use serde::Deserialize;
use serde_json::Value;

use super::endpoint::root_cause;
use super::lost_connection;

const WARNING: &str = "holdpoint-warning";
/// Maximum characters of a refusal that are quoted.
const QUOTE_CHARS_MAX: usize = 500;

pub(super) async fn outcome(response: Response<Incoming>, repeatable: bool, bytes_max: usize) -> Outcome {
    let (head, body) = response.into_parts();
    let body = match Limited::new(body, bytes_max).collect().await {
        Ok(collected) => Some(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => None,
        Err(error) => return lost_connection(&root_cause(&*error)),
    };
    match classify(head.status, repeatable) {
        StatusClass::Done => success(head, body, bytes_max).await,
        StatusClass::Pending => match body {
            Some(body) => Outcome::Answered(ToolAnswer::Pending(pending(&body))),
            None => failed(&format!(
                "the tool answered 202, so it may be at work, but its answer has more than {bytes_max} bytes"
            )),
        },
        StatusClass::Failed => failed(&error_text(head.status, body.as_ref(), bytes_max)),
        StatusClass::Redirect => failed(&format!(
            "the tool answered {}: redirects are not followed; configure the address that it leads to",
            head.status
        )),
        StatusClass::Unknown => Outcome::Unknown {
            why: format!("the tool answered {}", quoted(head.status, body.as_ref())),
            retry_after_ms: retry_after_ms(&head.headers, SystemTime::now()),
        },
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatusClass {
    Done,
    Pending,
    Failed,
    Redirect,
    /// The call may have taken effect, or may be retried.
    Unknown,
}

pub(super) fn classify(status: StatusCode, repeatable: bool) -> StatusClass {
    match status.as_u16() {
        202 => StatusClass::Pending,
        200..=299 => StatusClass::Done,
        300..=399 => StatusClass::Redirect,
        408 | 425 | 429 if repeatable => StatusClass::Unknown,
        400..=499 => StatusClass::Failed,
        500 | 501 if !repeatable => StatusClass::Failed,
        _ => StatusClass::Unknown,
    }
}

/// Longer answers are not parsed on a runtime thread, which would block other tasks.
pub(super) const LONG_BYTES: usize = 64 * 1024;

async fn success(head: Parts, body: Option<Bytes>, bytes_max: usize) -> Outcome {
    // The call did run: a reader must not take this for a call that did nothing.
    let Some(body) = body else {
        return failed(&format!("the call succeeded, but its answer has more than {bytes_max} bytes"));
    };
    let said = head.headers.get(WARNING).map(|text| String::from_utf8_lossy(text.as_bytes()).into_owned());
    let (value, unreadable) = if body.len() <= LONG_BYTES {
        result(&head, &body)
    } else {
        match tokio::task::spawn_blocking(move || result(&head, &body)).await {
            Ok(read) => read,
            Err(error) => {
                return failed(&format!("the call succeeded, but its answer was not read: {error}"));
            }
        }
    };
    let warning = match (said, unreadable) {
        (Some(said), Some(unreadable)) => Some(format!("{said}; {unreadable}")),
        (said, unreadable) => said.or(unreadable),
    };
    Outcome::Answered(ToolAnswer::Success { value: Arc::new(value), warning })
}

/// The result, and what is wrong with its format, if anything.
fn result(head: &Parts, body: &Bytes) -> (Value, Option<String>) {
    let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = kind == "application/json" || kind.ends_with("+json");
    if body.is_empty() {
        let has_none = is_json || head.status == StatusCode::NO_CONTENT;
        return (if has_none { Value::Null } else { Value::from("") }, None);
    }
    let parsed = if is_json {
        json_text::parse_bytes(body, &Bounds::VALUE).map_err(|fault| {
            let what = if fault.is_syntax() {
                "the answer is called JSON and is none"
            } else {
                "the answer is JSON that cannot be stored as such, and is kept as text"
            };
            format!("{what}: {fault}")
        })
    } else {
        Err(String::new())
    };
    match (parsed, std::str::from_utf8(body)) {
        (Ok(value), _) => (value, None),
        (Err(why), Ok(text)) if is_json => (Value::from(text), Some(why)),
        (Err(_), Ok(text)) => (Value::from(text), None),
        (Err(_), Err(_)) => {
            let count = body.len();
            (Value::Null, Some(format!("the answer has {count} bytes that are no text, and was left out")))
        }
    }
}

/// The body of a 202. All fields are optional.
#[derive(Deserialize)]
#[serde(default)]
struct PendingBody {
    question: Option<String>,
    schema: Option<Value>,
    resume_mode: ResumeMode,
    state: Option<Value>,
}

impl Default for PendingBody {
    fn default() -> Self {
        Self { question: None, schema: None, resume_mode: ResumeMode::UseDecisionAsToolResult, state: None }
    }
}

/// The tool is working on the call, so the call is held even if the body cannot be understood.
fn pending(body: &Bytes) -> SuspendRequest {
    let unread = |why: &dyn Display| PendingBody {
        question: Some(format!("(what the tool said with its 202 could not be read: {why})")),
        ..PendingBody::default()
    };
    let said = if body.is_empty() {
        PendingBody::default()
    } else {
        match json_text::walk(body, &Bounds::VALUE) {
            Ok(_) => serde_json::from_slice(body).unwrap_or_else(|error| unread(&error)),
            Err(fault) => unread(&fault),
        }
    };
    SuspendRequest {
        kind: AskKind::External,
        question: said.question,
        schema: said.schema.map(Arc::new),
        mode: said.resume_mode,
        resume_state: said.state.map(Arc::new),
        expires_in_ms: None,
        on_expiry: OnExpiry::Deny,
    }
}

fn failed(message: &str) -> Outcome {
    Outcome::Answered(ToolAnswer::Error { message: message.to_owned() })
}

/// The tool's own error text, if it sent one.
fn error_text(status: StatusCode, body: Option<&Bytes>, bytes_max: usize) -> String {
    let Some(body) = body else {
        return format!("the tool answered {status}, with more than {bytes_max} bytes");
    };
    match std::str::from_utf8(body).map(str::trim) {
        Ok("") | Err(_) => format!("the tool answered {status}"),
        Ok(text) => text.to_owned(),
    }
}

pub(super) fn quoted(status: StatusCode, body: Option<&Bytes>) -> String {
    let text = body.and_then(|body| std::str::from_utf8(body).ok()).map_or("", str::trim);
    if text.is_empty() {
        return status.to_string();
    }
    let quote: String = text.chars().take(QUOTE_CHARS_MAX).collect();
    format!("{status}: {quote}")
}

/// Seconds, or a date.
pub(super) fn retry_after_ms(headers: &HeaderMap, now: SystemTime) -> Option<u64> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(seconds.saturating_mul(1_000));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    let wait = at.duration_since(now).unwrap_or_default();
    u64::try_from(wait.as_millis()).ok()
}
