//! Measures what Holdpoint costs: the bare machine, and whole runs on each store.
//!
//! Machines are shared and noisy: compare only numbers of one run on one machine. Counts and bytes are exact.

mod approval;
mod bare_machine;
mod bare_postgres;
mod bare_store;
mod baselines;
mod bytes_on_disk;
mod command;
mod commits;
mod database;
mod decisions;
mod disk;
mod effort;
mod environment;
mod failure;
mod fleet;
mod fleet_in_postgres;
mod http;
mod long_run;
mod pace;
mod parked_fleet;
mod parked_fleet_in_postgres;
mod postgres_server;
mod postmaster;
mod process;
mod progress;
mod recording_store;
mod report;
mod restarted;
mod shares;
mod statistics;
mod stream;
mod subscribers;
mod suite;
#[cfg(test)]
mod tests;
mod time_shift;
mod tool_calls;
mod tool_process;
mod tool_round;
mod tool_server;

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

use command::{HELP, Invocation};
use failure::Failure;
use progress::Progress;

#[global_allocator]
static ALLOCATOR: bare_machine::allocations::Counting = bare_machine::allocations::Counting;

fn main() -> ExitCode {
    let command = match command::parse(env::args().skip(1)) {
        Ok(Invocation::Measurement(command)) => command,
        Ok(Invocation::Restarted(place)) => return ended(restarted::run(place)),
        Ok(Invocation::Server(folder)) => return ended(postgres_server::serve(&folder)),
        Ok(Invocation::Tool) => return ended(tool_process::serve()),
        Ok(Invocation::ToolServer) => return ended(tool_server::serve()),
        Ok(Invocation::CostlyClient(address)) => return ended(http::costly_client::serve(address)),
        Ok(Invocation::Help) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("bench: {why}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    if cfg!(debug_assertions) {
        eprintln!("bench: this is a debug build; use `cargo run --release -p bench`");
    }
    let mut progress = Progress::to_stderr();
    let measured = suite::run(&command, &mut progress);
    progress.finish();
    match measured {
        Ok(figures) => print(&report::render(&figures, command.form)),
        Err(failure) => ended(Err(failure)),
    }
}

fn ended(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// The reader may close the pipe before the end, as `head` does.
fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: the results cannot be written: {error}");
            ExitCode::FAILURE
        }
    }
}
