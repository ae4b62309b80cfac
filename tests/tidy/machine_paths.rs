//! No file names a folder that exists on one person's machine only.

use super::tree::{TextFile, assert_no_complaints, files};

/// Written in two pieces, so that this file does not contain what it looks for.
const PERSONAL_FOLDERS: [&str; 4] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

fn complaints(file: &TextFile) -> Vec<String> {
    let mut found = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for folder in PERSONAL_FOLDERS {
            let begins_a_path = line.match_indices(folder).any(|(place, _)| {
                // In `a/b/` the slash continues a relative path or an address.
                line[..place]
                    .chars()
                    .next_back()
                    .is_none_or(|before| !before.is_alphanumeric() && !"._-/})~".contains(before))
            });
            if begins_a_path {
                found.push(format!("{}:{}: `{folder}…` exists on one machine only", file.path, index + 1));
            }
        }
    }
    found
}

#[test]
fn no_file_names_a_folder_of_one_machine() {
    let found: Vec<String> = files().iter().flat_map(complaints).collect();
    assert_no_complaints(&found);
}

#[test]
fn a_folder_of_one_machine_is_found() {
    for folder in PERSONAL_FOLDERS {
        for bad in [format!("{folder}ann/run.rs"), format!("cd \"{folder}x\""), format!("at={folder}x")] {
            assert_eq!(complaints(&TextFile::new("a.md", &bad)).len(), 1, "{bad}");
        }
        let good = format!("docs{folder}x and example.org{folder}x");
        assert!(complaints(&TextFile::new("a.md", &good)).is_empty());
    }
}
