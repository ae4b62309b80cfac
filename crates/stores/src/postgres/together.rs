//! Commits that come together go together: one statement, one round trip and one sync for all of them.
//!
//! Only plain ones do, those that change nothing beside their own run and its thread. The database answers for each by
//! itself, and what turns out not to be plain is sent alone. Runs are let go together too.

use std::borrow::Cow;
use std::sync::Arc;

use engine::store::{InlineAgent, Lease, StoreError, Tenant, ThreadView};
use machine::id::{CallId, ThreadId};
use machine::inbox::Item;
use machine::projection_rows::MessageRow;
use tokio::sync::{Semaphore, oneshot};

use super::Shared;
use super::binding::Beside;
use super::commit::json;
use super::letting_go::LettingGo;
use super::line::{Line, Waiting};
use super::taken_calls::Asking;
use super::text::kept;
use super::trouble::{Stop, corrupt, unavailable};
use crate::entry::{Entry, Written};
use crate::words::{millis, number, role_word};

/// While one statement is synced, the next is worked on.
const APPEND_LANES: usize = 2;
/// Of four commits of a short run one creates it. What a statement costs by itself, a third of a millisecond and more, is
/// shared by more of these in one lane than in two.
const CREATION_LANES: usize = 1;
/// Nothing is synced: what is asked meanwhile waits for less than it would cost by itself.
const UNSYNCED_LANES: usize = 1;

/// Statements that take far too long and that their lines go on without. With every lane busy, and as many lists and logs as
/// may be, each still has one of the sixteen connections that there are by default.
const LATE_MAX: usize = 3;

/// The lines in which plain commits wait, and what is asked beside them.
pub(super) struct Together {
    appends: Line<PlainAppend>,
    creations: Line<PlainCreation>,
    pub(super) askings: Line<Asking>,
    pub(super) releases: Line<LettingGo>,
}

impl Default for Together {
    fn default() -> Self {
        let late = Arc::new(Semaphore::new(LATE_MAX));
        Self {
            appends: Line::new(APPEND_LANES, late.clone()),
            creations: Line::new(CREATION_LANES, late.clone()),
            askings: Line::new(UNSYNCED_LANES, late.clone()),
            releases: Line::new(UNSYNCED_LANES, late),
        }
    }
}

/// An append with nothing but events, messages and calls, what it holds and lets go, and decisions.
struct PlainAppend {
    lease: Lease,
    entry: Arc<Entry>,
    told: oneshot::Sender<Result<Appended, StoreError>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Appended {
    Held,
    /// It has to be sent alone; nothing is written of it.
    Alone,
}

/// A run that its creator goes on with, on a thread that is free.
struct PlainCreation {
    tenant: Tenant,
    seen: ThreadView,
    entry: Arc<Entry>,
    /// None where it has to be sent alone, and nothing is written of it.
    told: oneshot::Sender<Result<Option<InHand>, StoreError>>,
}

/// A run that was created in the hands of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InHand {
    pub(super) node: i64,
    /// The number of the run.
    pub(super) run: i64,
}

impl Waiting for PlainAppend {
    fn thread(&self) -> (&Tenant, &ThreadId) {
        (&self.lease.tenant, &self.lease.thread)
    }

    fn bytes(&self) -> u64 {
        self.entry.bytes
    }

    fn is_given_up(&self) -> bool {
        self.told.is_closed()
    }
}

impl Waiting for PlainCreation {
    fn thread(&self) -> (&Tenant, &ThreadId) {
        (&self.tenant, &self.seen.id)
    }

    fn bytes(&self) -> u64 {
        self.entry.bytes
    }

    fn is_given_up(&self) -> bool {
        self.told.is_closed()
    }
}

/// Whether a first commit writes nothing but its run, its log, messages and calls.
pub(super) fn is_plain_creation(entry: &Entry) -> bool {
    is_plain(entry)
        && entry.accepted.is_empty()
        && entry.rows.opened.is_empty()
        && entry.rows.closed.is_empty()
}

/// Whether a commit writes nothing beside these but suspensions and decisions.
pub(super) fn is_plain(entry: &Entry) -> bool {
    let Entry { log, consumed, accepted, spawn, deliver, rows, .. } = entry;
    let decides = |one: &Written| match one.item {
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

/// The tenants and ids of runs, as they are stored.
pub(super) fn names<'l>(leases: impl Iterator<Item = &'l Lease>) -> (Vec<Cow<'l, str>>, Vec<Cow<'l, str>>) {
    leases.map(|lease| (kept(lease.tenant.as_str()), kept(lease.run.as_str()))).unzip()
}

pub(super) fn unheard<T>(_: T) -> Stop {
    unavailable("whoever asked the database is gone")
}

impl Shared {
    pub(super) async fn append_plain(
        self: &Arc<Self>,
        lease: &Lease,
        entry: Arc<Entry>,
    ) -> Result<Appended, Stop> {
        let (told, answer) = oneshot::channel();
        if self.together.appends.join(PlainAppend { lease: lease.clone(), entry, told }) {
            let shared = self.clone();
            tokio::spawn(async move {
                let send = |appends| {
                    let shared = shared.clone();
                    async move { shared.append_together(appends).await }
                };
                shared.together.appends.work_off(send).await;
            });
        }
        Ok(answer.await.map_err(unheard)??)
    }

    /// None if it has to be sent alone.
    pub(super) async fn create_plain(
        self: &Arc<Self>,
        tenant: &Tenant,
        seen: &ThreadView,
        entry: Arc<Entry>,
    ) -> Result<Option<InHand>, Stop> {
        let (told, answer) = oneshot::channel();
        let creation = PlainCreation { tenant: tenant.clone(), seen: seen.clone(), entry, told };
        if self.together.creations.join(creation) {
            let shared = self.clone();
            tokio::spawn(async move {
                let send = |creations| {
                    let shared = shared.clone();
                    async move { shared.create_together(creations).await }
                };
                shared.together.creations.work_off(send).await;
            });
        }
        Ok(answer.await.map_err(unheard)??)
    }

    async fn append_together(&self, appends: Vec<PlainAppend>) {
        let outcomes = self.send_appends(&appends).await;
        let all = |outcome: Result<Appended, StoreError>| vec![outcome; appends.len()];
        let outcomes = outcomes.unwrap_or_else(|Stop(refused)| match refused {
            // One of them cannot be, or repeats the id of a decision; the others can be stored.
            StoreError::Impossible(_) | StoreError::Behind => all(Ok(Appended::Alone)),
            refused @ (StoreError::Fenced
            | StoreError::Stale
            | StoreError::Busy(_)
            | StoreError::NotFound
            | StoreError::Failed(_)) => all(Err(refused)),
        });
        for (append, outcome) in appends.into_iter().zip(outcomes) {
            // Whoever does not listen any more finds out by reading.
            let _ = append.told.send(outcome);
        }
    }

    async fn send_appends(&self, appends: &[PlainAppend]) -> Result<Vec<Result<Appended, StoreError>>, Stop> {
        let node = self.leases.node().ok_or(StoreError::Fenced)?;
        let columns = Columns::of(appends.iter().map(|append| &*append.entry));
        let runs: Vec<i64> = appends.iter().map(|append| append.lease.row).collect();
        let (tenants, ids) = names(appends.iter().map(|append| &append.lease));
        let epochs: Vec<i64> = appends.iter().map(|append| number(append.lease.epoch)).collect();
        let expected: Vec<i64> = appends.iter().map(|append| number(append.entry.expected_seq)).collect();
        let versions: Vec<i64> = appends.iter().map(|append| number(append.entry.expected_version)).collect();
        let ended_ats: Vec<Option<i64>> =
            appends.iter().map(|append| append.entry.state.ended_at().map(millis)).collect();
        let mut besides = Vec::new();
        for (append, place) in appends.iter().zip(1..) {
            if let Some(beside) = Beside::of(&append.entry) {
                besides.push((place, json(&beside)?));
            }
        }
        let (beside_places, besides): (Vec<i32>, Vec<String>) = besides.into_iter().unzip();
        let row = self
            .connections
            .write_one(
                "SELECT append_together(
                    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
                    $22, $23, $24, $25, $26::text[]::jsonb[]
                )",
                &[
                    &node,
                    &self.clock.given(),
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
                    &ended_ats,
                    &columns.checkpoints,
                    &columns.controls,
                    &columns.bodies,
                    &columns.message_places,
                    &columns.message_nths,
                    &columns.message_ids,
                    &columns.message_seqs,
                    &columns.message_roles,
                    &columns.call_places,
                    &columns.call_ids,
                    &beside_places,
                    &besides,
                ],
            )
            .await?;
        let outcomes: Vec<&str> = row.try_get(0)?;
        self.tally.sync(outcomes.iter().filter(|word| **word == "held").count() as u64);
        let outcome = |word: &str| match word {
            "held" => Ok(Ok(Appended::Held)),
            "alone" => Ok(Ok(Appended::Alone)),
            "fenced" => Ok(Err(StoreError::Fenced)),
            "behind" => Ok(Err(StoreError::Behind)),
            other => Err(corrupt(format!("an append came to {other}"))),
        };
        outcomes.into_iter().map(outcome).collect()
    }

    async fn create_together(&self, creations: Vec<PlainCreation>) {
        let all = |outcome: Result<Option<InHand>, StoreError>| vec![outcome; creations.len()];
        let outcomes = match self.send_creations(&creations).await {
            Ok(created) => created.into_iter().map(Ok).collect(),
            Err(Stop(StoreError::Impossible(_))) => all(Ok(None)),
            Err(Stop(refused)) => all(Err(refused)),
        };
        for (creation, outcome) in creations.into_iter().zip(outcomes) {
            let _ = creation.told.send(outcome);
        }
    }

    async fn send_creations(&self, creations: &[PlainCreation]) -> Result<Vec<Option<InHand>>, Stop> {
        let node = self.node().await?;
        let columns = Columns::of(creations.iter().map(|creation| &*creation.entry));
        let entries = || creations.iter().map(|creation| &*creation.entry);
        let tenants: Vec<Cow<'_, str>> =
            creations.iter().map(|creation| kept(creation.tenant.as_str())).collect();
        let threads: Vec<Cow<'_, str>> =
            creations.iter().map(|creation| kept(creation.seen.id.as_str())).collect();
        let seen_threads: Vec<Option<i64>> =
            creations.iter().map(|creation| creation.seen.created_at.map(|_| creation.seen.row)).collect();
        let seen_heads: Vec<Option<Cow<'_, str>>> = creations
            .iter()
            .map(|creation| creation.seen.head.as_ref().map(|head| kept(head.as_str())))
            .collect();
        let ids: Vec<Cow<'_, str>> = entries().map(|entry| kept(entry.state.run.as_str())).collect();
        let agents: Vec<Cow<'_, str>> = entries().map(|entry| kept(entry.state.agent.as_str())).collect();
        let user_messages: Vec<Option<Cow<'_, str>>> = entries()
            .map(|entry| entry.state.user_message.as_ref().map(|message| kept(message.as_str())))
            .collect();
        let created_ats: Vec<i64> =
            entries().map(|entry| entry.log.as_ref().map_or(0, |log| millis(log.first_at))).collect();
        let row = self
            .connections
            .write_one(
                "SELECT create_together(
                    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
                    $22, $23, $24, $25, $26, $27, $28
                )",
                &[
                    &node,
                    &self.clock.given(),
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
                    &created_ats,
                    &columns.started_ats,
                    &columns.checkpoints,
                    &columns.controls,
                    &columns.bodies,
                    &columns.message_places,
                    &columns.message_nths,
                    &columns.message_ids,
                    &columns.message_seqs,
                    &columns.message_roles,
                    &columns.call_places,
                    &columns.call_ids,
                    &columns.brought_places,
                    &columns.brought_digests,
                    &columns.brought_texts,
                ],
            )
            .await?;
        let numbers: Vec<Option<i64>> = row.try_get(0)?;
        self.tally.sync(numbers.iter().flatten().count() as u64);
        if numbers.len() != creations.len() {
            return Err(corrupt("a creation was not answered"));
        }
        Ok(numbers.into_iter().map(|run| run.map(|run| InHand { node, run })).collect())
    }
}

/// What commits of either kind write, each column over all of them. Messages, calls and what came with a message name
/// theirs by its place, counted from 1.
#[derive(Default)]
struct Columns<'e> {
    seqs: Vec<i64>,
    statuses: Vec<&'static str>,
    wake_ats: Vec<Option<i64>>,
    in_doubt: Vec<bool>,
    started_ats: Vec<Option<i64>>,
    checkpoints: Vec<Option<&'static str>>,
    controls: Vec<&'e [u8]>,
    bodies: Vec<Option<&'e str>>,
    message_places: Vec<i32>,
    /// Which of the messages of its own commit it is, from 1 on.
    message_nths: Vec<i32>,
    message_ids: Vec<Cow<'e, str>>,
    message_seqs: Vec<i64>,
    message_roles: Vec<&'static str>,
    call_places: Vec<i32>,
    call_ids: Vec<Cow<'e, str>>,
    brought_places: Vec<i32>,
    brought_digests: Vec<&'e [u8]>,
    brought_texts: Vec<Cow<'e, str>>,
}

impl<'e> Columns<'e> {
    fn of(entries: impl Iterator<Item = &'e Entry>) -> Self {
        let mut columns = Self::default();
        for (entry, place) in entries.zip(1..) {
            columns.add(entry, place);
        }
        columns
    }

    fn add(&mut self, entry: &'e Entry, place: i32) {
        let state = &entry.state;
        self.seqs.push(number(state.seq));
        self.statuses.push(state.summary.status.as_str());
        self.wake_ats.push(super::binding::wake_at(state));
        self.in_doubt.push(state.summary.in_doubt);
        self.started_ats.push(entry.started_at.map(millis));
        self.checkpoints.push(entry.log.as_ref().map(|log| log.checkpoint));
        self.controls.push(&state.control);
        self.bodies.push(entry.log.as_ref().map(|log| log.body.as_str()));
        entry.rows.messages.iter().zip(1..).for_each(|(row, nth)| self.add_message(row, place, nth));
        entry.rows.calls.iter().for_each(|call| self.add_call(call, place));
        entry.brought.iter().for_each(|brought| self.add_brought(brought, place));
    }

    fn add_message(&mut self, row: &'e MessageRow, place: i32, nth: i32) {
        self.message_places.push(place);
        self.message_nths.push(nth);
        self.message_ids.push(kept(row.id.as_str()));
        self.message_seqs.push(number(row.seq));
        self.message_roles.push(role_word(row.role));
    }

    fn add_call(&mut self, call: &'e CallId, place: i32) {
        self.call_places.push(place);
        self.call_ids.push(kept(call.as_str()));
    }

    fn add_brought(&mut self, brought: &'e InlineAgent, place: i32) {
        self.brought_places.push(place);
        self.brought_digests.push(&brought.digest().0);
        self.brought_texts.push(kept(brought.text()));
    }
}
