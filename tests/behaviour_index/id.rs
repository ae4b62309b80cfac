//! The id of one behaviour: the letter of its source and a number, as in `B26`.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    /// Always upper case; test names write it in lower case.
    pub(crate) section: char,
    pub(crate) number: u32,
}

impl Id {
    /// Reads an id that fills the whole word: `A12`, or `a12` as in the name of a test.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        let mut chars = word.chars();
        let section = chars.next().filter(char::is_ascii_alphabetic)?.to_ascii_uppercase();
        let digits = chars.as_str();
        // `str::parse` would take a sign, and a leading zero would give one behaviour two names.
        let is_number =
            digits.starts_with(|c| matches!(c, '1'..='9')) && digits.chars().all(|c| c.is_ascii_digit());
        if !is_number {
            return None;
        }
        Some(Self { section, number: digits.parse().ok()? })
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.section, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::Id;

    #[test]
    fn a_word_is_an_id_only_as_a_whole() {
        assert_eq!(Id::parse("b26"), Some(Id { section: 'B', number: 26 }));
        assert_eq!(Id::parse("B26").map(|id| id.to_string()), Some("B26".to_owned()));
        for word in ["", "b", "26", "b26x", "bb26", "b+26", "b-1", "b0", "b026", "b2²", "b99999999999"] {
            assert_eq!(Id::parse(word), None, "{word}");
        }
    }
}
