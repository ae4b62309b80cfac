//! One child process from start to kill: sends it commands and reads its output. Also the approver that decides its
//! calls.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::{END_WITHIN, proof_failed, verdict};
use crate::cli::problem::Problem;
use crate::cli::scratch::Scratch;

/// How many runs are in progress at the same time.
const RUNS_MAX: usize = 6;
/// A process whose tool does not act within this time is killed anyway.
const ACT_WITHIN: Duration = Duration::from_secs(5);

/// A call, by its run and its id.
pub(super) type CallKey = (String, String);

/// When a process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KillPlan {
    /// This long after it is ready.
    AtInstant(Duration),
    /// When its tool has acted, but has not answered yet.
    AfterAnAct,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessEnd {
    Killed,
    KilledAfterAnAct,
    /// Every run that was started has ended.
    AllEnded,
}

/// What the approver knows. It outlives every process.
#[derive(Default)]
pub(super) struct Approver {
    unended: BTreeSet<String>,
    /// Suspensions of the kind approval, with their calls.
    asked: BTreeMap<String, CallKey>,
    /// Calls whose approval was acknowledged.
    approved: BTreeSet<CallKey>,
    /// What the ledger said about each call in doubt, by suspension.
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
    /// Runs that the process found in the store before it was ready.
    found: BTreeSet<String>,
    /// Runs that were posted to the process and have not begun yet.
    posted_count: usize,
    /// Suspensions that the process was sent an answer to.
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
                // Ignore a line that the kill has cut off.
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

    /// Exchanges lines with the process until it is killed or every run has ended.
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

    /// Keeps `RUNS_MAX` runs in progress.
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

    /// Answers each suspension once per process, because it is unknown whether the previous process received the
    /// answer.
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
        // The process that acted is dead, so the ledger's answer is final.
        let happened = match approver.doubts.get(suspension) {
            Some(happened) => *happened,
            None => verdict::ledger(self.scratch)?.contains_key(&(run, call)),
        };
        approver.doubts.insert(suspension.to_owned(), happened);
        self.send_line(&format!("{} {suspension}", if happened { "happened" } else { "repeat" }));
        Ok(())
    }

    fn send_line(&mut self, line: &str) {
        // If the process can no longer read, the next check finds it dead.
        let _ = writeln!(self.stdin, "{line}");
    }

    /// Lines that the process printed before it died still count.
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
