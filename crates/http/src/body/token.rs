//! Body of a request for a browser token.

use serde::Deserialize;
use utoipa::ToSchema;

use super::strict::present;
use super::text::Id;
use crate::error::{ApiError, bad_field};
use crate::run_wait::parse_duration;
use crate::setup::Role;

/// The longest lifetime of a browser token.
const LIFETIME_HOURS_MAX: u64 = 24;

/// Body of `POST /v1/tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PostToken {
    /// How long the token is valid: a whole number and a unit (ms, s, m, h or d), at most 24h.
    pub ttl: String,
    /// Roles of the caller that the token gets. Default: `run`.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub roles: Option<Vec<Role>>,
    /// The only thread that the token can reach. It need not exist yet.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub thread_id: Option<Id>,
    /// The only run that the token can reach.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub run_id: Option<Id>,
    /// The person who uses the token, by name: 1 to 128 visible characters. Only for a key with `acts_for`. Default: the
    /// person whom the request names in `Holdpoint-Acting-For`, if it does.
    #[serde(default, deserialize_with = "present")]
    #[schema(nullable = false)]
    pub acting_for: Option<String>,
}

impl PostToken {
    /// How long the token is valid.
    pub fn lifetime_ms(&self) -> Result<u64, ApiError> {
        let lifetime = parse_duration(&self.ttl).filter(|lifetime| !lifetime.is_zero());
        let Some(lifetime) = lifetime else {
            return Err(bad_field(
                "ttl",
                "expected a whole number above 0 and a unit: ms, s, m, h or d, such as 15m",
            ));
        };
        let ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        if ms > LIFETIME_HOURS_MAX * 3_600_000 {
            return Err(bad_field("ttl", "at most 24h; make another token when this one expires"));
        }
        Ok(ms)
    }
}
