//! A hook over HTTP: a plugin that is asked with POST. Whatever is not a complete, valid answer is a failure of the
//! hook, and the rule of its phase applies. A request is never repeated.

mod answer;
mod question;

use std::time::Duration;

use engine::masking::{mask_json, masked};
use engine::plugin::{Action, HookContext, PhaseSet, Plugin, Subject};
use engine::store::BoxFuture;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Response, StatusCode};
use machine::id::{Digest, PluginName};
use machine::json_text::{self, Bounds};
use serde_json::Value;
use tokio::sync::Semaphore;

use self::question::Question;
use super::answer::{LONG_BYTES, quoted};
use super::endpoint::{Endpoint, EndpointError, HttpSettings, SendError, root_cause};
use super::masked::MASK;

/// Maximum requests to one hook at a time. Further requests wait, and their time limit includes the wait.
const REQUESTS_MAX: usize = 64;
/// Maximum characters of the text that says why a hook failed.
const FAILURE_CHARS_MAX: usize = 500;

#[derive(Clone)]
pub struct HookSettings {
    /// Stored with its answers and with its state.
    pub name: PluginName,
    pub phases: PhaseSet,
    /// From the moment at which the engine asks until the answer is complete.
    pub timeout: Duration,
    pub http: HttpSettings,
}

/// A plugin that is asked with POST.
pub struct HttpHook {
    name: PluginName,
    phases: PhaseSet,
    timeout: Duration,
    response_bytes_max: usize,
    endpoint: Endpoint,
    permits: Semaphore,
}

impl HttpHook {
    pub fn new(settings: &HookSettings) -> Result<Self, EndpointError> {
        let HookSettings { name, phases, timeout, http } = settings;
        Ok(Self {
            name: name.clone(),
            phases: *phases,
            timeout: *timeout,
            response_bytes_max: http.response_bytes_max,
            endpoint: Endpoint::new(http, *timeout)?,
            permits: Semaphore::new(REQUESTS_MAX),
        })
    }

    async fn ask(&self, context: &HookContext) -> Result<Vec<Action>, String> {
        let body = Question::new(&self.name, context).to_json()?;
        let message_id = format!("hook_{}", Digest::sha256(&body));
        let request = self.endpoint.request(body, &message_id)?;
        let permit = self.permits.acquire().await;
        let _permit = permit.map_err(|_| "it takes no more requests".to_owned())?;
        // Lets the client process what has already arrived: a connection that the hook has closed in the meantime is
        // then not reused.
        tokio::task::yield_now().await;
        let response = self.endpoint.send(request).await.map_err(|error| match error {
            SendError::NotConnected(cause) => format!("it could not be reached: {cause}"),
            SendError::Lost(cause) => format!("the connection was lost before it had answered: {cause}"),
        })?;
        let mut answer = self.read(response).await?;
        if let Some(token) = self.endpoint.token() {
            mask_json(&mut answer, token, MASK);
        }
        answer::actions(answer, call_count(&context.subject))
    }

    async fn read(&self, response: Response<Incoming>) -> Result<Value, String> {
        let (head, body) = response.into_parts();
        let bytes_max = self.response_bytes_max;
        let body = match Limited::new(body, bytes_max).collect().await {
            Ok(collected) => collected.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return Err(format!("it answered {} with more than {bytes_max} bytes", head.status));
            }
            Err(error) => {
                let cause = root_cause(&*error);
                return Err(format!("the connection was lost in the middle of its answer: {cause}"));
            }
        };
        if head.status.is_redirection() {
            return Err(format!("it answered {}, and redirects are not followed", head.status));
        }
        if head.status != StatusCode::OK {
            return Err(format!("it answered {}", quoted(head.status, Some(&body))));
        }
        if body.len() <= LONG_BYTES {
            return parsed(&body);
        }
        let parsed = tokio::task::spawn_blocking(move || parsed(&body)).await;
        parsed.map_err(|error| format!("its answer was not read: {error}"))?
    }

    /// Safe to store and to show.
    fn shown(&self, why: &str) -> String {
        let why = match self.endpoint.token() {
            Some(token) => masked(why, token, MASK),
            None => why.to_owned(),
        };
        why.chars().take(FAILURE_CHARS_MAX).collect()
    }
}

impl Plugin for HttpHook {
    fn name(&self) -> &PluginName {
        &self.name
    }

    fn phases(&self) -> PhaseSet {
        self.phases
    }

    fn hook(&self, context: HookContext) -> BoxFuture<'_, Result<Vec<Action>, String>> {
        Box::pin(async move {
            match tokio::time::timeout(self.timeout, self.ask(&context)).await {
                Ok(answer) => answer.map_err(|why| self.shown(&why)),
                Err(_) => Err(format!("no answer within {:?}", self.timeout)),
            }
        })
    }
}

fn parsed(body: &Bytes) -> Result<Value, String> {
    json_text::parse_bytes(body, &Bounds::VALUE).map_err(|fault| format!("its answer is not JSON: {fault}"))
}

/// The number of calls that an action of this phase can name by index.
fn call_count(subject: &Subject) -> usize {
    match subject {
        Subject::AfterInference { answer } => answer.calls.len(),
        Subject::RunStart
        | Subject::StepStart
        | Subject::BeforeInference { .. }
        | Subject::BeforeToolExecute { .. }
        | Subject::AfterToolExecute { .. }
        | Subject::StepEnd
        | Subject::RunEnd { .. } => 0,
    }
}
