//! A small client: one connection for each request, and streams read frame by frame.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

/// Longer than anything here takes: a test that waits so long has found a fault.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) token: Option<String>,
}

/// A run to which nothing happens for this long is stuck, and its test fails instead of hanging.
const STUCK_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {} {}", self.status, self.text))
    }

    /// The code of a refusal, in the shape that every refusal has.
    pub(crate) fn code(&self) -> String {
        let body = self.json();
        assert!(body["error"]["message"].is_string() && body["error"]["details"].is_object(), "{body}");
        body["error"]["code"].as_str().expect("a refusal has a code").to_owned()
    }

    #[track_caller]
    pub(crate) fn ok(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.json()
    }

    #[track_caller]
    pub(crate) fn refused(self, status: u16, code: &str) -> Value {
        assert_eq!((self.status, self.code().as_str()), (status, code), "{}", self.text);
        self.json()["error"]["details"].clone()
    }
}

impl Client {
    pub(crate) const fn new(address: SocketAddr) -> Self {
        Self { address, token: None }
    }

    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self { address: self.address, token: Some(token.to_owned()) }
    }

    pub(crate) const fn without_token(&self) -> Self {
        Self::new(self.address)
    }

    /// The line of a head that carries the token; nothing where there is none.
    pub(crate) fn bearer(&self) -> String {
        self.token.as_ref().map_or_else(String::new, |token| format!("authorization: Bearer {token}\r\n"))
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, &[JSON], Some(body.to_string())).await
    }

    pub(crate) async fn post_nothing(&self, path: &str) -> Answer {
        self.send(Method::POST, path, &[], None).await
    }

    pub(crate) async fn post_under_key(&self, path: &str, key: &str, body: Value) -> Answer {
        self.send(Method::POST, path, &[JSON, ("idempotency-key", key)], Some(body.to_string())).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, &[], None).await
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> Answer {
        let answer = async {
            let response = self.begin(method, path, headers, body).await;
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            let body = response.into_body().collect().await.expect("the answer is whole").to_bytes();
            Answer { status, headers, text: String::from_utf8(body.to_vec()).expect("a text") }
        };
        tokio::time::timeout(PATIENCE, answer).await.expect("an answer comes in time")
    }

    async fn begin(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.expect("the server listens");
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("it speaks HTTP");
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", self.address.to_string());
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body.unwrap_or_default()))).expect("a request");
        sender.send_request(request).await.expect("an answer begins")
    }

    /// Opens a stream.
    pub(crate) async fn stream(&self, path: &str, headers: &[(&str, &str)]) -> EventStream {
        let mut all = vec![("accept", "text/event-stream")];
        all.extend_from_slice(headers);
        let response = self.begin(Method::GET, path, &all, None).await;
        assert_eq!(response.status().as_u16(), 200, "a stream begins");
        let headers = response.headers().clone();
        EventStream { headers, body: response.into_body(), unread: String::new() }
    }

    /// Looks again, each time something may have changed, until it is so.
    pub(crate) async fn run_until(&self, run: &str, so: impl Fn(&Value) -> bool) -> Value {
        let path = format!("/v1/runs/{run}");
        let seen = self.get(&path).await.ok(200);
        if so(&seen) {
            return seen;
        }
        let mut events = self.stream(&format!("{path}/events"), &[]).await;
        loop {
            let Ok(event) = tokio::time::timeout(STUCK_AFTER, events.next()).await else {
                panic!("nothing happens to the run any more: {}", self.get(&path).await.text);
            };
            if event.is_none() {
                break;
            }
            let seen = self.get(&path).await.ok(200);
            if so(&seen) {
                return seen;
            }
        }
        let seen = self.get(&path).await.ok(200);
        assert!(so(&seen), "the run is over and it never was so: {seen}");
        seen
    }

    pub(crate) async fn run_reaches(&self, run: &str, status: &str) -> Value {
        self.run_until(run, |seen| seen["status"] == status).await
    }

    /// A thread with one message to the agent; the id of its run.
    pub(crate) async fn begin_run(&self, text: &str) -> String {
        let thread = self.post("/v1/threads", json!({})).await.ok(201);
        let path = format!("/v1/threads/{}/messages", thread["id"].as_str().unwrap());
        let posted = self.post(&path, json!({"agent": "assistant", "text": text})).await.ok(202);
        posted["run_id"].as_str().unwrap().to_owned()
    }

    /// A run whose first call waits for a person, and the approval that it waits for.
    pub(crate) async fn begin_held_run(&self, text: &str) -> (String, String) {
        let run = self.begin_run(text).await;
        let seen = self.run_reaches(&run, "waiting_approval").await;
        (run, seen["pending"][0]["approval_id"].as_str().expect("a person is asked").to_owned())
    }

    /// What a page sends that approves this call, over the AI SDK and over AG-UI: path and body.
    pub(crate) fn front_end_approvals(run: &str, thread: &str, approval: &str) -> [(&'static str, Value); 2] {
        let part = json!({"type": "dynamic-tool", "toolName": "count", "toolCallId": "c", "input": {},
            "state": "approval-responded", "approval": {"id": approval, "approved": true}});
        let answered = json!({"id": format!("msg_{run}"), "role": "assistant", "parts": [part]});
        let resume = json!([{"interruptId": approval, "status": "resolved", "payload": {"approved": true}}]);
        [
            ("/v1/ai-sdk/assistant", json!({"id": thread, "messages": [answered]})),
            (
                "/v1/ag-ui/assistant",
                json!({"threadId": thread, "runId": "r1", "messages": [], "resume": resume}),
            ),
        ]
    }

    /// The whole log, page by page.
    pub(crate) async fn log(&self, run: &str) -> Vec<Value> {
        let (mut events, mut after) = (Vec::new(), 0);
        loop {
            let page = self.get(&format!("/v1/runs/{run}/events?after={after}&limit=3")).await.ok(200);
            events.extend(page["events"].as_array().unwrap().iter().cloned());
            match page["next_after"].as_u64() {
                Some(next) => after = next,
                None => {
                    assert_eq!(page["last_seq"], events.last().map_or(json!(0), |last| last["seq"].clone()));
                    return events;
                }
            }
        }
    }
}

pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");

/// The types of these events, in order.
pub(crate) fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

pub(crate) struct EventStream {
    pub(crate) headers: HeaderMap,
    body: Incoming,
    unread: String,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) id: Option<String>,
    pub(crate) event: String,
    pub(crate) data: Value,
}

impl EventStream {
    /// The next event; none once the server has closed the stream.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            let block = self.next_block().await?;
            if !block.starts_with(':') {
                return Some(frame(&block));
            }
        }
    }

    /// The next event that is stored, deltas left out.
    pub(crate) async fn next_stored(&mut self) -> Option<Frame> {
        loop {
            let frame = self.next().await?;
            if frame.id.is_some() {
                return Some(frame);
            }
        }
    }

    pub(crate) async fn rest(mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }

    /// The next block as it was sent, comments too.
    pub(crate) async fn next_block(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.unread.find("\n\n") {
                let rest = self.unread.split_off(end + 2);
                let block = std::mem::replace(&mut self.unread, rest);
                return Some(block.trim_end_matches('\n').to_owned());
            }
            let frame =
                tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("something comes in time");
            let bytes = frame?.ok()?.into_data().expect("no trailers");
            self.unread.push_str(std::str::from_utf8(&bytes).expect("a text"));
        }
    }
}

fn frame(block: &str) -> Frame {
    let field = |name: &str| {
        let values: Vec<&str> = block.lines().filter_map(|line| line.strip_prefix(name)).collect();
        assert!(values.len() <= 1, "one line each: {block}");
        values.first().map(|value| value.trim_start().to_owned())
    };
    let data = field("data:").expect("an event has data");
    Frame {
        id: field("id:"),
        event: field("event:").expect("an event has a name"),
        data: serde_json::from_str(&data).expect("the data is JSON"),
    }
}
