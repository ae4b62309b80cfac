//! `holdpoint runs interrupt RUN`: ends a run without waiting for anything.

use clap::Args;
use serde_json::json;

use crate::cli::client::connection::{Connection, percent_encoded};
use crate::cli::client::terminal_text::escaped;
use crate::cli::client::wire::{Run, read};
use crate::cli::output::{print, print_raw};
use crate::cli::{CommandResult, CommandStatus};

/// Interrupt a run
///
/// The run ends without waiting for running calls. A running call with side effects is marked as one that may have
/// taken effect. A run that has already ended is not changed.
#[derive(Debug, Args)]
pub(super) struct Interrupt {
    /// The id of the run
    run: String,
}

impl Interrupt {
    pub(super) async fn run(&self, connection: &Connection, json: bool) -> CommandResult {
        let path = format!("/v1/runs/{}/interrupt", percent_encoded(&self.run));
        let text = connection.post(&path, &json!({})).await?;
        let run: Run = read(connection, &text)?;
        if json {
            print_raw(&text)?;
        } else {
            print(&format!("{}: {}\n", escaped(&run.id), escaped(&run.status)))?;
        }
        Ok(CommandStatus::Success)
    }
}
