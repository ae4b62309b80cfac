//! `holdpoint runs interrupt RUN`: the end of a run, without waiting for anything.

use clap::Args;
use serde_json::json;

use crate::cli::client::connection::{Connection, encoded};
use crate::cli::client::plain::plain;
use crate::cli::client::wire::{Run, read};
use crate::cli::output::{print, print_raw};
use crate::cli::{Done, Outcome};

/// Interrupt a run
///
/// It ends without waiting for what executes; a call with an effect that was under way says that it may have happened. A run
/// that has ended already stays as it is.
#[derive(Debug, Args)]
pub(super) struct Interrupt {
    /// The id of the run
    run: String,
}

impl Interrupt {
    pub(super) async fn run(&self, connection: &Connection, json: bool) -> Outcome {
        let path = format!("/v1/runs/{}/interrupt", encoded(&self.run));
        let text = connection.post(&path, &json!({})).await?;
        let run: Run = read(connection, &text)?;
        if json {
            print_raw(&text)?;
        } else {
            print(&format!("{}: {}\n", plain(&run.id), plain(&run.status)))?;
        }
        Ok(Done::Well)
    }
}
