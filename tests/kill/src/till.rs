//! A service that charges, in a process of its own: one charge per key, and the same answer to whoever asks again with
//! it. Whether the first who asks hears an answer is another matter.

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

use crate::ledger::{self, Act};

/// The argument that says in which manner the till answers the first who asks.
pub const MANNER: &str = "manner";
/// How long the caller waits; then nobody knows whether it was charged.
pub const PATIENCE: Duration = Duration::from_millis(500);
/// Well within that.
const SLOW: Duration = Duration::from_millis(60);
/// Well beyond it.
const TOO_SLOW: Duration = Duration::from_secs(60);

/// How the till answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Manner {
    Prompt,
    Slow,
    /// It charges, and whoever asked has given up when it could answer.
    TooSlow,
    /// It charges, and something between the two says 502.
    BadGateway,
    /// It charges, and closes the connection.
    HangsUp,
    /// It closes the connection and has done nothing.
    HangsUpBefore,
    /// It charges, and says that somebody will answer later.
    Accepts,
    /// It charges nothing, and says so.
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

/// What an act was at the till.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visit {
    pub manner: Manner,
    /// Money was moved. False for whoever asks again.
    pub charged: bool,
}

/// Who asks, as the bearer token of a node says it.
#[derive(Debug)]
pub struct Caller {
    pub process: u32,
    /// Of its world.
    pub folder: PathBuf,
}

impl Caller {
    /// As a header can carry it.
    #[must_use]
    pub fn word(&self) -> String {
        format!("{} {}", self.process, self.folder.display())
    }

    fn parse(word: &str) -> Option<Self> {
        let (process, folder) = word.split_once(' ')?;
        Some(Self { process: process.parse().ok()?, folder: folder.into() })
    }

    /// Where a node hears that somebody has been at the till, and lets it answer.
    #[must_use]
    pub fn gate(&self) -> PathBuf {
        self.folder.join(format!("gate-{}", self.process))
    }
}

/// What a node hears at its gate: the call, and the number of the attempt.
#[derive(Debug, Serialize, Deserialize)]
pub struct Visited(pub CallId, pub u32);

/// The process: says where it listens, and ends with whoever started it.
pub fn keep(ledger: &Path) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("listening {}", listener.local_addr()?.port());
    std::thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let till = Arc::new(Till { ledger: ledger.to_owned(), one_at_a_time: Mutex::default() });
    for stream in listener.incoming() {
        let (stream, till) = (stream?, till.clone());
        // Whoever is killed while it speaks has asked for nothing.
        std::thread::spawn(move || till.serve(&stream));
    }
    Ok(())
}

struct Till {
    ledger: PathBuf,
    one_at_a_time: Mutex<()>,
}

/// What one POST says.
struct Request {
    key: String,
    caller: Caller,
    asked: Asked,
}

#[derive(Deserialize)]
struct Asked {
    tool: ToolName,
    call_id: CallId,
    run_id: RunId,
    attempt: u32,
    arguments: Value,
}

impl Till {
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream);
        while let Some(request) = read(&mut reader)? {
            let visit = self.charge(&request)?;
            tell_at_the_gate(&request);
            if !answer(stream, &mut reader, &request.key, visit.manner)? {
                return stream.shutdown(Shutdown::Both);
            }
        }
        Ok(())
    }

    /// Written down before anybody hears of it.
    fn charge(&self, Request { key, caller, asked }: &Request) -> io::Result<Visit> {
        let _alone = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let file = ledger::in_folder(&caller.folder);
        let visits: Vec<Visit> =
            ledger::read(&file)?.iter().filter(|act| act.key == *key).filter_map(|act| act.visit).collect();
        let manner = match manner_of(&asked.arguments)? {
            Manner::Refuses => Manner::Refuses,
            manner if visits.is_empty() => manner,
            Manner::Prompt
            | Manner::Slow
            | Manner::TooSlow
            | Manner::BadGateway
            | Manner::HangsUp
            | Manner::HangsUpBefore
            | Manner::Accepts => Manner::Prompt,
        };
        let charged = manner.charges() && !visits.iter().any(|visit| visit.charged);
        let visit = Visit { manner, charged };
        let act = Act {
            process: caller.process,
            run: asked.run_id.clone(),
            call: asked.call_id.clone(),
            tool: asked.tool.clone(),
            effect: EffectClass::Write,
            attempt: asked.attempt,
            key: key.clone(),
            arguments: asked.arguments.clone(),
            visit: Some(visit),
        };
        ledger::tell(&self.ledger, &file, act)?;
        Ok(visit)
    }
}

fn manner_of(arguments: &Value) -> io::Result<Manner> {
    let manner = arguments.get(MANNER).cloned().unwrap_or(Value::Null);
    serde_json::from_value(manner).map_err(io::Error::from)
}

/// Waits until whoever asked lets it answer. Where nobody is left, there is nobody to wait for.
fn tell_at_the_gate(Request { caller, asked, .. }: &Request) {
    let visited = Visited(asked.call_id.clone(), asked.attempt);
    let told = UnixStream::connect(caller.gate()).and_then(|mut stream| {
        let line = serde_json::to_string(&visited)?;
        writeln!(stream, "{line}")?;
        stream.read_to_end(&mut Vec::new())
    });
    drop(told);
}

/// False where the connection is over.
fn answer(
    mut stream: &TcpStream,
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
        Manner::BadGateway => ("502 Bad Gateway", "\"nobody knows\""),
        Manner::HangsUp | Manner::HangsUpBefore => return Ok(false),
        Manner::Accepts => ("202 Accepted", ""),
        Manner::Refuses => ("422 Unprocessable Content", "\"no such account\""),
    };
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all((head + body).as_bytes())?;
    Ok(true)
}

/// Waits for whoever asked to lose its patience, and no longer than this.
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

/// None where the connection is over between two requests.
fn read(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<Request>> {
    let (mut length, mut key, mut caller) = (None, None, None);
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok(),
            "idempotency-key" => key = Some(value.trim().to_owned()),
            "authorization" => caller = value.trim().strip_prefix("Bearer ").and_then(Caller::parse),
            _ => {}
        }
    }
    let (Some(length), Some(key), Some(caller)) = (length, key, caller) else {
        return Err(io::Error::other("the request has no length, no key or no caller"));
    };
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(Request { key, caller, asked: serde_json::from_slice(&body)? }))
}

#[test]
fn a_caller_that_is_written_is_read_again() {
    let caller = Caller { process: 7, folder: "/a folder/b".into() };
    let read = Caller::parse(&caller.word()).expect("it is written as callers are");
    assert_eq!((read.process, read.folder.as_path()), (7, Path::new("/a folder/b")));
    assert!(Caller::parse("7").is_none() && Caller::parse("x /a").is_none());
}
