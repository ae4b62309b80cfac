//! Those who wait for news of a run. A few are woken at once; many take turns, so that the run is not kept waiting.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use crate::live::lock;

/// With more watchers than this the run leaves the ringing to the herald.
const FEW: usize = 4;
/// In a line that is longer than this, each turn is as dear as [`DEAR`] others: the longer the line, the more of it a
/// run would stand behind.
const LONG_LINE: usize = 256;
const DEAR: usize = 8;
/// Turns that the herald gives before it lets others have the processor.
const TURNS_AT_ONCE: usize = 64;
const TURN_PAUSE: Duration = Duration::from_millis(1);

/// Wakes one watcher. It stands in at most one queue at a time.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    notify: Notify,
    queued: AtomicBool,
}

impl Bell {
    pub(crate) async fn rung(&self) {
        self.notify.notified().await;
    }

    fn ring(&self) {
        self.queued.store(false, Ordering::Release);
        self.notify.notify_one();
    }
}

#[derive(Debug, Default)]
struct Queues {
    /// They have read everything.
    resting: Vec<Arc<Bell>>,
    /// There is something for them to read; each gets a turn.
    in_line: VecDeque<Arc<Bell>>,
}

/// The watchers of one run.
#[derive(Debug)]
pub(crate) struct Crowd {
    herald: Arc<Herald>,
    queues: Mutex<Queues>,
    watcher_count: AtomicUsize,
    /// Somebody may be resting.
    some_rest: AtomicBool,
    /// The herald knows already.
    called: AtomicBool,
}

impl Crowd {
    pub(crate) fn new(herald: Arc<Herald>) -> Self {
        Self {
            herald,
            queues: Mutex::default(),
            watcher_count: AtomicUsize::new(0),
            some_rest: AtomicBool::new(false),
            called: AtomicBool::new(false),
        }
    }

    pub(crate) fn enter(&self) {
        self.watcher_count.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn leave(&self) {
        self.watcher_count.fetch_sub(1, Ordering::AcqRel);
    }

    /// So many watch that each reads only in its turn. Nobody gives turns once the engine is gone.
    pub(crate) fn takes_turns(&self) -> bool {
        self.watcher_count.load(Ordering::Acquire) > FEW && !self.herald.gone.load(Ordering::Acquire)
    }

    /// Until there is something new. Whoever rests has to look once more whether something came meanwhile, and
    /// wakes everybody if so.
    pub(crate) fn rest(&self, bell: &Arc<Bell>) {
        if !bell.queued.swap(true, Ordering::AcqRel) {
            let mut queues = lock(&self.queues);
            // Whoever left has left a bell behind: there are never more of these than of others.
            if queues.resting.len() > 2 * self.watcher_count.load(Ordering::Acquire) + FEW {
                queues.resting.retain(|bell| !is_left(bell));
            }
            queues.resting.push(bell.clone());
        }
        self.some_rest.store(true, Ordering::SeqCst);
    }

    /// Nobody has anything to read.
    pub(crate) fn all_rest(&self) -> bool {
        let queues = lock(&self.queues);
        queues.in_line.is_empty() && queues.resting.len() >= self.watcher_count.load(Ordering::Acquire)
    }

    /// There is more to read for this one.
    pub(crate) fn stand_in_line(self: &Arc<Self>, bell: &Arc<Bell>) {
        {
            let mut queues = lock(&self.queues);
            if bell.queued.swap(true, Ordering::AcqRel) {
                // It may stand among those who rest, since a wait that was given up.
                let Queues { resting, in_line } = &mut *queues;
                in_line.extend(resting.drain(..));
            } else {
                queues.in_line.push_back(bell.clone());
            }
        }
        self.call_herald();
    }

    /// There is something new for everybody.
    pub(crate) fn wake(self: &Arc<Self>) {
        // Most runs are watched by nobody, or by somebody who has not read the last news yet.
        if !self.some_rest.swap(false, Ordering::SeqCst) {
            return;
        }
        {
            let mut queues = lock(&self.queues);
            let Queues { resting, in_line } = &mut *queues;
            let alone = self.herald.gone.load(Ordering::Acquire);
            if alone || in_line.is_empty() && resting.len() <= FEW {
                in_line.drain(..).for_each(|bell| bell.ring());
                resting.drain(..).for_each(|bell| bell.ring());
                return;
            }
            in_line.extend(resting.drain(..));
        }
        self.call_herald();
    }

    fn call_herald(self: &Arc<Self>) {
        if !self.called.swap(true, Ordering::AcqRel) {
            lock(&self.herald.called).push_back(self.clone());
            self.herald.some.notify_one();
        }
    }

    /// Wakes those whose turn it is, for at most `left` turns; says how many that took.
    fn next_turns(&self, left: usize) -> usize {
        let mut queues = lock(&self.queues);
        let price = if queues.in_line.len() > LONG_LINE { DEAR } else { 1 };
        let mut taken = 0;
        while taken < left
            && let Some(bell) = queues.in_line.pop_front()
        {
            if !is_left(&bell) {
                bell.ring();
                taken += price;
            }
        }
        taken.min(left)
    }

    /// Everybody, at once.
    pub(crate) fn dismiss(&self) {
        let mut queues = lock(&self.queues);
        let Queues { resting, in_line } = &mut *queues;
        in_line.drain(..).chain(resting.drain(..)).for_each(|bell| bell.ring());
    }
}

/// Nobody listens for it any more.
fn is_left(bell: &Arc<Bell>) -> bool {
    Arc::strong_count(bell) == 1
}

/// Gives the watchers of crowded runs their turns, so that the runs need not.
#[derive(Debug, Default)]
pub(crate) struct Herald {
    /// Each crowd stands here at most once.
    called: Mutex<VecDeque<Arc<Crowd>>>,
    some: Notify,
    gone: AtomicBool,
}

impl Herald {
    /// From here on everybody reads as they like.
    pub(crate) fn go(&self) {
        self.gone.store(true, Ordering::Release);
    }

    pub(crate) async fn work(&self) {
        let mut left = TURNS_AT_ONCE;
        loop {
            let crowd = lock(&self.called).pop_front();
            let Some(crowd) = crowd else {
                self.some.notified().await;
                continue;
            };
            // Whoever comes from here on calls again.
            crowd.called.store(false, Ordering::Release);
            let turns = crowd.next_turns(left);
            left -= turns;
            if turns > 0 {
                // There may be more of them, after those of other runs.
                crowd.call_herald();
            }
            if left == 0 {
                tokio::time::sleep(TURN_PAUSE).await;
                left = TURNS_AT_ONCE;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowd() -> Arc<Crowd> {
        Arc::new(Crowd::new(Arc::default()))
    }

    #[test]
    fn bells_of_those_who_left_do_not_pile_up() {
        let crowd = crowd();
        for _ in 0..10_000 {
            crowd.enter();
            crowd.rest(&Arc::default());
            crowd.leave();
        }
        assert!(lock(&crowd.queues).resting.len() < 20);
    }

    #[test]
    fn whoever_left_takes_no_turn() {
        let crowd = crowd();
        let watchers: Vec<Arc<Bell>> = (0..10).map(|_| Arc::default()).collect();
        for _ in 0..1_000 {
            crowd.stand_in_line(&Arc::default());
        }
        watchers.iter().for_each(|bell| crowd.stand_in_line(bell));
        assert_eq!(crowd.next_turns(TURNS_AT_ONCE), TURNS_AT_ONCE, "eight of the ten");
        let waiting = watchers.iter().filter(|bell| bell.queued.load(Ordering::Acquire)).count();
        assert_eq!(waiting, 2);
    }
}
