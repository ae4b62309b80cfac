//! Connections: how many there may be, how long somebody may take to say something, and how they end.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
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

/// Answers until it is told to stop; then open answers have a moment to end, and the rest is cut off.
pub(crate) async fn accept_all(
    listener: TcpListener,
    router: Router,
    limits: &Limits,
    stopped: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(limits.connections_max));
    let mut connections = JoinSet::new();
    loop {
        let (stream, place) = tokio::select! {
            biased;
            () = stopped.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = accept(&listener, &places) => accepted,
        };
        let (router, limits, stopped) = (router.clone(), limits.clone(), stopped.clone());
        connections.spawn(async move {
            converse(stream, router, &limits, stopped).await;
            drop(place);
        });
    }
    let all = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(limits.parting_time, all).await;
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> (TcpStream, Option<OwnedSemaphorePermit>) {
    // Whoever finds no place waits in the queue of the listener, which has a limit too.
    let place = places.clone().acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, place),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(TROUBLE_PAUSE).await;
            }
        }
    }
}

async fn converse(stream: TcpStream, router: Router, limits: &Limits, stopped: CancellationToken) {
    // Events are small and should leave at once.
    let _ = stream.set_nodelay(true);
    let stream = Unstalled { stream, stall_time: limits.stall_time, given_up: None };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped.cancelled() => {
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
}

impl Unstalled {
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
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watched(context, shut)
    }
}
