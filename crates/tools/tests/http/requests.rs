//! What a tool is sent, over which connection, and to whom nothing is sent.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use engine::tool::{ApprovedBy, Callback, Outcome, Resumed, Tool, ToolAnswer, ToolDefinition, ToolRequest};
use machine::id::Digest;
use serde_json::json;
use tools::http::{EndpointError, HttpSettings, HttpTool, SigningSecret};

use crate::fake::{Fake, Turn, request};

fn transfer() -> ToolDefinition {
    ToolDefinition::new("transfer", "Moves money")
}

#[tokio::test]
async fn a_request_identifies_its_call_and_has_its_idempotency_key() {
    let fake = Fake::serving([Turn::with("200 OK", "", "sent")]).await;
    let settings = HttpSettings { bearer: Some("s3cret".into()), ..HttpSettings::at(&fake.url()) };
    let tool = HttpTool::new(transfer(), &settings).unwrap();
    tool.call(request()).await;
    let answered = Resumed {
        state: Some(Arc::new(json!({"ticket": 7}))),
        answer: Some(Arc::new(json!("yes"))),
        by: "ann".into(),
    };
    let callback = Callback { url: "https://runs.example.org/c/5b".into(), token: "t0ken".into() };
    tool.call(ToolRequest { resume: Some(answered), callback: Some(callback), ..request() }).await;
    let unanswered = Resumed { state: None, answer: None, by: "ann".into() };
    tool.call(ToolRequest { resume: Some(unanswered), ..request() }).await;
    tool.call(ToolRequest { tenant: "acme".into(), ..request() }).await;
    let [first, second, third, of_acme] = &fake.received()[..] else { panic!("four requests") };
    assert!(first.head.starts_with("POST /tool HTTP/1.1\r\n"), "{}", first.head);
    assert_eq!(first.header("idempotency-key").as_deref(), Some("0a1b"));
    assert_eq!(first.header("content-type").as_deref(), Some("application/json"));
    assert_eq!(first.header("authorization").as_deref(), Some("Bearer s3cret"));
    let expected = json!({"tool": "transfer", "tenant": "default", "call_id": "call_0", "run_id": "run_1",
        "thread_id": "thr_1", "step": 2, "attempt": 3, "arguments": {"to": "bob", "amount": 5}});
    assert_eq!(first.body, expected);
    assert_eq!(of_acme.body["tenant"], "acme", "another tenant may have a thread of the same name");
    assert_eq!(second.body["resume"], json!({"state": {"ticket": 7}, "answer": "yes", "by": "ann"}));
    assert_eq!(third.body["resume"], json!({"state": null, "answer": null, "by": "ann"}));
    assert_eq!(second.body["callback"], json!({"url": "https://runs.example.org/c/5b", "token": "t0ken"}));
}

#[tokio::test]
async fn a_request_names_the_approval_and_is_signed_so_that_the_tool_can_verify_it() {
    let fake = Fake::serving([Turn::with("200 OK", "", "sent")]).await;
    let secret = SigningSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    let settings = HttpSettings { signing_secret: secret, ..HttpSettings::at(&fake.url()) };
    let tool = HttpTool::new(transfer(), &settings).unwrap();
    assert!(tool.wants_approval());
    let digest = Digest::sha256(b"arguments");
    let approval = ApprovedBy { approval: "apr_1".into(), by: "ann".into(), arguments: digest };
    tool.call(ToolRequest { approval: Some(approval), ..request() }).await;
    tool.call(request()).await;
    let [approved, other] = &fake.received()[..] else { panic!("two requests") };
    let expected = json!({"id": "apr_1", "by": "ann", "digest": digest.to_string()});
    assert_eq!((&approved.body["approval"], other.body.get("approval")), (&expected, None));
    assert_eq!(approved.header("webhook-id").as_deref(), Some("0a1b_3"));
    let seconds: u64 = approved.header("webhook-timestamp").unwrap().parse().unwrap();
    assert!(seconds > 1_700_000_000, "in seconds: {seconds}");
    let signature = approved.header("webhook-signature").unwrap();
    assert!(signature.starts_with("v1,") && signature.len() == 3 + 44, "{signature}");
    assert_ne!(Some(signature), other.header("webhook-signature"), "of another body");
}

#[tokio::test]
async fn a_token_that_the_tool_echoes_is_masked_everywhere() {
    let token = "tok/en-0123456789";
    let json = "content-type: application/json\r\n";
    let warned = format!("{json}holdpoint-warning: {token} will expire\r\n");
    for (status, head, body) in [
        ("200 OK", "", "your token is tok/en-0123456789".to_owned()),
        (
            "200 OK",
            json,
            r#"{"tok\/en-0123456789": ["Bearer tok\/en-0123456789", "tok/en-01***"]}"#.to_owned(),
        ),
        ("200 OK", &warned, "{}".to_owned()),
        ("202 Accepted", json, format!(r#"{{"question": "{token}?", "state": {{"t": "{token}"}}}}"#)),
        ("403 Forbidden", "", format!("bad token {token}")),
        ("503 Service Unavailable", "", format!("bad token {token}")),
    ] {
        let fake = Fake::serving([Turn::with(status, head, &body)]).await;
        let settings = HttpSettings { bearer: Some(token.into()), ..HttpSettings::at(&fake.url()) };
        let outcome = HttpTool::new(transfer(), &settings).unwrap().call(request()).await;
        let shown = format!("{outcome:?}");
        assert!(shown.contains("[token]") && !shown.contains("tok/en-0"), "{shown}");
    }
}

#[tokio::test]
async fn no_token_is_sent_where_none_is_configured() {
    let fake = Fake::serving([Turn::with("200 OK", "", "sent")]).await;
    HttpTool::new(transfer(), &HttpSettings::at(&fake.url())).unwrap().call(request()).await;
    assert_eq!(fake.received()[0].header("authorization"), None);
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let fake = Fake::serving([Turn::with("200 OK", "", "sent")]).await;
    let tool = HttpTool::new(transfer(), &HttpSettings::at(&fake.url())).unwrap();
    for _ in 0..10 {
        tool.call(request()).await;
    }
    assert_eq!((fake.received().len(), fake.connection_count()), (10, 1));
}

/// The server says that the connection stays open, and closes it all the same. Nothing of the next call was sent there, so
/// no person has to be asked whether it happened.
#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_leaves_no_doubt() {
    let kept = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nsent";
    let fake = Fake::serving([Turn::SendAndClose(kept.into())]).await;
    let tool = HttpTool::new(transfer(), &HttpSettings::at(&fake.url())).unwrap();
    for _ in 0..20 {
        let outcome = tool.call(request()).await;
        assert!(matches!(outcome, Outcome::Answered(ToolAnswer::Success { .. })), "{outcome:?}");
        fake.closed.notified().await;
    }
    assert_eq!((fake.received().len(), fake.connection_count()), (20, 20));
}

/// Answers on a thread of its own, so that it can close a connection while nothing on the runtime is polled.
struct ClosingServer {
    url: String,
    close: mpsc::Sender<()>,
    closed: mpsc::Receiver<()>,
    received: Arc<AtomicUsize>,
}

impl ClosingServer {
    fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/tool", listener.local_addr().unwrap());
        let ((close, closing), (say, closed)) = (mpsc::channel::<()>(), mpsc::channel());
        let received = Arc::<AtomicUsize>::default();
        let count = received.clone();
        // One request on each connection; the next connection is taken once this one is closed.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                let mut length = 0;
                loop {
                    let mut line = String::new();
                    stream.read_line(&mut line).unwrap();
                    if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                    if line.trim().is_empty() {
                        break;
                    }
                }
                stream.read_exact(&mut vec![0; length]).unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                let mut stream = stream.into_inner();
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nsent").unwrap();
                if closing.recv().is_err() {
                    return;
                }
                drop(stream);
                say.send(()).unwrap();
            }
        });
        Self { url, close, closed, received }
    }

    /// The connection is closed when this returns, and the client has not noticed it.
    fn close(&self) {
        self.close.send(()).unwrap();
        self.closed.recv().unwrap();
    }
}

/// The connection is closed in the moment before the next write begins: the pool still takes it for open.
#[tokio::test]
async fn a_connection_that_is_closed_right_before_a_write_leaves_no_doubt() {
    let server = ClosingServer::start();
    let tool = HttpTool::new(transfer(), &HttpSettings::at(&server.url)).unwrap();
    for number in 1..=20 {
        let outcome = tool.call(request()).await;
        assert!(matches!(outcome, Outcome::Answered(ToolAnswer::Success { .. })), "{outcome:?}");
        assert_eq!(server.received.load(Ordering::SeqCst), number, "each call was sent once");
        // The connection has to be back among the idle ones before it is closed.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        server.close();
    }
}

#[tokio::test]
async fn this_machine_may_be_called_by_its_plain_name() {
    let fake = Fake::serving([Turn::with("200 OK", "", "sent")]).await;
    let plain = HttpSettings::at(&format!("http://localhost:{}/tool", fake.address.port()));
    HttpTool::new(transfer(), &plain).unwrap().call(request()).await;
    assert_eq!(fake.received().len(), 1);
}

#[test]
fn what_cannot_be_called_is_refused_before_anything_is() {
    let made = |settings: &HttpSettings| HttpTool::new(transfer(), settings).err();
    for url in [
        "",
        "tool",
        "/tool",
        "ftp://example.com/",
        "http://",
        "http:///tool",
        "http://exa mple.com/",
        "http://ann:sesame@example.com/",
    ] {
        assert_eq!(made(&HttpSettings::at(url)), Some(EndpointError::BadUrl), "{url}");
    }
    let bearer = Some("two\nlines".to_owned());
    let settings = HttpSettings { bearer, ..HttpSettings::at("http://127.0.0.1/") };
    assert_eq!(made(&settings), Some(EndpointError::BadBearer));
}
