//! The program of the kill matrix: the parent, and every kind of process that it starts.

use std::process::ExitCode;

use kill::command::{Invocation, USAGE, parse};
use kill::node::Failure;
use kill::{cluster, hook_server, ledger, matrix, node, payment_server};

fn main() -> ExitCode {
    let typed = match parse(std::env::args().skip(1)) {
        Ok(typed) => typed,
        Err(why) => {
            eprintln!("{why}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match execute(typed) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("ERROR: {}", failure.to_string().replace('\n', " "));
            ExitCode::from(2)
        }
    }
}

fn execute(typed: Invocation) -> Result<bool, Failure> {
    match typed {
        Invocation::Matrix(order) => matrix::run_and_report(std::env::current_exe()?, &order),
        Invocation::Cluster(order) => cluster::run_and_report(std::env::current_exe()?, &order),
        Invocation::ConcurrentRuns { runs, seed } => {
            cluster::concurrent_runs::run_and_report(std::env::current_exe()?, runs, seed)
        }
        Invocation::Node(started) => node::run(started).map(|()| true),
        Invocation::Ledger { socket } => Ok(ledger::serve(&socket).map(|()| true)?),
        Invocation::HookService => Ok(hook_server::serve().map(|()| true)?),
        Invocation::PaymentService { ledger } => Ok(payment_server::serve(&ledger).map(|()| true)?),
    }
}
