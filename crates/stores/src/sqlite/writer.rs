//! The single writer. Commands that arrive during a sync share the next sync.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::metrics::Histogram;
use engine::store::{StoreError, StoreFailure, StoreMetrics};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::checkpoint::{self, WalGrowth};
use super::errors::{SqliteError, leaves_file_unchanged, to_failure};
use super::file::FailureMark;
use super::lease::SqliteLeases;
use super::write_tx::{PendingEffects, WriteTx};
use super::{OnFatal, SqliteClockFn};
use crate::failure_counters::FailureCounters;

/// Maximum number of commands that share one sync.
const BATCH_COUNT_MAX: usize = 256;
/// Capacity of the command queue. When it is full, callers wait for a slot.
const WAITING_COUNT_MAX: usize = 1_024;

type AnswerFn = Box<dyn FnOnce(Option<&StoreFailure>) + Send>;
/// Receives an error when there is no transaction: it then does nothing and reports the error to the caller.
type PerformFn = Box<dyn FnOnce(Result<&WriteTx<'_>, StoreFailure>) -> Performed + Send>;

/// One write. The caller gets the result once it is committed.
pub(super) struct WriteCommand {
    perform: PerformFn,
}

struct Performed {
    succeeded: bool,
    /// The error from SQLite, if any.
    trouble: Option<StoreFailure>,
    /// Sends the command's result to the caller, or the error if the commit failed.
    answer: AnswerFn,
}

impl WriteCommand {
    pub(super) fn new<T: Send + 'static>(
        work: impl FnOnce(&WriteTx<'_>) -> Result<T, SqliteError> + Send + 'static,
    ) -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (sender, receiver) = oneshot::channel();
        let perform: PerformFn = Box::new(move |tx| {
            let result = match tx {
                Ok(tx) => work(tx).map_err(|SqliteError(refused)| refused),
                Err(trouble) => Err(trouble.into()),
            };
            Performed {
                succeeded: result.is_ok(),
                trouble: match &result {
                    Err(StoreError::Failed(trouble)) => Some(trouble.clone()),
                    Err(
                        StoreError::Fenced
                        | StoreError::Behind
                        | StoreError::Stale
                        | StoreError::Busy(_)
                        | StoreError::Impossible(_)
                        | StoreError::NotFound,
                    )
                    | Ok(_) => None,
                },
                answer: Box::new(move |failed| {
                    // Even a refusal may depend on earlier writes in the same transaction, so it does not count if the
                    // commit failed.
                    let result = failed.map_or(result, |trouble| Err(trouble.clone().into()));
                    // The caller may have stopped waiting; what is committed stays.
                    drop(sender.send(result));
                }),
            }
        });
        (Self { perform }, receiver)
    }
}

/// Set when the contents of the file are unknown. Reopening the file is the only way to find out.
#[derive(Clone)]
pub(super) struct FatalFlag {
    why: Arc<OnceLock<StoreFailure>>,
    mark: FailureMark,
    on_fatal: OnFatal,
}

impl FatalFlag {
    pub(super) fn new(mark: FailureMark, on_fatal: OnFatal) -> Self {
        Self { why: Arc::default(), mark, on_fatal }
    }

    fn cause(&self) -> Option<&StoreFailure> {
        self.why.get()
    }

    pub(super) fn set(&self, why: &str) {
        self.why.get_or_init(|| StoreFailure::Unavailable(format!("{why}; the store must be opened again")));
        self.mark.write();
        (self.on_fatal)(why);
    }
}

#[derive(Default)]
pub(super) struct SqliteCounters {
    commits: AtomicU64,
    syncs: AtomicU64,
    bytes: AtomicU64,
    batches: Histogram,
    sync_us: Histogram,
    failures: FailureCounters,
}

impl SqliteCounters {
    /// Counts the result if it is a failure.
    pub(super) fn count_result<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        self.failures.count_result(&result);
        result
    }

    pub(super) fn counts(&self) -> StoreMetrics {
        StoreMetrics {
            commits: self.commits.load(Ordering::Relaxed),
            syncs: self.syncs.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            batches: self.batches.snapshot(),
            sync_us: self.sync_us.snapshot(),
            failures: self.failures.snapshot(),
        }
    }
}

pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) leases: Arc<SqliteLeases>,
    pub(super) clock: SqliteClockFn,
    pub(super) counters: Arc<SqliteCounters>,
    /// How far the log has grown.
    pub(super) wal_growth: WalGrowth,
    /// The checkpoint thread; none if everything runs on one thread.
    pub(super) checkpoints: Option<SyncSender<()>>,
    pub(super) last_arrival: Cell<i64>,
    /// Number of this opening of the file.
    pub(super) opening: u32,
    /// Once set, nothing more is written.
    pub(super) fatal: FatalFlag,
}

impl Writer {
    pub(super) fn perform(&mut self, batch: Vec<WriteCommand>) {
        if let Some(trouble) = self.fatal.cause() {
            return self.refuse(batch, trouble);
        }
        if let Err(error) = self.connection.execute_batch("BEGIN IMMEDIATE") {
            return self.refuse(batch, &to_failure(&error));
        }
        if let Err(trouble) = self.check_opening() {
            self.roll_back(PendingEffects::default(), Vec::new(), &trouble);
            return self.refuse(batch, &trouble);
        }
        let changes_before = self.connection.total_changes();
        let mut answers = Vec::with_capacity(batch.len());
        let mut effects = PendingEffects::default();
        let mut waiting = batch.into_iter();
        for command in waiting.by_ref() {
            match self.perform_one(command, &mut effects) {
                Ok(answer) => answers.push(answer),
                Err((answer, trouble)) => {
                    // SQLite has rolled back the whole transaction.
                    answers.push(answer);
                    self.roll_back(effects, answers, &trouble);
                    return self.refuse(waiting.collect(), &trouble);
                }
            }
        }
        let changed = self.connection.total_changes() != changes_before;
        let began = Instant::now();
        match self.connection.execute_batch("COMMIT") {
            Ok(()) => {
                self.apply_effects(&effects, changed.then(|| began.elapsed()));
                answers.into_iter().for_each(|answer| answer(None));
                self.checkpoint();
            }
            Err(error) => {
                let trouble = to_failure(&error);
                if !leaves_file_unchanged(&error) {
                    self.fatal.set(&format!("a commit failed: {error}"));
                }
                self.roll_back(effects, answers, &trouble);
            }
        }
    }

    /// The lock file keeps other processes out, unless it is deleted or the file system does not support locks. A
    /// process that opens the file anyway increments the count in it. From then on the leases held here are invalid.
    fn check_opening(&self) -> Result<(), StoreFailure> {
        let failed = |error: rusqlite::Error| to_failure(&error);
        let mut statement = self.connection.prepare_cached("SELECT count FROM openings").map_err(failed)?;
        let last: u32 = statement.query_row([], |row| row.get(0)).map_err(failed)?;
        if last == self.opening {
            return Ok(());
        }
        let why = "another process has opened the store, past its lock";
        self.fatal.set(why);
        Err(StoreFailure::Unavailable(why.into()))
    }

    /// Runs the command in a savepoint of its own, so that a refused command does not affect the others.
    fn perform_one(
        &self,
        command: WriteCommand,
        effects: &mut PendingEffects,
    ) -> Result<AnswerFn, (AnswerFn, StoreFailure)> {
        let savepoint = |sql| self.connection.prepare_cached(sql)?.execute([]);
        if let Err(error) = savepoint("SAVEPOINT command") {
            let trouble = to_failure(&error);
            return Err(((command.perform)(Err(trouble.clone())).answer, trouble));
        }
        let now = (self.clock)();
        let tx = WriteTx::new(&self.connection, &self.leases, now, &self.last_arrival);
        let performed = (command.perform)(Ok(&tx));
        let own = tx.into_effects();
        let ended = if performed.succeeded {
            savepoint("RELEASE command")
        } else {
            self.revoke_leases(&own);
            savepoint("ROLLBACK TO command").and_then(|_| savepoint("RELEASE command"))
        };
        if performed.succeeded {
            effects.commits += own.commits;
            effects.bytes += own.bytes;
            effects.leased.extend(own.leased);
            effects.released.extend(own.released);
            effects.ended.extend(own.ended);
        }
        match ended {
            Ok(_) => {
                performed.trouble.iter().for_each(|trouble| self.counters.failures.count(trouble, 1));
                Ok(performed.answer)
            }
            // The savepoint was lost with the transaction; the command's own error is the reason.
            Err(error) => Err((performed.answer, performed.trouble.unwrap_or_else(|| to_failure(&error)))),
        }
    }

    fn apply_effects(&self, effects: &PendingEffects, synced_in: Option<Duration>) {
        let mut held = self.leases.lock();
        effects.released.iter().for_each(|(row, stored_epoch)| held.release(*row, *stored_epoch));
        effects.ended.iter().for_each(|row| held.forget(*row));
        drop(held);
        self.counters.commits.fetch_add(effects.commits, Ordering::Relaxed);
        self.counters.bytes.fetch_add(effects.bytes, Ordering::Relaxed);
        if let Some(took) = synced_in {
            self.counters.syncs.fetch_add(1, Ordering::Relaxed);
            self.counters.sync_us.record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        }
        if effects.commits > 0 {
            self.counters.batches.record(effects.commits);
        }
    }

    fn roll_back(&self, effects: PendingEffects, answers: Vec<AnswerFn>, trouble: &StoreFailure) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            self.fatal.set(&format!("a transaction cannot be rolled back: {error}"));
        }
        self.revoke_leases(&effects);
        self.counters.failures.count(trouble, answers.len());
        answers.into_iter().for_each(|answer| answer(Some(trouble)));
    }

    /// Answers commands that were not started.
    fn refuse(&self, batch: Vec<WriteCommand>, trouble: &StoreFailure) {
        self.counters.failures.count(trouble, batch.len());
        for command in batch {
            ((command.perform)(Err(trouble.clone())).answer)(None);
        }
    }

    fn revoke_leases(&self, effects: &PendingEffects) {
        let mut held = self.leases.lock();
        effects.leased.iter().for_each(|row| held.forget(*row));
    }

    fn checkpoint(&mut self) {
        if !self.wal_growth.is_due() {
            return;
        }
        match &self.checkpoints {
            // A checkpoint in progress includes this part of the log too, or else the next one does.
            Some(elsewhere) if !self.wal_growth.is_overdue() => drop(elsewhere.try_send(())),
            Some(_) | None => {
                if let Err(error) = checkpoint::checkpoint_once(&self.connection)
                    && !leaves_file_unchanged(&error)
                {
                    self.fatal.set(&format!("a checkpoint failed: {error}"));
                }
            }
        }
    }
}

/// How commands reach the writer.
pub(super) enum WriterHandle {
    Thread {
        commands: Option<mpsc::Sender<WriteCommand>>,
        thread: Option<JoinHandle<()>>,
    },
    /// On the caller's thread: only the order of the calls determines the order of the writes.
    Inline(Box<Mutex<Writer>>),
}

impl WriterHandle {
    pub(super) fn thread(mut writer: Writer) -> std::io::Result<Self> {
        let (sender, mut receiver) = mpsc::channel::<WriteCommand>(WAITING_COUNT_MAX);
        let fatal = writer.fatal.clone();
        let work = move || {
            while let Some(first) = receiver.blocking_recv() {
                let mut batch = vec![first];
                while batch.len() < BATCH_COUNT_MAX
                    && let Ok(next) = receiver.try_recv()
                {
                    batch.push(next);
                }
                writer.perform(batch);
            }
        };
        let guarded = move || {
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                fatal.set("the writer panicked");
            }
        };
        let thread = std::thread::Builder::new().name("sqlite-writer".into()).spawn(guarded)?;
        Ok(Self::Thread { commands: Some(sender), thread: Some(thread) })
    }

    pub(super) fn inline(writer: Writer) -> Self {
        Self::Inline(Box::new(Mutex::new(writer)))
    }

    /// Writes everything that was sent, then closes the file.
    pub(super) fn close(&mut self) {
        if let Self::Thread { commands, thread } = self {
            commands.take();
            if let Some(thread) = thread.take()
                && thread.join().is_err()
            {
                tracing::error!("the writer panicked");
            }
        }
    }

    /// Sends a command whose result no caller awaits.
    pub(super) fn send_detached(&self, command: WriteCommand) {
        match self {
            Self::Thread { commands: Some(commands), .. } => {
                if let Err(mpsc::error::TrySendError::Full(command)) = commands.try_send(command) {
                    // The caller cannot wait for a slot in the queue, and the command must not be lost.
                    let commands = commands.clone();
                    std::thread::spawn(move || commands.blocking_send(command));
                }
            }
            Self::Thread { commands: None, .. } => {}
            Self::Inline(writer) => {
                writer.lock().unwrap_or_else(PoisonError::into_inner).perform(vec![command]);
            }
        }
    }

    pub(super) async fn send<T: Send + 'static>(
        &self,
        work: impl FnOnce(&WriteTx<'_>) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (command, answer) = WriteCommand::new(work);
        match self {
            Self::Thread { commands: Some(commands), .. } => {
                if commands.send(command).await.is_err() {
                    return Err(stopped());
                }
            }
            Self::Thread { commands: None, .. } => return Err(stopped()),
            Self::Inline(writer) => {
                writer.lock().unwrap_or_else(PoisonError::into_inner).perform(vec![command]);
            }
        }
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }
}

fn stopped() -> StoreError {
    StoreFailure::Unavailable("the writer has stopped".into()).into()
}
