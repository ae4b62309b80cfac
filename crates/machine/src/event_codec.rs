//! The stored form of an event: one JSON object with its version. All older versions stay readable.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::event::{EVENT_VERSION, Event, Fact};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventDecodeError {
    /// Written by a later version of this software.
    Version(u64),
    Malformed(String),
}

impl fmt::Display for EventDecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => {
                write!(f, "stored event of version {version}; this software reads up to {EVENT_VERSION}")
            }
            Self::Malformed(why) => write!(f, "stored event cannot be read: {why}"),
        }
    }
}

#[derive(Serialize)]
struct StoredEventV1<'e> {
    v: u16,
    seq: u64,
    ts: Timestamp,
    step: Option<u32>,
    #[serde(flatten)]
    fact: &'e Fact,
}

/// The same with every field unparsed, because another version may give the fields another meaning.
#[derive(Deserialize)]
struct RawStoredEvent<'t> {
    #[serde(borrow)]
    v: Option<&'t RawValue>,
    seq: Option<&'t RawValue>,
    ts: Option<&'t RawValue>,
    step: Option<&'t RawValue>,
    #[serde(rename = "type")]
    kind: Option<&'t RawValue>,
    payload: Option<&'t RawValue>,
}

pub fn encode(event: &Event) -> Result<String, String> {
    let stored =
        StoredEventV1 { v: EVENT_VERSION, seq: event.seq, ts: event.at, step: event.step, fact: &event.fact };
    serde_json::to_string(&stored).map_err(|error| format!("{error}"))
}

pub fn decode(text: &str) -> Result<Event, EventDecodeError> {
    let malformed = |error| EventDecodeError::Malformed(format!("{error}"));
    let unread: RawStoredEvent<'_> = serde_json::from_str(text).map_err(malformed)?;
    match unread.v.and_then(|version| version.get().parse::<u64>().ok()) {
        Some(1) => {}
        Some(other) => return Err(EventDecodeError::Version(other)),
        None => return Err(EventDecodeError::Malformed("it has no version".into())),
    }
    let (Some(seq), Some(at), Some(kind), Some(payload)) =
        (unread.seq, unread.ts, unread.kind, unread.payload)
    else {
        return Err(EventDecodeError::Malformed("it lacks its seq, ts, type or payload".into()));
    };
    // The type comes before the payload, so that the deserializer does not have to buffer anything.
    let tagged = format!("{{\"type\":{kind},\"payload\":{payload}}}");
    Ok(Event {
        seq: serde_json::from_str(seq.get()).map_err(malformed)?,
        at: serde_json::from_str(at.get()).map_err(malformed)?,
        step: unread.step.map_or(Ok(None), |step| serde_json::from_str(step.get())).map_err(malformed)?,
        fact: serde_json::from_str(&tagged).map_err(malformed)?,
    })
}

/// An absent field is `None`. A null is a value like any other, and must be read back as one.
pub(crate) fn deserialize_present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Arc<Value>>, D::Error> {
    Value::deserialize(deserializer).map(|value| Some(Arc::new(value)))
}
