//! A server that says exactly these bytes, and keeps what it was sent.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use engine::live::ToolNotes;
use engine::store::Tenant;
use engine::tool::{CancellationToken, ToolRequest};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// What is done with one request.
#[derive(Clone)]
pub(crate) enum Turn {
    /// These bytes, and the connection stays open.
    Send(String),
    /// These bytes, and the connection is closed.
    SendAndClose(String),
    /// Nothing, until the other side goes away.
    Stall,
}

impl Turn {
    pub(crate) fn answer(status: &str, kind: &str, body: &str) -> Self {
        Self::with(status, &format!("content-type: {kind}\r\n"), body)
    }

    pub(crate) fn with(status: &str, headers: &str, body: &str) -> Self {
        let length = body.len();
        Self::Send(format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}"))
    }
}

/// One request as it came in.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) head: String,
    pub(crate) body: Value,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        self.head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    }
}

#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    /// Connections so far.
    connections: Arc<Mutex<u32>>,
    /// Rings when a request has been read.
    pub(crate) asked: Arc<Notify>,
    /// Rings when the other side has gone away.
    pub(crate) left: Arc<Notify>,
    /// Rings when this side has closed a connection.
    pub(crate) closed: Arc<Notify>,
}

impl Fake {
    /// The last turn is repeated.
    pub(crate) async fn serving(turns: impl IntoIterator<Item = Turn>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Self {
            address: listener.local_addr().unwrap(),
            received: Arc::default(),
            connections: Arc::default(),
            asked: Arc::default(),
            left: Arc::default(),
            closed: Arc::default(),
        };
        let (taking, turns) = (fake.clone(), turns.into_iter().collect::<Vec<_>>());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *taking.connections.lock().unwrap() += 1;
                tokio::spawn(taking.clone().serve(stream, turns.clone()));
            }
        });
        fake
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/tool", self.address)
    }

    pub(crate) fn received(&self) -> Vec<ReceivedRequest> {
        self.received.lock().unwrap().clone()
    }

    pub(crate) fn connection_count(&self) -> u32 {
        *self.connections.lock().unwrap()
    }

    async fn serve(self, mut stream: TcpStream, turns: Vec<Turn>) {
        while let Some(received) = read(&mut stream).await {
            let number = {
                let mut all = self.received.lock().unwrap();
                all.push(received);
                all.len() - 1
            };
            self.asked.notify_one();
            match &turns[number.min(turns.len() - 1)] {
                Turn::Send(bytes) => stream.write_all(bytes.as_bytes()).await.unwrap_or_default(),
                Turn::SendAndClose(bytes) => {
                    stream.write_all(bytes.as_bytes()).await.unwrap_or_default();
                    drop(stream);
                    self.closed.notify_one();
                    return;
                }
                Turn::Stall => {
                    let _ = stream.read_u8().await;
                    self.left.notify_one();
                    return;
                }
            }
        }
    }
}

async fn read(stream: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        bytes.push(stream.read_u8().await.ok()?);
    };
    let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
    let received = ReceivedRequest { head, body: Value::Null };
    let mut body = vec![0; received.header("content-length")?.parse().ok()?];
    stream.read_exact(&mut body).await.ok()?;
    Some(ReceivedRequest { body: serde_json::from_slice(&body).ok()?, ..received })
}

pub(crate) fn request() -> ToolRequest {
    ToolRequest {
        tenant: Tenant::default(),
        thread: "thr_1".into(),
        run: "run_1".into(),
        call: "call_0".into(),
        tool: "transfer".into(),
        step: 2,
        attempt: 3,
        arguments: Arc::new(json!({"to": "bob", "amount": 5})),
        idempotency_key: "0a1b".to_owned(),
        approval: None,
        resume: None,
        callback: None,
        cancelled: CancellationToken::new(),
        notes: ToolNotes::discarding(),
    }
}
