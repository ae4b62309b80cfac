//! `holdpoint approvals reject ID`: rejects a held call and says what happens to the run.

use clap::Args;
use serde_json::{Map, Value};

use super::decide;
use crate::cli::CommandResult;
use crate::cli::client::connection::Connection;

/// Reject a held call: it does not run
#[derive(Debug, Args)]
pub(super) struct Reject {
    /// The id of the approval
    id: String,
    /// Why; the model reads it if the run continues
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// What happens to the run; else on_reject of the message or the agent, else it ends
    #[arg(long, value_name = "WHAT", value_parser = ["end_run", "continue"])]
    then: Option<String>,
}

impl Reject {
    pub(super) async fn run(&self, connection: &Connection, json: bool) -> CommandResult {
        let mut body = Map::new();
        for (name, value) in [("reason", &self.reason), ("then", &self.then)] {
            if let Some(value) = value {
                body.insert(name.to_owned(), Value::from(value.clone()));
            }
        }
        decide(connection, &self.id, "reject", &Value::Object(body), json).await
    }
}
