//! A node that is paused for longer than its lease: when it stops, when it resumes, and what other nodes did
//! meanwhile.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use engine::clock::{Clock, SystemClock};
use machine::id::RunId;
use machine::suspension::SuspensionKind;

use super::disturbance::Disturbance;
use super::reader;
use super::world::ClusterWorld;
use crate::evidence::Pause;
use crate::ledger;
use crate::store_at::LEASE;
use crate::wire::Request;

/// After a pause this long the process has lost its lease, and the other nodes know it.
const PAUSE_MIN: Duration = LEASE.saturating_mul(2);
/// Longer than it takes to settle any doubt.
const PAUSE_MAX: Duration = LEASE.saturating_mul(6);
/// A resumed process has the result of its commit within this time.
const ANSWERED_WITHIN: Duration = LEASE.saturating_mul(3);

/// When a paused process resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    TakenOver,
    /// After a person has decided to retry.
    Retried,
    /// After the story is over.
    Over,
    /// After other nodes have claimed its runs, while they are halted before their first commit.
    Overtaken,
}

/// A paused process.
pub(super) struct PausedNode {
    number: u32,
    since: Instant,
    pub(super) until: Until,
    before_sending: bool,
    /// The epoch of each run at the time of the pause.
    epochs: BTreeMap<RunId, u64>,
    /// Whether another node is halted before its commit.
    pub(super) is_followed: bool,
}

/// A process that resumed after others had claimed its runs.
pub(super) struct OvertakenNode {
    process: u32,
    /// The epoch of each run when the process resumed.
    epochs: BTreeMap<RunId, u64>,
    since: Instant,
    /// Whether the process was halted before it requested a commit. Anywhere else the store may have accepted the
    /// commit before the pause, and only the answer arrives now.
    was_halted_before_storing: bool,
    /// Whether other nodes are halted until this process has the result of its commit.
    is_followed: bool,
}

impl OvertakenNode {
    /// The newer epoch that had replaced this one before its process requested anything under it.
    pub(super) fn overtaken_by(&self, process: u32, run: &RunId, epoch: u64) -> Option<u64> {
        let latest = self.epochs.get(run).copied().filter(|latest| *latest > epoch);
        latest.filter(|_| process == self.process && self.was_halted_before_storing)
    }
}

impl ClusterWorld<'_> {
    /// Records the time of the first loss. Worlds with an outage are skipped, because their clocks run ahead.
    pub(super) fn note_a_loss(&mut self) {
        if self.played.case.story.outage.is_zero() {
            self.shared_store.first_loss.get_or_insert_with(|| SystemClock.now());
        }
    }

    pub(super) fn pause(&mut self, number: u32, before_sending: bool, until: Until) -> io::Result<()> {
        self.note_a_loss();
        let Some((_, member)) = self.members.by_number(number) else { return Ok(()) };
        member.pause()?;
        let told = std::mem::take(&mut member.told);
        self.played.people.lose(told);
        let (since, epochs) = (Instant::now(), self.epochs.clone());
        self.paused = Some(PausedNode { number, since, until, before_sending, epochs, is_followed: false });
        Ok(())
    }

    pub(super) fn any_until(&mut self) -> Until {
        match self.chance.below(3) {
            0 => Until::TakenOver,
            1 => Until::Retried,
            _ => Until::Over,
        }
    }

    pub(super) fn resume_when_due(&mut self, over: bool) -> io::Result<()> {
        let Some(paused) = &self.paused else { return Ok(()) };
        let (lasts, retried) = (paused.since.elapsed(), self.has_decided_retry());
        let overtaken = paused.is_followed && self.is_overtaken(paused);
        let due = match paused.until {
            Until::TakenOver => lasts >= PAUSE_MIN,
            Until::Retried => lasts >= PAUSE_MIN && (retried || over),
            Until::Over => lasts >= PAUSE_MIN && over,
            Until::Overtaken => overtaken,
        };
        if !due && lasts <= PAUSE_MAX {
            return Ok(());
        }
        let Some(paused) = self.paused.take() else { return Ok(()) };
        ledger::catch_up(&self.setup.support_processes.ledger)?;
        let lost = reader::lost_attempts(&self.direct_store)?;
        self.played.disturbances.push(Disturbance::PausedAnywhere);
        if paused.before_sending && !lost.is_empty() {
            self.played.disturbances.push(Disturbance::PausedBeforeSending);
            self.played.disturbances.extend(retried.then_some(Disturbance::OvertakenByARetry));
        }
        let acts_before = ledger::read(&self.traces.acts())?.len();
        let PausedNode { number, before_sending, .. } = paused;
        self.shared_store.pauses.push(Pause { process: number, before_sending, acts_before, lost });
        self.overtaken = Some(OvertakenNode {
            process: number,
            epochs: self.epochs.clone(),
            since: Instant::now(),
            was_halted_before_storing: paused.until == Until::Overtaken,
            is_followed: paused.until == Until::Overtaken,
        });
        if let Some((_, member)) = self.members.by_number(number) {
            member.held_count = None;
            member.resume()?;
        }
        self.played.people.lose([]);
        Ok(())
    }

    /// Whether a run that was held at the time of the pause has been claimed since.
    fn is_overtaken(&self, paused: &PausedNode) -> bool {
        paused.epochs.iter().any(|(run, epoch)| self.epochs.get(run).is_some_and(|latest| latest > epoch))
    }

    fn has_decided_retry(&self) -> bool {
        let decisions = self.played.people.decisions.values();
        decisions.into_iter().any(|decided| decided.kind == SuspensionKind::InDoubt && decided.accepted())
    }

    /// A process has the result of a commit. The nodes that were halted for it continue.
    pub(super) fn note_an_answer(&mut self, process: u32, run: &RunId, epoch: u64) {
        let Some(overtaken) = &self.overtaken else { return };
        if overtaken.is_followed && overtaken.overtaken_by(process, run, epoch).is_some() {
            self.played.disturbances.push(Disturbance::OvertakenBeforeStoring);
            self.resume_followers();
        }
    }

    pub(super) fn resume_followers_when_due(&mut self) {
        let due =
            |overtaken: &OvertakenNode| overtaken.is_followed && overtaken.since.elapsed() > ANSWERED_WITHIN;
        if self.overtaken.as_ref().is_some_and(due) {
            self.resume_followers();
        }
    }

    fn resume_followers(&mut self) {
        self.overtaken.iter_mut().for_each(|overtaken| overtaken.is_followed = false);
        self.members.living().for_each(|member| member.request(Request::Resume));
    }
}
