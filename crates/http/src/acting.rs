//! Keys that act for others: the header with which a trusted service names the person for whom it sends a request.

use axum::http::{HeaderMap, HeaderName};
use machine::id::Principal;
use machine::visible::is_visible;

use crate::error::{ApiError, Code};
use crate::setup::ANONYMOUS;

pub(crate) const ACTING_FOR: HeaderName = HeaderName::from_static("holdpoint-acting-for");
const NAME_CHARS_MAX: usize = 128;
/// The prefix of a tool that reports through its callback.
const TOOL_PREFIX: &str = "tool:";

/// The person that the header names. None without the header.
pub(crate) fn read_header(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let mut values = headers.get_all(ACTING_FOR).iter();
    let name = match (values.next(), values.next()) {
        (None, _) => return Ok(None),
        (Some(value), None) => std::str::from_utf8(value.as_bytes()).unwrap_or_default(),
        (Some(_), Some(_)) => "",
    };
    match check_name(name) {
        Ok(()) => Ok(Some(name)),
        Err(why) => Err(ApiError::new(
            Code::BadRequest,
            format!("`Holdpoint-Acting-For`: {why}; nothing was done. Send the header once, in UTF-8"),
        )
        .with("field", ACTING_FOR.as_str())),
    }
}

/// Why this cannot be the name of a person, if it cannot. A name that an approver cannot see or that means a caller
/// without a key is refused, so that the audit record cannot mislead its reader.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let count = name.chars().count();
    let is_good = (1..=NAME_CHARS_MAX).contains(&count)
        && name.chars().all(is_visible)
        && !name.starts_with(' ')
        && !name.ends_with(' ');
    if !is_good {
        return Err(format!("a name has 1 to {NAME_CHARS_MAX} visible characters"));
    }
    if name == ANONYMOUS || name == Principal::system().name() || name.starts_with(TOOL_PREFIX) {
        return Err("this name means a caller without a key".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_visible_and_not_too_long() {
        let longest = "a".repeat(NAME_CHARS_MAX);
        for good in ["ann", "Ann Smith", "ann@example.com", "J\u{f6}rg", "\u{738b}", longest.as_str()] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        let too_long = "a".repeat(NAME_CHARS_MAX + 1);
        let bad = ["", " ", " ann", "ann ", "a\tb", "a\u{1f}b", "a\u{200b}b", "a\u{202e}b", "a\nb", "\u{0}"];
        for bad in bad.into_iter().chain([too_long.as_str(), "system", "anonymous", "tool:pay"]) {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }
}
