//! Bytes become a request, or a refusal that names the field.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use machine::depth::VALUE_DEPTH_MAX;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::error::{ApiError, Code};

/// A value may be as deep as anywhere else, inside the fields that are around it.
pub const BODY_DEPTH_MAX: usize = VALUE_DEPTH_MAX + 4;
/// What a refusal repeats of a request.
const QUOTED_CHARS_MAX: usize = 300;

/// Reads a body. An empty one is `{}` where that is allowed, and then needs no content type.
pub fn strict<T: DeserializeOwned>(
    content_type: Option<&str>,
    bytes: &[u8],
    empty_allowed: bool,
) -> Result<T, ApiError> {
    let bytes = match (bytes.is_empty(), empty_allowed) {
        (true, true) => b"{}",
        (true, false) => return Err(bad("", "the body is empty; send a JSON object")),
        (false, _) => {
            check_content_type(content_type)?;
            bytes
        }
    };
    check_shape(bytes)?;
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let mut track = serde_path_to_error::Track::new();
    let read = object(serde_path_to_error::Deserializer::new(&mut json, &mut track));
    match read {
        Ok(read) => Ok(read),
        Err(error) => Err(bad(&track.path().to_string(), &error.to_string())),
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

/// Whether it is JSON at all, without a key twice in one object and not nested too deeply. A key that stands twice
/// means one thing to one reader and another to the next.
fn check_shape(bytes: &[u8]) -> Result<(), ApiError> {
    let mut path = Vec::new();
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let walked = Walk { path: &mut path, depth: 1 }.deserialize(&mut json).and_then(|()| json.end());
    walked.map_err(|error| bad(&path.join(".").replace(".[", "["), &error.to_string()))
}

/// `{}` and nothing else: a list of values in the right order is not an object.
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

/// For an optional field: it is absent, or it has a value of its type. `null` is neither.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// The same for a field whose value is an object of ours.
pub(crate) fn present_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    object(deserializer).map(Some)
}

fn bad(path: &str, why: &str) -> ApiError {
    let path = if path == "." { "" } else { path };
    let why: String = why.chars().take(QUOTED_CHARS_MAX).collect();
    // An unknown, missing or repeated field stands in the words, not on the path that leads to it.
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

struct Walk<'p> {
    /// Stays where it is when something is wrong there.
    path: &'p mut Vec<String>,
    depth: usize,
}

impl Walk<'_> {
    fn deeper<E: serde::de::Error>(&mut self, step: String) -> Result<Walk<'_>, E> {
        self.path.push(step);
        if self.depth >= BODY_DEPTH_MAX {
            self.path.truncate(1);
            return Err(E::custom(format!("nested too deeply, at most {BODY_DEPTH_MAX}")));
        }
        Ok(Walk { path: self.path, depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let mut index = 0_usize;
        while items.next_element_seed(self.deeper(format!("[{index}]"))?)?.is_some() {
            self.path.pop();
            index += 1;
        }
        self.path.pop();
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = fields.next_key::<String>()? {
            if seen.contains(&key) {
                fields.next_value::<IgnoredAny>()?;
                self.path.push(key);
                return Err(A::Error::custom("the key stands twice in its object"));
            }
            fields.next_value_seed(self.deeper(key.clone())?)?;
            self.path.pop();
            seen.insert(key);
        }
        Ok(())
    }
}
