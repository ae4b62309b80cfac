//! A node's listener: one connection that only listens, and first waits for a probe of its own. Polling finds the
//! notifications that it misses.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use engine::clock::Clock;
use tokio_postgres::{AsyncMessage, Client, Connection, Socket};

use super::connection::Address;
use super::errors::{PostgresError, unavailable};
use super::listen_probe::ListenProbe;
use super::notify::{PeerNotice, parse};
use super::tls::EncryptedStream;
use super::{PostgresShared, delta_codec};

const RETRY_AFTER: Duration = Duration::from_millis(200);

/// Runs until the store aborts it.
pub(super) async fn listen(shared: Arc<PostgresShared>, address: Address) {
    loop {
        let Err(PostgresError(refused)) = listen_once(&shared, &address).await;
        tracing::debug!(%refused, "no connection receives notifications of other nodes; retrying");
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

async fn listen_once(
    shared: &PostgresShared,
    address: &Address,
) -> Result<std::convert::Infallible, PostgresError> {
    let (client, connection) = address.connect(shared.settings.answer_timeout).await?;
    let probe = ListenProbe::new();
    tokio::select! {
        ended = receive_notifications(shared, &probe, connection) => Err(ended),
        refused = subscribe(shared, &probe, &client) => Err(refused),
    }
}

/// Returns only when it failed.
async fn subscribe(shared: &PostgresShared, probe: &ListenProbe, client: &Client) -> PostgresError {
    let (sql, time) = (format!("LISTEN {}", shared.channel), shared.settings.answer_timeout);
    match tokio::time::timeout(time, client.batch_execute(&sql)).await {
        Err(_) => unavailable("the database does not answer"),
        Ok(Ok(())) => {
            // Earlier notifications may be lost: poll for them, and make all readers read again.
            shared.poll_now.notify_one();
            shared.incoming.push_committed(shared.watched_runs.take_all());
            shared.incoming.push_threads(shared.watched_threads.take_all());
            shared.incoming.push_approvals_missed();
            shared.outgoing.queue_resend_watches();
            shared.outgoing.queue_probe(probe.token());
            if probe.arrives_within(time).await {
                return std::future::pending().await;
            }
            tracing::warn!(
                "LISTEN/NOTIFY is not delivering; this node falls back to polling. Is a transaction-pooling proxy (PgBouncer) in front of the database?"
            );
            unavailable("no notification arrived")
        }
        Ok(Err(error)) => error.into(),
    }
}

async fn receive_notifications(
    shared: &PostgresShared,
    probe: &ListenProbe,
    mut connection: Connection<Socket, EncryptedStream>,
) -> PostgresError {
    loop {
        match poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(note))) => dispatch(shared, probe, note.payload()),
            Some(Ok(_)) => {}
            Some(Err(error)) => return error.into(),
            None => return unavailable("the connection was closed"),
        }
    }
}

fn dispatch(shared: &PostgresShared, probe: &ListenProbe, payload: &str) {
    match parse(payload, shared.leases.node()) {
        PeerNotice::Ready => shared.incoming.push_ready(),
        PeerNotice::Runs(runs) => {
            for lease in runs.into_iter().filter_map(|run| shared.leases.for_run(run)) {
                shared.incoming.push_run(lease.tenant, lease.run);
            }
        }
        PeerNotice::Committed(runs) => shared.incoming.push_committed(runs),
        PeerNotice::Approvals(runs) => shared.incoming.push_approvals(runs),
        PeerNotice::Threads(threads) => shared.incoming.push_threads(threads),
        PeerNotice::ResendWatches => {
            shared.watched_runs.ids().iter().for_each(|run| shared.outgoing.queue_watch(run))
        }
        PeerNotice::Watched(runs) => shared.incoming.push_watched(runs),
        PeerNotice::Delta(payload) => {
            if let Some((run, after, said)) = delta_codec::decode(payload, || shared.clock.now()) {
                shared.incoming.push_deltas(run, after, said);
            }
        }
        PeerNotice::Probe(token) => probe.receive(token),
        PeerNotice::Ignored => {}
    }
}
