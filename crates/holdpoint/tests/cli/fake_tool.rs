//! A tool or a model provider that the program calls over HTTP. It records the requests and answers as a test wants.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use serde_json::Value;

/// One request.
pub(crate) struct ReceivedRequest {
    /// In lower case.
    pub(crate) head: String,
    pub(crate) body: Value,
}

impl ReceivedRequest {
    /// None if the client sends no complete request with a JSON body.
    pub(crate) fn read(stream: &TcpStream) -> Option<Self> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let head = head.to_lowercase();
        let mut body = vec![0; field(&head, "content-length")?.parse().ok()?];
        reader.read_exact(&mut body).ok()?;
        Some(Self { head, body: serde_json::from_slice(&body).ok()? })
    }

    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> &str {
        field(&self.head, name).expect("the header is sent")
    }
}

fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Calls `meet` with every connection. Returns the address.
pub(crate) fn accept_connections(meet: impl FnMut(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || listener.incoming().map_while(Result::ok).for_each(meet));
    address
}

/// One answer after the other; the last one is repeated.
pub(crate) fn in_turn(answers: Vec<&'static str>) -> impl FnMut() -> &'static str {
    let mut answers = answers.into_iter();
    let mut answer = "";
    move || {
        answer = answers.next().unwrap_or(answer);
        answer
    }
}

/// A tool that is called over HTTP.
pub(crate) struct CalledTool {
    pub(crate) address: String,
    calls: Receiver<ReceivedRequest>,
}

impl CalledTool {
    pub(crate) fn answering(answers: Vec<&'static str>) -> Self {
        let mut next = in_turn(answers);
        Self::answering_by(move |_| Some(next()))
    }

    /// If `answer` returns none, the connection stays open without a response.
    pub(crate) fn answering_by(
        mut answer: impl FnMut(&ReceivedRequest) -> Option<&'static str> + Send + 'static,
    ) -> Self {
        let (sender, calls) = mpsc::channel();
        let mut open = Vec::new();
        let address = accept_connections(move |mut stream| {
            let Some(asked) = ReceivedRequest::read(&stream) else { return };
            let answer = answer(&asked);
            // Recorded before the response: a test may read it as soon as the response arrives.
            let _ = sender.send(asked);
            match answer {
                Some(answer) => stream.write_all(answer.as_bytes()).unwrap_or_default(),
                None => open.push(stream),
            }
        });
        Self { address, calls }
    }

    /// Waits for the next call.
    #[track_caller]
    pub(crate) fn next(&self) -> ReceivedRequest {
        self.calls.recv_timeout(Duration::from_secs(60)).expect("the tool is called")
    }

    /// All recorded calls that the test has not read yet.
    pub(crate) fn rest(&self) -> Vec<ReceivedRequest> {
        self.calls.try_iter().collect()
    }
}
