//! A small matrix: every boundary of five stories, and processes that clean up after themselves.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use kill::driven_process::KillPlace;
use kill::matrix::{Order, run};
use kill::scratch::Scratch;
use kill::tally::Observation;
use kill::wire::Operation;

fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_kill"))
}

#[test]
fn every_boundary_of_five_stories_survives_its_kill() {
    let stories = ["write-retried", "decision-in-the-inbox", "charged-and-cut-off", "hook-gates", "deleted"];
    let stories = stories.map(str::to_owned).to_vec();
    let order = Order { kills: 0, seed: 3, stories, only: None, keep: false };
    let outcome = run(program(), &order).expect("the matrix can be played");
    let wrong = outcome.wrong.as_ref().map(kill::report::wrong);
    assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    let places = outcome.summary.by_place.keys();
    let passages: BTreeSet<Operation> = places
        .filter_map(|place| match place {
            KillPlace::At(boundary) => Some(boundary.operation),
            KillPlace::AnyInstant | KillPlace::AtRest => None,
        })
        .collect();
    assert_eq!(passages.len(), Operation::ALL.len(), "killed at {passages:?} only");
    assert!(outcome.summary.kills >= 60, "{} kills", outcome.summary.kills);
    for observation in
        [Observation::KilledBeforeTheAnswer, Observation::ChargeFound, Observation::HookAskedAgain]
    {
        assert!(outcome.summary.tally.count(observation) > 0, "never seen: {}", observation.description());
    }
}

/// How the process ended, or `None` if it did not within the time limit. Its exit closes its output.
fn ends(child: &mut Child) -> Option<ExitStatus> {
    let mut stdout = child.stdout.take().expect("it was asked for");
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = stdout.read_to_end(&mut Vec::new());
        let _ = sender.send(());
    });
    let in_time = ended.recv_timeout(Duration::from_secs(20)).is_ok();
    if !in_time {
        let _ = child.kill();
    }
    let status = child.wait().expect("it was started here");
    in_time.then_some(status)
}

#[test]
fn all_kinds_of_processes_end_with_whoever_started_them() {
    let scratch = Scratch::new(false).expect("a folder can be made");
    let path = |name: &str| scratch.path().join(name);
    for arguments in [
        vec!["ledger".into(), path("socket").into_os_string()],
        vec!["payment-service".into(), path("socket").into_os_string()],
        vec!["hook-service".into()],
        vec![
            "node".into(),
            "1".into(),
            path("store").into_os_string(),
            path("socket").into_os_string(),
            scratch.path().into(),
            "9".into(),
            "9".into(),
            "0".into(),
        ],
    ] {
        let mut child = Command::new(program())
            .args(&arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program can be started");
        drop(child.stdin.take());
        let status = ends(&mut child).unwrap_or_else(|| panic!("{arguments:?} outlives its parent"));
        assert!(status.success(), "{arguments:?} did not even begin: {status}");
    }
}
