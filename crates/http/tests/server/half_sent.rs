//! A request whose body is sent later than its head.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::client::Client;

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct HalfSent {
    stream: TcpStream,
    body: String,
}

impl HalfSent {
    /// Comes back when the server has judged the head and waits for the body.
    pub(crate) async fn post(client: &Client, path: &str, body: &Value) -> Self {
        let body = body.to_string();
        let socket = TcpSocket::new_v4().expect("a socket");
        // So that a long body is sent only as far as the server takes it.
        socket.set_send_buffer_size(16 * 1024).expect("a smaller buffer");
        let mut stream = socket.connect(client.address).await.expect("the server listens");
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\n{}content-type: application/json\r\ncontent-length: {}\r\n\
             expect: 100-continue\r\nconnection: close\r\n\r\n",
            client.address,
            client.bearer(),
            body.len(),
        );
        stream.write_all(head.as_bytes()).await.expect("it reads");
        let mut received = [0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
        let waits = tokio::time::timeout(PATIENCE, stream.read_exact(&mut received));
        waits.await.expect("it answers in time").expect("it answers");
        assert!(received.starts_with(b"HTTP/1.1 100 "), "{}", String::from_utf8_lossy(&received));
        Self { stream, body }
    }

    /// Sends the body, all of which the server has to take, and gives the whole answer.
    pub(crate) async fn finish(mut self) -> String {
        let sent = tokio::time::timeout(PATIENCE, self.stream.write_all(self.body.as_bytes()));
        sent.await.expect("it takes the body in time").expect("it takes the body");
        self.answer().await
    }

    /// The whole answer, without the body being sent.
    pub(crate) async fn answer(mut self) -> String {
        let mut answer = Vec::new();
        let received = tokio::time::timeout(PATIENCE, self.stream.read_to_end(&mut answer));
        received.await.expect("an answer comes in time").expect("the answer is not cut off");
        String::from_utf8(answer).expect("a text")
    }
}
