//! Inboxes: items from clients or other runs are judged and stored in the same transaction, which decides who wins.

use engine::store::{StoreError, Tenant};
use machine::decision::Decision;
use machine::id::RunId;
use machine::inbox::{Item, SubmitContext, Ticket, Verdict, judge_after_end, judge_item};
use machine::undecodable::judge_without_control;
use rusqlite::{OptionalExtension, params};

use super::errors::{SqliteError, corrupt};
use super::stored_run::{control_to_show, inbox};
use super::write_tx::WriteTx;
use crate::columns::{item_kind_name, to_i64, to_u64};
use crate::encoded_commit::EncodedItem;

pub(super) fn submit(
    tx: &WriteTx<'_>,
    tenant: &Tenant,
    run: &RunId,
    encoded: &EncodedItem,
) -> Result<Verdict, SqliteError> {
    let tenant = tenant.as_str();
    let Some(found) = find(tx, tenant, run)? else { return Err(StoreError::NotFound.into()) };
    let item = &encoded.item;
    // A run that was ended by its columns may still be undecodable.
    if found.ended {
        return Ok(judge_after_end(item, earlier_decision(tx, found.row, item)?.as_ref()));
    }
    if let Some(verdict) = judge_without_control(item, found.ended, found.interrupt_accepted) {
        if verdict.is_taken() {
            put(tx, tenant, found.row, encoded)?;
            tx.count_commit(encoded.text.len() as u64);
        }
        return Ok(verdict);
    }
    let control = control_to_show(tx.connection(), found.row, &found.control)?;
    let inbox: Vec<Item> = inbox(tx.connection(), found.row)?.into_iter().map(|(_, item)| item).collect();
    let earlier = earlier_decision(tx, found.row, item)?;
    let context = SubmitContext { control: &control, inbox: &inbox, earlier: earlier.as_ref() };
    let verdict = judge_item(item, &context);
    if !verdict.is_taken() {
        return Ok(verdict);
    }
    let ticket = put(tx, tenant, found.row, encoded)?;
    match item {
        Item::Decision(Decision { call, .. }) | Item::LateAnswer { call, .. } => {
            let params = params![found.row, call.as_str(), to_i64(ticket)];
            tx.execute(include_str!("sql/suspension_answer.sql"), params)?;
        }
        Item::Early { .. } | Item::Interrupt { .. } | Item::ChildEnded(_) => {}
    }
    tx.count_commit((encoded.text.len() + encoded.decision.as_ref().map_or(0, String::len)) as u64);
    Ok(verdict)
}

/// False if the run does not exist, has ended, or already has an interrupt and would get a second one.
pub(super) fn deliver(
    tx: &WriteTx<'_>,
    tenant: &str,
    to: &RunId,
    encoded: &EncodedItem,
) -> Result<bool, SqliteError> {
    let Some(found) = find(tx, tenant, to)? else { return Ok(false) };
    let second = found.interrupt_accepted && matches!(encoded.item, Item::Interrupt { .. });
    if found.ended || second {
        return Ok(false);
    }
    put(tx, tenant, found.row, encoded)?;
    Ok(true)
}

/// Stores the decision's id, if it has one, permanently. [`StoreError::Behind`] if the id was used before.
pub(super) fn record_decision(
    tx: &WriteTx<'_>,
    tenant: &str,
    run: i64,
    encoded: &EncodedItem,
) -> Result<(), SqliteError> {
    if let Some(text) = &encoded.decision
        && let Some(id) = encoded.item.decision().and_then(|decision| decision.id.as_ref())
    {
        let sql = include_str!("sql/decision_insert.sql");
        if tx.execute(sql, params![tenant, run, id.as_str(), text])? == 0 {
            return Err(StoreError::Behind.into());
        }
    }
    Ok(())
}

/// Puts the item into the inbox and wakes the run.
fn put(tx: &WriteTx<'_>, tenant: &str, run: i64, encoded: &EncodedItem) -> Result<Ticket, SqliteError> {
    let (call, digest) = match &encoded.item {
        Item::Early { decision, digest } => (Some(decision.call.as_str()), Some(digest.0)),
        Item::Decision(_) | Item::Interrupt { .. } | Item::ChildEnded(_) | Item::LateAnswer { .. } => {
            (None, None)
        }
    };
    tx.execute(
        include_str!("sql/inbox_insert.sql"),
        params![tenant, run, item_kind_name(&encoded.item), call, digest, encoded.text],
    )?;
    let ticket = to_u64(tx.connection().last_insert_rowid());
    let interrupts = matches!(encoded.item, Item::Interrupt { .. });
    tx.execute(include_str!("sql/run_wake.sql"), params![run, tx.next_arrival(), interrupts])?;
    record_decision(tx, tenant, run, encoded)?;
    Ok(ticket)
}

struct FoundRun {
    row: i64,
    interrupt_accepted: bool,
    ended: bool,
    control: Vec<u8>,
}

fn find(tx: &WriteTx<'_>, tenant: &str, run: &RunId) -> Result<Option<FoundRun>, SqliteError> {
    let mut statement = tx.prepare(include_str!("sql/run_by_id.sql"))?;
    let found = statement.query_row(params![tenant, run.as_str()], |row| {
        Ok(FoundRun {
            row: row.get(0)?,
            interrupt_accepted: row.get(1)?,
            ended: row.get(2)?,
            control: row.get(3)?,
        })
    });
    Ok(found.optional()?)
}

fn earlier_decision(tx: &WriteTx<'_>, run: i64, item: &Item) -> Result<Option<Decision>, SqliteError> {
    let Some(id) = item.decision().and_then(|decision| decision.id.as_ref()) else { return Ok(None) };
    let mut statement = tx.prepare("SELECT decision FROM decisions WHERE run = ?1 AND id = ?2")?;
    let text: Option<String> = statement.query_row(params![run, id.as_str()], |row| row.get(0)).optional()?;
    text.map(|text| serde_json::from_str(&text).map_err(|error| corrupt(error.to_string()))).transpose()
}
