//! Parses bytes into a request, or into a refusal that names the field.

use std::fmt;
use std::marker::PhantomData;

use machine::json_text::{self, Bounds, Cost, FaultKind, TextFault};
use machine::json_value::{VALUE_DEPTH_MAX, VALUE_NODES_MAX};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::error::{ApiError, Code};

/// A value may be nested as deeply as anywhere else. The fields of the body around it are not counted.
pub const BODY_DEPTH_MAX: usize = VALUE_DEPTH_MAX + 4;
/// Maximum number of JSON values in a body. More would cost too much memory, however short their text is.
pub const BODY_NODES_MAX: usize = VALUE_NODES_MAX;
/// Maximum number of characters of a request that an error message repeats.
const QUOTED_CHARS_MAX: usize = 300;

/// Parses a body that has not been checked. An empty one is `{}` if that is allowed, and then needs no content type.
pub fn parse_strict<T: DeserializeOwned>(
    content_type: Option<&str>,
    bytes: &[u8],
    empty_allowed: bool,
) -> Result<T, ApiError> {
    parse_strict_checked(content_type, bytes, empty_allowed, &check_text(bytes))
}

/// The cost of the body's value, or why it is refused.
pub(crate) fn check_text(bytes: &[u8]) -> Result<Cost, TextFault> {
    json_text::walk(bytes, &Bounds { depth_max: BODY_DEPTH_MAX, nodes_max: BODY_NODES_MAX })
}

/// Parses a body whose text was checked when it arrived.
pub(crate) fn parse_strict_checked<T: DeserializeOwned>(
    content_type: Option<&str>,
    bytes: &[u8],
    empty_allowed: bool,
    checked: &Result<Cost, TextFault>,
) -> Result<T, ApiError> {
    let bytes = match (bytes.is_empty(), empty_allowed) {
        (true, true) => b"{}",
        (true, false) => return Err(bad_body("", "the body is empty; send a JSON object")),
        (false, _) => {
            check_content_type(content_type)?;
            if let Err(fault) = checked {
                return Err(text_refused(fault));
            }
            bytes
        }
    };
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let mut track = serde_path_to_error::Track::new();
    let read = object(serde_path_to_error::Deserializer::new(&mut json, &mut track));
    match read {
        Ok(read) => Ok(read),
        Err(error) => Err(bad_body(&track.path().to_string(), &error.to_string())),
    }
}

/// The refusal of a text that is not parsed at all. Parsers disagree about the meaning of a duplicate key.
fn text_refused(fault: &TextFault) -> ApiError {
    let TextFault { kind, path, .. } = fault;
    match kind {
        FaultKind::TooManyNodes { nodes_max } => ApiError::new(
            Code::TooLarge,
            format!("the body has more than {nodes_max} JSON values and nothing was done; send fewer"),
        )
        .with("nodes_max", *nodes_max),
        FaultKind::DuplicateKey(key) | FaultKind::ReservedKey(key) => {
            let dot = if path.is_empty() { "" } else { "." };
            bad_body(&format!("{path}{dot}{key}"), &kind.to_string())
        }
        FaultKind::TooDeep { .. } => bad_body(path, &kind.to_string()),
        FaultKind::NotJson(_) | FaultKind::LoneSurrogate | FaultKind::NumberOutOfRange => {
            bad_body(path, &format!("{kind}, at line {} column {}", fault.line, fault.column))
        }
    }
}

fn check_content_type(content_type: Option<&str>) -> Result<(), ApiError> {
    let essence = content_type.and_then(|full| full.split(';').next()).unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(ApiError::new(
        Code::UnsupportedMediaType,
        "the body was not read because it is not declared as JSON, and nothing was changed; send the header \
         `content-type: application/json`",
    ))
}

/// Accepts only a JSON object: a list of values in the right order is refused.
pub(crate) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_map(Object(PhantomData))
}

struct Object<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// For an optional field: it is absent or has a value of its type, but is never `null`.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// The same for a field whose value is one of our objects.
pub(crate) fn present_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    object(deserializer).map(Some)
}

fn bad_body(path: &str, why: &str) -> ApiError {
    let path = if path == "." { "" } else { path };
    let why: String = why.chars().take(QUOTED_CHARS_MAX).collect();
    // The error text names an unknown, missing or repeated field; the path to it does not.
    let named = ["unknown field `", "missing field `", "duplicate field `"]
        .iter()
        .find_map(|words| why.strip_prefix(words))
        .and_then(|rest| rest.split('`').next());
    let field = match (path, named) {
        (path, Some(named)) if path == named || path.ends_with(&format!(".{named}")) => path.to_owned(),
        ("", Some(named)) => named.to_owned(),
        (path, Some(named)) => format!("{path}.{named}"),
        (path, None) => path.to_owned(),
    };
    let field: String = field.chars().take(QUOTED_CHARS_MAX).collect();
    if field.is_empty() {
        return ApiError::new(
            Code::BadRequest,
            format!("the body cannot be read, and nothing was changed: {why}"),
        );
    }
    ApiError::new(Code::BadRequest, format!("`{field}`: {why}; nothing was changed")).with("field", field)
}
