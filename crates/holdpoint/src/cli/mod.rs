//! What can be typed: each command in a file of its own, and what all of them have.
//!
//! Data goes to standard output, everything else to standard error. 0 is success, 2 a wrong command line or
//! configuration, 1 everything else.

mod backup;
mod doctor;
mod output;
mod problem;
mod progress;
mod prune;
mod size;
mod store;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use problem::Problem;
use store::StoreAddress;

/// Holdpoint runs AI agents whose tool calls can be held, decided by a person, and continued.
#[derive(Debug, Parser)]
#[command(name = "holdpoint", version, arg_required_else_help = true, after_help = EXIT_CODES)]
struct CommandLine {
    #[command(flatten)]
    everywhere: Everywhere,
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 success, 2 wrong command line or configuration, 1 anything else.";

/// What every command understands.
#[derive(Debug, Args)]
struct Everywhere {
    /// Where runs are kept
    #[arg(long, global = true, value_name = "sqlite:PATH", default_value = "sqlite:holdpoint.db")]
    store: StoreAddress,
    /// Print one JSON object instead of text; errors too
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Doctor(doctor::Doctor),
    Backup(backup::Backup),
    Prune(prune::Prune),
    Size(size::ShowSize),
}

/// A command that did what it was asked to do.
enum Done {
    /// And all is well.
    Well,
    /// And found something that is not.
    Found,
}

pub(crate) fn run() -> ExitCode {
    let CommandLine { everywhere, command } = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(refused) => {
            // Help goes to standard output and is no error. Nobody is left to tell if it cannot be printed.
            let _ = refused.print();
            return u8::try_from(refused.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
        }
    };
    let done = match command {
        Command::Doctor(doctor) => doctor.run(&everywhere),
        Command::Backup(backup) => backup.run(&everywhere),
        Command::Prune(prune) => prune.run(&everywhere),
        Command::Size(size) => size.run(&everywhere),
    };
    match done {
        Ok(Done::Well) => ExitCode::SUCCESS,
        Ok(Done::Found) => ExitCode::FAILURE,
        Err(problem) => problem.report(everywhere.json),
    }
}

type Outcome = Result<Done, Problem>;
