//! A JSON value that is kept as text.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};
use serde_json::Value;
use serde_json::value::RawValue;

/// The compact text of a JSON value. A large result in the log is passed on without building its value, which can take
/// a hundred times the memory of the text.
#[derive(Clone, PartialEq, Eq)]
pub struct Json(Arc<str>);

impl Json {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Builds the value. `Null` where the text has none: it was written from a value, so it always has one, except in a
    /// row that was damaged or holds a key which is [reserved](crate::json_value::RESERVED_KEY_PREFIX).
    #[must_use]
    pub fn to_value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    /// As a model reads it: a string without its quotes, anything else as compact JSON.
    #[must_use]
    pub fn plain_text(&self) -> Cow<'_, str> {
        if self.0.starts_with('"')
            && let Ok(text) = serde_json::from_str::<String>(&self.0)
        {
            return Cow::Owned(text);
        }
        Cow::Borrowed(&self.0)
    }
}

impl From<&Value> for Json {
    fn from(value: &Value) -> Self {
        Self(alloc::format!("{value}").into())
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self::from(&value)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(Box::<str>::from(raw).into()))
    }
}
