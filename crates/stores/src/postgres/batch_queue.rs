//! A queue of work that waits for a free sender. A free sender takes what waits as one batch: work never
//! waits for a batch to fill while no sender is busy, and work that arrives meanwhile shares the next batch.

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::store::Tenant;
use machine::id::ThreadId;
use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// In a larger batch the first item would wait too long for the last one.
const BATCH_COUNT_MAX: usize = 64;
const BATCH_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Items that must wait before another sender starts beside a busy one. A statement by itself costs as much as three
/// commits in it: fewer items lose less by waiting for the busy sender than all of them lose by the cost of another
/// statement.
const EXTRA_SENDER_WAITING_MIN: usize = 16;

/// A batch that takes longer (a hundred times the expected time) no longer delays others: its connection may be dead.
const LATE_AFTER: Duration = Duration::from_millis(250);
/// An item of a batch queue.
pub(super) trait BatchItem {
    /// A batch contains at most one item of each thread.
    fn thread(&self) -> (&Tenant, &ThreadId);
    fn bytes(&self) -> u64;
    /// The caller is gone: the item is not started.
    fn is_abandoned(&self) -> bool;
}

pub(super) struct BatchQueue<W> {
    inner: Mutex<Inner<W>>,
    /// Statements that the database processes at once; further items gather into the next batch meanwhile.
    sender_count_max: usize,
    /// Permits for late batches, in addition to the senders: each occupies a connection.
    late: Arc<Semaphore>,
}

struct Inner<W> {
    waiting: VecDeque<W>,
    senders_busy: usize,
}

impl<W> BatchQueue<W> {
    pub(super) fn new(sender_count_max: usize, late: Arc<Semaphore>) -> Self {
        let inner = Mutex::new(Inner { waiting: VecDeque::new(), senders_busy: 0 });
        Self { inner, sender_count_max, late }
    }
}

impl<W: BatchItem> BatchQueue<W> {
    fn lock(&self) -> MutexGuard<'_, Inner<W>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the caller has to start a sender ([`BatchQueue::send_batches`]).
    pub(super) fn push(&self, work: W) -> bool {
        let mut inner = self.lock();
        inner.waiting.push_back(work);
        let begins = inner.senders_busy < self.sender_count_max && inner.needs_a_sender();
        if begins {
            inner.senders_busy += 1;
        }
        begins
    }

    /// A sender: sends batches until the queue is empty. A panic ends only its batch and not the sender; otherwise the
    /// items after it would wait forever. A late batch does not delay them either: the sender detaches it.
    pub(super) async fn send_batches<F>(&self, send: impl Fn(Vec<W>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        while let Some(batch) = self.next() {
            let mut sent = tokio::spawn(send(batch));
            if let Ok(ended) = tokio::time::timeout(LATE_AFTER, &mut sent).await {
                log_panic(ended);
                continue;
            }
            tokio::select! {
                ended = &mut sent => log_panic(ended),
                permit = self.late.clone().acquire_owned() => {
                    tokio::spawn(async move {
                        log_panic(sent.await);
                        drop(permit);
                    });
                }
            }
        }
    }

    /// The next batch; `None` ends the sender.
    fn next(&self) -> Option<Vec<W>> {
        let mut inner = self.lock();
        inner.senders_busy -= 1;
        if !inner.needs_a_sender() {
            return None;
        }
        let (mut batch, mut rest) = (Vec::new(), VecDeque::new());
        let mut threads: BTreeSet<(Tenant, ThreadId)> = BTreeSet::new();
        let mut bytes = 0;
        while let Some(work) = inner.waiting.pop_front() {
            if work.is_abandoned() {
                continue;
            }
            let (tenant, thread) = work.thread();
            let full = batch.len() >= BATCH_COUNT_MAX || bytes + work.bytes() > BATCH_BYTES_MAX;
            if !batch.is_empty() && full {
                rest.push_back(work);
                break;
            }
            if threads.insert((tenant.clone(), thread.clone())) {
                bytes += work.bytes();
                batch.push(work);
            } else {
                rest.push_back(work);
            }
        }
        rest.append(&mut inner.waiting);
        inner.waiting = rest;
        if batch.is_empty() {
            return None;
        }
        inner.senders_busy += 1;
        Some(batch)
    }
}

fn log_panic(ended: Result<(), JoinError>) {
    if let Err(why) = ended {
        tracing::error!(%why, "batched commit task panicked");
    }
}

impl<W> Inner<W> {
    fn needs_a_sender(&self) -> bool {
        self.senders_busy == 0 || self.waiting.len() >= EXTRA_SENDER_WAITING_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Work {
        tenant: Tenant,
        thread: ThreadId,
        bytes: u64,
        given_up: bool,
    }

    impl BatchItem for Work {
        fn thread(&self) -> (&Tenant, &ThreadId) {
            (&self.tenant, &self.thread)
        }

        fn bytes(&self) -> u64 {
            self.bytes
        }

        fn is_abandoned(&self) -> bool {
            self.given_up
        }
    }

    /// Two batches may be late.
    fn queue(sender_count_max: usize) -> BatchQueue<Work> {
        BatchQueue::new(sender_count_max, Arc::new(Semaphore::new(2)))
    }

    fn work(thread: &str, bytes: u64) -> Work {
        Work { tenant: Tenant::default(), thread: ThreadId::from(thread), bytes, given_up: false }
    }

    fn names(batch: Option<Vec<Work>>) -> Vec<String> {
        batch.into_iter().flatten().map(|work| work.thread.as_str().to_owned()).collect()
    }

    #[test]
    fn work_queued_while_senders_are_busy_is_batched() {
        let queue = queue(2);
        assert!(queue.push(work("a", 1)), "a sender is free");
        assert!(!queue.push(work("b", 1)), "the task that is about to start takes it along");
        assert_eq!(names(queue.next()), ["a", "b"]);
        assert!(!queue.push(work("c", 1)), "the running task comes back for it");
        assert_eq!(names(queue.next()), ["c"]);
        assert!(queue.next().is_none());
        assert!(queue.push(work("d", 1)), "the sender that found nothing has ended");
    }

    #[test]
    fn a_second_sender_starts_only_for_many() {
        let queue = queue(2);
        queue.push(work("first", 1));
        assert_eq!(names(queue.next()), ["first"], "on the way");
        let begun = |queue: &BatchQueue<Work>, name: &str| {
            (0..EXTRA_SENDER_WAITING_MIN)
                .filter(|index| queue.push(work(&format!("{name}{index}"), 1)))
                .count()
        };
        assert_eq!(begun(&queue, "a"), 1, "the last of them begins another");
        assert_eq!(begun(&queue, "b"), 0, "and there is no third");
        assert_eq!(names(queue.next()).len(), 2 * EXTRA_SENDER_WAITING_MIN);
        queue.push(work("last", 1));
        assert!(queue.next().is_none(), "one of both ends: it is not worth it");
        assert_eq!(names(queue.next()), ["last"], "the other takes it");
        assert!(queue.next().is_none());
    }

    #[tokio::test]
    async fn a_panic_ends_only_its_own_batch() {
        let queue = queue(2);
        let sent = Arc::new(Mutex::new(Vec::new()));
        for thread in ["a", "panics", "a", "b"] {
            queue.push(work(thread, 1));
        }
        let send = |batch: Vec<Work>| {
            let sent = sent.clone();
            async move {
                let names = names(Some(batch));
                assert!(!names.contains(&"panics".to_owned()), "as planted");
                sent.lock().unwrap_or_else(PoisonError::into_inner).extend(names);
            }
        };
        queue.send_batches(send).await;
        assert_eq!(*sent.lock().unwrap_or_else(PoisonError::into_inner), ["a"], "it came behind the panic");
        assert!(queue.push(work("c", 1)), "no sender is left busy");
    }

    #[tokio::test(start_paused = true)]
    async fn late_batches_delay_others_only_beyond_their_limit() {
        let queue = Arc::new(queue(1));
        let answered = Arc::new(Semaphore::new(0));
        let (sent, mut seen) = tokio::sync::mpsc::unbounded_channel();
        for thread in ["late 1", "a"] {
            queue.push(work(thread, BATCH_BYTES_MAX));
        }
        let sender = tokio::spawn({
            let (queue, answered) = (queue.clone(), answered.clone());
            async move {
                queue
                    .send_batches(move |batch: Vec<Work>| {
                        let (sent, answered) = (sent.clone(), answered.clone());
                        async move {
                            for name in names(Some(batch)) {
                                let is_late = name.starts_with("late");
                                sent.send(name).unwrap();
                                if is_late {
                                    answered.acquire().await.unwrap().forget();
                                }
                            }
                        }
                    })
                    .await;
            }
        });
        let began = tokio::time::Instant::now();
        assert_eq!(seen.recv().await.unwrap(), "late 1");
        for thread in ["late 2", "b", "late 3", "c"] {
            queue.push(work(thread, BATCH_BYTES_MAX));
        }
        for name in ["a", "late 2", "b", "late 3"] {
            assert_eq!(seen.recv().await.unwrap(), name);
        }
        assert_eq!(began.elapsed(), LATE_AFTER * 2, "two were waited for, and left");
        tokio::time::advance(LATE_AFTER * 100).await;
        assert!(seen.try_recv().is_err(), "as many are late as may be: the next one is waited for");
        answered.add_permits(3);
        assert_eq!(seen.recv().await.unwrap(), "c");
        sender.await.unwrap();
        assert!(queue.push(work("d", 1)), "no sender is left busy");
    }

    #[test]
    fn work_of_one_thread_is_sent_in_order_and_one_at_a_time() {
        let queue = queue(2);
        for thread in ["a", "b", "a", "c"] {
            queue.push(work(thread, 1));
        }
        assert_eq!(names(queue.next()), ["a", "b", "c"]);
        assert_eq!(names(queue.next()), ["a"]);
    }

    #[test]
    fn a_batch_is_bounded_by_count_and_bytes() {
        let queue = queue(2);
        for index in 0..BATCH_COUNT_MAX + 1 {
            queue.push(work(&index.to_string(), 1));
        }
        assert_eq!(names(queue.next()).len(), BATCH_COUNT_MAX);
        assert!(queue.next().is_none(), "the other sender is on the way");
        assert_eq!(names(queue.next()).len(), 1);
        queue.push(work("long", BATCH_BYTES_MAX + 1));
        queue.push(work("short", 1));
        assert_eq!(names(queue.next()), ["long"], "by itself, however long it is");
        assert_eq!(names(queue.next()), ["short"]);
    }

    #[test]
    fn abandoned_work_is_not_started() {
        let queue = queue(2);
        queue.push(Work { given_up: true, ..work("a", 1) });
        queue.push(work("b", 1));
        assert_eq!(names(queue.next()), ["b"]);
    }
}
