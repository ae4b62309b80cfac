//! Three nodes on a PostgreSQL server: one world of each kind of trouble.

use std::path::PathBuf;

use kill::cluster::disturbance::Disturbance;
use kill::cluster::{ClusterOutcome, report, run};
use kill::matrix::Order;

fn played(worlds: &[&str]) -> ClusterOutcome {
    let order = Order { kills: 0, seed: 5, stories: Vec::new(), only: Some(worlds.join(",")), keep: false };
    let outcome = run(PathBuf::from(env!("CARGO_BIN_EXE_kill")), &order).expect("the matrix can be played");
    let wrong = outcome.wrong.as_ref().map(report::wrong);
    assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    outcome
}

#[test]
fn every_kind_of_trouble_strikes_and_is_survived() {
    let outcome = played(&[
        "two-held-one-runs:nothing",
        "write-retried:kill/after-act-1",
        "charged-and-cut-off:kill/after-act-1",
        "charged:pause/after-start-1",
        "write-retried:pause/after-start-1",
        "hook-gates:kill/after-ask-2",
        "deleted:kill/after-change_thread-1",
        "two-held-one-runs:stale/before-append-1",
        "edited:cut",
        "question:crash",
        "write-retried:promotion",
    ]);
    assert!(outcome.summary.kills >= 1, "no process was killed");
    let disturbances: Vec<Disturbance> = outcome.summary.disturbances.keys().copied().collect();
    for wanted in [
        Disturbance::PausedBeforeSending,
        Disturbance::OvertakenBeforeStoring,
        Disturbance::ConnectionCut,
        Disturbance::ServerCrashed,
        Disturbance::StandbyPromoted,
    ] {
        assert!(disturbances.contains(&wanted), "{wanted:?} never happened: {disturbances:?}");
    }
}
