//! Whether what is said arrives. Between a node and its database may be something that gives each statement another
//! connection: whoever listens there hears nothing, and is not told. So each connection that listens waits for a word of
//! its own first.

use std::collections::hash_map::RandomState;
use std::future::poll_fn;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_postgres::{AsyncMessage, Client};

use super::bells::{Heard, read};
use super::connection::Connections;
use super::servers::Opened;
use super::trouble::{OpenFailed, Stop, unavailable};

/// A word that nobody else says.
pub(super) struct Proof {
    token: u64,
    heard: Notify,
}

impl Proof {
    pub(super) fn new() -> Self {
        // The keys of a hash are drawn at random.
        Self { token: RandomState::new().build_hasher().finish(), heard: Notify::new() }
    }

    pub(super) const fn token(&self) -> u64 {
        self.token
    }

    pub(super) fn hear(&self, token: u64) {
        if token == self.token {
            self.heard.notify_one();
        }
    }

    pub(super) async fn comes_within(&self, time: Duration) -> bool {
        tokio::time::timeout(time, self.heard.notified()).await.is_ok()
    }
}

/// The connection of the migration, which listens while the store is opened.
pub(super) struct Opening {
    pub(super) client: Client,
    proof: Arc<Proof>,
}

impl Opening {
    pub(super) fn of((client, mut connection): Opened) -> Self {
        let proof = Arc::new(Proof::new());
        let hears = proof.clone();
        // It ends with its client; what was wrong with it is heard by whoever asks.
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(note) = message
                    && let Heard::Proof(token) = read(note.payload(), None)
                {
                    hears.hear(token);
                }
            }
        });
        Self { client, proof }
    }

    /// Where it is told of what is said, within one transaction of its client.
    pub(super) fn channel(schema: &str) -> String {
        format!("opening_{schema}")
    }

    /// Refuses what would never be told of anything. Said on another connection, as by another node.
    pub(super) async fn hears(
        self,
        connections: &Connections,
        schema: &str,
        time: Duration,
    ) -> Result<(), OpenFailed> {
        let note = super::bells::proof(0, self.proof.token());
        let said = connections.read("SELECT pg_notify($1, $2)", &[&Self::channel(schema), &note]).await;
        if let Err(Stop(refused)) = said {
            // What is not said is found by looking: no reason to refuse.
            tracing::warn!(%refused, "the database takes no notifications; nodes find by looking what they are not told");
            return Ok(());
        }
        if self.proof.comes_within(time).await {
            return Ok(());
        }
        // Whoever was cut off, or stood still itself, is not deaf. What was said stands before the answer to this.
        let asked = tokio::time::timeout(time, self.client.batch_execute("")).await;
        asked.map_err(|_| unavailable("the database does not answer"))?.map_err(Stop::from)?;
        if self.proof.comes_within(Duration::ZERO).await { Ok(()) } else { Err(OpenFailed::Deaf) }
    }
}
