//! `holdpoint runs`: lists the runs of a server, shows one, follows one, or interrupts one.

mod interrupt;
mod list;
mod show;
mod watch;

use clap::{Args, Subcommand};

use super::address::{ENVIRONMENT, Purpose, ServerAddress};
use crate::cli::database::runtime;
use crate::cli::{CommandResult, GlobalArgs};

/// Look at the runs of a server, follow one, interrupt one
///
/// Without a subcommand: list.
#[derive(Debug, Args)]
#[command(after_help = ENVIRONMENT)]
pub(in crate::cli) struct Runs {
    #[command(flatten)]
    server: ServerAddress,
    #[command(subcommand)]
    command: Option<RunsCommand>,
}

#[derive(Debug, Subcommand)]
enum RunsCommand {
    List(list::ListRuns),
    Show(show::ShowRun),
    Watch(watch::Watch),
    Interrupt(interrupt::Interrupt),
}

impl Runs {
    pub(in crate::cli) fn run(&self, global: &GlobalArgs) -> CommandResult {
        let connection = self.server.connect(global, Purpose::General)?;
        let json = global.json;
        runtime()?.block_on(async {
            match &self.command {
                Some(RunsCommand::List(list)) => list.run(&connection, json).await,
                Some(RunsCommand::Show(show)) => show.run(&connection, json).await,
                Some(RunsCommand::Watch(watch)) => watch.run(&connection, json).await,
                Some(RunsCommand::Interrupt(interrupt)) => interrupt.run(&connection, json).await,
                None => list::ListRuns::default().run(&connection, json).await,
            }
        })
    }
}
