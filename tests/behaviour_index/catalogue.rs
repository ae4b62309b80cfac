//! The catalogue: which behaviours there are, which sections are checked, and which ids have no test and why.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::Id;

/// The heading of the list of exceptions. Everything before it is catalogue.
const EXCEPTIONS_HEADING: &str = "## 7. Ids without a test of their own";

/// A reason names the rule that overrules the id or the work that will add its test, so that the list can shrink.
const REASONS: [&str; 2] = ["overruled by ", "owned by "];

#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    pub(crate) ids: BTreeSet<Id>,
    /// The letters whose ids need a test or a reason.
    pub(crate) checked: BTreeSet<char>,
    /// Ids without a test, each with its reason.
    pub(crate) exceptions: BTreeMap<Id, String>,
}

impl Catalogue {
    pub(crate) fn parse(text: &str) -> Result<Self, Vec<String>> {
        let mut catalogue = Self::default();
        let mut complaints = Vec::new();
        let mut is_in_exceptions = false;
        let mut is_in_code = false;
        for (index, line) in text.lines().enumerate() {
            if line.starts_with("```") {
                is_in_code = !is_in_code;
            }
            // The page explains the syntax by an example in a code block, which is not an entry.
            if is_in_code {
                continue;
            }
            if line.starts_with("## ") {
                is_in_exceptions = line == EXCEPTIONS_HEADING;
            }
            let read =
                if is_in_exceptions { catalogue.read_exception(line) } else { catalogue.read_entry(line) };
            complaints.extend(read.err().map(|why| format!("line {}: {why}", index + 1)));
        }
        if catalogue.checked.is_empty() {
            complaints.push("no line `checked: A B C` says which sections are checked".to_owned());
        }
        if complaints.is_empty() { Ok(catalogue) } else { Err(complaints) }
    }

    /// `- A12 text`, `A12+ text`, `B36+! text`; any other line is prose.
    fn read_entry(&mut self, line: &str) -> Result<(), String> {
        let line = line.strip_prefix("- ").unwrap_or(line);
        let Some((word, _)) = line.split_once(' ') else {
            return Ok(());
        };
        let word = word.strip_suffix('!').unwrap_or(word);
        let word = word.strip_suffix('+').unwrap_or(word);
        let Some(id) = Id::parse(word).filter(|_| word.starts_with(|c: char| c.is_ascii_uppercase())) else {
            return Ok(());
        };
        if self.ids.insert(id) { Ok(()) } else { Err(format!("{id} occurs twice in the catalogue")) }
    }

    /// `checked: A B C` or `- A55: overruled by …`; any other line is prose.
    fn read_exception(&mut self, line: &str) -> Result<(), String> {
        if let Some(letters) = line.strip_prefix("checked: ") {
            for word in letters.split_whitespace() {
                let mut chars = word.chars();
                match (chars.next(), chars.next()) {
                    (Some(letter), None) if letter.is_ascii_uppercase() => self.checked.insert(letter),
                    _ => return Err(format!("`{word}` is not the letter of a section")),
                };
            }
            return Ok(());
        }
        let Some(entry) = line.strip_prefix("- ") else {
            return Ok(());
        };
        let Some((id, reason)) =
            entry.split_once(": ").and_then(|(word, reason)| Some((Id::parse(word)?, reason)))
        else {
            return Err(format!("`{line}` is not `- ID: reason`"));
        };
        let is_reason = REASONS.iter().any(|start| reason.starts_with(start)) && reason.ends_with('.');
        if !is_reason {
            return Err(format!(
                "{id}: a reason is a sentence that begins with `overruled by` or `owned by`"
            ));
        }
        match self.exceptions.insert(id, reason.to_owned()) {
            None => Ok(()),
            Some(_) => Err(format!("{id} is listed twice")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Catalogue;

    fn parse(exceptions: &str) -> Result<Catalogue, Vec<String>> {
        let entries =
            "# Title\nA dozen words.\n\n- A1 Two machines.\n- A2+ More.\nB3+! Bare.\nX1 Contradiction.\n";
        Catalogue::parse(&format!("{entries}\n## 7. Ids without a test of their own\n\n{exceptions}"))
    }

    #[test]
    fn entries_are_read_with_and_without_marks_and_prose_is_not() {
        let catalogue = parse("checked: A B\n").expect("the catalogue is well formed");
        let ids: Vec<String> = catalogue.ids.iter().map(ToString::to_string).collect();
        assert_eq!(ids, ["A1", "A2", "B3", "X1"]);
        assert_eq!(catalogue.checked.iter().collect::<String>(), "AB");
    }

    #[test]
    fn exceptions_are_read_and_examples_are_not() {
        let catalogue = parse(
            "Prose.\n\n```text\n- A2: owned by an example.\n```\n\nchecked: A\n\n- A1: overruled by the log.\n",
        )
        .expect("the catalogue is well formed");
        let listed: Vec<String> =
            catalogue.exceptions.iter().map(|(id, reason)| format!("{id} {reason}")).collect();
        assert_eq!(listed, ["A1 overruled by the log."]);
    }

    #[test]
    fn every_malformed_line_is_named() {
        for (bad, why) in [
            ("", "no line `checked: A B C` says which sections are checked"),
            ("checked: AB\n", "line 11: `AB` is not the letter of a section"),
            ("checked: A\n- A1 owned by x.\n", "line 12: `- A1 owned by x.` is not `- ID: reason`"),
            (
                "checked: A\n- A1: too hard.\n",
                "line 12: A1: a reason is a sentence that begins with `overruled by` or `owned by`",
            ),
            (
                "checked: A\n- A1: owned by x\n",
                "line 12: A1: a reason is a sentence that begins with `overruled by` or `owned by`",
            ),
            ("checked: A\n- A1: owned by x.\n- A1: owned by y.\n", "line 13: A1 is listed twice"),
        ] {
            let complaints = parse(bad).expect_err("the catalogue is malformed");
            assert!(complaints.iter().any(|complaint| complaint == why), "{bad:?}: {complaints:?}");
        }
        assert_eq!(
            Catalogue::parse("A1 a\nA1 b\n").expect_err("an id occurs twice")[0],
            "line 2: A1 occurs twice in the catalogue"
        );
    }
}
