//! Upkeep of a PostgreSQL database while an engine uses it.

use std::time::Duration;

use holdpoint::prelude::*;
use holdpoint::store::postgres::PostgresStore;

use crate::postgres_server::Server;
use crate::program::Folder;

#[tokio::test]
async fn a_database_is_pruned_and_measured_while_it_is_used() {
    let (server, folder) = (Server::start(), Folder::new());
    let url = format!("postgres://holdpoint@localhost:{}/postgres", server.port);
    let said = folder.run(&["size", "--store", &url, "--json"]);
    assert_eq!((said.code, said.error()["code"].as_str()), (Some(2), Some("STORE_NOT_FOUND")), "{said:?}");
    let store = PostgresStore::open(&url).await.expect("the store opens");
    let engine = Folder::serve_on(store).await;
    let said = folder.run(&["prune", "--older-than", "1h", "--store", &url]);
    assert_eq!(
        (said.code, &*said.out),
        (Some(0), "0 threads with 0 runs and 0 events were deleted.\n"),
        "{said:?}"
    );
    let said = folder.run(&["prune", "--older-than", "0s", "--dry-run", "--store", &url]);
    assert!(
        said.out.starts_with("2 threads with 2 runs and ") && said.out.ends_with(" would be deleted.\n"),
        "{said:?}"
    );
    let said = folder.run(&["prune", "--older-than", "0s", "--batch", "1", "--json", "--store", &url]);
    let pruned = said.json();
    assert_eq!((said.code, &pruned["threads"], &pruned["runs"]), (Some(0), &json!(2), &json!(2)));
    let said = folder.run(&["size", "--store", &url, "--json"]);
    let size = said.json();
    assert_eq!((said.code, &size["runs"]), (Some(0), &json!(1)), "held runs are not deleted");
    assert!(size["bytes"].as_u64() > Some(0), "{size}");
    let said = folder.run(&["size", "--store", &url]);
    assert!(said.out.contains("commits") && said.out.contains("per run"), "{said:?}");
    assert_eq!(engine.pending(&Tenant::default()).await.expect("the list is read").len(), 1);
    engine.close(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_database_is_examined_while_it_is_used_and_what_is_wrong_is_found() {
    let (server, folder) = (Server::start(), Folder::new());
    let url = format!("postgres://holdpoint@localhost:{}/postgres", server.port);
    let store = PostgresStore::open(&url).await.expect("the store opens");
    let engine = Folder::serve_on(store).await;
    let said = folder.run(&["doctor", "--store", &url]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let place = format!("postgres://localhost:{}/postgres: 3 threads, 3 runs, ", server.port);
    assert!(said.out.starts_with(&place) && said.out.ends_with("Nothing is wrong.\n"), "{}", said.out);
    assert!(said.out.contains(" in the tables, dead rows included; "), "{}", said.out);
    assert!(said.err.contains("looking at threads: 0 of 3\n"), "{}", said.err);
    server.say("UPDATE holdpoint.commits SET body = replace(body, '\"run.started', '\"run.xtarted')");
    let said = folder.run(&["doctor", "--store", &url, "--json"]);
    let report = said.json();
    assert_eq!((said.code, &report["healthy"], &report["threads"]), (Some(1), &json!(false), &json!(3)));
    assert_eq!(report["counts"], json!({"UNREADABLE": 3}));
    assert!(report["size"]["bytes"].as_u64() > Some(0), "{report}");
    for part in ["where", "what", "next"] {
        let finding = &report["findings"][0];
        assert!(finding[part].as_str().is_some_and(|text| text.len() > 10), "{finding}");
    }
    let said = folder.run(&["doctor", "--store", &url]);
    assert!(
        said.out.contains("UNREADABLE at run ") && said.out.ends_with("3 things are wrong.\n"),
        "{said:?}"
    );
    engine.close(Duration::from_secs(5)).await;
}

#[test]
fn file_commands_name_the_tool_to_use_for_a_database() {
    let folder = Folder::new();
    let url = "postgres://ann:sesame@127.0.0.1:1/runs";
    let said = folder.run(&["backup", "copy.db", "--store", url, "--json"]);
    assert_eq!((said.code, said.error()["code"].as_str()), (Some(2), Some("NOT_A_FILE")), "{said:?}");
    assert!(said.err.contains("pg_basebackup") && !said.err.contains("sesame"), "{said:?}");
    for command in [&["size"][..], &["prune", "--older-than", "1d"], &["doctor"]] {
        let said = folder.run(&[command, &["--store", url, "--json"]].concat());
        assert_eq!(
            (said.code, said.error()["code"].as_str()),
            (Some(1), Some("STORE_UNAVAILABLE")),
            "{said:?}"
        );
        assert!(said.err.contains("database") && !said.err.contains("sesame"), "{said:?}");
    }
}
