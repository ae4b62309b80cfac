//! The simulator's command line: thousands of worlds, one world as a story, or the demo.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use sim::driven;
use sim::driven::place::Place;
use sim::driven::runner::{FaultLevel, Played};
use sim::judge::invariant::{Invariant, Violation};
use sim::play::runner::{self, Batch, BatchResult, Failure};
use sim::play::tape::Tape;
use sim::play::{differential, tables};

const HELP: &str = "\
Plays seeded worlds against the machine and checks every invariant after every append.

  sim [--seeds N] [--from S] [--threads N]   N worlds (default 2000) from seed S (default 0)
  sim --seed S                               one world, printed as a story, and its calm comparison
  sim --tape \"3 1 4 ...\"                     one recorded world, printed as a story
  sim --engine [--seeds N] [--from S]        worlds in which the engine itself runs (default 500)
  sim --engine --seed S                      one of them, printed as a story; also with --tape
  sim story                                  one run, held and crashed and continued
  sim --invariants                           the names of all invariants, one a line

  --store WHERE         where the engine's worlds keep their data: memory, sqlite, or postgres, which starts a server
                        of its own (default: one world in 4 on sqlite, the others in memory)
  --until-failure       stop at the first failure
  --no-shrink           print a failure as it is, without shrinking it
  --require-coverage    fail if something possible never happened (on from 100000 seeds)
  --help                this text

Results go to standard output, progress to standard error. The exit code is 1 after a failure.";

const SEEDS: u64 = 2_000;
/// From this many worlds on, everything that is possible must have happened.
const COVERAGE_REQUIRED_FROM: u64 = 100_000;
const PROGRESS_EVERY: u64 = 5_000;
const ENGINE_PROGRESS_EVERY: u64 = 200;
const ENGINE_SEEDS: u64 = 500;
/// From this many engine worlds on, everything that is possible must have happened.
const ENGINE_COVERAGE_REQUIRED_FROM: u64 = 10_000;
/// How many failures are printed as stories. The rest is only counted.
const TOLD_MAX: usize = 3;
/// How many engine failures are listed with one line each.
const LISTED_MAX: usize = 100;
const DETAIL_CHARS_MAX: usize = 200;

#[derive(Debug)]
struct Options {
    batch: Batch,
    seed: Option<u64>,
    tape: Option<Vec<u32>>,
    story: bool,
    engine: bool,
    place: Option<Place>,
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
    if options.engine {
        return match (options.seed, &options.tape) {
            (Some(seed), _) => tell_engine(seed, options.place),
            (None, Some(choices)) => {
                let tape = Tape::recorded(choices.clone());
                let place = options.place.unwrap_or(Place::Memory);
                let played = driven::runner::play_tape(tape, place, FaultLevel::Drawn, true);
                tell_played(&played, "the recorded world")
            }
            (None, None) => run_engine(&options),
        };
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
        batch: Batch { from: 0, count: SEEDS, threads, until_failure: false },
        seed: None,
        tape: None,
        story: false,
        engine: false,
        place: None,
        invariants: false,
        help: false,
        shrinks: true,
        requires_coverage: false,
    };
    let mut count = None;
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let text = arguments.next().ok_or_else(|| format!("{argument} needs a number"))?;
            text.parse::<u64>().map_err(|_| format!("{argument} needs a number, not {text:?}"))
        };
        match argument.as_str() {
            "--seeds" => {
                count = Some(number()?);
                if count == Some(0) {
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
            "--engine" => options.engine = true,
            "--store" => {
                let name = arguments.next().ok_or("--store needs a name")?;
                let place = Place::named(&name).ok_or_else(|| format!("unknown store {name:?}"))?;
                options.place = Some(place);
            }
            "--until-failure" => options.batch.until_failure = true,
            "--no-shrink" => options.shrinks = false,
            "--require-coverage" => options.requires_coverage = true,
            "--invariants" => options.invariants = true,
            "--help" | "-h" => options.help = true,
            "story" => options.story = true,
            other => return Err(format!("unknown argument {other:?}")),
        }
    }
    let (usual, all_from) = if options.engine {
        (ENGINE_SEEDS, ENGINE_COVERAGE_REQUIRED_FROM)
    } else {
        (SEEDS, COVERAGE_REQUIRED_FROM)
    };
    if options.place.is_some() && !options.engine {
        return Err("--store goes with --engine: the other worlds keep nothing".into());
    }
    options.batch.count = count.unwrap_or(usual);
    options.requires_coverage |= options.batch.count >= all_from;
    Ok(options)
}

fn tell_demo() -> ExitCode {
    match sim::play::story::tell() {
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

/// Plays the world of a seed and, as in a batch, compares both decision timings.
fn tell_seed(seed: u64) -> ExitCode {
    let told = tell_one(Tape::seeded(seed), &format!("seed {seed}"));
    match differential::check(seed) {
        Ok(()) => told,
        Err(violation) => {
            println!("seed {seed}, both decision timings compared: {violation}");
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
    // A batch that stopped at its first failure says nothing about coverage.
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

fn report(tally: &BatchResult, options: &Options, started: Instant) {
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

/// Plays one world of the engine.
fn tell_engine(seed: u64, place: Option<Place>) -> ExitCode {
    let place = place.unwrap_or(Place::of_seed(seed));
    tell_played(&driven::runner::play(seed, place, FaultLevel::Drawn, true), &format!("seed {seed}"))
}

fn tell_played(played: &Played, name: &str) -> ExitCode {
    println!("{}", played.diary.join("\n"));
    match &played.violation {
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

/// Prints the first failure as a story, shortened if that was requested.
fn tell_engine_failure(seed: u64, violation: &Violation, options: &Options) {
    let place = options.place.unwrap_or(Place::of_seed(seed));
    let mut played = driven::runner::play(seed, place, FaultLevel::Drawn, true);
    if options.shrinks {
        let choices = driven::runner::shorten(&played.choices, place, violation.invariant);
        played = driven::runner::play_tape(Tape::recorded(choices.clone()), place, FaultLevel::Drawn, true);
        let words: Vec<String> = choices.iter().map(u32::to_string).collect();
        let (count, words) = (choices.len(), words.join(" "));
        println!("tape of {count} choices: sim --engine --store {place} --tape \"{words}\"");
    }
    println!();
    tell_played(&played, &format!("seed {seed}"));
    println!();
}

fn run_engine(options: &Options) -> ExitCode {
    let started = Instant::now();
    let count = options.batch.count;
    let summary = driven::runner::run(options.batch, options.place, &|done| {
        if done.is_multiple_of(ENGINE_PROGRESS_EVERY) {
            let per_second = done as f64 / started.elapsed().as_secs_f64().max(0.001);
            eprint!("\r{done} of {count} worlds, {per_second:.0} a second ");
            let _ = std::io::stderr().flush();
        }
    });
    eprintln!();
    let (table, missing) = summary.tally.print();
    if summary.failures.is_empty() || !options.batch.until_failure {
        println!("{table}");
    }
    let seconds = started.elapsed().as_secs_f64();
    let per_second = summary.world_count as f64 / seconds.max(0.001);
    println!(
        "{} worlds of the engine, {} events, {seconds:.1} s, {per_second:.0} worlds a second",
        summary.world_count, summary.event_count
    );
    if let Some((seed, violation)) = summary.failures.first() {
        tell_engine_failure(*seed, violation, options);
    }
    tell_kinds(summary.failures.iter().map(|(seed, violation)| (*seed, violation)), options);
    let coverage_fails = options.requires_coverage && !missing.is_empty();
    if summary.failures.is_empty() && !missing.is_empty() {
        println!("Never happened: {}", missing.join("; "));
    }
    if summary.failures.is_empty() && !coverage_fails { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Which invariants were broken, how often, and with which seeds to reproduce them.
fn tell_kinds<'v>(failures: impl Iterator<Item = (u64, &'v Violation)>, options: &Options) {
    let mut kinds: BTreeMap<Invariant, (usize, u64, &Violation)> = BTreeMap::new();
    let mut first = None;
    let mut failure_count = 0;
    let mut listed = Vec::new();
    for (seed, violation) in failures {
        first.get_or_insert(seed);
        failure_count += 1;
        kinds.entry(violation.invariant).or_insert((0, seed, violation)).0 += 1;
        if listed.len() < LISTED_MAX {
            listed.push((seed, violation));
        }
    }
    let Some(first) = first else {
        println!("All invariants hold.");
        return;
    };
    for (_, seed, violation) in kinds.values() {
        println!("seed {seed}: {violation}");
        let place = options.place.unwrap_or(Place::of_seed(*seed));
        println!("  again, as a story: sim --engine --store {place} --seed {seed}");
    }
    println!();
    for (seed, violation) in listed {
        let detail: String = violation.detail.chars().take(DETAIL_CHARS_MAX).collect();
        println!("seed {seed}: {:?}: {}", violation.invariant, detail.replace('\n', " "));
    }
    for (invariant, (count, seed, _)) in &kinds {
        println!("{invariant:?}: {count} worlds, the first with seed {seed}");
    }
    println!("{failure_count} worlds failed, the first with seed {first}.");
    println!("Seeds until the first failure: {}", first.saturating_sub(options.batch.from) + 1);
}
