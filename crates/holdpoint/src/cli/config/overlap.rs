//! Checks whether a folder that a tool writes to contains files that no tool may change.

use std::path::{Component, Path, PathBuf};

/// The first of `protected` that is in the folder, or is the folder. Companions of a file, such as the log and the lock
/// of a store, are in the same folder as the file.
pub(in crate::cli) fn first_inside<'k>(folder: &Path, protected: &'k [PathBuf]) -> Option<&'k PathBuf> {
    let folder = resolved(folder);
    protected.iter().find(|file| {
        // A symbolic link can be replaced in its own folder, and its target can be changed in the target's folder.
        let named_in = file.parent().map(resolved);
        named_in.is_some_and(|parent| parent.starts_with(&folder)) || resolved(file).starts_with(&folder)
    })
}

/// The absolute path without symbolic links and dots. A path that does not exist yet is used as written.
fn resolved(path: &Path) -> PathBuf {
    // The parent of a bare file name is empty and means the current folder.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut whole = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::ParentDir => {
                whole.pop();
            }
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                whole.push(part);
                whole = whole.canonicalize().unwrap_or(whole);
            }
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::cli::scratch::Scratch;

    #[test]
    fn a_folder_is_found_to_contain_a_file_under_any_path() {
        let scratch = Scratch::new("overlap").expect("a folder can be made");
        let at = |name: &str| scratch.path().join(name);
        std::fs::create_dir_all(at("a/b")).expect("a folder can be made");
        std::fs::create_dir(at("other")).expect("a folder can be made");
        std::fs::write(at("a/b/kept.db"), "").expect("a file can be made");
        symlink(at("a"), at("link")).expect("a link can be made");
        symlink(at("a/b/kept.db"), at("other/link.db")).expect("a link can be made");
        let protected = [at("a/b/kept.db")];
        for folder in
            ["a", "a/b", ".", "link", "link/b", "other/../a", "a/b/../b", "a/b/kept.db", "none/../a"]
        {
            assert_eq!(first_inside(&at(folder), &protected), protected.first(), "{folder}");
        }
        for folder in ["other", "a/b/c", "a/written", "none", "a/b-2"] {
            assert_eq!(first_inside(&at(folder), &protected), None, "{folder}");
        }
        // A file named by a symbolic link is protected in both places, even if it does not exist yet.
        let named = [at("other/link.db")];
        assert!(first_inside(&at("other"), &named).is_some() && first_inside(&at("a"), &named).is_some());
        assert!(first_inside(&at("new"), &[at("new/holdpoint.db")]).is_some());
    }
}
