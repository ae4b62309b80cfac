//! Help, wrong command lines, and stores that are not there.

use crate::program::Folder;

#[test]
fn help_names_every_command_and_goes_to_standard_output() {
    let folder = Folder::new();
    let said = folder.run(&["--help"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    for word in ["doctor", "backup", "prune", "size", "--store", "--json", "Exit codes"] {
        assert!(said.out.contains(word), "{word} is missing:\n{}", said.out);
    }
    for command in ["doctor", "backup", "prune", "size"] {
        let said = folder.run(&[command, "--help"]);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
        assert!(said.out.contains("[default: sqlite:holdpoint.db]"), "{}", said.out);
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
fn a_file_that_is_no_store_is_said_to_be_none() {
    let folder = Folder::new();
    std::fs::write(
        folder.store(),
        "a letter, which is longer than the header of a database, but is none at all, and \
        goes on for a while, so that nobody can say that it was too short to be told from one",
    )
    .expect("it is written");
    let said = folder.run(&["doctor", "--json"]);
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
    assert_eq!(said.error()["code"], "STORE_DAMAGED");
    std::fs::write(folder.store(), "").expect("it is written");
    let said = folder.run(&["doctor", "--json"]);
    assert_eq!((said.code, said.error()["code"].as_str()), (Some(2), Some("NOT_A_STORE")));
}
