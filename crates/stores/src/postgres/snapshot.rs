//! A snapshot of the database: a short read-only transaction that blocks no other one.

use std::time::Duration;

use deadpool_postgres::{Object, Transaction};
use tokio_postgres::{IsolationLevel, Row};

use super::connection::{Connections, Parameters};
use super::errors::{PostgresError, unavailable};

/// Ends when it is dropped.
pub(super) struct Snapshot<'c> {
    transaction: Transaction<'c>,
    answer_timeout: Duration,
}

impl<'c> Snapshot<'c> {
    pub(super) async fn begin(
        connections: &Connections,
        client: &'c mut Object,
    ) -> Result<Self, PostgresError> {
        let answer_timeout = connections.answer_timeout;
        let begun = client
            .build_transaction()
            .isolation_level(IsolationLevel::RepeatableRead)
            .read_only(true)
            .start();
        let transaction =
            tokio::time::timeout(answer_timeout, begun).await.map_err(|_| timed_out(answer_timeout))??;
        Ok(Self { transaction, answer_timeout })
    }

    pub(super) async fn read(
        &self,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> Result<Vec<Row>, PostgresError> {
        let answered = async {
            let statement = self.transaction.prepare_cached(sql).await?;
            self.transaction.query(&statement, parameters).await
        };
        let rows = tokio::time::timeout(self.answer_timeout, answered).await;
        Ok(rows.map_err(|_| timed_out(self.answer_timeout))??)
    }

    /// Commits, so that no transaction is left open for the connection's next user.
    pub(super) async fn end(self) -> Result<(), PostgresError> {
        let ended = tokio::time::timeout(self.answer_timeout, self.transaction.commit()).await;
        Ok(ended.map_err(|_| timed_out(self.answer_timeout))??)
    }
}

fn timed_out(waited: Duration) -> PostgresError {
    unavailable(format!("the database did not answer within {} s", waited.as_secs_f32()))
}
