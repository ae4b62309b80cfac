//! `holdpoint replay RUN`: prints the log of a run for people to read.

use std::path::Path;

use clap::Args;
use holdpoint_http::wire::hydrate::EventHydrator;
use machine::id::RunId;
use serde::Deserialize;
use serde_json::value::RawValue;
use stores::sqlite::log::read_log;

use super::address::{ENVIRONMENT, Purpose, ServerAddress};
use super::connection::{Connection, percent_encoded};
use super::event_formatter::EventFormatter;
use super::wire::{Event, read};
use crate::cli::database::runtime;
use crate::cli::output::{print_raw, write_stdout};
use crate::cli::problem::{Exit, Problem};
use crate::cli::{CommandResult, CommandStatus, GlobalArgs};

const IN_POSTGRES: &str = "Leave --store out, and name a server on this database with --url.";
/// The server's largest page.
const PAGE_MAX: usize = 1_000;

/// Print the log of a run as a story
///
/// Prints the messages, the model's answers, held calls, decisions, results, crashes, recoveries and the end, each line
/// with the time since the beginning. With --json, prints the events themselves, one per line. Reads from a server;
/// with --store sqlite:PATH it reads the file, whether or not a server uses it.
#[derive(Debug, Args)]
#[command(after_help = ENVIRONMENT)]
pub(in crate::cli) struct Replay {
    #[command(flatten)]
    server: ServerAddress,
    /// The id of the run
    run: String,
}

impl Replay {
    pub(in crate::cli) fn run(&self, global: &GlobalArgs) -> CommandResult {
        let mut printer = EventPrinter { formatter: (!global.json).then(EventFormatter::default) };
        if global.store_is_explicit {
            if self.server.url.is_some() {
                return Err(Problem::new(
                    "WRONG_COMMAND_LINE",
                    "a log is read from a server or from a store, not from both",
                    "Leave out --url or --store.",
                    Exit::Configuration,
                ));
            }
            self.replay_from_store(global.store.require_file(IN_POSTGRES)?, &mut printer)?;
        } else {
            let connection = self.server.connect(global, Purpose::General)?;
            runtime()?.block_on(self.replay_from_server(&connection, &mut printer))?;
        }
        Ok(CommandStatus::Success)
    }

    async fn replay_from_server(
        &self,
        connection: &Connection,
        printer: &mut EventPrinter,
    ) -> Result<(), Problem> {
        let mut after = 0;
        loop {
            let run = percent_encoded(&self.run);
            let path = format!("/v1/runs/{run}/events?limit={PAGE_MAX}&after={after}");
            let page: EventPage = read(connection, &connection.get(&path).await?)?;
            for event in &page.events {
                if !printer.print(event.get(), || read(connection, event.get()))? {
                    return Ok(());
                }
            }
            // Stop if the server sends the same page again, to avoid an endless loop.
            match page.next_after {
                Some(next) if next > after => after = next,
                Some(_) | None => return Ok(()),
            }
        }
    }

    fn replay_from_store(&self, path: &Path, printer: &mut EventPrinter) -> Result<(), Problem> {
        let run = RunId::from(self.run.as_str());
        let log = read_log(path, &run)?;
        let (thread, events) = log.ok_or_else(|| {
            Problem::new(
                "RUN_NOT_FOUND",
                format!("{} has no run {:?}", path.display(), self.run),
                "Look at the id; a run goes with its thread when the thread is deleted or pruned.",
                Exit::Other,
            )
        })?;
        let mut hydrator = EventHydrator::new(thread, run);
        let envelopes = events.iter().flat_map(|entry| hydrator.hydrate_entry(entry));
        for envelope in envelopes {
            let unreadable = |why: serde_json::Error| {
                Problem::new("STORE_DAMAGED", why.to_string(), "Run holdpoint doctor.", Exit::Other)
            };
            let text = serde_json::to_string(&envelope).map_err(unreadable)?;
            if !printer.print(&text, || serde_json::from_str(&text).map_err(unreadable))? {
                return Ok(());
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct EventPage {
    events: Vec<Box<RawValue>>,
    next_after: Option<u64>,
}

struct EventPrinter {
    /// None with `--json`: the events are printed as they are.
    formatter: Option<EventFormatter>,
}

impl EventPrinter {
    /// False if the reader of standard output is gone.
    fn print(&mut self, raw: &str, read: impl FnOnce() -> Result<Event, Problem>) -> Result<bool, Problem> {
        match &mut self.formatter {
            None => print_raw(raw),
            Some(formatter) => match formatter.format_event(&read()?) {
                Some(line) => write_stdout(&format!("{line}\n")),
                None => Ok(true),
            },
        }
    }
}
