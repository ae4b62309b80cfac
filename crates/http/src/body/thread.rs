//! Requests about threads, and those that have no fields.

use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::strict::present;
use super::text::Id;
use crate::error::{ApiError, bad_field};
use machine::json_value;

/// Maximum size of all metadata of a thread, as JSON.
const METADATA_BYTES_MAX: usize = 16 * 1024;

/// Body of `POST /v1/threads`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PostThread {
    /// The id of the thread. If it already exists, that thread is returned. Default: the server generates one.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub id: Option<Id>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Object>, nullable = false)]
    pub metadata: Option<Map<String, Value>>,
}

impl PostThread {
    /// The metadata to store, if it is not too large.
    pub fn metadata(&self) -> Result<Value, ApiError> {
        let metadata = Value::Object(self.metadata.clone().unwrap_or_default());
        if let Some(fault) = json_value::fault(&metadata) {
            return Err(bad_field("metadata", &format!("{fault}; nothing was changed")));
        }
        let bytes = metadata.to_string().len();
        if bytes > METADATA_BYTES_MAX {
            let why = format!("it has {bytes} bytes, at most {METADATA_BYTES_MAX}; nothing was changed");
            return Err(bad_field("metadata", &why));
        }
        Ok(metadata)
    }
}

/// Body of `POST /v1/threads/{id}/auto-approve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AutoApprove {
    /// True: later calls of this thread are not held by policy, unless the message that started their run made the
    /// policy stricter. Calls that are already held stay held. False: revokes every grant of the thread, including
    /// those from `apply_to_future`.
    pub enabled: bool,
}

/// Body of `POST /v1/runs/{id}/interrupt`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Interrupt {}

/// Body of `POST /v1/admin/reload`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdminReload {}
