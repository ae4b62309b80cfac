//! The owners: which one test holds which behaviour.

use std::collections::BTreeMap;

use crate::id::Id;

/// The path of the owning test, by id.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    pub(crate) by_id: BTreeMap<Id, String>,
}

impl Owners {
    /// `A12 turns::a12_a13_the_name_of_the_test`; a line that begins with `#` is prose.
    pub(crate) fn parse(text: &str) -> Result<Self, Vec<String>> {
        let mut owners = Self::default();
        let mut complaints = Vec::new();
        let mut last = None;
        for (index, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut complain = |why: String| complaints.push(format!("owners, line {}: {why}", index + 1));
            let parts = line.split_once(' ').and_then(|(word, path)| {
                let id = Id::parse(word).filter(|_| word.starts_with(|c: char| c.is_ascii_uppercase()))?;
                (!path.is_empty() && !path.contains(' ')).then_some((id, path))
            });
            let Some((id, path)) = parts else {
                complain(format!("`{line}` is not `ID path::of_the_test`"));
                continue;
            };
            if owners.by_id.insert(id, path.to_owned()).is_some() {
                complain(format!("{id} has two owners"));
            } else if last.is_some_and(|last| last > id) {
                complain(format!("{id} is out of order"));
            }
            if !may_own(id, path) {
                complain(format!("{id}: {path} does not have the id in its name"));
            }
            last = Some(id);
        }
        if complaints.is_empty() { Ok(owners) } else { Err(complaints) }
    }
}

/// The name of a test contains the ids of the behaviours that it owns. The resolution of a contradiction (X) is owned
/// by a test of one of the behaviours that it resolves.
fn may_own(id: Id, path: &str) -> bool {
    let own_name = path.rsplit("::").next().unwrap_or(path);
    id.section == 'X' || own_name.split('_').filter_map(Id::parse).any(|named| named == id)
}

#[cfg(test)]
mod tests {
    use super::Owners;

    #[test]
    fn owners_are_read_and_prose_is_not() {
        let owners =
            Owners::parse("# Prose.\n\nA1 turns::a1_a2_both\nA2 turns::a1_a2_both\nX1 turns::other\n")
                .expect("the list is well formed");
        let listed: Vec<String> = owners.by_id.iter().map(|(id, path)| format!("{id} {path}")).collect();
        assert_eq!(listed, ["A1 turns::a1_a2_both", "A2 turns::a1_a2_both", "X1 turns::other"]);
    }

    #[test]
    fn every_malformed_line_is_named() {
        for (bad, why) in [
            ("A1\n", "owners, line 1: `A1` is not `ID path::of_the_test`"),
            ("a1 a1_one\n", "owners, line 1: `a1 a1_one` is not `ID path::of_the_test`"),
            ("A1 a1_one a1_two\n", "owners, line 1: `A1 a1_one a1_two` is not `ID path::of_the_test`"),
            ("A1 a1_one\nA1 a1_two\n", "owners, line 2: A1 has two owners"),
            ("A2 a2_two\nA1 a1_one\n", "owners, line 2: A1 is out of order"),
            (
                "A1 turns::a11_other\n",
                "owners, line 1: A1: turns::a11_other does not have the id in its name",
            ),
            (
                "A1 a1_module::other\n",
                "owners, line 1: A1: a1_module::other does not have the id in its name",
            ),
        ] {
            let complaints = Owners::parse(bad).expect_err("the list is malformed");
            assert_eq!(complaints, [why], "{bad:?}");
        }
    }
}
