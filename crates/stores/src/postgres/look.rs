//! A look at the database as it is at one moment: a short transaction that changes nothing and makes nobody wait.

use std::time::Duration;

use deadpool_postgres::{Object, Transaction};
use tokio_postgres::{IsolationLevel, Row};

use super::connection::{Connections, Parameters};
use super::trouble::{Stop, unavailable};

/// It is over when it is dropped.
pub(super) struct Look<'c> {
    moment: Transaction<'c>,
    answer_timeout: Duration,
}

impl<'c> Look<'c> {
    pub(super) async fn begin(connections: &Connections, client: &'c mut Object) -> Result<Self, Stop> {
        let answer_timeout = connections.answer_timeout;
        let begun = client
            .build_transaction()
            .isolation_level(IsolationLevel::RepeatableRead)
            .read_only(true)
            .start();
        let moment =
            tokio::time::timeout(answer_timeout, begun).await.map_err(|_| late(answer_timeout))??;
        Ok(Self { moment, answer_timeout })
    }

    pub(super) async fn read(&self, sql: &str, parameters: Parameters<'_>) -> Result<Vec<Row>, Stop> {
        let answered = async {
            let statement = self.moment.prepare_cached(sql).await?;
            self.moment.query(&statement, parameters).await
        };
        let rows = tokio::time::timeout(self.answer_timeout, answered).await;
        Ok(rows.map_err(|_| late(self.answer_timeout))??)
    }

    /// Nothing is left open for the next one.
    pub(super) async fn end(self) -> Result<(), Stop> {
        let ended = tokio::time::timeout(self.answer_timeout, self.moment.commit()).await;
        Ok(ended.map_err(|_| late(self.answer_timeout))??)
    }
}

fn late(waited: Duration) -> Stop {
    unavailable(format!("the database did not answer within {} s", waited.as_secs_f32()))
}
