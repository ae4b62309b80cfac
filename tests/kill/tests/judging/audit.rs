//! What the judge finds in the audit record.

use kill::audit_evidence::AuditedRecord;
use kill::evidence::Evidence;
use kill::judge::Rule;
use kill::people::People;
use machine::id::Principal;

use super::{objections, played, rules};

#[test]
fn a_dropped_repeated_or_moved_audit_record_is_found() {
    let exact = [Rule::AuditIsExact];
    assert_eq!(objections(|evidence, _| drop(evidence.audit.records.pop())), exact);
    assert_eq!(objections(|evidence, _| evidence.audit.records.swap(0, 1)), exact);
    let found = objections(|evidence, _| {
        let twice = evidence.audit.records[0].clone();
        evidence.audit.records.push(twice);
    });
    assert_eq!(found, exact);
}

#[test]
fn an_audit_record_that_says_something_else_is_found() {
    type Change = fn(&mut Evidence);
    let changes: [Change; 4] = [
        |evidence| evidence.audit.records[0].by = Principal::from("eve"),
        |evidence| evidence.audit.records[0].run_id = None,
        |evidence| evidence.audit.records[0].suspension_id = None,
        |evidence| evidence.audit.records[0].action = "approval.rejected".into(),
    ];
    for change in changes {
        assert_eq!(objections(|evidence, _| change(evidence)), [Rule::AuditIsExact]);
    }
}

fn world(name: &str) -> (Evidence, People) {
    let world = played(format!("{name}:1/9"));
    (world.evidence.expect("it was read"), world.people)
}

/// Removes and repeats every record of these actions.
fn assert_missing_and_repeated_are_found((evidence, people): &(Evidence, People), actions: &[&str]) {
    assert_eq!(rules(evidence, people), []);
    for action in actions {
        let is_meant = |record: &AuditedRecord| record.action == *action;
        let mut changed = evidence.clone();
        changed.audit.records.retain(|record| !is_meant(record));
        assert_eq!(rules(&changed, people), [Rule::AuditIsExact], "{action} is missing");
        let mut changed = evidence.clone();
        let record = changed.audit.records.iter().find(|record| is_meant(record));
        let record = record.expect("it is recorded").clone();
        changed.audit.records.extend([record.clone(), record]);
        assert_eq!(rules(&changed, people), [Rule::AuditIsExact], "{action} is repeated");
    }
}

#[test]
fn a_missing_or_repeated_record_of_a_permission_or_a_deletion_is_found() {
    let permissions = ["auto_approve.on", "auto_approve.off", "grant.given", "grant.revoked"];
    assert_missing_and_repeated_are_found(&world("permitted"), &permissions);
    let deleted = world("deleted");
    assert_missing_and_repeated_are_found(&deleted, &["thread.deleted", "approval.approved"]);
}
