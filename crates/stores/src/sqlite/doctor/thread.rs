//! Checks one thread: compares its messages, call ids, grants, plugin state, head, holder and inline agents with the
//! logs of its runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use machine::id::{Digest, GrantId, MessageId};
use machine::phase::Scope;
use machine::projection_rows::{GrantRow, ProjectionRows};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;

use super::inline_agents;
use super::keys;
use super::run::{self, RUNS_OF_THREAD, SqliteRunColumns, SqliteRunContext};
use super::value::row_differences;
use crate::columns::{role_name, timestamp, to_u64};
use crate::doctor::{self, ExaminedCounts, Fault, FindingCode, Findings, compare_grant, integer, text};
use crate::sqlite::grants;

struct SqliteExaminedThread {
    row: i64,
    tenant: String,
    id: String,
    head: Option<String>,
    metadata: String,
}

impl SqliteExaminedThread {
    fn read(connection: &Connection, row: i64) -> rusqlite::Result<Self> {
        let sql = "SELECT tenant, id, head, metadata FROM threads WHERE row = ?1";
        connection.prepare_cached(sql)?.query_row([row], |columns| {
            Ok(Self {
                row,
                tenant: columns.get(0)?,
                id: columns.get(1)?,
                head: columns.get(2)?,
                metadata: columns.get(3)?,
            })
        })
    }
}

/// What the logs of a thread's runs imply together. Later commits override earlier ones.
#[derive(Default)]
struct SqliteExpectedThread {
    messages: u64,
    calls: u64,
    head: Option<(i64, MessageId)>,
    grants: BTreeMap<GrantId, GrantRow>,
    /// By run, plugin and key; the run is 0 for state of the whole thread.
    state: BTreeMap<(i64, String, String), (i64, Arc<Value>)>,
    /// The frozen agents of its runs.
    pinned: BTreeSet<Digest>,
    /// Runs that have not ended, and those of them that hold the thread.
    unended: u64,
    holders: u64,
    /// True if a log cannot be read, because then the expected rows are not all known.
    incomplete: bool,
}

pub(super) fn examine(
    connection: &Connection,
    openings: u64,
    thread: i64,
    findings: &mut Findings,
) -> Result<ExaminedCounts, Fault> {
    let thread = SqliteExaminedThread::read(connection, thread)?;
    let SqliteExaminedThread { row, tenant, id, head, metadata } = &thread;
    let context = SqliteRunContext { connection, tenant, thread: id, openings };
    let place = format!("thread {id} of {tenant}");
    let mut expected = SqliteExpectedThread::default();
    let mut seen = ExaminedCounts::default();
    let mut statement = connection.prepare_cached(RUNS_OF_THREAD)?;
    let mut runs = statement.query([row])?;
    while let Some(columns) = runs.next()? {
        let run = SqliteRunColumns::from_row(columns)?;
        seen.runs += 1;
        expected.unended += u64::from(!run.ended);
        expected.holders += u64::from(run.holds);
        let log = run::examine(&context, &run, columns, findings, |commit, rows, findings| {
            messages(connection, *row, &context, run.row, rows, findings)?;
            expected.add_rows(commit, run.row, rows);
            Ok(())
        })?;
        match log {
            Some(log) => {
                seen.events = seen.events.saturating_add(log.control.seq);
                expected.pinned.insert(log.control.revision);
            }
            None => expected.incomplete = true,
        }
    }
    if serde_json::from_str::<Value>(metadata).is_err() {
        findings.add(FindingCode::Unreadable, place.as_str(), "its metadata is no JSON");
    }
    if expected.unended > 0 && expected.holders != 1 {
        let what =
            format!("{} runs have not ended, and {} of them hold it", expected.unended, expected.holders);
        findings.add(FindingCode::ThreadDiffers, place.as_str(), what);
    }
    let pinned = (!expected.incomplete).then_some(&expected.pinned);
    inline_agents::examine(connection, (*row, tenant), pinned, &place, findings)?;
    if !expected.incomplete {
        expected.compare(connection, &thread, head.as_deref(), &place, findings)?;
        keys::examine(connection, *row, tenant, &place, findings)?;
    }
    Ok(seen)
}

/// Checks that the messages and call ids of one commit have their rows.
fn messages(
    connection: &Connection,
    thread: i64,
    context: &SqliteRunContext<'_>,
    run: i64,
    rows: &ProjectionRows,
    findings: &mut Findings,
) -> Result<(), Fault> {
    let place = || format!("thread {} of {}", context.thread, context.tenant);
    for message in &rows.messages {
        let mut statement = connection
            .prepare_cached("SELECT tenant, run, seq, role FROM messages WHERE thread = ?1 AND id = ?2")?;
        let expected = [
            text(context.tenant),
            doctor::ColumnValue::Integer(run),
            integer(message.seq),
            text(role_name(message.role)),
        ];
        let found = statement.query_row(params![thread, message.id.as_str()], |row| {
            row_differences(row, 0, &["tenant", "run", "seq", "role"], &expected)
        });
        let what = match found.optional()? {
            Some(None) => continue,
            Some(Some(what)) => format!("message {}: {what}", message.id),
            None => format!("message {} of the log has no row", message.id),
        };
        findings.add(FindingCode::MessageDiffers, place(), what);
    }
    for call in &rows.calls {
        let mut statement =
            connection.prepare_cached("SELECT tenant FROM call_ids WHERE thread = ?1 AND id = ?2")?;
        let found: Option<String> =
            statement.query_row(params![thread, call.as_str()], |row| row.get(0)).optional()?;
        let what = match found {
            Some(tenant) if tenant == context.tenant => continue,
            Some(tenant) => format!("call {call} belongs to {tenant}"),
            None => format!("call {call} of the log has no row"),
        };
        findings.add(FindingCode::CallDiffers, place(), what);
    }
    Ok(())
}

impl SqliteExpectedThread {
    fn add_rows(&mut self, commit: i64, run: i64, rows: &ProjectionRows) {
        self.messages += rows.messages.len() as u64;
        self.calls += rows.calls.len() as u64;
        if let Some(last) = rows.messages.last()
            && self.head.as_ref().is_none_or(|(before, _)| *before < commit)
        {
            self.head = Some((commit, last.id.clone()));
        }
        self.grants.extend(rows.grants.iter().map(|row| (row.grant.id.clone(), row.clone())));
        for kept in &rows.state {
            let owner = match kept.scope {
                Scope::Run => run,
                Scope::Thread => 0,
            };
            let key = (owner, kept.plugin.as_str().to_owned(), kept.key.clone());
            if self.state.get(&key).is_none_or(|(before, _)| *before <= commit) {
                self.state.insert(key, (commit, kept.value.clone()));
            }
        }
    }

    fn compare(
        &self,
        connection: &Connection,
        thread: &SqliteExaminedThread,
        head: Option<&str>,
        place: &str,
        findings: &mut Findings,
    ) -> Result<(), Fault> {
        let expected_head = self.head.as_ref().map(|(_, id)| id.as_str());
        if head != expected_head {
            let what = format!("its last message is {head:?}, the logs say {expected_head:?}");
            findings.add(FindingCode::ThreadDiffers, place, what);
        }
        let count = |table| -> rusqlite::Result<u64> {
            let sql = format!("SELECT count(*) FROM {table} WHERE thread = ?1");
            connection.prepare_cached(&sql)?.query_row([thread.row], |row| row.get(0).map(to_u64))
        };
        for (table, code, expected) in [
            ("messages", FindingCode::MessageDiffers, self.messages),
            ("call_ids", FindingCode::CallDiffers, self.calls),
        ] {
            let found = count(table)?;
            if found > expected {
                findings.add(code, place, format!("{table} has {found} rows, the logs say {expected}"));
            }
        }
        self.compare_grants(connection, thread, place, findings)?;
        self.compare_state(connection, thread, place, findings)
    }

    fn compare_grants(
        &self,
        connection: &Connection,
        thread: &SqliteExaminedThread,
        place: &str,
        findings: &mut Findings,
    ) -> Result<(), Fault> {
        let mut statement = connection.prepare_cached(
            "SELECT id, given_by, tool, agent, definition, reasons, since, tenant FROM grants WHERE thread = ?1",
        )?;
        let mut rows = statement.query([thread.row])?;
        let mut left = self.grants.clone();
        while let Some(row) = rows.next()? {
            let (columns, since, tenant) = (grants::columns(row)?, row.get(6)?, row.get::<_, String>(7)?);
            compare_grant(columns, timestamp(since), tenant == thread.tenant, &mut left, place, findings);
        }
        for id in left.keys() {
            findings.add(FindingCode::ThreadDiffers, place, format!("grant {id} has no row"));
        }
        Ok(())
    }

    fn compare_state(
        &self,
        connection: &Connection,
        thread: &SqliteExaminedThread,
        place: &str,
        findings: &mut Findings,
    ) -> Result<(), Fault> {
        let mut statement = connection
            .prepare_cached("SELECT run, plugin, key, tenant, value FROM plugin_state WHERE thread = ?1")?;
        let mut rows = statement.query([thread.row])?;
        let mut left = self.state.clone();
        while let Some(row) = rows.next()? {
            let key: (i64, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let (tenant, value): (String, String) = (row.get(3)?, row.get(4)?);
            let fits = left.remove(&key).is_some_and(|(_, expected)| {
                serde_json::from_str::<Value>(&value).is_ok_and(|value| value == *expected)
                    && thread.tenant == tenant
            });
            if !fits {
                let what = format!("state {} of plugin {} is not what the logs say", key.2, key.1);
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
