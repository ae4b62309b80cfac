//! One thread: its messages, call ids, grants, plugin state and holder, and what came with its messages,
//! beside what the logs of its runs say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use machine::id::{CallId, Digest, GrantId};
use machine::phase::Scope;
use machine::projection_rows::{GrantRow, MessageRow, ProjectionRows};
use serde_json::Value as Json;
use tokio_postgres::Row;

use super::halt::Halt;
use super::run::{self, Around, RUNS_OF_THREAD, RunColumns};
use super::value::columns;
use super::{brought, keys};
use crate::doctor::{FindingCode, Findings, Seen, Value, compare_grant, differences, text, whole};
use crate::postgres::grants;
use crate::postgres::look::Look;
use crate::postgres::text::{kept, told as told_text};
use crate::words::{role_word, timestamp, unsigned};

/// So many runs of a thread are read at once, each with its control.
const RUN_COUNT_MAX: i64 = 16;
const MESSAGE_COLUMNS: [&str; 4] = ["tenant", "run", "seq", "role"];
const MESSAGES: &str = "SELECT m.tenant, m.run, m.seq, m.role
    FROM unnest($2::text[]) WITH ORDINALITY AS w (id, place) LEFT JOIN messages m ON m.thread = $1 AND m.id = w.id
    ORDER BY w.place";
const METADATA: &str = "SELECT metadata::text FROM threads WHERE thread = $1";
const CALLS: &str = "SELECT c.tenant
    FROM unnest($2::text[]) WITH ORDINALITY AS w (id, place) LEFT JOIN call_ids c ON c.thread = $1 AND c.id = w.id
    ORDER BY w.place";

/// The row of a thread.
pub(super) struct ThreadColumns {
    pub(super) row: i64,
    tenant: String,
    id: String,
}

impl ThreadColumns {
    pub(super) fn of(row: &Row) -> Result<Self, Halt> {
        Ok(Self { row: row.try_get(0)?, tenant: told_text(row.try_get(1)?), id: told_text(row.try_get(2)?) })
    }
}

impl std::fmt::Display for ThreadColumns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "thread {} of {}", self.id, self.tenant)
    }
}

/// What each run wrote last under one key. Only whoever holds the thread writes, so the last one of them counts.
type Written<T> = Vec<(i64, T)>;

/// What the logs of a thread say together.
#[derive(Default)]
pub(super) struct ToldThread {
    messages: u64,
    calls: u64,
    grants: BTreeMap<GrantId, GrantRow>,
    /// By run, plugin and key; the run is 0 where it is kept for the whole thread.
    state: BTreeMap<(i64, String, String), Written<Arc<Json>>>,
    /// The frozen agents of its runs.
    pub(super) pinned: BTreeSet<Digest>,
    /// Runs that have not ended, and those of them that hold the thread.
    unended: u64,
    holders: u64,
    /// A log that cannot be read leaves open what else there should be.
    incomplete: bool,
}

pub(super) async fn examine(
    look: &Look<'_>,
    thread: &ThreadColumns,
    findings: &mut Findings,
) -> Result<Seen, Halt> {
    let ThreadColumns { row, tenant, id } = thread;
    let around = Around { look, tenant, thread: id, thread_row: *row };
    let place = thread.to_string();
    let mut told = ToldThread::default();
    let mut seen = Seen::default();
    let mut behind = (i64::MIN, String::new());
    loop {
        let rows = look.read(RUNS_OF_THREAD, &[row, &behind.0, &behind.1, &RUN_COUNT_MAX]).await?;
        if rows.is_empty() {
            break;
        }
        for columns in &rows {
            let run = RunColumns::of(columns)?;
            seen.runs += 1;
            told.unended += u64::from(!run.ended);
            told.holders += u64::from(run.holds);
            match run::examine(&around, &run, &mut told, findings).await? {
                Some(events) => seen.events = seen.events.saturating_add(events),
                None => told.incomplete = true,
            }
            behind = run.place;
        }
    }
    let metadata = look.read(METADATA, &[row]).await?;
    let text: Option<&str> = metadata.first().map(|found| found.try_get(0)).transpose()?;
    if text.is_some_and(|text| serde_json::from_str::<Json>(text).is_err()) {
        findings.add(FindingCode::Unreadable, place.as_str(), "its metadata cannot be decoded");
    }
    if told.unended > 0 && told.holders != 1 {
        let what = format!("{} runs have not ended, and {} of them hold it", told.unended, told.holders);
        findings.add(FindingCode::ThreadDiffers, place.as_str(), what);
    }
    let pinned = (!told.incomplete).then_some(&told.pinned);
    brought::examine(&around, pinned, &place, findings).await?;
    if !told.incomplete {
        told.compare(&around, &place, findings).await?;
        keys::examine(&around, &place, findings).await?;
    }
    Ok(seen)
}

/// The messages and call ids of some commits of one run.
#[derive(Default)]
pub(super) struct Beside {
    messages: Vec<MessageRow>,
    calls: Vec<CallId>,
}

impl Beside {
    pub(super) fn hear(&mut self, rows: ProjectionRows) {
        self.messages.extend(rows.messages);
        self.calls.extend(rows.calls);
    }

    /// They have their rows.
    pub(super) async fn compare(
        &self,
        around: &Around<'_>,
        run: i64,
        findings: &mut Findings,
    ) -> Result<(), Halt> {
        let mut note = |code, what: String| {
            findings.add(code, format!("thread {} of {}", around.thread, around.tenant), what);
        };
        if !self.messages.is_empty() {
            let ids: Vec<_> = self.messages.iter().map(|message| kept(message.id.as_str())).collect();
            let rows = around.look.read(MESSAGES, &[&around.thread_row, &ids]).await?;
            for (message, row) in self.messages.iter().zip(&rows) {
                let told = [
                    text(around.tenant),
                    Value::Whole(run),
                    whole(message.seq),
                    text(role_word(message.role)),
                ];
                let found = columns(row, 0, MESSAGE_COLUMNS.len())?;
                if found.iter().all(|column| *column == Value::Nothing) {
                    let what = format!("message {} of the log has no row", message.id);
                    note(FindingCode::MessageDiffers, what);
                } else if let Some(what) = differences(&MESSAGE_COLUMNS, &found, &told) {
                    note(FindingCode::MessageDiffers, format!("message {}: {what}", message.id));
                }
            }
        }
        if !self.calls.is_empty() {
            let ids: Vec<_> = self.calls.iter().map(|call| kept(call.as_str())).collect();
            let rows = around.look.read(CALLS, &[&around.thread_row, &ids]).await?;
            for (call, row) in self.calls.iter().zip(&rows) {
                let what = match row.try_get::<_, Option<String>>(0)?.map(told_text) {
                    Some(tenant) if tenant == around.tenant => continue,
                    Some(tenant) => format!("call {call} belongs to {tenant}"),
                    None => format!("call {call} of the log has no row"),
                };
                note(FindingCode::CallDiffers, what);
            }
        }
        Ok(())
    }
}

/// What the same run wrote before under the same key does not count any more.
fn write<T>(written: &mut Written<T>, run: i64, value: T) {
    written.retain(|(writer, _)| *writer != run);
    written.push((run, value));
}

impl ToldThread {
    pub(super) fn hear(&mut self, run: i64, rows: &ProjectionRows) {
        self.messages += rows.messages.len() as u64;
        self.calls += rows.calls.len() as u64;
        self.grants.extend(rows.grants.iter().map(|row| (row.grant.id.clone(), row.clone())));
        for kept in &rows.state {
            let owner = match kept.scope {
                Scope::Run => run,
                Scope::Thread => 0,
            };
            let key = (owner, kept.plugin.as_str().to_owned(), kept.key.clone());
            write(self.state.entry(key).or_default(), run, kept.value.clone());
        }
    }

    async fn compare(&self, around: &Around<'_>, place: &str, findings: &mut Findings) -> Result<(), Halt> {
        for (sql, table, code, told) in [
            (
                "SELECT count(*) FROM messages WHERE thread = $1",
                "messages",
                FindingCode::MessageDiffers,
                self.messages,
            ),
            (
                "SELECT count(*) FROM call_ids WHERE thread = $1",
                "call_ids",
                FindingCode::CallDiffers,
                self.calls,
            ),
        ] {
            let rows = around.look.read(sql, &[&around.thread_row]).await?;
            let found = rows.first().map(|row| row.try_get(0)).transpose()?.map_or(0, unsigned);
            if found > told {
                findings.add(code, place, format!("{table} has {found} rows, the logs say {told}"));
            }
        }
        let order = self.order(around).await?;
        self.compare_grants(around, place, findings).await?;
        self.compare_state(around, &order, place, findings).await
    }

    /// Where the last message of each run stands, if two runs wrote under the same key.
    async fn order(&self, around: &Around<'_>) -> Result<Order, Halt> {
        let mut order = Order::default();
        if self.state.values().any(|written| written.len() > 1) {
            let sql = "SELECT run, max(place) FROM messages WHERE thread = $1 GROUP BY run";
            for row in around.look.read(sql, &[&around.thread_row]).await? {
                order.0.insert(row.try_get(0)?, row.try_get(1)?);
            }
        }
        Ok(order)
    }

    async fn compare_grants(
        &self,
        around: &Around<'_>,
        place: &str,
        findings: &mut Findings,
    ) -> Result<(), Halt> {
        let sql = "SELECT id, given_by, tool, agent, definition, reasons, since, tenant FROM grants WHERE thread = $1";
        let mut left = self.grants.clone();
        for row in around.look.read(sql, &[&around.thread_row]).await? {
            let since = timestamp(row.try_get(6)?);
            let is_of_tenant = told_text(row.try_get(7)?) == around.tenant;
            compare_grant(grants::columns(&row)?, since, is_of_tenant, &mut left, place, findings);
        }
        for id in left.keys() {
            findings.add(FindingCode::ThreadDiffers, place, format!("grant {id} has no row"));
        }
        Ok(())
    }

    async fn compare_state(
        &self,
        around: &Around<'_>,
        order: &Order,
        place: &str,
        findings: &mut Findings,
    ) -> Result<(), Halt> {
        let sql = "SELECT run, plugin, key, tenant, value FROM plugin_state WHERE thread = $1";
        let mut left = self.state.clone();
        for row in around.look.read(sql, &[&around.thread_row]).await? {
            let (plugin, key) = (told_text(row.try_get(1)?), told_text(row.try_get(2)?));
            let (tenant, value) = (told_text(row.try_get(3)?), told_text(row.try_get(4)?));
            let value = serde_json::from_str::<Json>(&value).ok();
            let name = (row.try_get(0)?, plugin, key);
            let fits = left.remove(&name).is_some_and(|written| {
                around.tenant == tenant && order.latest(&written).any(|told| value.as_ref() == Some(&**told))
            });
            if !fits {
                let what = format!("state {} of plugin {} is not what the logs say", name.2, name.1);
                findings.add(FindingCode::ThreadDiffers, place, what);
            }
        }
        for (_, plugin, key) in left.keys() {
            findings.add(
                FindingCode::ThreadDiffers,
                place,
                format!("state {key} of plugin {plugin} has no row"),
            );
        }
        Ok(())
    }
}

/// The place of the last message of each run. Runs hold the thread one after the other.
#[derive(Default)]
struct Order(BTreeMap<i64, i64>);

impl Order {
    /// What counts of all that was written. A run without a message may have come at any time.
    fn latest<'w, T>(&self, written: &'w [(i64, T)]) -> impl Iterator<Item = &'w T> {
        let place = |run: &i64| self.0.get(run).copied();
        let last = written.iter().filter_map(|(run, _)| place(run)).max();
        written
            .iter()
            .filter(move |(run, _)| place(run).is_none_or(|at| Some(at) == last))
            .map(|(_, told)| told)
    }
}
