//! What everything in a world shares: its book, its disk, its clock, and the processes that come and go.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::clock::{Clock as _, RuntimeClock};
use machine::Timestamp;
use tokio::sync::Notify;

use super::book::Book;
use super::disk::Disk;
use super::trouble::{Fate, Kind, Plan, Side, plan};
use crate::judge::invariant::{Checked, Violation};
use crate::play::tape::Tape;

pub struct WorldContext {
    book: Mutex<Book>,
    pub(crate) disk: Disk,
    pub(crate) clock: RuntimeClock,
    /// Notified when a process is lost and when a violation is found.
    bell: Notify,
}

impl WorldContext {
    pub(crate) fn new(book: Book, disk: Disk, clock: RuntimeClock) -> Self {
        Self { book: Mutex::new(book), disk, clock, bell: Notify::new() }
    }

    /// Must not be held across an await: everything in a world happens on one thread.
    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn draw<T>(&self, draw: impl FnOnce(&mut Tape) -> T) -> T {
        draw(&mut self.book().tape)
    }

    /// Builds the line while the book is unlocked, because the line may look something up there.
    pub(crate) fn tell(&self, line: impl FnOnce() -> String) {
        if self.book().diary.is_some() {
            let (now, line) = (self.now(), line());
            self.book().tell(now, || line);
        }
    }

    pub(crate) fn count(&self, table: &'static str, what: &'static str) {
        self.book().tally.count(table, what);
    }

    /// Keeps the first breach. The world ends there.
    pub(crate) fn check(&self, checked: Checked) {
        if let Err(violation) = checked {
            self.object(violation);
        }
    }

    pub(crate) fn object(&self, violation: Violation) {
        let now = self.now();
        let mut book = self.book();
        book.tell(now, || format!("BREACH {violation}"));
        book.violation.get_or_insert(violation);
        drop(book);
        self.bell.notify_one();
    }

    pub(crate) async fn rung(&self) {
        self.bell.notified().await;
    }

    pub(crate) fn plan(&self, life: &Life, kind: Kind) -> Plan {
        let mut book = self.book();
        let temper = book.temper;
        let mut plan = plan(&mut book.tape, &temper, kind);
        if kind.is_commit() {
            let commit = life.commit_count.fetch_add(1, Ordering::Relaxed) + 1;
            if let Some((at, side)) = life.lost_at
                && at == commit
                && !book.calm
            {
                plan.fate = Fate::Lost(side);
            }
        }
        plan
    }

    /// The process is lost. The world stops whatever of it still runs; until then that does nothing.
    pub(crate) fn lose(&self, life: &Life, how: &'static str) {
        if !life.dead.swap(true, Ordering::Relaxed) {
            self.count("process", how);
            self.tell(|| format!("process {} is lost {how}", life.number));
            self.bell.notify_one();
        }
    }
}

/// One process, from its start until it is lost.
pub struct Life {
    pub(crate) number: u64,
    dead: AtomicBool,
    /// Another process has opened the store meanwhile.
    fenced: AtomicBool,
    commit_count: AtomicU64,
    /// The commit around which it is lost.
    lost_at: Option<(u64, Side)>,
}

impl Life {
    pub(crate) const fn new(number: u64, lost_at: Option<(u64, Side)>) -> Self {
        Self {
            number,
            dead: AtomicBool::new(false),
            fenced: AtomicBool::new(false),
            commit_count: AtomicU64::new(0),
            lost_at,
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::Relaxed)
    }

    pub(crate) fn fence(&self) {
        self.fenced.store(true, Ordering::Relaxed);
    }

    pub(crate) fn commit_count(&self) -> u64 {
        self.commit_count.load(Ordering::Relaxed)
    }

    /// Never returns in a process that is lost.
    pub(crate) async fn alive(&self) {
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }

    pub(crate) async fn pause(&self, milliseconds: u64) {
        if milliseconds > 0 {
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        }
        self.alive().await;
    }
}
