//! How domain types look in JSON. Absent and null differ: a field with a `?` in the contract is absent if it does not
//! apply. The other fields are always present, and null until they have a value.

pub mod approval;
pub mod audit;
pub mod call;
pub mod decision;
pub mod enums;
pub mod event;
pub(crate) mod event_schema;
pub mod feed;
pub mod grant;
pub mod hydrate;
pub mod live;
pub mod message;
pub mod page;
pub mod payload;
pub mod run;
pub mod state;
pub mod thread;
pub mod time;

use machine::id::Principal;
use machine::json_text::{self, Bounds};
use machine::tool::Arguments;
use serde_json::Value;

/// For a flag that is written only if it is true.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
pub(crate) const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// The name of a principal, and the key that acted for it.
pub(crate) fn principal_parts(by: Option<&Principal>) -> (Option<String>, Option<String>) {
    (by.map(|by| by.name().to_owned()), by.and_then(via_text))
}

/// The key that acted for the principal, if one did.
pub(crate) fn via_text(by: &Principal) -> Option<String> {
    by.via().map(str::to_owned)
}

/// Arguments as they were written: parsed if they are JSON, otherwise the plain text.
pub(crate) fn arguments(arguments: &Arguments) -> Value {
    match arguments {
        Arguments::Valid { value, .. } => (**value).clone(),
        Arguments::Invalid { raw, .. } => {
            json_text::parse(raw, &Bounds::VALUE).unwrap_or_else(|_| Value::String(raw.clone()))
        }
    }
}
