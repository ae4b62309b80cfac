//! White space that no reader sees and every diff shows.

use super::tree::{TextFile, assert_no_complaints, files};

fn is_judged(file: &TextFile) -> bool {
    ["rs", "md", "toml"].iter().any(|extension| file.has_extension(extension))
}

fn complaints(file: &TextFile) -> Vec<String> {
    let mut found = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let place = format!("{}:{}", file.path, index + 1);
        if line.ends_with(char::is_whitespace) {
            found.push(format!("{place}: white space at the end of the line"));
        }
        let indentation = &line[..line.len() - line.trim_start().len()];
        if indentation.contains('\t') {
            found.push(format!("{place}: indent with spaces, not with tabs"));
        }
    }
    if !file.text.is_empty() && (!file.text.ends_with('\n') || file.text.ends_with("\n\n")) {
        found.push(format!("{}: end with exactly one line break", file.path));
    }
    found
}

#[test]
fn no_file_has_white_space_where_nobody_sees_it() {
    let found: Vec<String> = files().iter().filter(|file| is_judged(file)).flat_map(complaints).collect();
    assert_no_complaints(&found);
}

#[test]
fn stray_white_space_is_found() {
    for bad in ["a \n", "a\t\n", "\ta\n", "  \ta\n", "a", "a\n\n"] {
        assert_eq!(complaints(&TextFile::new("a.md", bad)).len(), 1, "{bad:?}");
    }
    assert!(complaints(&TextFile::new("a.md", "a\n\n  b\tc\n")).is_empty());
}
