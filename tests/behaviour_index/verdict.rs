//! The comparison: which ids have no owner that passed, and which exceptions are out of date.

use std::collections::BTreeSet;

use crate::catalogue::Catalogue;
use crate::id::Id;
use crate::owners::Owners;
use crate::test_output::PassedTest;

/// More exceptions than this would be a catalogue of wishes.
const EXCEPTION_COUNT_MAX: usize = 40;

/// One line for a person, or every complaint.
pub(crate) fn judge(
    catalogue: &Catalogue,
    owners: &Owners,
    passed: &[PassedTest],
) -> Result<String, Vec<String>> {
    let is_checked = |id: &&Id| catalogue.checked.contains(&id.section);
    let mut complaints = Vec::new();
    let paths: BTreeSet<&str> = passed.iter().map(|test| test.path.as_str()).collect();
    for test in passed {
        for id in test.ids.iter().filter(is_checked).filter(|id| !catalogue.ids.contains(id)) {
            complaints.push(format!("{id}: test {} names it, the catalogue does not", test.path));
        }
    }
    for (id, path) in &owners.by_id {
        if !catalogue.ids.contains(id) || !is_checked(&id) {
            complaints.push(format!("{id}: has an owner, but the catalogue does not check it"));
        }
        if !paths.contains(path.as_str()) {
            complaints.push(format!("{id}: its owner {path} has not passed"));
        }
    }
    for id in catalogue.ids.iter().filter(is_checked) {
        match (owners.by_id.contains_key(id), catalogue.exceptions.contains_key(id)) {
            (true, false) | (false, true) => {}
            (false, false) => {
                complaints.push(format!("{id}: no test owns it, and section 7 gives no reason"))
            }
            (true, true) => {
                complaints.push(format!("{id}: listed in section 7, but a test owns it; remove the line"))
            }
        }
    }
    for id in catalogue.exceptions.keys().filter(|id| !catalogue.ids.contains(id)) {
        complaints.push(format!("{id}: listed in section 7, but the catalogue does not have it"));
    }
    let exception_count = catalogue.exceptions.keys().filter(is_checked).count();
    if exception_count > EXCEPTION_COUNT_MAX {
        complaints.push(format!("section 7 lists {exception_count} ids, at most {EXCEPTION_COUNT_MAX}"));
    }
    if !complaints.is_empty() {
        return Err(complaints);
    }
    let id_count = catalogue.ids.iter().filter(is_checked).count();
    let letters: Vec<String> = catalogue.checked.iter().map(char::to_string).collect();
    let owning: BTreeSet<&String> = owners.by_id.values().collect();
    Ok(format!(
        "behaviour index: {id_count} ids of {}: {} owned by {} tests that passed, \
         {exception_count} listed without a test (at most {EXCEPTION_COUNT_MAX})",
        letters.join(", "),
        owners.by_id.len(),
        owning.len(),
    ))
}

#[cfg(test)]
mod tests {
    use super::judge;
    use crate::catalogue::Catalogue;
    use crate::owners::Owners;
    use crate::test_output::passed_tests;

    fn judged(exceptions: &str, owners: &str, test_names: &[&str]) -> Result<String, Vec<String>> {
        let entries = "A1 a\nA2 b\nD1 c\n";
        let text = format!("{entries}## 7. Ids without a test of their own\nchecked: A\n{exceptions}");
        let catalogue = Catalogue::parse(&text).expect("the catalogue is well formed");
        let owners = Owners::parse(owners).expect("the list of owners is well formed");
        let output: String = test_names.iter().map(|name| format!("test {name} ... ok\n")).collect();
        judge(&catalogue, &owners, &passed_tests(&output))
    }

    fn refused(why: &str) -> Result<String, Vec<String>> {
        Err(vec![why.to_owned()])
    }

    #[test]
    fn an_id_is_owned_by_a_test_that_passed_or_has_a_reason() {
        let summary = "behaviour index: 2 ids of A: 2 owned by 1 tests that passed, 0 listed without a test (at most 40)";
        let both = "A1 turns::a1_a2_both\nA2 turns::a1_a2_both\n";
        let ran = ["turns::in_memory::a1_a2_both", "turns::on_sqlite::a1_a2_both", "other"];
        assert_eq!(judged("", both, &ran), Ok(summary.to_owned()));
        let summary = "behaviour index: 2 ids of A: 1 owned by 1 tests that passed, 1 listed without a test (at most 40)";
        let one = judged("- A2: owned by the engine.\n", "A1 a1_one\n", &["a1_one"]);
        assert_eq!(one, Ok(summary.to_owned()));
    }

    #[test]
    fn an_id_without_an_owner_is_found_also_where_other_tests_name_it() {
        let complaint = "A2: no test owns it, and section 7 gives no reason";
        assert_eq!(judged("", "A1 a1_one\n", &["a1_one", "a2_two"]), refused(complaint));
    }

    #[test]
    fn an_owner_that_did_not_pass_is_found_although_another_test_names_its_id() {
        let owners = "A1 turns::a1_one\nA2 turns::a2_two\n";
        let ran = ["turns::a1_one", "other::a2_two", "turns::a2_three"];
        assert_eq!(judged("", owners, &ran), refused("A2: its owner turns::a2_two has not passed"));
    }

    #[test]
    fn an_exception_that_is_out_of_date_is_found() {
        let owners = "A1 a1_a2_both\nA2 a1_a2_both\n";
        let complaint = "A2: listed in section 7, but a test owns it; remove the line";
        let listed = judged("- A2: owned by the engine.\n", owners, &["a1_a2_both"]);
        assert_eq!(listed, refused(complaint));
        let complaint = "A9: listed in section 7, but the catalogue does not have it";
        let listed = judged("- A9: owned by the engine.\n", owners, &["a1_a2_both"]);
        assert_eq!(listed, refused(complaint));
    }

    #[test]
    fn an_id_that_does_not_exist_is_found_in_a_test_and_in_the_list() {
        let owners = "A1 a1_a2_both\nA2 a1_a2_both\n";
        let complaint = "A3: test turns::a3_gone names it, the catalogue does not";
        assert_eq!(judged("", owners, &["a1_a2_both", "turns::a3_gone"]), refused(complaint));
        let complaint = "D1: has an owner, but the catalogue does not check it";
        let more = format!("{owners}D1 d1_one\n");
        assert_eq!(judged("", &more, &["a1_a2_both", "d1_one"]), refused(complaint));
    }

    #[test]
    fn sections_that_are_not_checked_need_nothing() {
        let owners = "A1 a1_a2_both\nA2 a1_a2_both\n";
        assert!(judged("", owners, &["a1_a2_both", "d1_first", "d7_unknown"]).is_ok());
    }

    #[test]
    fn more_exceptions_than_the_limit_are_refused() {
        let entries: String = (1..=41).map(|number| format!("A{number} a\n")).collect();
        let listed: String = (1..=41).map(|number| format!("- A{number}: owned by the engine.\n")).collect();
        let text = format!("{entries}## 7. Ids without a test of their own\nchecked: A\n{listed}");
        let catalogue = Catalogue::parse(&text).expect("the catalogue is well formed");
        let judged = judge(&catalogue, &Owners::default(), &[]);
        assert_eq!(judged, refused("section 7 lists 41 ids, at most 40"));
    }
}
