//! Ends an interrupted run of which something cannot be decoded, by its plain columns.

use engine::clock::Clock as _;
use engine::store::{Appended, Lease, StoreError};
use machine::Control;
use machine::id::{AgentName, CallId, RunId, SuspensionId, ThreadId};
use machine::undecodable::{HeldCall, ParentCall, UndecodedRun, final_commit};
use tokio_postgres::Row;

use super::Shared;
use super::stored_run::folded;
use super::text::{kept, told};
use super::trouble::{Stop, unavailable};
use crate::entry::{Ended, Ends, Entry, cause_in};
use crate::troublesome::unless_corrupt;
use crate::words::{kind_of, number, timestamp, unsigned};

/// Times that the columns are read again because an item was accepted in between.
const READ_COUNT_MAX: usize = 64;

impl Shared {
    pub(super) async fn end_undecoded(&self, lease: &Lease) -> Result<Appended, Stop> {
        let mut ends = Ends::ByControl;
        for _ in 0..READ_COUNT_MAX {
            match self.end_by(lease, ends).await {
                Err(Stop(StoreError::Behind)) => {}
                // The rows contradict the control: the columns alone count.
                Err(Stop(StoreError::Impossible(_))) if ends == Ends::ByControl => ends = Ends::ByColumns,
                ended => return ended,
            }
        }
        Err(unavailable(format!("the run changed {READ_COUNT_MAX} times while it was ended")))
    }

    async fn end_by(&self, lease: &Lease, ends: Ends) -> Result<Appended, Stop> {
        let node = self.leases.node().filter(|_| self.leases.is_current(lease)).ok_or(StoreError::Fenced)?;
        let (tenant, id, epoch) =
            (kept(lease.tenant.as_str()), kept(lease.run.as_str()), number(lease.epoch));
        let sql = include_str!("sql/run_plain.sql");
        let rows = self.connections.read(sql, &[&lease.row, &tenant, &id, &epoch, &node]).await?;
        let row = rows.first().ok_or(StoreError::Fenced)?;
        if !row.try_get::<_, bool>(7)? {
            return Err(StoreError::Stale.into());
        }
        let control: Vec<u8> = row.try_get(6)?;
        let decoded = match (ends, Control::decode(&control)) {
            (Ends::ByControl, Ok(control)) => Some(control),
            (Ends::ByControl, Err(_)) => unless_corrupt(folded(&self.connections, lease.row).await)?,
            (Ends::ByColumns, _) => None,
        };
        let (tickets, items): (Vec<i64>, Vec<&str>) = (row.try_get(12)?, row.try_get(13)?);
        let plain = self.plain(lease, row, tickets.len())?;
        let last = final_commit(&plain, decoded, &cause_in(items));
        let ended = Ended {
            id: lease.run.clone(),
            thread: ThreadId::from(told(row.try_get(1)?)),
            agent: AgentName::from(told(row.try_get(2)?)),
            seq: plain.seq,
            version: unsigned(row.try_get(14)?),
            inbox: tickets.into_iter().map(unsigned).collect(),
        };
        let entry = Entry::ending(ended, last, control)?;
        let woken = self.append_alone(lease, node, &entry).await?;
        self.tally.commit(entry.bytes);
        self.announce(lease, &entry);
        self.leases.forget(lease);
        Ok(Appended { woken, version: entry.expected_version + 1 })
    }

    fn plain(&self, lease: &Lease, row: &Row, inbox_count: usize) -> Result<UndecodedRun, Stop> {
        let name = |column: usize| row.try_get::<_, Option<String>>(column).map(|name| name.map(told));
        let (calls, ids): (Vec<String>, Vec<String>) = (row.try_get(8)?, row.try_get(9)?);
        let (kinds, children): (Vec<&str>, Vec<String>) = (row.try_get(10)?, row.try_get(11)?);
        let mut held = Vec::new();
        for ((call, id), kind) in calls.into_iter().zip(ids).zip(kinds) {
            let (call, suspension) = (CallId::from(told(call)), SuspensionId::from(told(id)));
            held.push(HeldCall { call, suspension, kind: kind_of(kind)? });
        }
        let parent = name(3)?.zip(name(4)?);
        Ok(UndecodedRun {
            run: lease.run.clone(),
            seq: unsigned(row.try_get(0)?),
            now: self.clock.now().max(timestamp(row.try_get(5)?)),
            held,
            parent: parent.map(|(run, call)| ParentCall { run: RunId::from(run), call: CallId::from(call) }),
            children: children.into_iter().map(|child| RunId::from(told(child))).collect(),
            inbox_count,
        })
    }
}
