//! A provider that does what a story tells it to: it paces, cuts, corrupts, delays and hangs, on a real socket.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

/// What is done on one connection, after the request was read.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Status, and further headers with their ends of line.
    Head(u16, String),
    /// One piece of the body.
    Body(Vec<u8>),
    Pause(Duration),
    /// The body is over, in order.
    End,
    /// Says nothing more until the other side hangs up, and tells when it did.
    Hang,
}

pub(crate) type ConnectionScript = Vec<Step>;

/// What the fake reports to a test while it happens.
#[derive(Debug)]
pub(crate) enum FakeEvent {
    /// It hangs.
    Hanging,
    /// The other side closed its socket.
    Closed(Instant),
}

/// A request as it was received.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    /// The first line and the headers, in lower case.
    pub(crate) head: String,
    pub(crate) body: Value,
}

pub(crate) struct Fake {
    pub(crate) url: String,
    received: Arc<Mutex<Vec<Received>>>,
    pub(crate) events: UnboundedReceiver<FakeEvent>,
}

impl Fake {
    /// The n-th connection gets the n-th script, and the last one repeats.
    pub(crate) async fn serving(scripts: Vec<ConnectionScript>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let received = Arc::new(Mutex::new(Vec::new()));
        let (sender, events) = unbounded_channel();
        let kept = received.clone();
        tokio::spawn(async move {
            let mut scripts = scripts.into_iter().peekable();
            let mut script = Vec::new();
            while let Ok((socket, _)) = listener.accept().await {
                script = scripts.next().unwrap_or(script);
                tokio::spawn(serve(socket, script.clone(), kept.clone(), sender.clone()));
            }
        });
        Self { url, received, events }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().expect("the lock is not poisoned").clone()
    }

    /// The next news, within a time that only a broken program takes.
    pub(crate) async fn next_event(&mut self) -> FakeEvent {
        let next = tokio::time::timeout(Duration::from_secs(20), self.events.recv()).await;
        next.expect("news in time").expect("a fake that lives")
    }
}

/// An address at which no server listens.
pub(crate) async fn closed_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    format!("http://{}", listener.local_addr().expect("an address"))
}

/// A client that hangs up in the middle ends the script: some tests are about that.
async fn serve(
    mut socket: TcpStream,
    script: ConnectionScript,
    received: Arc<Mutex<Vec<Received>>>,
    events: UnboundedSender<FakeEvent>,
) {
    let Some(request) = read_request(&mut socket).await else { return };
    received.lock().expect("the lock is not poisoned").push(request);
    for step in script {
        let written = match step {
            Step::Head(status, headers) => {
                let head = format!("HTTP/1.1 {status} So\r\n{headers}transfer-encoding: chunked\r\n\r\n");
                socket.write_all(head.as_bytes()).await
            }
            Step::Body(bytes) => write_chunk(&mut socket, &bytes).await,
            Step::Pause(time) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
            Step::End => socket.write_all(b"0\r\n\r\n").await,
            Step::Hang => {
                let _ = events.send(FakeEvent::Hanging);
                let mut rest = [0_u8; 64];
                while socket.read(&mut rest).await.is_ok_and(|count| count > 0) {}
                let _ = events.send(FakeEvent::Closed(Instant::now()));
                Ok(())
            }
        };
        if written.is_err() {
            return;
        }
    }
}

async fn write_chunk(socket: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    socket.write_all(&chunk).await?;
    socket.flush().await
}

async fn read_request(socket: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).ok()?.to_lowercase();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse::<usize>().ok()?;
    let mut body = bytes.split_off(end + 4);
    while body.len() < length {
        if socket.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Received { head, body: serde_json::from_slice(&body).ok()? })
}
