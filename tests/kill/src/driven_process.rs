//! Drives one process from its start until it ends or is killed.

use std::io;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use machine::id::CallId;
use machine::status::CallStatus;

use crate::judge::{Rule, Violation};
use crate::node::Node;
use crate::people::People;
use crate::process::{Output, Process, ProcessOutput};
use crate::wire::{Boundary, Command, Line, Request, Response};

/// No world needs this long; one that does is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// A waiting run leaves memory within this time. If it does not, the process is killed with the run still in memory.
const REST_WITHIN: Duration = Duration::from_millis(50);
/// A tool's answer is stored well within this time, whatever its sibling calls do.
const STORED_WITHIN: Duration = Duration::from_secs(10);

/// When the process is killed, unless everything is over earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillPlan {
    Spared,
    /// At its nth boundary.
    AtBoundary(u64),
    AfterTime(Duration),
}

/// How a process ended, and what it was doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// The story was complete.
    Over,
    Killed(KillPlace),
    /// It violated a rule.
    Wrong(Violation),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KillPlace {
    At(Boundary),
    AnyInstant,
    /// Nothing was executing and no answer was outstanding.
    AtRest,
}

/// An attempt of a call.
type AnsweredAttempt = (CallId, u32);

pub struct DrivenProcess {
    process: Process,
    lines: Receiver<ProcessOutput>,
    began: Instant,
    /// The answers that tools gave, each with its time.
    answers: Vec<(Instant, AnsweredAttempt)>,
}

impl DrivenProcess {
    pub fn begin(program: &Path, node: &Node, complaints: &Path) -> io::Result<Self> {
        let began = Instant::now();
        let (listener, lines) = mpsc::channel();
        let process = Process::start(program, node, complaints, listener)?;
        Ok(Self { process, lines, began, answers: Vec::new() })
    }

    /// Exchanges lines with the process until it is killed or the story is over. Returns `None` if the process is
    /// alive but nothing can happen until time passes or another process claims the run.
    pub fn drive(&mut self, people: &mut People, kill_plan: KillPlan) -> Option<ProcessEnd> {
        let kill_at = match kill_plan {
            KillPlan::AfterTime(after) => Some(self.began + after),
            KillPlan::Spared | KillPlan::AtBoundary(_) => None,
        };
        let mut rest_at = None;
        loop {
            let stuck_at = self.began + STUCK_AFTER;
            let late_at = self.oldest_unstored(people).map(|(answered_at, _)| answered_at + STORED_WITHIN);
            let wait_until = [kill_at, late_at, rest_at].into_iter().flatten().fold(stuck_at, Instant::min);
            let line = match self.lines.recv_timeout(wait_until.saturating_duration_since(Instant::now())) {
                Ok(ProcessOutput { output: Output::Line(line), .. }) => line,
                // A broken line before any kill is the process's own fault.
                Ok(ProcessOutput { output: Output::Malformed(error), .. }) => {
                    return Some(wrong(Rule::NoErrorIsReported, format!("malformed line: {error}")));
                }
                Ok(ProcessOutput { output: Output::Closed, .. }) | Err(RecvTimeoutError::Disconnected) => {
                    let what = format!("the process ended by itself: {}", self.process.wait());
                    return Some(wrong(Rule::NoErrorIsReported, what));
                }
                Err(RecvTimeoutError::Timeout) if kill_at.is_some_and(|at| at <= Instant::now()) => {
                    return Some(self.kill(people, KillPlace::AnyInstant));
                }
                Err(RecvTimeoutError::Timeout) if rest_at.is_some() => return None,
                Err(RecvTimeoutError::Timeout) => return Some(ProcessEnd::Wrong(self.why_stuck(people))),
            };
            if let Line::Stopped(boundary) = line {
                return Some(self.kill(people, KillPlace::At(boundary)));
            }
            self.process_line(people, line);
            if people.is_over() {
                return Some(ProcessEnd::Over);
            }
            for command in people.next_commands() {
                self.process.send_command(&command);
            }
            if people.waits_for_an_outage() {
                if people.snapshot.as_ref().is_some_and(|snapshot| snapshot.held_count == 0) {
                    return None;
                }
                rest_at = rest_at.or_else(|| Some(Instant::now() + REST_WITHIN));
            } else {
                rest_at = None;
            }
        }
    }

    /// The oldest attempt that has answered but is still shown as running.
    fn oldest_unstored(&self, people: &People) -> Option<(Instant, &AnsweredAttempt)> {
        let snapshot = people.snapshot.as_ref()?;
        let runs = |(call, attempt): &AnsweredAttempt| {
            let snapshot = snapshot.calls().find(|snapshot| snapshot.call == *call);
            snapshot.is_some_and(|snapshot| {
                snapshot.status == CallStatus::Running && snapshot.attempts == *attempt
            })
        };
        self.answers.iter().find(|(_, answered)| runs(answered)).map(|(at, answered)| (*at, answered))
    }

    fn why_stuck(&self, people: &People) -> Violation {
        match self.oldest_unstored(people) {
            Some((at, (call, attempt))) if at.elapsed() >= STORED_WITHIN => Violation {
                rule: Rule::ResultIsStoredAtOnce,
                what: format!(
                    "attempt {attempt} of {call} answered {:?} ago, and that is not stored",
                    at.elapsed()
                ),
            },
            Some(_) | None => Violation {
                rule: Rule::NothingIsStuck,
                what: format!("{:?}, and people wait for {}", people.snapshot, people.open_requests()),
            },
        }
    }

    /// How many boundaries the process has crossed. It is an error not to know: all of them would go untested.
    pub fn count_boundaries(&mut self) -> io::Result<u64> {
        self.process.send_command(&Command { number: 0, request: Request::CountBoundaries });
        while let Ok(ProcessOutput { output: Output::Line(line), .. }) = self.lines.recv_timeout(STUCK_AFTER)
        {
            if let Line::Responded { response: Response::BoundaryCount { count }, .. } = line {
                return Ok(count);
            }
        }
        Err(io::Error::other("the process does not say how many boundaries it has crossed"))
    }

    #[must_use]
    pub fn age(&self) -> Duration {
        self.began.elapsed()
    }

    fn process_line(&mut self, people: &mut People, line: Line) {
        match line {
            Line::RunsSnapshot(snapshot) => people.observe(snapshot),
            Line::Responded { number, response } => people.process_response(number, response),
            Line::Answered { call, attempt } => {
                self.answers.push((Instant::now(), (call, attempt)));
            }
            Line::Stopped(_) | Line::Claimed { .. } | Line::Stored { .. } | Line::NotStored { .. } => {}
        }
    }

    /// Kills the process. Lines that it wrote before it died still count.
    pub fn kill(&mut self, people: &mut People, place: KillPlace) -> ProcessEnd {
        if let Err(error) = self.process.kill() {
            return wrong(Rule::NoErrorIsReported, format!("the process cannot be killed: {error}"));
        }
        while let Ok(ProcessOutput { output: Output::Line(line), .. }) = self.lines.recv() {
            self.process_line(people, line);
        }
        ProcessEnd::Killed(place)
    }
}

const fn wrong(rule: Rule, what: String) -> ProcessEnd {
    ProcessEnd::Wrong(Violation { rule, what })
}
