//! Why a command failed: a code, a cause, a next step.

use std::fmt;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::client::ApiError;
use super::config::ConfigFaults;
use super::output::print_stderr;

#[derive(Clone, Copy, Debug)]
pub(super) enum Exit {
    /// The command line or the configuration is invalid.
    Configuration,
    Other,
}

#[derive(Debug)]
pub(super) enum Problem {
    Plain {
        code: &'static str,
        cause: String,
        next: String,
        exit: Exit,
    },
    /// Each mistake in the configuration has its own cause and next step.
    ConfigFaults(ConfigFaults),
    /// A server returned an error.
    Api(ApiError),
}

impl Problem {
    pub(super) fn new(
        code: &'static str,
        cause: impl Into<String>,
        next: impl Into<String>,
        exit: Exit,
    ) -> Self {
        Self::Plain { code, cause: cause.into(), next: next.into(), exit }
    }

    pub(super) fn report(&self, as_json: bool) -> ExitCode {
        print_stderr(&if as_json { self.as_json().to_string() } else { self.to_string() });
        match self {
            Self::ConfigFaults(_) | Self::Plain { exit: Exit::Configuration, .. } => ExitCode::from(2),
            Self::Api(_) | Self::Plain { exit: Exit::Other, .. } => ExitCode::FAILURE,
        }
    }

    fn as_json(&self) -> Value {
        match self {
            Self::Plain { code, cause, next, .. } => {
                json!({"error": {"code": code, "cause": cause, "next": next}})
            }
            Self::ConfigFaults(file) => json!({"error": file.as_json()}),
            Self::Api(error) => json!({"error": error.as_json()}),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain { code, cause, next, .. } => write!(f, "{code}: {cause}\n  next: {next}"),
            Self::ConfigFaults(file) => file.fmt(f),
            Self::Api(error) => error.fmt(f),
        }
    }
}
