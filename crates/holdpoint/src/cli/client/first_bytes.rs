//! Records the first bytes that a server sends on a connection. They distinguish TLS from plain HTTP; the HTTP client
//! reports only that it could not read them.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use hyper::Uri;
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

/// The length of a TLS record header, and enough of an HTTP response.
const FIRST_BYTES_MAX: usize = 5;

/// The protocol that a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    PlainHttp,
    Tls,
}

/// The first bytes from the server on the newest connection, below TLS.
#[derive(Clone, Debug, Default)]
pub(super) struct FirstBytes(Arc<Mutex<Vec<u8>>>);

impl FirstBytes {
    /// None if there are too few bytes, or they belong to another protocol.
    pub(super) fn protocol(&self) -> Option<Protocol> {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match bytes.as_slice() {
            b"HTTP/" => Some(Protocol::PlainHttp),
            // An alert or a handshake record of any version since SSL 3.0.
            [0x15 | 0x16, 0x03, 0x00..=0x04, ..] => Some(Protocol::Tls),
            _ => None,
        }
    }

    fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns how many bytes are recorded now.
    fn add(&self, bytes: &[u8]) -> usize {
        let mut recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        recorded.extend_from_slice(bytes);
        recorded.len()
    }
}

/// Opens connections and records their first bytes.
#[derive(Clone)]
pub(super) struct RecordingConnector {
    http: HttpConnector,
    first_bytes: FirstBytes,
}

impl RecordingConnector {
    pub(super) const fn new(http: HttpConnector, first_bytes: FirstBytes) -> Self {
        Self { http, first_bytes }
    }
}

impl Service<Uri> for RecordingConnector {
    type Response = RecordedStream;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<RecordedStream, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.http.poll_ready(context)
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let connecting = self.http.call(address);
        let first_bytes = self.first_bytes.clone();
        Box::pin(async move {
            let stream = connecting.await?;
            first_bytes.clear();
            Ok(RecordedStream { stream, first_bytes, missing: FIRST_BYTES_MAX })
        })
    }
}

pub(super) struct RecordedStream {
    stream: TokioIo<TcpStream>,
    first_bytes: FirstBytes,
    /// How many bytes still have to be recorded.
    missing: usize,
}

impl Read for RecordedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let count = self.missing.min(buffer.remaining());
        if count == 0 {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let mut first = [0; FIRST_BYTES_MAX];
        let mut first = ReadBuf::new(&mut first[..count]);
        match Pin::new(&mut self.stream).poll_read(context, first.unfilled()) {
            Poll::Ready(Ok(())) => {
                self.missing = FIRST_BYTES_MAX.saturating_sub(self.first_bytes.add(first.filled()));
                buffer.put_slice(first.filled());
                Poll::Ready(Ok(()))
            }
            other @ (Poll::Ready(Err(_)) | Poll::Pending) => other,
        }
    }
}

impl Write for RecordedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }
}

impl Connection for RecordedStream {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

#[test]
fn only_the_bytes_of_tls_and_of_http_name_a_protocol() {
    let protocol = |bytes: &[u8]| {
        let recorded = FirstBytes::default();
        recorded.add(bytes);
        recorded.protocol()
    };
    assert_eq!(protocol(b"\x15\x03\x03\x00\x02"), Some(Protocol::Tls));
    assert_eq!(protocol(b"\x16\x03\x01\x02\x00"), Some(Protocol::Tls));
    assert_eq!(protocol(b"HTTP/"), Some(Protocol::PlainHttp));
    for other in [&b""[..], b"\x15", b"\x15\x03", b"\x15\x13\x03\x00\x02", b"HTTP", b"SSH-2", b"<html"] {
        assert_eq!(protocol(other), None, "{other:?}");
    }
}
