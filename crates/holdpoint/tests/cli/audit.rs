//! `audit export` and `audit verify` on stores, backups and exports, without a server.

use engine::store::{AuditFilter, AuditStore, Tenant};
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
    assert_eq!(store.seal_audit().await.expect("they are sealed").records, 8);
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

const WITHOUT_THE_OLDEST: &str = "UPDATE audit_chains SET pruned_seq = 2, \
        pruned_hash = (SELECT hash FROM audit WHERE tenant = 'acme' AND seq = 2) WHERE tenant = 'acme'; \
    DELETE FROM audit WHERE tenant = 'acme' AND seq <= 2";

#[tokio::test]
async fn the_oldest_records_cannot_be_removed_by_moving_the_beginning_of_the_chain() {
    let folder = folder().await;
    tamper(&folder, WITHOUT_THE_OLDEST);
    let said = folder.run(&["audit", "verify"]);
    assert_broken(
        &said,
        "acme: BROKEN at record 1: records 1 to 2 are missing, and no `audit.pruned` record",
    );
    assert!(folder.run(&["doctor"]).out.contains("AUDIT_BROKEN"));
    export(&folder, "short.jsonl");
    assert_broken(
        &folder.run(&["audit", "verify", "short.jsonl"]),
        "acme: BROKEN at record 1: records 1 to 2",
    );
    prune(&folder, 4).await;
    assert_broken(&folder.run(&["audit", "verify"]), "acme: BROKEN at record 1: records 1 to 2");
}

async fn prune(folder: &Folder, older_than: u64) {
    let store = SqliteStore::open(folder.store()).expect("the store opens");
    assert_ne!(store.prune_audit(Timestamp(older_than)).await.expect("it is pruned"), 0);
}

#[tokio::test]
async fn what_retention_deleted_is_not_missing_and_is_not_called_compared() {
    let folder = folder().await;
    export(&folder, "early.jsonl");
    prune(&folder, 3).await;
    for arguments in [&["audit", "verify"][..], &["audit", "verify", "--against", "early.jsonl"]] {
        let said = folder.run(arguments);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.out.starts_with("acme: 3 records, head 5 "), "{}", said.out);
    }
    // The known head is the last record that was pruned.
    prune(&folder, 5).await;
    assert_eq!(folder.run(&["audit", "verify", "--against", "early.jsonl"]).code, Some(0));
    let forged = std::fs::read_to_string(folder.path().join("early.jsonl")).expect("the export");
    let head = forged.lines().find(|line| line.starts_with(r#"{"head""#)).expect("it has a head");
    let hash = head.split('"').nth(5).expect("a hash");
    let other = format!("00{}", &hash[2..]);
    std::fs::write(folder.path().join("forged.jsonl"), forged.replace(hash, &other)).expect("it is written");
    let said = folder.run(&["audit", "verify", "--against", "forged.jsonl"]);
    assert_broken(&said, "acme: BROKEN at record 4: its hash was 00");
    prune(&folder, u64::MAX).await;
    let said = folder.run(&["audit", "verify", "--against", "early.jsonl"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.out.contains("acme: NOT COMPARED: the known head 4"), "{}", said.out);
    assert!(!said.out.contains("Every record is as it was sealed"), "{}", said.out);
    let said = folder.run(&["audit", "verify", "--against", "early.jsonl", "--json"]).json();
    assert_eq!((&said["intact"], &said["compared"]), (&json!(true), &json!(false)));
    assert_eq!(folder.run(&["audit", "verify"]).code, Some(0));
}

#[tokio::test]
async fn a_forged_row_after_the_head_is_reported_and_stops_only_its_own_tenant() {
    let folder = folder().await;
    let forged = "INSERT INTO audit (tenant, at, action, actor, body, seq, hash) \
        SELECT tenant, at, action, actor, body, 5, hash FROM audit WHERE tenant = 'acme' AND seq = 4";
    tamper(&folder, forged);
    let store = SqliteStore::open(folder.store()).expect("the store opens");
    for tenant in ["acme", "other"] {
        let entry = AuditEntry::new(Timestamp(9), AuditAction::KeyAdded, Actor::from("ann"));
        store.record_audit(&Tenant::from(tenant), &entry).await.expect("it is recorded");
    }
    let sealed = store.seal_audit().await.expect("the other tenant is sealed");
    assert_eq!((sealed.records, &sealed.stopped[..]), (1, &[Tenant::from("acme")][..]));
    assert_eq!(engine::store::seal_all(&store).await.expect("it ends"), [Tenant::from("acme")]);
    let all = AuditFilter::default();
    let listed = store.audit(&Tenant::from("acme"), &all, 0, 10).await.expect("it is listed");
    assert_eq!(listed.iter().map(|record| record.seq).collect::<Vec<_>>(), [1, 2, 3, 4]);
    drop(store);
    let said = folder.run(&["audit", "verify"]);
    assert_broken(&said, "acme: BROKEN at record 5: its hash should be");
    assert!(said.out.contains("acme: 1 more records are not sealed yet"), "{}", said.out);
    assert!(said.out.contains("other: 5 records"), "{}", said.out);
    assert!(folder.run(&["doctor"]).out.contains("audit record 5 of tenant acme"));
}

#[tokio::test]
async fn a_stored_head_that_was_set_back_is_reported() {
    let folder = folder().await;
    let back = "UPDATE audit_chains SET seq = 3, hash = (SELECT hash FROM audit WHERE tenant = 'acme' AND seq = 3) \
        WHERE tenant = 'acme'";
    tamper(&folder, back);
    assert_broken(
        &folder.run(&["audit", "verify"]),
        "acme: BROKEN at record 4: the stored head is 3, and records",
    );
}

#[tokio::test]
async fn a_line_outside_of_a_chain_is_refused() {
    let folder = folder().await;
    let exported = export(&folder, "audit.jsonl");
    let record = exported.lines().nth(1).expect("a record");
    for text in [format!("{record}\n{exported}"), format!("{exported}{record}\n")] {
        std::fs::write(folder.path().join("stray.jsonl"), text).expect("it is written");
        let said = folder.run(&["audit", "verify", "stray.jsonl", "--json"]);
        assert_eq!((said.code, said.error()["code"].as_str()), (Some(2), Some("EXPORT_UNREADABLE")));
    }
}

#[tokio::test]
async fn a_restored_backup_says_so_and_is_not_called_cut_off() {
    let folder = folder().await;
    assert_eq!(folder.run(&["backup", "copy.db"]).code, Some(0));
    let store = SqliteStore::open(folder.store()).expect("the store opens");
    for tenant in ["acme", "other"] {
        let entry = AuditEntry::new(Timestamp(9), AuditAction::KeyAdded, Actor::from("ann"));
        store.record_audit(&Tenant::from(tenant), &entry).await.expect("it is recorded");
    }
    engine::store::seal_all(&store).await.expect("they are sealed");
    drop(store);
    export(&folder, "later.jsonl");
    std::fs::rename(folder.path().join("copy.db"), folder.store()).expect("it is restored");
    for wal in ["holdpoint.db-wal", "holdpoint.db-shm"] {
        let _ = std::fs::remove_file(folder.path().join(wal));
    }
    let store = SqliteStore::open(folder.store()).expect("the store opens");
    engine::store::seal_all(&store).await.expect("they are sealed");
    drop(store);
    drop(SqliteStore::open(folder.store()).expect("the store opens again"));
    let said = folder.run(&["audit", "verify"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.starts_with("acme: 5 records, head 5 "), "only one record says so: {}", said.out);
    let said = folder.run(&["audit", "verify", "--against", "later.jsonl"]);
    assert_broken(
        &said,
        "acme: BROKEN at record 5: this store was restored from a backup that was taken at 20",
    );
    assert!(said.out.contains("records 5 to 5, which existed when"), "{}", said.out);
}
