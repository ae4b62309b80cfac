//! Everything that can be measured, in order.

use std::sync::Arc;

use crate::bare_machine::measurement;
use crate::command::Command;
use crate::database::Database;
use crate::effort::Effort;
use crate::environment::{Setting, StoreKind, many_threads, on};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::report::Figure;
use crate::{
    approval, bare_machine, http, long_run, parked_fleet, parked_fleet_in_postgres, shares, stream,
    subscribers, tool_calls, tool_round,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suite {
    ToolRound,
    Approval,
    ParkedFleet,
    LongRun,
    Stream,
    Shares,
    Subscribers,
    Http,
    Costly,
    FrontEnds,
    Tools,
    Machine,
}

impl Suite {
    pub(crate) const ALL: [Self; 12] = [
        Self::ToolRound,
        Self::Approval,
        Self::ParkedFleet,
        Self::LongRun,
        Self::Stream,
        Self::Shares,
        Self::Subscribers,
        Self::Http,
        Self::Costly,
        Self::FrontEnds,
        Self::Tools,
        Self::Machine,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ToolRound => "W1",
            Self::Approval => "W2",
            Self::ParkedFleet => "W3",
            Self::LongRun => "W4",
            Self::Stream => "W5",
            Self::Shares => "W6",
            Self::Subscribers => "subscribers",
            Self::Http => "http",
            Self::Costly => "costly",
            Self::FrontEnds => "front-ends",
            Self::Tools => "tools",
            Self::Machine => "machine",
        }
    }

    fn stores(self, asked: &[StoreKind]) -> Vec<Option<StoreKind>> {
        match self {
            Self::Machine => vec![None],
            // A store in memory does not survive a restart.
            Self::ParkedFleet => {
                asked.iter().copied().filter(|kind| *kind != StoreKind::Memory).map(Some).collect()
            }
            // The server must keep what it acknowledges, and the SQLite store is its default.
            Self::Http | Self::Costly | Self::FrontEnds => {
                asked.iter().copied().filter(|kind| *kind == StoreKind::Sqlite).map(Some).collect()
            }
            Self::ToolRound
            | Self::Approval
            | Self::LongRun
            | Self::Stream
            | Self::Shares
            | Self::Subscribers
            | Self::Tools => asked.iter().copied().map(Some).collect(),
        }
    }
}

pub(crate) fn run(command: &Command, progress: &mut Progress) -> Result<Vec<Figure>, Failure> {
    let pieces: Vec<(Suite, Option<StoreKind>)> = command
        .suites
        .iter()
        .flat_map(|suite| suite.stores(&command.stores).into_iter().map(|store| (*suite, store)))
        .collect();
    progress.expect_pieces(pieces.len());
    let effort = Effort::of(command.level);
    let mut figures = Vec::new();
    let database = database(command)?;
    for (suite, store) in pieces {
        let on = store.map(|kind| format!(" on {}", kind.name())).unwrap_or_default();
        progress.begin(format!("{}{on}", suite.name()));
        let Some(kind) = store else {
            figures.extend(bare_machine::run(measurement::MachineEffort::of(command.level), progress));
            continue;
        };
        let (folder, database) = (command.folder.clone(), database.clone());
        let setting = Setting { kind, folder, database, is_first: figures.is_empty() };
        let measured = one(suite, &setting, effort, command, progress);
        figures.extend(measured.map_err(|why| Failure::new(format!("{}{on}: {why}", suite.name())))?);
    }
    Ok(figures)
}

/// One database for all measurements.
fn database(command: &Command) -> Result<Option<Arc<Database>>, Failure> {
    if !command.stores.contains(&StoreKind::Postgres) {
        return Ok(None);
    }
    let (named, folder) = (command.database.clone(), command.folder.clone());
    let opened = async move { Database::open(named.as_deref(), &folder).await };
    Ok(Some(on(&many_threads()?, opened)?))
}

fn one(
    suite: Suite,
    setting: &Setting,
    effort: Effort,
    command: &Command,
    progress: &Progress,
) -> Result<Vec<Figure>, Failure> {
    match suite {
        Suite::ToolRound => tool_round::run(setting, effort, command.concurrency, progress),
        Suite::Approval => approval::run(setting, effort, command.concurrency, progress),
        Suite::ParkedFleet if setting.kind == StoreKind::Postgres => {
            parked_fleet_in_postgres::run(setting, effort, command.run_count_max, progress)
        }
        Suite::ParkedFleet => parked_fleet::run(setting, effort, command.run_count_max, progress),
        Suite::LongRun => long_run::run(setting, effort, progress),
        Suite::Stream => stream::run(setting, effort, progress),
        Suite::Shares => shares::run(setting, effort, progress),
        Suite::Subscribers => subscribers::run(setting, effort, progress),
        Suite::Http => http::run(setting, effort, command.program.as_deref(), progress),
        Suite::Costly => http::costly::run(setting, effort, command.program.as_deref(), progress),
        Suite::FrontEnds => http::front_ends::run(setting, effort, command.program.as_deref(), progress),
        Suite::Tools => tool_calls::run(setting, effort, progress),
        Suite::Machine => Ok(Vec::new()),
    }
}
