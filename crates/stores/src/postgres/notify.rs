//! Notifications between nodes: those queued for other nodes, and those received from them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::store::{LiveUpdate, Notification, Tenant};
use machine::id::{RunId, ThreadId};
use tokio::sync::Notify;

/// Committed runs whose notification is still queued.
const COMMITTED_COUNT_MAX: usize = 8_192;
/// Threads with a new run whose notification is still queued.
const THREADS_COUNT_MAX: usize = 8_192;
/// Runs whose held calls changed and whose notification is still queued.
const APPROVALS_COUNT_MAX: usize = 8_192;
/// Watched runs, and payloads of live deltas. Anything beyond the limit is dropped; the event that follows carries the
/// complete content.
const WATCHED_COUNT_MAX: usize = 8_192;
const DELTA_COUNT_MAX: usize = 1_024;
/// Delta payloads sent at once.
const DELTA_SENT_MAX: usize = 128;

/// Received notifications that no listener has taken yet. Several for the same run are merged into one.
#[derive(Default)]
pub(super) struct IncomingNotices {
    pending: Mutex<PendingIncoming>,
    changed: Notify,
}

#[derive(Default)]
struct PendingIncoming {
    ready: bool,
    runs: BTreeSet<(Tenant, RunId)>,
    committed: BTreeSet<RunId>,
    approvals: BTreeSet<(Tenant, RunId)>,
    approvals_missed: bool,
    threads: BTreeSet<(Tenant, ThreadId)>,
    watched: BTreeSet<RunId>,
    deltas: VecDeque<(RunId, u64, Vec<LiveUpdate>)>,
}

impl IncomingNotices {
    fn lock(&self) -> MutexGuard<'_, PendingIncoming> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push_ready(&self) {
        self.lock().ready = true;
        self.changed.notify_one();
    }

    pub(super) fn push_run(&self, tenant: Tenant, run: RunId) {
        self.lock().runs.insert((tenant, run));
        self.changed.notify_one();
    }

    pub(super) fn push_committed(&self, runs: impl IntoIterator<Item = RunId>) {
        let mut pending = self.lock();
        for run in runs {
            // The listener is missing or too slow. Polling finds the runs that are dropped here.
            if pending.committed.len() < COMMITTED_COUNT_MAX {
                pending.committed.insert(run);
            }
        }
        drop(pending);
        self.changed.notify_one();
    }

    pub(super) fn push_approvals(&self, runs: impl IntoIterator<Item = (Tenant, RunId)>) {
        let mut pending = self.lock();
        pending.approvals.extend(runs);
        if pending.approvals.len() > APPROVALS_COUNT_MAX {
            pending.approvals.clear();
            pending.approvals_missed = true;
        }
        drop(pending);
        self.changed.notify_one();
    }

    /// Notifications about approvals may have been lost, and it is unknown for which runs.
    pub(super) fn push_approvals_missed(&self) {
        self.lock().approvals_missed = true;
        self.changed.notify_one();
    }

    pub(super) fn push_threads(&self, threads: impl IntoIterator<Item = (Tenant, ThreadId)>) {
        let mut pending = self.lock();
        for thread in threads {
            // The listener is missing or too slow. Polling finds the threads that are dropped here.
            if pending.threads.len() < THREADS_COUNT_MAX {
                pending.threads.insert(thread);
            }
        }
        drop(pending);
        self.changed.notify_one();
    }

    pub(super) fn push_watched(&self, runs: Vec<RunId>) {
        let mut pending = self.lock();
        let room = WATCHED_COUNT_MAX.saturating_sub(pending.watched.len());
        pending.watched.extend(runs.into_iter().take(room));
        drop(pending);
        self.changed.notify_one();
    }

    pub(super) fn push_deltas(&self, run: RunId, after: u64, said: Vec<LiveUpdate>) {
        let mut pending = self.lock();
        if pending.deltas.len() < DELTA_COUNT_MAX {
            pending.deltas.push_back((run, after, said));
        }
        drop(pending);
        self.changed.notify_one();
    }

    /// Cancel-safe: dropping the future loses no notification.
    pub(super) async fn receive(&self) -> Notification {
        loop {
            if let Some(ring) = self.pop() {
                return ring;
            }
            self.changed.notified().await;
        }
    }

    /// Notifications for a waiting worker come before hints that something may be claimable.
    fn pop(&self) -> Option<Notification> {
        let mut pending = self.lock();
        let ring = if let Some((tenant, run)) = pending.runs.pop_first() {
            Notification::Run { tenant, run }
        } else if std::mem::take(&mut pending.ready) {
            Notification::Ready
        } else if let Some(run) = pending.committed.pop_first() {
            Notification::Committed { run }
        } else if let Some((tenant, thread)) = pending.threads.pop_first() {
            Notification::Thread { tenant, thread }
        } else if std::mem::take(&mut pending.approvals_missed) {
            Notification::ApprovalsMissed
        } else if let Some((tenant, run)) = pending.approvals.pop_first() {
            Notification::Approvals { tenant, run }
        } else if let Some(run) = pending.watched.pop_first() {
            Notification::LiveRequested { run }
        } else {
            // Only after the notifications for the commits that precede the delta.
            let (run, after, said) = pending.deltas.pop_front()?;
            Notification::Live { run, after, updates: said }
        };
        if !pending.is_empty() {
            // Wake another listener for the next notification.
            self.changed.notify_one();
        }
        Some(ring)
    }
}

impl PendingIncoming {
    fn is_empty(&self) -> bool {
        let rings = self.ready || self.approvals_missed;
        let runs = self.runs.is_empty() && self.committed.is_empty() && self.approvals.is_empty();
        !rings && runs && self.threads.is_empty() && self.watched.is_empty() && self.deltas.is_empty()
    }
}

/// A run with unread inbox items, and the node that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WakeTarget {
    pub(super) run: i64,
    pub(super) node: i64,
}

/// Notifications queued for other nodes. One connection sends them after the commit, all pending ones at once: a
/// notification within a commit would make all commits wait for each other.
#[derive(Default)]
pub(super) struct OutgoingNotices {
    pending: Mutex<PendingOutgoing>,
    pub(super) changed: Notify,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PendingOutgoing {
    pub(super) ready: bool,
    runs: BTreeMap<i64, BTreeSet<i64>>,
    committed: BTreeSet<RunId>,
    approvals: BTreeSet<(Tenant, RunId)>,
    threads: BTreeSet<(Tenant, ThreadId)>,
    resend_watches: bool,
    probe: Option<u64>,
    watched: BTreeSet<RunId>,
    deltas: VecDeque<String>,
}

/// PostgreSQL limits a notification payload to less than 8,000 bytes.
pub(super) const PAYLOAD_BYTES_MAX: usize = 7_900;

impl OutgoingNotices {
    fn lock(&self) -> MutexGuard<'_, PendingOutgoing> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run can be claimed, and this node may have no free slot for it.
    pub(super) fn queue_ready(&self) {
        self.lock().ready = true;
        self.changed.notify_one();
    }

    pub(super) fn queue_run(&self, target: WakeTarget) {
        self.lock().runs.entry(target.node).or_default().insert(target.run);
        self.changed.notify_one();
    }

    /// For watchers of the run on other nodes.
    pub(super) fn queue_committed(&self, run: &RunId) {
        self.lock().committed.insert(run.clone());
        self.changed.notify_one();
    }

    /// For clients of other nodes that list pending approvals.
    pub(super) fn queue_approvals(&self, tenant: &Tenant, run: &RunId) {
        self.lock().approvals.insert((tenant.clone(), run.clone()));
        self.changed.notify_one();
    }

    /// For clients of other nodes that follow the thread.
    pub(super) fn queue_thread(&self, tenant: &Tenant, thread: &ThreadId) {
        self.lock().threads.insert((tenant.clone(), thread.clone()));
        self.changed.notify_one();
    }

    /// Asks the node that holds the run to send its live deltas.
    pub(super) fn queue_watch(&self, run: &RunId) {
        let mut pending = self.lock();
        if pending.watched.len() < WATCHED_COUNT_MAX {
            pending.watched.insert(run.clone());
        }
        drop(pending);
        self.changed.notify_one();
    }

    /// Watch requests of other nodes may have been lost: they are asked to send them again.
    pub(super) fn queue_resend_watches(&self) {
        self.lock().resend_watches = true;
        self.changed.notify_one();
    }

    /// This node's own listener waits for this token.
    pub(super) fn queue_probe(&self, token: u64) {
        self.lock().probe = Some(token);
        self.changed.notify_one();
    }

    /// Encoded live deltas. The sender's number is prepended when they are sent.
    pub(super) fn queue_deltas(&self, payloads: Vec<String>) {
        let mut pending = self.lock();
        let room = DELTA_COUNT_MAX.saturating_sub(pending.deltas.len());
        pending.deltas.extend(payloads.into_iter().take(room));
        drop(pending);
        self.changed.notify_one();
    }

    pub(super) fn take(&self) -> PendingOutgoing {
        let mut pending = self.lock();
        let rest = pending.deltas.len().min(DELTA_SENT_MAX);
        let rest = pending.deltas.split_off(rest);
        let taken = std::mem::take(&mut *pending);
        if !rest.is_empty() {
            pending.deltas = rest;
            self.changed.notify_one();
        }
        taken
    }

    /// Sending failed: the notifications are queued again. Deltas are not, because they may have arrived nevertheless
    /// and must not be sent twice.
    pub(super) fn put_back(&self, pending: PendingOutgoing) {
        let mut now = self.lock();
        now.ready |= pending.ready;
        for (node, runs) in pending.runs {
            now.runs.entry(node).or_default().extend(runs);
        }
        now.committed.extend(pending.committed);
        now.approvals.extend(pending.approvals);
        now.threads.extend(pending.threads);
        now.resend_watches |= pending.resend_watches;
        now.probe = now.probe.or(pending.probe);
        now.watched.extend(pending.watched);
    }
}

impl PendingOutgoing {
    /// Encodes each notification: `*`; or a node with the numbers of its runs; or `+` with the sender and run ids; or
    /// `!` with the sender and pairs of tenant and run id; or `@` with the sender and pairs of tenant and thread id; or `?` with the sender and the ids of runs that it watches;
    /// or `#` with a sender that may have missed watch requests; or `=` with the sender and a probe token that it waits
    /// for itself (see `listen_probe`); or `~` with the sender and a live delta (see `delta_codec`).
    pub(super) fn payloads(&self, sender: i64) -> Vec<String> {
        let mut payloads: Vec<String> = Vec::new();
        if self.ready {
            payloads.push("*".into());
        }
        for (node, runs) in &self.runs {
            payloads.extend(join_payloads(&format!("{node}:"), runs.iter().map(i64::to_string)));
        }
        let names = self.committed.iter().filter_map(|run| serde_json::to_string(run.as_str()).ok());
        payloads.extend(join_payloads(&format!("+{sender}:"), names));
        let pairs = self.approvals.iter();
        let pairs =
            pairs.filter_map(|(tenant, run)| serde_json::to_string(&(tenant.as_str(), run.as_str())).ok());
        payloads.extend(join_payloads(&format!("!{sender}:"), pairs));
        let pairs = self.threads.iter();
        let pairs = pairs
            .filter_map(|(tenant, thread)| serde_json::to_string(&(tenant.as_str(), thread.as_str())).ok());
        payloads.extend(join_payloads(&format!("@{sender}:"), pairs));
        let names = self.watched.iter().filter_map(|run| serde_json::to_string(run.as_str()).ok());
        payloads.extend(join_payloads(&format!("?{sender}:"), names));
        if self.resend_watches {
            payloads.push(format!("#{sender}:"));
        }
        payloads.extend(self.probe.map(|token| probe_payload(sender, token)));
        payloads.extend(self.deltas.iter().map(|said| format!("~{sender}:{said}")));
        payloads
    }
}

pub(super) fn probe_payload(sender: i64, token: u64) -> String {
    format!("={sender}:{token}")
}

fn join_payloads(head: &str, parts: impl Iterator<Item = String>) -> Vec<String> {
    let mut payloads: Vec<String> = Vec::new();
    for part in parts {
        match payloads.last_mut() {
            Some(payload) if payload.len() + part.len() < PAYLOAD_BYTES_MAX => {
                payload.push(',');
                payload.push_str(&part);
            }
            Some(_) | None => payloads.push(format!("{head}{part}")),
        }
    }
    payloads.retain(|payload| payload.len() <= PAYLOAD_BYTES_MAX);
    payloads
}

/// A received payload, decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PeerNotice<'a> {
    Ready,
    /// Runs of this node that have unread inbox items.
    Runs(Vec<i64>),
    /// Runs to which another node has committed.
    Committed(Vec<RunId>),
    /// Runs whose held calls changed, as reported by another node.
    Approvals(Vec<(Tenant, RunId)>),
    /// Threads in which another node created or deleted runs.
    Threads(Vec<(Tenant, ThreadId)>),
    /// Runs that another node watches.
    Watched(Vec<RunId>),
    /// Another node may have missed watch requests.
    ResendWatches,
    /// A token that its sender waits for.
    Probe(u64),
    /// A live delta from another node.
    Delta(&'a str),
    /// Addressed to other nodes, or malformed.
    Ignored,
}

pub(super) fn parse(payload: &str, node: Option<i64>) -> PeerNotice<'_> {
    if payload == "*" {
        return PeerNotice::Ready;
    }
    let Some((head, rest)) = payload.split_once(':') else { return PeerNotice::Ignored };
    let (kind, number) = head.split_at(head.find(|sign: char| sign.is_ascii_digit()).unwrap_or(head.len()));
    let is_ours = number.parse().ok() == node;
    match kind {
        "" if is_ours && node.is_some() => {
            PeerNotice::Runs(rest.split(',').filter_map(|run| run.parse().ok()).collect())
        }
        // Our own notifications come back to us and are ignored.
        "!" if !is_ours => PeerNotice::Approvals(parse_pairs(rest)),
        "@" if !is_ours => PeerNotice::Threads(parse_pairs(rest)),
        "+" if !is_ours => PeerNotice::Committed(parse_run_ids(rest)),
        "?" if !is_ours => PeerNotice::Watched(parse_run_ids(rest)),
        "#" if !is_ours => PeerNotice::ResendWatches,
        "=" => rest.parse().map_or(PeerNotice::Ignored, PeerNotice::Probe),
        "~" if !is_ours => PeerNotice::Delta(rest),
        _ => PeerNotice::Ignored,
    }
}

fn parse_pairs<Id: From<String>>(list: &str) -> Vec<(Tenant, Id)> {
    let pairs: Vec<(String, String)> = serde_json::from_str(&format!("[{list}]")).unwrap_or_default();
    pairs.into_iter().map(|(tenant, id)| (Tenant::from(tenant.as_str()), Id::from(id))).collect()
}

fn parse_run_ids(list: &str) -> Vec<RunId> {
    let names: Vec<String> = serde_json::from_str(&format!("[{list}]")).unwrap_or_default();
    names.into_iter().map(RunId::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_coalesced_and_parsed_by_their_receivers() {
        let outgoing = OutgoingNotices::default();
        for run in [3, 1, 3] {
            outgoing.queue_run(WakeTarget { run, node: 7 });
        }
        outgoing.queue_ready();
        outgoing.queue_ready();
        for run in ["b", "a,\"\0", "b"] {
            outgoing.queue_committed(&run.into());
        }
        for run in ["b", "a", "b"] {
            outgoing.queue_approvals(&Tenant::from("acme"), &run.into());
            outgoing.queue_thread(&Tenant::from("acme"), &run.into());
            outgoing.queue_watch(&run.into());
        }
        let pending = outgoing.take();
        let payloads = pending.payloads(8);
        let approvals = "!8:[\"acme\",\"a\"],[\"acme\",\"b\"]";
        let threads = "@8:[\"acme\",\"a\"],[\"acme\",\"b\"]";
        let committed = "+8:\"a,\\\"\\u0000\",\"b\"";
        assert_eq!(payloads, ["*", "7:1,3", committed, approvals, threads, "?8:\"a\",\"b\""]);
        assert_eq!(outgoing.take(), PendingOutgoing::default());
        assert_eq!(parse(&payloads[0], Some(7)), PeerNotice::Ready);
        assert_eq!(parse(&payloads[1], Some(7)), PeerNotice::Runs(vec![1, 3]));
        assert_eq!(parse(&payloads[1], Some(8)), PeerNotice::Ignored);
        assert_eq!(parse(&payloads[1], None), PeerNotice::Ignored);
        assert_eq!(parse(&payloads[2], Some(7)), PeerNotice::Committed(vec!["a,\"\0".into(), "b".into()]));
        assert_eq!(parse(&payloads[2], Some(8)), PeerNotice::Ignored, "a node ignores its own notifications");
        let acme = |run: &str| (Tenant::from("acme"), RunId::from(run));
        assert_eq!(parse(&payloads[3], Some(7)), PeerNotice::Approvals(vec![acme("a"), acme("b")]));
        assert_eq!(parse(&payloads[3], Some(8)), PeerNotice::Ignored, "a node ignores its own notifications");
        let acme = |thread: &str| (Tenant::from("acme"), ThreadId::from(thread));
        assert_eq!(parse(&payloads[4], Some(7)), PeerNotice::Threads(vec![acme("a"), acme("b")]));
        assert_eq!(parse(&payloads[4], Some(8)), PeerNotice::Ignored, "a node ignores its own notifications");
        assert_eq!(parse(&payloads[5], Some(7)), PeerNotice::Watched(vec!["a".into(), "b".into()]));
        assert_eq!(parse(&payloads[5], Some(8)), PeerNotice::Ignored, "a node ignores its own notifications");
        assert_eq!(parse("#8:", Some(7)), PeerNotice::ResendWatches);
        assert_eq!(parse("#8:", Some(8)), PeerNotice::Ignored, "a node ignores its own notifications");
        assert_eq!(parse("~8:{}", Some(7)), PeerNotice::Delta("{}"));
        assert_eq!(parse("~8:{}", Some(8)), PeerNotice::Ignored, "a node ignores its own notifications");
        assert_eq!(parse(&probe_payload(8, 5), Some(8)), PeerNotice::Probe(5), "that is what it waits for");
        assert_eq!(parse("nonsense", Some(7)), PeerNotice::Ignored);
        outgoing.put_back(pending);
        assert_eq!(outgoing.take().payloads(8), payloads, "what could not be sent is sent later");
    }

    #[test]
    fn deltas_are_bounded_and_sent_in_parts_and_never_twice() {
        let outgoing = OutgoingNotices::default();
        outgoing.queue_deltas((0..2 * DELTA_COUNT_MAX).map(|number| number.to_string()).collect());
        let first = outgoing.take();
        assert_eq!(first.payloads(8).len(), DELTA_SENT_MAX);
        assert_eq!(first.payloads(8).first().map(String::as_str), Some("~8:0"));
        outgoing.put_back(first);
        let mut sent = DELTA_SENT_MAX;
        while let rest = outgoing.take().payloads(8)
            && !rest.is_empty()
        {
            assert_eq!(rest.first().cloned(), Some(format!("~8:{sent}")), "it continues after what was sent");
            sent += rest.len();
        }
        assert_eq!(sent, DELTA_COUNT_MAX);
    }

    #[test]
    fn no_payload_exceeds_the_notification_limit() {
        let outgoing = OutgoingNotices::default();
        for run in 0..1_000 {
            outgoing.queue_run(WakeTarget { run: i64::MAX - run, node: i64::MAX });
            outgoing.queue_committed(&RunId::from(format!("run_{run:060}")));
        }
        let payloads = outgoing.take().payloads(1);
        assert!(payloads.len() > 5);
        assert!(payloads.iter().all(|payload| payload.len() < 8_000));
        let all: usize = payloads.iter().map(|payload| payload.split(',').count()).sum();
        assert_eq!(all, 2_000, "none is left out");
    }
}
