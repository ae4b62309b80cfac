//! The watchers of a run. A few are woken at once; many take turns, so that the run does not have to wait for them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use crate::live::lock;

/// With more watchers than this, the run leaves waking them to the wake queue.
const DIRECT_WAKES_MAX: usize = 4;
/// In a queue longer than this, each turn costs as much as [`LONG_QUEUE_PRICE`] others: the longer the queue, the more
/// watchers would run ahead of the run itself.
const LONG_QUEUE: usize = 256;
const LONG_QUEUE_PRICE: usize = 8;
/// Watchers that the wake queue wakes before it yields the processor.
const WAKES_PER_BATCH: usize = 64;
const BATCH_PAUSE: Duration = Duration::from_millis(1);

/// Wakes one watcher. It is in at most one queue at a time.
#[derive(Debug, Default)]
pub(crate) struct WatcherSignal {
    notify: Notify,
    queued: AtomicBool,
}

impl WatcherSignal {
    pub(crate) async fn notified(&self) {
        self.notify.notified().await;
    }

    fn notify(&self) {
        self.queued.store(false, Ordering::Release);
        self.notify.notify_one();
    }
}

#[derive(Debug, Default)]
struct Queues {
    /// They have read everything.
    parked: Vec<Arc<WatcherSignal>>,
    /// They have something to read; each gets a turn.
    ready: VecDeque<Arc<WatcherSignal>>,
}

/// The watchers of one run.
#[derive(Debug)]
pub(crate) struct Watchers {
    wake_queue: Arc<WakeQueue>,
    queues: Mutex<Queues>,
    watcher_count: AtomicUsize,
    /// Some watcher may be parked.
    has_parked: AtomicBool,
    /// These watchers are already in the wake queue.
    scheduled: AtomicBool,
}

impl Watchers {
    pub(crate) fn new(wake_queue: Arc<WakeQueue>) -> Self {
        Self {
            wake_queue,
            queues: Mutex::default(),
            watcher_count: AtomicUsize::new(0),
            has_parked: AtomicBool::new(false),
            scheduled: AtomicBool::new(false),
        }
    }

    pub(crate) fn join(&self) {
        self.watcher_count.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn leave(&self) {
        self.watcher_count.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether there are too many watchers to wake at once, so that each reads in its turn. Once the engine is stopped there are no
    /// turns.
    pub(crate) fn takes_turns(&self) -> bool {
        self.watcher_count.load(Ordering::Acquire) > DIRECT_WAKES_MAX
            && !self.wake_queue.stopped.load(Ordering::Acquire)
    }

    /// Parks the watcher until there is something new. After parking, the caller has to check again whether something
    /// arrived meanwhile, and if so wake all watchers.
    pub(crate) fn park(&self, signal: &Arc<WatcherSignal>) {
        if !signal.queued.swap(true, Ordering::AcqRel) {
            let mut queues = lock(&self.queues);
            // A watcher that left may have left its signal here. This bounds the number of such signals.
            if queues.parked.len() > 2 * self.watcher_count.load(Ordering::Acquire) + DIRECT_WAKES_MAX {
                queues.parked.retain(|signal| !is_abandoned(signal));
            }
            queues.parked.push(signal.clone());
        }
        self.has_parked.store(true, Ordering::SeqCst);
    }

    /// No watcher has anything to read.
    pub(crate) fn all_parked(&self) -> bool {
        let queues = lock(&self.queues);
        queues.ready.is_empty() && queues.parked.len() >= self.watcher_count.load(Ordering::Acquire)
    }

    /// There is more to read for this watcher.
    pub(crate) fn enqueue(self: &Arc<Self>, signal: &Arc<WatcherSignal>) {
        {
            let mut queues = lock(&self.queues);
            if signal.queued.swap(true, Ordering::AcqRel) {
                // After a cancelled wait it may still be among the parked ones.
                let Queues { parked, ready } = &mut *queues;
                ready.extend(parked.drain(..));
            } else {
                queues.ready.push_back(signal.clone());
            }
        }
        self.schedule();
    }

    /// There is something new for every watcher.
    pub(crate) fn wake(self: &Arc<Self>) {
        // Most runs have no watcher, or one that has not read the last change yet.
        if !self.has_parked.swap(false, Ordering::SeqCst) {
            return;
        }
        {
            let mut queues = lock(&self.queues);
            let Queues { parked, ready } = &mut *queues;
            let is_stopped = self.wake_queue.stopped.load(Ordering::Acquire);
            if is_stopped || ready.is_empty() && parked.len() <= DIRECT_WAKES_MAX {
                ready.drain(..).for_each(|signal| signal.notify());
                parked.drain(..).for_each(|signal| signal.notify());
                return;
            }
            ready.extend(parked.drain(..));
        }
        self.schedule();
    }

    fn schedule(self: &Arc<Self>) {
        if !self.scheduled.swap(true, Ordering::AcqRel) {
            lock(&self.wake_queue.scheduled).push_back(self.clone());
            self.wake_queue.has_work.notify_one();
        }
    }

    /// Wakes the next watchers, for at most `left` turns; returns the number of turns used.
    fn wake_next(&self, left: usize) -> usize {
        let mut queues = lock(&self.queues);
        let price = if queues.ready.len() > LONG_QUEUE { LONG_QUEUE_PRICE } else { 1 };
        let mut taken = 0;
        while taken < left
            && let Some(signal) = queues.ready.pop_front()
        {
            if !is_abandoned(&signal) {
                signal.notify();
                taken += price;
            }
        }
        taken.min(left)
    }

    /// Wakes every watcher at once.
    pub(crate) fn wake_all_at_once(&self) {
        let mut queues = lock(&self.queues);
        let Queues { parked, ready } = &mut *queues;
        ready.drain(..).chain(parked.drain(..)).for_each(|signal| signal.notify());
    }
}

/// Its watcher is gone.
fn is_abandoned(signal: &Arc<WatcherSignal>) -> bool {
    Arc::strong_count(signal) == 1
}

/// Wakes the watchers of runs that have many, in turn, so that the runs need not do it.
#[derive(Debug, Default)]
pub(crate) struct WakeQueue {
    /// The watchers of each run are in here at most once.
    scheduled: Mutex<VecDeque<Arc<Watchers>>>,
    has_work: Notify,
    stopped: AtomicBool,
}

impl WakeQueue {
    /// From here on watchers read without waiting for a turn.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    pub(crate) async fn run(&self) {
        let mut left = WAKES_PER_BATCH;
        loop {
            let watchers = lock(&self.scheduled).pop_front();
            let Some(watchers) = watchers else {
                self.has_work.notified().await;
                continue;
            };
            // A watcher that arrives from here on schedules again.
            watchers.scheduled.store(false, Ordering::Release);
            let turns = watchers.wake_next(left);
            left -= turns;
            if turns > 0 {
                // There may be more of them, to be woken after those of other runs.
                watchers.schedule();
            }
            if left == 0 {
                tokio::time::sleep(BATCH_PAUSE).await;
                left = WAKES_PER_BATCH;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_watchers() -> Arc<Watchers> {
        Arc::new(Watchers::new(Arc::default()))
    }

    #[test]
    fn signals_of_watchers_that_left_do_not_pile_up() {
        let watchers = no_watchers();
        for _ in 0..10_000 {
            watchers.join();
            watchers.park(&Arc::default());
            watchers.leave();
        }
        assert!(lock(&watchers.queues).parked.len() < 20);
    }

    #[test]
    fn a_watcher_that_left_takes_no_turn() {
        let watchers = no_watchers();
        let signals: Vec<Arc<WatcherSignal>> = (0..10).map(|_| Arc::default()).collect();
        for _ in 0..1_000 {
            watchers.enqueue(&Arc::default());
        }
        signals.iter().for_each(|signal| watchers.enqueue(signal));
        assert_eq!(watchers.wake_next(WAKES_PER_BATCH), WAKES_PER_BATCH, "eight of the ten");
        let waiting = signals.iter().filter(|signal| signal.queued.load(Ordering::Acquire)).count();
        assert_eq!(waiting, 2);
    }
}
