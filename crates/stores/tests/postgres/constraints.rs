//! The tables refuse impossible rows, whichever client writes them.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::nodes::Cluster;
use crate::worker::started;

/// The change is rolled back afterwards.
async fn is_refused(client: &Client, sql: &str) -> bool {
    client.batch_execute("BEGIN").await.unwrap();
    let written = client.execute(sql, &[]).await;
    client.batch_execute("ROLLBACK").await.unwrap();
    match written {
        Ok(rows) => {
            assert!(rows > 0, "{sql} matches no row");
            false
        }
        Err(error) => {
            assert_eq!(error.code(), Some(&SqlState::CHECK_VIOLATION), "{sql}: {error:?}");
            true
        }
    }
}

#[tokio::test]
async fn a_run_is_in_one_of_the_states_that_there_are() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    started(&node.world, "thr", "run").await;
    let client = cluster.client().await;
    const ENDED: &str = "status = 'completed', ended_at = 9, holds = false, node = NULL, wake_at = NULL";
    for possible in [
        ENDED,
        "node = NULL, ready = 1, ready_at = 9",
        "ready = 1, ready_at = 9",
        "status = 'interrupting'",
        "status = 'waiting_approval', node = NULL",
        "status = 'waiting_tool', node = NULL, wake_at = 9",
        "status = 'queued'",
        "status = 'queued', node = NULL, ready = 2, ready_at = 9",
        "status = 'queued', node = NULL, holds = false, started_at = NULL, promised = 'm'",
        "parent = 9, parent_call = 'a'",
    ] {
        let sql = format!("UPDATE runs SET {possible}");
        assert!(!is_refused(&client, &sql).await, "{possible} is refused");
    }
    let ended_and = |also: &str| format!("{ENDED}, {also}");
    for impossible in [
        "status = 'asleep'",
        "seq = 0",
        "epoch = -1, node = NULL, ready = 1, ready_at = 9",
        "epoch = 0",
        "ready = 3, ready_at = 9",
        "ready = -1, ready_at = 9",
        "ready = 1",
        "ready_at = 9",
        "parent = 9",
        "parent_call = 'a'",
        "promised = 'm'",
        // Only some of its columns say that the run has ended.
        "status = 'completed', holds = false, node = NULL, wake_at = NULL",
        "ended_at = 9",
        "status = 'waiting_tool', ended_at = 9",
        "status = 'queued', ended_at = 9",
        &ended_and("started_at = NULL, promised = 'm'"),
        &ENDED.replace("holds = false", "holds = true"),
        &ENDED.replace("node = NULL", "node = 9"),
        &ENDED.replace("wake_at = NULL", "wake_at = 9"),
        &ended_and("ready = 1, ready_at = 9"),
        // Only the holder of a thread is in progress, and only a queued run may start.
        "holds = false",
        "status = 'interrupting', holds = false",
        "status = 'waiting_approval', holds = false",
        "ready = 2, ready_at = 9",
        "status = 'waiting_tool', ready = 2, ready_at = 9",
        "status = 'queued', holds = false, ready = 2, ready_at = 9",
        // No node would ever claim the run.
        "node = NULL",
        "status = 'interrupting', node = NULL",
        "status = 'queued', node = NULL",
    ] {
        let sql = format!("UPDATE runs SET {impossible}");
        assert!(is_refused(&client, &sql).await, "{impossible} is accepted");
    }
}

#[tokio::test]
async fn a_commit_and_a_message_are_what_they_can_be() {
    let cluster = Cluster::new();
    let node = cluster.node().await;
    started(&node.world, "thr", "run").await;
    let client = cluster.client().await;
    for possible in
        ["commits SET checkpoint = 'waiting'", "messages SET role = 'note'", "messages SET place = 9"]
    {
        assert!(!is_refused(&client, &format!("UPDATE {possible}")).await, "{possible} is refused");
    }
    for impossible in [
        "commits SET first_seq = 0",
        "commits SET last_seq = first_seq - 1",
        "commits SET checkpoint = 'noon'",
        "messages SET seq = 0",
        "messages SET role = 'chorus'",
        "messages SET place = 0",
    ] {
        assert!(is_refused(&client, &format!("UPDATE {impossible}")).await, "{impossible} is accepted");
    }
}
