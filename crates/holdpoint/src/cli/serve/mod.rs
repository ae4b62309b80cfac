//! `holdpoint serve`: runs the configuration as a server until a signal stops it.

mod audit_retention;
mod audit_sealer;
mod audit_sink;
mod http_setup;
mod log;
mod log_queue;
mod reload;
mod running;
mod signals;
mod store;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::config::overlap::first_inside;
use super::config::{Configuration, EXPOSED_WITHOUT_TLS, listen_address};
use super::problem::{Exit, Problem};
use super::store::StoreUrl;
use super::{CommandResult, GlobalArgs};
pub(super) use log::{LogFormat, LogLevel, announce, init as init_log};
pub(super) use running::{RunningServer, block_on_runtime};

/// Serve the configuration over HTTP
///
/// Listens on the address in the configuration, and prints "listening on http://HOST:PORT" on standard error. Without
/// [auth] the next line is "token: TOKEN": approving, deleting and reloading need it, and the other commands find it by
/// themselves. Without --store, runs are kept in the store that the configuration names. After SIGTERM or Ctrl-C,
/// running calls may finish within `server.drain`; a second one stops the server at once. Nothing is lost either way.
/// SIGHUP reloads the configuration; if it has a mistake, nothing changes.
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = "holdpoint.toml")]
    config: PathBuf,
    /// Address to listen on, instead of the one in the configuration; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// How the log on standard error is written
    #[arg(long, value_name = "FORM", default_value = "text")]
    log: LogFormat,
    /// The least severe level that is logged
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: LogLevel,
}

impl Serve {
    pub(super) fn run(&self, global: &GlobalArgs) -> CommandResult {
        let options = ServeOptions {
            config: self.config.clone(),
            listen: self.listen,
            store: global.store_is_explicit.then(|| global.store.clone()),
        };
        let configuration = options.load()?;
        let log = init_log(self.log, self.log_level)?;
        log::log_warnings(&configuration);
        let server = &configuration.server;
        if self.listen.is_some() && server.is_exposed_without_tls() {
            tracing::warn!(listen = %server.listen, "{EXPOSED_WITHOUT_TLS}");
        }
        let outcome = block_on_runtime(async {
            let running = RunningServer::start(options, configuration, log.clone()).await?;
            announce(&log, self.log, running.address(), running.open_token());
            running.run_until_stopped().await
        });
        log.flush();
        outcome
    }
}

/// Options from the command line. They override the file, even after a reload.
#[derive(Clone, Debug)]
pub(super) struct ServeOptions {
    pub(super) config: PathBuf,
    pub(super) listen: Option<SocketAddr>,
    pub(super) store: Option<StoreUrl>,
}

impl ServeOptions {
    pub(super) fn load(&self) -> Result<Configuration, Problem> {
        let mut configuration = Configuration::load(&self.config)?;
        if let Some(unset) = configuration.unset.take() {
            return Err(Problem::ConfigFaults(unset));
        }
        if let Some(listen) = self.listen {
            if !listen.ip().is_loopback() && configuration.auth.is_none() {
                return Err(Problem::new(
                    "OPEN_TO_OTHERS",
                    format!("{listen} can be reached from other machines and there is no [auth]"),
                    "Add [auth] with keys to the configuration, or listen on 127.0.0.1.",
                    Exit::Configuration,
                ));
            }
            configuration.server.listen = listen;
        }
        if let Some(store) = &self.store {
            let file: Vec<PathBuf> = store.path().map(Into::into).into_iter().collect();
            for folder in &configuration.written_folders {
                if first_inside(folder, &file).is_some() {
                    return Err(Problem::new(
                        "STORE_IN_TOOL_FOLDER",
                        format!("a model could overwrite {store}: a tool writes to {}", folder.display()),
                        "Name a store outside of that folder with --store.",
                        Exit::Configuration,
                    ));
                }
            }
            configuration.store = store.clone();
        }
        Ok(configuration)
    }
}
