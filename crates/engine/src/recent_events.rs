//! The latest events of a run, in memory while it is held or watched; bounded by count and by bytes.

use std::collections::VecDeque;

use machine::event::Fact;

use crate::store::CommittedEvent;

const COUNT_MAX: usize = 256;
/// The last event stays, whatever its size.
const BYTES_MAX: usize = 1024 * 1024;

#[derive(Debug, Default)]
pub(crate) struct RecentEvents {
    events: VecDeque<CommittedEvent>,
    bytes: usize,
}

impl RecentEvents {
    pub(crate) fn push(&mut self, events: Vec<CommittedEvent>) {
        let last = self.events.back().map(|committed| committed.event.seq);
        // A commit whose answer was lost left a gap: the store has the missing events.
        if last.is_some_and(|last| events.first().is_some_and(|next| next.event.seq != last + 1)) {
            self.clear();
        }
        self.bytes += events.iter().map(CommittedEvent::weight).sum::<usize>();
        self.events.extend(events);
        while self.events.len() > COUNT_MAX || (self.bytes > BYTES_MAX && self.events.len() > 1) {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(oldest.weight());
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Keeps only the last event in memory: a run may be watched for days.
    pub(crate) fn keep_last(&mut self) {
        if self.events.len() > 1 {
            let last: VecDeque<CommittedEvent> = self.events.pop_back().into_iter().collect();
            self.bytes = last.iter().map(CommittedEvent::weight).sum();
            self.events = last;
        }
    }

    /// The events after `after`, if the first of them is still here.
    pub(crate) fn after(&self, after: u64, limit: usize) -> Vec<CommittedEvent> {
        let Some(first) = self.events.front().map(|committed| committed.event.seq) else { return Vec::new() };
        let next = after.saturating_add(1);
        if first > next {
            return Vec::new();
        }
        let skipped = usize::try_from(next - first).unwrap_or(usize::MAX);
        self.events.iter().skip(skipped).take(limit).cloned().collect()
    }

    /// The last event's sequence number, and whether it is the terminal one.
    pub(crate) fn last(&self) -> Option<(u64, bool)> {
        let last = self.events.back()?;
        Some((last.event.seq, matches!(last.event.fact, Fact::RunEnded { .. })))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use machine::Timestamp;
    use machine::event::{Event, Message, Origin, Usage};
    use machine::id::MessageId;

    use super::*;

    fn said(seq: u64, bytes: usize) -> CommittedEvent {
        let message = Message::Assistant {
            id: MessageId::from(format!("msg_{seq}")),
            text: "x".repeat(bytes),
            reasoning: None,
            calls: Vec::new(),
            usage: Usage::default(),
            matched: Vec::new(),
            output: None,
            origin: Origin::default(),
        };
        let event = Event { seq, at: Timestamp(0), step: None, fact: Fact::MessageAdded(message) };
        CommittedEvent { event: Arc::new(event), checkpoint: None }
    }

    fn seqs(recent: &RecentEvents, after: u64) -> Vec<u64> {
        recent.after(after, usize::MAX).iter().map(|committed| committed.event.seq).collect()
    }

    #[test]
    fn what_is_at_hand_of_a_run_is_bounded_by_count_and_by_bytes() {
        let mut recent = RecentEvents::default();
        recent.push((1..=300).map(|seq| said(seq, 1)).collect());
        assert_eq!(recent.events.len(), COUNT_MAX);
        assert!(recent.after(0, 1).is_empty(), "the store has what is gone");
        // A third of the bytes each: two fit, and never three.
        for seq in 301..=400 {
            recent.push(vec![said(seq, BYTES_MAX / 3)]);
            assert!(recent.bytes <= BYTES_MAX, "{} bytes at {seq}", recent.bytes);
        }
        assert_eq!(seqs(&recent, 398), [399, 400]);
        assert!(seqs(&recent, 390).is_empty());
    }

    #[test]
    fn the_last_event_stays_whatever_its_size_is() {
        let mut recent = RecentEvents::default();
        recent.push(vec![said(1, 1), said(2, 4 * BYTES_MAX)]);
        assert_eq!((seqs(&recent, 1), recent.last()), (vec![2], Some((2, false))));
        recent.push(vec![said(3, 1)]);
        assert_eq!((seqs(&recent, 2), recent.bytes < BYTES_MAX), (vec![3], true));
    }

    #[test]
    fn of_what_everybody_has_read_the_last_event_stays_and_the_next_ones_follow_it() {
        let mut recent = RecentEvents::default();
        recent.keep_last();
        assert_eq!(recent.last(), None);
        recent.push((1..=9).map(|seq| said(seq, 100)).collect());
        recent.keep_last();
        assert_eq!((seqs(&recent, 0), seqs(&recent, 8)), (vec![], vec![9]));
        assert_eq!(recent.bytes, said(9, 100).weight());
        recent.push(vec![said(10, 1)]);
        assert_eq!(seqs(&recent, 8), [9, 10]);
    }

    #[test]
    fn behind_a_gap_nothing_older_is_at_hand() {
        let mut recent = RecentEvents::default();
        recent.push(vec![said(1, 1)]);
        recent.push(vec![said(5, 1)]);
        assert_eq!((seqs(&recent, 0), seqs(&recent, 4)), (vec![], vec![5]));
    }
}
