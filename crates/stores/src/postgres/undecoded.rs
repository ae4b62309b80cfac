//! Ends an interrupted run with undecodable data, from its plain columns.

use engine::clock::Clock as _;
use engine::store::{Appended, Lease, StoreError};
use machine::Control;
use machine::id::{AgentName, CallId, RunId, SuspensionId, ThreadId};
use machine::undecodable::{HeldCall, ParentCall, UndecodedRun, final_commit};
use tokio_postgres::Row;

use super::PostgresShared;
use super::errors::{PostgresError, unavailable};
use super::nul_escape::{escape, unescape};
use super::stored_run::fold_log;
use crate::columns::{parse_suspension_kind, timestamp, to_i64, to_u64};
use crate::encoded_commit::{EncodedCommit, EndingRun, EndingSource, interrupt_cause_in, readable_items};
use crate::failure_counters::none_if_corrupt;

/// How often the columns are read again because an item was accepted in between.
const READ_COUNT_MAX: usize = 64;

impl PostgresShared {
    pub(super) async fn end_undecoded(&self, lease: &Lease) -> Result<Appended, PostgresError> {
        let mut ends = EndingSource::Control;
        for _ in 0..READ_COUNT_MAX {
            match self.end_by(lease, ends).await {
                Err(PostgresError(StoreError::Behind)) => {}
                // The rows contradict the control: only the columns count.
                Err(PostgresError(StoreError::Impossible(_))) if ends == EndingSource::Control => {
                    ends = EndingSource::Columns
                }
                ended => return ended,
            }
        }
        Err(unavailable(format!("the run changed {READ_COUNT_MAX} times while it was ended")))
    }

    async fn end_by(&self, lease: &Lease, ends: EndingSource) -> Result<Appended, PostgresError> {
        let node = self.leases.node().filter(|_| self.leases.is_current(lease)).ok_or(StoreError::Fenced)?;
        let (tenant, id, epoch) =
            (escape(lease.tenant.as_str()), escape(lease.run.as_str()), to_i64(lease.epoch));
        let sql = include_str!("sql/run_plain.sql");
        let rows = self.connections.read(sql, &[&lease.row, &tenant, &id, &epoch, &node]).await?;
        let row = rows.first().ok_or(StoreError::Fenced)?;
        if !row.try_get::<_, bool>(7)? {
            return Err(StoreError::Stale.into());
        }
        let control: Vec<u8> = row.try_get(6)?;
        let decoded = match (ends, Control::decode(&control)) {
            (EndingSource::Control, Ok(control)) => Some(control),
            (EndingSource::Control, Err(_)) => none_if_corrupt(fold_log(&self.connections, lease.row).await)?,
            (EndingSource::Columns, _) => None,
        };
        let (tickets, items): (Vec<i64>, Vec<&str>) = (row.try_get(12)?, row.try_get(13)?);
        let unprocessed = readable_items(items.iter().copied());
        let plain = UndecodedRun { unprocessed, ..self.plain(lease, row, tickets.len())? };
        let last = final_commit(&plain, decoded, &interrupt_cause_in(items));
        let ended = EndingRun {
            id: lease.run.clone(),
            thread: ThreadId::from(unescape(row.try_get(1)?)),
            agent: AgentName::from(unescape(row.try_get(2)?)),
            seq: plain.seq,
            version: to_u64(row.try_get(14)?),
            inbox: tickets.into_iter().map(to_u64).collect(),
        };
        let commit = EncodedCommit::for_undecoded_end(lease.tenant.as_str(), ended, last, control)?;
        let woken = self.append_alone(lease, node, &commit).await?;
        self.counters.count_commit(commit.bytes);
        self.notify_peers(lease, &commit);
        self.leases.forget(lease);
        Ok(Appended { woken, version: commit.expected_version + 1 })
    }

    fn plain(&self, lease: &Lease, row: &Row, inbox_count: usize) -> Result<UndecodedRun, PostgresError> {
        let name = |column: usize| row.try_get::<_, Option<String>>(column).map(|name| name.map(unescape));
        let (calls, ids): (Vec<String>, Vec<String>) = (row.try_get(8)?, row.try_get(9)?);
        let (kinds, children): (Vec<&str>, Vec<String>) = (row.try_get(10)?, row.try_get(11)?);
        let mut held = Vec::new();
        for ((call, id), kind) in calls.into_iter().zip(ids).zip(kinds) {
            let (call, suspension) = (CallId::from(unescape(call)), SuspensionId::from(unescape(id)));
            held.push(HeldCall { call, suspension, kind: parse_suspension_kind(kind)? });
        }
        let parent = name(3)?.zip(name(4)?);
        Ok(UndecodedRun {
            run: lease.run.clone(),
            seq: to_u64(row.try_get(0)?),
            now: self.clock.now().max(timestamp(row.try_get(5)?)),
            held,
            parent: parent.map(|(run, call)| ParentCall { run: RunId::from(run), call: CallId::from(call) }),
            children: children.into_iter().map(|child| RunId::from(unescape(child))).collect(),
            inbox_count,
            unprocessed: Vec::new(),
        })
    }
}
