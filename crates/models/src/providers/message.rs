//! One message of a provider's stream, as a value.

use std::cell::Cell;
use std::fmt;

use machine::json_text::{self, Bounds, FaultKind};
use machine::json_value::{RESERVED_KEY_PREFIX, VALUE_DEPTH_MAX, VALUE_NODES_MAX};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Includes the levels that a provider puts around the arguments of a call.
const MESSAGE: Bounds = Bounds { depth_max: VALUE_DEPTH_MAX + 16, nodes_max: VALUE_NODES_MAX };
/// The names under which providers send the arguments of a call as an object.
const ARGUMENTS: [&str; 3] = ["args", "arguments", "input"];

/// Arguments that cannot become a value are kept as the original text: the model wrote bad arguments, which must not
/// end the answer.
pub(super) fn read(text: &str) -> Result<Value, String> {
    let fault = match json_text::parse(text, &MESSAGE) {
        Ok(value) => return Ok(value),
        Err(fault) => fault,
    };
    match fault.kind {
        FaultKind::NotJson(_) => Err(format!("a message is no JSON: {fault}")),
        FaultKind::TooManyNodes { .. } => Err(format!("a message is too large: {fault}")),
        FaultKind::TooDeep { .. }
        | FaultKind::DuplicateKey(_)
        | FaultKind::ReservedKey(_)
        | FaultKind::LoneSurrogate
        | FaultKind::NumberOutOfRange => {
            // The check stopped at the fault, so what comes after it has not been counted or checked for valid JSON.
            let nodes_left = Cell::new(MESSAGE.nodes_max);
            let mut json = serde_json::Deserializer::from_str(text);
            let part = ValueSeed { nodes_left: &nodes_left }.deserialize(&mut json);
            part.and_then(|value| json.end().map(|()| value))
                .map_err(|why| format!("a message cannot be used: {fault}; {why}"))
        }
    }
}

/// The text of call arguments that arrived as one value: an object, or the original text of bad arguments.
pub(super) fn arguments_text(arguments: &Value) -> Option<String> {
    match arguments {
        Value::Object(_) => Some(arguments.to_string()),
        Value::String(text) => Some(text.clone()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

/// Builds a value and counts its nodes.
#[derive(Clone, Copy)]
struct ValueSeed<'n> {
    nodes_left: &'n Cell<usize>,
}

impl ValueSeed<'_> {
    fn count<E: Error>(self, nodes: usize) -> Result<(), E> {
        let left = self.nodes_left.get().checked_sub(nodes);
        self.nodes_left.set(left.ok_or_else(too_many_nodes::<E>)?);
        Ok(())
    }

    /// The arguments of a call: their value, or their text if no value can be built from them.
    fn arguments<E: Error>(self, raw: &str) -> Result<Value, E> {
        let bounds = Bounds { nodes_max: self.nodes_left.get(), ..Bounds::VALUE };
        match json_text::walk(raw.as_bytes(), &bounds) {
            Ok(cost) => {
                self.count::<E>(cost.nodes)?;
                Ok(serde_json::from_str(raw).unwrap_or_else(|_| Value::String(raw.to_owned())))
            }
            Err(fault) => match fault.kind {
                FaultKind::TooManyNodes { .. } => Err(too_many_nodes()),
                FaultKind::NotJson(_)
                | FaultKind::TooDeep { .. }
                | FaultKind::DuplicateKey(_)
                | FaultKind::ReservedKey(_)
                | FaultKind::LoneSurrogate
                | FaultKind::NumberOutOfRange => {
                    self.count::<E>(1)?;
                    Ok(Value::String(raw.to_owned()))
                }
            },
        }
    }
}

fn too_many_nodes<E: Error>() -> E {
    E::custom(FaultKind::TooManyNodes { nodes_max: MESSAGE.nodes_max })
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.count::<D::Error>(1)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            if key.starts_with(RESERVED_KEY_PREFIX) || object.contains_key(&key) {
                return Err(A::Error::custom("a key twice, or a reserved one"));
            }
            let value = if ARGUMENTS.contains(&key.as_str()) {
                self.arguments::<A::Error>(fields.next_value::<&RawValue>()?.get())?
            } else {
                fields.next_value_seed(self)?
            };
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_that_cannot_be_stored_become_their_text_and_nothing_else_does() {
        let bad = r#"{"amount":5, "amount":9}"#;
        let read =
            |args: &str| read(&format!(r#"{{"parts":[{{"functionCall":{{"name":"f","args":{args}}}}}]}}"#));
        let of = |args: Value| Ok(json!({"parts": [{"functionCall": {"name": "f", "args": args}}]}));
        assert_eq!(read(r#"{"amount":5}"#), of(json!({"amount": 5})));
        assert_eq!(read(bad), of(json!(bad)));
        let reserved = r#"{"a":1,"$serde_json::private::RawValue":"2"}"#;
        assert_eq!(read(reserved), of(json!(reserved)));
        assert_eq!(read("{\"a\":\"\\ud800\"}"), of(json!("{\"a\":\"\\ud800\"}")));
    }

    #[test]
    fn what_follows_bad_arguments_is_bounded_and_has_to_be_json() {
        let after = |rest: &str| read(&format!(r#"{{"args":{{"a":5,"a":9}},"more":{rest}"#));
        assert!(after("[0,0]}").is_ok());
        let zeros = |count: usize| format!("[{}0]", "0,".repeat(count));
        // The message, the arguments, and the list itself are nodes too.
        assert!(after(&format!("{}}}", zeros(VALUE_NODES_MAX - 4))).is_ok());
        assert!(after(&format!("{}}}", zeros(VALUE_NODES_MAX - 3))).is_err());
        let half = zeros(VALUE_NODES_MAX / 2);
        assert!(after(&format!(r#"[{{"args":{half}}},{{"args":{half}}}]}}"#)).is_err(), "counted together");
        assert!(after("[0]} and more text").is_err());
        assert!(after("[0]").is_err());
    }

    #[test]
    fn what_is_wrong_elsewhere_makes_the_message_unusable() {
        for bad in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"$serde_json::private::RawValue":"2"}"#,
            r#"{"text":"\ud800"}"#,
            r#"{"a":1"#,
            &format!("[{}0]", "0,".repeat(VALUE_NODES_MAX)),
            &"[".repeat(100_000),
        ] {
            assert!(read(bad).is_err(), "{}", &bad[..bad.len().min(100)]);
        }
    }
}
