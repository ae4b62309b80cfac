//! Connections: how many there may be, of one address too, and who is answered all the same.

use std::time::Duration;

use holdpoint_http::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::test_server::{StoreKind, TestPlan, TestServer};

const PATIENCE: Duration = Duration::from_secs(20);

async fn with_limits(limits: Limits) -> TestServer {
    let mut plan = TestPlan::one_write(StoreKind::Memory);
    plan.limits = limits;
    plan.build().await
}

/// A client that sends the beginning of a request and then waits.
async fn lingering(test_server: &TestServer) -> TcpStream {
    let mut stream = TcpStream::connect(test_server.client.address).await.expect("the server listens");
    stream.write_all(b"GET /v1/ru").await.expect("it reads");
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_every_connection_taken_the_operator_is_answered_and_others_get_a_retry_time() {
    let test_server = with_limits(Limits { connections_max: 2, ..Limits::default() }).await;
    let lingering = [lingering(&test_server).await, lingering(&test_server).await];
    let client = &test_server.client;
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(client.get(path).await.status, 200, "{path}");
    }
    let refused = client.get("/v1/runs").await;
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(refused.headers["connection"], "close");
    refused.refused(429, "RATE_LIMITED");
    drop(lingering);
    // The permits are free once the server has noticed that the clients are gone.
    let again = async { while client.get("/v1/runs").await.status != 200 {} };
    tokio::time::timeout(PATIENCE, again).await.expect("the places are given back");
}

/// Other systems have no second loopback address unless an administrator sets one up.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_address_cannot_use_up_the_connections_of_the_others() {
    let limits = Limits { connections_max: 8, connections_per_address_max: Some(2), ..Limits::default() };
    let test_server = with_limits(limits).await;
    let _lingering = [lingering(&test_server).await, lingering(&test_server).await];
    let ask = async |mut stream: TcpStream, path: &str| {
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n",
            test_server.client.address
        );
        let mut received = Vec::new();
        let asked = async {
            // A client that is not let in may not even get as far as this.
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.read_to_end(&mut received).await;
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("the server answers or hangs up");
        String::from_utf8(received).expect("a text")
    };
    let third = TcpStream::connect(test_server.client.address).await.expect("the server listens");
    assert_eq!(ask(third, "/healthz").await, "", "the third of one address is not answered");
    let elsewhere = async || {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.2:0".parse().expect("an address")).expect("it is of this machine");
        socket.connect(test_server.client.address).await.expect("the server listens")
    };
    assert!(
        ask(elsewhere().await, "/healthz").await.starts_with("HTTP/1.1 200"),
        "another address has its own"
    );
    let numbers = ask(elsewhere().await, "/metrics").await;
    assert!(numbers.contains("\nholdpoint_connections_refused_total 1\n"), "{numbers}");
}
