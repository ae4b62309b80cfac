//! The command line of the simulator: worlds by the thousand, one world as a story, or the demo.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use sim::invariant::Invariant;
use sim::runner::{self, Batch, Failure, Tally};
use sim::tape::Tape;
use sim::{differential, tables};

const HELP: &str = "\
Plays seeded worlds against the machine and checks every invariant after every append.

  sim [--seeds N] [--from S] [--threads N]   N worlds, 2000 unless told otherwise, from seed S (0)
  sim --seed S                               one world, told as a story, and its calm comparison
  sim --tape \"3 1 4 ...\"                     one recorded world, told as a story
  sim story                                  one run, held and crashed and continued
  sim --invariants                           the names of all invariants, one a line

  --until-failure       stop at the first failure
  --no-shrink           tell a failure as it is, without making it short
  --require-coverage    fail if something possible never happened (on from 100000 seeds)
  --help                this text

Results go to standard output, progress to standard error. The exit code is 1 after a failure.";

/// From so many worlds on, whatever is possible must have happened.
const COVERAGE_REQUIRED_FROM: u64 = 100_000;
const PROGRESS_EVERY: u64 = 5_000;
/// Failures that are told; the rest is counted.
const TOLD_MAX: usize = 3;

#[derive(Debug)]
struct Options {
    batch: Batch,
    seed: Option<u64>,
    tape: Option<Vec<u32>>,
    story: bool,
    invariants: bool,
    help: bool,
    shrinks: bool,
    requires_coverage: bool,
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    if options.help {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    if options.invariants {
        for invariant in Invariant::ALL {
            println!("{invariant:?}");
        }
        return ExitCode::SUCCESS;
    }
    if options.story {
        return tell_demo();
    }
    if let Some(seed) = options.seed {
        return tell_seed(seed);
    }
    if let Some(choices) = options.tape {
        return tell_one(Tape::recorded(choices), "the recorded world");
    }
    run_many(&options)
}

fn parse(arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let mut options = Options {
        batch: Batch { from: 0, count: 2_000, threads, until_failure: false },
        seed: None,
        tape: None,
        story: false,
        invariants: false,
        help: false,
        shrinks: true,
        requires_coverage: false,
    };
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let text = arguments.next().ok_or_else(|| format!("{argument} needs a number"))?;
            text.parse::<u64>().map_err(|_| format!("{argument} needs a number, not {text:?}"))
        };
        match argument.as_str() {
            "--seeds" => {
                options.batch.count = number()?;
                if options.batch.count == 0 {
                    return Err("--seeds needs at least one: no world shows nothing".into());
                }
            }
            "--from" => options.batch.from = number()?,
            "--threads" => options.batch.threads = number()?.max(1),
            "--seed" => options.seed = Some(number()?),
            "--tape" => {
                let text = arguments.next().ok_or("--tape needs its choices")?;
                let choices: Result<Vec<u32>, _> = text.split_whitespace().map(str::parse).collect();
                options.tape = Some(choices.map_err(|_| "a tape is a list of numbers".to_owned())?);
            }
            "--until-failure" => options.batch.until_failure = true,
            "--no-shrink" => options.shrinks = false,
            "--require-coverage" => options.requires_coverage = true,
            "--invariants" => options.invariants = true,
            "--help" | "-h" => options.help = true,
            "story" => options.story = true,
            other => return Err(format!("nobody knows {other:?}")),
        }
    }
    options.requires_coverage |= options.batch.count >= COVERAGE_REQUIRED_FROM;
    Ok(options)
}

fn tell_demo() -> ExitCode {
    match sim::story::tell() {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(violation) => {
            println!("The story went wrong: {violation}");
            ExitCode::FAILURE
        }
    }
}

/// The world of a seed and, as in a batch, the comparison of both ways to hear decisions.
fn tell_seed(seed: u64) -> ExitCode {
    let told = tell_one(Tape::seeded(seed), &format!("seed {seed}"));
    match differential::check(seed) {
        Ok(()) => told,
        Err(violation) => {
            println!("seed {seed}, both ways to hear decisions compared: {violation}");
            ExitCode::FAILURE
        }
    }
}

fn tell_one(tape: Tape, name: &str) -> ExitCode {
    let (text, violation) = runner::tell(tape);
    println!("{text}");
    match violation {
        None => {
            println!("{name}: all invariants hold");
            ExitCode::SUCCESS
        }
        Some(violation) => {
            println!("{name}: {violation}");
            ExitCode::FAILURE
        }
    }
}

fn run_many(options: &Options) -> ExitCode {
    let started = Instant::now();
    let count = options.batch.count;
    let tally = runner::run(options.batch, &|done| {
        if done.is_multiple_of(PROGRESS_EVERY) {
            let per_second = done as f64 / started.elapsed().as_secs_f64().max(0.001);
            eprint!("\r{done} of {count} worlds, {per_second:.0} a second ");
            let _ = std::io::stderr().flush();
        }
    });
    eprintln!();
    let (table, missing) = tables::print(&tally.coverage);
    // A run that was cut short at its first failure says nothing about what happens.
    if tally.failures.is_empty() || !options.batch.until_failure {
        println!("{table}");
    }
    report(&tally, options, started);
    let coverage_fails = options.requires_coverage && !missing.is_empty();
    if coverage_fails {
        println!("Never happened: {}", missing.join("; "));
    } else if !missing.is_empty() && tally.failures.is_empty() {
        println!("{} possible things did not happen in so few worlds.", missing.len());
    }
    if tally.failures.is_empty() && !coverage_fails { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(tally: &Tally, options: &Options, started: Instant) {
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{} worlds, {} events, {seconds:.1} s, {:.0} worlds a second",
        tally.worlds,
        tally.events,
        tally.worlds as f64 / seconds.max(0.001)
    );
    for failure in tally.failures.iter().take(TOLD_MAX) {
        tell_failure(failure, options);
    }
    if tally.failures.is_empty() {
        println!("All {} invariants hold.", Invariant::ALL.len());
    } else {
        let mut kinds: BTreeMap<Invariant, (usize, u64)> = BTreeMap::new();
        for failure in &tally.failures {
            kinds.entry(failure.violation.invariant).or_insert((0, failure.seed)).0 += 1;
        }
        for (invariant, (count, seed)) in kinds {
            println!("{invariant:?}: {count} worlds, the first with seed {seed}");
        }
        let first = tally.failures.first().map_or(0, |failure| failure.seed);
        println!("{} worlds failed, the first with seed {first}.", tally.failures.len());
        println!("Seeds until the first failure: {}", first.saturating_sub(options.batch.from) + 1);
    }
}

fn tell_failure(failure: &Failure, options: &Options) {
    println!("\nseed {}: {}", failure.seed, failure.violation);
    let Some(choices) = &failure.choices else { return };
    let choices =
        if options.shrinks { runner::shorten(choices, failure.violation.invariant) } else { choices.clone() };
    let (text, _) = runner::tell(Tape::recorded(choices.clone()));
    println!("{text}");
    let words: Vec<String> = choices.iter().map(u32::to_string).collect();
    println!("tape of {} choices: {}", choices.len(), words.join(" "));
}
