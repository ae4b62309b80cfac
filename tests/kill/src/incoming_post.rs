//! Requests that nodes post to the services that are never killed.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

/// The caller, as encoded in a node's bearer token.
#[derive(Debug)]
pub struct Caller {
    pub process: u32,
    /// The folder of the caller's world.
    pub folder: PathBuf,
}

impl Caller {
    /// The caller as a header value.
    #[must_use]
    pub fn header_value(&self) -> String {
        format!("{} {}", self.process, self.folder.display())
    }

    fn parse(header_value: &str) -> Option<Self> {
        let (process, folder) = header_value.split_once(' ')?;
        Some(Self { process: process.parse().ok()?, folder: folder.into() })
    }

    /// The socket on which the payment service notifies a node of a charge. The payment service answers once the node closes the connection.
    #[must_use]
    pub fn notify_socket(&self) -> PathBuf {
        self.folder.join(format!("payments-{}", self.process))
    }
}

/// One POST request.
pub(crate) struct IncomingPost {
    pub(crate) caller: Caller,
    /// Its idempotency key, if it has one.
    pub(crate) key: Option<String>,
    pub(crate) body: Vec<u8>,
}

impl IncomingPost {
    /// Returns `None` if the connection ends between two requests.
    pub(crate) fn read(reader: &mut BufReader<&TcpStream>) -> io::Result<Option<Self>> {
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
        let (Some(length), Some(caller)) = (length, caller) else {
            return Err(io::Error::other("the request has no length or no caller"));
        };
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        Ok(Some(Self { caller, key, body }))
    }
}

pub(crate) fn respond(mut stream: &TcpStream, status: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all((head + body).as_bytes())
}

#[test]
fn a_caller_that_is_written_is_read_again() {
    let caller = Caller { process: 7, folder: "/a folder/b".into() };
    let read = Caller::parse(&caller.header_value()).expect("it is written as callers are");
    assert_eq!((read.process, read.folder.as_path()), (7, std::path::Path::new("/a folder/b")));
    assert!(Caller::parse("7").is_none() && Caller::parse("x /a").is_none());
}
