//! What a tool reports about a call that it had answered with 202.

use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::strict::present;
use super::text::FaultText;
use crate::error::{ApiError, bad_field};

/// Body of `POST /v1/callbacks/{callback}`. Send exactly one of the two fields.
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
}

#[derive(Clone, Debug, PartialEq)]
pub enum ReportOutcome {
    Result(Value),
    Error(String),
}

impl Report {
    pub fn into_outcome(self) -> Result<ReportOutcome, ApiError> {
        match (self.result, self.error) {
            (Some(result), None) => Ok(ReportOutcome::Result(result)),
            (None, Some(error)) => Ok(ReportOutcome::Error(error.into_string())),
            (None, None) => Err(bad_field("result", "the report is empty; send `result` or `error`")),
            (Some(_), Some(_)) => {
                Err(bad_field("error", "the report also has a `result`; send one of the two"))
            }
        }
    }
}
