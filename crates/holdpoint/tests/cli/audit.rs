//! `audit export` and `audit verify` on stores, backups and exports, without a server.

use engine::store::{AuditStore, Tenant};
use machine::Timestamp;
use machine::audit::{Actor, AuditAction, AuditEntry};
use rusqlite::Connection;
use serde_json::json;
use stores::sqlite::SqliteStore;

use crate::program::{CommandOutput, Folder};

/// A store with four sealed records of two tenants each.
async fn folder() -> Folder {
    let folder = Folder::new();
    let store = SqliteStore::open(folder.store()).expect("the store opens");
    for tenant in ["acme", "other"] {
        for (at, by) in (1..).zip(["ann", "bo", "ann", "eve"]) {
            let entry = AuditEntry::new(Timestamp(at), AuditAction::ApprovalApproved, Actor::from(by));
            store.record_audit(&Tenant::from(tenant), &entry).await.expect("it is recorded");
        }
    }
    assert_eq!(store.seal_audit().await.expect("they are sealed"), 8);
    folder
}

fn tamper(folder: &Folder, sql: &str) {
    let raw = Connection::open(folder.store()).expect("the file opens");
    raw.execute_batch(sql).expect("it is changed");
    assert_ne!(raw.total_changes(), 0, "{sql} changes nothing");
}

/// Writes the export of the store to a file.
fn export(folder: &Folder, name: &str) -> String {
    let exported = folder.run(&["audit", "export"]);
    assert_eq!(exported.code, Some(0), "{exported:?}");
    std::fs::write(folder.path().join(name), &exported.out).expect("the export is written");
    exported.out
}

fn assert_broken(said: &CommandOutput, at: &str) {
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains(at), "{at}: {}", said.out);
    assert!(said.out.ends_with("The audit record is broken.\n"), "{}", said.out);
}

#[tokio::test]
async fn an_intact_record_is_verified_in_a_store_a_backup_and_an_export() {
    let folder = folder().await;
    let exported = export(&folder, "audit.jsonl");
    assert_eq!(exported.lines().count(), 12, "{exported}");
    assert_eq!(folder.run(&["backup", "copy.db"]).code, Some(0));
    for arguments in [
        &["audit", "verify"][..],
        &["audit", "verify", "audit.jsonl"],
        &["audit", "verify", "--store", "sqlite:copy.db"],
        &["audit", "verify", "--against", "audit.jsonl"],
    ] {
        let said = folder.run(arguments);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.out.starts_with("acme: 4 records, head 4 "), "{}", said.out);
        assert!(said.out.ends_with("Every record is as it was sealed.\n"), "{}", said.out);
    }
    let one = folder.run(&["audit", "export", "--tenant", "other"]).out;
    assert_eq!(one.lines().collect::<Vec<_>>(), exported.lines().skip(6).collect::<Vec<_>>());
    let said = folder.run(&["audit", "verify", "--json"]).json();
    assert_eq!((&said["intact"], &said["tenants"][1]["records"]), (&json!(true), &json!(4)));
}

#[tokio::test]
async fn an_altered_or_removed_record_is_found_and_named() {
    for (sql, at) in [
        (
            "UPDATE audit SET body = replace(body, 'bo', 'al') WHERE tenant = 'acme' AND seq = 2",
            "acme: BROKEN at record 2",
        ),
        ("UPDATE audit SET actor = 'al' WHERE tenant = 'other' AND seq = 3", "other: BROKEN at record 3"),
        ("DELETE FROM audit WHERE tenant = 'other' AND seq = 1", "other: BROKEN at record 2"),
        ("DELETE FROM audit WHERE tenant = 'acme' AND seq = 4", "acme: BROKEN at record 4"),
    ] {
        let folder = folder().await;
        tamper(&folder, sql);
        assert_broken(&folder.run(&["audit", "verify"]), at);
        let doctor = folder.run(&["doctor"]);
        assert_eq!(doctor.code, Some(1));
        assert!(doctor.out.contains("AUDIT_BROKEN"), "{}", doctor.out);
    }
    let folder = folder().await;
    let exported = export(&folder, "audit.jsonl");
    for (name, broken) in [
        ("altered", exported.replace("\"bo\"", "\"al\"")),
        ("removed", exported.lines().filter(|line| !line.contains("\"bo\"")).collect::<Vec<_>>().join("\n")),
        ("cut", exported.lines().take(4).collect::<Vec<_>>().join("\n")),
        ("spaced", exported.replace("\"by\":", "\"by\": ")),
    ] {
        assert_ne!(broken, exported, "{name}");
        std::fs::write(folder.path().join(name), broken).expect("it is written");
        assert_broken(&folder.run(&["audit", "verify", name]), "acme: BROKEN at record ");
    }
    let said = folder.run(&["audit", "verify", "nowhere", "--json"]);
    assert_eq!((said.code, said.error()["code"].as_str()), (Some(2), Some("EXPORT_UNREADABLE")));
}

#[tokio::test]
async fn a_tail_cut_off_with_its_head_is_found_against_an_earlier_export() {
    let folder = folder().await;
    export(&folder, "audit.jsonl");
    tamper(
        &folder,
        "DELETE FROM audit WHERE tenant = 'acme' AND seq > 2;
         UPDATE audit_chains SET seq = 2, hash = (SELECT hash FROM audit WHERE tenant = 'acme' AND seq = 2)
         WHERE tenant = 'acme'",
    );
    assert_eq!(folder.run(&["audit", "verify"]).code, Some(0), "the chain alone cannot show it");
    assert_broken(&folder.run(&["audit", "verify", "--against", "audit.jsonl"]), "acme: BROKEN at record 3");
    export(&folder, "later.jsonl");
    let said = folder.run(&["audit", "verify", "later.jsonl", "--against", "audit.jsonl"]);
    assert_broken(&said, "acme: BROKEN at record 3");
    tamper(
        &folder,
        "DELETE FROM audit WHERE tenant = 'acme'; DELETE FROM audit_chains WHERE tenant = 'acme'",
    );
    assert_broken(&folder.run(&["audit", "verify", "--against", "audit.jsonl"]), "acme: BROKEN at record 1");
}
