//! `holdpoint runs`: what a server runs, one of them in detail, one as it goes on, and the end of one.

mod interrupt;
mod list;
mod show;
mod watch;

use clap::{Args, Subcommand};

use super::address::{ENVIRONMENT, Purpose, ServerAddress};
use crate::cli::database::runtime;
use crate::cli::{Everywhere, Outcome};

/// Look at the runs of a server, follow one, interrupt one
///
/// Without a subcommand: list.
#[derive(Debug, Args)]
#[command(after_help = ENVIRONMENT)]
pub(in crate::cli) struct Runs {
    #[command(flatten)]
    server: ServerAddress,
    #[command(subcommand)]
    wish: Option<Wish>,
}

#[derive(Debug, Subcommand)]
enum Wish {
    List(list::List),
    Show(show::Show),
    Watch(watch::Watch),
    Interrupt(interrupt::Interrupt),
}

impl Runs {
    pub(in crate::cli) fn run(&self, everywhere: &Everywhere) -> Outcome {
        let connection = self.server.connect(everywhere, Purpose::Look)?;
        let json = everywhere.json;
        runtime()?.block_on(async {
            match &self.wish {
                Some(Wish::List(list)) => list.run(&connection, json).await,
                Some(Wish::Show(show)) => show.run(&connection, json).await,
                Some(Wish::Watch(watch)) => watch.run(&connection, json).await,
                Some(Wish::Interrupt(interrupt)) => interrupt.run(&connection, json).await,
                None => list::List::default().run(&connection, json).await,
            }
        })
    }
}
