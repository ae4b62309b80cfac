//! Examines one thread: compares its messages, call ids, grants, plugin state, head, holder and inline agents with the
//! logs of its runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use machine::id::{CallId, Digest, GrantId, MessageId};
use machine::phase::Scope;
use machine::projection_rows::{GrantRow, MessageRow, ProjectionRows};
use serde_json::Value;

use super::fault::ExamineError;
use super::finding::{FindingCode, Findings, PlaceFindings};
use super::rows::{CountedTable, SnapshotRows, StateRow, StoredGrant, StoredHead, ThreadRow};
use super::value::{ColumnValue, differences, integer, text};
use super::{ExaminedCounts, keys, run};
use crate::columns::role_name;

/// The columns of a message that follow from its log.
pub(crate) const MESSAGE_COLUMNS: [&str; 4] = ["tenant", "run", "seq", "role"];

/// The thread that is examined, and its rows.
pub(super) struct ExaminedThread<'e, Rows> {
    pub(super) rows: &'e Rows,
    pub(super) number: i64,
    pub(super) tenant: &'e str,
    pub(super) id: &'e str,
    /// The number of the last run from before chains existed.
    pub(super) last_unchained: Option<i64>,
}

/// Each run's last write under one key. Only the run that holds the thread writes, so the latest of them counts.
type LastWrites<T> = Vec<(i64, T)>;

/// What the logs of a thread's runs imply together.
#[derive(Default)]
pub(super) struct ExpectedThread {
    messages: u64,
    calls: u64,
    heads: LastWrites<MessageId>,
    grants: BTreeMap<GrantId, GrantRow>,
    /// By run, plugin and key; the run is 0 for state of the whole thread.
    state: BTreeMap<(i64, String, String), LastWrites<Arc<Value>>>,
    /// The frozen agents of its runs.
    pub(super) pinned: BTreeSet<Digest>,
    /// The number of runs that have not ended, and how many of them hold the thread.
    unended: u64,
    holders: u64,
    /// A log is unreadable, so it is unknown what else should exist.
    is_incomplete: bool,
}

/// Sets `place` to the name of the thread as soon as it is known.
pub(super) async fn examine(
    rows: &impl SnapshotRows,
    number: i64,
    last_unchained: Option<i64>,
    place: &mut String,
    findings: &mut Findings,
) -> Result<ExaminedCounts, ExamineError> {
    let ThreadRow { tenant, id, metadata, head } = rows.thread(number).await?;
    *place = format!("thread {id} of {tenant}");
    let thread = ExaminedThread { rows, number, tenant: &tenant, id: &id, last_unchained };
    let mut at = PlaceFindings { place, findings };
    let mut expected = ExpectedThread::default();
    let seen = examine_runs(&thread, &mut expected, &mut at).await?;
    if serde_json::from_str::<Value>(&metadata).is_err() {
        at.add(FindingCode::Unreadable, "its metadata is no JSON");
    }
    let ExpectedThread { unended, holders, .. } = expected;
    if unended > 0 && holders != 1 {
        let what = format!("{unended} runs have not ended, and {holders} of them hold it");
        at.add(FindingCode::ThreadDiffers, what);
    }
    let pinned = (!expected.is_incomplete).then_some(&expected.pinned);
    keys::examine_inline_agents(&thread, pinned, &mut at).await?;
    if !expected.is_incomplete {
        expected.compare(&thread, head, &mut at).await?;
        keys::examine(&thread, &mut at).await?;
    }
    Ok(seen)
}

async fn examine_runs(
    thread: &ExaminedThread<'_, impl SnapshotRows>,
    expected: &mut ExpectedThread,
    at: &mut PlaceFindings<'_>,
) -> Result<ExaminedCounts, ExamineError> {
    let mut counts = ExaminedCounts::default();
    let mut after = (i64::MIN, String::new());
    let mut seen = BTreeSet::new();
    loop {
        let page = thread.rows.runs(thread.number, &after).await?;
        let Some(last) = page.last() else { return Ok(counts) };
        after = (last.created_at, last.id.clone());
        for run in &page {
            // A damaged index could return the same runs again and again.
            if !seen.insert(run.row) {
                return Ok(counts);
            }
            counts.runs += 1;
            expected.unended += u64::from(!run.ended);
            expected.holders += u64::from(run.holds);
            match run::examine(thread, run, expected, &mut counts.chains, at).await? {
                Some(events) => counts.events = counts.events.saturating_add(events),
                None => expected.is_incomplete = true,
            }
        }
    }
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
        thread: &ExaminedThread<'_, impl SnapshotRows>,
        run: i64,
        at: &mut PlaceFindings<'_>,
    ) -> Result<(), ExamineError> {
        let ids: Vec<&str> = self.messages.iter().map(|message| message.id.as_str()).collect();
        let found = thread.rows.messages(thread.number, &ids).await?;
        for (message, found) in self.messages.iter().zip(found) {
            let role = role_name(message.role);
            let expected = [text(thread.tenant), ColumnValue::Integer(run), integer(message.seq), text(role)];
            let what = match found.map(|found| differences(&MESSAGE_COLUMNS, &found, &expected)) {
                Some(None) => continue,
                Some(Some(what)) => format!("message {}: {what}", message.id),
                None => format!("message {} of the log has no row", message.id),
            };
            at.add(FindingCode::MessageDiffers, what);
        }
        let ids: Vec<&str> = self.calls.iter().map(CallId::as_str).collect();
        let found = thread.rows.call_tenants(thread.number, &ids).await?;
        for (call, found) in self.calls.iter().zip(found) {
            let what = match found {
                Some(tenant) if tenant == thread.tenant => continue,
                Some(tenant) => format!("call {call} belongs to {tenant}"),
                None => format!("call {call} of the log has no row"),
            };
            at.add(FindingCode::CallDiffers, what);
        }
        Ok(())
    }
}

/// Replaces what the same run wrote before under the same key.
fn write<T>(written: &mut LastWrites<T>, run: i64, value: T) {
    written.retain(|(writer, _)| *writer != run);
    written.push((run, value));
}

impl ExpectedThread {
    pub(super) fn add_rows(&mut self, run: i64, rows: &ProjectionRows) {
        self.messages += rows.messages.len() as u64;
        self.calls += rows.calls.len() as u64;
        if let Some(last) = rows.messages.last() {
            write(&mut self.heads, run, last.id.clone());
        }
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
        thread: &ExaminedThread<'_, impl SnapshotRows>,
        head: Option<StoredHead>,
        at: &mut PlaceFindings<'_>,
    ) -> Result<(), ExamineError> {
        let ExaminedThread { rows, number, tenant, .. } = *thread;
        let is_order_needed =
            (head.is_some() && self.heads.len() > 1) || self.state.values().any(|written| written.len() > 1);
        let order = if is_order_needed { rows.run_order(number).await? } else { BTreeMap::new() };
        let order = RunOrder(order);
        if let Some(StoredHead(head)) = head {
            let expected: Vec<&str> = order.latest(&self.heads).map(MessageId::as_str).collect();
            let fits = match &head {
                Some(head) => expected.contains(&head.as_str()),
                None => expected.is_empty(),
            };
            if !fits {
                let what = format!("its last message is {head:?}, the logs say {:?}", expected.first());
                at.add(FindingCode::ThreadDiffers, what);
            }
        }
        for (table, code, expected) in [
            (CountedTable::Messages, FindingCode::MessageDiffers, self.messages),
            (CountedTable::CallIds, FindingCode::CallDiffers, self.calls),
        ] {
            let found = rows.row_count(table, number).await?;
            if found > expected {
                at.add(code, format!("{} has {found} rows, the logs say {expected}", table.as_str()));
            }
        }
        self.compare_grants(tenant, rows.grants(number).await?, at);
        self.compare_state(tenant, rows.plugin_state(number).await?, &order, at);
        Ok(())
    }

    fn compare_grants(&self, tenant: &str, rows: Vec<StoredGrant>, at: &mut PlaceFindings<'_>) {
        let mut left = self.grants.clone();
        for StoredGrant { tenant: found_tenant, since, columns } in rows {
            let what =
                format!("grant {}, given by {}, is not what the logs say", columns.id, columns.given_by);
            let expected = left.remove(&GrantId::from(columns.id.as_str()));
            let fits = match (columns.is_logged(), expected) {
                (true, Some(expected)) => {
                    expected.since == since && columns.into_grant() == Ok(expected.grant)
                }
                (false, None) => columns.into_grant().is_ok(),
                (true, None) | (false, Some(_)) => false,
            };
            if !fits || found_tenant != tenant {
                at.add(FindingCode::ThreadDiffers, what);
            }
        }
        for id in left.keys() {
            at.add(FindingCode::ThreadDiffers, format!("grant {id} has no row"));
        }
    }

    fn compare_state(&self, tenant: &str, rows: Vec<StateRow>, order: &RunOrder, at: &mut PlaceFindings<'_>) {
        let mut left = self.state.clone();
        for StateRow { tenant: found_tenant, run, plugin, key, value } in rows {
            let value = serde_json::from_str::<Value>(&value).ok();
            let name = (run, plugin, key);
            let fits = left.remove(&name).is_some_and(|written| {
                found_tenant == tenant
                    && order.latest(&written).any(|expected| value.as_ref() == Some(&**expected))
            });
            if !fits {
                let what = format!("state {} of plugin {} is not what the logs say", name.2, name.1);
                at.add(FindingCode::ThreadDiffers, what);
            }
        }
        for (_, plugin, key) in left.keys() {
            at.add(FindingCode::ThreadDiffers, format!("state {key} of plugin {plugin} has no row"));
        }
    }
}

/// The order in which runs held the thread, one after the other: a larger number is later.
struct RunOrder(BTreeMap<i64, i64>);

impl RunOrder {
    /// The writes that may be the latest. A run without a number may have held the thread at any time.
    fn latest<'w, T>(&self, written: &'w [(i64, T)]) -> impl Iterator<Item = &'w T> {
        let place = |run: &i64| self.0.get(run).copied();
        let last = written.iter().filter_map(|(run, _)| place(run)).max();
        written
            .iter()
            .filter(move |(run, _)| place(run).is_none_or(|at| Some(at) == last))
            .map(|(_, expected)| expected)
    }
}
