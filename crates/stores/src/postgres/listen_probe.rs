//! Verifies that LISTEN works. A transaction-pooling proxy between a node and its database gives each statement another
//! connection: a listener behind it receives nothing, and no error either. So each listening connection first waits for
//! a probe of its own.

use std::collections::hash_map::RandomState;
use std::future::poll_fn;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_postgres::{AsyncMessage, Client};

use super::connection::Connections;
use super::errors::{PostgresError, PostgresOpenError, unavailable};
use super::notify::{PeerNotice, parse};
use super::servers::OpenConnection;

/// A random token that no other sender uses.
pub(super) struct ListenProbe {
    token: u64,
    received: Notify,
}

impl ListenProbe {
    pub(super) fn new() -> Self {
        // The keys of a `RandomState` are random.
        Self { token: RandomState::new().build_hasher().finish(), received: Notify::new() }
    }

    pub(super) const fn token(&self) -> u64 {
        self.token
    }

    pub(super) fn receive(&self, token: u64) {
        if token == self.token {
            self.received.notify_one();
        }
    }

    pub(super) async fn arrives_within(&self, time: Duration) -> bool {
        tokio::time::timeout(time, self.received.notified()).await.is_ok()
    }
}

/// The migration's connection, which listens while the store is opened.
pub(super) struct OpeningConnection {
    pub(super) client: Client,
    probe: Arc<ListenProbe>,
}

impl OpeningConnection {
    pub(super) fn new((client, mut connection): OpenConnection) -> Self {
        let probe = Arc::new(ListenProbe::new());
        let receiver = probe.clone();
        // The task ends with its client. Errors of the connection reach the caller of the next statement.
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(note) = message
                    && let PeerNotice::Probe(token) = parse(note.payload(), None)
                {
                    receiver.receive(token);
                }
            }
        });
        Self { client, probe }
    }

    /// The channel that the client listens on, within one transaction.
    pub(super) fn channel(schema: &str) -> String {
        format!("opening_{schema}")
    }

    /// Refuses a database on which LISTEN does not work. The probe is sent on another connection, as if by another
    /// node.
    pub(super) async fn verify_delivery(
        self,
        connections: &Connections,
        schema: &str,
        time: Duration,
    ) -> Result<(), PostgresOpenError> {
        let note = super::notify::probe_payload(0, self.probe.token());
        let sent = connections.read("SELECT pg_notify($1, $2)", &[&Self::channel(schema), &note]).await;
        if let Err(PostgresError(refused)) = sent {
            // No reason to refuse: polling finds what notifications would have announced.
            tracing::warn!(%refused, "the database refuses NOTIFY; nodes fall back to polling");
            return Ok(());
        }
        if self.probe.arrives_within(time).await {
            return Ok(());
        }
        // A disconnect or a stalled process does not prove a loss. The probe would arrive before this answer.
        let asked = tokio::time::timeout(time, self.client.batch_execute("")).await;
        asked.map_err(|_| unavailable("the database does not answer"))?.map_err(PostgresError::from)?;
        if self.probe.arrives_within(Duration::ZERO).await {
            Ok(())
        } else {
            Err(PostgresOpenError::NotificationsLost)
        }
    }
}
