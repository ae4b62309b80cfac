//! A payment service in its own process. It charges once per idempotency key and gives every repeat with
//! that key the same answer. The first request with a key may get no answer at all: see `Manner`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use machine::id::{CallId, RunId, ToolName};
use machine::tool::EffectClass;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::incoming_post::{self, Caller, IncomingPost};
use crate::ledger::{self, Act};

/// The argument that selects how the payment service answers the first request.
pub const MANNER: &str = "manner";
/// The caller's timeout. After it, the caller cannot know whether the charge happened.
pub const CALLER_TIMEOUT: Duration = Duration::from_millis(500);
/// Well within `CALLER_TIMEOUT`.
const SLOW: Duration = Duration::from_millis(60);
/// Well beyond `CALLER_TIMEOUT`.
const TOO_SLOW: Duration = Duration::from_secs(60);

/// How the payment service answers the first request with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Manner {
    Prompt,
    Slow,
    /// It charges, but the caller times out before it answers.
    TooSlow,
    /// It charges, and a gateway in between answers 502.
    BadGateway,
    /// It charges, and closes the connection without answering.
    HangsUp,
    /// It closes the connection without charging.
    HangsUpBefore,
    /// It charges, and answers that the result will follow later.
    Accepts,
    /// It does not charge, and answers that it refused.
    Refuses,
}

impl Manner {
    #[must_use]
    pub const fn charges(self) -> bool {
        match self {
            Self::Prompt | Self::Slow | Self::TooSlow | Self::BadGateway | Self::HangsUp | Self::Accepts => {
                true
            }
            Self::HangsUpBefore | Self::Refuses => false,
        }
    }
}

/// What an act did at the payment service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChargeRecord {
    pub manner: Manner,
    /// Whether money was moved. False for a repeat of the same key.
    pub charged: bool,
}

/// What the payment service sends to a node: the call and the attempt number.
#[derive(Debug, Serialize, Deserialize)]
pub struct ChargeNotice(pub CallId, pub u32);

/// The payment service's process. It prints its port, and exits when its parent does.
pub fn serve(ledger: &Path) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("listening {}", listener.local_addr()?.port());
    std::thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let payment_server =
        Arc::new(PaymentService { ledger: ledger.to_owned(), one_at_a_time: Mutex::default() });
    for stream in listener.incoming() {
        let (stream, payment_server) = (stream?, payment_server.clone());
        // A node killed while it sends has requested nothing, so the error is ignored.
        std::thread::spawn(move || payment_server.serve(&stream));
    }
    Ok(())
}

struct PaymentService {
    ledger: PathBuf,
    one_at_a_time: Mutex<()>,
}

/// One parsed POST request.
struct HttpRequest {
    key: String,
    caller: Caller,
    charge_request: ChargeRequest,
}

impl HttpRequest {
    /// Returns `None` if the connection ends between two requests.
    fn read(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<Self>> {
        let Some(IncomingPost { caller, key, body }) = IncomingPost::read(reader)? else { return Ok(None) };
        let key = key.ok_or_else(|| io::Error::other("the request has no key"))?;
        Ok(Some(Self { key, caller, charge_request: serde_json::from_slice(&body)? }))
    }
}

#[derive(Deserialize)]
struct ChargeRequest {
    tool: ToolName,
    call_id: CallId,
    run_id: RunId,
    attempt: u32,
    arguments: Value,
}

impl PaymentService {
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        while let Some(request) = HttpRequest::read(&mut reader)? {
            let charge_record = self.charge(&request)?;
            notify_caller(&request);
            if !answer(stream, &mut reader, &request.key, charge_record.manner)? {
                return stream.shutdown(Shutdown::Both);
            }
        }
        Ok(())
    }

    /// Writes the charge to the ledger before the caller learns of it.
    fn charge(&self, HttpRequest { key, caller, charge_request }: &HttpRequest) -> io::Result<ChargeRecord> {
        let _alone = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let file = ledger::in_folder(&caller.folder);
        let charge_records: Vec<ChargeRecord> = ledger::read(&file)?
            .iter()
            .filter(|act| act.key == *key)
            .filter_map(|act| act.charge_record)
            .collect();
        let manner = match manner_from(&charge_request.arguments)? {
            Manner::Refuses => Manner::Refuses,
            manner if charge_records.is_empty() => manner,
            Manner::Prompt
            | Manner::Slow
            | Manner::TooSlow
            | Manner::BadGateway
            | Manner::HangsUp
            | Manner::HangsUpBefore
            | Manner::Accepts => Manner::Prompt,
        };
        let charged = manner.charges() && !charge_records.iter().any(|charge_record| charge_record.charged);
        let charge_record = ChargeRecord { manner, charged };
        let act = Act {
            process: caller.process,
            run: charge_request.run_id.clone(),
            call: charge_request.call_id.clone(),
            tool: charge_request.tool.clone(),
            effect: EffectClass::Write,
            attempt: charge_request.attempt,
            key: key.clone(),
            arguments: charge_request.arguments.clone(),
            charge_record: Some(charge_record),
        };
        ledger::record(&self.ledger, &file, act)?;
        Ok(charge_record)
    }
}

fn manner_from(arguments: &Value) -> io::Result<Manner> {
    let manner = arguments.get(MANNER).cloned().unwrap_or(Value::Null);
    serde_json::from_value(manner).map_err(io::Error::from)
}

/// Notifies the caller and waits until it lets the payment service answer. If the caller is gone, it does not wait.
fn notify_caller(HttpRequest { caller, charge_request, .. }: &HttpRequest) {
    let notice = ChargeNotice(charge_request.call_id.clone(), charge_request.attempt);
    let notified = UnixStream::connect(caller.notify_socket()).and_then(|mut stream| {
        let line = serde_json::to_string(&notice)?;
        writeln!(stream, "{line}")?;
        stream.read_to_end(&mut Vec::new())
    });
    drop(notified);
}

/// Returns false if the connection is over.
fn answer(
    stream: &TcpStream,
    reader: &mut BufReader<&TcpStream>,
    key: &str,
    manner: Manner,
) -> io::Result<bool> {
    let receipt = json!({"receipt": key}).to_string();
    let (status, body) = match manner {
        Manner::Prompt => ("200 OK", receipt.as_str()),
        Manner::Slow if hangs_up_within(SLOW, stream, reader)? => return Ok(false),
        Manner::Slow => ("200 OK", receipt.as_str()),
        Manner::TooSlow => {
            hangs_up_within(TOO_SLOW, stream, reader)?;
            return Ok(false);
        }
        Manner::BadGateway => ("502 Bad Gateway", "\"outcome unknown\""),
        Manner::HangsUp | Manner::HangsUpBefore => return Ok(false),
        Manner::Accepts => ("202 Accepted", ""),
        Manner::Refuses => ("422 Unprocessable Content", "\"no such account\""),
    };
    incoming_post::respond(stream, status, body)?;
    Ok(true)
}

/// Waits up to `time` for the caller to hang up. Returns whether it did.
fn hangs_up_within(
    time: Duration,
    stream: &TcpStream,
    reader: &mut BufReader<&TcpStream>,
) -> io::Result<bool> {
    stream.set_read_timeout(Some(time))?;
    let hung_up = match reader.fill_buf() {
        Ok(bytes) => bytes.is_empty(),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => false,
        Err(error) => return Err(error),
    };
    stream.set_read_timeout(None)?;
    Ok(hung_up)
}
