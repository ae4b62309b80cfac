//! A hook server on a real socket. It does with each request what the test wants, and records it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// What the server does with one request.
#[derive(Clone, Debug)]
pub(crate) enum Turn {
    Answer(String),
    /// This status and these headers, each with its line end, before the same body.
    Status(&'static str, &'static str, String),
    /// Answers only after the test has released it, if the connection is still open then.
    Late(String),
    /// Sends half of the answer and closes the connection.
    Cut(String),
    /// Closes the connection without an answer.
    Close,
}

impl Turn {
    pub(crate) fn actions(actions: &[Value]) -> Self {
        Self::Answer(answering(actions))
    }
}

/// The body of an answer with these actions.
pub(crate) fn answering(actions: &[Value]) -> String {
    json!({"actions": actions}).to_string()
}

#[derive(Clone)]
pub(crate) struct HookServer {
    address: SocketAddr,
    questions: Arc<Mutex<Vec<Value>>>,
    heads: Arc<Mutex<Vec<String>>>,
    /// Notified when a request has arrived that is to be answered late.
    pub(crate) late_asked: Arc<Notify>,
    /// The test notifies it when a late answer is to be sent.
    pub(crate) release: Arc<Notify>,
}

impl HookServer {
    /// The n-th request of each phase gets the n-th turn. Further requests get no actions.
    pub(crate) async fn serving(turns: impl IntoIterator<Item = Turn>) -> Self {
        let turns: Vec<Turn> = turns.into_iter().collect();
        Self::serving_by(move |_, number| turns.get(number).cloned()).await
    }

    /// `turn` gets the question and the number of earlier questions in its phase. None: no actions.
    pub(crate) async fn serving_by(
        turn: impl Fn(&Value, usize) -> Option<Turn> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            questions: Arc::default(),
            heads: Arc::default(),
            late_asked: Arc::default(),
            release: Arc::default(),
        };
        let (serving, turn) = (server.clone(), Arc::new(turn));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (serving, turn) = (serving.clone(), turn.clone());
                tokio::spawn(async move { serving.serve(stream, &*turn).await });
            }
        });
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// Every question so far.
    pub(crate) fn questions(&self) -> Vec<Value> {
        self.questions.lock().unwrap().clone()
    }

    /// Request line and headers of every question so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// The phases of all questions so far.
    pub(crate) fn phases(&self) -> Vec<String> {
        self.questions().iter().map(|asked| asked["phase"].as_str().unwrap().to_owned()).collect()
    }

    async fn serve(&self, mut stream: TcpStream, turn: &(impl Fn(&Value, usize) -> Option<Turn> + Sync)) {
        while let Some((head, question)) = read(&mut stream).await {
            let earlier = {
                let mut questions = self.questions.lock().unwrap();
                let earlier = questions.iter().filter(|known| known["phase"] == question["phase"]).count();
                questions.push(question.clone());
                earlier
            };
            self.heads.lock().unwrap().push(head);
            let (status, headers, body) = match turn(&question, earlier) {
                None => ("200 OK", "", answering(&[])),
                Some(Turn::Answer(body)) => ("200 OK", "", body),
                Some(Turn::Status(status, headers, body)) => (status, headers, body),
                Some(Turn::Late(body)) => {
                    self.late_asked.notify_one();
                    self.release.notified().await;
                    ("200 OK", "", body)
                }
                Some(Turn::Cut(body)) => {
                    let half = &body[..body.len() / 2];
                    let cut = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{half}", body.len());
                    stream.write_all(cut.as_bytes()).await.unwrap_or_default();
                    return;
                }
                Some(Turn::Close) => return,
            };
            let whole = format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(whole.as_bytes()).await.unwrap_or_default();
        }
    }
}

/// An address at which nothing listens.
pub(crate) async fn down() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}/hook", listener.local_addr().unwrap())
}

async fn read(stream: &mut TcpStream) -> Option<(String, Value)> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(bytes).ok()?.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    let mut body = vec![0; length.parse().ok()?];
    stream.read_exact(&mut body).await.ok()?;
    Some((head, serde_json::from_slice(&body).ok()?))
}
