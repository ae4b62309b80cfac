//! A line of work that waits for a free lane. What stands in it when a lane is free goes together: nobody waits for
//! company while nothing is on the way, and nobody who came meanwhile goes by themselves.

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::store::Tenant;
use machine::id::ThreadId;
use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// More would make the first of them wait for the last.
const TOGETHER_MAX: usize = 64;
const BYTES_MAX: u64 = 4 * 1024 * 1024;
/// So many have to wait before a lane is opened beside a busy one. A statement costs by itself what three commits in it
/// do: fewer lose less by waiting for the busy lane than everybody loses by the work of another statement.
const WORTH_A_LANE: usize = 16;

/// What takes longer, a hundred times as long as it should, holds up nobody: its connection may lead nowhere any more.
const PATIENCE: Duration = Duration::from_millis(250);
/// What may stand in a line.
pub(super) trait Waiting {
    /// Only one goes at a time of each thread.
    fn thread(&self) -> (&Tenant, &ThreadId);
    fn bytes(&self) -> u64;
    /// Whoever asked for it is gone: it is not begun.
    fn is_given_up(&self) -> bool;
}

pub(super) struct Line<W> {
    inner: Mutex<Inner<W>>,
    /// Statements that the database works on at once; the next ones gather meanwhile.
    lane_count: usize,
    /// Places for what is late, beside the lanes: each has a connection.
    late: Arc<Semaphore>,
}

struct Inner<W> {
    waiting: VecDeque<W>,
    lanes_busy: usize,
}

impl<W> Line<W> {
    pub(super) fn new(lane_count: usize, late: Arc<Semaphore>) -> Self {
        let inner = Mutex::new(Inner { waiting: VecDeque::new(), lanes_busy: 0 });
        Self { inner, lane_count, late }
    }
}

impl<W: Waiting> Line<W> {
    fn lock(&self) -> MutexGuard<'_, Inner<W>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the caller has to begin a lane ([`Line::work_off`]).
    pub(super) fn join(&self, work: W) -> bool {
        let mut inner = self.lock();
        inner.waiting.push_back(work);
        let begins = inner.lanes_busy < self.lane_count && inner.is_worth_a_lane();
        if begins {
            inner.lanes_busy += 1;
        }
        begins
    }

    /// A lane: sends what goes next until there is nothing. A panic ends what it happened in, and not the lane: whoever
    /// stands behind it would wait for ever. Nor do they wait for what is late: the lane leaves it to itself.
    pub(super) async fn work_off<F>(&self, send: impl Fn(Vec<W>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        while let Some(together) = self.next() {
            let mut sent = tokio::spawn(send(together));
            if let Ok(ended) = tokio::time::timeout(PATIENCE, &mut sent).await {
                note(ended);
                continue;
            }
            tokio::select! {
                ended = &mut sent => note(ended),
                place = self.late.clone().acquire_owned() => {
                    tokio::spawn(async move {
                        note(sent.await);
                        drop(place);
                    });
                }
            }
        }
    }

    /// What goes next; none ends the lane.
    fn next(&self) -> Option<Vec<W>> {
        let mut inner = self.lock();
        inner.lanes_busy -= 1;
        if !inner.is_worth_a_lane() {
            return None;
        }
        let (mut together, mut behind) = (Vec::new(), VecDeque::new());
        let mut threads: BTreeSet<(Tenant, ThreadId)> = BTreeSet::new();
        let mut bytes = 0;
        while let Some(work) = inner.waiting.pop_front() {
            if work.is_given_up() {
                continue;
            }
            let (tenant, thread) = work.thread();
            let full = together.len() >= TOGETHER_MAX || bytes + work.bytes() > BYTES_MAX;
            if !together.is_empty() && full {
                behind.push_back(work);
                break;
            }
            if threads.insert((tenant.clone(), thread.clone())) {
                bytes += work.bytes();
                together.push(work);
            } else {
                behind.push_back(work);
            }
        }
        behind.append(&mut inner.waiting);
        inner.waiting = behind;
        if together.is_empty() {
            return None;
        }
        inner.lanes_busy += 1;
        Some(together)
    }
}

fn note(ended: Result<(), JoinError>) {
    if let Err(why) = ended {
        tracing::error!(%why, "commits that went together came to nothing");
    }
}

impl<W> Inner<W> {
    fn is_worth_a_lane(&self) -> bool {
        self.lanes_busy == 0 || self.waiting.len() >= WORTH_A_LANE
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

    impl Waiting for Work {
        fn thread(&self) -> (&Tenant, &ThreadId) {
            (&self.tenant, &self.thread)
        }

        fn bytes(&self) -> u64 {
            self.bytes
        }

        fn is_given_up(&self) -> bool {
            self.given_up
        }
    }

    /// Two may be late.
    fn line(lane_count: usize) -> Line<Work> {
        Line::new(lane_count, Arc::new(Semaphore::new(2)))
    }

    fn work(thread: &str, bytes: u64) -> Work {
        Work { tenant: Tenant::default(), thread: ThreadId::from(thread), bytes, given_up: false }
    }

    fn names(together: Option<Vec<Work>>) -> Vec<String> {
        together.into_iter().flatten().map(|work| work.thread.as_str().to_owned()).collect()
    }

    #[test]
    fn what_came_while_the_lanes_were_busy_goes_together() {
        let line = line(2);
        assert!(line.join(work("a", 1)), "a lane is free");
        assert!(!line.join(work("b", 1)), "whoever is about to go takes it along");
        assert_eq!(names(line.next()), ["a", "b"]);
        assert!(!line.join(work("c", 1)), "whoever is on the way comes back for it");
        assert_eq!(names(line.next()), ["c"]);
        assert!(line.next().is_none());
        assert!(line.join(work("d", 1)), "the lane that found nothing has ended");
    }

    #[test]
    fn a_lane_beside_a_busy_one_is_for_many() {
        let line = line(2);
        line.join(work("first", 1));
        assert_eq!(names(line.next()), ["first"], "on the way");
        let begun = |line: &Line<Work>, name: &str| {
            (0..WORTH_A_LANE).filter(|index| line.join(work(&format!("{name}{index}"), 1))).count()
        };
        assert_eq!(begun(&line, "a"), 1, "the last of them begins another");
        assert_eq!(begun(&line, "b"), 0, "and there is no third");
        assert_eq!(names(line.next()).len(), 2 * WORTH_A_LANE);
        line.join(work("last", 1));
        assert!(line.next().is_none(), "one of both ends: it is not worth it");
        assert_eq!(names(line.next()), ["last"], "the other takes it");
        assert!(line.next().is_none());
    }

    #[tokio::test]
    async fn a_panic_ends_only_what_it_happened_in() {
        let line = line(2);
        let sent = Arc::new(Mutex::new(Vec::new()));
        for thread in ["a", "panics", "a", "b"] {
            line.join(work(thread, 1));
        }
        let send = |together: Vec<Work>| {
            let sent = sent.clone();
            async move {
                let names = names(Some(together));
                assert!(!names.contains(&"panics".to_owned()), "as planted");
                sent.lock().unwrap_or_else(PoisonError::into_inner).extend(names);
            }
        };
        line.work_off(send).await;
        assert_eq!(*sent.lock().unwrap_or_else(PoisonError::into_inner), ["a"], "it came behind the panic");
        assert!(line.join(work("c", 1)), "no lane is left busy");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_late_holds_up_nobody_but_those_behind_too_many_of_it() {
        let line = Arc::new(line(1));
        let answered = Arc::new(Semaphore::new(0));
        let (sent, mut seen) = tokio::sync::mpsc::unbounded_channel();
        for thread in ["late 1", "a"] {
            line.join(work(thread, BYTES_MAX));
        }
        let lane = tokio::spawn({
            let (line, answered) = (line.clone(), answered.clone());
            async move {
                line.work_off(move |together: Vec<Work>| {
                    let (sent, answered) = (sent.clone(), answered.clone());
                    async move {
                        for name in names(Some(together)) {
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
            line.join(work(thread, BYTES_MAX));
        }
        for name in ["a", "late 2", "b", "late 3"] {
            assert_eq!(seen.recv().await.unwrap(), name);
        }
        assert_eq!(began.elapsed(), PATIENCE * 2, "two were waited for, and left");
        tokio::time::advance(PATIENCE * 100).await;
        assert!(seen.try_recv().is_err(), "as many are late as may be: the next one is waited for");
        answered.add_permits(3);
        assert_eq!(seen.recv().await.unwrap(), "c");
        lane.await.unwrap();
        assert!(line.join(work("d", 1)), "no lane is left busy");
    }

    #[test]
    fn two_of_one_thread_go_one_after_the_other_and_in_their_order() {
        let line = line(2);
        for thread in ["a", "b", "a", "c"] {
            line.join(work(thread, 1));
        }
        assert_eq!(names(line.next()), ["a", "b", "c"]);
        assert_eq!(names(line.next()), ["a"]);
    }

    #[test]
    fn not_more_go_together_than_the_first_of_them_can_wait_for() {
        let line = line(2);
        for index in 0..TOGETHER_MAX + 1 {
            line.join(work(&index.to_string(), 1));
        }
        assert_eq!(names(line.next()).len(), TOGETHER_MAX);
        assert!(line.next().is_none(), "the other lane is on the way");
        assert_eq!(names(line.next()).len(), 1);
        line.join(work("long", BYTES_MAX + 1));
        line.join(work("short", 1));
        assert_eq!(names(line.next()), ["long"], "by itself, however long it is");
        assert_eq!(names(line.next()), ["short"]);
    }

    #[test]
    fn what_nobody_waits_for_any_more_is_not_begun() {
        let line = line(2);
        line.join(Work { given_up: true, ..work("a", 1) });
        line.join(work("b", 1));
        assert_eq!(names(line.next()), ["b"]);
    }
}
