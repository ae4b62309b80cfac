//! Idempotency keys, which identify repeated posts and repeated answers, and the callback keys.

use engine::callback::{CallbackKey, KeyRotation, KeysToRemove, StoredCallbackKeys};
use engine::store::{
    PostKey, STORED_RESPONSES_MAX, StoreError, StoredResponse, Tenant, too_many_stored_responses,
};
use machine::audit::{AuditAction, AuditEntry};
use machine::id::{Digest, RunId, ThreadId};
use rusqlite::{Connection, OptionalExtension, params};

use super::audit;
use super::errors::SqliteError;
use super::views::find_row;
use super::write_tx::WriteTx;
use crate::columns::{digest, to_i64};

pub(super) fn posted(
    connection: &Connection,
    tenant: &str,
    thread: &ThreadId,
    scope: &str,
) -> Result<Option<(RunId, Digest)>, SqliteError> {
    let mut statement = connection.prepare_cached(include_str!("sql/post_key.sql"))?;
    let found: Option<(String, Vec<u8>)> = statement
        .query_row(params![tenant, thread.as_str(), scope], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((run, body)) = found else { return Ok(None) };
    Ok(Some((RunId::from(run), digest(&body)?)))
}

pub(super) fn bind(
    tx: &WriteTx<'_>,
    tenant: &str,
    thread: i64,
    run: i64,
    key: &PostKey,
) -> Result<(), SqliteError> {
    let sql = include_str!("sql/post_key_insert.sql");
    let seal = seal_of_key(&key.scope, run, &key.body.0);
    tx.execute(sql, params![tenant, thread, key.scope, run, key.body.0, seal.0])?;
    Ok(())
}

/// Checksum of a row. Only the doctor compares it, to detect damage.
pub(super) fn seal_of_key(scope: &str, run: i64, body: &[u8]) -> Digest {
    seal([scope.as_bytes(), &run.to_le_bytes(), body])
}

/// The same for a stored response.
pub(super) fn seal_of_answer(scope: &str, body: &[u8], status: i64, answer: &str) -> Digest {
    seal([scope.as_bytes(), body, &status.to_le_bytes(), answer.as_bytes()])
}

/// Prefixes each part with its length, so that the boundaries between parts are unambiguous.
fn seal<const COUNT: usize>(parts: [&[u8]; COUNT]) -> Digest {
    let sized = parts.iter().flat_map(|part| [&part.len().to_le_bytes()[..], part].concat());
    Digest::sha256(&sized.collect::<Vec<u8>>())
}

/// Returns the stored keys. If there is no current key yet, stores the drawn one; later ones are ignored.
pub(super) fn callback_keys(
    tx: &WriteTx<'_>,
    drawn: Option<CallbackKey>,
) -> Result<Option<StoredCallbackKeys>, SqliteError> {
    let key = |sql: &str| -> Result<Option<CallbackKey>, SqliteError> {
        let kept: Option<[u8; CallbackKey::BYTES]> =
            tx.connection().query_row(sql, [], |row| row.get(0)).optional()?;
        Ok(kept.map(CallbackKey::from))
    };
    if let Some(current) = key("SELECT key FROM callback_key")? {
        let previous = key("SELECT key FROM previous_callback_key")?;
        return Ok(Some(StoredCallbackKeys { current, previous }));
    }
    if let Some(drawn) = drawn {
        tx.execute("INSERT INTO callback_key (only, key) VALUES (1, ?1)", params![drawn.as_bytes()])?;
    }
    Ok(drawn.map(StoredCallbackKeys::first))
}

pub(super) fn rotate_callback_key(tx: &WriteTx<'_>, drawn: CallbackKey) -> Result<KeyRotation, SqliteError> {
    let Some(kept) = callback_keys(tx, None)? else { return Ok(KeyRotation::NoKey) };
    if kept.previous.is_some() {
        return Ok(KeyRotation::PreviousIsKept);
    }
    tx.execute("INSERT INTO previous_callback_key (only, key) SELECT 1, key FROM callback_key", [])?;
    tx.execute("UPDATE callback_key SET key = ?1", params![drawn.as_bytes()])?;
    record(tx, AuditAction::CallbackKeyRotated)?;
    Ok(KeyRotation::Rotated)
}

/// The key belongs to no tenant. It is in the record of the default one.
fn record(tx: &WriteTx<'_>, action: AuditAction) -> Result<(), SqliteError> {
    let tenant = Tenant::default();
    let entry = AuditEntry::of_callback_key(tx.now, action);
    audit::insert(tx, tenant.as_str(), &entry.to_record(tenant.as_str()))
}

/// Removes callback keys. Overwrites them with zeros first, so that no free page contains a key afterwards.
pub(super) const REMOVE_CALLBACK_KEY: &str =
    "UPDATE callback_key SET key = zeroblob(32); DELETE FROM callback_key;";
pub(super) const REMOVE_PREVIOUS_CALLBACK_KEY: &str =
    "UPDATE previous_callback_key SET key = zeroblob(32); DELETE FROM previous_callback_key;";

pub(super) fn remove_callback_keys(tx: &WriteTx<'_>, which: KeysToRemove) -> Result<bool, SqliteError> {
    let Some(kept) = callback_keys(tx, None)? else { return Ok(false) };
    let is_removed = match which {
        KeysToRemove::All => {
            tx.connection().execute_batch(REMOVE_CALLBACK_KEY)?;
            tx.connection().execute_batch(REMOVE_PREVIOUS_CALLBACK_KEY)?;
            true
        }
        KeysToRemove::Previous => {
            tx.connection().execute_batch(REMOVE_PREVIOUS_CALLBACK_KEY)?;
            kept.previous.is_some()
        }
    };
    if is_removed {
        record(tx, AuditAction::CallbackKeyRemoved)?;
    }
    Ok(is_removed)
}

/// Returns the stored response, which is always the first one.
pub(super) fn store_response(
    tx: &WriteTx<'_>,
    tenant: &Tenant,
    run: &RunId,
    scope: &str,
    answer: StoredResponse,
) -> Result<StoredResponse, SqliteError> {
    let row = find_row(tx.connection(), tenant, run)?.ok_or(StoreError::NotFound)?;
    if let Some(first) = find_stored_response(tx.connection(), row, scope)? {
        return Ok(first);
    }
    if is_full(tx.connection(), row)? {
        return Err(too_many_stored_responses().into());
    }
    let seal = seal_of_answer(scope, &answer.body.0, answer.status.into(), &answer.answer);
    tx.execute(
        include_str!("sql/response_insert.sql"),
        params![tenant.as_str(), row, scope, answer.body.0, answer.status, seal.0, answer.answer],
    )?;
    Ok(answer)
}

fn is_full(connection: &Connection, run: i64) -> Result<bool, SqliteError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM remembered WHERE run = ?1 LIMIT 1 OFFSET ?2)";
    let last = to_i64(STORED_RESPONSES_MAX.saturating_sub(1) as u64);
    Ok(connection.prepare_cached(sql)?.query_row(params![run, last], |row| row.get(0))?)
}

pub(super) fn stored_response(
    connection: &Connection,
    tenant: &Tenant,
    run: &RunId,
    scope: &str,
) -> Result<Option<StoredResponse>, SqliteError> {
    match find_row(connection, tenant, run)? {
        Some(row) => find_stored_response(connection, row, scope),
        None => Ok(None),
    }
}

fn find_stored_response(
    connection: &Connection,
    run: i64,
    scope: &str,
) -> Result<Option<StoredResponse>, SqliteError> {
    let mut statement = connection
        .prepare_cached("SELECT body, status, answer FROM remembered WHERE run = ?1 AND scope = ?2")?;
    let found: Option<(Vec<u8>, u16, String)> = statement
        .query_row(params![run, scope], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((body, status, answer)) = found else { return Ok(None) };
    Ok(Some(StoredResponse { body: digest(&body)?, status, answer }))
}
