//! Help, wrong command lines, and missing stores.

use crate::program::Folder;

#[test]
fn help_names_every_command_and_goes_to_standard_output() {
    let folder = Folder::new();
    let said = folder.run(&["--help"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    for word in [
        "serve",
        "demo",
        "prove",
        "check",
        "doctor",
        "backup",
        "prune",
        "size",
        "runs",
        "approvals",
        "replay",
        "--store",
        "--json",
        "Exit codes",
    ] {
        assert!(said.out.contains(word), "{word} is missing:\n{}", said.out);
    }
    for command in ["serve", "check", "doctor", "backup", "prune", "size"] {
        let said = folder.run(&[command, "--help"]);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
        assert!(said.out.contains("[default: sqlite:holdpoint.db]"), "{}", said.out);
    }
    for command in ["runs", "approvals", "replay"] {
        let said = folder.run(&[command, "--help"]);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
        for word in ["--url", "HOLDPOINT_URL", "HOLDPOINT_TOKEN"] {
            assert!(said.out.contains(word), "{word} is missing:\n{}", said.out);
        }
    }
}

#[test]
fn a_wrong_command_line_exits_with_2_and_makes_nothing() {
    let folder = Folder::new();
    let wrong: [&[&str]; 9] = [
        &[],
        &["cure"],
        &["doctor", "--fast"],
        &["backup"],
        &["prune"],
        &["prune", "--older-than", "a while"],
        &["prune", "--older-than", "30"],
        &["prune", "--older-than", "30d", "--batch", "0"],
        &["doctor", "--store", "holdpoint.db"],
    ];
    for arguments in wrong {
        let said = folder.run(arguments);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{arguments:?}: {said:?}");
        assert!(!said.err.is_empty(), "{arguments:?}");
    }
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn a_store_that_is_not_there_exits_with_2_and_is_not_made() {
    let folder = Folder::new();
    let commands: [&[&str]; 5] = [
        &["doctor"],
        &["size"],
        &["backup", "copy.db"],
        &["prune", "--older-than", "30d"],
        &["prune", "--older-than", "30d", "--dry-run"],
    ];
    for arguments in commands {
        let said = folder.run(arguments);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{arguments:?}: {said:?}");
        assert_eq!(
            said.err,
            "STORE_NOT_FOUND: there is no file holdpoint.db\n  next: Name the store with --store sqlite:PATH.\n"
        );
        let said = folder.run(&[arguments, &["--json"]].concat());
        assert_eq!(said.error()["code"], "STORE_NOT_FOUND");
        assert!(said.error()["next"].is_string() && said.out.is_empty());
    }
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn a_file_that_is_no_store_is_reported() {
    let folder = Folder::new();
    std::fs::write(
        folder.store(),
        "a letter, which is not a database. It is longer than the header of a database, so that \
        the program has enough bytes to see the difference, and does not refuse it as too short.",
    )
    .expect("it is written");
    let letter = std::fs::read(folder.store()).expect("it can be read");
    for contents in [letter, br#"{"rules": []}"#.to_vec()] {
        std::fs::write(folder.store(), &contents).expect("it is written");
        let names = folder.names();
        for arguments in [&["doctor"][..], &["size"], &["prune", "--older-than", "30d"]] {
            let said = folder.run(arguments);
            assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{said:?}");
            assert!(
                said.err.starts_with("NOT_A_STORE: ") && said.err.contains("is not a SQLite"),
                "{said:?}"
            );
            assert!(said.err.contains("next: Name the store with --store"), "{said:?}");
            assert_eq!(folder.names(), names, "{arguments:?}");
        }
        assert_eq!(std::fs::read(folder.store()).expect("it can be read"), contents);
    }
    std::fs::write(folder.store(), "").expect("it is written");
    let said = folder.run(&["doctor", "--json"]);
    assert_eq!((said.code, said.error()["code"].as_str()), (Some(2), Some("NOT_A_STORE")));
}

#[test]
fn a_missing_folder_is_reported() {
    let folder = Folder::new();
    std::fs::write(folder.path().join("holdpoint.toml"), "[store]\nurl = \"sqlite:none/runs.db\"\n")
        .expect("it is written");
    let said = folder.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.starts_with("STORE_FOLDER_MISSING: the folder none does not exist"), "{said:?}");
    assert!(said.err.contains("\n  next: Make the folder"), "{said:?}");
}

#[tokio::test]
async fn a_file_of_another_program_is_reported_as_no_store_and_not_changed() {
    let folder = Folder::with_a_store().await;
    std::fs::remove_file(folder.path().join("holdpoint.db.lock")).expect("the lock file is there");
    let mut bytes = std::fs::read(folder.store()).expect("the store can be read");
    // The application id in the header of an SQLite file.
    bytes[68..72].fill(0);
    for contents in [bytes, Vec::new()] {
        std::fs::write(folder.store(), &contents).expect("it is written");
        let before = folder.names();
        let commands: [&[&str]; 5] = [
            &["doctor"],
            &["size"],
            &["backup", "copy.db"],
            &["prune", "--older-than", "30d"],
            &["prune", "--older-than", "30d", "--dry-run"],
        ];
        for arguments in commands {
            let said = folder.run(&[arguments, &["--json"]].concat());
            assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{arguments:?}: {said:?}");
            assert_eq!(said.error()["code"], "NOT_A_STORE", "{arguments:?}");
            assert_eq!(folder.names(), before, "{arguments:?}");
            let after = std::fs::read(folder.store()).expect("it can be read");
            assert!(after == contents, "{arguments:?} wrote to it");
        }
    }
}

#[test]
fn a_wrong_command_line_is_reported_as_json_if_requested() {
    let folder = Folder::new();
    let wrong: [(&[&str], &str); 4] = [
        (&["--json"], "subcommand"),
        (&["doctor", "--fast", "--json"], "--fast"),
        (&["--json", "prune"], "--older-than"),
        (&["prune", "--json", "--older-than", "a while"], "a while"),
    ];
    for (arguments, says) in wrong {
        let said = folder.run(arguments);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{arguments:?}: {said:?}");
        assert_eq!(said.err.lines().count(), 1, "{said:?}");
        let error = said.error();
        assert_eq!(error["code"], "WRONG_COMMAND_LINE");
        assert_eq!(error["next"], "Run holdpoint --help.");
        assert!(error["cause"].as_str().is_some_and(|cause| cause.contains(says)), "{error}");
    }
    // After `--` nothing is an option.
    let said = folder.run(&["backup", "copy.db", "--", "--json"]);
    assert!(said.err.starts_with("error: "), "{said:?}");
}

#[tokio::test]
async fn a_command_whose_output_is_not_read_does_its_work() {
    let folder = Folder::with_a_store().await;
    for (arguments, code) in [(["prune", "--older-than", "0s"], 0), (["backup", "no/copy.db", "--json"], 1)] {
        let (reader, writer) = std::io::pipe().expect("a pipe can be made");
        drop(reader);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        let status = command.current_dir(folder.path()).args(arguments).stderr(writer).output();
        assert_eq!(status.expect("the program starts").status.code(), Some(code), "{arguments:?}");
    }
    assert_eq!(folder.run(&["size", "--json"]).json()["runs"], 1);
}
