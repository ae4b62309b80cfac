//! What a decision of the machine costs, and whether a long run costs more than a short one.
//!
//! Machines are shared and noisy: compare only numbers of one run on one machine. Allocations and bytes are exact.

mod allocations;
mod measurement;
mod report;
mod statistics;
mod suite;
mod workload;

use std::env;
use std::process::ExitCode;

use measurement::Effort;
use report::Form;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

const HELP: &str = "\
Measures the bare machine: no store, no network, no model.

Usage: cargo run --release -p bench -- [--quick] [--json]

  --quick  fewer repetitions: a look, not a figure to quote
  --json   JSON lines {peer, version, workload, metric, value} instead of a table; values are medians
  --help   this text

Progress goes to stderr, results to stdout.";

fn main() -> ExitCode {
    let (mut effort, mut form) = (Effort::FULL, Form::Table);
    for argument in env::args().skip(1) {
        match argument.as_str() {
            "--quick" => effort = Effort::QUICK,
            "--json" => form = Form::JsonLines,
            "--help" | "-h" => {
                println!("{HELP}");
                return ExitCode::SUCCESS;
            }
            other => {
                eprintln!("bench: {other} is not known here\n\n{HELP}");
                return ExitCode::from(2);
            }
        }
    }
    if cfg!(debug_assertions) {
        eprintln!("bench: this is a debug build; use `cargo run --release -p bench`");
    }
    print!("{}", report::render(&suite::run(effort), form));
    ExitCode::SUCCESS
}
