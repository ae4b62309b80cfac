//! One process from its start to its end: told what to do, listened to, and killed. And the person who tells it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::{END_WITHIN, proof_failed, verdict};
use crate::cli::problem::Problem;
use crate::cli::scratch::Scratch;

/// Runs that are under way together.
const RUNS_MAX: usize = 6;
/// A process that does nothing for so long is killed all the same.
const ACT_WITHIN: Duration = Duration::from_secs(5);

/// A call, by its run and its id.
pub(super) type CallKey = (String, String);

/// When a process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KillPlan {
    /// So long after it is ready.
    AtInstant(Duration),
    /// When its tool has acted, and has not answered yet.
    AfterAnAct,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessEnd {
    Killed,
    KilledAfterAnAct,
    /// Everything that was begun has ended.
    AllEnded,
}

/// What the person who approves knows. It outlives every process.
#[derive(Default)]
pub(super) struct Approver {
    /// Unended runs.
    unended: BTreeSet<String>,
    /// Suspensions of the kind approval, with their calls.
    asked: BTreeMap<String, CallKey>,
    /// Calls whose approval was acknowledged.
    approved: BTreeSet<CallKey>,
    /// What the ledger said of each call in doubt, by suspension.
    doubts: BTreeMap<String, bool>,
}

impl Approver {
    pub(super) const fn approved(&self) -> &BTreeSet<CallKey> {
        &self.approved
    }

    /// How many calls in doubt had happened, and how many had not.
    pub(super) fn doubts(&self) -> (u64, u64) {
        let happened = self.doubts.values().filter(|happened| **happened).count();
        (happened as u64, (self.doubts.len() - happened) as u64)
    }
}

pub(super) struct ChildProcess<'s> {
    scratch: &'s Scratch,
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    is_ready: bool,
    /// Runs that it has found, before it was ready.
    found: BTreeSet<String>,
    /// Runs that it was told to begin, and has not begun yet.
    posted_count: usize,
    /// Suspensions that it was told about.
    answered: BTreeSet<String>,
}

impl Drop for ChildProcess<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl<'s> ChildProcess<'s> {
    pub(super) fn start(scratch: &'s Scratch, lie: bool) -> Result<Self, Problem> {
        let start = || -> std::io::Result<(Child, ChildStdin, Receiver<String>)> {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("prove").arg("--child").arg(scratch.path()).args(lie.then_some("--lie"));
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
                return Err(std::io::Error::other("it has no pipes"));
            };
            let (sender, lines) = mpsc::channel();
            std::thread::spawn(move || {
                // A line that was cut off by the kill was not said.
                let mut output = BufReader::new(stdout);
                let mut line = String::new();
                while output.read_line(&mut line).is_ok_and(|count| count > 0) && line.ends_with('\n') {
                    if sender.send(line.trim_end().to_owned()).is_err() {
                        return;
                    }
                    line.clear();
                }
            });
            Ok((child, stdin, lines))
        };
        let (child, stdin, lines) =
            start().map_err(|why| proof_failed(format!("a process cannot be started: {why}")))?;
        Ok(Self {
            scratch,
            child,
            stdin,
            lines,
            is_ready: false,
            found: BTreeSet::new(),
            posted_count: 0,
            answered: BTreeSet::new(),
        })
    }

    /// Speaks and listens until the process is killed, or everything is over.
    pub(super) fn drive(&mut self, approver: &mut Approver, plan: KillPlan) -> Result<ProcessEnd, Problem> {
        let mut kill_at = Instant::now() + END_WITHIN;
        loop {
            let line = match self.lines.recv_timeout(kill_at.saturating_duration_since(Instant::now())) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => {
                    self.kill(approver)?;
                    return Ok(ProcessEnd::Killed);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let how =
                        self.child.wait().map_or_else(|why| why.to_string(), |status| status.to_string());
                    return Err(proof_failed(format!("a process ended by itself: {how}")));
                }
            };
            let has_acted = line.starts_with("acted ");
            if line == "ready" {
                kill_at = Instant::now()
                    + match plan {
                        KillPlan::AtInstant(instant) => instant,
                        KillPlan::AfterAnAct => ACT_WITHIN,
                        KillPlan::Never => END_WITHIN,
                    };
            }
            self.process_line(approver, &line)?;
            match plan {
                KillPlan::AfterAnAct if has_acted => {
                    self.kill(approver)?;
                    return Ok(ProcessEnd::KilledAfterAnAct);
                }
                KillPlan::Never if self.is_ready && approver.unended.is_empty() => {
                    return Ok(ProcessEnd::AllEnded);
                }
                KillPlan::AtInstant(_) | KillPlan::AfterAnAct if self.is_ready => {
                    self.start_runs(approver.unended.len())
                }
                KillPlan::AtInstant(_) | KillPlan::AfterAnAct | KillPlan::Never => {}
            }
        }
    }

    /// There is always something to do.
    fn start_runs(&mut self, open_count: usize) {
        for _ in open_count + self.posted_count..RUNS_MAX {
            self.posted_count += 1;
            self.send_line("post");
        }
    }

    fn process_line(&mut self, approver: &mut Approver, line: &str) -> Result<(), Problem> {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["found", run] => {
                self.found.insert((*run).to_owned());
            }
            ["ready"] => {
                self.is_ready = true;
                approver.unended = std::mem::take(&mut self.found);
            }
            ["begun", run] => {
                self.posted_count = self.posted_count.saturating_sub(1);
                approver.unended.insert((*run).to_owned());
            }
            ["ended", run] => {
                approver.unended.remove(*run);
            }
            ["held", kind, suspension, run, call] => {
                self.answer(approver, kind, suspension, (*run).to_owned(), (*call).to_owned())?;
            }
            ["accepted", suspension] => {
                approver.approved.extend(approver.asked.get(*suspension).cloned());
            }
            ["acted", _, _] => {}
            _ => return Err(proof_failed(format!("a process says {line:?}"))),
        }
        Ok(())
    }

    /// Once to each process: whether the one before has heard it, nobody knows.
    fn answer(
        &mut self,
        approver: &mut Approver,
        kind: &str,
        suspension: &str,
        run: String,
        call: String,
    ) -> Result<(), Problem> {
        if !self.answered.insert(suspension.to_owned()) {
            return Ok(());
        }
        if kind == "approval" {
            approver.asked.insert(suspension.to_owned(), (run, call));
            self.send_line(&format!("approve {suspension}"));
            return Ok(());
        }
        // Whoever acted is dead, so the ledger says for good whether it happened.
        let happened = match approver.doubts.get(suspension) {
            Some(happened) => *happened,
            None => verdict::ledger(self.scratch)?.contains_key(&(run, call)),
        };
        approver.doubts.insert(suspension.to_owned(), happened);
        self.send_line(&format!("{} {suspension}", if happened { "happened" } else { "repeat" }));
        Ok(())
    }

    fn send_line(&mut self, line: &str) {
        // A process that cannot hear any more is about to be found dead.
        let _ = writeln!(self.stdin, "{line}");
    }

    /// What it managed to say before it died counts.
    fn kill(&mut self, approver: &mut Approver) -> Result<(), Problem> {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed.map_err(|why| proof_failed(format!("a process cannot be killed: {why}")))?;
        while let Ok(line) = self.lines.recv() {
            if !line.starts_with("held ") {
                self.process_line(approver, &line)?;
            }
        }
        Ok(())
    }
}
