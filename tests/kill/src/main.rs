//! The program of the kill matrix: the parent, and every kind of process that it starts.

use std::process::ExitCode;

use kill::command::{Typed, USAGE, parse};
use kill::node::Failure;
use kill::{cluster, ledger, matrix, node, till};

fn main() -> ExitCode {
    let typed = match parse(std::env::args().skip(1)) {
        Ok(typed) => typed,
        Err(why) => {
            eprintln!("{why}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match obey(typed) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("ERROR: {}", failure.to_string().replace('\n', " "));
            ExitCode::from(2)
        }
    }
}

fn obey(typed: Typed) -> Result<bool, Failure> {
    match typed {
        Typed::Matrix(order) => matrix::tell(std::env::current_exe()?, &order),
        Typed::Cluster(order) => cluster::tell(std::env::current_exe()?, &order),
        Typed::Crowd { runs, seed } => cluster::crowd::tell(std::env::current_exe()?, runs, seed),
        Typed::Node(started) => node::live(started).map(|()| true),
        Typed::Ledger { socket } => Ok(ledger::keep(&socket).map(|()| true)?),
        Typed::Till { ledger } => Ok(till::keep(&ledger).map(|()| true)?),
    }
}
