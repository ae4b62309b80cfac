//! Why a command failed: a code, a cause, a next step.

use std::process::ExitCode;

use serde_json::json;

#[derive(Clone, Copy, Debug)]
pub(super) enum Exit {
    /// The command line or the configuration names something that cannot be.
    Configuration,
    Other,
}

#[derive(Debug)]
pub(super) struct Problem {
    code: &'static str,
    cause: String,
    next: String,
    exit: Exit,
}

impl Problem {
    pub(super) fn new(
        code: &'static str,
        cause: impl Into<String>,
        next: impl Into<String>,
        exit: Exit,
    ) -> Self {
        Self { code, cause: cause.into(), next: next.into(), exit }
    }

    pub(super) fn report(&self, as_json: bool) -> ExitCode {
        if as_json {
            eprintln!("{}", json!({"error": {"code": self.code, "cause": self.cause, "next": self.next}}));
        } else {
            eprintln!("{}: {}\n  next: {}", self.code, self.cause, self.next);
        }
        match self.exit {
            Exit::Configuration => ExitCode::from(2),
            Exit::Other => ExitCode::FAILURE,
        }
    }
}
