//! `holdpoint check`: validates the configuration, prints what it means, and what it would do to waiting runs.

mod impact;
mod resolved;

use std::path::PathBuf;

use clap::Args;
use stores::sqlite::held_calls::survey;

use super::config::{ConfigFaults, Configuration};
use super::output::{print, print_json, print_stderr};
use super::problem::Problem;
use super::progress::{Amount, ProgressLine};
use super::store::StoreUrl;
use super::{CommandResult, CommandStatus, GlobalArgs, database};
use impact::{Agents, ImpactReport};

/// Check the configuration and print what it means
///
/// Reports every mistake with its line and its key; the exit code is then 2. It is also 2 where a server would not start
/// because an environment variable that the file names is not set. Warnings are about what is likely not meant, and leave
/// the exit code at 0. With --store, the file is also compared
/// with the runs that wait: which it would fail, for which it would ask again, and which it would not touch. Changes
/// nothing, and works while a server runs.
#[derive(Debug, Args)]
pub(super) struct Check {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "holdpoint.toml")]
    config: PathBuf,
}

impl Check {
    pub(super) fn run(&self, global: &GlobalArgs) -> CommandResult {
        let configuration = Configuration::load(&self.config)?;
        let impact_report = if global.store_is_explicit {
            let agents = Agents::from_configuration(&configuration);
            let mut line = ProgressLine::default();
            let progress = |seen| line.update("looking at held calls", Amount::Done(seen));
            let judge = |held: &_| agents.assess(held);
            Some(ImpactReport::new(match &global.store {
                StoreUrl::Postgres { url } => database::held_calls(url, judge, progress)?,
                file @ (StoreUrl::Sqlite { .. } | StoreUrl::Memory) => {
                    survey(file.require_file("")?, judge, progress)?
                }
            }))
        } else {
            None
        };
        let file = self.config.display().to_string();
        if global.json {
            let mut whole = resolved::as_json(&file, &configuration);
            if let Some(impact_report) = &impact_report {
                whole["store_checked"] = global.store.to_string().into();
                whole["held"] = impact_report.as_json();
            }
            for (key, found) in [("unset", &configuration.unset), ("warnings", &configuration.warnings)] {
                if let Some(found) = found {
                    whole[key] = found.as_json()["faults"].take();
                }
            }
            print_json(&whole)?;
        } else {
            let mut text = resolved::as_text(&file, &configuration);
            if let Some(impact_report) = &impact_report {
                text.push_str(&impact_report.as_text(&global.store.to_string()));
            }
            print(&text)?;
            for warning in configuration.warnings.iter().flat_map(ConfigFaults::lines) {
                print_stderr(&format!("warning: {warning}"));
            }
        }
        // `serve` would fail with these faults.
        match configuration.unset {
            Some(unset) => Err(Problem::ConfigFaults(unset)),
            None => Ok(CommandStatus::Success),
        }
    }
}
