//! The violations that the judge reports for nodes that share a store.

use kill::evidence::{Attempt, Evidence, Holding, Pause, SharedStoreEvidence, Stored};
use kill::judge::Rule;
use machine::Timestamp;
use machine::event::{CallError, CallErrorCode, Fact};

use super::{change_events, complaint, objections};

/// The violations that the judge reports for the same world, as if its process were one of several nodes.
fn objections_in_a_cluster(change: impl FnOnce(&mut Evidence, &mut SharedStoreEvidence)) -> Vec<Rule> {
    objections(|evidence, _| {
        let mut shared_store = SharedStoreEvidence::default();
        change(evidence, &mut shared_store);
        evidence.shared_store = Some(shared_store);
    })
}

/// When the process that was killed was found lost, and from when on that may be asked about.
fn recovered(evidence: &Evidence) -> (Timestamp, Timestamp) {
    let logs = evidence.runs.iter().flat_map(|run| &run.log);
    let mut recoveries = logs.filter_map(|event| {
        if let Fact::RunRecovered { doubt_at, .. } = &event.fact { Some((event.at, *doubt_at)) } else { None }
    });
    recoveries.next().expect("the world has a loss")
}

#[test]
fn what_is_sent_after_others_took_over_is_found() {
    let pause = |evidence: &Evidence, acts_before: usize, before_sending: bool| {
        let act = &evidence.acts[0];
        let attempt = Attempt { run: act.run.clone(), call: act.call.clone(), number: act.attempt };
        Pause { process: act.process, before_sending, acts_before, lost: [attempt].into() }
    };
    let found =
        objections_in_a_cluster(|evidence, shared_store| shared_store.pauses.push(pause(evidence, 0, true)));
    assert_eq!(found, [Rule::NothingIsSentTooLate]);
    let found =
        objections_in_a_cluster(|evidence, shared_store| shared_store.pauses.push(pause(evidence, 1, true)));
    assert_eq!(found, [], "it had acted before it stopped");
    let found =
        objections_in_a_cluster(|evidence, shared_store| shared_store.pauses.push(pause(evidence, 0, false)));
    assert_eq!(found, [], "it may have been on its way");
    let found = objections_in_a_cluster(|evidence, shared_store| {
        shared_store.pauses.push(Pause { process: 9, ..pause(evidence, 0, true) });
    });
    assert_eq!(found, [], "another process acted");
}

#[test]
fn a_doubt_before_its_time_is_found() {
    assert_eq!(objections_in_a_cluster(|_, _| {}), []);
    let found = objections_in_a_cluster(|evidence, shared_store| {
        shared_store.first_loss = Some(recovered(evidence).0)
    });
    assert_eq!(found, [Rule::DoubtHasItsTime], "no lease has passed since the loss");
    let found = objections_in_a_cluster(|evidence, shared_store| {
        let doubt_at = recovered(evidence).1;
        shared_store.first_loss = Some(Timestamp(doubt_at.0 - 1_000));
    });
    assert_eq!(found, [], "a lease has passed");
    let found = objections_in_a_cluster(|evidence, shared_store| {
        shared_store.first_loss = Some(recovered(evidence).0.plus_ms(1));
    });
    assert_eq!(found, [], "it was lost before anybody was struck");
    let found = objections_in_a_cluster(|evidence, _| {
        change_events(evidence, |event| {
            if let Fact::RunRecovered { doubt_at, .. } = &mut event.fact {
                *doubt_at = doubt_at.plus_ms(60_000);
            }
        });
    });
    assert!(found.contains(&Rule::DoubtHasItsTime), "asked before the recorded time: {found:?}");
}

#[test]
fn what_was_stored_by_somebody_who_did_not_hold_the_run_is_found() {
    let stored = |evidence: &Evidence, epoch: u64, seq: u64| Stored {
        process: 1,
        holding: Holding { run: evidence.runs[0].view.id.clone(), epoch },
        seq,
        overtaken_by: None,
    };
    let in_turn = |evidence: &Evidence| vec![stored(evidence, 1, 4), stored(evidence, 2, 7)];
    let found = objections_in_a_cluster(|evidence, shared_store| shared_store.stored = in_turn(evidence));
    assert_eq!(found, []);
    let found = objections_in_a_cluster(|evidence, shared_store| {
        shared_store.stored = vec![stored(evidence, 2, 4), stored(evidence, 1, 7)];
    });
    assert_eq!(found, [Rule::OnlyTheHolderStores], "an earlier epoch after a later one");
    let found = objections_in_a_cluster(|evidence, shared_store| {
        shared_store.stored = vec![stored(evidence, 1, 4), stored(evidence, 2, 4)];
    });
    assert_eq!(found, [Rule::OnlyTheHolderStores], "the same events twice");
    let found = objections_in_a_cluster(|evidence, shared_store| {
        shared_store.stored = in_turn(evidence);
        shared_store.stored[0].overtaken_by = Some(2);
    });
    assert_eq!(found, [Rule::OnlyTheHolderStores], "outrun before it asked");
}

#[test]
fn a_call_that_was_not_sent_is_excused_only_in_company_and_only_if_it_was_not_sent() {
    let fail = |evidence: &mut Evidence, message: &str| {
        change_events(evidence, |event| {
            if let Fact::ExecutionSucceeded { call_id, .. } = &event.fact {
                let error = CallError { code: CallErrorCode::NotSent, message: message.into() };
                event.fact =
                    Fact::ExecutionFailed { call_id: call_id.clone(), error, outcome_unknown: false };
            }
        });
    };
    let too_old = "another worker may hold the run by now";
    // The log is changed, so the rules about logs are violated too; only the rule about acts matters here.
    let excused = |found: &[Rule]| !found.contains(&Rule::ResultAgreesWithActs);
    let found = objections_in_a_cluster(|evidence, _| {
        fail(evidence, too_old);
        evidence.acts.truncate(1);
    });
    assert!(excused(&found), "{found:?}");
    let found = objections_in_a_cluster(|evidence, _| fail(evidence, too_old));
    assert!(!excused(&found), "it was sent: {found:?}");
    let found = objections_in_a_cluster(|evidence, _| {
        fail(evidence, "the tool was removed");
        evidence.acts.truncate(1);
    });
    assert!(!excused(&found), "for another reason: {found:?}");
    let found = objections(|evidence, _| {
        fail(evidence, too_old);
        evidence.acts.truncate(1);
    });
    assert!(!excused(&found), "no other node could hold the run: {found:?}");
}

#[test]
fn a_complaint_in_company_is_excused_only_by_what_befell_the_world() {
    let found = |words: &'static str, shared_store: SharedStoreEvidence| {
        objections_in_a_cluster(|evidence, own| {
            evidence.complaints.push(complaint(words));
            *own = shared_store;
        })
    };
    let lease = "ERROR: this node lost its lease; other nodes continue its runs, node 3";
    let outage = "ERROR: cannot claim runs; trying again, trouble the store cannot be reached: closed";
    let fault = "ERROR: run halted: stored state is inconsistent, run run_1";
    let cut_off = || SharedStoreEvidence { was_cut_off: true, ..SharedStoreEvidence::default() };
    let undisturbed = || SharedStoreEvidence { is_undisturbed: true, ..SharedStoreEvidence::default() };
    let away = |process: u32| {
        let pause = Pause { process, before_sending: false, acts_before: 0, lost: [].into() };
        SharedStoreEvidence { pauses: vec![pause], ..SharedStoreEvidence::default() }
    };
    assert_eq!(found(lease, SharedStoreEvidence::default()), []);
    assert_eq!(found(lease, undisturbed()), [Rule::NoErrorIsReported]);
    assert_eq!(found(outage, SharedStoreEvidence::default()), [Rule::NoErrorIsReported]);
    assert_eq!(found(outage, cut_off()), []);
    assert_eq!(found(outage, away(1)), []);
    assert_eq!(found(outage, away(2)), [Rule::NoErrorIsReported], "another process was away");
    assert_eq!(found(fault, cut_off()), [Rule::NoErrorIsReported]);
}
