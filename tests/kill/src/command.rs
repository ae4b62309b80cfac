//! What is typed: `kill matrix`, and the two that the matrix types itself.

use std::path::PathBuf;

use crate::matrix::Order;
use crate::node::Node;

pub const USAGE: &str =
    "kill matrix [--kills N] [--seed S] [--story NAME]... [--only STORY:PROCESS/CROSSING] [--keep]
  --kills N    at least so many, after every boundary of every story had one (default 1000)
  --seed S     draws the rest (default 1)
  --story NAME only this story; may be repeated
  --only CASE  only this world, as a violation names it
  --keep       leaves the folders of the worlds where they are
kill node STORE LEDGER ACTS AHEAD_MS [STOP_AT]
kill ledger SOCKET";

const KILLS_DEFAULT: u64 = 1_000;
const SEED_DEFAULT: u64 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Typed {
    Matrix(Order),
    Node(Node),
    Ledger { socket: PathBuf },
}

pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Typed, String> {
    let mut words = words.into_iter();
    match words.next().as_deref() {
        Some("node") => node(words),
        Some("ledger") => Ok(Typed::Ledger { socket: words.next().ok_or("no socket")?.into() }),
        Some("matrix") => matrix(words),
        Some(other) => Err(format!("{other} is no command")),
        None => matrix(words),
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|error| format!("{text}: {error}"))
}

fn matrix(mut words: impl Iterator<Item = String>) -> Result<Typed, String> {
    let mut order =
        Order { kills: KILLS_DEFAULT, seed: SEED_DEFAULT, stories: Vec::new(), only: None, keep: false };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--kills" => order.kills = number(&value()?)?,
            "--seed" => order.seed = number(&value()?)?,
            "--story" => order.stories.push(value()?),
            "--only" => order.only = Some(value()?),
            "--keep" => order.keep = true,
            other => return Err(format!("{other} is no option")),
        }
    }
    Ok(Typed::Matrix(order))
}

fn node(mut words: impl Iterator<Item = String>) -> Result<Typed, String> {
    let mut next = |what: &str| words.next().ok_or_else(|| format!("no {what}"));
    let (store, socket, acts) = (next("store")?.into(), next("ledger")?.into(), next("acts")?.into());
    let ahead_ms = number(&next("time")?)?;
    let stop_at = words.next().map(|text| number(&text)).transpose()?;
    Ok(Typed::Node(Node { store, socket, acts, ahead_ms, stop_at }))
}

#[test]
fn what_is_typed_is_understood_or_refused() {
    let typed = |line: &str| parse(line.split_whitespace().map(str::to_owned));
    let order = Order { kills: 5, seed: 9, stories: vec!["eager".into()], only: None, keep: true };
    assert_eq!(typed("matrix --kills 5 --seed 9 --story eager --keep"), Ok(Typed::Matrix(order)));
    let node =
        Node { store: "a".into(), socket: "b".into(), acts: "c".into(), ahead_ms: 4, stop_at: Some(2) };
    assert_eq!(typed("node a b c 4 2"), Ok(Typed::Node(node)));
    for bad in ["matrix --kills", "matrix --kills x", "matrix --gone", "node a b", "gone"] {
        assert!(typed(bad).is_err(), "{bad}");
    }
}
