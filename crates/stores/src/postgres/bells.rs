//! What has to be said between nodes: what other nodes are told, and what this one has been told.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::store::{LiveUpdate, Notification, Tenant};
use machine::id::RunId;
use tokio::sync::Notify;

/// Runs of which a commit is known and not said yet.
const COMMITTED_COUNT_MAX: usize = 8_192;
/// Runs of which it is known that something else is held, and not said yet.
const APPROVALS_COUNT_MAX: usize = 8_192;
/// Runs that somebody asks about, and notes of what is said on the way. What is beyond is not told; the event that
/// follows carries the whole.
const WATCHED_COUNT_MAX: usize = 8_192;
const SAID_COUNT_MAX: usize = 1_024;
/// Of these, so many are sent at once.
const SAID_SENT_MAX: usize = 128;

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
    watched: BTreeSet<RunId>,
    said: VecDeque<(RunId, u64, Vec<LiveUpdate>)>,
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

    pub(super) fn watched(&self, runs: Vec<RunId>) {
        let mut unheard = self.lock();
        let room = WATCHED_COUNT_MAX.saturating_sub(unheard.watched.len());
        unheard.watched.extend(runs.into_iter().take(room));
        drop(unheard);
        self.bell.notify_one();
    }

    pub(super) fn said(&self, run: RunId, after: u64, said: Vec<LiveUpdate>) {
        let mut unheard = self.lock();
        if unheard.said.len() < SAID_COUNT_MAX {
            unheard.said.push_back((run, after, said));
        }
        drop(unheard);
        self.bell.notify_one();
    }

    /// Dropping it loses no ring.
    pub(super) async fn rung(&self) -> Notification {
        loop {
            if let Some(ring) = self.next() {
                return ring;
            }
            self.bell.notified().await;
        }
    }

    /// What somebody waits for comes before what may be there.
    fn next(&self) -> Option<Notification> {
        let mut unheard = self.lock();
        let ring = if let Some((tenant, run)) = unheard.runs.pop_first() {
            Notification::Run { tenant, run }
        } else if std::mem::take(&mut unheard.ready) {
            Notification::Ready
        } else if let Some(run) = unheard.committed.pop_first() {
            Notification::Committed { run }
        } else if std::mem::take(&mut unheard.approvals_missed) {
            Notification::ApprovalsMissed
        } else if let Some((tenant, run)) = unheard.approvals.pop_first() {
            Notification::Approvals { tenant, run }
        } else if let Some(run) = unheard.watched.pop_first() {
            Notification::LiveRequested { run }
        } else {
            // Behind the word about the commits that came before it.
            let (run, after, said) = unheard.said.pop_front()?;
            Notification::Live { run, after, updates: said }
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
        let rings = self.ready || self.approvals_missed;
        let runs = self.runs.is_empty() && self.committed.is_empty() && self.approvals.is_empty();
        !rings && runs && self.watched.is_empty() && self.said.is_empty()
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
    was_deaf: bool,
    proof: Option<u64>,
    watched: BTreeSet<RunId>,
    said: VecDeque<String>,
}

/// A notification takes less than 8,000 bytes.
pub(super) const NOTE_BYTES_MAX: usize = 7_900;

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

    /// Whoever holds it is asked for what is said on the way.
    pub(super) fn watch(&self, run: &RunId) {
        let mut unsent = self.lock();
        if unsent.watched.len() < WATCHED_COUNT_MAX {
            unsent.watched.insert(run.clone());
        }
        drop(unsent);
        self.bell.notify_one();
    }

    /// What others have asked for may not have been heard: they are to ask again.
    pub(super) fn was_deaf(&self) {
        self.lock().was_deaf = true;
        self.bell.notify_one();
    }

    /// The ear of this node waits for this word.
    pub(super) fn prove(&self, token: u64) {
        self.lock().proof = Some(token);
        self.bell.notify_one();
    }

    /// Notes of what is said on the way, as they are sent behind the number of the sender.
    pub(super) fn tell(&self, notes: Vec<String>) {
        let mut unsent = self.lock();
        let room = SAID_COUNT_MAX.saturating_sub(unsent.said.len());
        unsent.said.extend(notes.into_iter().take(room));
        drop(unsent);
        self.bell.notify_one();
    }

    pub(super) fn take(&self) -> Unsent {
        let mut unsent = self.lock();
        let rest = unsent.said.len().min(SAID_SENT_MAX);
        let rest = unsent.said.split_off(rest);
        let taken = std::mem::take(&mut *unsent);
        if !rest.is_empty() {
            unsent.said = rest;
            self.bell.notify_one();
        }
        taken
    }

    /// It could not be sent: it goes with the next ones. What was said on the way may have arrived all the same, and is
    /// not said twice.
    pub(super) fn put_back(&self, unsent: Unsent) {
        let mut now = self.lock();
        now.ready |= unsent.ready;
        for (node, runs) in unsent.runs {
            now.runs.entry(node).or_default().extend(runs);
        }
        now.committed.extend(unsent.committed);
        now.approvals.extend(unsent.approvals);
        now.was_deaf |= unsent.was_deaf;
        now.proof = now.proof.or(unsent.proof);
        now.watched.extend(unsent.watched);
    }
}

impl Unsent {
    /// Each as it is sent: `*`, or a node with the numbers of its runs, or `+` with the sender and names of runs, or `!`
    /// with the sender and names of tenants and their runs, or `?` with the sender and names of runs that it wants to
    /// hear of, or `#` with a sender that heard nothing for a while, or `=` with the sender and a word that it waits for
    /// itself (see `hearing`), or `~` with the sender and something that is said on the way (see `said`).
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
        let names = self.watched.iter().filter_map(|run| serde_json::to_string(run.as_str()).ok());
        notes.extend(joined(&format!("?{sender}:"), names));
        if self.was_deaf {
            notes.push(format!("#{sender}:"));
        }
        notes.extend(self.proof.map(|token| proof(sender, token)));
        notes.extend(self.said.iter().map(|said| format!("~{sender}:{said}")));
        notes
    }
}

pub(super) fn proof(sender: i64, token: u64) -> String {
    format!("={sender}:{token}")
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
pub(super) enum Heard<'a> {
    Ready,
    /// Runs of this node that have something to hear.
    Runs(Vec<i64>),
    /// Runs that another node has committed.
    Committed(Vec<RunId>),
    /// Runs of which something else is held, as another node says.
    Approvals(Vec<(Tenant, RunId)>),
    /// Runs that another node wants to hear of.
    Watched(Vec<RunId>),
    /// Another node has not heard what was asked for.
    AskAgain,
    /// A word that somebody waits for themselves.
    Proof(u64),
    /// What another node says on the way.
    Said(&'a str),
    /// It is for others, or nonsense.
    Nothing,
}

pub(super) fn read(note: &str, node: Option<i64>) -> Heard<'_> {
    if note == "*" {
        return Heard::Ready;
    }
    let Some((head, rest)) = note.split_once(':') else { return Heard::Nothing };
    let (kind, number) = head.split_at(head.find(|sign: char| sign.is_ascii_digit()).unwrap_or(head.len()));
    let is_ours = number.parse().ok() == node;
    match kind {
        "" if is_ours && node.is_some() => {
            Heard::Runs(rest.split(',').filter_map(|run| run.parse().ok()).collect())
        }
        // What we said ourselves is no news.
        "!" if !is_ours => {
            let pairs: Vec<(String, String)> = serde_json::from_str(&format!("[{rest}]")).unwrap_or_default();
            let pairs = pairs.into_iter();
            let pairs = pairs.map(|(tenant, run)| (Tenant::from(tenant.as_str()), RunId::from(run)));
            Heard::Approvals(pairs.collect())
        }
        "+" if !is_ours => Heard::Committed(names(rest)),
        "?" if !is_ours => Heard::Watched(names(rest)),
        "#" if !is_ours => Heard::AskAgain,
        "=" => rest.parse().map_or(Heard::Nothing, Heard::Proof),
        "~" if !is_ours => Heard::Said(rest),
        _ => Heard::Nothing,
    }
}

fn names(list: &str) -> Vec<RunId> {
    let names: Vec<String> = serde_json::from_str(&format!("[{list}]")).unwrap_or_default();
    names.into_iter().map(RunId::from).collect()
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
            posts.watch(&run.into());
        }
        let unsent = posts.take();
        let notes = unsent.notes(8);
        let approvals = "!8:[\"acme\",\"a\"],[\"acme\",\"b\"]";
        assert_eq!(notes, ["*", "7:1,3", "+8:\"a,\\\"\\u0000\",\"b\"", approvals, "?8:\"a\",\"b\""]);
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
        assert_eq!(read(&notes[4], Some(7)), Heard::Watched(vec!["a".into(), "b".into()]));
        assert_eq!(read(&notes[4], Some(8)), Heard::Nothing, "what we said ourselves is no news");
        assert_eq!(read("#8:", Some(7)), Heard::AskAgain);
        assert_eq!(read("#8:", Some(8)), Heard::Nothing, "what we said ourselves is no news");
        assert_eq!(read("~8:{}", Some(7)), Heard::Said("{}"));
        assert_eq!(read("~8:{}", Some(8)), Heard::Nothing, "what we said ourselves is no news");
        assert_eq!(read(&proof(8, 5), Some(8)), Heard::Proof(5), "that is what it waits for");
        assert_eq!(read("nonsense", Some(7)), Heard::Nothing);
        posts.put_back(unsent);
        assert_eq!(posts.take().notes(8), notes, "what could not be sent is sent later");
    }

    #[test]
    fn what_is_said_on_the_way_is_bounded_and_sent_a_part_at_a_time_and_never_twice() {
        let posts = Posts::default();
        posts.tell((0..2 * SAID_COUNT_MAX).map(|number| number.to_string()).collect());
        let first = posts.take();
        assert_eq!(first.notes(8).len(), SAID_SENT_MAX);
        assert_eq!(first.notes(8).first().map(String::as_str), Some("~8:0"));
        posts.put_back(first);
        let mut sent = SAID_SENT_MAX;
        while let rest = posts.take().notes(8)
            && !rest.is_empty()
        {
            assert_eq!(rest.first().cloned(), Some(format!("~8:{sent}")), "it goes on behind what was sent");
            sent += rest.len();
        }
        assert_eq!(sent, SAID_COUNT_MAX);
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
