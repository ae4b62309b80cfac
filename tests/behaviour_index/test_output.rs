//! The tests that passed, read from what `cargo test` printed, and the ids that their names carry.

use crate::id::Id;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PassedTest {
    pub(crate) name: String,
    /// In the order in which the name carries them.
    pub(crate) ids: Vec<Id>,
}

pub(crate) fn passed_tests(output: &str) -> Vec<PassedTest> {
    output.lines().filter_map(passed_test).collect()
}

/// `test turns::b26_b35_duplicate_result_changes_nothing ... ok`
fn passed_test(line: &str) -> Option<PassedTest> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... ok")?;
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    // An example in the documentation is named after its place, and a place says nothing about behaviour.
    if name.contains(' ') {
        return None;
    }
    // Modules do not count either: an id vouches for one test, not for a file of them.
    let own_name = name.rsplit("::").next().unwrap_or(name);
    Some(PassedTest { name: name.to_owned(), ids: own_name.split('_').filter_map(Id::parse).collect() })
}

#[cfg(test)]
mod tests {
    use super::{PassedTest, passed_tests};
    use crate::id::Id;

    #[test]
    fn only_passed_tests_count_and_only_their_own_names() {
        let output = "\
running 6 tests
test turns::b26_b35_duplicate_result_changes_nothing ... ok
test c4_module::late_result ... ok
test turns::b27_late ... FAILED
test turns::b28_unknown ... ignored
test turns::panics_b29 - should panic ... ok
test src/lib.rs - a3 (line 4) ... ok
test result: FAILED. 4 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out
";
        let id = |number| Id { section: 'B', number };
        let passed = |name: &str, ids: Vec<Id>| PassedTest { name: name.to_owned(), ids };
        assert_eq!(
            passed_tests(output),
            [
                passed("turns::b26_b35_duplicate_result_changes_nothing", vec![id(26), id(35)]),
                passed("c4_module::late_result", vec![]),
                passed("turns::panics_b29", vec![id(29)]),
            ]
        );
    }
}
