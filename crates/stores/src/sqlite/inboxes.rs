//! Inboxes: what comes from outside or from another run, judged and kept in the transaction that decides who wins.

use engine::store::{StoreError, Tenant};
use machine::decision::Decision;
use machine::id::RunId;
use machine::inbox::{Item, SubmitContext, Ticket, Verdict, judge_after_end, judge_item};
use machine::undecodable::judge_without_control;
use rusqlite::{OptionalExtension, params};

use super::desk::Desk;
use super::stored_run::{control_to_show, inbox};
use super::trouble::{Stop, corrupt};
use crate::entry::Written;
use crate::words::{item_word, number, unsigned};

pub(super) fn submit(
    desk: &Desk<'_>,
    tenant: &Tenant,
    run: &RunId,
    written: &Written,
) -> Result<Verdict, Stop> {
    let tenant = tenant.as_str();
    let Some(found) = find(desk, tenant, run)? else { return Err(StoreError::NotFound.into()) };
    let item = &written.item;
    // What is left of a run that was ended by its columns need not be decodable.
    if found.ended {
        return Ok(judge_after_end(item, earlier(desk, found.row, item)?.as_ref()));
    }
    if let Some(verdict) = judge_without_control(item, found.ended, found.interrupt_accepted) {
        if verdict.is_taken() {
            put(desk, tenant, found.row, written)?;
            desk.count_commit(written.text.len() as u64);
        }
        return Ok(verdict);
    }
    let control = control_to_show(desk.connection(), found.row, &found.control)?;
    let inbox: Vec<Item> = inbox(desk.connection(), found.row)?.into_iter().map(|(_, item)| item).collect();
    let earlier = earlier(desk, found.row, item)?;
    let context = SubmitContext { control: &control, inbox: &inbox, earlier: earlier.as_ref() };
    let verdict = judge_item(item, &context);
    if !verdict.is_taken() {
        return Ok(verdict);
    }
    let ticket = put(desk, tenant, found.row, written)?;
    match item {
        Item::Decision(Decision { call, .. }) | Item::LateAnswer { call, .. } => {
            let params = params![found.row, call.as_str(), number(ticket)];
            desk.execute(include_str!("sql/suspension_answer.sql"), params)?;
        }
        Item::Early { .. } | Item::Interrupt { .. } | Item::ChildEnded(_) => {}
    }
    desk.count_commit((written.text.len() + written.decision.as_ref().map_or(0, String::len)) as u64);
    Ok(verdict)
}

/// True unless nobody is there, the run has ended, or it would hear a second interrupt.
pub(super) fn deliver(desk: &Desk<'_>, tenant: &str, to: &RunId, written: &Written) -> Result<bool, Stop> {
    let Some(found) = find(desk, tenant, to)? else { return Ok(false) };
    let second = found.interrupt_accepted && matches!(written.item, Item::Interrupt { .. });
    if found.ended || second {
        return Ok(false);
    }
    put(desk, tenant, found.row, written)?;
    Ok(true)
}

/// Keeps the id of a decision for ever, where it has one. [`StoreError::Behind`] where the id was used before.
pub(super) fn remember(desk: &Desk<'_>, tenant: &str, run: i64, written: &Written) -> Result<(), Stop> {
    if let Some(text) = &written.decision
        && let Some(id) = written.item.decision().and_then(|decision| decision.id.as_ref())
    {
        let sql = include_str!("sql/decision_insert.sql");
        if desk.execute(sql, params![tenant, run, id.as_str(), text])? == 0 {
            return Err(StoreError::Behind.into());
        }
    }
    Ok(())
}

/// Into the inbox, and the run is woken.
fn put(desk: &Desk<'_>, tenant: &str, run: i64, written: &Written) -> Result<Ticket, Stop> {
    let (call, digest) = match &written.item {
        Item::Early { decision, digest } => (Some(decision.call.as_str()), Some(digest.0)),
        Item::Decision(_) | Item::Interrupt { .. } | Item::ChildEnded(_) | Item::LateAnswer { .. } => {
            (None, None)
        }
    };
    desk.execute(
        include_str!("sql/inbox_insert.sql"),
        params![tenant, run, item_word(&written.item), call, digest, written.text],
    )?;
    let ticket = unsigned(desk.connection().last_insert_rowid());
    let interrupts = matches!(written.item, Item::Interrupt { .. });
    desk.execute(include_str!("sql/run_wake.sql"), params![run, desk.arrival(), interrupts])?;
    remember(desk, tenant, run, written)?;
    Ok(ticket)
}

struct Found {
    row: i64,
    interrupt_accepted: bool,
    ended: bool,
    control: Vec<u8>,
}

fn find(desk: &Desk<'_>, tenant: &str, run: &RunId) -> Result<Option<Found>, Stop> {
    let mut statement = desk.prepare(include_str!("sql/run_by_id.sql"))?;
    let found = statement.query_row(params![tenant, run.as_str()], |row| {
        Ok(Found {
            row: row.get(0)?,
            interrupt_accepted: row.get(1)?,
            ended: row.get(2)?,
            control: row.get(3)?,
        })
    });
    Ok(found.optional()?)
}

fn earlier(desk: &Desk<'_>, run: i64, item: &Item) -> Result<Option<Decision>, Stop> {
    let Some(id) = item.decision().and_then(|decision| decision.id.as_ref()) else { return Ok(None) };
    let mut statement = desk.prepare("SELECT decision FROM decisions WHERE run = ?1 AND id = ?2")?;
    let text: Option<String> = statement.query_row(params![run, id.as_str()], |row| row.get(0)).optional()?;
    text.map(|text| serde_json::from_str(&text).map_err(|error| corrupt(error.to_string()))).transpose()
}
