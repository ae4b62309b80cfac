//! Regular expressions in the file, compiled here so that an invalid one is reported before anything starts.

use regex::Regex;

use super::table::Entry;

pub(super) fn read(entry: &Entry<'_>) -> Option<String> {
    let text = entry.text("a regular expression")?;
    match Regex::new(text) {
        Ok(_) => Some(text.to_owned()),
        Err(error) => {
            // The last line says what is wrong; the lines before it mark the position.
            let said = error.to_string();
            let why = said.lines().last().unwrap_or_default().trim_start_matches("error: ");
            entry.location.refuse(format!("{text:?} is no regular expression: {why}; correct the pattern"))
        }
    }
}
