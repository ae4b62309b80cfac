//! What an operator reads on standard error. What runs, tools and clients say does not stand there.

use std::net::SocketAddr;

use clap::ValueEnum;
use serde_json::json;
use tracing::Level;

use crate::cli::output::say;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum LogForm {
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

/// From here on. A second log is not begun.
pub(in crate::cli) fn begin(form: LogForm, level: LogLevel) {
    let log = tracing_subscriber::fmt()
        .with_max_level(level.as_tracing())
        .with_writer(std::io::stderr)
        .with_ansi(false)
        // Where nobody reads the log any more, the work goes on without.
        .log_internal_errors(false);
    let begun = match form {
        LogForm::Text => log.try_init(),
        LogForm::Json => log.json().flatten_event(true).try_init(),
    };
    if begun.is_ok() {
        std::panic::set_hook(Box::new(|panic| {
            // What was said may be about the arguments of a call, and belongs to the log of its run.
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            tracing::error!(place, "something panicked");
        }));
    }
}

/// The one line that others wait for: it is said however little the log has.
pub(in crate::cli) fn announce(form: LogForm, address: SocketAddr) {
    let line = format!("listening on http://{address}");
    match form {
        LogForm::Text => say(&line),
        LogForm::Json if tracing::enabled!(Level::INFO) => tracing::info!("{line}"),
        LogForm::Json => say(&json!({"level": "INFO", "message": line}).to_string()),
    }
}
