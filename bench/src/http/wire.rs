//! The part of HTTP that is needed: requests on reused connections, and responses with a length or in chunks.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::failure::Failure;

use super::server::{Site, token};

/// The server closes a connection that has been idle for longer than it waits for a request.
const IDLE_MAX: Duration = Duration::from_secs(5);

/// One tenant's client. It reuses free connections.
#[derive(Clone)]
pub(crate) struct Client {
    site: Site,
    tenant: usize,
    free: Arc<Mutex<Vec<(Instant, Connection)>>>,
}

impl Client {
    pub(crate) fn new(site: Site, tenant: usize) -> Self {
        Self { site, tenant, free: Arc::default() }
    }

    pub(crate) async fn post(&self, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        let text = self.ask("POST", path, body).await?;
        Ok(serde_json::from_str(&text)?)
    }

    pub(crate) async fn text(&self, path: &str) -> Result<String, Failure> {
        self.ask("GET", path, None).await
    }

    /// An error status fails the measurement.
    async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<String, Failure> {
        let body = body.map(Value::to_string);
        let (status, text) = self.exchange(method, path, body.as_deref()).await?;
        if !(200..300).contains(&status) {
            return Err(Failure::new(format!("{method} {path}: {status}: {text}")));
        }
        Ok(text)
    }

    /// Returns the status of the response, and its body.
    pub(crate) async fn exchange(
        &self,
        method: &str,
        path: &str,
        body: Option<&str>,
    ) -> Result<(u16, String), Failure> {
        let mut connection = self.connection().await?;
        connection.send(method, path, self.tenant, body).await?;
        let answer = connection.head().await?;
        let text = String::from_utf8(connection.body(&answer).await?)?;
        // The server closes the connection after some error responses.
        if answer.status < 400 {
            self.give_back(connection);
        }
        Ok((answer.status, text))
    }

    /// Returns after the response head; its frames are then read from the connection.
    pub(crate) async fn stream(&self, path: &str) -> Result<Connection, Failure> {
        let mut connection = self.connection().await?;
        connection.send("GET", path, self.tenant, None).await?;
        connection.expect_stream(path).await
    }

    /// Posts, and returns after the response head; the frames are then read from the connection.
    pub(crate) async fn stream_of_post(&self, path: &str, body: &Value) -> Result<Connection, Failure> {
        let mut connection = self.connection().await?;
        connection.send("POST", path, self.tenant, Some(&body.to_string())).await?;
        connection.expect_stream(path).await
    }

    /// Once a stream has ended, its connection can be reused.
    pub(crate) fn give_back(&self, connection: Connection) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), connection));
    }

    async fn connection(&self) -> Result<Connection, Failure> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match free {
            Some((since, connection)) if since.elapsed() < IDLE_MAX => Ok(connection),
            Some(_) | None => Connection::open(&self.site.address).await,
        }
    }
}

pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    address: String,
    line: String,
    unread: Vec<u8>,
}

struct Answer {
    status: u16,
    /// None if the body is chunked.
    length: Option<usize>,
}

impl Connection {
    async fn open(address: &str) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (stream, address) = (BufReader::new(stream), address.to_owned());
        Ok(Self { stream, address, line: String::new(), unread: Vec::new() })
    }

    async fn send(
        &mut self,
        method: &str,
        path: &str,
        tenant: usize,
        body: Option<&str>,
    ) -> Result<(), Failure> {
        let (address, token) = (&self.address, token(tenant));
        let mut text =
            format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n");
        match body {
            Some(body) => {
                text += &format!(
                    "content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                );
            }
            None if method == "GET" && path.ends_with("/events") => {
                text += "accept: text/event-stream\r\n\r\n"
            }
            None => text += "content-length: 0\r\n\r\n",
        }
        self.stream.write_all(text.as_bytes()).await?;
        Ok(())
    }

    async fn expect_stream(mut self, path: &str) -> Result<Self, Failure> {
        let answer = self.head().await?;
        if answer.status != 200 || answer.length.is_some() {
            return Err(Failure::new(format!("{path}: {} and no stream", answer.status)));
        }
        Ok(self)
    }

    async fn next_line(&mut self) -> Result<&str, Failure> {
        self.line.clear();
        if self.stream.read_line(&mut self.line).await? == 0 {
            return Err(Failure::new("a connection broke off"));
        }
        Ok(self.line.trim_end_matches("\r\n"))
    }

    async fn head(&mut self) -> Result<Answer, Failure> {
        let first = self.next_line().await?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| Failure::new(format!("no status: {first}")))?;
        let mut length = Some(0);
        loop {
            let line = self.next_line().await?.to_ascii_lowercase();
            match line.split_once(':') {
                None => return Ok(Answer { status, length }),
                Some(("content-length", value)) => length = Some(value.trim().parse()?),
                Some(("transfer-encoding", _)) => length = None,
                Some(_) => {}
            }
        }
    }

    async fn body(&mut self, answer: &Answer) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        match answer.length {
            Some(length) => {
                body.resize(length, 0);
                self.stream.read_exact(&mut body).await?;
            }
            None => while self.chunk(&mut body).await? {},
        }
        Ok(body)
    }

    /// False after the last chunk.
    async fn chunk(&mut self, into: &mut Vec<u8>) -> Result<bool, Failure> {
        let length = usize::from_str_radix(self.next_line().await?, 16)?;
        let begin = into.len();
        into.resize(begin + length, 0);
        self.stream.read_exact(&mut into[begin..]).await?;
        self.next_line().await?;
        Ok(length > 0)
    }

    /// The next frame or comment of a stream; none if the server has closed it properly.
    pub(crate) async fn next_block(&mut self) -> Result<Option<String>, Failure> {
        loop {
            if let Some(end) = self.unread.windows(2).position(|pair| pair == b"\n\n") {
                let rest = self.unread.split_off(end + 2);
                let mut block = std::mem::replace(&mut self.unread, rest);
                block.truncate(end);
                return Ok(Some(String::from_utf8(block)?));
            }
            let mut unread = std::mem::take(&mut self.unread);
            let more = self.chunk(&mut unread).await;
            self.unread = unread;
            if !more? {
                return Ok(None);
            }
        }
    }
}
