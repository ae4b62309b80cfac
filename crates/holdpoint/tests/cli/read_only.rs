//! A store that can be read and not written.
#![cfg(unix)]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::program::{CommandOutput, Folder};

/// The usual id of an account without privileges.
const NOBODY: u32 = 65_534;

/// Runs the program as an unprivileged account: folder permissions do not restrict root.
fn run_bound(folder: &Folder, programs: &Folder, arguments: &[&str]) -> CommandOutput {
    let program = programs.path().join("holdpoint");
    if !program.exists() {
        // Other accounts may not be able to read the build folder. `cp` copies in another process: a program that this
        // process has open for writing cannot be started while other tests start programs.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_holdpoint")).arg(&program).status();
        assert!(copied.is_ok_and(|status| status.success()), "the program can be copied");
        fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("it can be allowed");
    }
    let mut command = Command::new(program);
    command.current_dir(folder.path()).args(arguments);
    if fs::metadata(folder.path()).expect("the folder is there").uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    CommandOutput::capture(&mut command)
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("permissions can be changed");
}

#[tokio::test]
async fn a_store_in_a_folder_that_cannot_be_written_to_is_read_all_the_same() {
    let (folder, programs, elsewhere) = (Folder::with_a_store().await, Folder::new(), Folder::new());
    allow(programs.path(), 0o755);
    allow(elsewhere.path(), 0o777);
    allow(&folder.store(), 0o444);
    allow(folder.path(), 0o555);
    let run = |arguments: &[&str]| run_bound(&folder, &programs, arguments);
    let said = run(&["doctor", "--json"]);
    assert_eq!((said.code, &said.json()["healthy"]), (Some(0), &json!(true)), "{said:?}");
    assert_eq!(run(&["size", "--json"]).json()["runs"], json!(3));
    assert_eq!(run(&["prune", "--older-than", "0s", "--dry-run", "--json"]).json()["threads"], json!(2));
    let copy = elsewhere.path().join("copy.db");
    let said = run(&["backup", &copy.display().to_string()]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let said = run(&["backup", "copy.db", "--json"]);
    assert_eq!((said.code, said.error()["code"].as_str()), (Some(1), Some("BACKUP_FAILED")), "{said:?}");
    let said = run(&["prune", "--older-than", "0s", "--json"]);
    assert_eq!((said.code, said.error()["code"].as_str()), (Some(1), Some("STORE_READ_ONLY")), "{said:?}");
    allow(folder.path(), 0o755);
    assert_eq!(folder.run(&["--store", &format!("sqlite:{}", copy.display()), "doctor"]).code, Some(0));
}

#[tokio::test]
async fn a_leftover_log_in_a_read_only_folder_is_explained() {
    let (folder, programs, left) = (Folder::new(), Folder::new(), Folder::new());
    allow(programs.path(), 0o755);
    let engine = folder.serve().await;
    // The files that a killed process leaves.
    for name in ["holdpoint.db", "holdpoint.db-wal"] {
        fs::copy(folder.path().join(name), left.path().join(name)).expect("the file can be copied");
        allow(&left.path().join(name), 0o444);
    }
    engine.close(std::time::Duration::from_secs(5)).await;
    allow(left.path(), 0o555);
    let said = run_bound(&left, &programs, &["doctor", "--json"]);
    assert_eq!((said.code, said.error()["code"].as_str()), (Some(1), Some("STORE_SEALED")), "{said:?}");
    assert!(said.error()["next"].as_str().is_some_and(|next| next.contains("-wal")), "{said:?}");
    allow(left.path(), 0o755);
    // If the folder is writable, the write-ahead log is read.
    assert_eq!(left.run(&["doctor", "--json"]).json()["runs"], json!(3));
}
