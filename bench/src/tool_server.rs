//! An HTTP tool that does nothing, in another process. It counts connections and requests.

use std::env;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::command::TOOL_SERVER;
use crate::environment::one_thread;
use crate::failure::Failure;
use crate::process;

const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{\"ok\":true}";
/// A request has a few hundred bytes.
const REQUEST_BYTES_MAX: usize = 65_536;

#[derive(Default)]
struct Counters {
    connections: AtomicU64,
    requests: AtomicU64,
}

/// The other process: prints its port, and its counters for each line that it reads. It ends when its input ends.
pub(crate) fn serve() -> Result<(), Failure> {
    let counters = Arc::new(Counters::default());
    let counted = counters.clone();
    one_thread()?.block_on(async move {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?.port());
        thread::spawn(move || {
            for _ in io::stdin().lock().lines().map_while(Result::ok) {
                let (connections, requests) = (&counted.connections, &counted.requests);
                println!("{} {}", connections.load(Ordering::Relaxed), requests.load(Ordering::Relaxed));
            }
            std::process::exit(0);
        });
        loop {
            let (stream, _) = listener.accept().await?;
            counters.connections.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(answer(stream, counters.clone()));
        }
    })
}

/// Answers requests until the client closes the connection.
async fn answer(mut stream: TcpStream, counters: Arc<Counters>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut bytes = Vec::new();
    while bytes.len() < REQUEST_BYTES_MAX && stream.read_buf(&mut bytes).await? > 0 {
        while let Some(length) = whole_request(&bytes) {
            bytes.drain(..length);
            counters.requests.fetch_add(1, Ordering::Relaxed);
            stream.write_all(ANSWER).await?;
        }
    }
    Ok(())
}

/// The length of the first request, if it is complete.
fn whole_request(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&bytes[..head]).ok()?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let all = head + 4 + length.unwrap_or(0);
    (bytes.len() >= all).then_some(all)
}

/// The parent's handle. The process ends with it.
pub(crate) struct ToolServer {
    process: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    port: u16,
}

/// The process's counters so far.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) connections: u64,
    pub(crate) requests: u64,
    pub(crate) cpu: Option<Duration>,
}

impl Drop for ToolServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl ToolServer {
    pub(crate) fn start() -> Result<Self, Failure> {
        let mut start = Command::new(env::current_exe()?);
        let mut process = start.arg(TOOL_SERVER).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let missing = || Failure::new("a process without pipes");
        let requests = process.stdin.take().ok_or_else(missing)?;
        let answers = BufReader::new(process.stdout.take().ok_or_else(missing)?).lines();
        let mut server = Self { process, requests, answers, port: 0 };
        server.port = server.line()?.parse()?;
        Ok(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/tool", self.port)
    }

    pub(crate) fn seen(&mut self) -> Result<Seen, Failure> {
        writeln!(self.requests)?;
        let line = self.line()?;
        let (connections, requests) =
            line.split_once(' ').ok_or_else(|| Failure::new("the tool's process printed nothing"))?;
        let cpu = process::times_of(self.process.id()).map(|times| times.own);
        Ok(Seen { connections: connections.parse()?, requests: requests.parse()?, cpu })
    }

    fn line(&mut self) -> Result<String, Failure> {
        Ok(self.answers.next().ok_or_else(|| Failure::new("the tool's process is gone"))??)
    }
}

#[test]
fn a_request_is_whole_when_its_body_is_there() {
    let request = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}POST";
    assert_eq!(whole_request(request), Some(request.len() - 4));
    assert_eq!(whole_request(&request[..request.len() - 5]), None);
    assert_eq!(whole_request(b"POST / HTTP/1.1\r\n"), None);
}
