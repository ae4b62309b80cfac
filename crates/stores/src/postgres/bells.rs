//! What has to be said between nodes: what other nodes are told, and what this one has been told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::store::{Ring, Tenant};
use machine::id::RunId;
use tokio::sync::Notify;

/// Runs of which a commit is known and not said yet.
const COMMITTED_COUNT_MAX: usize = 8_192;
/// Runs of which it is known that something else is held, and not said yet.
const APPROVALS_COUNT_MAX: usize = 8_192;

/// Rings that nobody has heard yet. Many for one run are one.
#[derive(Default)]
pub(super) struct Bells {
    unheard: Mutex<Unheard>,
    bell: Notify,
}

#[derive(Default)]
struct Unheard {
    ready: bool,
    runs: BTreeSet<(Tenant, RunId)>,
    committed: BTreeSet<RunId>,
    approvals: BTreeSet<(Tenant, RunId)>,
    approvals_missed: bool,
}

impl Bells {
    fn lock(&self) -> MutexGuard<'_, Unheard> {
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ready(&self) {
        self.lock().ready = true;
        self.bell.notify_one();
    }

    pub(super) fn run(&self, tenant: Tenant, run: RunId) {
        self.lock().runs.insert((tenant, run));
        self.bell.notify_one();
    }

    pub(super) fn committed(&self, runs: impl IntoIterator<Item = RunId>) {
        let mut unheard = self.lock();
        for run in runs {
            // Nobody takes them, or not fast enough: whoever reads one of the others is told by a look.
            if unheard.committed.len() < COMMITTED_COUNT_MAX {
                unheard.committed.insert(run);
            }
        }
        drop(unheard);
        self.bell.notify_one();
    }

    pub(super) fn approvals(&self, runs: impl IntoIterator<Item = (Tenant, RunId)>) {
        let mut unheard = self.lock();
        unheard.approvals.extend(runs);
        if unheard.approvals.len() > APPROVALS_COUNT_MAX {
            unheard.approvals.clear();
            unheard.approvals_missed = true;
        }
        drop(unheard);
        self.bell.notify_one();
    }

    /// Nobody knows what was said meanwhile.
    pub(super) fn approvals_missed(&self) {
        self.lock().approvals_missed = true;
        self.bell.notify_one();
    }

    /// Dropping it loses no ring.
    pub(super) async fn rung(&self) -> Ring {
        loop {
            if let Some(ring) = self.next() {
                return ring;
            }
            self.bell.notified().await;
        }
    }

    /// What somebody waits for comes before what may be there.
    fn next(&self) -> Option<Ring> {
        let mut unheard = self.lock();
        let ring = if let Some((tenant, run)) = unheard.runs.pop_first() {
            Ring::Run { tenant, run }
        } else if std::mem::take(&mut unheard.ready) {
            Ring::Ready
        } else if let Some(run) = unheard.committed.pop_first() {
            Ring::Committed { run }
        } else if std::mem::take(&mut unheard.approvals_missed) {
            Ring::ApprovalsMissed
        } else {
            let (tenant, run) = unheard.approvals.pop_first()?;
            Ring::Approvals { tenant, run }
        };
        if !unheard.is_empty() {
            // Whoever else listens gets the next one.
            self.bell.notify_one();
        }
        Some(ring)
    }
}

impl Unheard {
    fn is_empty(&self) -> bool {
        let said = self.ready || self.approvals_missed;
        !said && self.runs.is_empty() && self.committed.is_empty() && self.approvals.is_empty()
    }
}

/// A run with something to hear, and the node that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rung {
    pub(super) run: i64,
    pub(super) node: i64,
}

/// What other nodes have to be told. Sent after the commit, by one connection, all that has come together at once: a
/// notification within a commit would make all commits wait for each other.
#[derive(Default)]
pub(super) struct Posts {
    unsent: Mutex<Unsent>,
    pub(super) bell: Notify,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unsent {
    pub(super) ready: bool,
    runs: BTreeMap<i64, BTreeSet<i64>>,
    committed: BTreeSet<RunId>,
    approvals: BTreeSet<(Tenant, RunId)>,
}

/// A notification takes less than 8,000 bytes.
const NOTE_BYTES_MAX: usize = 7_900;

impl Posts {
    fn lock(&self) -> MutexGuard<'_, Unsent> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something can be claimed that this node may have no place for.
    pub(super) fn ready(&self) {
        self.lock().ready = true;
        self.bell.notify_one();
    }

    pub(super) fn run(&self, rung: Rung) {
        self.lock().runs.entry(rung.node).or_default().insert(rung.run);
        self.bell.notify_one();
    }

    /// For whoever watches it elsewhere.
    pub(super) fn committed(&self, run: &RunId) {
        self.lock().committed.insert(run.clone());
        self.bell.notify_one();
    }

    /// For whoever shows elsewhere what people have to answer.
    pub(super) fn approvals(&self, tenant: &Tenant, run: &RunId) {
        self.lock().approvals.insert((tenant.clone(), run.clone()));
        self.bell.notify_one();
    }

    pub(super) fn take(&self) -> Unsent {
        std::mem::take(&mut *self.lock())
    }

    /// It could not be sent: it goes with the next ones.
    pub(super) fn put_back(&self, unsent: Unsent) {
        let mut now = self.lock();
        now.ready |= unsent.ready;
        for (node, runs) in unsent.runs {
            now.runs.entry(node).or_default().extend(runs);
        }
        now.committed.extend(unsent.committed);
        now.approvals.extend(unsent.approvals);
    }
}

impl Unsent {
    /// Each as it is sent: `*`, or a node with the numbers of its runs, or `+` with the sender and names of runs, or `!`
    /// with the sender and names of tenants and their runs.
    pub(super) fn notes(&self, sender: i64) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        if self.ready {
            notes.push("*".into());
        }
        for (node, runs) in &self.runs {
            notes.extend(joined(&format!("{node}:"), runs.iter().map(i64::to_string)));
        }
        let names = self.committed.iter().filter_map(|run| serde_json::to_string(run.as_str()).ok());
        notes.extend(joined(&format!("+{sender}:"), names));
        let pairs = self.approvals.iter();
        let pairs =
            pairs.filter_map(|(tenant, run)| serde_json::to_string(&(tenant.as_str(), run.as_str())).ok());
        notes.extend(joined(&format!("!{sender}:"), pairs));
        notes
    }
}

fn joined(head: &str, parts: impl Iterator<Item = String>) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for part in parts {
        match notes.last_mut() {
            Some(note) if note.len() + part.len() < NOTE_BYTES_MAX => {
                note.push(',');
                note.push_str(&part);
            }
            Some(_) | None => notes.push(format!("{head}{part}")),
        }
    }
    notes.retain(|note| note.len() <= NOTE_BYTES_MAX);
    notes
}

/// A note as this node reads it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Ready,
    /// Runs of this node that have something to hear.
    Runs(Vec<i64>),
    /// Runs that another node has committed.
    Committed(Vec<RunId>),
    /// Runs of which something else is held, as another node says.
    Approvals(Vec<(Tenant, RunId)>),
    /// It is for others, or nonsense.
    Nothing,
}

pub(super) fn read(note: &str, node: Option<i64>) -> Heard {
    if note == "*" {
        return Heard::Ready;
    }
    let Some((to, rest)) = note.split_once(':') else { return Heard::Nothing };
    if let Some(sender) = to.strip_prefix('!') {
        if sender.parse().ok() == node {
            return Heard::Nothing;
        }
        let pairs: Vec<(String, String)> = serde_json::from_str(&format!("[{rest}]")).unwrap_or_default();
        let pairs = pairs.into_iter().map(|(tenant, run)| (Tenant::from(tenant.as_str()), RunId::from(run)));
        return Heard::Approvals(pairs.collect());
    }
    match to.strip_prefix('+') {
        Some(sender) if sender.parse().ok() != node => {
            let names: Vec<String> = serde_json::from_str(&format!("[{rest}]")).unwrap_or_default();
            Heard::Committed(names.into_iter().map(RunId::from).collect())
        }
        None if node.is_some() && to.parse().ok() == node => {
            Heard::Runs(rest.split(',').filter_map(|run| run.parse().ok()).collect())
        }
        Some(_) | None => Heard::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_coalesced_and_read_by_whom_they_are_for() {
        let posts = Posts::default();
        for run in [3, 1, 3] {
            posts.run(Rung { run, node: 7 });
        }
        posts.ready();
        posts.ready();
        for run in ["b", "a,\"\0", "b"] {
            posts.committed(&run.into());
        }
        for run in ["b", "a", "b"] {
            posts.approvals(&Tenant::from("acme"), &run.into());
        }
        let unsent = posts.take();
        let notes = unsent.notes(8);
        let approvals = "!8:[\"acme\",\"a\"],[\"acme\",\"b\"]";
        assert_eq!(notes, ["*", "7:1,3", "+8:\"a,\\\"\\u0000\",\"b\"", approvals]);
        assert_eq!(posts.take(), Unsent::default());
        assert_eq!(read(&notes[0], Some(7)), Heard::Ready);
        assert_eq!(read(&notes[1], Some(7)), Heard::Runs(vec![1, 3]));
        assert_eq!(read(&notes[1], Some(8)), Heard::Nothing);
        assert_eq!(read(&notes[1], None), Heard::Nothing);
        assert_eq!(read(&notes[2], Some(7)), Heard::Committed(vec!["a,\"\0".into(), "b".into()]));
        assert_eq!(read(&notes[2], Some(8)), Heard::Nothing, "what we said ourselves is no news");
        let acme = |run: &str| (Tenant::from("acme"), RunId::from(run));
        assert_eq!(read(&notes[3], Some(7)), Heard::Approvals(vec![acme("a"), acme("b")]));
        assert_eq!(read(&notes[3], Some(8)), Heard::Nothing, "what we said ourselves is no news");
        assert_eq!(read("nonsense", Some(7)), Heard::Nothing);
        posts.put_back(unsent);
        assert_eq!(posts.take().notes(8), notes, "what could not be sent is sent later");
    }

    #[test]
    fn no_note_is_longer_than_a_notification_may_be() {
        let posts = Posts::default();
        for run in 0..1_000 {
            posts.run(Rung { run: i64::MAX - run, node: i64::MAX });
            posts.committed(&RunId::from(format!("run_{run:060}")));
        }
        let notes = posts.take().notes(1);
        assert!(notes.len() > 5);
        assert!(notes.iter().all(|note| note.len() < 8_000));
        let all: usize = notes.iter().map(|note| note.split(',').count()).sum();
        assert_eq!(all, 2_000, "none is left out");
    }
}
