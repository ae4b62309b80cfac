//! The tests that passed, read from what `cargo test` printed, and the ids that their names carry.

use crate::id::Id;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PassedTest {
    /// Its path, without the store that it ran on.
    pub(crate) path: String,
    /// In the order in which the name carries them.
    pub(crate) ids: Vec<Id>,
}

/// The modules in which a test is written once for each store.
const STORES: [&str; 3] = ["in_memory", "on_sqlite", "on_postgres"];

pub(crate) fn passed_tests(output: &str) -> Vec<PassedTest> {
    output.lines().filter_map(passed_test).collect()
}

/// `test turns::b26_b35_duplicate_result_changes_nothing ... ok`
fn passed_test(line: &str) -> Option<PassedTest> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... ok")?;
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    // An example in the documentation is named after its place, and a path does not name a behaviour.
    if name.contains(' ') {
        return None;
    }
    // Modules do not count either: an id vouches for one test, not for a file of them.
    let own_name = name.rsplit("::").next().unwrap_or(name);
    let path: Vec<&str> = name.split("::").filter(|part| !STORES.contains(part)).collect();
    Some(PassedTest { path: path.join("::"), ids: own_name.split('_').filter_map(Id::parse).collect() })
}

#[cfg(test)]
mod tests {
    use super::{PassedTest, passed_tests};
    use crate::id::Id;

    #[test]
    fn only_passed_tests_count_and_only_their_own_names() {
        let output = "\
running 7 tests
test turns::b26_b35_duplicate_result_changes_nothing ... ok
test c4_module::late_result ... ok
test turns::b27_late ... FAILED
test turns::b28_unknown ... ignored
test turns::panics_b29 - should panic ... ok
test stories::on_sqlite::b30_twice ... ok
test src/lib.rs - a3 (line 4) ... ok
test result: FAILED. 5 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out
";
        let id = |number| Id { section: 'B', number };
        let passed = |path: &str, ids: Vec<Id>| PassedTest { path: path.to_owned(), ids };
        assert_eq!(
            passed_tests(output),
            [
                passed("turns::b26_b35_duplicate_result_changes_nothing", vec![id(26), id(35)]),
                passed("c4_module::late_result", vec![]),
                passed("turns::panics_b29", vec![id(29)]),
                passed("stories::b30_twice", vec![id(30)]),
            ]
        );
    }
}
