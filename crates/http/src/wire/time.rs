//! Times as clients read them: RFC 3339, UTC, milliseconds.

use machine::Timestamp;
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

/// A point in time: RFC 3339, UTC, with milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ToSchema)]
#[schema(value_type = String, format = DateTime, examples("2026-01-01T00:00:00.000Z"))]
pub struct Time(pub Timestamp);

impl Time {
    #[must_use]
    pub fn text(self) -> String {
        let ms = i64::try_from(self.0.0).unwrap_or(i64::MAX);
        // A time after the year 9999 can only be a limit that is never reached.
        let at = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX);
        format!("{at:.3}")
    }
}

impl From<Timestamp> for Time {
    fn from(at: Timestamp) -> Self {
        Self(at)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}
