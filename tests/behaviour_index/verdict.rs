//! The comparison: which ids nobody vouches for, and which exceptions are out of date.

use std::collections::BTreeSet;

use crate::catalogue::Catalogue;
use crate::id::Id;
use crate::test_output::PassedTest;

/// More exceptions than this would be a catalogue of wishes.
const EXCEPTION_COUNT_MAX: usize = 40;

/// One line for a person, or every complaint.
pub(crate) fn judge(catalogue: &Catalogue, passed: &[PassedTest]) -> Result<String, Vec<String>> {
    let is_checked = |id: &Id| catalogue.checked.contains(&id.section);
    let mut complaints = Vec::new();
    let mut tested: BTreeSet<Id> = BTreeSet::new();
    let mut vouching = 0;
    for test in passed {
        let ids: Vec<Id> = test.ids.iter().copied().filter(is_checked).collect();
        vouching += usize::from(!ids.is_empty());
        for id in ids {
            if !catalogue.ids.contains(&id) {
                complaints.push(format!("{id}: test {} names it, the catalogue does not", test.name));
            }
            tested.insert(id);
        }
    }
    for id in catalogue.ids.iter().filter(|id| is_checked(id)) {
        if !tested.contains(id) && !catalogue.exceptions.contains_key(id) {
            complaints
                .push(format!("{id}: no passed test has it in its name, and section 7 gives no reason"));
        }
    }
    for id in catalogue.exceptions.keys() {
        if !catalogue.ids.contains(id) {
            complaints.push(format!("{id}: listed in section 7, but the catalogue does not have it"));
        }
        if tested.contains(id) {
            complaints.push(format!("{id}: listed in section 7, but a test passes for it; remove the line"));
        }
    }
    let exception_count = catalogue.exceptions.keys().filter(|id| is_checked(id)).count();
    if exception_count > EXCEPTION_COUNT_MAX {
        complaints.push(format!("section 7 lists {exception_count} ids, at most {EXCEPTION_COUNT_MAX}"));
    }
    if !complaints.is_empty() {
        return Err(complaints);
    }
    let id_count = catalogue.ids.iter().filter(|id| is_checked(id)).count();
    let letters: Vec<String> = catalogue.checked.iter().map(char::to_string).collect();
    Ok(format!(
        "behaviour index: {id_count} ids of {}: {} vouched for by {vouching} tests, \
         {exception_count} listed without a test (at most {EXCEPTION_COUNT_MAX})",
        letters.join(", "),
        tested.len(),
    ))
}

#[cfg(test)]
mod tests {
    use super::judge;
    use crate::catalogue::Catalogue;
    use crate::test_output::passed_tests;

    fn judged(exceptions: &str, test_names: &[&str]) -> Result<String, Vec<String>> {
        let entries = "A1 a\nA2 b\nD1 c\n";
        let text = format!("{entries}## 7. Ids without a test of their own\nchecked: A\n{exceptions}");
        let catalogue = Catalogue::parse(&text).expect("the catalogue is well formed");
        let output: String = test_names.iter().map(|name| format!("test {name} ... ok\n")).collect();
        judge(&catalogue, &passed_tests(&output))
    }

    #[test]
    fn an_id_is_vouched_for_by_a_test_or_by_a_reason() {
        let summary =
            "behaviour index: 2 ids of A: 2 vouched for by 1 tests, 0 listed without a test (at most 40)";
        assert_eq!(judged("", &["a1_a2_both", "other"]), Ok(summary.to_owned()));
        let summary =
            "behaviour index: 2 ids of A: 1 vouched for by 1 tests, 1 listed without a test (at most 40)";
        assert_eq!(judged("- A2: owned by the engine.\n", &["a1_one"]), Ok(summary.to_owned()));
    }

    #[test]
    fn an_id_that_nobody_vouches_for_is_found() {
        let complaint = "A2: no passed test has it in its name, and section 7 gives no reason";
        assert_eq!(judged("", &["a1_one"]), Err(vec![complaint.to_owned()]));
    }

    #[test]
    fn an_exception_that_is_out_of_date_is_found() {
        let complaint = "A2: listed in section 7, but a test passes for it; remove the line";
        assert_eq!(judged("- A2: owned by the engine.\n", &["a1_a2_both"]), Err(vec![complaint.to_owned()]));
        let complaint = "A9: listed in section 7, but the catalogue does not have it";
        assert_eq!(judged("- A9: owned by the engine.\n", &["a1_a2_both"]), Err(vec![complaint.to_owned()]));
    }

    #[test]
    fn a_test_for_an_id_that_does_not_exist_is_found() {
        let complaint = "A3: test turns::a3_gone names it, the catalogue does not";
        assert_eq!(judged("", &["a1_a2_both", "turns::a3_gone"]), Err(vec![complaint.to_owned()]));
    }

    #[test]
    fn sections_that_are_not_checked_need_nothing() {
        assert!(judged("", &["a1_a2_both", "d1_first", "d7_unknown"]).is_ok());
    }

    #[test]
    fn more_exceptions_than_the_limit_are_refused() {
        let entries: String = (1..=41).map(|number| format!("A{number} a\n")).collect();
        let listed: String = (1..=41).map(|number| format!("- A{number}: owned by the engine.\n")).collect();
        let text = format!("{entries}## 7. Ids without a test of their own\nchecked: A\n{listed}");
        let catalogue = Catalogue::parse(&text).expect("the catalogue is well formed");
        assert_eq!(judge(&catalogue, &[]), Err(vec!["section 7 lists 41 ids, at most 40".to_owned()]));
    }
}
