//! A JSON value that is kept as text.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// The compact text of a JSON value. A large result in the log is passed on without building its value, which can take
/// a hundred times the memory of the text.
#[derive(Clone)]
pub struct Json(Arc<RawValue>);

impl Json {
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Builds the value. The text was written from a value, so parsing succeeds, except for a row that was damaged or
    /// has a [reserved](crate::json_value::RESERVED_KEY_PREFIX) key: then the result is `Null`.
    #[must_use]
    pub fn to_value(&self) -> Value {
        serde_json::from_str(self.as_str()).unwrap_or_default()
    }

    /// The form that a model reads: a string without its quotes, anything else as compact JSON.
    #[must_use]
    pub fn plain_text(&self) -> Cow<'_, str> {
        if self.as_str().starts_with('"')
            && let Ok(text) = serde_json::from_str::<String>(self.as_str())
        {
            return Cow::Owned(text);
        }
        Cow::Borrowed(self.as_str())
    }
}

impl From<&Value> for Json {
    fn from(value: &Value) -> Self {
        // A value has only string keys and numbers that JSON can represent, so it can always be written.
        Self(to_raw_value(value).unwrap_or_default().into())
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self::from(&value)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Json {}

/// Copies the text. It was checked when it was read, and is not checked again.
impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Box::<RawValue>::deserialize(deserializer)?.into()))
    }
}
