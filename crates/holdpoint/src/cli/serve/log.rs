//! The operator's log on standard error. It does not contain what runs, tools and clients say.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::json;
use tracing::Level;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use super::log_queue::LogQueue;
use crate::cli::config::{ConfigFaults, Configuration};
use crate::cli::open_token::OpenToken;
use crate::cli::problem::{Exit, Problem};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum LogFormat {
    /// A line for a person
    Text,
    /// One JSON object in each line
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl LogLevel {
    const fn as_tracing(self) -> Level {
        match self {
            Self::Error => Level::ERROR,
            Self::Warn => Level::WARN,
            Self::Info => Level::INFO,
            Self::Debug => Level::DEBUG,
            Self::Trace => Level::TRACE,
        }
    }
}

/// Starts the log. If the process already has one, it is kept.
pub(in crate::cli) fn init(format: LogFormat, level: LogLevel) -> Result<LogQueue, Problem> {
    let dropped_line = match format {
        LogFormat::Text => dropped_text,
        LogFormat::Json => dropped_json,
    };
    let queue = LogQueue::start(std::io::stderr(), dropped_line).map_err(|why| {
        let cause = format!("the thread that writes the log cannot be started: {why}");
        Problem::new("NO_THREADS", cause, "See which limits this process has.", Exit::Other)
    })?;
    let log = tracing_subscriber::fmt()
        .with_max_level(level.as_tracing())
        .with_writer(queue.clone())
        .with_ansi(false)
        .log_internal_errors(false);
    let begun = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
    if begun.is_ok() {
        std::panic::set_hook(Box::new(|panic| {
            // Omit the panic message: it may contain the arguments of a call, which belong only in the log of the run.
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            tracing::error!(place, "something panicked");
        }));
    }
    Ok(queue)
}

fn dropped_message(count: u64) -> String {
    format!("{count} log lines were dropped: standard error was not read fast enough")
}

fn dropped_text(count: u64) -> String {
    format!("{} ERROR {}\n", now(), dropped_message(count))
}

fn dropped_json(count: u64) -> String {
    format!("{}\n", json!({"timestamp": now(), "level": "ERROR", "message": dropped_message(count)}))
}

/// The time in the format of the other log lines.
fn now() -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

/// Logs the settings that are valid but probably not intended.
pub(super) fn log_warnings(configuration: &Configuration) {
    for warning in configuration.warnings.iter().flat_map(ConfigFaults::lines) {
        tracing::warn!("{warning}");
    }
}

/// Prints the lines that other programs wait for, whatever the log level. They are never dropped.
pub(in crate::cli) fn announce(
    log: &LogQueue,
    format: LogFormat,
    address: SocketAddr,
    token: Option<&OpenToken>,
) {
    let mut lines = vec![format!("listening on http://{address}")];
    if let Some(token) = token {
        lines.extend([format!("token: {}", token.text), open_mode_notice(&token.saved_to)]);
    }
    match format {
        // In one write, so that no log line comes between them.
        LogFormat::Text => log.write_always(lines.join("\n")),
        LogFormat::Json => {
            let json = |line| json!({"timestamp": now(), "level": "INFO", "message": line}).to_string();
            log.write_always(lines.into_iter().map(json).collect::<Vec<_>>().join("\n"));
        }
    }
}

fn open_mode_notice(kept: &Result<PathBuf, String>) -> String {
    let kept = match kept {
        Ok(path) => format!("kept in {}", path.display()),
        Err(why) => format!("not kept, because {why}"),
    };
    format!(
        "no [auth]: this mode is for trying. Every process on this machine can read and post; approving, deleting and \
         reloading need the token, which is {kept}. Add [auth] before an agent gets a tool that reaches the network or \
         a shell"
    )
}
