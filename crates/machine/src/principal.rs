//! Who made a request: the name of a key, or the name of a person for whom a key acts.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use serde::{Deserialize, Serialize};

/// Between the name and the key in the stored form. No name contains it, because no name has control characters.
const SEPARATOR: char = '\u{1f}';

/// Who sent it: the name of a key, `anonymous`, or `system`; or the person for whom a trusted key acts. Never taken from
/// a request's body, except by the key that may act for others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Principal(Arc<str>);

impl Principal {
    #[must_use]
    pub fn system() -> Self {
        Self::from("system")
    }

    /// The person of this name, for whom the key `via` acts.
    #[must_use]
    pub fn acting(name: &str, via: &str) -> Self {
        Self::from(format!("{name}{SEPARATOR}{via}"))
    }

    /// The same again from what [`Principal::name`] and [`Principal::via`] returned.
    #[must_use]
    pub fn from_parts(name: &str, via: Option<&str>) -> Self {
        via.map_or_else(|| Self::from(name), |via| Self::acting(name, via))
    }

    /// The name that is shown. A key and a person may have the same name: `via` distinguishes them.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.split_once(SEPARATOR).map_or(&*self.0, |(name, _)| name)
    }

    /// The key that acts for this person. None if the principal is a key itself, or no key was used.
    #[must_use]
    pub fn via(&self) -> Option<&str> {
        self.0.split_once(SEPARATOR).map(|(_, via)| via)
    }

    /// The form in which it is stored and compared. It has both parts; use [`Principal::name`] to show it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the person or the key has this name.
    #[must_use]
    pub fn involves(&self, name: &str) -> bool {
        self.name() == name || self.via() == Some(name)
    }
}

impl From<&str> for Principal {
    fn from(text: &str) -> Self {
        Self(Arc::from(text))
    }
}

impl From<String> for Principal {
    fn from(text: String) -> Self {
        Self(Arc::from(text))
    }
}

/// The name alone.
impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_and_the_key_that_acts_for_them_are_told_apart() {
        let (key, person) = (Principal::from("ann"), Principal::acting("ann", "backend"));
        assert_eq!((key.name(), key.via()), ("ann", None));
        assert_eq!((person.name(), person.via()), ("ann", Some("backend")));
        assert_ne!(key, person);
        assert_ne!(person, Principal::acting("ann", "other"));
        assert_eq!(person, Principal::from(person.as_str()), "the stored form has both");
        assert_eq!(person, Principal::from_parts(person.name(), person.via()));
        assert_eq!(format!("{person}"), "ann");
        assert!(person.involves("ann") && person.involves("backend"));
        assert!(!person.involves("an") && !person.involves(person.as_str()));
    }
}
