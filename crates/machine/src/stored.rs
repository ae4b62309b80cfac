//! The stored form of an event: one JSON object with its version. Old ones are read for ever.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::event::{EVENT_VERSION, Event, Fact};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Written by a later version of this software.
    Version(u64),
    Malformed(String),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => {
                write!(f, "stored event of version {version}; this software reads up to {EVENT_VERSION}")
            }
            Self::Malformed(why) => write!(f, "stored event cannot be read: {why}"),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct V1 {
    v: u16,
    seq: u64,
    ts: Timestamp,
    step: Option<u32>,
    #[serde(flatten)]
    fact: Fact,
}

pub fn write(event: &Event) -> Result<String, String> {
    let stored =
        V1 { v: EVENT_VERSION, seq: event.seq, ts: event.at, step: event.step, fact: event.fact.clone() };
    serde_json::to_string(&stored).map_err(|error| format!("{error}"))
}

pub fn read(text: &str) -> Result<Event, Unreadable> {
    let malformed = |error| Unreadable::Malformed(format!("{error}"));
    let value: Value = serde_json::from_str(text).map_err(malformed)?;
    match value.get("v").and_then(Value::as_u64) {
        Some(1) => {
            let V1 { seq, ts, step, fact, .. } = serde_json::from_value(value).map_err(malformed)?;
            Ok(Event { seq, at: ts, step, fact })
        }
        Some(other) => Err(Unreadable::Version(other)),
        None => Err(Unreadable::Malformed("it has no version".into())),
    }
}

/// An absent field is none; a null is a value like any other, and must be read back as one.
pub(crate) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<Value>>, D::Error> {
    Value::deserialize(deserializer).map(|value| Some(Arc::new(value)))
}
