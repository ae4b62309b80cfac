//! Idempotency keys of posted messages and of answers, and the key of callbacks.

use engine::callback::{CallbackKey, KeyRotation, KeysToRemove, StoredCallbackKeys};
use engine::store::{STORED_RESPONSES_MAX, StoreError, StoredResponse, Tenant, too_many_stored_responses};
use machine::id::{Digest, RunId, ThreadId};
use tokio_postgres::Row;

use super::PostgresShared;
use super::connection::Connections;
use super::errors::{PostgresError, corrupt};
use super::nul_escape::{escape, unescape};
use crate::columns::{digest, to_i64};

impl PostgresShared {
    /// The stored keys. If several nodes draw a first key, the first one stored wins.
    pub(super) async fn callback_keys(
        &self,
        drawn: Option<CallbackKey>,
    ) -> Result<Option<StoredCallbackKeys>, PostgresError> {
        if let Some(drawn) = drawn {
            let sql = "INSERT INTO callback_key (the_only, key) VALUES (true, $1) ON CONFLICT DO NOTHING";
            self.change(sql, &[&drawn.as_bytes().as_slice()]).await?;
        }
        let rows = self.connections.read("SELECT key, previous FROM callback_key", &[]).await?;
        let Some(kept) = rows.first() else {
            return if drawn.is_none() {
                Ok(None)
            } else {
                Err(corrupt("the callback key does not exist".to_owned()))
            };
        };
        let previous = kept.try_get::<_, Option<&[u8]>>(1)?.map(digest).transpose()?;
        Ok(Some(StoredCallbackKeys {
            current: CallbackKey::from(digest(kept.try_get(0)?)?.0),
            previous: previous.map(|previous| CallbackKey::from(previous.0)),
        }))
    }

    pub(super) async fn rotate_callback_key(&self, drawn: CallbackKey) -> Result<KeyRotation, PostgresError> {
        // The key belongs to no tenant. It is in the record of the default one.
        let sql = "WITH changed AS (
                UPDATE callback_key SET previous = key, key = $1 WHERE previous IS NULL RETURNING true
            )
            SELECT add_audit('default', now_ms($2), 'callback_key.rotated', '{\"by\":\"system\"}', NULL, '{}') FROM changed";
        let at = self.clock.override_ms();
        if !self.change(sql, &[&drawn.as_bytes().as_slice(), &at]).await?.is_empty() {
            return Ok(KeyRotation::Rotated);
        }
        Ok(match self.callback_keys(None).await? {
            Some(_) => KeyRotation::PreviousIsKept,
            None => KeyRotation::NoKey,
        })
    }

    pub(super) async fn remove_callback_keys(&self, which: KeysToRemove) -> Result<bool, PostgresError> {
        let changes = match which {
            KeysToRemove::All => "DELETE FROM callback_key RETURNING true",
            KeysToRemove::Previous => {
                "UPDATE callback_key SET previous = NULL WHERE previous IS NOT NULL RETURNING true"
            }
        };
        let sql = format!(
            "WITH changed AS ({changes})
            SELECT add_audit('default', now_ms($1), 'callback_key.removed', '{{\"by\":\"system\"}}', NULL, '{{}}') FROM changed"
        );
        Ok(!self.change(&sql, &[&self.clock.override_ms()]).await?.is_empty())
    }

    /// The stored response, which is the first one.
    pub(super) async fn store_response(
        &self,
        tenant: &Tenant,
        run: &RunId,
        scope: &str,
        answer: &StoredResponse,
    ) -> Result<StoredResponse, PostgresError> {
        answer.check(scope)?;
        let sql = "SELECT * FROM store_response($1, $2, $3, $4, $5, $6, $7)";
        let StoredResponse { body, status, answer } = answer;
        let (tenant, run, scope) = (escape(tenant.as_str()), escape(run.as_str()), escape(scope));
        let (body, status, most) =
            (body.0.as_slice(), i32::from(*status), to_i64(STORED_RESPONSES_MAX as u64));
        let rows = self.change(sql, &[&tenant, &run, &scope, &body, &status, &escape(answer), &most]).await?;
        let kept = rows.first().ok_or(StoreError::NotFound)?;
        if kept.try_get::<_, Option<i32>>(1)?.is_none() {
            return Err(too_many_stored_responses().into());
        }
        stored_response_from_row(kept)
    }
}

pub(super) async fn stored_response(
    connections: &Connections,
    tenant: &Tenant,
    run: &RunId,
    scope: &str,
) -> Result<Option<StoredResponse>, PostgresError> {
    let sql = include_str!("sql/stored_response.sql");
    let rows =
        connections.read(sql, &[&escape(tenant.as_str()), &escape(run.as_str()), &escape(scope)]).await?;
    rows.first().map(stored_response_from_row).transpose()
}

fn stored_response_from_row(row: &Row) -> Result<StoredResponse, PostgresError> {
    let status: i32 = row.try_get(1)?;
    Ok(StoredResponse {
        body: digest(row.try_get(0)?)?,
        status: u16::try_from(status).map_err(|error| corrupt(error.to_string()))?,
        answer: unescape(row.try_get(2)?),
    })
}

pub(super) async fn posted(
    connections: &Connections,
    tenant: &Tenant,
    thread: &ThreadId,
    scope: &str,
) -> Result<Option<(RunId, Digest)>, PostgresError> {
    let sql = include_str!("sql/post_key.sql");
    let rows =
        connections.read(sql, &[&escape(tenant.as_str()), &escape(thread.as_str()), &escape(scope)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some((RunId::from(unescape(row.try_get(0)?)), digest(row.try_get(1)?)?)))
}
