//! `doctor`, `backup`, `prune` and `size`.

use std::time::Duration;

use holdpoint::prelude::*;

use crate::program::Folder;

#[tokio::test]
async fn a_good_store_has_nothing_wrong_with_it() {
    let folder = Folder::with_a_store().await;
    let before = folder.names();
    let said = folder.run(&["doctor"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.starts_with("sqlite:holdpoint.db: 3 threads, 3 runs, "), "{}", said.out);
    assert!(said.out.ends_with("Nothing is wrong.\n"), "{}", said.out);
    assert!(said.err.contains("looking at threads: 0 of 3\n"), "{}", said.err);
    let said = folder.run(&["doctor", "--json"]);
    let report = said.json();
    assert_eq!(said.code, Some(0));
    assert_eq!(
        (&report["healthy"], &report["runs"], &report["findings"]),
        (&json!(true), &json!(3), &json!([]))
    );
    assert_eq!(folder.names(), before);
}

#[tokio::test]
async fn a_damaged_store_is_found_to_be_damaged() {
    let folder = Folder::with_a_store().await;
    let mut bytes = std::fs::read(folder.store()).expect("the store can be read");
    // At every position: SQLite does not erase data that it has moved.
    let places: Vec<usize> =
        (0..bytes.len()).filter(|place| bytes[*place..].starts_with(b"\"run.started")).collect();
    assert!(places.len() >= 3, "three runs have started");
    places.iter().for_each(|place| bytes[place + 1] = b'x');
    std::fs::write(folder.store(), &bytes).expect("the store can be written");
    let said = folder.run(&["doctor", "--json"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let report = said.json();
    assert_eq!((&report["healthy"], &report["counts"]["UNREADABLE"]), (&json!(false), &json!(3)));
    let finding = &report["findings"][0];
    assert_eq!(finding["code"], "UNREADABLE");
    for part in ["where", "what", "next"] {
        assert!(finding[part].as_str().is_some_and(|text| text.len() > 10), "{finding}");
    }
    let said = folder.run(&["doctor"]);
    assert_eq!(said.code, Some(1));
    assert!(said.out.contains("UNREADABLE at run ") && said.out.contains("  next: "), "{}", said.out);
    assert!(said.out.ends_with("3 things are wrong.\n"), "{}", said.out);
}

#[tokio::test]
async fn read_only_commands_work_while_a_server_runs() {
    let folder = Folder::new();
    let engine = folder.serve().await;
    assert_eq!(folder.run(&["doctor", "--json"]).json()["healthy"], json!(true));
    assert_eq!(folder.run(&["size", "--json"]).json()["runs"], json!(3));
    let said = folder.run(&["backup", "copy.db", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(folder.run(&["doctor", "--store", "sqlite:copy.db", "--json"]).json()["runs"], json!(3));
    let said = folder.run(&["prune", "--older-than", "0s", "--dry-run", "--json"]);
    assert_eq!((said.code, &said.json()["threads"]), (Some(0), &json!(2)));
    let said = folder.run(&["prune", "--older-than", "0s", "--json"]);
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
    assert_eq!(said.error()["code"], "STORE_IN_USE");
    assert!(said.error()["next"].as_str().is_some_and(|next| next.contains("--dry-run")));
    // The engine is not affected.
    let tenant = Tenant::default();
    let approval = engine.pending(&tenant).await.expect("the list is read").remove(0);
    let verdict = engine.decide(approval.approve("ann")).await.expect("the decision is stored");
    assert_eq!(verdict, Verdict::Accepted);
    engine.close(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_backup_is_made_once_and_passes_the_doctor() {
    let folder = Folder::with_a_store().await;
    let said = folder.run(&["backup", "copy.db"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.starts_with("copy.db: "), "{}", said.out);
    assert!(said.err.starts_with("copying pages: "), "{}", said.err);
    let doctor = folder.run(&["--store", "sqlite:copy.db", "doctor"]);
    assert!(doctor.out.starts_with("sqlite:copy.db: 3 threads, 3 runs, "), "{doctor:?}");
    assert_eq!(folder.names(), ["copy.db", "holdpoint.db", "holdpoint.db.lock"]);
    let bytes = std::fs::read(folder.path().join("copy.db")).expect("the copy can be read");
    let said = folder.run(&["backup", "copy.db", "--json"]);
    assert_eq!((said.code, said.error()["code"].as_str()), (Some(2), Some("BACKUP_EXISTS")));
    assert_eq!(std::fs::read(folder.path().join("copy.db")).expect("the copy can be read"), bytes);
    let said = folder.run(&["backup", "nowhere/copy.db", "--json"]);
    assert_eq!((said.code, said.error()["code"].as_str()), (Some(1), Some("BACKUP_FAILED")));
}

#[tokio::test]
async fn what_ended_is_pruned_and_what_is_held_stays() {
    let folder = Folder::with_a_store().await;
    let said = folder.run(&["prune", "--older-than", "1h"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.starts_with("0 threads with 0 runs and 0 events were deleted."), "{}", said.out);
    let said = folder.run(&["prune", "--older-than", "0s", "--dry-run"]);
    assert!(said.out.starts_with("2 threads with 2 runs and "), "{}", said.out);
    assert!(said.out.ends_with(" would be deleted.\n"), "{}", said.out);
    let said = folder.run(&["prune", "--older-than", "0s", "--batch", "1", "--json"]);
    let pruned = said.json();
    assert_eq!((said.code, &pruned["threads"], &pruned["runs"]), (Some(0), &json!(2), &json!(2)));
    let report = folder.run(&["doctor", "--json"]).json();
    assert_eq!((&report["healthy"], &report["runs"]), (&json!(true), &json!(1)));
    let store = SqliteStore::open(folder.store()).expect("the store opens");
    let view = Engine::on(store).start().await.expect("the engine starts");
    assert_eq!(view.pending(&Tenant::default()).await.expect("the list is read").len(), 1);
    view.close(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn the_size_is_reported_by_run_step_and_table() {
    let folder = Folder::with_a_store().await;
    let size = folder.run(&["size", "--json"]).json();
    let number = |name: &str| size[name].as_u64().unwrap_or_else(|| panic!("{name} is no number: {size}"));
    assert_eq!((number("runs"), number("steps")), (3, 3));
    let used = number("file_bytes") - number("free_bytes");
    assert_eq!((number("bytes_per_run"), number("bytes_per_step")), (used / 3, used / 3));
    let file = std::fs::metadata(folder.store()).expect("the store is there").len();
    assert_eq!(number("file_bytes"), file);
    let commits =
        size["tables"].as_array().and_then(|tables| tables.iter().find(|table| table["name"] == "commits"));
    assert!(commits.is_some_and(|table| table["bytes"].as_u64() >= Some(number("event_bytes"))), "{size}");
    let said = folder.run(&["size"]);
    for word in ["per run", "per step", "commits", "suspensions"] {
        assert!(said.out.contains(word), "{word} is missing:\n{}", said.out);
    }
}
