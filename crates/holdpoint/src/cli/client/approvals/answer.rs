//! `holdpoint approvals answer ID`: answers a tool's question, or settles a call in doubt.

use clap::Args;
use serde_json::json;

use super::{decide, parse_json_option};
use crate::cli::CommandResult;
use crate::cli::client::connection::Connection;

/// Answer a question of a tool, or settle a call in doubt
///
/// A question takes --result. A call in doubt may or may not have taken effect: --choice retry runs it again, --choice
/// give_up cancels it, and --result confirms that it took effect and gives its result.
#[derive(Debug, Args)]
pub(super) struct Answer {
    /// The id of the approval
    id: String,
    #[command(flatten)]
    value: AnswerValue,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct AnswerValue {
    /// The answer, a text in quotation marks: '"blue"'
    #[arg(long, value_name = "JSON|@FILE")]
    result: Option<String>,
    /// For a call in doubt
    #[arg(long, value_name = "CHOICE", value_parser = ["retry", "give_up"])]
    choice: Option<String>,
}

impl Answer {
    pub(super) async fn run(&self, connection: &Connection, json: bool) -> CommandResult {
        let body = match (&self.value.result, &self.value.choice) {
            (Some(result), _) => json!({"result": parse_json_option("--result", result)?}),
            (None, choice) => json!({"choice": choice}),
        };
        decide(connection, &self.id, "answer", &body, json).await
    }
}
