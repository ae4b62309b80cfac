//! A tool reached over HTTP: each attempt is one POST. The response determines the outcome, or the outcome is unknown.
//!
//! | response | meaning |
//! |---|---|
//! | 2xx | the call succeeded; the body is the result, parsed if its content type is JSON |
//! | 2xx with `Holdpoint-Warning` | the call succeeded, and the model reads the warning too |
//! | 202 | the result will be reported later: the call is held |
//! | 3xx | an error: redirects are not followed |
//! | 4xx | an error; the model reads the body. For a repeatable tool, 408, 425 and 429 are treated like 503 |
//! | 5xx, lost or late, repeatable tool | the attempt is retried |
//! | 5xx, lost or late, writing tool | failed if it is 500 or 501 or nothing was sent; otherwise the call is in doubt |

mod answer;
#[cfg(test)]
mod answer_tests;
mod endpoint;
mod hook;
mod masked;
mod resolver;
#[cfg(test)]
mod resolver_tests;
mod signature;

use std::sync::Arc;

use engine::store::BoxFuture;
use engine::tool::{ApprovedBy, Callback, EffectClass, Outcome, Resumed, Tool, ToolDefinition, ToolRequest};
use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::HeaderValue;
use serde::Serialize;
use serde_json::Value;

use self::endpoint::{Endpoint, SendError};
pub use self::endpoint::{EndpointError, HttpSettings, RESPONSE_BYTES_MAX};
pub use self::hook::{HookSettings, HttpHook};
use self::masked::without_token;
pub use self::signature::SigningSecret;

/// A tool that is called with POST.
pub struct HttpTool {
    definition: Arc<ToolDefinition>,
    endpoint: Endpoint,
    response_bytes_max: usize,
}

impl HttpTool {
    pub fn new(definition: ToolDefinition, settings: &HttpSettings) -> Result<Self, EndpointError> {
        Ok(Self {
            endpoint: Endpoint::new(settings, definition.timeout)?,
            definition: Arc::new(definition),
            response_bytes_max: settings.response_bytes_max,
        })
    }

    async fn attempt(&self, asked: ToolRequest) -> Outcome {
        let request = match self.request(&asked) {
            Ok(request) => request,
            Err(why) => return Outcome::NotSent { why, retry_after_ms: None },
        };
        if !self.repeatable() {
            // Lets the client process what has already arrived: a connection that the server has closed in the meantime
            // is then not reused, and leaves no doubt.
            tokio::task::yield_now().await;
        }
        let response = match self.endpoint.send(request).await {
            Ok(response) => response,
            Err(SendError::NotConnected(cause)) => {
                let why = format!("the tool could not be reached: {cause}");
                return Outcome::NotSent { why, retry_after_ms: None };
            }
            Err(SendError::Lost(cause)) => return lost_connection(&cause),
        };
        answer::outcome(response, self.repeatable(), self.response_bytes_max).await
    }

    fn request(&self, asked: &ToolRequest) -> Result<Request<Full<Bytes>>, String> {
        let body = serde_json::to_vec(&ToolCallBody::new(asked)).map_err(|error| error.to_string())?;
        // Each attempt is its own message, so that a tool which drops repeated messages still receives the next
        // attempt.
        let message_id = format!("{}_{}", asked.idempotency_key, asked.attempt);
        let mut request = self.endpoint.request(body, &message_id)?;
        let key = HeaderValue::from_str(&asked.idempotency_key).map_err(|error| error.to_string())?;
        request.headers_mut().insert("idempotency-key", key);
        Ok(request)
    }

    fn repeatable(&self) -> bool {
        match self.definition.effect {
            EffectClass::Read | EffectClass::Idempotent => true,
            EffectClass::Write => false,
        }
    }
}

impl Tool for HttpTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    fn call(&self, request: ToolRequest) -> BoxFuture<'_, Outcome> {
        let cancelled = request.cancelled.clone();
        Box::pin(async move {
            tokio::select! {
                outcome = self.attempt(request) => match self.endpoint.token() {
                    Some(token) => without_token(outcome, token),
                    None => outcome,
                },
                () = cancelled.cancelled() => {
                    Outcome::Unknown { why: "the call was cancelled before the answer arrived".into(), retry_after_ms: None }
                }
            }
        })
    }

    fn wants_approval(&self) -> bool {
        true
    }
}

fn lost_connection(cause: &str) -> Outcome {
    let why = format!("the connection was lost before the tool had answered: {cause}");
    Outcome::Unknown { why, retry_after_ms: None }
}

/// The body that is sent to the tool.
#[derive(Serialize)]
struct ToolCallBody<'a> {
    tool: &'a str,
    /// Ids of threads, runs and calls are unique only within a tenant.
    tenant: &'a str,
    call_id: &'a str,
    run_id: &'a str,
    thread_id: &'a str,
    step: u32,
    attempt: u32,
    arguments: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<ApprovalSent<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resume: Option<Resume<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    callback: Option<CallbackSent<'a>>,
}

/// Who approved the call, and with which arguments.
#[derive(Serialize)]
struct ApprovalSent<'a> {
    id: &'a str,
    by: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    via: Option<&'a str>,
    digest: String,
}

/// Where the tool may report its result later, and with which token.
#[derive(Serialize)]
struct CallbackSent<'a> {
    url: &'a str,
    token: &'a str,
}

/// The state that the tool had stored for itself, and the answer to its suspension.
#[derive(Serialize)]
struct Resume<'a> {
    state: Option<&'a Value>,
    answer: Option<&'a Value>,
    by: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    via: Option<&'a str>,
}

impl<'a> ToolCallBody<'a> {
    fn new(asked: &'a ToolRequest) -> Self {
        let resume = |resumed: &'a Resumed| Resume {
            state: resumed.state.as_deref(),
            answer: resumed.answer.as_deref(),
            by: resumed.by.name(),
            via: resumed.by.via(),
        };
        let approval = |approved: &'a ApprovedBy| ApprovalSent {
            id: approved.approval.as_str(),
            by: approved.by.name(),
            via: approved.by.via(),
            digest: approved.arguments.to_string(),
        };
        let callback =
            |callback: &'a Callback| CallbackSent { url: &callback.url, token: callback.token.as_str() };
        Self {
            tool: asked.tool.as_str(),
            tenant: asked.tenant.as_str(),
            call_id: asked.call.as_str(),
            run_id: asked.run.as_str(),
            thread_id: asked.thread.as_str(),
            step: asked.step,
            attempt: asked.attempt,
            arguments: &asked.arguments,
            approval: asked.approval.as_ref().map(approval),
            resume: asked.resume.as_ref().map(resume),
            callback: asked.callback.as_ref().map(callback),
        }
    }
}
