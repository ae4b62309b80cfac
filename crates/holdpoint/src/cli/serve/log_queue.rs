//! Queues log lines for standard error. A separate thread writes them, so that a pipe without a reader blocks no
//! request. Lines that do not fit into the queue are dropped and counted.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// Total size of the queued lines.
const QUEUE_BYTES_MAX: usize = 256 * 1024;
/// How long a clean shutdown waits for the last lines to be written.
const FLUSH_TIME: Duration = Duration::from_secs(1);

/// Each write is one line. Clones share the queue.
#[derive(Clone)]
pub(in crate::cli) struct LogQueue(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    /// A line was added, or the writer has written what it took.
    changed: Condvar,
    /// Since the start.
    dropped: Arc<AtomicU64>,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Lines dropped since the last line that reported dropped lines.
    unreported: u64,
    /// The writer has taken a line and not written it yet.
    is_writing: bool,
}

enum Next {
    Line(Vec<u8>),
    /// The queue is empty, and this many lines were dropped before.
    Dropped(u64),
}

impl LogQueue {
    /// `dropped_line` formats the line that reports a number of dropped lines.
    pub(super) fn start(
        mut sink: impl Write + Send + 'static,
        dropped_line: fn(u64) -> String,
    ) -> io::Result<Self> {
        let log = Self(Arc::new(Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            dropped: Arc::default(),
        }));
        let shared = log.0.clone();
        std::thread::Builder::new().name("log".to_owned()).spawn(move || {
            loop {
                let line = match shared.next() {
                    Next::Line(line) => line,
                    Next::Dropped(count) => dropped_line(count).into_bytes(),
                };
                // A closed pipe must not stop the server.
                let _ = sink.write_all(&line);
                shared.written();
            }
        })?;
        Ok(log)
    }

    /// Lines dropped since the start.
    pub(super) fn dropped(&self) -> Arc<AtomicU64> {
        self.0.dropped.clone()
    }

    /// Adds a line that is never dropped.
    pub(super) fn write_always(&self, mut line: String) {
        line.push('\n');
        self.0.add(line.into_bytes(), true);
    }

    /// Waits until every line is written, but only for `FLUSH_TIME` if the reader does not read.
    pub(in crate::cli) fn flush(&self) {
        let until = Instant::now() + FLUSH_TIME;
        let mut queue = self.0.lock();
        while queue.is_writing || !queue.lines.is_empty() || queue.unreported > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            (queue, _) = self.0.changed.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, line: Vec<u8>, always: bool) {
        let mut queue = self.lock();
        // After a loss, accept nothing until the loss is reported, so that the report appears where the lines are
        // missing.
        let fits = queue.unreported == 0 && queue.bytes + line.len() <= QUEUE_BYTES_MAX;
        if fits || always {
            queue.bytes += line.len();
            queue.lines.push_back(line);
        } else {
            queue.unreported += 1;
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        drop(queue);
        self.changed.notify_all();
    }

    fn next(&self) -> Next {
        let mut queue = self.lock();
        loop {
            if let Some(line) = queue.lines.pop_front() {
                queue.bytes -= line.len();
                queue.is_writing = true;
                return Next::Line(line);
            }
            if queue.unreported > 0 {
                queue.is_writing = true;
                return Next::Dropped(std::mem::take(&mut queue.unreported));
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn written(&self) {
        self.lock().is_writing = false;
        self.changed.notify_all();
    }
}

impl Write for LogQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.add(line.to_vec(), false);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LogQueue {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    use super::*;

    /// Takes a line only when the test receives it.
    struct Pipe(SyncSender<String>);

    impl Write for Pipe {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let text = String::from_utf8(line.to_vec()).expect("text");
            self.0.send(text).map_err(io::Error::other)?;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn queue() -> (LogQueue, Receiver<String>) {
        let (sender, lines) = sync_channel(0);
        let log = LogQueue::start(Pipe(sender), |count| format!("{count} dropped")).expect("a thread");
        (log, lines)
    }

    #[test]
    fn an_unread_pipe_delays_nothing_and_the_loss_is_reported_where_the_lines_are_missing() {
        let (mut log, lines) = queue();
        let line = "x".repeat(QUEUE_BYTES_MAX / 4);
        for _ in 0..10 {
            log.write_all(line.as_bytes()).expect("never refused");
        }
        log.write_always("kept".to_owned());
        let dropped = log.dropped().load(Ordering::Relaxed);
        assert!((5..=6).contains(&dropped), "four wait, one may be on its way: {dropped}");
        for _ in dropped..10 {
            assert_eq!(lines.recv().as_ref(), Ok(&line));
        }
        assert_eq!(lines.recv().as_deref(), Ok("kept\n"));
        assert_eq!(lines.recv(), Ok(format!("{dropped} dropped")));
        // The report was received, so there is room again.
        log.write_all(b"after").expect("never refused");
        assert_eq!(lines.recv().as_deref(), Ok("after"));
        log.flush();
        assert_eq!(log.dropped().load(Ordering::Relaxed), dropped);
    }

    #[test]
    fn an_exit_does_not_wait_for_a_reader_that_does_not_read() {
        let (mut log, lines) = queue();
        log.write_all(b"unread").expect("never refused");
        log.flush();
        assert_eq!(lines.recv().as_deref(), Ok("unread"));
    }
}
