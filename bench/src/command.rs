//! The command line: what to measure, on which stores, for how long, and the output format.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use crate::effort::Level;
use crate::environment::StoreKind;
use crate::report::Form;
use crate::restarted::FleetPlace;
use crate::suite::Suite;

pub(crate) const HELP: &str = "\
Measures Holdpoint with a model that is fake, instantaneous and in the process.

Usage: cargo run --release -p bench -- [WORKLOAD...] [OPTION...]

  W1           tool round: a message, 2 parallel echo calls, a text
  W2           approval: 3 calls of which 2 are held, decided one after the other
  W3           parked fleet: 10,000, 100,000 and 1,000,000 held runs, a restart, 1,000 of them woken; on postgres
               the largest of these with three idle nodes, and as many woken
  W4           long run: 200 and 1,000 tool rounds, kept in memory and parked at every step
  W5           stream: 1,000 small deltas, to 1 and to 100 subscribers
  W6           shares: 256 sleeping and 1,000 waiting runs of one tenant, and the posts and approvals of another
  subscribers  the speed of a run that 10,000 watch, half of whom never read
  http         the server as another process, on sqlite: 2,000 open streams, of which 200 receive events all the
               time, with 300 tool rounds posted per second and decisions, for 60 seconds; --once sets the time
  costly       the server as another process, on sqlite: a tenant's posts beside another tenant's costliest requests
  front-ends   the server as another process, on sqlite: 500 answers of 1,000 deltas at once, over our own events and
               over the AI SDK
  tools        calls of an HTTP tool in another process, 64 at once: that read in memory, that write elsewhere
  machine      the bare machine: no store, no engine
  Without a workload all of them are measured with a short effort.

  --store memory|sqlite|postgres
                         only this store; memory and sqlite, if it is not given. For postgres a server of its own
                         is started, with default settings, and removed afterwards
  --store postgres://…   an existing server, in separate schemas
  --concurrency N        runs at once in W1 and W2; 64, if it is not given
  --runs N               runs in the largest fleet of W3; 1,000,000, if it is not given and W3 is asked for by name
  --folder PATH          where the files go; next to this program, if it is not given. The disk of this
                         folder is measured: a folder in memory syncs nothing
  --program PATH         the server of http; the program holdpoint beside this one, if it is not given
  --quick                a short measurement, too imprecise to publish
  --once SECONDS         one repetition of this length, so that it can take turns with other programs
  --json                 JSON lines instead of a table: {peer, version, workload, metric, title, unit, value}, with
                         the spread around the median, the target, the store and its durability where there are any
  --help                 this text

Durability of the figures. memory: none. sqlite: every commit is synced to disk before it is acknowledged, and a
power cut loses nothing that was acknowledged; commits that arrive together share one sync. postgres: the same, by
its server.

Peak memory is given for the first workload only: what it leaves in the heap would count in the others.
Progress goes to stderr, results to stdout. Exit status: 0 measured, 1 a run did not behave as expected, 2 wrong
command line.";

const CONCURRENCY_DEFAULT: usize = 64;
/// The program starts itself with these arguments: as the process after a restart, as one of several nodes, and as the
/// process of a tool.
pub(crate) const RESTARTED: &str = "--restarted-on";
pub(crate) const NODE: &str = "--node-on";
pub(crate) const TOOL: &str = "--as-tool";
pub(crate) const TOOL_SERVER: &str = "--as-tool-server";
pub(crate) const COSTLY_CLIENT: &str = "--as-costly-client";
/// Scripts that compare other systems with Holdpoint start the server with this argument.
const SERVER: &str = "--postgres-server";
/// Above this the engine queues runs, and the measurement would be of the queue.
const CONCURRENCY_MAX: usize = 256;
/// Maximum length of one repetition.
const SECONDS_MAX: usize = 600;
/// Ten times the promised number; 60 GB of disk.
const RUN_COUNT_MAX: usize = 10_000_000;

#[derive(Debug, PartialEq)]
pub(crate) struct Command {
    pub(crate) suites: Vec<Suite>,
    pub(crate) stores: Vec<StoreKind>,
    /// The server's address, unless a private one is started.
    pub(crate) database: Option<String>,
    pub(crate) concurrency: usize,
    /// Runs in the largest fleet.
    pub(crate) run_count_max: Option<usize>,
    /// The server program to measure, if it is not beside this program.
    pub(crate) program: Option<PathBuf>,
    pub(crate) level: Level,
    pub(crate) form: Form,
    pub(crate) folder: PathBuf,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Invocation {
    Help,
    Measurement(Command),
    /// The process after a restart, or a node, on the fleet in this place.
    Restarted(FleetPlace),
    /// A server with its data in this folder.
    Server(PathBuf),
    /// The process of a tool.
    Tool,
    /// The process of an HTTP tool.
    ToolServer,
    /// The process that sends costly requests to the server at this address.
    CostlyClient(String),
}

pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Result<Invocation, String> {
    let (mut suites, mut stores, mut database) = (Vec::new(), Vec::new(), None);
    let (mut concurrency, mut form, mut folder) = (CONCURRENCY_DEFAULT, Form::Table, None);
    let (mut run_count_max, mut program) = (None, None);
    let (mut is_quick, mut once, mut is_server) = (false, None, false);
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let (name, mut given) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name.to_owned(), Some(value.to_owned())),
            Some(_) | None => (word.clone(), None),
        };
        let mut value = |what: &str| {
            given.take().or_else(|| words.next()).ok_or_else(|| format!("{name} needs {what} after it"))
        };
        match name.as_str() {
            "--help" | "-h" => return Ok(Invocation::Help),
            "--quick" => is_quick = true,
            "--once" => once = Some(count(&name, &value("seconds")?, SECONDS_MAX)?),
            "--json" => form = Form::JsonLines,
            "--store" => {
                let word = value("memory, sqlite or postgres")?;
                stores.push(store(&word)?);
                database = if word.contains("://") { Some(word) } else { database };
            }
            "--concurrency" => concurrency = count(&name, &value("a number")?, CONCURRENCY_MAX)?,
            "--runs" => run_count_max = Some(count(&name, &value("a number of runs")?, RUN_COUNT_MAX)?),
            RESTARTED => return Ok(Invocation::Restarted(FleetPlace::File(value("a file")?.into()))),
            NODE => {
                let (address, schema) = (value("an address and a schema")?, value("a schema")?);
                return Ok(Invocation::Restarted(FleetPlace::Tables { address, schema }));
            }
            SERVER => is_server = true,
            TOOL => return Ok(Invocation::Tool),
            TOOL_SERVER => return Ok(Invocation::ToolServer),
            COSTLY_CLIENT => return Ok(Invocation::CostlyClient(value("an address")?)),
            "--program" => program = Some(PathBuf::from(value("a program")?)),
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
    let folder = folder.unwrap_or_else(beside_this_program);
    if is_server {
        return Ok(Invocation::Server(folder));
    }
    let level = level(once, is_quick, suites.is_empty());
    if stores.is_empty() {
        stores = StoreKind::EMBEDDED.to_vec();
    }
    if suites.contains(&Suite::ParkedFleet) && stores.iter().all(|kind| *kind == StoreKind::Memory) {
        return Err(
            "W3 is measured on sqlite or postgres: what is in memory does not survive a restart".into()
        );
    }
    if suites.is_empty() {
        suites = Suite::ALL.to_vec();
    }
    let command =
        Command { suites, stores, database, concurrency, run_count_max, program, level, form, folder };
    Ok(Invocation::Measurement(command))
}

fn level(once: Option<usize>, is_quick: bool, measures_everything: bool) -> Level {
    match (once, is_quick, measures_everything) {
        (Some(seconds), _, _) => Level::Once(Duration::from_secs(seconds as u64)),
        (None, true, _) => Level::Quick,
        (None, false, true) => Level::Short,
        (None, false, false) => Level::Full,
    }
}

fn store(word: &str) -> Result<StoreKind, String> {
    if word.starts_with("postgres://") || word.starts_with("postgresql://") {
        return Ok(StoreKind::Postgres);
    }
    StoreKind::ALL
        .into_iter()
        .find(|kind| kind.name() == word)
        .ok_or_else(|| format!("there is no store {word}; there are memory, sqlite and postgres"))
}

fn count(name: &str, word: &str, max: usize) -> Result<usize, String> {
    match word.parse() {
        Ok(count) if (1..=max).contains(&count) => Ok(count),
        Ok(_) | Err(_) => Err(format!("{name} takes a number from 1 to {max}, not {word}")),
    }
}

/// Build folders are on a disk more often than the system's temporary folder.
fn beside_this_program() -> PathBuf {
    let program = env::current_exe().ok();
    program.as_deref().and_then(|path| path.parent()).map_or_else(env::temp_dir, PathBuf::from)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Command, Invocation, parse};
    use crate::effort::Level;
    use crate::environment::StoreKind;
    use crate::report::Form;
    use crate::suite::Suite;

    fn parsed(words: &str) -> Result<Command, String> {
        match parse(words.split_whitespace().map(str::to_owned))? {
            Invocation::Measurement(command) => Ok(command),
            Invocation::Help => Err("help".into()),
            Invocation::Restarted(_)
            | Invocation::Server(_)
            | Invocation::Tool
            | Invocation::ToolServer
            | Invocation::CostlyClient(_) => Err("another process".into()),
        }
    }

    #[test]
    fn nothing_said_is_everything_with_a_short_effort() {
        let command = parsed("").unwrap();
        assert_eq!((command.suites, command.level), (Suite::ALL.to_vec(), Level::Short));
        assert_eq!((command.stores, command.concurrency), (StoreKind::EMBEDDED.to_vec(), 64));
    }

    #[test]
    fn a_workload_by_name_is_measured_in_full() {
        let command = parsed("W1 --store sqlite --concurrency 8 --runs 9 --json --folder=/x").unwrap();
        let folder = "/x".into();
        let (suites, stores) = (vec![Suite::ToolRound], vec![StoreKind::Sqlite]);
        let (level, form, run_count_max) = (Level::Full, Form::JsonLines, Some(9));
        let (database, concurrency, program) = (None, 8, None);
        let expected =
            Command { suites, stores, database, concurrency, run_count_max, program, level, form, folder };
        assert_eq!(command, expected);
        assert_eq!(parsed("w4 --quick").unwrap().level, Level::Quick);
        let http = parsed("http --program=/x/holdpoint").unwrap();
        assert_eq!((http.suites, http.program), (vec![Suite::Http], Some("/x/holdpoint".into())));
        assert_eq!(parsed("W1 --once 3").unwrap().level, Level::Once(Duration::from_secs(3)));
    }

    #[test]
    fn a_server_is_our_own_unless_it_is_named() {
        let own = parsed("W1 --store postgres").unwrap();
        assert_eq!((own.stores, own.database), (vec![StoreKind::Postgres], None));
        let named = parsed("W3 --store postgres://ann@db/runs").unwrap();
        assert_eq!(
            (named.stores, named.database),
            (vec![StoreKind::Postgres], Some("postgres://ann@db/runs".into()))
        );
        assert!(parsed("--store mysql://db").is_err_and(|why| why.contains("mysql://db")));
    }

    #[test]
    fn what_is_not_known_is_said_by_name() {
        assert_eq!(parsed("W9"), Err("W9 is not known here".into()));
        assert_eq!(parsed("--store"), Err("--store needs memory, sqlite or postgres after it".into()));
        assert_eq!(parsed("--quick=1"), Err("--quick takes no value".into()));
        assert!(parsed("--store disk").is_err_and(|why| why.contains("disk")));
        assert!(parsed("W3 --store memory").is_err_and(|why| why.contains("restart")));
        assert!(parsed("--runs 0").is_err() && parsed("--runs 10000001").is_err());
        assert!(parsed("--concurrency 0").is_err() && parsed("--concurrency 257").is_err());
        assert_eq!(parsed("W1 --help"), Err("help".into()));
    }
}
