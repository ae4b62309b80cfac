//! Connections: how many there may be in total and per address, how long a client may stall, and how they are closed.

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

/// Maximum size of a request's head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Delay before accepting again after the listener failed (no free file handle).
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Connections above the limit that are still accepted, only for health, readiness and metrics. Each gets one
/// request and little time.
const OVERLOAD_CONNECTIONS_MAX: usize = 64;

/// How long a stopping server still accepts requests. A client that could not know about the stop gets a response which
/// says that the server is stopping, instead of a dropped connection.
const LAST_REQUESTS_TIME: Duration = Duration::from_millis(100);
/// How many bytes are read and discarded of a body that was refused before all of it had arrived. Otherwise the
/// connection is reset, and the client may not get to read the response.
const LINGER_BYTES_MAX: usize = 16 * 1024 * 1024;
const LINGER_TIME: Duration = Duration::from_secs(5);

/// The address at the other end of a connection: of the client, or of the proxy in front of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub(crate) IpAddr);

/// The routers that answer requests.
#[derive(Clone)]
pub(crate) struct Routers {
    pub(crate) normal: Router,
    /// For connections above the limit.
    pub(crate) overloaded: Router,
}

/// Serves connections until `stopped`. Then open responses have a grace period to finish, and the rest is cut off.
pub(crate) async fn accept_all(
    listener: TcpListener,
    routers: Routers,
    limits: &Limits,
    refused: Counter,
    stopped: CancellationToken,
) {
    let acceptor = Acceptor {
        permits: Arc::new(Semaphore::new(limits.connections_max)),
        overload_permits: Arc::new(Semaphore::new(OVERLOAD_CONNECTIONS_MAX)),
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
        let (stream, permit) = tokio::select! {
            biased;
            () = &mut last_requests => break,
            Some(_) = connections.join_next() => continue,
            accepted = acceptor.accept(&listener) => accepted,
        };
        let (routers, limits, closing) = (routers.clone(), limits.clone(), closing.clone());
        connections.spawn(async move {
            if permit.is_overload {
                let one_answer = handle_connection(stream, routers.overloaded, &limits, false, closing);
                let _ = tokio::time::timeout(limits.head_timeout, one_answer).await;
            } else {
                handle_connection(stream, routers.normal, &limits, true, closing).await;
            }
            drop(permit);
        });
    }
    closing.cancel();
    let all = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(limits.shutdown_grace, all).await;
}

/// Limits how many connections are accepted, in total and per address.
struct Acceptor {
    permits: Arc<Semaphore>,
    overload_permits: Arc<Semaphore>,
    addresses: Arc<AddressCounts>,
    per_address_max: Option<usize>,
    refused: Counter,
}

/// The permit of one connection, released on drop.
struct ConnectionPermit {
    is_overload: bool,
    _permit: Option<OwnedSemaphorePermit>,
    _address_permit: AddressPermit,
}

impl Acceptor {
    async fn accept(&self, listener: &TcpListener) -> (TcpStream, ConnectionPermit) {
        // With no permit of either kind free, new connections wait in the listener's queue, which has a limit too.
        let (mut permit, mut is_overload) = tokio::select! {
            biased;
            permit = self.permits.clone().acquire_owned() => (permit.ok(), false),
            permit = self.overload_permits.clone().acquire_owned() => (permit.ok(), true),
        };
        loop {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection; trying again in 100 ms");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                    continue;
                }
            };
            // A normal permit may have become free while this waited for a connection.
            if is_overload && let Ok(free) = self.permits.clone().try_acquire_owned() {
                (permit, is_overload) = (Some(free), false);
            }
            match self.addresses.acquire(peer.ip(), self.per_address_max) {
                Some(address_permit) => {
                    return (
                        stream,
                        ConnectionPermit { is_overload, _permit: permit, _address_permit: address_permit },
                    );
                }
                None => {
                    self.refused.inc();
                    tracing::debug!(address = %peer.ip(), "connection refused: this address has too many open connections");
                }
            }
        }
    }
}

/// Number of open connections per address.
#[derive(Default)]
struct AddressCounts(Mutex<BTreeMap<IpAddr, usize>>);

/// Counts one connection of an address until it is dropped.
struct AddressPermit {
    addresses: Arc<AddressCounts>,
    address: IpAddr,
}

impl AddressCounts {
    /// None if the address already has the maximum.
    fn acquire(self: &Arc<Self>, peer: IpAddr, count_max: Option<usize>) -> Option<AddressPermit> {
        let address = address_or_prefix(peer);
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(address).or_default();
        if count_max.is_some_and(|max| *count >= max.max(1)) {
            return None;
        }
        *count += 1;
        Some(AddressPermit { addresses: self.clone(), address })
    }
}

impl Drop for AddressPermit {
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

/// Counts IPv6 by /64 prefix: a client with one address usually controls the 2^64 around it.
fn address_or_prefix(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
    }
}

async fn handle_connection(
    stream: TcpStream,
    router: Router,
    limits: &Limits,
    keep_alive: bool,
    closing: CancellationToken,
) {
    // Events are small and should be sent at once.
    let _ = stream.set_nodelay(true);
    let peer = stream.peer_addr().ok().map(|peer| PeerAddress(peer.ip().to_canonical()));
    let is_unread = Arc::new(AtomicBool::new(false));
    let stream = StallTimeoutStream::new(stream, limits.stall_timeout, is_unread.clone());
    let router = TowerToHyperService::new(router);
    let answering = service_fn(move |mut request: hyper::Request<Incoming>| {
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
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
        .header_read_timeout(limits.head_timeout)
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
        tracing::debug!(%error, "connection lost");
    }
}

/// A stream that disconnects a client which reads nothing for too long. The data buffered for a stalled client is for
/// that client only, and no other work waits for it.
struct StallTimeoutStream {
    stream: TcpStream,
    stall_timeout: Duration,
    stall_timer: Option<Pin<Box<Sleep>>>,
    /// The last response may have left part of its request unread.
    is_unread: Arc<AtomicBool>,
    is_shut: bool,
    linger_timer: Option<Pin<Box<Sleep>>>,
    discarded_bytes: usize,
}

impl StallTimeoutStream {
    fn new(stream: TcpStream, stall_timeout: Duration, is_unread: Arc<AtomicBool>) -> Self {
        Self {
            stream,
            stall_timeout,
            stall_timer: None,
            is_unread,
            is_shut: false,
            linger_timer: None,
            discarded_bytes: 0,
        }
    }

    /// Ready when the client has closed its side too, or when the limits are reached.
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
                        self.linger_timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER_TIME)));
                    return until.as_mut().poll(context);
                }
            }
        }
        Poll::Ready(())
    }

    fn check_stalled<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stall_timer = None;
            return written;
        }
        let stall_timeout = self.stall_timeout;
        let stall_timer = self.stall_timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(stall_timeout)));
        ready!(stall_timer.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client stopped reading")))
    }
}

impl AsyncRead for StallTimeoutStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for StallTimeoutStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check_stalled(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.check_stalled(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.check_stalled(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_shut {
            let shut = Pin::new(&mut self.stream).poll_shutdown(context);
            ready!(self.check_stalled(context, shut))?;
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
    fn connections_are_limited_by_address_and_by_ipv6_prefix() {
        let addresses = Arc::<AddressCounts>::default();
        let count = |text: &str| addresses.acquire(text.parse().expect("an address"), Some(2));
        let (first, second) = (count("192.0.2.1"), count("::ffff:192.0.2.1"));
        assert!(first.is_some() && second.is_some());
        assert!(count("192.0.2.1").is_none(), "a third is refused");
        assert!(count("192.0.2.2").is_some(), "another has its own");
        drop(second);
        assert!(count("192.0.2.1").is_some());
        let network = [count("2001:db8::1"), count("2001:db8::ffff:1")];
        assert!(count("2001:db8::2").is_none() && count("2001:db8:0:1::2").is_some());
        drop((first, network));
        assert!(
            addresses.0.lock().expect("no holder of the lock panicked").is_empty(),
            "closed connections leave no entry"
        );
        let unbounded: Vec<_> =
            (0..10).map(|_| addresses.acquire(IpAddr::from([192, 0, 2, 1]), None)).collect();
        assert!(unbounded.iter().all(Option::is_some));
    }
}
