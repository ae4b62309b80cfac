//! The heads of the chains of runs, for an export: it shows later that the end of a run's log was cut off or rewritten.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;

use engine::store::{StoreError, Tenant};
use machine::audit::AuditAction;
use machine::id::Digest;

use crate::audit_reader::AuditSource;

/// The end of a run's chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunHead {
    pub tenant: Tenant,
    pub thread: String,
    pub run: String,
    /// The last event.
    pub seq: u64,
    pub hash: Digest,
}

/// A part of all heads. The next one begins after `last`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunHeadPage {
    pub heads: Vec<RunHead>,
    /// The row of the last run that was read, also if that run has no chain. None at the end.
    pub last: Option<i64>,
}

/// A run, compared with its head of an earlier time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunAtHead {
    /// Its commit that ends there has the same hash, so everything before it is the same as well.
    Same,
    /// Its commit that ends there has another hash, or none.
    Differs,
    /// It ends earlier, or no commit ends there.
    CutOff {
        last: u64,
    },
    NotFound,
}

/// A store whose runs are listed and compared, without a server.
pub trait RunHeadSource {
    /// Up to [`PAGE`] runs of every tenant or of this one, in a fixed order.
    fn run_heads(
        &self,
        tenant: Option<&Tenant>,
        after: i64,
    ) -> impl Future<Output = Result<RunHeadPage, StoreError>>;

    /// One answer for each head, in order.
    fn compare_runs(&self, heads: &[RunHead]) -> impl Future<Output = Result<Vec<RunAtHead>, StoreError>>;
}

/// Runs that are read at once.
pub const PAGE: usize = 500;

/// What the columns of a run and of the commit that ends at a known head say.
pub(crate) fn compare(head: &RunHead, last: u64, found: Option<Option<Vec<u8>>>) -> RunAtHead {
    match found {
        None => RunAtHead::CutOff { last },
        Some(hash) if hash.as_deref() == Some(&head.hash.0) => RunAtHead::Same,
        Some(_) => RunAtHead::Differs,
    }
}

/// Runs that were compared with their heads of an earlier time.
#[derive(Debug, Default)]
pub struct RunComparison {
    /// Runs that are as they were, apart from what was added.
    pub same: u64,
    /// Runs whose thread was deleted since, as an audit record says.
    pub deleted: u64,
    /// Runs that are missing, and whose deletion the audit record no longer shows.
    pub uncompared: u64,
    pub fault_count: u64,
    /// Some of the faults.
    pub faults: Vec<RunFault>,
    records: BTreeMap<Tenant, Deletions>,
}

/// A run that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFault {
    pub tenant: Tenant,
    pub run: String,
    pub why: String,
}

/// What the audit record of a tenant says about missing runs.
#[derive(Debug, Default)]
struct Deletions {
    threads: BTreeSet<String>,
    /// The oldest records were deleted by retention.
    is_pruned: bool,
    is_restored: bool,
}

const FAULTS_KEPT: usize = 20;

impl RunComparison {
    /// Compares some runs. Bounded memory: of the runs only some faults are kept.
    pub async fn add(
        &mut self,
        source: &(impl AuditSource + RunHeadSource),
        heads: &[RunHead],
    ) -> Result<(), StoreError> {
        let compared = source.compare_runs(heads).await?;
        for (head, found) in heads.iter().zip(compared) {
            match found {
                RunAtHead::Same => self.same += 1,
                RunAtHead::Differs => {
                    let why = format!("the hash of its commit up to event {} was {}", head.seq, head.hash);
                    self.add_fault(source, head, why).await?;
                }
                RunAtHead::CutOff { last } => {
                    let why = format!(
                        "it had a commit up to event {} with hash {}, and now ends with event {last}: the end was cut off or rewritten",
                        head.seq, head.hash
                    );
                    self.add_fault(source, head, why).await?;
                }
                RunAtHead::NotFound => self.add_missing(source, head).await?,
            }
        }
        Ok(())
    }

    async fn add_missing(&mut self, source: &impl AuditSource, head: &RunHead) -> Result<(), StoreError> {
        let records = self.records_of(source, &head.tenant).await?;
        if records.threads.contains(&head.thread) {
            self.deleted += 1;
        } else if records.is_pruned {
            self.uncompared += 1;
        } else {
            let why = format!("it is missing, and no record says that thread {} was deleted", head.thread);
            self.add_fault(source, head, why).await?;
        }
        Ok(())
    }

    async fn add_fault(
        &mut self,
        source: &impl AuditSource,
        head: &RunHead,
        mut why: String,
    ) -> Result<(), StoreError> {
        self.fault_count += 1;
        if self.faults.len() == FAULTS_KEPT {
            return Ok(());
        }
        if self.records_of(source, &head.tenant).await?.is_restored {
            why += "; the store was restored from a backup, which may be older than the export";
        }
        self.faults.push(RunFault { tenant: head.tenant.clone(), run: head.run.clone(), why });
        Ok(())
    }

    async fn records_of(
        &mut self,
        source: &impl AuditSource,
        tenant: &Tenant,
    ) -> Result<&Deletions, StoreError> {
        match self.records.entry(tenant.clone()) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(unknown) => Ok(unknown.insert(Deletions::read(source, tenant).await?)),
        }
    }
}

impl Deletions {
    async fn read(source: &impl AuditSource, tenant: &Tenant) -> Result<Self, StoreError> {
        let (mut found, mut after) = (Self::default(), 0);
        loop {
            let rows = source.rows(tenant, after).await?;
            let Some(last) = rows.last() else { return Ok(found) };
            after = last.sealed.seq;
            for row in &rows {
                let action = AuditAction::parse(&row.action);
                if matches!(action, Some(AuditAction::ThreadDeleted | AuditAction::ThreadPruned)) {
                    found.threads.insert(row.sealed.text("thread_id").unwrap_or_default());
                }
                found.is_pruned |= action == Some(AuditAction::AuditPruned);
                found.is_restored |= action == Some(AuditAction::StoreRestored);
            }
        }
    }
}
