//! One log, read from its first event to its last: the state that it folds to, and the rows that must exist beside it.

use std::collections::{BTreeMap, BTreeSet};

use engine::arguments;
use machine::apply::{apply, initial_control};
use machine::event::{Event, Fact};
use machine::id::{DecisionId, Digest, SuspensionId};
use machine::projection_rows::{ClosedRow, InboxPosition, OpenedRow, ProjectionRows};
use machine::tool::Arguments;
use machine::{Control, Timestamp, checkpoint, event_codec};

use super::fault::{Fault, new_fault};
use super::finding::FindingCode;
use super::value::{ColumnValue, bytes, integer, maybe_text, maybe_time, text, time};
use crate::chain::HashedCommit;
use crate::commit_text::checkpoint_name;

/// The state and rows that a log implies.
pub(crate) struct ExpectedRun {
    pub(crate) control: Control,
    pub(crate) created_at: Timestamp,
    pub(crate) started_at: Option<Timestamp>,
    /// The latest epoch under which a node took the run over.
    pub(crate) epoch: u64,
    pub(crate) suspensions: BTreeMap<SuspensionId, ExpectedSuspension>,
    pub(crate) decisions: BTreeSet<DecisionId>,
}

/// The expected row of a suspension.
pub(crate) struct ExpectedSuspension {
    opened: OpenedRow,
    closed: Option<ClosedRow>,
}

impl ExpectedSuspension {
    /// In the order of [`SUSPENSION_COLUMNS`].
    pub(crate) fn values(&self, tenant: &str) -> [ColumnValue; 13] {
        let Self { opened, closed } = self;
        let closed = closed.as_ref();
        [
            text(tenant),
            integer(opened.seq),
            closed.map_or(ColumnValue::Null, |closed| integer(closed.seq)),
            text(opened.call.as_str()),
            text(opened.kind.as_str()),
            text(closed.map_or("pending", |closed| closed.status.as_str())),
            opened.arguments.map_or(ColumnValue::Null, |digest| bytes(&digest.0)),
            time(opened.at),
            maybe_time(opened.expires_at),
            maybe_time(closed.map(|closed| closed.at)),
            maybe_text(closed.map(|closed| closed.by.as_str())),
            maybe_text(closed.and_then(|closed| closed.reason.as_deref())),
            maybe_text(closed.and_then(|closed| closed.note.as_deref())),
        ]
    }
}

pub(crate) const SUSPENSION_COLUMNS: [&str; 13] = [
    "tenant",
    "seq",
    "closed_seq",
    "call",
    "kind",
    "status",
    "arguments",
    "created_at",
    "expires_at",
    "decided_at",
    "decided_by",
    "reason",
    "note",
];

/// A commit as it is stored.
pub(crate) struct Commit {
    pub(crate) tenant: String,
    pub(crate) first_seq: u64,
    pub(crate) last_seq: u64,
    pub(crate) checkpoint: String,
    /// The stored events, one per line.
    pub(crate) body: String,
    pub(crate) hash: Option<Vec<u8>>,
}

impl Commit {
    pub(crate) fn as_hashed(&self) -> HashedCommit<'_> {
        HashedCommit {
            first_seq: self.first_seq,
            last_seq: self.last_seq,
            checkpoint: &self.checkpoint,
            body: &self.body,
            hash: self.hash.as_deref(),
        }
    }
}

/// The fold of a log while it is read, commit by commit.
#[derive(Default)]
pub(crate) struct LogFold {
    expected: Option<ExpectedRun>,
}

impl LogFold {
    /// Folds the next commit of a log of this tenant. Returns the rows that the commit writes beside the log.
    pub(crate) fn fold_commit(&mut self, tenant: &str, commit: &Commit) -> Result<ProjectionRows, Fault> {
        let next = self.expected.as_ref().map_or(1, |expected| expected.control.seq.saturating_add(1));
        let events = events(commit, next, tenant)?;
        let mut rows = ProjectionRows::default();
        let before = self.expected.as_ref().map(|expected| expected.control.clone());
        rows.add_events(before.as_ref(), &events, InboxPosition::default());
        for event in &events {
            match &mut self.expected {
                Some(expected) => apply(&mut expected.control, event).map_err(impossible)?,
                None => self.expected = Some(ExpectedRun::from_first_event(event)?),
            }
        }
        if let Some(expected) = &mut self.expected {
            expected.apply_commit(&events, &rows);
        }
        Ok(rows)
    }

    /// The frozen agent, once the first commit was folded.
    pub(crate) fn revision(&self) -> Option<&Digest> {
        self.expected.as_ref().map(|expected| &expected.control.revision)
    }

    /// Call after the last commit.
    pub(crate) fn finish(self) -> Result<ExpectedRun, Fault> {
        self.expected.ok_or_else(|| new_fault(FindingCode::LogBroken, "it has no events"))
    }
}

impl ExpectedRun {
    fn from_first_event(first: &Event) -> Result<Self, Fault> {
        Ok(Self {
            control: initial_control(first).map_err(impossible)?,
            created_at: first.at,
            started_at: None,
            epoch: 0,
            suspensions: BTreeMap::new(),
            decisions: BTreeSet::new(),
        })
    }

    fn apply_commit(&mut self, events: &[Event], rows: &ProjectionRows) {
        for opened in &rows.opened {
            let expected = ExpectedSuspension { opened: opened.clone(), closed: None };
            self.suspensions.insert(opened.id.clone(), expected);
        }
        for closed in rows.closed.iter().chain(&rows.voided) {
            if let Some(expected) = self.suspensions.get_mut(&closed.id) {
                expected.closed = Some(closed.clone());
            }
        }
        for event in events {
            self.decisions.extend(event.fact.decision_id().cloned());
            if let Fact::RunStarted { .. } = event.fact {
                self.started_at = self.started_at.or(Some(event.at));
            }
            if let Fact::RunRecovered { epoch, .. } = event.fact {
                self.epoch = self.epoch.max(epoch);
            }
        }
    }
}

/// The events of one commit, which must begin with the number `next`.
fn events(commit: &Commit, next: u64, tenant: &str) -> Result<Vec<Event>, Fault> {
    let Commit { first_seq: first, last_seq: last, checkpoint: ref word, ref body, .. } = *commit;
    let log_broken = |what: String| new_fault(FindingCode::LogBroken, what);
    if first != next {
        return Err(log_broken(format!("expected event {next}, found the commit of {first} to {last}")));
    }
    let count = body.lines().count() as u64;
    if last.checked_sub(first).map(|behind| behind.saturating_add(1)) != Some(count) {
        return Err(log_broken(format!("the commit of events {first} to {last} holds {count}")));
    }
    let mut events = Vec::new();
    for (line, seq) in body.lines().zip(first..) {
        let event = event_codec::decode(line)
            .map_err(|why| new_fault(FindingCode::Unreadable, format!("event {seq}: {why}")))?;
        if event.seq != seq {
            return Err(log_broken(format!("found event {} where {seq} belongs", event.seq)));
        }
        if let Some(what) = digest_mismatch(&event) {
            return Err(log_broken(format!("event {seq}: {what}")));
        }
        events.push(event);
    }
    let expected = checkpoint_name(checkpoint::from_events(&events));
    if *word != expected {
        return Err(log_broken(format!(
            "the commit of events {first} to {last} is called {word}, and is a {expected}"
        )));
    }
    if commit.tenant != tenant {
        return Err(log_broken(format!(
            "the commit of events {first} to {last} belongs to {}",
            commit.tenant
        )));
    }
    Ok(events)
}

fn impossible(why: machine::ImpossibleEvent) -> Fault {
    new_fault(FindingCode::LogBroken, why.to_string())
}

/// `Some` if arguments do not match their digest: the digest must identify what was decided on.
fn digest_mismatch(event: &Event) -> Option<String> {
    let (_, Arguments::Valid { value, digest }) = event.fact.arguments()? else { return None };
    match arguments::digest(value) {
        Ok(found) if found == *digest => None,
        Ok(_) => Some("the arguments are not those of their digest".into()),
        Err(why) => Some(format!("the arguments have no digest: {why}")),
    }
}
