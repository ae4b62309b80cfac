//! Batched commits: one statement, one round trip and one sync for all commits that wait at the same time.
//!
//! Only plain commits are batched, those that change nothing beside their own run and its thread. The database answers
//! for each separately, and a commit that turns out not to be plain is sent by itself. Releases are batched too.

use std::borrow::Cow;
use std::sync::Arc;

use engine::store::{InlineAgent, Lease, StoreError, Tenant, ThreadView};
use machine::id::{CallId, ThreadId};
use machine::inbox::Item;
use machine::projection_rows::MessageRow;
use tokio::sync::{Semaphore, oneshot};

use super::PostgresShared;
use super::batch_queue::{BatchItem, BatchQueue};
use super::binding::BatchExtras;
use super::commit::json;
use super::errors::{PostgresError, corrupt, unavailable};
use super::nul_escape::escape;
use super::release::ReleaseRequest;
use super::taken_calls::CallIdLookup;
use crate::columns::{millis, role_name, to_i64};
use crate::encoded_commit::{EncodedCommit, EncodedItem};

/// While one statement is synced, the next is processed.
const APPEND_SENDERS: usize = 2;
/// One of four commits of a short run creates it. The fixed cost of a statement, a third of a millisecond or more, is
/// shared by more creations with one sender than with two.
const CREATION_SENDERS: usize = 1;
/// Nothing is synced: a request that arrives meanwhile waits less than a statement of its own would cost.
const UNSYNCED_SENDERS: usize = 1;

/// Late statements that their queues no longer wait for. Even with every sender busy, and with as many list and log
/// reads as permitted, each statement still has one of the default sixteen connections.
const LATE_BATCH_MAX: usize = 3;

/// The queues for plain commits, for call id lookups and for releases.
pub(super) struct BatchQueues {
    appends: BatchQueue<PlainAppend>,
    creations: BatchQueue<PlainCreation>,
    pub(super) call_id_lookups: BatchQueue<CallIdLookup>,
    pub(super) releases: BatchQueue<ReleaseRequest>,
}

impl Default for BatchQueues {
    fn default() -> Self {
        let late = Arc::new(Semaphore::new(LATE_BATCH_MAX));
        Self {
            appends: BatchQueue::new(APPEND_SENDERS, late.clone()),
            creations: BatchQueue::new(CREATION_SENDERS, late.clone()),
            call_id_lookups: BatchQueue::new(UNSYNCED_SENDERS, late.clone()),
            releases: BatchQueue::new(UNSYNCED_SENDERS, late),
        }
    }
}

/// An append with only events, messages, calls, opened and closed suspensions, and decisions.
struct PlainAppend {
    lease: Lease,
    commit: Arc<EncodedCommit>,
    reply: oneshot::Sender<Result<BatchOutcome, StoreError>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BatchOutcome {
    Stored,
    /// It has to be sent by itself; nothing of it was written.
    SendAlone,
}

/// A run that its creator continues with, on a thread that is free.
struct PlainCreation {
    tenant: Tenant,
    seen: ThreadView,
    commit: Arc<EncodedCommit>,
    /// `None` if it has to be sent by itself; nothing of it was written.
    reply: oneshot::Sender<Result<Option<LeasedRun>, StoreError>>,
}

/// A run that was created as held by a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeasedRun {
    pub(super) node: i64,
    /// The number of the run.
    pub(super) run: i64,
}

impl BatchItem for PlainAppend {
    fn thread(&self) -> (&Tenant, &ThreadId) {
        (&self.lease.tenant, &self.lease.thread)
    }

    fn bytes(&self) -> u64 {
        self.commit.bytes
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }
}

impl BatchItem for PlainCreation {
    fn thread(&self) -> (&Tenant, &ThreadId) {
        (&self.tenant, &self.seen.id)
    }

    fn bytes(&self) -> u64 {
        self.commit.bytes
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }
}

/// Whether a first commit writes only its run, its log, messages and calls.
pub(super) fn is_plain_creation(commit: &EncodedCommit) -> bool {
    is_plain(commit)
        && commit.accepted.is_empty()
        && commit.rows.opened.is_empty()
        && commit.rows.closed.is_empty()
        && commit.rows.audit.is_empty()
}

/// Whether a commit writes, besides these, only suspensions, decisions and audit records.
pub(super) fn is_plain(commit: &EncodedCommit) -> bool {
    let EncodedCommit { log, consumed, accepted, spawn, deliver, rows, .. } = commit;
    let decides = |one: &EncodedItem| match one.item {
        Item::Decision(_) => true,
        Item::Early { .. } | Item::Interrupt { .. } | Item::ChildEnded(_) | Item::LateAnswer { .. } => false,
    };
    let beside = rows.voided.is_empty() && rows.grants.is_empty() && rows.state.is_empty();
    log.is_some()
        && consumed.is_empty()
        && accepted.iter().all(decides)
        && spawn.is_empty()
        && deliver.is_empty()
        && beside
}

/// The tenants and ids of runs, in their stored form.
pub(super) fn stored_names<'l>(
    leases: impl Iterator<Item = &'l Lease>,
) -> (Vec<Cow<'l, str>>, Vec<Cow<'l, str>>) {
    leases.map(|lease| (escape(lease.tenant.as_str()), escape(lease.run.as_str()))).unzip()
}

pub(super) fn reply_lost<T>(_: T) -> PostgresError {
    unavailable("the task that queried the database is gone")
}

impl PostgresShared {
    pub(super) async fn append_plain(
        self: &Arc<Self>,
        lease: &Lease,
        commit: Arc<EncodedCommit>,
    ) -> Result<BatchOutcome, PostgresError> {
        let (reply, answer) = oneshot::channel();
        if self.batch_queues.appends.push(PlainAppend { lease: lease.clone(), commit, reply }) {
            let shared = self.clone();
            tokio::spawn(async move {
                let send = |appends| {
                    let shared = shared.clone();
                    async move { shared.append_batch(appends).await }
                };
                shared.batch_queues.appends.send_batches(send).await;
            });
        }
        Ok(answer.await.map_err(reply_lost)??)
    }

    /// `None` if it has to be sent by itself.
    pub(super) async fn create_plain(
        self: &Arc<Self>,
        tenant: &Tenant,
        seen: &ThreadView,
        commit: Arc<EncodedCommit>,
    ) -> Result<Option<LeasedRun>, PostgresError> {
        let (reply, answer) = oneshot::channel();
        let creation = PlainCreation { tenant: tenant.clone(), seen: seen.clone(), commit, reply };
        if self.batch_queues.creations.push(creation) {
            let shared = self.clone();
            tokio::spawn(async move {
                let send = |creations| {
                    let shared = shared.clone();
                    async move { shared.create_batch(creations).await }
                };
                shared.batch_queues.creations.send_batches(send).await;
            });
        }
        Ok(answer.await.map_err(reply_lost)??)
    }

    async fn append_batch(&self, appends: Vec<PlainAppend>) {
        let outcomes = self.send_appends(&appends).await;
        let all = |outcome: Result<BatchOutcome, StoreError>| vec![outcome; appends.len()];
        let outcomes = outcomes.unwrap_or_else(|PostgresError(refused)| match refused {
            // One of them is impossible, or repeats the id of a decision; the others can be stored.
            StoreError::Impossible(_) | StoreError::Behind => all(Ok(BatchOutcome::SendAlone)),
            refused @ (StoreError::Fenced
            | StoreError::Stale
            | StoreError::Busy(_)
            | StoreError::NotFound
            | StoreError::Failed(_)) => all(Err(refused)),
        });
        for (append, outcome) in appends.into_iter().zip(outcomes) {
            // A caller that is gone finds out by reading.
            let _ = append.reply.send(outcome);
        }
    }

    async fn send_appends(
        &self,
        appends: &[PlainAppend],
    ) -> Result<Vec<Result<BatchOutcome, StoreError>>, PostgresError> {
        let node = self.leases.node().ok_or(StoreError::Fenced)?;
        let columns = BatchColumns::from_commits(appends.iter().map(|append| &*append.commit));
        let runs: Vec<i64> = appends.iter().map(|append| append.lease.row).collect();
        let (tenants, ids) = stored_names(appends.iter().map(|append| &append.lease));
        let epochs: Vec<i64> = appends.iter().map(|append| to_i64(append.lease.epoch)).collect();
        let expected: Vec<i64> = appends.iter().map(|append| to_i64(append.commit.expected_seq)).collect();
        let versions: Vec<i64> =
            appends.iter().map(|append| to_i64(append.commit.expected_version)).collect();
        let mut extras = Vec::new();
        for (append, position) in appends.iter().zip(1..) {
            if let Some(extra) = BatchExtras::from_commit(append.lease.tenant.as_str(), &append.commit) {
                extras.push((position, json(&extra)?));
            }
        }
        let (extra_positions, extras): (Vec<i32>, Vec<String>) = extras.into_iter().unzip();
        let row = self
            .connections
            .write_one(
                "SELECT append_batch(
                    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
                    $22, $23, $24, $25, $26, $27, $28::text[]::jsonb[]
                )",
                &[
                    &node,
                    &self.clock.override_ms(),
                    &runs,
                    &tenants,
                    &ids,
                    &epochs,
                    &expected,
                    &versions,
                    &columns.seqs,
                    &columns.statuses,
                    &columns.wake_ats,
                    &columns.in_doubt,
                    &columns.started_ats,
                    &columns.ended_ats,
                    &columns.checkpoints,
                    &columns.controls,
                    &columns.bodies,
                    &columns.anchors,
                    &columns.contents,
                    &columns.message_positions,
                    &columns.message_nths,
                    &columns.message_ids,
                    &columns.message_seqs,
                    &columns.message_roles,
                    &columns.call_positions,
                    &columns.call_ids,
                    &extra_positions,
                    &extras,
                ],
            )
            .await?;
        let outcomes: Vec<&str> = row.try_get(0)?;
        self.counters.count_sync(outcomes.iter().filter(|word| **word == "held").count() as u64);
        let outcome = |word: &str| match word {
            "held" => Ok(Ok(BatchOutcome::Stored)),
            "alone" => Ok(Ok(BatchOutcome::SendAlone)),
            "fenced" => Ok(Err(StoreError::Fenced)),
            "behind" => Ok(Err(StoreError::Behind)),
            other => Err(corrupt(format!("an append came to {other}"))),
        };
        outcomes.into_iter().map(outcome).collect()
    }

    async fn create_batch(&self, creations: Vec<PlainCreation>) {
        let all = |outcome: Result<Option<LeasedRun>, StoreError>| vec![outcome; creations.len()];
        let outcomes = match self.send_creations(&creations).await {
            Ok(created) => created.into_iter().map(Ok).collect(),
            Err(PostgresError(StoreError::Impossible(_))) => all(Ok(None)),
            Err(PostgresError(refused)) => all(Err(refused)),
        };
        for (creation, outcome) in creations.into_iter().zip(outcomes) {
            let _ = creation.reply.send(outcome);
        }
    }

    async fn send_creations(
        &self,
        creations: &[PlainCreation],
    ) -> Result<Vec<Option<LeasedRun>>, PostgresError> {
        let node = self.ensure_joined().await?;
        let columns = BatchColumns::from_commits(creations.iter().map(|creation| &*creation.commit));
        let commits = || creations.iter().map(|creation| &*creation.commit);
        let tenants: Vec<Cow<'_, str>> =
            creations.iter().map(|creation| escape(creation.tenant.as_str())).collect();
        let threads: Vec<Cow<'_, str>> =
            creations.iter().map(|creation| escape(creation.seen.id.as_str())).collect();
        let seen_threads: Vec<Option<i64>> =
            creations.iter().map(|creation| creation.seen.created_at.map(|_| creation.seen.row)).collect();
        let seen_heads: Vec<Option<Cow<'_, str>>> = creations
            .iter()
            .map(|creation| creation.seen.head.as_ref().map(|head| escape(head.as_str())))
            .collect();
        let ids: Vec<Cow<'_, str>> = commits().map(|commit| escape(commit.state.run.as_str())).collect();
        let agents: Vec<Cow<'_, str>> = commits().map(|commit| escape(commit.state.agent.as_str())).collect();
        let user_messages: Vec<Option<Cow<'_, str>>> = commits()
            .map(|commit| commit.state.user_message.as_ref().map(|message| escape(message.as_str())))
            .collect();
        let hashes: Vec<Option<Vec<u8>>> = commits().map(first_hash).collect();
        let row = self
            .connections
            .write_one(
                "SELECT create_batch(
                    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
                    $22, $23, $24, $25, $26, $27, $28, $29
                )",
                &[
                    &node,
                    &self.clock.override_ms(),
                    &tenants,
                    &threads,
                    &seen_threads,
                    &seen_heads,
                    &ids,
                    &agents,
                    &user_messages,
                    &columns.seqs,
                    &columns.statuses,
                    &columns.wake_ats,
                    &columns.in_doubt,
                    &columns.created_ats,
                    &columns.started_ats,
                    &columns.checkpoints,
                    &columns.controls,
                    &columns.bodies,
                    &hashes,
                    &columns.message_positions,
                    &columns.message_nths,
                    &columns.message_ids,
                    &columns.message_seqs,
                    &columns.message_roles,
                    &columns.call_positions,
                    &columns.call_ids,
                    &columns.inline_agent_positions,
                    &columns.inline_agent_digests,
                    &columns.inline_agent_texts,
                ],
            )
            .await?;
        let numbers: Vec<Option<i64>> = row.try_get(0)?;
        self.counters.count_sync(numbers.iter().flatten().count() as u64);
        if numbers.len() != creations.len() {
            return Err(corrupt("a creation was not answered"));
        }
        Ok(numbers.into_iter().map(|run| run.map(|run| LeasedRun { node, run })).collect())
    }
}

/// The hash of the first commit of a run.
fn first_hash(commit: &EncodedCommit) -> Option<Vec<u8>> {
    let hash = commit.log.as_ref()?.links.hash_after(None)?;
    Some(hash.0.to_vec())
}

/// What commits of either kind write, one vector per column over all of them. Messages, calls and inline agents refer
/// to their commit by its position, counted from 1.
#[derive(Default)]
struct BatchColumns<'e> {
    seqs: Vec<i64>,
    statuses: Vec<&'static str>,
    wake_ats: Vec<Option<i64>>,
    in_doubt: Vec<bool>,
    created_ats: Vec<i64>,
    started_ats: Vec<Option<i64>>,
    ended_ats: Vec<Option<i64>>,
    checkpoints: Vec<Option<&'static str>>,
    controls: Vec<&'e [u8]>,
    bodies: Vec<Option<&'e str>>,
    anchors: Vec<Option<&'e [u8]>>,
    contents: Vec<Option<&'e [u8]>>,
    message_positions: Vec<i32>,
    /// The position of the message among those of its own commit, counted from 1.
    message_nths: Vec<i32>,
    message_ids: Vec<Cow<'e, str>>,
    message_seqs: Vec<i64>,
    message_roles: Vec<&'static str>,
    call_positions: Vec<i32>,
    call_ids: Vec<Cow<'e, str>>,
    inline_agent_positions: Vec<i32>,
    inline_agent_digests: Vec<&'e [u8]>,
    inline_agent_texts: Vec<Cow<'e, str>>,
}

impl<'e> BatchColumns<'e> {
    fn from_commits(commits: impl Iterator<Item = &'e EncodedCommit>) -> Self {
        let mut columns = Self::default();
        for (commit, position) in commits.zip(1..) {
            columns.add(commit, position);
        }
        columns
    }

    fn add(&mut self, commit: &'e EncodedCommit, position: i32) {
        let state = &commit.state;
        self.seqs.push(to_i64(state.seq));
        self.statuses.push(state.summary.status.as_str());
        self.wake_ats.push(super::binding::wake_at(state));
        self.in_doubt.push(state.summary.in_doubt);
        self.created_ats.push(commit.log.as_ref().map_or(0, |log| millis(log.first_at)));
        self.started_ats.push(commit.started_at.map(millis));
        self.ended_ats.push(state.ended_at().map(millis));
        self.checkpoints.push(commit.log.as_ref().map(|log| log.checkpoint));
        self.controls.push(&state.control);
        self.bodies.push(commit.log.as_ref().map(|log| log.body.as_str()));
        let links = commit.log.as_ref().map(|log| &log.links);
        self.anchors.push(links.and_then(|links| links.anchor.as_ref()).map(|anchor| anchor.0.as_slice()));
        self.contents.push(links.map(|links| links.content.0.as_slice()));
        commit.rows.messages.iter().zip(1..).for_each(|(row, nth)| self.add_message(row, position, nth));
        commit.rows.calls.iter().for_each(|call| self.add_call(call, position));
        commit.inline_agent.iter().for_each(|inline_agent| self.add_inline_agent(inline_agent, position));
    }

    fn add_message(&mut self, row: &'e MessageRow, position: i32, nth: i32) {
        self.message_positions.push(position);
        self.message_nths.push(nth);
        self.message_ids.push(escape(row.id.as_str()));
        self.message_seqs.push(to_i64(row.seq));
        self.message_roles.push(role_name(row.role));
    }

    fn add_call(&mut self, call: &'e CallId, position: i32) {
        self.call_positions.push(position);
        self.call_ids.push(escape(call.as_str()));
    }

    fn add_inline_agent(&mut self, inline_agent: &'e InlineAgent, position: i32) {
        self.inline_agent_positions.push(position);
        self.inline_agent_digests.push(&inline_agent.digest().0);
        self.inline_agent_texts.push(escape(inline_agent.text()));
    }
}
