//! The command line: `kill matrix`, and the commands with which the matrix starts its own processes.

use std::path::PathBuf;

use crate::matrix::Order;
use crate::node::{NO_HOOK, Node, OWN_CLOCK};
use crate::store_at::StoreAt;

pub const USAGE: &str =
    "kill matrix [--store sqlite|postgres] [--kills N] [--seed S] [--story NAME]... [--only CASE] [--keep]
  --store S    one process on a file, or three on a PostgreSQL server (default sqlite)
  --kills N    at least N kills, after every boundary of every story had one (default 1000)
  --seed S     draws the rest (default 1)
  --story NAME only this story; may be repeated
  --only CASE  only this world, as a violation names it; of three nodes also several, with commas
  --keep       leaves the folders of the worlds where they are
kill concurrent-runs [--store postgres] [--runs N] [--seed S]
  --runs N     at once, on three nodes (default 200)
kill node PROCESS STORE LEDGER FOLDER PAYMENT_PORT HOOK_PORT AHEAD_MS [STOP]
kill ledger SOCKET
kill payment-service LEDGER
kill hook-service";

const SQLITE: &str = "sqlite";
const POSTGRES: &str = "postgres";
const KILLS_DEFAULT: u64 = 1_000;
const RUNS_DEFAULT: u64 = 200;
const SEED_DEFAULT: u64 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invocation {
    Matrix(Order),
    /// The matrix of three nodes.
    Cluster(Order),
    ConcurrentRuns {
        runs: u64,
        seed: u64,
    },
    Node(Node),
    Ledger {
        socket: PathBuf,
    },
    PaymentService {
        ledger: PathBuf,
    },
    HookService,
}

pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Invocation, String> {
    let mut words = words.into_iter();
    match words.next().as_deref() {
        Some("node") => node(words),
        Some("ledger") => Ok(Invocation::Ledger { socket: words.next().ok_or("no socket")?.into() }),
        Some("payment-service") => {
            Ok(Invocation::PaymentService { ledger: words.next().ok_or("no ledger")?.into() })
        }
        Some("hook-service") => Ok(Invocation::HookService),
        Some("matrix") => matrix(words),
        Some("concurrent-runs") => concurrent_runs(words),
        Some(other) => Err(format!("{other} is no command")),
        None => matrix(words),
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|error| format!("{text}: {error}"))
}

fn matrix(mut words: impl Iterator<Item = String>) -> Result<Invocation, String> {
    let mut order =
        Order { kills: KILLS_DEFAULT, seed: SEED_DEFAULT, stories: Vec::new(), only: None, keep: false };
    let mut store = SQLITE.to_owned();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--kills" => order.kills = number(&value()?)?,
            "--seed" => order.seed = number(&value()?)?,
            "--story" => order.stories.push(value()?),
            "--only" => order.only = Some(value()?),
            "--keep" => order.keep = true,
            "--store" => store = value()?,
            other => return Err(format!("{other} is no option")),
        }
    }
    match store.as_str() {
        SQLITE => Ok(Invocation::Matrix(order)),
        POSTGRES => Ok(Invocation::Cluster(order)),
        other => Err(format!("{other} is no store")),
    }
}

fn concurrent_runs(mut words: impl Iterator<Item = String>) -> Result<Invocation, String> {
    let (mut runs, mut seed) = (RUNS_DEFAULT, SEED_DEFAULT);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--runs" => runs = number(&value()?)?,
            "--seed" => seed = number(&value()?)?,
            "--store" if value()? == POSTGRES => {}
            other => return Err(format!("{other} is no option of concurrent-runs")),
        }
    }
    Ok(Invocation::ConcurrentRuns { runs, seed })
}

fn node(mut words: impl Iterator<Item = String>) -> Result<Invocation, String> {
    let mut next = |what: &str| words.next().ok_or_else(|| format!("no {what}"));
    let process = next("process")?.parse().map_err(|error| format!("the process: {error}"))?;
    let store = StoreAt::parse(next("store")?.as_ref());
    let (socket, folder) = (next("ledger")?.into(), next("folder")?.into());
    let port = |what: &str, text: &str| text.parse().map_err(|error| format!("the {what}: {error}"));
    let payment_port = port("payment port", &next("payment port")?)?;
    let hook = next("hook port")?;
    let hook_port = if hook == NO_HOOK { None } else { Some(port("hook port", &hook)?) };
    let ahead = next("time")?;
    let ahead_ms = if ahead == OWN_CLOCK { None } else { Some(number(&ahead)?) };
    let stop = words.next().map(|text| text.parse()).transpose()?;
    Ok(Invocation::Node(Node { process, store, socket, folder, payment_port, hook_port, ahead_ms, stop }))
}

#[cfg(test)]
use crate::stop::Stop;

#[test]
fn what_is_typed_is_understood_or_refused() {
    let typed = |line: &str| parse(line.split_whitespace().map(str::to_owned));
    let order = Order { kills: 5, seed: 9, stories: vec!["eager".into()], only: None, keep: true };
    assert_eq!(typed("matrix --kills 5 --seed 9 --story eager --keep"), Ok(Invocation::Matrix(order)));
    let order = Order { kills: 5, seed: 1, stories: Vec::new(), only: Some("eager:cut".into()), keep: false };
    assert_eq!(typed("matrix --store postgres --kills 5 --only eager:cut"), Ok(Invocation::Cluster(order)));
    assert_eq!(
        typed("concurrent-runs --store postgres --runs 3"),
        Ok(Invocation::ConcurrentRuns { runs: 3, seed: 1 })
    );
    let node = Node {
        process: 7,
        store: StoreAt::File("a".into()),
        socket: "b".into(),
        folder: "c".into(),
        payment_port: 8,
        hook_port: Some(9),
        ahead_ms: Some(4),
        stop: Some(Stop::At(2)),
    };
    let line: Vec<String> =
        node.command_line().iter().map(|word| word.to_string_lossy().into_owned()).collect();
    assert_eq!(line.join(" "), "node 7 a b c 8 9 4 2");
    assert_eq!(parse(line), Ok(Invocation::Node(node)));
    for bad in [
        "matrix --kills",
        "matrix --kills x",
        "matrix --gone",
        "matrix --store gone",
        "concurrent-runs --store sqlite",
        "concurrent-runs --kills 5",
        "node 1 a b",
        "node x a b c 8 9 4",
        "node 1 a b c x 9 4",
        "node 1 a b c 8 x 4",
        "gone",
    ] {
        assert!(typed(bad).is_err(), "{bad}");
    }
}
