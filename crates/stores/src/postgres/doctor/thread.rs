//! Examines one thread: compares its messages, call ids, grants, plugin state, holder and inline agents with the logs
//! of its runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use machine::id::{CallId, Digest, GrantId};
use machine::phase::Scope;
use machine::projection_rows::{GrantRow, MessageRow, ProjectionRows};
use serde_json::Value as Json;
use tokio_postgres::Row;

use super::examine_error::ExamineError;
use super::run::{self, PostgresRunColumns, PostgresRunContext, RUNS_OF_THREAD};
use super::value::columns;
use super::{inline_agents, keys};
use crate::columns::{role_name, timestamp, to_u64};
use crate::doctor::{
    ColumnValue, ExaminedCounts, FindingCode, Findings, compare_grant, differences, integer, text,
};
use crate::postgres::grants;
use crate::postgres::nul_escape::{escape, unescape};
use crate::postgres::snapshot::Snapshot;

/// Runs of a thread read at once, each with its control.
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
pub(super) struct PostgresExaminedThread {
    pub(super) row: i64,
    tenant: String,
    id: String,
}

impl PostgresExaminedThread {
    pub(super) fn from_row(row: &Row) -> Result<Self, ExamineError> {
        Ok(Self { row: row.try_get(0)?, tenant: unescape(row.try_get(1)?), id: unescape(row.try_get(2)?) })
    }
}

impl std::fmt::Display for PostgresExaminedThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "thread {} of {}", self.id, self.tenant)
    }
}

/// Each run's last write under one key. Only the run that holds the thread writes, so the latest of them counts.
type LastWrites<T> = Vec<(i64, T)>;

/// The state that all logs of a thread together imply.
#[derive(Default)]
pub(super) struct PostgresExpectedThread {
    messages: u64,
    calls: u64,
    grants: BTreeMap<GrantId, GrantRow>,
    /// By run, plugin and key; the run is 0 for state of the whole thread.
    state: BTreeMap<(i64, String, String), LastWrites<Arc<Json>>>,
    /// The frozen agents of its runs.
    pub(super) pinned: BTreeSet<Digest>,
    /// The number of runs that have not ended, and how many of them hold the thread.
    unended: u64,
    holders: u64,
    /// A log is unreadable, so it is unknown what else should exist.
    incomplete: bool,
}

pub(super) async fn examine(
    snapshot: &Snapshot<'_>,
    thread: &PostgresExaminedThread,
    findings: &mut Findings,
) -> Result<ExaminedCounts, ExamineError> {
    let PostgresExaminedThread { row, tenant, id } = thread;
    let context = PostgresRunContext { snapshot, tenant, thread: id, thread_row: *row };
    let place = thread.to_string();
    let mut expected = PostgresExpectedThread::default();
    let mut seen = ExaminedCounts::default();
    let mut after = (i64::MIN, String::new());
    loop {
        let rows = snapshot.read(RUNS_OF_THREAD, &[row, &after.0, &after.1, &RUN_COUNT_MAX]).await?;
        if rows.is_empty() {
            break;
        }
        for columns in &rows {
            let run = PostgresRunColumns::from_row(columns)?;
            seen.runs += 1;
            expected.unended += u64::from(!run.ended);
            expected.holders += u64::from(run.holds);
            match run::examine(&context, &run, &mut expected, findings).await? {
                Some(events) => seen.events = seen.events.saturating_add(events),
                None => expected.incomplete = true,
            }
            after = run.place;
        }
    }
    let metadata = snapshot.read(METADATA, &[row]).await?;
    let text: Option<&str> = metadata.first().map(|found| found.try_get(0)).transpose()?;
    if text.is_some_and(|text| serde_json::from_str::<Json>(text).is_err()) {
        findings.add(FindingCode::Unreadable, place.as_str(), "its metadata cannot be decoded");
    }
    if expected.unended > 0 && expected.holders != 1 {
        let what =
            format!("{} runs have not ended, and {} of them hold it", expected.unended, expected.holders);
        findings.add(FindingCode::ThreadDiffers, place.as_str(), what);
    }
    let pinned = (!expected.incomplete).then_some(&expected.pinned);
    inline_agents::examine(&context, pinned, &place, findings).await?;
    if !expected.incomplete {
        expected.compare(&context, &place, findings).await?;
        keys::examine(&context, &place, findings).await?;
    }
    Ok(seen)
}

/// The messages and call ids of some commits of one run.
#[derive(Default)]
pub(super) struct LoggedRows {
    messages: Vec<MessageRow>,
    calls: Vec<CallId>,
}

impl LoggedRows {
    pub(super) fn add_rows(&mut self, rows: ProjectionRows) {
        self.messages.extend(rows.messages);
        self.calls.extend(rows.calls);
    }

    /// Checks that they have their rows.
    pub(super) async fn compare(
        &self,
        context: &PostgresRunContext<'_>,
        run: i64,
        findings: &mut Findings,
    ) -> Result<(), ExamineError> {
        let mut note = |code, what: String| {
            findings.add(code, format!("thread {} of {}", context.thread, context.tenant), what);
        };
        if !self.messages.is_empty() {
            let ids: Vec<_> = self.messages.iter().map(|message| escape(message.id.as_str())).collect();
            let rows = context.snapshot.read(MESSAGES, &[&context.thread_row, &ids]).await?;
            for (message, row) in self.messages.iter().zip(&rows) {
                let expected = [
                    text(context.tenant),
                    ColumnValue::Integer(run),
                    integer(message.seq),
                    text(role_name(message.role)),
                ];
                let found = columns(row, 0, MESSAGE_COLUMNS.len())?;
                if found.iter().all(|column| *column == ColumnValue::Null) {
                    let what = format!("message {} of the log has no row", message.id);
                    note(FindingCode::MessageDiffers, what);
                } else if let Some(what) = differences(&MESSAGE_COLUMNS, &found, &expected) {
                    note(FindingCode::MessageDiffers, format!("message {}: {what}", message.id));
                }
            }
        }
        if !self.calls.is_empty() {
            let ids: Vec<_> = self.calls.iter().map(|call| escape(call.as_str())).collect();
            let rows = context.snapshot.read(CALLS, &[&context.thread_row, &ids]).await?;
            for (call, row) in self.calls.iter().zip(&rows) {
                let what = match row.try_get::<_, Option<String>>(0)?.map(unescape) {
                    Some(tenant) if tenant == context.tenant => continue,
                    Some(tenant) => format!("call {call} belongs to {tenant}"),
                    None => format!("call {call} of the log has no row"),
                };
                note(FindingCode::CallDiffers, what);
            }
        }
        Ok(())
    }
}

/// Replaces what the same run wrote before under the same key.
fn write<T>(written: &mut LastWrites<T>, run: i64, value: T) {
    written.retain(|(writer, _)| *writer != run);
    written.push((run, value));
}

impl PostgresExpectedThread {
    pub(super) fn add_rows(&mut self, run: i64, rows: &ProjectionRows) {
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

    async fn compare(
        &self,
        context: &PostgresRunContext<'_>,
        place: &str,
        findings: &mut Findings,
    ) -> Result<(), ExamineError> {
        for (sql, table, code, expected) in [
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
            let rows = context.snapshot.read(sql, &[&context.thread_row]).await?;
            let found = rows.first().map(|row| row.try_get(0)).transpose()?.map_or(0, to_u64);
            if found > expected {
                findings.add(code, place, format!("{table} has {found} rows, the logs say {expected}"));
            }
        }
        let order = self.order(context).await?;
        self.compare_grants(context, place, findings).await?;
        self.compare_state(context, &order, place, findings).await
    }

    /// The position of each run's last message, if two runs wrote under the same key.
    async fn order(&self, context: &PostgresRunContext<'_>) -> Result<RunOrder, ExamineError> {
        let mut order = RunOrder::default();
        if self.state.values().any(|written| written.len() > 1) {
            let sql = "SELECT run, max(place) FROM messages WHERE thread = $1 GROUP BY run";
            for row in context.snapshot.read(sql, &[&context.thread_row]).await? {
                order.0.insert(row.try_get(0)?, row.try_get(1)?);
            }
        }
        Ok(order)
    }

    async fn compare_grants(
        &self,
        context: &PostgresRunContext<'_>,
        place: &str,
        findings: &mut Findings,
    ) -> Result<(), ExamineError> {
        let sql = "SELECT id, given_by, tool, agent, definition, reasons, since, tenant FROM grants WHERE thread = $1";
        let mut left = self.grants.clone();
        for row in context.snapshot.read(sql, &[&context.thread_row]).await? {
            let since = timestamp(row.try_get(6)?);
            let is_of_tenant = unescape(row.try_get(7)?) == context.tenant;
            compare_grant(grants::columns(&row)?, since, is_of_tenant, &mut left, place, findings);
        }
        for id in left.keys() {
            findings.add(FindingCode::ThreadDiffers, place, format!("grant {id} has no row"));
        }
        Ok(())
    }

    async fn compare_state(
        &self,
        context: &PostgresRunContext<'_>,
        order: &RunOrder,
        place: &str,
        findings: &mut Findings,
    ) -> Result<(), ExamineError> {
        let sql = "SELECT run, plugin, key, tenant, value FROM plugin_state WHERE thread = $1";
        let mut left = self.state.clone();
        for row in context.snapshot.read(sql, &[&context.thread_row]).await? {
            let (plugin, key) = (unescape(row.try_get(1)?), unescape(row.try_get(2)?));
            let (tenant, value) = (unescape(row.try_get(3)?), unescape(row.try_get(4)?));
            let value = serde_json::from_str::<Json>(&value).ok();
            let name = (row.try_get(0)?, plugin, key);
            let fits = left.remove(&name).is_some_and(|written| {
                context.tenant == tenant
                    && order.latest(&written).any(|expected| value.as_ref() == Some(&**expected))
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

/// The position of each run's last message. Runs hold the thread one after the other.
#[derive(Default)]
struct RunOrder(BTreeMap<i64, i64>);

impl RunOrder {
    /// The writes that may be the latest. A run without a message may have held the thread at any time.
    fn latest<'w, T>(&self, written: &'w [(i64, T)]) -> impl Iterator<Item = &'w T> {
        let place = |run: &i64| self.0.get(run).copied();
        let last = written.iter().filter_map(|(run, _)| place(run)).max();
        written
            .iter()
            .filter(move |(run, _)| place(run).is_none_or(|at| Some(at) == last))
            .map(|(_, expected)| expected)
    }
}
