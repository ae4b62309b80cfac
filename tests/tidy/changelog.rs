//! The change log has a place for what the next commit brings.

use super::tree::{TextFile, file};

fn has_unreleased_section(changelog: &TextFile) -> bool {
    // Keep a Changelog puts it first among the sections; anywhere else it is a section that was forgotten.
    let first_section = changelog.text.lines().find(|line| line.starts_with("## "));
    first_section == Some("## [Unreleased]")
}

#[test]
fn the_change_log_begins_with_what_is_unreleased() {
    assert!(
        has_unreleased_section(file("CHANGELOG.md")),
        "CHANGELOG.md: first section must be `## [Unreleased]`"
    );
}

#[test]
fn a_change_log_without_an_unreleased_section_is_found() {
    let changelog = |text| TextFile::new("CHANGELOG.md", text);
    assert!(has_unreleased_section(&changelog("# Changelog\n\n## [Unreleased]\n\n## [0.1.0]\n")));
    assert!(!has_unreleased_section(&changelog("# Changelog\n\n## [0.1.0]\n")));
    assert!(!has_unreleased_section(&changelog("# Changelog\n\n## [0.1.0]\n\n## [Unreleased]\n")));
    assert!(!has_unreleased_section(&changelog("")));
}
