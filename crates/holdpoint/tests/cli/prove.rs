//! `holdpoint prove`: passes where it should, and fails where it must.

use crate::program::Folder;

#[test]
fn every_approval_has_one_effect_despite_kills() {
    let folder = Folder::new();
    let said = folder.run(&["prove", "--seconds", "3", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let found = said.json();
    let count = |key: &str| found[key].as_u64().expect("a number");
    assert_eq!(found["holds"], true, "{found}");
    assert_eq!(count("approvals"), count("ledger_lines"));
    assert!(count("approvals") > 0 && count("killed") >= 4, "{found}");
    assert!(count("killed_after_an_act") > 0, "{found}");
    let doubts = found["in_doubt"]["had_happened"].as_u64();
    assert!(doubts > Some(0), "a call that was killed after its act was asked about: {found}");
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn a_tool_that_wrongly_declares_idempotence_is_detected() {
    let folder = Folder::new();
    let said = folder.run(&["prove", "--seconds", "3", "--lie", "--json"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let found = said.json();
    assert_eq!(found["holds"], false, "{found}");
    assert!(found["ledger_lines"].as_u64() > found["approvals"].as_u64(), "{found}");
    let first = found["differences"][0].as_str().unwrap_or_default();
    assert!(first.contains(" was approved once and done "), "{first}");
}
