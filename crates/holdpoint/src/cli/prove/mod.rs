//! `holdpoint prove`: kills its own child processes repeatedly, and compares what was approved with what was executed.
//!
//! The parent acts as the approver and as the judge. A child is an engine on a file with a tool that writes a line into
//! a ledger. Children are killed with SIGKILL, one after the other. The judge reads the file and the ledger, never the
//! memory of a child.

mod child;
mod process;
mod verdict;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::RangedU64ValueParser;

use super::output::{print, print_json};
use super::problem::{Exit, Problem};
use super::progress::{Amount, ProgressLine};
use super::scratch::Scratch;
use super::{CommandResult, CommandStatus, GlobalArgs};
use process::{ChildProcess, KillPlan, ProcessEnd};
use verdict::Verdict;

/// Show that an approval has exactly one effect, whatever is killed when
///
/// Runs agents whose tool writes a line into a ledger, approves every call, and kills the process that works on them
/// with SIGKILL again and again: at any instant, and right between an act and its answer. Where a killed process leaves a
/// call in doubt, the ledger decides, as a person would. At the end every approved call must have exactly one line.
/// Exits with 1 if approvals and lines differ.
#[derive(Debug, Args)]
pub(super) struct Prove {
    /// How long to go on killing
    #[arg(long, value_name = "N", default_value = "10", value_parser = RangedU64ValueParser::<u64>::new().range(1..=3600))]
    seconds: u64,
    /// Declare the tool as safe to repeat, which it is not: the proof must fail
    #[arg(long)]
    lie: bool,
    /// The folder of the parent: this is a process that will be killed.
    #[arg(long, hide = true, value_name = "FOLDER")]
    child: Option<PathBuf>,
}

/// What the parent has observed across all processes.
#[derive(Default)]
struct Observations {
    killed: u64,
    killed_after_an_act: u64,
    /// Calls in doubt that turned out to have happened, and those that had not.
    had_happened: u64,
    had_not_happened: u64,
    approver: process::Approver,
}

/// One in this many processes is killed at a random instant, the others after the tool has acted.
const ANY_INSTANT_EVERY: u64 = 2;
/// The minimum number of kills, however slow this machine is: fewer prove nothing.
const KILLED_MIN: u64 = 4;
/// Shorter than the work of a process, so that it is killed in the middle of it.
const INSTANT_MAX: Duration = Duration::from_millis(300);
/// The remaining work never takes this long; if it does, it is stuck.
const END_WITHIN: Duration = Duration::from_secs(60);

impl Prove {
    pub(super) fn run(&self, global: &GlobalArgs) -> CommandResult {
        if let Some(folder) = &self.child {
            return child::run(folder, self.lie).map(|()| CommandStatus::Success);
        }
        let scratch = Scratch::new("prove")?;
        let seen = self.kill_and_approve(&scratch)?;
        let verdict = Verdict::read(&scratch, &seen.approver)?;
        if global.json {
            print_json(&verdict.as_json(&seen))?;
        } else {
            print(&verdict.as_text(&seen))?;
        }
        Ok(if verdict.holds() { CommandStatus::Success } else { CommandStatus::Failure })
    }

    fn kill_and_approve(&self, scratch: &Scratch) -> Result<Observations, Problem> {
        let mut seen = Observations::default();
        let mut line = ProgressLine::default();
        let until = Instant::now() + Duration::from_secs(self.seconds);
        while Instant::now() < until || seen.killed < KILLED_MIN {
            let plan = if seen.killed % ANY_INSTANT_EVERY == 0 {
                KillPlan::AtInstant(any_instant())
            } else {
                KillPlan::AfterAnAct
            };
            let mut process = ChildProcess::start(scratch, self.lie)?;
            match process.drive(&mut seen.approver, plan)? {
                ProcessEnd::KilledAfterAnAct => seen.killed_after_an_act += 1,
                ProcessEnd::Killed => {}
                ProcessEnd::AllEnded => {
                    return Err(proof_failed("a process had nothing to do before it was killed"));
                }
            }
            seen.killed += 1;
            line.update("processes killed", Amount::Done(seen.killed));
        }
        let mut last = ChildProcess::start(scratch, self.lie)?;
        match last.drive(&mut seen.approver, KillPlan::Never)? {
            ProcessEnd::AllEnded => {}
            ProcessEnd::Killed | ProcessEnd::KilledAfterAnAct => {
                let seconds = END_WITHIN.as_secs();
                return Err(proof_failed(format!("what was approved is not done after {seconds} seconds")));
            }
        }
        (seen.had_happened, seen.had_not_happened) = seen.approver.doubts();
        Ok(seen)
    }
}

/// `RandomState` gets random keys from the operating system.
fn any_instant() -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let chance = RandomState::new().hash_one(0) % 1_000;
    INSTANT_MAX.mul_f64(chance as f64 / 1_000.0)
}

fn proof_failed(cause: impl Into<String>) -> Problem {
    Problem::new(
        "PROOF_BROKEN",
        cause,
        "Run it again; if it happens again, something is wrong with Holdpoint or with this machine.",
        Exit::Other,
    )
}
