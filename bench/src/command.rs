//! The command line: what is measured, on which stores, how long, and in which form it is shown.

use std::env;
use std::path::PathBuf;

use crate::effort::Level;
use crate::report::Form;
use crate::stage::StoreKind;
use crate::suite::Suite;

pub(crate) const HELP: &str = "\
Measures Holdpoint with a model that is fake, instantaneous and in the process.

Usage: cargo run --release -p bench -- [WORKLOAD...] [OPTION...]

  W1           tool round: a message, 2 parallel echo calls, a text
  W2           approval: 3 calls of which 2 are held, decided one after the other
  W4           long run: 200 and 1,000 tool rounds, kept in memory and parked at every step
  W5           stream: 1,000 small deltas, to 1 and to 100 subscribers
  subscribers  the speed of a run that 10,000 watch, half of whom never read
  machine      the bare machine: no store, no engine
  Without a workload all of them are measured with a short effort.

  --store memory|sqlite  only this store; both, if it is not given
  --concurrency N        runs at once in W1 and W2; 64, if it is not given
  --folder PATH          where SQLite's files go; beside this program, if it is not given. What is measured is
                         the disk of this folder: a folder in memory syncs nothing
  --quick                a look, not a figure to quote
  --json                 JSON lines {peer, version, workload, metric, value}, with store and durability where
                         there is a store, instead of a table; values are medians
  --help                 this text

Durability of the figures. memory: none. sqlite: every commit is synced to disk before it is acknowledged, and a
power cut loses nothing that was acknowledged; commits that arrive together share one sync.

Peak memory is given for the first workload only: what it leaves in the heap would count in the others.
Progress goes to stderr, results to stdout. Exit status: 0 measured, 1 a run did not do what it must, 2 a word of
the command line is not known.";

const CONCURRENCY_DEFAULT: usize = 64;
/// Beyond this the engine queues runs, and the queue is what would be measured.
const CONCURRENCY_MAX: usize = 256;

#[derive(Debug, PartialEq)]
pub(crate) struct Command {
    pub(crate) suites: Vec<Suite>,
    pub(crate) stores: Vec<StoreKind>,
    pub(crate) concurrency: usize,
    pub(crate) level: Level,
    pub(crate) form: Form,
    pub(crate) folder: PathBuf,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Asked {
    Help,
    Measurement(Command),
}

pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Result<Asked, String> {
    let (mut suites, mut stores) = (Vec::new(), Vec::new());
    let (mut concurrency, mut form, mut folder) = (CONCURRENCY_DEFAULT, Form::Table, None);
    let mut is_quick = false;
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let (name, mut given) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name.to_owned(), Some(value.to_owned())),
            Some(_) | None => (word.clone(), None),
        };
        let mut value = |what: &str| {
            given.take().or_else(|| words.next()).ok_or_else(|| format!("{name} needs {what} behind it"))
        };
        match name.as_str() {
            "--help" | "-h" => return Ok(Asked::Help),
            "--quick" => is_quick = true,
            "--json" => form = Form::JsonLines,
            "--store" => stores.push(store(&value("memory or sqlite")?)?),
            "--concurrency" => concurrency = count(&value("a number of runs")?)?,
            "--folder" => folder = Some(PathBuf::from(value("a folder")?)),
            other => match Suite::ALL.into_iter().find(|suite| suite.name().eq_ignore_ascii_case(other)) {
                Some(suite) => suites.push(suite),
                None => return Err(format!("{other} is not known here")),
            },
        }
        if given.is_some() {
            return Err(format!("{name} takes no value"));
        }
    }
    let level = match (is_quick, suites.is_empty()) {
        (true, _) => Level::Quick,
        (false, true) => Level::Short,
        (false, false) => Level::Full,
    };
    if suites.is_empty() {
        suites = Suite::ALL.to_vec();
    }
    if stores.is_empty() {
        stores = StoreKind::ALL.to_vec();
    }
    let folder = folder.unwrap_or_else(beside_this_program);
    Ok(Asked::Measurement(Command { suites, stores, concurrency, level, form, folder }))
}

fn store(word: &str) -> Result<StoreKind, String> {
    StoreKind::ALL
        .into_iter()
        .find(|kind| kind.name() == word)
        .ok_or_else(|| format!("there is no store {word}; there are memory and sqlite"))
}

fn count(word: &str) -> Result<usize, String> {
    match word.parse() {
        Ok(count) if (1..=CONCURRENCY_MAX).contains(&count) => Ok(count),
        Ok(_) | Err(_) => {
            Err(format!("--concurrency takes a number from 1 to {CONCURRENCY_MAX}, not {word}"))
        }
    }
}

/// Build folders lie on a disk more often than the system's folder for temporary files does.
fn beside_this_program() -> PathBuf {
    let program = env::current_exe().ok();
    program.as_deref().and_then(|path| path.parent()).map_or_else(env::temp_dir, PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::{Asked, Command, parse};
    use crate::effort::Level;
    use crate::report::Form;
    use crate::stage::StoreKind;
    use crate::suite::Suite;

    fn parsed(words: &str) -> Result<Command, String> {
        match parse(words.split_whitespace().map(str::to_owned))? {
            Asked::Measurement(command) => Ok(command),
            Asked::Help => Err("help".into()),
        }
    }

    #[test]
    fn nothing_said_is_everything_with_a_short_effort() {
        let command = parsed("").unwrap();
        assert_eq!((command.suites, command.level), (Suite::ALL.to_vec(), Level::Short));
        assert_eq!((command.stores, command.concurrency), (StoreKind::ALL.to_vec(), 64));
    }

    #[test]
    fn a_workload_by_name_is_measured_in_full() {
        let command = parsed("W1 --store sqlite --concurrency 8 --json --folder=/x").unwrap();
        let folder = "/x".into();
        let (suites, stores) = (vec![Suite::ToolRound], vec![StoreKind::Sqlite]);
        let expected =
            Command { suites, stores, concurrency: 8, level: Level::Full, form: Form::JsonLines, folder };
        assert_eq!(command, expected);
        assert_eq!(parsed("w4 --quick").unwrap().level, Level::Quick);
    }

    #[test]
    fn what_is_not_known_is_said_by_name() {
        assert_eq!(parsed("W9"), Err("W9 is not known here".into()));
        assert_eq!(parsed("--store"), Err("--store needs memory or sqlite behind it".into()));
        assert_eq!(parsed("--quick=1"), Err("--quick takes no value".into()));
        assert!(parsed("--store disk").is_err_and(|why| why.contains("disk")));
        assert!(parsed("--concurrency 0").is_err() && parsed("--concurrency 257").is_err());
        assert_eq!(parsed("W1 --help"), Err("help".into()));
    }
}
