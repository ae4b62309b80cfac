//! Texts and ids of a request. The type of a field says how long its text may be, so that no field is unbounded.

use std::borrow::Cow;
use std::ops::Deref;

use engine::live::NOTE_CHARS_MAX;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::error::{ApiError, bad_field};

const ID_CHARS_MAX: usize = 128;

/// An id chosen by the client: `[A-Za-z0-9._:-]{1,128}`.
#[derive(Clone, Debug, PartialEq, Eq, ToSchema)]
#[schema(value_type = String, pattern = "^[A-Za-z0-9._:-]{1,128}$")]
pub struct Id(String);

impl Id {
    fn is_valid(text: &str) -> bool {
        (1..=ID_CHARS_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte))
    }
}

impl Deref for Id {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if Self::is_valid(&text) { Ok(Self(text)) } else { Err(D::Error::custom(ID_RULE)) }
    }
}

const ID_RULE: &str = "an id has 1 to 128 characters out of A-Z, a-z, 0-9 and . _ : -";

/// Checks an id in a path or a query that has to follow the rule for ids.
pub fn check_id(field: &str, text: &str) -> Result<(), ApiError> {
    if Id::is_valid(text) { Ok(()) } else { Err(bad_field(field, ID_RULE)) }
}

/// A text of at least `MIN` and at most `MAX` characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text<const MIN: usize, const MAX: usize>(String);

impl<const MIN: usize, const MAX: usize> Text<MIN, MAX> {
    #[must_use]
    pub fn into_string(self) -> String {
        self.0
    }
}

impl<const MIN: usize, const MAX: usize> Deref for Text<MIN, MAX> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<const MIN: usize, const MAX: usize> PartialSchema for Text<MIN, MAX> {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new().schema_type(Type::String);
        text.min_length((MIN > 0).then_some(MIN)).max_length(Some(MAX)).build().into()
    }
}

impl<const MIN: usize, const MAX: usize> ToSchema for Text<MIN, MAX> {
    /// A separate schema name for each pair of limits.
    fn name() -> Cow<'static, str> {
        Cow::Owned(format!("TextOf{MIN}To{MAX}"))
    }
}

impl<'de, const MIN: usize, const MAX: usize> Deserialize<'de> for Text<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let count = text.chars().count();
        if (MIN..=MAX).contains(&count) {
            return Ok(Self(text));
        }
        Err(D::Error::custom(format!("a text of {count} characters, expected {MIN} to {MAX}")))
    }
}

/// Maximum length of an approver's remark.
pub(crate) const REASON_CHARS_MAX: usize = 4_000;
/// An approver's remark about a decision.
pub(crate) type Remark = Text<0, REASON_CHARS_MAX>;
/// How the tool or client that performed a call describes its failure.
pub(crate) type FaultText = Text<0, 65_536>;
/// A log line of a tool.
pub(crate) type NoteText = Text<0, NOTE_CHARS_MAX>;
/// An id that the model or another client chose.
pub(crate) type ForeignId = Text<1, 512>;
