//! The command line: one file for each command, and the parts that all of them share.
//!
//! Data goes to standard output, everything else to standard error. Exit codes: 0 for success, 2 for an invalid command
//! line or configuration, 1 for everything else.

mod audit;
mod backup;
mod callback_key;
mod check;
mod client;
mod config;
mod database;
mod demo;
mod doctor;
mod open_token;
mod output;
mod problem;
mod progress;
mod prove;
mod prune;
mod scratch;
mod serve;
mod size;
mod store;

use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use problem::{Exit, Problem};
use store::StoreUrl;

/// Holdpoint runs AI agents whose tool calls can be held, decided by a person, and continued.
#[derive(Debug, Parser)]
#[command(name = "holdpoint", version, arg_required_else_help = true, after_help = EXIT_CODES)]
struct CommandLine {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 success, 2 wrong command line or configuration, 1 anything else.";

/// What every command understands.
#[derive(Debug, Args)]
struct GlobalArgs {
    /// Where runs are kept
    #[arg(long, global = true, value_name = "sqlite:PATH", default_value = "sqlite:holdpoint.db")]
    store: StoreUrl,
    /// Whether the store was named explicitly, or is the default.
    #[arg(skip)]
    store_is_explicit: bool,
    /// Print one JSON object instead of text; errors too
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
    Demo(demo::Demo),
    Prove(prove::Prove),
    Check(check::Check),
    Doctor(doctor::Doctor),
    Audit(audit::Audit),
    Backup(backup::Backup),
    Prune(prune::Prune),
    Size(size::ShowSize),
    CallbackKey(callback_key::CallbackKeyCommand),
    Runs(client::Runs),
    Approvals(client::Approvals),
    Replay(client::Replay),
}

/// The result of a command that did its work.
enum CommandStatus {
    /// Everything is in order.
    Success,
    /// The command worked but the outcome is bad, for example a finding or a failed run.
    Failure,
}

pub(crate) fn run() -> ExitCode {
    let CommandLine { global, command } = match command_line() {
        Ok(line) => line,
        Err(refused) if refused.use_stderr() && asks_for_json() => {
            return usage_problem(&refused).report(true);
        }
        Err(refused) => {
            // Help goes to standard output and is not an error. If printing fails, there is nowhere to report it.
            let _ = refused.print();
            return u8::try_from(refused.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
        }
    };
    let done = match command {
        Command::Serve(serve) => serve.run(&global),
        Command::Demo(demo) => demo.run(&global),
        Command::Prove(prove) => prove.run(&global),
        Command::Check(check) => check.run(&global),
        Command::Doctor(doctor) => doctor.run(&global),
        Command::Audit(audit) => audit.run(&global),
        Command::Backup(backup) => backup.run(&global),
        Command::Prune(prune) => prune.run(&global),
        Command::Size(size) => size.run(&global),
        Command::CallbackKey(callback_key) => callback_key.run(&global),
        Command::Runs(runs) => runs.run(&global),
        Command::Approvals(approvals) => approvals.run(&global),
        Command::Replay(replay) => replay.run(&global),
    };
    match done {
        Ok(CommandStatus::Success) => ExitCode::SUCCESS,
        Ok(CommandStatus::Failure) => ExitCode::FAILURE,
        Err(problem) => problem.report(global.json),
    }
}

/// Needed when clap could not parse the command line.
fn asks_for_json() -> bool {
    std::env::args_os().take_while(|argument| argument != "--").any(|argument| argument == "--json")
}

fn usage_problem(refused: &clap::Error) -> Problem {
    let text = refused.render().to_string();
    // The usage follows after the first paragraph.
    let cause = text.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
    Problem::new("WRONG_COMMAND_LINE", cause.trim_end(), "Run holdpoint --help.", Exit::Configuration)
}

fn command_line() -> Result<CommandLine, clap::Error> {
    let mut matches = CommandLine::command().try_get_matches()?;
    let store_is_explicit = matches.value_source("store") == Some(ValueSource::CommandLine);
    let mut line = CommandLine::from_arg_matches_mut(&mut matches)?;
    line.global.store_is_explicit = store_is_explicit;
    Ok(line)
}

type CommandResult = Result<CommandStatus, Problem>;
