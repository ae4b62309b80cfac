//! The ear of a node: one connection that only listens, and waits for a word of its own first. What it misses is looked
//! for.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::{AsyncMessage, Client, Connection, Socket};

use super::bells::{Heard, read};
use super::connection::Address;
use super::hearing::Proof;
use super::tls::Encrypted;
use super::trouble::{Stop, unavailable};
use super::{Shared, said};

const RETRY_AFTER: Duration = Duration::from_millis(200);

/// Ends with the store: it is aborted.
pub(super) async fn listen(shared: Arc<Shared>, address: Address) {
    loop {
        let Err(Stop(refused)) = listen_once(&shared, &address).await;
        tracing::debug!(%refused, "nobody listens for other nodes; trying again");
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

async fn listen_once(shared: &Shared, address: &Address) -> Result<std::convert::Infallible, Stop> {
    let (client, connection) = address.connect(shared.settings.answer_timeout).await?;
    let proof = Proof::new();
    tokio::select! {
        ended = hear(shared, &proof, connection) => Err(ended),
        refused = ask(shared, &proof, &client) => Err(refused),
    }
}

/// Comes back only where it failed.
async fn ask(shared: &Shared, proof: &Proof, client: &Client) -> Stop {
    let (sql, time) = (format!("LISTEN {}", shared.channel), shared.settings.answer_timeout);
    match tokio::time::timeout(time, client.batch_execute(&sql)).await {
        Err(_) => unavailable("the database does not answer"),
        Ok(Ok(())) => {
            // What was said before is looked for, and whoever reads reads again.
            shared.pulse.notify_one();
            shared.bells.committed(shared.watched.take_all());
            shared.bells.approvals_missed();
            shared.posts.was_deaf();
            shared.posts.prove(proof.token());
            if proof.comes_within(time).await {
                return std::future::pending().await;
            }
            tracing::warn!(
                "what is said to this node does not arrive; it finds by looking what it is not told. A proxy before the database may give statements of one connection to several"
            );
            unavailable("no notification arrived")
        }
        Ok(Err(error)) => error.into(),
    }
}

async fn hear(shared: &Shared, proof: &Proof, mut connection: Connection<Socket, Encrypted>) -> Stop {
    loop {
        match poll_fn(|context| connection.poll_message(context)).await {
            Some(Ok(AsyncMessage::Notification(note))) => understand(shared, proof, note.payload()),
            Some(Ok(_)) => {}
            Some(Err(error)) => return error.into(),
            None => return unavailable("the connection was closed"),
        }
    }
}

fn understand(shared: &Shared, proof: &Proof, note: &str) {
    match read(note, shared.leases.node()) {
        Heard::Ready => shared.bells.ready(),
        Heard::Runs(runs) => {
            for lease in runs.into_iter().filter_map(|run| shared.leases.of_run(run)) {
                shared.bells.run(lease.tenant, lease.run);
            }
        }
        Heard::Committed(runs) => shared.bells.committed(runs),
        Heard::Approvals(runs) => shared.bells.approvals(runs),
        Heard::AskAgain => shared.watched.ids().iter().for_each(|run| shared.posts.watch(run)),
        Heard::Watched(runs) => shared.bells.watched(runs),
        Heard::Said(note) => {
            if let Some((run, after, said)) = said::read(note) {
                shared.bells.said(run, after, said);
            }
        }
        Heard::Proof(token) => proof.hear(token),
        Heard::Nothing => {}
    }
}
