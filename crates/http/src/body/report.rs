//! What a tool reports about a call: its outcome after a 202, and logs and progress while the call is under way.

use engine::live::{NOTE_CHARS_MAX, ToolNoteBody};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::strict::present;
use super::text::{FaultText, NoteText};
use crate::error::{ApiError, bad_field};

/// Body of `POST /v1/callbacks/{callback}`. Send exactly one of the fields.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// The result of the call. If the tool asked to be called again, this is the answer that it is called with. Any
    /// JSON value.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Value>)]
    pub result: Option<Value>,
    /// Why the call failed.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub error: Option<FaultText>,
    /// A line for the watchers of the run, while the call is under way. It is not stored and changes nothing.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub log: Option<NoteText>,
    /// Progress for the watchers of the run, in a form of the tool's own: an object of at most 4,096 characters.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub progress: Option<Map<String, Value>>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ReportOutcome {
    Result(Value),
    Error(String),
}

/// What a report contains.
#[derive(Clone, Debug, PartialEq)]
pub enum ReportContent {
    Outcome(ReportOutcome),
    Note(ToolNoteBody),
}

impl Report {
    pub fn into_content(self) -> Result<ReportContent, ApiError> {
        let Self { result, error, log, progress } = self;
        let fields = [
            ("result", result.is_some()),
            ("error", error.is_some()),
            ("log", log.is_some()),
            ("progress", progress.is_some()),
        ];
        let mut sent = fields.iter().filter(|(_, is_sent)| *is_sent).map(|(name, _)| *name);
        if let (Some(first), Some(second)) = (sent.next(), sent.next()) {
            return Err(bad_field(second, &format!("the report also has a `{first}`; send one of the two")));
        }
        if let Some(result) = result {
            return Ok(ReportContent::Outcome(ReportOutcome::Result(result)));
        }
        if let Some(error) = error {
            return Ok(ReportContent::Outcome(ReportOutcome::Error(error.into_string())));
        }
        if let Some(log) = log {
            return Ok(ReportContent::Note(ToolNoteBody::Log(log.into_string())));
        }
        let Some(progress) = progress else {
            return Err(bad_field(
                "result",
                "the report is empty; send `result`, `error`, `log` or `progress`",
            ));
        };
        let progress = Value::Object(progress);
        if progress.to_string().chars().count() > NOTE_CHARS_MAX {
            return Err(bad_field(
                "progress",
                &format!("it is too long; send at most {NOTE_CHARS_MAX} characters"),
            ));
        }
        Ok(ReportContent::Note(ToolNoteBody::Progress(progress)))
    }
}
