//! What the doctor reads from a store: plain rows, and the queries that each store implements.

use std::collections::BTreeMap;

use machine::Timestamp;
use machine::id::Digest;

use super::fault::ExamineError;
use super::log::Commit;
use super::value::ColumnValue;
use crate::chain::ChainColumns;
use crate::grants::GrantColumns;

pub(crate) struct ThreadRow {
    pub(crate) tenant: String,
    pub(crate) id: String,
    pub(crate) metadata: String,
    /// `None` if the store does not store the last message with the thread.
    pub(crate) head: Option<StoredHead>,
}

/// The last message of a thread, if it has messages.
pub(crate) struct StoredHead(pub(crate) Option<String>);

pub(crate) struct RunRow {
    pub(crate) row: i64,
    pub(crate) id: String,
    pub(crate) created_at: i64,
    /// In the order of [`super::RUN_COLUMNS`].
    pub(crate) derived: Vec<ColumnValue>,
    pub(crate) ended: bool,
    pub(crate) holds: bool,
    pub(crate) parent: Option<i64>,
    /// Tenant and id of the parent, if it still exists.
    pub(crate) parent_found: Option<(String, String)>,
    pub(crate) epoch: u64,
    pub(crate) interrupt_accepted: bool,
    /// The run is woken, or a node holds it and is notified of each item.
    pub(crate) inbox_is_noticed: bool,
    pub(crate) control: Vec<u8>,
    /// The last event.
    pub(crate) seq: u64,
    pub(crate) chain: ChainColumns,
}

/// The next commits of a log.
pub(crate) struct CommitPage {
    pub(crate) commits: Vec<Commit>,
    pub(crate) is_last: bool,
}

pub(crate) struct InboxRow {
    pub(crate) ticket: i64,
    pub(crate) item: String,
    /// In the order of [`super::INBOX_COLUMNS`].
    pub(crate) columns: Vec<ColumnValue>,
}

pub(crate) struct SuspensionRow {
    pub(crate) id: String,
    /// The inbox row with the accepted answer.
    pub(crate) answered_by: Option<i64>,
    /// In the order of [`super::SUSPENSION_COLUMNS`].
    pub(crate) columns: Vec<ColumnValue>,
}

pub(crate) struct DecisionRow {
    pub(crate) tenant: String,
    pub(crate) id: String,
    pub(crate) decision: String,
}

pub(crate) struct StoredGrant {
    pub(crate) tenant: String,
    pub(crate) since: Timestamp,
    pub(crate) columns: GrantColumns,
}

pub(crate) struct StateRow {
    pub(crate) tenant: String,
    /// 0 for state of the whole thread.
    pub(crate) run: i64,
    pub(crate) plugin: String,
    pub(crate) key: String,
    pub(crate) value: String,
}

/// A frozen agent.
pub(crate) struct AgentRow {
    pub(crate) digest: Vec<u8>,
    pub(crate) text: Vec<u8>,
}

/// The key of a posted message.
pub(crate) struct PostKeyRow {
    pub(crate) scope: String,
    pub(crate) is_of_tenant: bool,
    /// The thread of the run that it names, if that run exists.
    pub(crate) run_thread: Option<i64>,
    /// The row has the checksum that it was written with. True in a store without checksums.
    pub(crate) is_intact: bool,
}

pub(crate) struct StoredResponseRow {
    pub(crate) scope: String,
    pub(crate) run: String,
    pub(crate) is_of_tenant: bool,
    /// As in [`PostKeyRow`].
    pub(crate) is_intact: bool,
}

/// The rows of a store as one snapshot shows them. A query returns what is stored and compares nothing.
///
/// Queries that take `after` return the next rows in ascending order, a bounded number, and none after the last.
pub(crate) trait SnapshotRows {
    /// How often the store was opened, if its leases depend on it.
    fn openings(&self) -> Option<u64>;

    /// The number of the last run from before chains existed. `None` if the store does not say it.
    async fn last_unchained_run(&self) -> Result<Option<i64>, ExamineError>;

    async fn threads(&self, after: i64, count_max: u32) -> Result<Vec<i64>, ExamineError>;

    async fn thread(&self, thread: i64) -> Result<ThreadRow, ExamineError>;

    /// `after` is the creation time and the id of a run.
    async fn runs(&self, thread: i64, after: &(i64, String)) -> Result<Vec<RunRow>, ExamineError>;

    async fn commits(&self, run: i64, after: u64) -> Result<CommitPage, ExamineError>;

    /// For each of these messages its columns, in the order of [`super::MESSAGE_COLUMNS`], if it has a row.
    async fn messages(
        &self,
        thread: i64,
        ids: &[&str],
    ) -> Result<Vec<Option<Vec<ColumnValue>>>, ExamineError>;

    /// For each of these call ids the tenant of its row, if it has one.
    async fn call_tenants(&self, thread: i64, ids: &[&str]) -> Result<Vec<Option<String>>, ExamineError>;

    /// The number of rows that a thread has in a table.
    async fn row_count(&self, table: CountedTable, thread: i64) -> Result<u64, ExamineError>;

    /// The number of messages that are not in the order of the logs.
    async fn messages_out_of_order(&self, thread: i64) -> Result<u64, ExamineError>;

    /// A number for each run of a thread, larger for a run that held the thread later. A run may have none.
    async fn run_order(&self, thread: i64) -> Result<BTreeMap<i64, i64>, ExamineError>;

    /// In the order in which they were accepted.
    async fn inbox(&self, run: i64) -> Result<Vec<InboxRow>, ExamineError>;

    async fn suspensions(&self, run: i64) -> Result<Vec<SuspensionRow>, ExamineError>;

    async fn decisions(&self, run: i64, after: &str) -> Result<Vec<DecisionRow>, ExamineError>;

    /// Whether a run has not ended, if it exists.
    async fn is_under_way(&self, tenant: &str, run: &str) -> Result<Option<bool>, ExamineError>;

    /// Whether a frozen agent is stored, for a run of this thread.
    async fn has_revision(&self, thread: i64, digest: &Digest) -> Result<bool, ExamineError>;

    async fn grants(&self, thread: i64) -> Result<Vec<StoredGrant>, ExamineError>;

    async fn plugin_state(&self, thread: i64) -> Result<Vec<StateRow>, ExamineError>;

    /// Frozen agents that came with the messages of a thread, each with the tenant of its row.
    async fn inline_agents(&self, thread: i64, after: &[u8])
    -> Result<Vec<(String, AgentRow)>, ExamineError>;

    /// May leave out rows that are as they should be.
    async fn post_keys(&self, thread: i64, tenant: &str) -> Result<Vec<PostKeyRow>, ExamineError>;

    /// As [`Self::post_keys`].
    async fn stored_responses(
        &self,
        thread: i64,
        tenant: &str,
    ) -> Result<Vec<StoredResponseRow>, ExamineError>;
}

#[derive(Clone, Copy)]
pub(crate) enum CountedTable {
    Messages,
    CallIds,
}

impl CountedTable {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::CallIds => "call_ids",
        }
    }
}
