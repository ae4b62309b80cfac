//! Connections: how many there may be, of one address too, how long somebody may take to say something, and how they end.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use hyper::Method;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

use crate::limits::Limits;

/// The head of a request may have so many bytes.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Before a listener that is in trouble (no free file handle) is asked again.
const TROUBLE_PAUSE: Duration = Duration::from_millis(100);

/// Connections beyond those that there may be, which are told how the server is doing and nothing else. Each has one
/// request and little time.
const SPARE_MAX: usize = 64;

/// How long a server that was told to stop still takes requests in: those that were sent before their senders could know
/// are told that it stops, and not cut off.
const LAST_REQUESTS_TIME: Duration = Duration::from_millis(100);
/// What is read and thrown away of a body that was refused before all of it had arrived. Without this the connection is
/// reset, and the client may not get to read the answer.
const LINGER_BYTES_MAX: usize = 16 * 1024 * 1024;
const LINGER_TIME: Duration = Duration::from_secs(5);

/// Who answers.
#[derive(Clone)]
pub(crate) struct Routers {
    pub(crate) usual: Router,
    /// For whoever comes when every place is taken.
    pub(crate) when_full: Router,
}

/// Answers until it is told to stop; then open answers have a moment to end, and the rest is cut off.
pub(crate) async fn accept_all(
    listener: TcpListener,
    routers: Routers,
    limits: &Limits,
    refused: Counter,
    stopped: CancellationToken,
) {
    let entrance = Entrance {
        places: Arc::new(Semaphore::new(limits.connections_max)),
        spare: Arc::new(Semaphore::new(SPARE_MAX)),
        addresses: Arc::default(),
        per_address_max: limits.connections_per_address_max,
        refused,
    };
    let mut connections = JoinSet::new();
    let closing = CancellationToken::new();
    let last_requests = async {
        stopped.cancelled().await;
        tokio::time::sleep(LAST_REQUESTS_TIME).await;
    };
    let mut last_requests = pin!(last_requests);
    loop {
        let (stream, seat) = tokio::select! {
            biased;
            () = &mut last_requests => break,
            Some(_) = connections.join_next() => continue,
            accepted = entrance.accept(&listener) => accepted,
        };
        let (routers, limits, closing) = (routers.clone(), limits.clone(), closing.clone());
        connections.spawn(async move {
            if seat.is_spare {
                let one_answer = converse(stream, routers.when_full, &limits, false, closing);
                let _ = tokio::time::timeout(limits.head_time, one_answer).await;
            } else {
                converse(stream, routers.usual, &limits, true, closing).await;
            }
            drop(seat);
        });
    }
    closing.cancel();
    let all = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(limits.parting_time, all).await;
}

/// How many are let in, and how many of one address.
struct Entrance {
    places: Arc<Semaphore>,
    spare: Arc<Semaphore>,
    addresses: Arc<Addresses>,
    per_address_max: Option<usize>,
    refused: Counter,
}

/// The place of one connection, until it is dropped.
struct Seat {
    is_spare: bool,
    _place: Option<OwnedSemaphorePermit>,
    _of_address: Counted,
}

impl Entrance {
    async fn accept(&self, listener: &TcpListener) -> (TcpStream, Seat) {
        // Whoever finds no place at all waits in the queue of the listener, which has a limit too.
        let (mut place, mut is_spare) = tokio::select! {
            biased;
            place = self.places.clone().acquire_owned() => (place.ok(), false),
            place = self.spare.clone().acquire_owned() => (place.ok(), true),
        };
        loop {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(TROUBLE_PAUSE).await;
                    continue;
                }
            };
            // Places may have become free while nobody came.
            if is_spare && let Ok(free) = self.places.clone().try_acquire_owned() {
                (place, is_spare) = (Some(free), false);
            }
            match self.addresses.count(peer.ip(), self.per_address_max) {
                Some(counted) => return (stream, Seat { is_spare, _place: place, _of_address: counted }),
                None => {
                    self.refused.inc();
                    tracing::debug!(address = %peer.ip(), "too many connections of one address");
                }
            }
        }
    }
}

/// The open connections of each address.
#[derive(Default)]
struct Addresses(Mutex<BTreeMap<IpAddr, usize>>);

/// One connection, until it is dropped.
struct Counted {
    addresses: Arc<Addresses>,
    address: IpAddr,
}

impl Addresses {
    /// None where there are as many as there may be.
    fn count(self: &Arc<Self>, peer: IpAddr, count_max: Option<usize>) -> Option<Counted> {
        let address = whoever_has(peer);
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(address).or_default();
        if count_max.is_some_and(|max| *count >= max.max(1)) {
            return None;
        }
        *count += 1;
        Some(Counted { addresses: self.clone(), address })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut open = self.addresses.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

/// Whoever has one IPv6 address has the 2^64 around it as well.
fn whoever_has(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
    }
}

async fn converse(
    stream: TcpStream,
    router: Router,
    limits: &Limits,
    keep_alive: bool,
    closing: CancellationToken,
) {
    // Events are small and should leave at once.
    let _ = stream.set_nodelay(true);
    let is_unread = Arc::new(AtomicBool::new(false));
    let stream = Unstalled::new(stream, limits.stall_time, is_unread.clone());
    let router = TowerToHyperService::new(router);
    let answering = service_fn(move |request: hyper::Request<Incoming>| {
        let (has_body, is_post) = (!request.body().is_end_stream(), *request.method() == Method::POST);
        let (answer, is_unread) = (router.call(request), is_unread.clone());
        async move {
            let answer = answer.await?;
            let is_refused = answer.status().is_client_error() || answer.status().is_server_error();
            is_unread.store(has_body && (is_refused || !is_post), Ordering::Relaxed);
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_buf_size(HEAD_BYTES_MAX)
        .keep_alive(keep_alive)
        .serve_connection(TokioIo::new(stream), answering);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke off");
    }
}

/// A stream whose reader has to take something now and then. One who takes nothing for too long is cut off: what is
/// kept for them is theirs alone, and nobody waits for them.
struct Unstalled {
    stream: TcpStream,
    stall_time: Duration,
    given_up: Option<Pin<Box<Sleep>>>,
    /// The last answer may have left part of its request unread.
    is_unread: Arc<AtomicBool>,
    is_shut: bool,
    lingers_until: Option<Pin<Box<Sleep>>>,
    discarded_bytes: usize,
}

impl Unstalled {
    fn new(stream: TcpStream, stall_time: Duration, is_unread: Arc<AtomicBool>) -> Self {
        Self {
            stream,
            stall_time,
            given_up: None,
            is_unread,
            is_shut: false,
            lingers_until: None,
            discarded_bytes: 0,
        }
    }

    /// Ready when the client has closed its side too, or when the bounds are reached.
    fn linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut bytes = [0; 16 * 1024];
        while self.discarded_bytes < LINGER_BYTES_MAX {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    self.discarded_bytes += buffer.filled().len();
                }
                Poll::Ready(Ok(()) | Err(_)) => return Poll::Ready(()),
                Poll::Pending => {
                    let until =
                        self.lingers_until.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER_TIME)));
                    return until.as_mut().poll(context);
                }
            }
        }
        Poll::Ready(())
    }

    fn watched<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.given_up = None;
            return written;
        }
        let stall_time = self.stall_time;
        let given_up = self.given_up.get_or_insert_with(|| Box::pin(tokio::time::sleep(stall_time)));
        ready!(given_up.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the reader takes nothing any more")))
    }
}

impl AsyncRead for Unstalled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Unstalled {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watched(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.watched(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.watched(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_shut {
            let shut = Pin::new(&mut self.stream).poll_shutdown(context);
            ready!(self.watched(context, shut))?;
            self.is_shut = true;
        }
        if self.is_unread.load(Ordering::Relaxed) {
            ready!(self.linger(context));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_so_many_connections_and_a_network_of_one_counts_as_one() {
        let addresses = Arc::<Addresses>::default();
        let count = |text: &str| addresses.count(text.parse().expect("an address"), Some(2));
        let (first, second) = (count("192.0.2.1"), count("::ffff:192.0.2.1"));
        assert!(first.is_some() && second.is_some());
        assert!(count("192.0.2.1").is_none(), "a third is refused");
        assert!(count("192.0.2.2").is_some(), "another has its own");
        drop(second);
        assert!(count("192.0.2.1").is_some());
        let network = [count("2001:db8::1"), count("2001:db8::ffff:1")];
        assert!(count("2001:db8::2").is_none() && count("2001:db8:0:1::2").is_some());
        drop((first, network));
        assert!(addresses.0.lock().expect("nobody panicked").is_empty(), "nothing is kept of who is gone");
        let unbounded: Vec<_> =
            (0..10).map(|_| addresses.count(IpAddr::from([192, 0, 2, 1]), None)).collect();
        assert!(unbounded.iter().all(Option::is_some));
    }
}
